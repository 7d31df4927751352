"""How far a result is from the same computation in float64, beside how far eager's is."""

from __future__ import annotations

import copy
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

FACTOR = 4.0
"""A compiled result may be this many times as far from float64 as eager's ..."""
FLOOR = 2e-6
"""... plus this much of the result's scale (float32)."""


class Errors(NamedTuple):
    compiled: float
    eager: float
    allowed: bool


def tensors(result: Any) -> list[torch.Tensor]:
    """Tensors of a result, in order. Model outputs of transformers are ordered dicts to pytree."""
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def in_float64(module: torch.nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    def widen(value: Any) -> Any:
        return value.double() if isinstance(value, torch.Tensor) and value.is_floating_point() else value

    args, kwargs = pytree.tree_map(widen, (args, kwargs))
    return tensors(copy.deepcopy(module).double()(*args, **kwargs))


def errors(compiled: Any, eager: Any, reference: list[torch.Tensor]) -> Errors:
    """Largest errors over all tensors. Raises when structure, shapes, dtypes or integers differ."""
    ours, theirs = tensors(compiled), tensors(eager)
    if type(compiled) is not type(eager) or [t.shape for t in ours] != [t.shape for t in theirs]:
        raise ValueError("the compiled result has another structure than eager's")
    worst_ours = worst_theirs = 0.0
    allowed = True
    for got, want, exact in zip(ours, theirs, reference, strict=True):
        if got.dtype != want.dtype:
            raise ValueError(f"dtype {got.dtype} where eager has {want.dtype}")
        if not want.is_floating_point():
            if not torch.equal(got, want):
                raise ValueError("integer results differ")
            continue
        if not torch.equal(torch.isfinite(got), torch.isfinite(want)):
            raise ValueError("non-finite values are elsewhere than in eager's result")
        finite = torch.isfinite(exact)
        exact = exact[finite]
        if exact.numel() == 0:
            continue
        error = (got[finite].double() - exact).abs().max().item()
        eager_error = (want[finite].double() - exact).abs().max().item()
        allowed &= error <= FACTOR * eager_error + FLOOR * exact.abs().max().item()
        worst_ours, worst_theirs = max(worst_ours, error), max(worst_theirs, eager_error)
    return Errors(worst_ours, worst_theirs, allowed)
