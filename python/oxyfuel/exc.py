"""The exceptions that oxyfuel raises in user code.

The names and the hierarchy are those of ``torch._dynamo.exc``, so that a handler written for
torch.compile reads the same here. The engine looks each class up in this module by name and
raises it with one message; nothing here decides when.
"""

from __future__ import annotations


class TorchDynamoException(RuntimeError):
    """Base class of everything oxyfuel raises on its own account."""


class Unsupported(TorchDynamoException):
    """Something could not be captured where a whole graph was asked for.

    The message names the reason and its id, the user's file, line and source text, and a hint.
    """

    @property
    def msg(self) -> str:
        return str(self)


class UserError(TorchDynamoException):
    """The program asks for something that no compiler could do, such as branching on data under ``fullgraph``."""


class DataDependentError(UserError):
    """A Python decision needs the value of a tensor."""


class ConstraintViolationError(UserError):
    """Code pins a size that was marked dynamic, or an example is outside the declared range."""


class TorchRuntimeError(TorchDynamoException):
    """An operator rejected its operands while the graph was being captured."""


class BackendCompilerFailed(TorchDynamoException):
    """A backend raised. The exception it raised is ``inner_exception`` and the cause."""

    def __init__(self, backend: object, inner_exception: BaseException) -> None:
        self.backend_name: str = getattr(backend, "__name__", None) or type(backend).__name__
        self.inner_exception = inner_exception
        super().__init__(
            f"backend={self.backend_name!r} raised:\n{type(inner_exception).__name__}: {inner_exception}"
        )
        self.__cause__ = inner_exception

    def __reduce__(self) -> tuple[object, ...]:
        return _rebuild_backend_failure, (self.backend_name, self.inner_exception)


def _rebuild_backend_failure(name: str, inner: BaseException) -> BackendCompilerFailed:
    failure = BackendCompilerFailed(None, inner)
    failure.backend_name = name
    failure.args = (f"backend={name!r} raised:\n{type(inner).__name__}: {inner}",)
    return failure


class InvalidBackend(TorchDynamoException):
    """A backend name that neither oxyfuel nor torch knows."""


class RecompileError(TorchDynamoException):
    """A recompilation happened under ``config.error_on_recompile``."""


class FailOnRecompileLimitHit(TorchDynamoException):
    """The recompile limit was reached where running eagerly is not allowed."""


class SkipFrame(TorchDynamoException):
    """Raised by a backend to leave this frame to the interpreter."""


class AccuracyError(TorchDynamoException):
    """Compiled and eager results differ by more than rounding explains."""
