"""Twins of modules: what ``compile(module)`` and ``disable(module)`` return.

A twin is an instance of a subclass of the module's own class, named like it, and has the module's
own ``__dict__``: the same dictionary object. So ``isinstance``, ``state_dict`` keys, parameters,
hooks, ``train()``/``eval()`` and attribute writes are the module's; only calling differs. The
subclass is made for the one twin, since ``__call__`` is found on the class.

Copying and pickling a twin copies the module and makes a new twin of the copy.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from torch import nn

from oxyfuel import _engine

Recipe = tuple[Callable[..., Any], dict[str, Any]]
"""``make(copy, **keywords)`` makes the twin of a copy."""


def original(module: nn.Module) -> nn.Module:
    """The module behind a twin; any other module is its own original."""
    return module._orig_mod if isinstance(module, _TwinBase) else module  # type: ignore[return-value]


def call_of(module: nn.Module) -> Callable[..., Any]:
    """What calling ``module`` runs: hooks and ``forward``, or the class's own ``__call__``."""
    if type(module).__call__ is nn.Module.__call__:
        # not __call__ itself: that would run the in-place compiled form again
        return module._call_impl
    return module.__call__


class _TwinBase:
    """Members of all twins. First in the method resolution order of each."""

    __slots__ = ()

    _orig_mod: nn.Module
    _oxyfuel_recipe: Recipe

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        twin = _rebuild(copy.deepcopy(self._orig_mod, memo), self._oxyfuel_recipe)
        memo[id(self)] = twin
        return twin

    def __copy__(self) -> Any:
        return _rebuild(copy.copy(self._orig_mod), self._oxyfuel_recipe)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _rebuild, (self._orig_mod, self._oxyfuel_recipe)


def _rebuild(module: nn.Module, recipe: Recipe) -> Any:
    make, keywords = recipe
    return make(module, **keywords)


def _forward_slot(name: str) -> property:
    def read(twin: Any) -> Any:
        return getattr(twin._orig_mod, name)

    def write(twin: Any, value: Any) -> None:
        setattr(twin._orig_mod, name, value)

    def delete(twin: Any) -> None:
        delattr(twin._orig_mod, name)

    return property(read, write, delete)


def _slots(cls: type) -> set[str]:
    names: set[str] = set()
    for base in cls.__mro__:
        slots = base.__dict__.get("__slots__", ())
        names.update([slots] if isinstance(slots, str) else slots)
    return names - {"__dict__", "__weakref__"}


def _subclass(cls: type[nn.Module], namespace: dict[str, Any]) -> type:
    """A subclass of ``cls`` that no ``__init_subclass__`` and no metaclass hears of."""
    twin_class = type.__new__(type(cls), cls.__name__, (_TwinBase, nn.Module), dict(namespace))
    try:
        twin_class.__bases__ = (_TwinBase, cls)
    except TypeError:  # instances of cls have a layout of their own (slots, a C base class)
        return type.__new__(type(cls), cls.__name__, (_TwinBase, cls), namespace)
    return twin_class


def _unbound(function: Callable[..., Any]) -> Any:
    """``function`` as a class member that is called without the instance."""
    return function if isinstance(function, _engine.CompiledFunction) else staticmethod(function)


def twin(module: nn.Module, recipe: Recipe, **members: Callable[..., Any]) -> Any:
    """A twin of ``module`` with ``members`` (``__call__`` at least) in place of its class's.

    A member is called without the twin: a ``CompiledFunction`` made with ``bind=False``, or any other
    callable over the original's bound method.
    """
    cls = type(module)
    namespace: dict[str, Any] = {name: _forward_slot(name) for name in _slots(cls)}
    namespace.update(
        __module__=cls.__module__,
        __qualname__=cls.__qualname__,
        __doc__=cls.__doc__,
        _orig_mod=module,
        _oxyfuel_recipe=recipe,
        **{name: _unbound(value) for name, value in members.items()},
    )
    result = object.__new__(_subclass(cls, namespace))
    object.__setattr__(result, "__dict__", module.__dict__)  # past any __setattr__ of the class
    return result
