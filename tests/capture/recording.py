"""Helpers: record a callable on fakes of real tensors, and perform the graph on the real ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from oxyfuel._capture import Capture, Fake


class Recorded(NamedTuple):
    graph: Any
    result: Any
    """The callable's result, with fakes."""
    capture: Capture
    tensors: list[Tensor]
    """The graph's inputs."""

    def text(self) -> str:
        return self.graph.text()

    def run(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        return self.graph.run([*tensors, *self.capture.constants])


def record(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Recorded:
    """Records ``fn``. A module's parameters and buffers are inputs, as the tracer makes them."""
    capture = Capture()
    tensors: list[Tensor] = []
    fakes: dict[int, Fake] = {}

    def fake_of(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        if id(value) not in fakes:
            fakes[id(value)] = capture.input(value, len(tensors))
            tensors.append(value)
        return fakes[id(value)]

    state: dict[str, Fake] = {}
    if isinstance(fn, nn.Module):
        for name, value in (*fn.named_parameters(remove_duplicate=False), *fn.named_buffers(remove_duplicate=False)):
            state[name] = fake_of(value)
        module = fn
        fn = lambda *a, **k: torch.func.functional_call(module, state, a, k, tie_weights=False)
    fake_args, fake_kwargs = pytree.tree_map(fake_of, (args, kwargs))
    capture.enter()
    torch.compiler._is_compiling_flag = True  # what the tracer says to library code that asks
    try:
        result = capture.call(fn, fake_args, fake_kwargs)
    finally:
        torch.compiler._is_compiling_flag = False
        capture.exit()
    outputs = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
    return Recorded(capture.finish(outputs), result, capture, tensors)


def metadata(tensor: Tensor) -> tuple[Any, ...]:
    return (
        tuple(tensor.shape),
        tensor.stride(),
        tensor.storage_offset(),
        tensor.dtype,
        tensor.device,
        tensor.requires_grad,
        tensor.is_leaf,
    )
