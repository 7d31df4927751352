"""Random programs: eager and compiled agree on results, mutations, output and exceptions.

``OXY_FUZZ_SEEDS=first:count`` widens the range.
"""

from __future__ import annotations

import copy
import io
import os
from typing import Any

import pytest
import torch

import oxyfuel
from tests.fuzz.programs import source


def helper(x: torch.Tensor, k: int = 1) -> torch.Tensor:
    if k > 2:
        return x * k
    return helper(x + 1, k + 2)


@oxyfuel.disable
def noisy(x: torch.Tensor, out: Any) -> torch.Tensor:
    print("noisy", tuple(x.shape), file=out)
    return x * 2


class Noting:
    def __init__(self, out: Any) -> None:
        self.out = out

    def __enter__(self) -> Noting:
        print("enter", file=self.out)
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        print("exit", kind and kind.__name__, file=self.out)


def plain(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return ("tensor", tuple(value.shape), value.dtype, value.detach().double().tolist())
    if isinstance(value, (list, tuple)):
        return type(value)(plain(item) for item in value)
    if isinstance(value, dict):
        return [(key, plain(item)) for key, item in value.items()]
    return value


def observe(function: Any, calls: int) -> list[Any]:
    torch.manual_seed(0)
    base = (torch.randn(4), torch.randn(4), [1, torch.randn(4)], {"x": 2})
    seen = []
    for _ in range(calls):
        a, b, items, table = copy.deepcopy(base)
        out = io.StringIO()
        try:
            result = plain(function(a, b, items, table, out))
        except Exception as error:
            result = (type(error), str(error))
        seen.append((result, plain(a), plain(items), plain(table), out.getvalue(), torch.is_grad_enabled()))
    return seen


def same(x: Any, y: Any) -> bool:
    if isinstance(x, float) and isinstance(y, float):
        return x == y or abs(x - y) <= 1e-5 * max(1.0, abs(x), abs(y)) or (x != x and y != y)
    if isinstance(x, (list, tuple)) and type(x) is type(y):
        return len(x) == len(y) and all(same(p, q) for p, q in zip(x, y))
    return bool(x == y)


def check(seed: int, backend: Any) -> None:
    text = source(seed)
    scope: dict[str, Any] = {"torch": torch, "helper": helper, "noisy": noisy, "Noting": Noting}
    exec(compile(text, f"<test program {seed}>", "exec"), scope)
    want = observe(scope["make"](2), 3)
    got = observe(oxyfuel.compile(scope["make"](2), backend=backend), 3)
    assert same(want, got), f"seed {seed}\n{text}\nwant {want}\ngot  {got}"


FIRST, COUNT = (int(part) for part in os.environ.get("OXY_FUZZ_SEEDS", "0:60").split(":"))


@pytest.mark.parametrize("backend", [None, "eager"])
@pytest.mark.parametrize("seed", range(FIRST, FIRST + COUNT))
def test_program(seed: int, backend: Any) -> None:
    check(seed, backend)
