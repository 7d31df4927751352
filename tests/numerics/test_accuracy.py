"""Reductions, softmax, norms and activations: as close to float64 as eager is; the same metadata; integers equal."""

import random

import oxyfuel
import pytest
import torch
from agreement import FLOATS, LAYOUTS, check, clone, function, layout, values

ALLOWANCE = {torch.float64: 1e-14, torch.float32: 2e-6, torch.bfloat16: 1e-2, torch.float16: 1.25e-3}
"""Of the result's scale, beside four times eager's error."""


def in_float64(x):
    return x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x


def error(got, want):
    """The largest distance, and the scale of the right result."""
    finite = want.isfinite()
    if not finite.any():
        return 0.0, 1.0
    return float((got.double() - want)[finite].abs().max()), float(want[finite].abs().max())


def check_accuracy(source, inputs):
    f = function(source)
    exact = f(*[in_float64(clone(x)) for x in inputs])
    want = f(*[clone(x) for x in inputs])
    got = oxyfuel.compile(f, fullgraph=True, dynamic=False)(*[clone(x) for x in inputs])
    exact, want, got = ([r] if isinstance(r, torch.Tensor) else list(r) for r in (exact, want, got))
    for e, w, g in zip(exact, want, got, strict=True):
        kinds = "".join(f"# {tuple(x.shape)} {x.stride()} {x.dtype}\n" for x in inputs if isinstance(x, torch.Tensor))
        context = f"{source}{kinds}"
        assert (g.dtype, g.shape, g.stride(), g.device) == (w.dtype, w.shape, w.stride(), w.device), (
            f"{g.dtype} {tuple(g.shape)} {g.stride()} for {w.dtype} {tuple(w.shape)} {w.stride()}\n{context}"
        )
        if not w.is_floating_point():
            assert torch.equal(g, w), context
            continue
        special = ~w.isfinite()
        assert torch.equal(g.isnan(), w.isnan()) and torch.equal(g.isinf(), w.isinf()), context
        assert torch.equal(g[special].nan_to_num(), w[special].nan_to_num()), context
        mine, scale = error(g[~special], e[~special].double())
        eager, _ = error(w[~special], e[~special].double())
        allowed = 4 * eager + ALLOWANCE[w.dtype] * scale
        assert mine <= allowed, f"error {mine:.3g}, eager's {eager:.3g}, allowed {allowed:.3g}\n{context}"


def check_all(expressions, inputs):
    names = ", ".join("xyz"[: len(inputs)])
    for expression in expressions:
        check_accuracy(f"def f({names}):\n    return {expression}\n", inputs)


REDUCTIONS = [
    "x.sum()", "x.sum(-1)", "x.sum(0)", "x.sum(1, keepdim=True)", "x.sum((0, -1))", "x.mean()", "x.mean(-1)", "x.mean(0)",
    "x.mean((0, 1), keepdim=True)", "x.amax(-1)", "x.amin(0)", "x.amax()", "x.max()", "x.min()", "x.var(-1)", "x.var(0)",
    "x.std(-1)", "x.var(1, correction=0)", "torch.var_mean(x, -1)", "x.norm()", "x.norm(dim=-1)", "x.sum(dtype=torch.float64)",
    "(x * x).sum(-1).sqrt()", "(x - x.mean(-1, keepdim=True)).square().mean(-1)", "x.logsumexp(-1)", "x.argmax(-1)",
    "x.argmin(0)", "x.max(-1)", "x.min(1)", "(x > 0).sum(-1)", "(x > 0).any(-1)", "(x > 0).all(0)", "x.prod(-1)",
    "x.cumsum(-1)", "x.abs().sum(1) / x.shape[1]", "x.sum(-1).softmax(0)", "torch.linalg.vector_norm(x, dim=0)",
    "F.normalize(x, dim=1)", "x.count_nonzero()", "x.sum(0) + x.sum(-1).sum()",
]  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 7), (3, 5, 65), (2, 3, 8, 9), (1, 1025), (300, 3), (17, 1)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_reductions(dtype, shape):
    rng = random.Random(3)
    for kind in dict.fromkeys(LAYOUTS):
        check_all(REDUCTIONS, [layout(values(shape, dtype, rng, special=False), kind)])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_special_values_in_reductions(dtype):
    rng = random.Random(4)
    x = values((64, 5), dtype, rng)
    for expression in ["x.amax(-1)", "x.amin(0)", "x.max()", "x.min()", "x.argmax(-1)", "x.max(-1)", "(x == x).all(-1)", "x.any(0)"]:
        check(f"def f(x):\n    return {expression}\n", [x])
    check_all(["x.softmax(-1)", "x.sum(-1)", "x.log_softmax(0)", "x.mean(0)"], [x])


def test_empty_and_single():
    for shape in [(0,), (3, 0), (0, 3), (), (1,)]:
        x = torch.randn(shape)
        for expression in ["x.sum()", "x.mean()", "x.sum(-1)", "x.prod()", "x.softmax(-1)", "x.any()", "x.var()", "x.max()", "x.amax(-1)", "x.argmax()"]:
            check(f"def f(x):\n    return {expression}\n", [x])


SOFTMAX = [
    "x.softmax(-1)", "x.softmax(0)", "x.log_softmax(-1)", "x.log_softmax(1)", "(x * 0.125).softmax(-1)",
    "x.softmax(-1, dtype=torch.float32)", "x.softmax(-1).sum(-1)", "F.softmin(x, dim=-1)",
    "x.masked_fill(x < 0, float('-inf')).softmax(-1)", "x.softmax(1).transpose(0, 1)",
]  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 7), (3, 5, 65), (2, 4, 33, 33), (1, 1025), (2, 1)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_softmax(dtype, shape):
    rng = random.Random(5)
    for kind in dict.fromkeys(LAYOUTS):
        check_all(SOFTMAX, [layout(values(shape, dtype, rng, special=False), kind)])


NORMS = [
    "F.layer_norm(x, x.shape[-1:])", "F.layer_norm(x, x.shape[-1:], y, z)", "F.layer_norm(x, x.shape[1:])",
    "F.rms_norm(x, x.shape[-1:])", "F.rms_norm(x, x.shape[-1:], y, 1e-6)", "F.layer_norm(x * 2 + 1, x.shape[-1:], y, z) * x",
    "x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * y",
]  # fmt: skip


@pytest.mark.parametrize("shape", [(4, 8), (3, 5, 65), (2, 768), (2, 3, 4, 16)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_norms(dtype, shape):
    rng = random.Random(6)
    y, z = (values(shape[-1:], dtype, rng, special=False) for _ in range(2))
    for kind in dict.fromkeys(LAYOUTS):
        check_all(NORMS, [layout(values(shape, dtype, rng, special=False), kind), y, z])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_norms_over_channels(dtype):
    rng = random.Random(8)
    y, z = values((6,), dtype, rng, special=False), values((6,), dtype, rng, special=False).abs() + 0.5
    for kind in ("plain", "channels_last", "sliced"):
        x = layout(values((2, 6, 5, 7), dtype, rng, special=False), kind)
        check_all(
            ["F.batch_norm(x, y, z)", "F.batch_norm(x, y, z, z, y)", "F.relu(F.batch_norm(x, y, z, z, y) + x)",
             "F.group_norm(x, 3, y, z)", "F.instance_norm(x)", "F.batch_norm(x, y.clone(), z.clone(), training=True)"],
            [x, y, z],
        )  # fmt: skip


ACTIVATIONS = [
    "F.gelu(x)", "F.gelu(x, approximate='tanh')", "F.silu(x)", "x.sigmoid()", "x.tanh()", "F.softplus(x)", "F.mish(x)",
    "F.elu(x)", "F.selu(x)", "F.celu(x)", "F.hardswish(x)", "F.hardsigmoid(x)", "F.leaky_relu(x)", "F.logsigmoid(x)", "F.relu6(x)",
    "x.exp()", "x.expm1()", "x.abs().log()", "x.abs().log1p()", "x.abs().log2()", "x.abs().log10()", "x.sin()", "x.cos()", "x.tan()",
    "x.atan()", "x.erf()", "x.erfc()", "x.sinh()", "x.cosh()", "x.abs().sqrt()", "x.abs().rsqrt()", "x.pow(3)", "x.pow(2.5)",
    "x.abs().pow(0.3)", "2 ** x", "x.abs() ** x", "x.exp2()", "torch.atan2(x, x + 1)", "x.tanh().asin()", "x.tanh().acos()",
    "x.asinh()", "(x.abs() + 1).acosh()", "(x.tanh() * 0.9).atanh()", "F.glu(x, -1) if x.shape[-1] % 2 == 0 else x", "F.silu(x) * x",
    "torch.special.erfinv(x.tanh())", "torch.logaddexp(x, x * 2)", "torch.hypot(x, x + 1)", "x.lgamma()", "x.sigmoid().logit()",
    "F.softsign(x)", "F.tanhshrink(x)", "F.hardshrink(x)", "F.softshrink(x)", "F.prelu(x, x.new_full((1,), 0.2))", "torch.xlogy(x, x.abs())",
]  # fmt: skip


@pytest.mark.parametrize("shape", [(), (9, 66), (2, 3, 4, 6)], ids=str)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_activations(dtype, shape):
    rng = random.Random(9)
    for kind in dict.fromkeys(LAYOUTS):
        check_all(ACTIVATIONS if shape else [a for a in ACTIVATIONS if "glu" not in a], [layout(values(shape, dtype, rng, special=False), kind)])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_activations_of_special_values(dtype):
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, 88.8, -104.0, 710.0, 3e38, 0.5], dtype=dtype)
    # Eager's sinh and cosh overflow early in narrow dtypes.
    expressions = [a for a in ACTIVATIONS[:10] + ACTIVATIONS[15:31] if a not in ("x.sinh()", "x.cosh()")]
    check_all(expressions, [x.repeat(3)])
    check_all(["F.gelu(x)", "x.tanh()", "F.silu(x)", "x.exp()", "x.sigmoid()"], [x[:3]])
