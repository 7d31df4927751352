"""The functions by which a program speaks to the tracer, and what the tracer recognises them by.

Each is ordinary Python with the meaning it has in eager code. What the engine reads:

========================== ==========================================================================
``graph_break``,           recognised as function objects (by identity)
``skip_frame``,
``step_unsupported``,
``is_compiling``
``disable``                the wrapper carries ``_oxyfuel_disable = True``, ``_oxyfuel_recursive``
                           (bool) and ``_oxyfuel_reason`` (str or None). All recursive wrappers run
                           the one code object ``DISABLED_CODE``: a frame with that code, and all
                           beneath it, is left to the interpreter. All non-recursive wrappers run
                           ``DISABLED_FRAME_CODE``: it and the frame it calls are left to the
                           interpreter, frames beneath are eligible again.
``nonstrict_trace``        the wrapper carries ``_oxyfuel_nonstrict = True``
``assume_constant_result`` the function carries ``_oxyfuel_constant_result = True``
``allow_in_graph``         ``ALLOWED_IN_GRAPH`` maps ``id(fn)`` to ``fn``
``substitute_in_graph``    ``SUBSTITUTES`` maps ``id(original)`` to a ``Substitute``
``error_on_graph_break``,  instances of these classes are context managers known to the tracer; outside
``disable_nested_...``     a trace they set ``SCOPE.error_on_graph_break`` and
                           ``SCOPE.nested_graph_breaks`` (None: not set), read when a trace starts
``set_stance``             ``_engine.set_config("stance", (stance, skip_guard_eval_unsafe, force_backend))``
``mark_*``                 torch's own attributes on the tensor (``_dynamo_dynamic_indices`` ...), so
                           marks made through torch count too
========================== ==========================================================================
"""

from __future__ import annotations

import functools
import inspect
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar, overload

import torch

from oxyfuel import _engine
from oxyfuel._backends import BackendArgument, resolve

F = TypeVar("F", bound=Callable[..., Any])


# --- recognised by identity -------------------------------------------------------------------


def graph_break(msg: str = "") -> None:
    """End the graph here: what follows is captured anew. ``msg`` appears in the report."""


def skip_frame(msg: str = "") -> None:
    """Leave the frame that calls this to the interpreter; functions it calls are still compiled."""


def step_unsupported(msg: str = "") -> None:
    """End the graph here and leave the rest of the frame to the interpreter."""


def is_compiling() -> bool:
    """True in code that is being captured, False in eager and disabled code."""
    return False


# --- disable ----------------------------------------------------------------------------------


def _disabled(fn: Callable[..., Any]) -> Callable[..., Any]:
    def disabled(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return disabled


def _disabled_frame(fn: Callable[..., Any]) -> Callable[..., Any]:
    def disabled_frame(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    return disabled_frame


DISABLED_CODE: types.CodeType = _disabled(len).__code__
DISABLED_FRAME_CODE: types.CodeType = _disabled_frame(len).__code__


def unwrap(fn: Any) -> Any:
    """The user's own callable beneath ``compile`` and ``disable`` wrappers."""
    while isinstance(fn, _engine.CompiledFunction) or getattr(fn, "_oxyfuel_disable", False):
        fn = fn.__wrapped__
    return fn


@overload
def disable(fn: F, recursive: bool = True, *, reason: str | None = None) -> F: ...
@overload
def disable(fn: None = None, recursive: bool = True, *, reason: str | None = None) -> Callable[[F], F]: ...
def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Run ``fn`` eagerly, also when compiled code calls it.

    ``recursive=False`` leaves only the function's own frame to the interpreter. ``reason`` appears in
    the error under ``fullgraph=True``. A module comes back as a twin that shares all its state.
    """
    if fn is None:
        return lambda fn: disable(fn, recursive, reason=reason)
    if isinstance(fn, (staticmethod, classmethod)):
        return type(fn)(disable(fn.__func__, recursive, reason=reason))
    if isinstance(fn, type):
        raise TypeError(f"disable() got the class {fn.__qualname__}; disable the methods that must run eagerly")
    if not callable(fn):
        raise TypeError(f"disable() expects a callable, got {type(fn).__name__}")
    if isinstance(fn, torch.nn.Module):
        from oxyfuel._modules import call_of, original, twin

        module = original(fn)
        keywords = {"recursive": recursive, "reason": reason}
        return twin(module, (disable, keywords), __call__=disable(call_of(module), **keywords))
    inner = unwrap(fn)
    wrapper: Any = (_disabled if recursive else _disabled_frame)(inner)
    functools.update_wrapper(wrapper, inner)
    wrapper._oxyfuel_disable = True
    wrapper._oxyfuel_recursive = recursive
    wrapper._oxyfuel_reason = reason
    return wrapper


# --- scopes -----------------------------------------------------------------------------------


class _Scope(threading.local):
    """Per thread. Read by the engine when it starts a trace."""

    error_on_graph_break: bool | None = None
    nested_graph_breaks: bool | None = None


SCOPE = _Scope()


class _ScopeSetting:
    """Context manager and decorator that gives one attribute of ``SCOPE`` a value."""

    _attribute: str

    def __init__(self, value: bool) -> None:
        self.value = value
        self._saved: list[bool | None] = []

    def __enter__(self) -> None:
        self._saved.append(getattr(SCOPE, self._attribute))
        setattr(SCOPE, self._attribute, self.value)

    def __exit__(self, *_: object) -> None:
        setattr(SCOPE, self._attribute, self._saved.pop())

    def __call__(self, fn: F) -> F:
        if not callable(fn):
            raise TypeError(f"expects a callable, got {type(fn).__name__}")
        scope, value = type(self), self.value

        @functools.wraps(fn)
        def scoped(*args: Any, **kwargs: Any) -> Any:
            with _enter(scope, value):
                return fn(*args, **kwargs)

        return scoped  # type: ignore[return-value]


def _enter(scope: type[_ScopeSetting], value: bool) -> _ScopeSetting:
    setting = scope.__new__(scope)
    _ScopeSetting.__init__(setting, value)
    return setting


class error_on_graph_break(_ScopeSetting):
    """With ``True``, the first break in scope is an error; with ``False``, breaks are allowed again.

    Decorator and context manager; ranks below ``fullgraph``; no effect in eager code.
    """

    _attribute = "error_on_graph_break"


class _NestedBreaksDisabled(_ScopeSetting):
    _attribute = "nested_graph_breaks"


def disable_nested_graph_breaks(fn: Any = None) -> Any:
    """In scope, a break in an inlined function ends the graph before the call instead of inside it.

    Decorator on ``fn``; called empty, a context manager.
    """
    setting = _NestedBreaksDisabled(False)
    return setting if fn is None else setting(fn)


class _Stance(NamedTuple):
    stance: str
    skip_guard_eval_unsafe: bool
    force_backend: Any


STANCES = (
    "default",
    "force_eager",
    "eager_on_recompile",
    "fail_on_recompile",
    "eager_then_compile",
    "aot_eager_then_compile",
)
_stance = _Stance("default", False, None)


def _set_stance(stance: _Stance) -> _Stance:
    global _stance
    _engine.set_config("stance", tuple(stance))
    previous, _stance = _stance, stance
    return previous


class set_stance:
    """How compiled callables behave in this process: a plain call, a context manager, or a decorator."""

    def __init__(
        self,
        stance: str = "default",
        *,
        skip_guard_eval_unsafe: bool = False,
        force_backend: BackendArgument = None,
    ) -> None:
        if stance not in STANCES:
            raise ValueError(f"set_stance: unknown stance {stance!r}; choose from {', '.join(STANCES)}")
        if force_backend is not None and stance != "default":
            raise RuntimeError("set_stance: force_backend goes with the default stance only")
        self._stance = _Stance(stance, skip_guard_eval_unsafe, resolve(force_backend))
        self._previous = _set_stance(self._stance)

    def __enter__(self) -> None:
        _set_stance(self._stance)

    def __exit__(self, *_: object) -> None:
        _set_stance(self._previous)

    def __call__(self, fn: F) -> F:
        _set_stance(self._previous)
        stance = self._stance

        @functools.wraps(fn)
        def stanced(*args: Any, **kwargs: Any) -> Any:
            previous = _set_stance(stance)
            try:
                return fn(*args, **kwargs)
            finally:
                _set_stance(previous)

        return stanced  # type: ignore[return-value]


# --- how a call is captured ---------------------------------------------------------------------


def nonstrict_trace(fn: F) -> F:
    """Capture ``fn`` by running it on tracing tensors: no break, whatever its Python does.

    Everything but its tensor operations happens while tracing only.
    """
    if not callable(fn):
        raise TypeError(f"nonstrict_trace expects a callable, got {type(fn).__name__}")

    @functools.wraps(fn)
    def nonstrict(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    nonstrict._oxyfuel_nonstrict = True  # type: ignore[attr-defined]
    return nonstrict  # type: ignore[return-value]


ALLOWED_IN_GRAPH: dict[int, Any] = {}


def allow_in_graph(fn: Any) -> Any:
    """Put calls of ``fn`` into the graph as one opaque operation. Apply it before the region is compiled."""
    if isinstance(fn, (list, tuple)):
        return [allow_in_graph(each) for each in fn]
    if not callable(fn):
        raise TypeError(f"allow_in_graph expects a callable, got {type(fn).__name__}")
    ALLOWED_IN_GRAPH[id(fn)] = fn
    return fn


def assume_constant_result(fn: F) -> F:
    """Call ``fn`` once while tracing and take its result for every later call."""
    fn._oxyfuel_constant_result = True  # type: ignore[attr-defined]
    return fn


class Substitute(NamedTuple):
    original: Callable[..., Any]
    traceable: Callable[..., Any]
    can_constant_fold_through: bool


SUBSTITUTES: dict[int, Substitute] = {}


def _same_parameters(original: Callable[..., Any], traceable: Callable[..., Any]) -> bool:
    try:
        signature = inspect.signature(original)
    except ValueError:  # many C functions have none
        return True
    other = inspect.signature(traceable)

    def shape(signature: inspect.Signature) -> list[tuple[str, Any, Any]]:
        stars = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        return [
            ("" if p.kind in stars else p.name, p.kind is p.KEYWORD_ONLY, p.default)
            for p in signature.parameters.values()
        ]

    anything = shape(inspect.signature(lambda *args, **kwargs: None))
    return shape(signature) == shape(other) or anything in (shape(signature), shape(other))


def substitute_in_graph(
    original_fn: Callable[..., Any],
    *,
    can_constant_fold_through: bool = False,
    skip_signature_check: bool = False,
) -> Callable[[F], F]:
    """Trace through the decorated Python function wherever ``original_fn`` is called."""
    if not callable(original_fn) or isinstance(original_fn, type):
        raise TypeError(f"substitute_in_graph expects a function, got {type(original_fn).__name__}")

    def register(traceable: F) -> F:
        if not isinstance(traceable, types.FunctionType):
            raise TypeError(f"substitute_in_graph expects a Python function, got {type(traceable).__name__}")
        if not skip_signature_check and not _same_parameters(original_fn, traceable):
            raise TypeError(f"substitute_in_graph: signatures of {original_fn} and {traceable} differ")
        if id(original_fn) in SUBSTITUTES:
            raise ValueError(f"substitute_in_graph: {original_fn} has a substitute already")
        SUBSTITUTES[id(original_fn)] = Substitute(original_fn, traceable, can_constant_fold_through)

        @functools.wraps(traceable)
        def eager(*args: Any, **kwargs: Any) -> Any:
            return original_fn(*args, **kwargs)

        return eager  # type: ignore[return-value]

    return register


# --- shapes -------------------------------------------------------------------------------------


class _DimRange(NamedTuple):
    dim: int
    min: int | None
    max: int | None


def _set_range(tensor: Any, index: int, min: int | None, max: int | None) -> None:
    kept = {r for r in getattr(tensor, "_dynamo_dynamic_range", ()) if r.dim != index}
    if min is not None or max is not None:
        kept.add(_DimRange(index, min, max))
    tensor._dynamo_dynamic_range = kept
    tensor._has_dynamo_dim_marking = True


def _indices(index: int | Sequence[int]) -> Sequence[int]:
    if isinstance(index, int):
        return (index,)
    if isinstance(index, (list, tuple)):
        return index
    raise TypeError(f"index must be an int, a list or a tuple, not {type(index).__name__}")


def _require_tensor(who: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor):
        raise TypeError(f"{who} expects a tensor, got {type(tensor).__name__}")


def mark_dynamic(
    t: torch.Tensor,
    index: int | Sequence[int],
    *,
    hint_override: int | None = None,
    min: int | None = None,
    max: int | None = None,
    specialize_on: list[Callable[[int], bool]] | None = None,
) -> None:
    """Make sizes of ``t`` symbolic from the first compilation; code that pins one is an error."""
    _require_tensor("mark_dynamic", t)
    tensor: Any = t
    for i in _indices(index):
        tensor._dynamo_dynamic_indices = {*getattr(t, "_dynamo_dynamic_indices", ()), i}
        tensor._dynamo_hint_overrides = dict(getattr(t, "_dynamo_hint_overrides", {}))
        if hint_override:
            tensor._dynamo_hint_overrides[i] = hint_override
        tensor._specialize_on = {**getattr(t, "_specialize_on", {}), i: list(specialize_on or ())}
        weak = getattr(t, "_dynamo_weak_dynamic_indices", None)
        if weak is not None:
            tensor._dynamo_weak_dynamic_indices = weak - {i}
        _set_range(t, i, min, max)


def maybe_mark_dynamic(
    t: torch.Tensor, index: int | Sequence[int], *, min: int | None = None, max: int | None = None
) -> None:
    """As ``mark_dynamic``, but code may pin the size."""
    _require_tensor("maybe_mark_dynamic", t)
    tensor: Any = t
    for i in _indices(index):
        if i in getattr(t, "_dynamo_dynamic_indices", ()):
            continue  # the stronger mark stays
        tensor._dynamo_weak_dynamic_indices = {*getattr(t, "_dynamo_weak_dynamic_indices", ()), i}
        _set_range(t, i, min, max)


def mark_static(t: Any, index: int | Sequence[int] | None = None) -> Any:
    """Keep sizes of ``t`` (all without ``index``) constants; for a module class, the ints of its instances."""
    if isinstance(t, type) and issubclass(t, torch.nn.Module):
        t._dynamo_marked_static = True
        return t
    _require_tensor("mark_static", t)
    wanted = range(t.dim()) if index is None else _indices(index)
    t._dynamo_static_indices = {*getattr(t, "_dynamo_static_indices", ()), *wanted}
    t._has_dynamo_dim_marking = True
    return None
