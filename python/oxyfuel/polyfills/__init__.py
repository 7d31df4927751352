"""Builtins and standard-library functions in plain Python, traced through in place of the C ones."""


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
