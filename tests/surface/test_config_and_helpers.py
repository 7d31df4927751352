"""config, exc, and the helper functions in eager code."""

import pickle
import subprocess
import sys

import pytest
import torch

import oxyfuel
from oxyfuel import config, exc

X = torch.ones(3, 4)


# --- config -------------------------------------------------------------------------------------


def test_assign_and_alias():
    before = config.recompile_limit
    config.cache_size_limit = 3
    try:
        assert config.recompile_limit == 3
    finally:
        config.recompile_limit = before


@pytest.mark.parametrize(
    "use",
    [lambda: config.nope, lambda: setattr(config, "nope", 1), lambda: config.patch(nope=1)],
    ids=["get", "set", "patch"],
)
def test_unknown_knob(use):
    with pytest.raises(AttributeError, match="nope"):
        use()


def test_a_knob_cannot_be_deleted():
    with pytest.raises(AttributeError, match="verbose"):
        del config.verbose


def test_patch_in_all_its_spellings():
    assert config.verbose is False
    with config.patch(verbose=True, recompile_limit=2):
        assert config.verbose and config.recompile_limit == 2
        with config.patch("verbose", False), config.patch({"recompile_limit": 1}):
            assert not config.verbose and config.recompile_limit == 1
        assert config.verbose

    @config.patch(verbose=True)
    def inside():
        return config.verbose

    assert inside() and config.verbose is False


def test_patch_restores_after_an_exception():
    with pytest.raises(ZeroDivisionError), config.patch(verbose=True):
        raise ZeroDivisionError
    assert config.verbose is False


def test_logging_functions_are_sets_to_change_in_place():
    config.ignore_logging_functions.add(print)
    assert config.ignore_logging_functions == {print}
    config.ignore_logging_functions.clear()


def in_new_process(code, **environment):
    import os

    result = subprocess.run(
        [sys.executable, "-c", code], env={**os.environ, **environment}, capture_output=True, text=True, timeout=100
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.split()


def test_environment():
    code = "from oxyfuel import config as c; print(c.suppress_errors, c.verbose, c.disable, c.automatic_dynamic_shapes)"
    on = dict(TORCHDYNAMO_SUPPRESS_ERRORS="yes", TORCHDYNAMO_VERBOSE="1", TORCH_DYNAMO_AUTOMATIC_DYNAMIC_SHAPES="0")
    assert in_new_process(code, **on) == ["True", "True", "False", "False"]


# --- exceptions ---------------------------------------------------------------------------------


def test_hierarchy():
    classes = [value for value in vars(exc).values() if isinstance(value, type)]
    assert all(issubclass(each, exc.TorchDynamoException) for each in classes)
    assert issubclass(exc.TorchDynamoException, RuntimeError)
    assert issubclass(exc.DataDependentError, exc.UserError) and issubclass(exc.ConstraintViolationError, exc.UserError)


def test_backend_failure_carries_the_cause():
    def useless(gm, inputs):
        raise ZeroDivisionError("gave up")

    with pytest.raises(exc.BackendCompilerFailed, match=r"useless(?s:.)*ZeroDivisionError: gave up") as caught:
        oxyfuel.compile(lambda x: x + 1, backend=useless)(X)
    failure = caught.value
    assert failure.backend_name == "useless" and isinstance(failure.inner_exception, ZeroDivisionError)
    assert failure.__cause__ is failure.inner_exception
    again = pickle.loads(pickle.dumps(failure))
    assert str(again) == str(failure) and again.backend_name == "useless"


# --- helpers in eager code ------------------------------------------------------------------------


def test_helpers_do_nothing_in_eager_code():
    assert oxyfuel.graph_break("why") is None and oxyfuel.skip_frame() is None and oxyfuel.step_unsupported() is None
    assert oxyfuel.is_compiling() is False
    with oxyfuel.error_on_graph_break(True), oxyfuel.disable_nested_graph_breaks():
        oxyfuel.graph_break()


def test_is_compiling_when_compiled():
    def f(x):
        return x + 1 if oxyfuel.is_compiling() else x - 1

    torch.testing.assert_close(oxyfuel.compile(f, fullgraph=True)(X), X + 1)
    torch.testing.assert_close(f(X), X - 1)


@pytest.mark.parametrize("spelling", ["bare", "called", "keywords"])
def test_disable_keeps_what_a_function_is(spelling):
    def f(x):
        """Doc."""
        return x + 1

    wrap = {
        "bare": oxyfuel.disable,
        "called": oxyfuel.disable(),
        "keywords": oxyfuel.disable(recursive=False, reason="r"),
    }
    g = wrap[spelling](f)
    assert g.__name__ == "f" and g.__doc__ == "Doc." and g.__wrapped__ is f
    torch.testing.assert_close(g(X), X + 1)


def test_disable_binds_like_the_function_it_wraps():
    class Box:
        @oxyfuel.disable
        def method(self):
            return self

        @oxyfuel.disable
        @staticmethod
        def static():
            return 1

    box = Box()
    assert box.method() is box and Box.static() == 1


def test_compiling_a_disabled_function_compiles_it(backend):
    torch.testing.assert_close(oxyfuel.compile(oxyfuel.disable(lambda x: x + 1), backend=backend)(X), X + 1)
    assert len(backend.graphs) == 1


def test_scopes_restore_and_nest():
    from oxyfuel._decorators import SCOPE

    strict = oxyfuel.error_on_graph_break(True)

    @strict
    def inner():
        with oxyfuel.error_on_graph_break(False):
            assert SCOPE.error_on_graph_break is False
        return SCOPE.error_on_graph_break

    assert inner() is True and SCOPE.error_on_graph_break is None
    with pytest.raises(ZeroDivisionError), strict:
        raise ZeroDivisionError
    assert SCOPE.error_on_graph_break is None


def test_stances_are_checked():
    with pytest.raises(ValueError, match=r"sideways.*force_eager"):
        oxyfuel.set_stance("sideways")
    with pytest.raises(RuntimeError, match="force_backend"):
        oxyfuel.set_stance("force_eager", force_backend="eager")
    with pytest.raises(TypeError):
        oxyfuel.set_stance("default", force_backend=3)


def test_force_eager_in_a_scope(backend):
    compiled = oxyfuel.compile(lambda x: x + 1, backend=backend)
    with oxyfuel.set_stance("force_eager"):
        compiled(X)
    assert backend.graphs == []
    compiled(X)
    assert len(backend.graphs) == 1


def test_marks():
    x = torch.ones(3, 4)
    oxyfuel.maybe_mark_dynamic(x, (0, 1))
    oxyfuel.mark_dynamic(x, 0, min=2, max=9)
    oxyfuel.mark_static(x, 1)
    assert (
        x._dynamo_dynamic_indices == {0} and x._dynamo_weak_dynamic_indices == {1} and x._dynamo_static_indices == {1}
    )
    oxyfuel.maybe_mark_dynamic(x, 0)
    assert x._dynamo_weak_dynamic_indices == {1}
    with pytest.raises(TypeError):
        oxyfuel.mark_dynamic(x, "0")
    with pytest.raises(TypeError):
        oxyfuel.mark_static([1], 0)


def test_substitute_checks_signatures():
    import operator

    with pytest.raises(TypeError, match="signatures"):
        oxyfuel.substitute_in_graph(operator.indexOf)(lambda a: a)
    with pytest.raises(TypeError, match="int"):
        oxyfuel.substitute_in_graph(3)


@pytest.mark.parametrize("decorate", [oxyfuel.nonstrict_trace, oxyfuel.allow_in_graph, oxyfuel.disable])
def test_decorators_want_callables(decorate):
    with pytest.raises(TypeError, match="int"):
        decorate(3)
