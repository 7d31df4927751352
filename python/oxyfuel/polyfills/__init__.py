"""Builtins and standard-library functions in plain Python, traced through in place of the C ones."""

import inspect
import types
from collections import OrderedDict

import torch


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


def rebuild_exception(cls, args, attributes):
    """The exception of a trace: made anew, without running its class's Python ``__init__``."""
    made = cls.__new__(cls, *args)
    init = cls.__init__
    if not hasattr(init, "__code__"):
        init(made, *args)
    made.args = args
    for name, value in attributes.items():
        setattr(made, name, value)
    return made


def count_elements(mapping, iterable):
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1


# --- itertools --------------------------------------------------------------------------------


def accumulate(iterable, func=None, *, initial=None):
    iterator = iter(iterable)
    total = initial
    if initial is None:
        for total in iterator:
            break
        else:
            return
    yield total
    for item in iterator:
        total = total + item if func is None else func(total, item)
        yield total


def combinations(iterable, r):
    pool = tuple(iterable)
    n = len(pool)
    if r < 0:
        raise ValueError("r must be non-negative")
    if r > n:
        return
    indices = list(range(r))
    yield tuple([pool[i] for i in indices])
    while True:
        i = r - 1
        while i >= 0 and indices[i] == i + n - r:
            i -= 1
        if i < 0:
            return
        indices[i] += 1
        for j in range(i + 1, r):
            indices[j] = indices[j - 1] + 1
        yield tuple([pool[i] for i in indices])


def compress(data, selectors):
    for item, selected in zip(data, selectors):
        if selected:
            yield item


def cycle(iterable):
    saved = []
    for item in iterable:
        yield item
        saved.append(item)
    while saved:
        for item in saved:
            yield item


def dropwhile(predicate, iterable):
    iterator = iter(iterable)
    for item in iterator:
        if not predicate(item):
            yield item
            break
    for item in iterator:
        yield item


def filterfalse(function, iterable):
    for item in iterable:
        if not (item if function is None else function(item)):
            yield item


def islice(iterable, *args):
    if len(args) == 1:
        start, stop, step = 0, args[0], 1
    elif len(args) == 2:
        start, stop, step = args[0], args[1], 1
    else:
        start, stop, step = args
    start = 0 if start is None else start
    step = 1 if step is None else step
    if start < 0 or (stop is not None and stop < 0):
        raise ValueError(
            "Indices for islice() must be None or an integer: 0 <= x <= sys.maxsize."
            if len(args) > 1
            else "Stop argument for islice() must be None or an integer: 0 <= x <= sys.maxsize."
        )
    if step < 1:
        raise ValueError("Step for islice() must be a positive integer or None.")
    return _islice(iter(iterable), start, stop, step)


def _islice(iterator, start, stop, step):
    count, following = 0, start
    while True:
        while count < following:
            for _ in iterator:
                break
            else:
                return
            count += 1
        if stop is not None and count >= stop:
            return
        for item in iterator:
            break
        else:
            return
        count += 1
        following += step
        if stop is not None and following > stop:
            following = stop
        yield item


def pairwise(iterable):
    iterator = iter(iterable)
    for previous in iterator:
        break
    else:
        return
    for item in iterator:
        yield previous, item
        previous = item


def permutations(iterable, r=None):
    pool = tuple(iterable)
    n = len(pool)
    r = n if r is None else r
    if r < 0:
        raise ValueError("r must be non-negative")
    if r > n:
        return
    indices = list(range(n))
    cycles = list(range(n, n - r, -1))
    yield tuple([pool[i] for i in indices[:r]])
    while n:
        for i in reversed(range(r)):
            cycles[i] -= 1
            if cycles[i] == 0:
                indices[i:] = indices[i + 1 :] + indices[i : i + 1]
                cycles[i] = n - i
            else:
                j = cycles[i]
                indices[i], indices[-j] = indices[-j], indices[i]
                yield tuple([pool[i] for i in indices[:r]])
                break
        else:
            return


def product(*iterables, repeat=1):
    pools = [tuple(pool) for pool in iterables] * repeat
    results = [[]]
    for pool in pools:
        results = [[*chosen, item] for chosen in results for item in pool]
    for chosen in results:
        yield tuple(chosen)


def repeat(object, times=None):
    if times is None:
        while True:
            yield object
    for _ in range(times):
        yield object


def starmap(function, iterable):
    for args in iterable:
        yield function(*args)


def takewhile(predicate, iterable):
    for item in iterable:
        if not predicate(item):
            return
        yield item


def zip_longest(*iterables, fillvalue=None):
    iterators = [iter(iterable) for iterable in iterables]
    active = len(iterators)
    if not active:
        return
    finished = [False] * active
    while True:
        values = []
        for i, iterator in enumerate(iterators):
            value = fillvalue
            if not finished[i]:
                for value in iterator:
                    break
                else:
                    value = fillvalue
                    finished[i] = True
                    active -= 1
                    if not active:
                        return
            values.append(value)
        yield tuple(values)


# --- the thread's state of torch --------------------------------------------------------------

_AUTOCAST_DEVICES = ("cpu", "cuda")


def thread_state():
    """Grad mode and autocast, as ``set_thread_state`` takes them."""
    autocast = tuple([(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in _AUTOCAST_DEVICES])
    nesting = torch.autocast_increment_nesting() - 1
    torch.autocast_decrement_nesting()
    return torch.is_grad_enabled(), autocast, torch.is_autocast_cache_enabled(), nesting


def set_thread_state(state):
    grad_enabled, autocast, cache_enabled, nesting = state
    now = thread_state()
    if now == state:
        return
    torch._C._set_grad_enabled(grad_enabled)
    for kind, (enabled, dtype), (was_enabled, _) in zip(_AUTOCAST_DEVICES, autocast, now[1], strict=True):
        if enabled or was_enabled:
            torch.set_autocast_dtype(kind, dtype)
            torch.set_autocast_enabled(kind, enabled)
    torch.set_autocast_cache_enabled(cache_enabled)
    for _ in range(now[3], nesting):
        torch.autocast_increment_nesting()
    for _ in range(nesting, now[3]):
        if torch.autocast_decrement_nesting() == 0:
            torch.clear_autocast_cache()
