"""Builtins and standard-library functions in plain Python, traced through in place of the C ones."""

import inspect
import types
from collections import OrderedDict


def iter_at(sequence, index):
    """An iterator over ``sequence`` whose next item is number ``index``."""
    iterator = iter(sequence)
    iterator.__setstate__(index)
    return iterator


def calling(callable):
    """A Python function that calls ``callable``: gives callables written in C a frame of their own."""

    def call(*args, **kwargs):
        return callable(*args, **kwargs)

    return call


def rebuild_mapping(cls, items, attributes):
    """An instance of ``cls``, which derives from dict, with these items and attributes; no ``__init__`` runs."""
    base = OrderedDict if issubclass(cls, OrderedDict) else dict
    self = base.__new__(cls)
    for key, value in items.items():
        base.__setitem__(self, key, value)
    for name, value in attributes.items():
        object.__setattr__(self, name, value)
    return self


def signature(function, bound):
    """The signature of a function, or of a method bound to it."""
    return inspect.signature(types.MethodType(function, object()) if bound else function)
