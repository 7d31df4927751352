"""Names of backends.

``None`` and ``"oxyfuel"`` mean the engine's own backend, which is native and has no Python callable.
Every other name becomes a callable ``(GraphModule, example_inputs) -> callable``; a name is looked up
when the first graph reaches it, since torch's registry takes seconds to import. One name is one
object, so that two ``compile`` calls with it share their cache entries.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from oxyfuel.exc import InvalidBackend

Backend = Callable[..., Any]
BackendArgument = str | Backend | None

NATIVE = "oxyfuel"


def _eager(gm: Any, example_inputs: list[Any], **_: Any) -> Callable[..., Any]:
    return gm.forward


_registered: dict[str, tuple[Backend, tuple[str, ...]]] = {"eager": (_eager, ("debug",))}
_default: str | Backend = NATIVE


class NamedBackend:
    """A backend known by name, found at the first call."""

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __call__(self, gm: Any, example_inputs: list[Any], **options: Any) -> Callable[..., Any]:
        return self.target(gm, example_inputs, **options)

    def __repr__(self) -> str:
        return f"<backend {self.__name__!r}>"

    @functools.cached_property
    def target(self) -> Backend:
        if self.__name__ in _registered:
            return _registered[self.__name__][0]
        from torch._dynamo.backends import registry

        try:
            return registry.lookup_backend(self.__name__)
        except Exception as error:
            if type(error).__name__ != "InvalidBackend":
                raise
            raise InvalidBackend(
                f"Invalid backend: {self.__name__!r}. See oxyfuel.list_backends() for the names there are."
            ) from None


@functools.cache
def _named(name: str) -> NamedBackend:
    return NamedBackend(name)


class _WithOptions:
    """A backend that is handed ``mode`` and ``options`` as keywords, as torch.compile does."""

    def __init__(self, backend: Backend, keywords: dict[str, Any]) -> None:
        self.__name__ = getattr(backend, "__name__", type(backend).__name__)
        self._backend = backend
        self._keywords = keywords

    def __call__(self, gm: Any, example_inputs: list[Any]) -> Callable[..., Any]:
        return self._backend(gm, example_inputs, **self._keywords)


def resolve(backend: BackendArgument, *, mode: str | None = None, options: dict[str, Any] | None = None) -> Any:
    """What the engine takes: ``None`` for its own backend, else a callable."""
    if backend is None:
        backend = _default
    if backend == NATIVE:
        return None
    if isinstance(backend, str):
        if backend == "eager" and (mode or options):
            warnings.warn(f"backend 'eager' takes no mode or options: {mode or options!r} is ignored", stacklevel=4)
            mode = options = None
        backend = _named(backend)
    elif not callable(backend):
        raise TypeError(f"backend must be a name or a callable, got {type(backend).__name__}")
    keywords = {key: value for key, value in (("mode", mode), ("options", options)) if value}
    return _WithOptions(backend, keywords) if keywords else backend


def is_native(backend: BackendArgument) -> bool:
    return (_default if backend is None else backend) == NATIVE


def register_backend(compiler_fn: Backend | None = None, name: str | None = None, tags: Sequence[str] = ()) -> Any:
    """Give a backend a name for ``compile(..., backend=name)``. Decorator with and without arguments."""
    if compiler_fn is None:
        return functools.partial(register_backend, name=name, tags=tags)
    if not callable(compiler_fn):
        raise TypeError(f"register_backend expects a callable, got {type(compiler_fn).__name__}")
    name = name or compiler_fn.__name__
    if name == NATIVE or name in _registered:
        raise ValueError(f"register_backend: the name {name!r} is taken")
    _registered[name] = (compiler_fn, tuple(tags))
    _named.cache_clear()
    return compiler_fn


def list_backends(exclude_tags: Iterable[str] | None = ("debug", "experimental")) -> list[str]:
    """Names that ``backend=`` takes: ours, those registered here, and torch's."""
    from torch._dynamo.backends import registry

    excluded = set(exclude_tags or ())
    ours = [name for name, (_, tags) in _registered.items() if not excluded.intersection(tags)]
    return sorted({NATIVE, *ours, *registry.list_backends(exclude_tags=tuple(excluded))})


def set_default_backend(backend: BackendArgument) -> None:
    """What ``compile`` uses when no backend is given; ``None`` restores our own."""
    global _default
    if backend is not None and not isinstance(backend, str) and not callable(backend):
        raise TypeError(f"backend must be a name or a callable, got {type(backend).__name__}")
    _default = NATIVE if backend is None else backend


def get_default_backend() -> str | Backend:
    return _default
