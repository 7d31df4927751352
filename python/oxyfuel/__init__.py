"""oxyfuel: ``torch.compile``, rebuilt around a Rust engine.

    import oxyfuel

    model = oxyfuel.compile(model)      # or @oxyfuel.compile on a function

The names mirror ``torch.compile``, ``torch.compiler`` and ``torch._dynamo``.
"""

import torch  # noqa: F401  the engine finds torch's libraries in the process

from oxyfuel import _engine, config, exc
from oxyfuel._backends import get_default_backend, list_backends, register_backend, set_default_backend
from oxyfuel._compile import compile, module_compile
from oxyfuel._decorators import (
    allow_in_graph,
    assume_constant_result,
    disable,
    disable_nested_graph_breaks,
    error_on_graph_break,
    graph_break,
    is_compiling,
    mark_dynamic,
    mark_static,
    maybe_mark_dynamic,
    nonstrict_trace,
    set_stance,
    skip_frame,
    step_unsupported,
    substitute_in_graph,
)
from oxyfuel._engine import reset, stats
from oxyfuel._install import install, uninstall
from oxyfuel.exc import (
    AccuracyError,
    BackendCompilerFailed,
    ConstraintViolationError,
    DataDependentError,
    FailOnRecompileLimitHit,
    InvalidBackend,
    RecompileError,
    Unsupported,
    UserError,
)

__version__: str = _engine.version

__all__ = [
    "AccuracyError",
    "BackendCompilerFailed",
    "ConstraintViolationError",
    "DataDependentError",
    "FailOnRecompileLimitHit",
    "InvalidBackend",
    "RecompileError",
    "Unsupported",
    "UserError",
    "allow_in_graph",
    "assume_constant_result",
    "compile",
    "config",
    "disable",
    "disable_nested_graph_breaks",
    "error_on_graph_break",
    "exc",
    "get_default_backend",
    "graph_break",
    "install",
    "is_compiling",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "module_compile",
    "nonstrict_trace",
    "register_backend",
    "reset",
    "set_default_backend",
    "set_stance",
    "skip_frame",
    "stats",
    "step_unsupported",
    "substitute_in_graph",
    "uninstall",
]
