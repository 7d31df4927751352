"""In-place operators on inputs, views and fresh tensors: inputs change as in eager, readers see what they should."""

import random

import pytest
import torch
from agreement import LAYOUTS, check, layout, values

PROGRAMS = {
    "chain": "x.mul_(2).add_(y, alpha=0.5)\n    return x - y",
    "read_before": "a = x * 3\n    x.add_(1)\n    return a + x",
    "read_between": "x.add_(1)\n    a = x * 2\n    x.mul_(y)\n    b = x.exp()\n    x.sub_(a)\n    return a, b",
    "own_transpose": "x.add_(x.transpose(0, 1)) if x.shape[0] == x.shape[1] else x.add_(1)\n    return x * 1",
    "own_row": "x.sub_(x[0])\n    return x.sum()",
    "own_mean": "x.sub_(x.mean())\n    return x.amax(-1)",
    "own_softmax": "x.copy_(x.softmax(-1))\n    return x.sum(-1)",
    "flipped": "x.copy_(x.flip(0))\n    return x + y",
    "slice": "x[1:] += y[:-1] if y.shape == x.shape else 1\n    return x * 2",
    "slice_of_itself": "x[1:] = x[:-1] * 2\n    return x",
    "view": "v = x.view(-1) if x.is_contiguous() else x\n    v.mul_(3)\n    return x + 1",
    "both": "x.add_(y)\n    y.mul_(x)\n    x.sub_(y)\n    return x, y",
    "swap": "t = x.clone()\n    x.copy_(y.expand_as(x))\n    return t - x",
    "constant": "x.zero_()\n    y.fill_(2)\n    return x + y",
    "where": "x.copy_(torch.where(x > 0, y, x))\n    return x.relu_()",
    "masked": "x.masked_fill_(x < y, 7)\n    return x == 7",
    "unused": "a = x + 1\n    x.clamp_(-0.5, 0.5)\n    return y",
    "cat": "x.copy_(torch.cat([x[1:], x[:1]]))\n    return x - y",
    "cast": "x.copy_(x.to(torch.bfloat16))\n    return x",
    "out_of_order": "a = x + y\n    b = a * x\n    y.add_(1)\n    c = b - a\n    x.add_(c)\n    return a, b, c",
    "returned": "return x.add_(1), x, y.mul_(2)",
    "detached": "d = x.detach()\n    d.add_(1)\n    return x * d",
    "expanded": "x += y.sum()\n    z = x[:, :1].expand_as(x) if x.dim() > 1 else x\n    x *= 2\n    return z + x",
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64], ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_writes(name, dtype):
    rng = random.Random(21)
    for shapes in [((4, 4), (4, 4)), ((6, 3), (6, 3)), ((1, 1), (1, 1)), ((2, 3, 4, 5), (2, 3, 4, 5)), ((40, 70), (40, 70))]:
        for kind in dict.fromkeys(LAYOUTS):
            x, y = (layout(values(shape, dtype, rng, special=False), kind) for shape in shapes)
            check(f"def f(x, y):\n    {PROGRAMS[name]}\n", [x, y], exact=False)


WRITES = ["{a}.add_({b})", "{a}.mul_(0.5)", "{a}.sub_({b}, alpha=2)", "{a}.copy_({b})", "{a}.copy_({b} * {a})", "{a}[0] = {b}[0]",
          "{a}[1:].mul_(2)", "{a}.t().add_(1)", "{a}.neg_()", "{a}.clamp_(-3, 3)", "{a}.copy_({b}.t())", "{a}.view(-1)[2:7] += 1",
          "{a}.sub_({a}[1])"]  # fmt: skip
READS = ["{n} = {a} + {b}", "{n} = {a} * 2", "{n} = {a}.t()", "{n} = torch.where({a} > {b}, {a}, {b})", "{n} = {a}[:, 1:2] + {b}",
         "{n} = {a}.clone()", "{n} = {a} - {a}.amax()", "{n} = {a}.view(5, 5)"]  # fmt: skip


@pytest.mark.parametrize("seed", range(120))
def test_random_writes(seed):
    rng = random.Random(seed)
    names, text = ["x", "y"], "def f(x, y):\n"
    for i in range(rng.randint(3, 10)):
        a, b = rng.choice(names), rng.choice(names)
        if rng.random() < 0.5:
            text += f"    {rng.choice(WRITES).format(a=a, b=b)}\n"
        else:
            text += f"    {rng.choice(READS).format(a=a, b=b, n=f't{i}')}\n"
            if ".t()" not in text.splitlines()[-1]:
                names.append(f"t{i}")
    text += f"    return ({', '.join(rng.sample(names, min(3, len(names))))},)\n"
    check(text, [values((5, 5), torch.float32, rng, special=False) for _ in range(2)], exact=False)
