"""``compile`` and its in-place form for modules.

Checks its arguments at once and does nothing else until the first call. What is compiled, when, and
what is reused is the engine's business.
"""

from __future__ import annotations

import copyreg
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar, overload

from torch import nn

from oxyfuel import _engine
from oxyfuel._backends import BackendArgument, is_native, resolve
from oxyfuel._decorators import unwrap
from oxyfuel._modules import call_of, original, twin

F = TypeVar("F", bound=Callable[..., Any])

MODES = ("default", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

OPTIONS = ("guard_filter_fn", "numerics")
"""Options of the native backend. ``guard_filter_fn`` belongs to the front end and goes with every backend."""

_COPIED = ("__module__", "__name__", "__qualname__", "__doc__")


def _check(
    fullgraph: bool,
    dynamic: bool | None,
    backend: BackendArgument,
    mode: str | None,
    options: dict[str, Any] | None,
) -> None:
    if mode is not None and options is not None:
        raise RuntimeError("compile: mode and options exclude each other; give one of them")
    if mode is not None and mode not in MODES:
        raise RuntimeError(f"compile: unknown mode {mode!r}; choose from {', '.join(MODES)}")
    if not isinstance(fullgraph, bool):
        raise TypeError(f"compile: fullgraph must be True or False, not {fullgraph!r}")
    if dynamic not in (None, True, False):
        raise TypeError(f"compile: dynamic must be None, True or False, not {dynamic!r}")
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"compile: backend must be a name or a callable, got {type(backend).__name__}")
    if options is not None and is_native(backend):
        unknown = sorted(set(options) - set(OPTIONS))
        if unknown:
            raise RuntimeError(f"compile: unknown option {', '.join(unknown)}; choose from {', '.join(OPTIONS)}")


@overload
def compile(model: F, **keywords: Any) -> F: ...
@overload
def compile(model: None = None, **keywords: Any) -> Callable[[F], F]: ...
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: BackendArgument = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
) -> Any:
    """Compile a function, method, callable object or module; the parameters are ``torch.compile``'s.

    ``fullgraph``
        one graph or an error.
    ``dynamic``
        ``None``: sizes turn symbolic when they change; ``True``: from the start; ``False``: never.
    ``backend``
        ``None`` for our own, a name (``list_backends()``), or ``(GraphModule, inputs) -> callable``.
    ``mode`` or ``options``
        a preset of the backend's options, or the options themselves.
    ``disable``
        return ``model`` itself.

    Without ``model``, returns a decorator. A module comes back as a twin: an object of the module's
    class with the module's own state, whose calls are compiled.
    """
    _check(fullgraph, dynamic, backend, mode, options)
    keywords = {
        "fullgraph": fullgraph,
        "dynamic": dynamic,
        "backend": backend,
        "mode": mode,
        "options": options,
        "name": name,
        "disable": disable,
        "recompile_limit": recompile_limit,
        "isolate_recompiles": isolate_recompiles,
    }
    if model is None:
        return lambda model: compile(_require(model), **keywords)
    _require(model)
    if disable:
        return model
    if isinstance(model, (staticmethod, classmethod)):
        return type(model)(compile(model.__func__, **keywords))
    if isinstance(model, nn.Module):
        module = original(model)
        return twin(
            module,
            (compile, keywords),
            __call__=_compiled(call_of(module), bind=False, **keywords),
            forward=_compiled(module.forward, bind=False, **keywords),
        )
    model = unwrap(model)
    binds = hasattr(type(model), "__get__") and getattr(model, "__self__", None) is None
    return _compiled(model, bind=binds, **keywords)


def _require(model: Any) -> Any:
    if isinstance(model, type):
        raise TypeError(f"compile: got the class {model.__qualname__}; compile an instance of it, or its methods")
    if not callable(model) and not isinstance(model, (staticmethod, classmethod)):
        raise TypeError(f"compile: expected a callable or a module, got {type(model).__name__}")
    return model


def _compiled(
    fn: Callable[..., Any],
    *,
    bind: bool,
    fullgraph: bool,
    dynamic: bool | None,
    backend: BackendArgument,
    mode: str | None,
    options: dict[str, Any] | None,
    name: str | None,
    recompile_limit: int | None,
    isolate_recompiles: bool,
    **_: Any,
) -> Any:
    keywords = {key: value for key, value in locals().items() if key not in ("fn", "bind", "_")}
    native = is_native(backend)
    engine_options = {key: value for key, value in (options or {}).items() if native or key == "guard_filter_fn"}
    backend_options = None if native else {k: v for k, v in (options or {}).items() if k not in engine_options}
    if native and mode not in (None, "default"):
        engine_options["mode"] = mode
    if recompile_limit is not None:
        engine_options["recompile_limit"] = recompile_limit
    if isolate_recompiles:
        engine_options["isolate_recompiles"] = True
    compiled = _engine.CompiledFunction(
        fn,
        fullgraph=fullgraph,
        dynamic=dynamic,
        backend=resolve(backend, mode=None if native else mode, options=backend_options),
        options=engine_options or None,
        name=name,
        bind=bind,
    )
    if isinstance(fn, types.FunctionType):
        compiled.__dict__.update((k, v) for k, v in fn.__dict__.items() if k != "__wrapped__")
    for attribute in _COPIED:
        if hasattr(fn, attribute):
            setattr(compiled, attribute, getattr(fn, attribute))
    compiled.__dict__["_oxyfuel_keywords"] = keywords
    return compiled


def _reduce(compiled: Any) -> str | tuple[Any, ...]:
    """How a compiled function is copied and pickled: by name where it has one, else by what it wraps."""
    qualname = getattr(compiled, "__qualname__", "")
    if getattr(sys.modules.get(compiled.__module__), qualname, None) is compiled:
        return qualname
    return _recompile, (compiled.__wrapped__, compiled.__dict__["_oxyfuel_keywords"])


def _recompile(fn: Any, keywords: dict[str, Any]) -> Any:
    return compile(fn, **keywords)


copyreg.pickle(_engine.CompiledFunction, _reduce)


def module_compile(module: nn.Module, **keywords: Any) -> None:
    """Compile a module in place: the object stays what it is, and its calls are compiled.

    Takes the keywords of ``compile``. A copy of the module, or one loaded from a pickle, is not compiled.
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module_compile: expected a module, got {type(module).__name__}")
    module = original(module)
    module._compiled_call_impl = compile(module._call_impl, **keywords)
