"""Elementwise chains: bit-equal to eager, in float32, bfloat16 and float16 and across dtypes."""

import random

import pytest
import torch
from agreement import FLOATS, LAYOUTS, Chain, check, layout, values

SHAPES = (
    [(4, 5), (4, 5)], [(7, 33), (33,)], [(3, 1, 8), (5, 1)], [(2, 3, 4, 5), (3, 1, 1)], [(65,), ()], [(), ()],
    [(0, 4), (4,)], [(2, 8, 5, 6), (2, 8, 5, 6)], [(1,), (130,)], [(3, 257), (3, 1)], [(1, 1), (2, 2)],
)  # fmt: skip
OTHERS = (torch.int64, torch.int32, torch.uint8, torch.bool, torch.float64, torch.int8, torch.int16)


def inputs(rng, dtypes):
    shapes = rng.choice(SHAPES)
    return [layout(values(shape, dtype, rng), rng.choice(LAYOUTS)) for shape, dtype in zip(shapes, dtypes)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("seed", range(60))
def test_chain(dtype, seed):
    rng = random.Random(f"{dtype}{seed}")
    check(Chain(rng, wide=False).source(2, rng.randint(3, 9)), inputs(rng, [dtype, dtype]))


@pytest.mark.parametrize("seed", range(80))
def test_chain_of_mixed_dtypes(seed):
    rng = random.Random(seed)
    dtypes = [rng.choice(FLOATS), rng.choice(OTHERS)]
    rng.shuffle(dtypes)
    check(Chain(rng, wide=False).source(2, rng.randint(3, 8)), inputs(rng, dtypes))


@pytest.mark.parametrize("seed", range(150))
def test_chain_of_many_operators(seed):
    rng = random.Random(1000 + seed)
    dtype = rng.choice(FLOATS)
    check(Chain(rng, wide=True).source(2, rng.randint(2, 7)), inputs(rng, [dtype, dtype]))


UNARY = [
    "x + 1", "x - 1.5", "x * 2", "x / 3", "2 - x", "1 / x", "x == x", "x > 0", "x != 0.1", "x.half()", "x.double()",
    "x.bfloat16()", "x.float() * x", "-x", "x.abs()", "x.clamp(0.1, 0.7)", "x.clamp_min(0)", "torch.where(x > 0, x, 0)",
    "torch.where(x > 0, 1.0, x)", "torch.where(x > 0, 1, 2)", "x.masked_fill(x < 0, -1)", "x.to(torch.bool)",
    "(x > 0) + 1", "(x > 0) & (x < 1)", "~(x > 0)", "(x > 0) | (x < -1)", "x.sign()", "F.relu(x)", "x * True",
    "x.add(x, alpha=2)", "torch.full_like(x, 3)", "torch.zeros_like(x) + x", "x.new_ones(x.shape) - x",
    "torch.maximum(x, -x)", "x.fill_(2.5) * x", "x.mul_(2).add_(1)", "x.zero_()", "x.copy_(x + 1)",
]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 7), (2, 3, 4, 5)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_form(dtype, shape):
    rng = random.Random(7)
    for kind in dict.fromkeys(LAYOUTS):
        x = layout(values(shape, dtype, rng), kind)
        for expression in UNARY:
            check(f"def f(x):\n    return {expression}\n", [x])


INTEGER = [
    "x + y", "x - y", "x * y", "x / y", "x + 1", "x * 2.5", "x / 2", "x < y", "x == 3", "torch.where(x > y, x, y)",
    "x.float() + y", "x.to(torch.bfloat16) * y", "-x", "x.abs()", "x.clamp(-2, 5)", "torch.maximum(x, y)", "x % 3",
    "x // 4", "x & y", "x | y", "x ^ y", "~x", "x << 1", "x >> 1", "x.sign()", "x.square()", "x.to(torch.uint8)",
    "x.bool()", "x.masked_fill(x > 3, 7)", "x + True", "x.sum()", "x.cumsum(0)", "x.prod()", "x.max()", "x.min()",
]  # fmt: skip


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8], ids=str)
def test_integers(dtype):
    rng = random.Random(11)
    x, y = values((5, 9), dtype, rng), values((9,), dtype, rng)
    for expression in INTEGER:
        if dtype == torch.uint8 and expression in ("-x",):
            continue
        check(f"def f(x, y):\n    return {expression}\n", [x, y])


BOOLEAN = [
    "x & y", "x | y", "x ^ y", "~x", "x + y", "x * y", "x == y", "x < y", "x + 1", "x * 2.5", "torch.where(x, 1.5, y)",
    "x.float() - y", "x / y.float()", "x.sum()", "x.any()", "x.all()", "x.any(0)", "x.all(1)", "x.sum(0)", "x.to(torch.int8)",
    "torch.logical_xor(x, y)", "x.max()", "x.argmax(1)", "x.cumsum(1)", "x.prod()", "x.float().mean()", "x.amax(0)",
]  # fmt: skip


def test_booleans():
    rng = random.Random(12)
    x, y = values((5, 9), torch.bool, rng), values((9,), torch.bool, rng)
    for expression in BOOLEAN:
        check(f"def f(x, y):\n    return {expression}\n", [x, y])


def test_writes_to_inputs():
    rng = random.Random(13)
    for kind in dict.fromkeys(LAYOUTS):
        x, y = layout(values((2, 3, 4, 5), torch.float32, rng), kind), values((4, 5), torch.float32, rng)
        check("def f(x, y):\n    x += y\n    x[0] *= 2\n    y.clamp_(0, 1)\n    return x * y\n", [x, y])
        check("def f(x, y):\n    z = x[..., 1:3]\n    z.add_(1)\n    return z - 1, x\n", [x, y])
