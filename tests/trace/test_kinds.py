"""Kinds of values and calls that the tracer captures: one program each, compiled whole, against eager."""

import collections
import copy
import functools
import itertools
import operator
import types

import pytest
import torch

import oxyfuel

X = torch.linspace(1.0, 2.0, 4)


def whole(fn):
    """The result of ``fn`` compiled in one graph, twice, equal to eager's."""
    compiled = oxyfuel.compile(fn, backend="eager", fullgraph=True)
    want = fn(X)
    for _ in range(2):
        got = compiled(X)
        torch.testing.assert_close(got, want)
    return got


def test_partials_made_and_given():
    half = functools.partial(torch.mul, 0.5)

    def f(x):
        again = functools.partial(functools.partial(torch.add, x), other=half(x))
        return again(alpha=2), again.func is torch.add, len(again.args)

    compiled = oxyfuel.compile(f, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(X)[0], f(X)[0])
    assert compiled(X)[1:] == (True, 1)


def test_partial_returned():
    p = oxyfuel.compile(lambda x: functools.partial(max, x.shape[0], key=abs), backend="eager", fullgraph=True)(X)
    assert (p.func, p.args, p.keywords) == (max, (4,), {"key": abs})


def test_getters_of_the_operator_module():
    second, shape = operator.itemgetter(1), operator.attrgetter("shape", "dtype")

    def f(x):
        made = operator.itemgetter("a", "b")({"a": x, "b": x + 1})
        return second((x, x * 2)) + made[1], shape(x)[0][0], operator.methodcaller("sum", 0)(x)

    whole(lambda x: f(x)[0] + f(x)[1] + f(x)[2])


def test_deque_and_its_bound():
    def f(x):
        q = collections.deque([1, 2, 3], maxlen=3)
        q.append(4)
        q.appendleft(9)
        q.rotate(1)
        q.extend([7])
        return x * q.pop() + q.popleft(), len(q), 2 in q

    got = oxyfuel.compile(f, backend="eager", fullgraph=True)(X)
    assert got[1:] == f(X)[1:]
    torch.testing.assert_close(got[0], f(X)[0])


def test_deque_returned():
    got = oxyfuel.compile(lambda x: collections.deque([x.shape[0], 1], 5), backend="eager", fullgraph=True)(X)
    assert got == collections.deque([4, 1]) and got.maxlen == 5


@pytest.mark.parametrize(
    "make",
    [
        lambda: itertools.product("ab", (1, 2), repeat=2),
        lambda: itertools.accumulate([1, 2, 3], operator.mul, initial=2),
        lambda: itertools.islice(itertools.count(3), 1, 9, 3),
        lambda: itertools.zip_longest([1, 2, 3], "a", fillvalue=0),
        lambda: itertools.pairwise("abcd"),
        lambda: itertools.permutations(range(3), 2),
        lambda: itertools.combinations("abcd", 2),
        lambda: itertools.takewhile(lambda v: v < 3, [1, 2, 3, 1]),
        lambda: itertools.dropwhile(lambda v: v < 3, [1, 2, 3, 1]),
        lambda: itertools.compress("abc", [1, 0, 1]),
        lambda: itertools.filterfalse(None, [0, 1, 2, 0]),
        lambda: itertools.starmap(pow, [(2, 3), (3, 2)]),
        lambda: itertools.islice(itertools.cycle([1, 2]), 5),
        lambda: itertools.repeat(4, 2),
    ],
)
def test_itertools(make):
    def f(x):
        return x + 1, list(make())

    assert oxyfuel.compile(f, backend="eager", fullgraph=True)(X)[1] == list(make())


def test_islice_takes_what_the_c_one_takes():
    def f(x):
        source = iter([0, 1, 2, 3, 4, 5, 6, 7])
        return x, list(itertools.islice(source, 0, 5, 3)), next(source)

    assert oxyfuel.compile(f, backend="eager", fullgraph=True)(X)[1:] == f(X)[1:]


def test_generator_throw_and_close():
    log = []

    def numbers():
        try:
            yield 1
            yield 2
        except ValueError as e:
            yield e.args[0]
        finally:
            log.append("closed")

    def f(x):
        g = numbers()
        a = next(g)
        b = g.throw(ValueError(7))
        g.close()
        return x * a + b

    whole(f)
    assert log == ["closed"] * 3


def test_deepcopy_is_deep():
    class Config:
        def __init__(self):
            self.k, self.tags = 3, [["a"]]

    config = Config()

    def f(x):
        c = copy.deepcopy(config)
        c.k += 1
        c.tags[0].append("b")
        return x * c.k + len(c.tags[0])

    whole(f)
    assert config.k == 3 and config.tags == [["a"]]


def test_metaclass_call_and_method_type():
    class Meta(type):
        def __call__(cls, *args):
            made = super().__call__(*args)
            made.extra = 5
            return made

    class Made(metaclass=Meta):
        pass

    def f(x):
        m = types.MethodType(lambda self, v: v * self.extra, Made())
        return m(x)

    whole(f)


def test_popitem_from_the_front():
    def f(x):
        d = collections.OrderedDict(a=1, b=2, c=3)
        return x + 1, d.popitem(last=False), d.popitem(), list(d)

    assert oxyfuel.compile(f, backend="eager", fullgraph=True)(X)[1:] == f(X)[1:]


def test_exceptions_keep_cause_notes_and_fields():
    class Own(Exception):
        def __init__(self, code):
            super().__init__("own", code)
            self.code = code

    def f(x):
        try:
            try:
                raise KeyError("inner")
            except KeyError as e:
                raise Own(x.shape[0]) from e
        except Own as e:
            e.add_note("noted")
            return x + 1, e

    error = oxyfuel.compile(f, backend="eager", fullgraph=True)(X)[1]
    assert type(error) is Own and error.args == ("own", 4) and error.code == 4
    assert repr(error.__cause__) == "KeyError('inner')" and error.__notes__ == ["noted"]


def test_update_wrapper_copies_marks():
    def mark(fn):
        fn.mark = "m"
        return fn

    @mark
    def base(x):
        "doc"
        return x + 1

    def f(x):
        @functools.wraps(base)
        def wrapper(v):
            return base(v) * 2

        return wrapper(x), wrapper

    got, wrapper = oxyfuel.compile(f, backend="eager", fullgraph=True)(X)
    torch.testing.assert_close(got, (X + 1) * 2)
    assert (wrapper.__name__, wrapper.__doc__, wrapper.mark, wrapper.__wrapped__) == ("base", "doc", "m", base)


def test_default_dtype_is_part_of_the_guards():
    compiled = oxyfuel.compile(lambda x: torch.ones(2), backend="eager")
    assert compiled(X).dtype is torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert compiled(X).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


def test_weakly_referenced_argument():
    import weakref

    ref = weakref.ref(X)
    whole(lambda x: x + ref())


def test_every_break_has_a_page():
    import pathlib
    import re

    root = pathlib.Path(__file__).parents[2]
    ids = re.findall(r'"(OX\d{4})"', (root / "crates/oxy_tracer/src/breaks.rs").read_text())
    assert ids and {f"{i}.md" for i in ids} == {p.name for p in (root / "docs/breaks").glob("OX*.md")}


def test_autocast_is_captured_and_left_again():
    w = torch.ones(4, 4)

    def f(x):
        a = x.view(1, 4) @ w
        with torch.autocast("cpu", dtype=torch.bfloat16):
            b = x.view(1, 4) @ w
        return a, b, x.view(1, 4) @ w

    for backend in ("eager", None):
        compiled = oxyfuel.compile(f, fullgraph=True, **({"backend": backend} if backend else {}))
        for _ in range(2):
            assert [t.dtype for t in compiled(X)] == [torch.float32, torch.bfloat16, torch.float32]
            assert not torch.is_autocast_enabled("cpu")


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_thread_state_reaches_over_a_break(backend):
    w = torch.ones(4, 4, requires_grad=True)
    seen = []

    def f(x):
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            a = x.view(1, 4) @ w
            oxyfuel.graph_break()
            seen.append((torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")))
            b = x.view(1, 4) @ w
        return a, b, x.view(1, 4) @ w

    compiled = oxyfuel.compile(f, **({"backend": "eager"} if backend == "eager" else {}))
    for _ in range(2):
        got = compiled(X)
        assert [(t.dtype, t.requires_grad) for t in got] == [(t.dtype, t.requires_grad) for t in f(X)]
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert set(seen) == {(False, True)}


def test_functions_made_by_each_call_do_not_recompile():
    graphs = []

    def backend(gm, inputs):
        graphs.append(gm)
        return gm.forward

    def f(x, k):
        def scale(v):
            return v * k

        x = scale(x)
        oxyfuel.graph_break()
        return scale(x)

    compiled = oxyfuel.compile(f, backend=backend)
    for _ in range(4):
        torch.testing.assert_close(compiled(X, 3), X * 9)
    assert len(graphs) == 2
    torch.testing.assert_close(compiled(X, 5), X * 25)


def test_a_local_function_with_other_code_is_noticed():
    def f(x, g):
        return g(x)

    def make(k):
        return (lambda v: v + 1) if k else (lambda v: v - 1)

    compiled = oxyfuel.compile(f, backend="eager")
    for k in (0, 1, 0, 1):
        torch.testing.assert_close(compiled(X, make(k)), f(X, make(k)))


def test_exit_stack():
    import contextlib

    log = []

    @contextlib.contextmanager
    def note(name):
        log.append(name)
        yield name
        log.append(name.upper())

    def f(x):
        with contextlib.ExitStack() as stack:
            names = [stack.enter_context(note(n)) for n in "ab"]
            y = x + len(names)
        return y

    whole(f)
    assert log == ["a", "b", "B", "A"] * 3
