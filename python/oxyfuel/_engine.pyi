"""The Rust engine's surface. Everything that decides anything is behind it."""

from collections.abc import Callable
from typing import Any

version: str

class CompiledFunction:
    """A compiled callable. Nothing happens before the first call.

    ``backend=None`` is the native backend; a callable is ``(GraphModule, example_inputs) -> callable``.
    ``options`` may hold ``numerics``, ``guard_filter_fn``, ``mode``, ``recompile_limit`` and
    ``isolate_recompiles``. With ``bind=True`` it binds like a function when found on a class.
    """

    __wrapped__: Callable[..., Any]
    __dict__: dict[str, Any]
    __module__: str
    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        fullgraph: bool,
        dynamic: bool | None,
        backend: Callable[..., Any] | None,
        options: dict[str, Any] | None,
        name: str | None,
        bind: bool,
    ) -> None: ...
    def __call__(self, *args: Any, **kwargs: Any) -> Any: ...
    def __get__(self, instance: Any, owner: type | None = None, /) -> Any: ...

def reset() -> None:
    """Drop all compiled code and everything learned about sizes."""

def stats() -> dict[str, Any]:
    """Counts since the process began: ``graphs``, ``operators`` (captured), ``kernels``, ``graph_breaks``,
    ``recompiles``, ``break_reasons`` (title to count), ``phases`` (name to seconds)."""

def set_config(name: str, value: Any) -> None:
    """A knob of ``oxyfuel.config``, or ``"stance"`` with ``(stance, skip_guard_eval_unsafe, force_backend)``."""

class GraphBuilder:
    """Records ATen operators called on fake tensors; see ``oxyfuel._capture``."""

class Graph:
    """A captured ATen graph."""

    num_nodes: int
    num_constants: int
    def text(self) -> str: ...
    def names(self) -> list[str]: ...
    def run(self, tensors: list[Any]) -> Any:
        """The outputs for ``[*inputs, *constants]``, by torch's own operators."""

class CompiledGraph:
    def __call__(self, *tensors: Any) -> Any: ...

def compile_graph(graph: Graph, constants: list[Any]) -> CompiledGraph:
    """Compiles a graph whose last inputs are ``constants``."""
