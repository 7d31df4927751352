"""compile(): what it accepts, what it refuses, and what comes back."""

import copy
import functools
import inspect
import pickle

import pytest
import torch

import oxyfuel

X = torch.linspace(-1, 1, 6)


def plain(x, *, scale=2.0):
    """Scales."""
    return x * scale


plain.tag = "kept"


@oxyfuel.compile
def decorated(x):
    return x + 1


# --- refused at once ----------------------------------------------------------------------------


@pytest.mark.parametrize("thing", [3, "text", None])
def test_not_callable(thing):
    with pytest.raises(TypeError, match=type(thing).__name__):
        oxyfuel.compile()(thing)


def test_class():
    class Thing:
        pass

    with pytest.raises(TypeError, match="Thing"):
        oxyfuel.compile(Thing)


def test_mode_and_options_exclude_each_other():
    with pytest.raises(RuntimeError, match="mode and options"):
        oxyfuel.compile(plain, mode="default", options={"numerics": "fast"})


def test_unknown_mode_lists_the_known():
    with pytest.raises(RuntimeError, match=r"warp.*max-autotune"):
        oxyfuel.compile(plain, mode="warp")


def test_unknown_option_is_named():
    with pytest.raises(RuntimeError, match="bogus"):
        oxyfuel.compile(plain, options={"bogus": 1})


@pytest.mark.parametrize("keywords", [{"dynamic": 3}, {"fullgraph": None}, {"backend": 3}])
def test_ill_typed_arguments(keywords):
    with pytest.raises(TypeError, match=next(iter(keywords))):
        oxyfuel.compile(plain, **keywords)


def test_unknown_keyword():
    with pytest.raises(TypeError, match="speed"):
        oxyfuel.compile(plain, speed=11)


def test_unknown_backend_is_named_when_a_graph_reaches_it():
    compiled = oxyfuel.compile(plain, backend="no-such")
    with pytest.raises(oxyfuel.InvalidBackend, match=r"no-such.*list_backends"):
        compiled(X)


# --- what comes back ----------------------------------------------------------------------------


def test_a_compiled_function_looks_like_the_function():
    compiled = oxyfuel.compile(plain)
    assert compiled.__name__ == "plain" and compiled.__qualname__ == "plain"
    assert compiled.__doc__ == "Scales." and compiled.__module__ == __name__
    assert compiled.__wrapped__ is plain and compiled.tag == "kept"
    assert inspect.signature(compiled) == inspect.signature(plain)
    assert not hasattr(plain, "__wrapped__")


def test_nothing_happens_before_the_first_call(backend):
    compiled = oxyfuel.compile(plain, backend=backend)
    assert backend.graphs == []
    torch.testing.assert_close(compiled(X, scale=3.0), X * 3)
    assert len(backend.graphs) == 1


def test_compiling_twice_is_compiling_once(backend):
    compiled = oxyfuel.compile(oxyfuel.compile(plain), backend=backend)
    assert compiled.__wrapped__ is plain


def test_disable_argument_gives_the_function_itself():
    assert oxyfuel.compile(plain, disable=True) is plain


def test_native_default_and_by_name():
    for compiled in (oxyfuel.compile(plain), oxyfuel.compile(plain, backend="oxyfuel")):
        torch.testing.assert_close(compiled(X), plain(X))


def test_kinds_of_callables(backend):
    compile = functools.partial(oxyfuel.compile, backend=backend)

    class Box:
        k = 3

        @compile
        def method(self, x):
            return x * self.k

        @compile
        @staticmethod
        def static_inside(x):
            return x - 1

        @classmethod
        @compile
        def klass(cls, x):
            return x + cls.k

        def __call__(self, x):
            return x / self.k

    box = Box()
    torch.testing.assert_close(box.method(X), X * 3)
    torch.testing.assert_close(Box.method(box, X), X * 3)
    torch.testing.assert_close(Box.static_inside(X), X - 1)
    torch.testing.assert_close(box.klass(X), X + 3)
    torch.testing.assert_close(compile(box)(X), X / 3)
    torch.testing.assert_close(compile(torch.sin)(X), X.sin())
    torch.testing.assert_close(compile(functools.partial(plain, scale=5.0))(X), X * 5)
    torch.testing.assert_close(compile(lambda x: x.exp())(X), X.exp())
    assert len(backend.graphs) == 7  # method is called twice


def test_copy_and_pickle_of_compiled_functions():
    assert copy.deepcopy(decorated) is decorated
    assert pickle.loads(pickle.dumps(decorated)) is decorated
    again = pickle.loads(pickle.dumps(oxyfuel.compile(plain, backend="eager")))
    assert again.__wrapped__ is plain
    torch.testing.assert_close(again(X), plain(X))


def test_bad_arguments_fail_as_in_eager():
    with pytest.raises(TypeError, match=r"plain\(\)"):
        oxyfuel.compile(plain)(X, X)


def test_weak_references_and_attributes():
    import gc
    import weakref

    compiled = oxyfuel.compile(lambda x: x)
    compiled.note = 1
    reference = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert reference() is None


def test_stats_have_the_documented_keys():
    before = oxyfuel.stats()
    oxyfuel.compile(lambda x: x * 7 - 1)(X)
    after = oxyfuel.stats()
    assert after["graphs"] == before["graphs"] + 1
    assert after["graph_breaks"] == before["graph_breaks"]
    assert isinstance(after["break_reasons"], dict) and isinstance(after["recompiles"], int)
    assert all(isinstance(seconds, float) for seconds in after["phases"].values())


# --- backends -----------------------------------------------------------------------------------


def test_registered_backend_by_name(backend):
    name = "surface_registered"
    if name not in oxyfuel.list_backends():
        oxyfuel.register_backend(lambda gm, inputs: backend(gm, inputs), name=name)
    torch.testing.assert_close(oxyfuel.compile(plain, backend=name)(X), plain(X))
    assert name in oxyfuel.list_backends()
    with pytest.raises(ValueError, match="taken"):
        oxyfuel.register_backend(backend, name=name)


def test_torchs_debugging_backends_are_hidden_and_usable():
    assert "aot_eager" not in oxyfuel.list_backends()
    assert {"eager", "aot_eager", "inductor", "oxyfuel"} <= set(oxyfuel.list_backends(None))
    torch.testing.assert_close(oxyfuel.compile(plain, backend="aot_eager")(X), plain(X))


def test_default_backend(backend):
    oxyfuel.set_default_backend(backend)
    try:
        assert oxyfuel.get_default_backend() is backend
        oxyfuel.compile(plain)(X)
        assert len(backend.graphs) == 1
    finally:
        oxyfuel.set_default_backend(None)
    assert oxyfuel.get_default_backend() == "oxyfuel"


def test_backend_gets_its_options():
    seen = {}

    def backend(gm, example_inputs, *, options=None, mode=None):
        seen.update(options=options, mode=mode)
        return gm.forward

    oxyfuel.compile(plain, backend=backend, options={"level": 3})(X)
    assert seen == {"options": {"level": 3}, "mode": None}


def test_mode_with_the_eager_backend_is_ignored_with_a_warning():
    with pytest.warns(UserWarning, match="ignored"):
        compiled = oxyfuel.compile(plain, backend="eager", mode="max-autotune")
    torch.testing.assert_close(compiled(X), plain(X))
