"""Adaptor: one set of names, two implementations.

CONFORMANCE_IMPL=oxyfuel  (default)  -> the ``oxyfuel`` package
CONFORMANCE_IMPL=torch               -> torch.compile / torch.compiler / torch._dynamo

Tests import everything they need from here and never name either
implementation directly.
"""

import contextlib
import os

import torch

NAME = os.environ.get("CONFORMANCE_IMPL", "oxyfuel")
IS_TORCH = NAME == "torch"

if IS_TORCH:
    import torch._dynamo as _dynamo

    compile = torch.compile
    reset = torch.compiler.reset
    disable = torch.compiler.disable
    set_stance = torch.compiler.set_stance
    is_compiling = torch.compiler.is_compiling
    allow_in_graph = torch.compiler.allow_in_graph
    assume_constant_result = torch.compiler.assume_constant_result
    substitute_in_graph = torch.compiler.substitute_in_graph
    list_backends = torch.compiler.list_backends

    graph_break = _dynamo.graph_break
    skip_frame = _dynamo.skip_frame
    nonstrict_trace = _dynamo.nonstrict_trace
    error_on_graph_break = _dynamo.error_on_graph_break
    disable_nested_graph_breaks = _dynamo.disable_nested_graph_breaks
    mark_dynamic = _dynamo.mark_dynamic
    maybe_mark_dynamic = _dynamo.maybe_mark_dynamic
    mark_static = _dynamo.mark_static

    config = _dynamo.config
    exc = _dynamo.exc

    def module_compile(module, **kwargs):
        """The in-place spelling: ``module.compile(...)``."""
        return module.compile(**kwargs)

    def constraint_error():
        from torch.fx.experimental.symbolic_shapes import ConstraintViolationError

        return (ConstraintViolationError, _dynamo.exc.UserError)

elif NAME == "oxyfuel":
    import oxyfuel as _ox

    compile = _ox.compile
    reset = _ox.reset
    disable = _ox.disable
    set_stance = _ox.set_stance
    is_compiling = _ox.is_compiling
    allow_in_graph = _ox.allow_in_graph
    assume_constant_result = _ox.assume_constant_result
    substitute_in_graph = _ox.substitute_in_graph
    list_backends = _ox.list_backends

    graph_break = _ox.graph_break
    skip_frame = _ox.skip_frame
    nonstrict_trace = _ox.nonstrict_trace
    error_on_graph_break = _ox.error_on_graph_break
    disable_nested_graph_breaks = _ox.disable_nested_graph_breaks
    mark_dynamic = _ox.mark_dynamic
    maybe_mark_dynamic = _ox.maybe_mark_dynamic
    mark_static = _ox.mark_static

    config = _ox.config
    exc = _ox.exc

    def module_compile(module, **kwargs):
        """oxyfuel's spelling of the in-place compile of an nn.Module."""
        return _ox.module_compile(module, **kwargs)

    def constraint_error():
        return (_ox.exc.ConstraintViolationError, _ox.exc.UserError)

else:  # pragma: no cover
    raise RuntimeError(f"unknown CONFORMANCE_IMPL={NAME!r}")


# Knobs the suite touches; conftest snapshots and restores them per test.
KNOBS = (
    "recompile_limit",
    "accumulated_recompile_limit",
    "fail_on_recompile_limit_hit",
    "error_on_recompile",
    "suppress_errors",
    "capture_scalar_outputs",
    "capture_dynamic_output_shape_ops",
    "automatic_dynamic_shapes",
    "assume_static_by_default",
    "nested_graph_breaks",
    "skip_nnmodule_hook_guards",
    "disable",
)
SET_KNOBS = ("reorderable_logging_functions", "ignore_logging_functions")


def snapshot():
    saved = {k: getattr(config, k) for k in KNOBS}
    saved.update({k: set(getattr(config, k)) for k in SET_KNOBS})
    return saved


def restore(saved):
    for k in KNOBS:
        if getattr(config, k) != saved[k]:
            setattr(config, k, saved[k])
    for k in SET_KNOBS:
        live = getattr(config, k)
        if live != saved[k]:
            live.clear()
            live.update(saved[k])


@contextlib.contextmanager
def patch(**knobs):
    """Temporarily set plain config knobs."""
    before = {k: getattr(config, k) for k in knobs}
    for k, v in knobs.items():
        setattr(config, k, v)
    try:
        yield
    finally:
        for k, v in before.items():
            setattr(config, k, v)
