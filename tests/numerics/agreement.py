"""Tensors of every kind, generated chains of operators, and comparison with eager.

Chains are Python source, so that a failure prints a program that anybody can run.
"""

import itertools
import linecache
import random

import oxyfuel
import torch

FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_numbers = itertools.count()


def function(source, name="f"):
    """A function from source text, which tracebacks and tracers can read."""
    file = f"<test-numerics-{next(_numbers)}>"
    linecache.cache[file] = (len(source), None, source.splitlines(True), file)
    scope = {"torch": torch, "F": torch.nn.functional}
    exec(compile(source, file, "exec"), scope)
    return scope[name]


SPECIAL = (float("nan"), float("inf"), -float("inf"), 0.0, -0.0, 1e-40, -1e-40, 6e-8, 65504.0, -3e38, 1.0, -1.0)


def values(shape, dtype, rng, special=True):
    """Random contents; floats with NaN, infinities, signed zeros and subnormal numbers among them."""
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    n = 1
    for size in shape:
        n *= size
    if dtype == torch.bool:
        return (torch.rand(n, generator=generator) > 0.5).reshape(shape)
    if not dtype.is_floating_point:
        low = 0 if dtype == torch.uint8 else -20
        return torch.randint(low, 20, (n,), generator=generator).to(dtype).reshape(shape)
    x = torch.randn(n, generator=generator, dtype=torch.float64) * 3
    if special and n:
        where = torch.rand(n, generator=generator) < 0.15
        picks = torch.tensor(SPECIAL, dtype=torch.float64)[torch.randint(len(SPECIAL), (n,), generator=generator)]
        x = torch.where(where, picks, x)
    return x.to(dtype).reshape(shape)


def layout(x, kind):
    """The same contents in another memory layout."""
    if kind == "transposed" and x.dim() >= 2:
        return x.transpose(0, 1).contiguous().transpose(0, 1)
    if kind == "channels_last" and x.dim() == 4:
        return x.contiguous(memory_format=torch.channels_last)
    if kind == "sliced" and x.dim() >= 1 and x.shape[-1] > 0:
        wide = x.repeat_interleave(2, -1)
        return wide[..., ::2]
    if kind == "offset" and x.dim() >= 1:
        wide = torch.cat([x[:1], x]) if x.shape[0] else x
        return wide[1:] if x.shape[0] else x
    return x


LAYOUTS = ("plain", "plain", "transposed", "channels_last", "sliced", "offset")


def bits(t):
    """Bit patterns, all NaNs alike."""
    if not t.is_floating_point():
        return t
    same = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    pattern = t.detach().contiguous().view(same) if t.dim() else t.detach().reshape(1).view(same).reshape(())
    return torch.where(t.isnan(), torch.full_like(pattern, -1), pattern)


def assert_same(got, want, context="", exact=True):
    """Same metadata and the same bits; not ``exact``: nearly the same values."""
    if isinstance(want, (tuple, list)):
        assert type(got) is type(want) and len(got) == len(want), context
        for i, (g, w) in enumerate(zip(got, want)):
            assert_same(g, w, f"{context}\nresult {i}", exact)
        return
    if not isinstance(want, torch.Tensor):
        assert got == want or (got != got and want != want), f"{got} for {want}\n{context}"
        return
    assert got.dtype == want.dtype, f"{got.dtype} for {want.dtype}\n{context}"
    assert got.shape == want.shape, f"{got.shape} for {want.shape}\n{context}"
    assert got.stride() == want.stride(), f"strides {got.stride()} for {want.stride()}\n{context}"
    assert got.device == want.device, context
    if not exact:
        torch.testing.assert_close(got, want, equal_nan=True, msg=lambda text: f"{text}\n{context}")
        return
    g, w = bits(got), bits(want)
    if not torch.equal(g, w):
        at = tuple((g != w).nonzero()[0].tolist())
        count = int((g != w).sum())
        raise AssertionError(f"{count} differ, first at {at}: {got[at].item()!r} for {want[at].item()!r}\n{context}")


def clone(x):
    """A copy with the same strides, offset and dtype."""
    if not isinstance(x, torch.Tensor):
        return x
    if x.untyped_storage().nbytes() == x.numel() * x.element_size():
        return x.clone(memory_format=torch.preserve_format)
    storage = torch.empty(0, dtype=x.dtype).set_(x.untyped_storage().clone())
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


def check(source, inputs, calls=2, exact=True):
    """Eager and compiled: same results, same bits, same changes to the inputs, or the same error."""
    f = function(source)
    kinds = "\n".join(
        f"# {tuple(x.shape)} {x.stride()} {x.dtype}" if isinstance(x, torch.Tensor) else f"# {x!r}" for x in inputs
    )
    context = f"{source}{kinds}"
    theirs = [clone(x) for x in inputs]
    want = outcome(f, theirs)
    compiled = oxyfuel.compile(f, fullgraph=True, dynamic=False)
    for _ in range(calls):
        mine = [clone(x) for x in inputs]
        got = outcome(compiled, mine)
        if isinstance(want, Exception) or isinstance(got, Exception):
            assert type(got) is type(want) and str(got) == str(want), f"{got!r} for {want!r}\n{context}"
            continue
        assert_same(got, want, context, exact)
        assert_same(mine, theirs, f"{context}\ninputs", exact)


def check_error(f, *inputs):
    """Eager raises, and compiled raises the same."""
    want = outcome(f, [clone(x) for x in inputs])
    assert isinstance(want, Exception), "eager does not raise"
    got = outcome(oxyfuel.compile(f, dynamic=False), [clone(x) for x in inputs])
    assert type(got) is type(want) and str(got) == str(want), f"{got!r} for {want!r}"


def outcome(f, args):
    """What a call returns or raises."""
    try:
        return f(*args)
    except Exception as error:
        return error


class Chain:
    """Writes one random chain of elementwise operators."""

    def __init__(self, rng: random.Random, wide: bool) -> None:
        self.rng, self.wide = rng, wide

    def scalar(self):
        return self.rng.choice(["2", "-3", "0.5", "1.7", "-0.1", "True", "3", "1e-3"])

    def condition(self, names):
        a, b = self.rng.choice(names), self.rng.choice([*names, self.scalar()])
        return f"({a} {self.rng.choice(['<', '<=', '>', '>=', '==', '!='])} {b})"

    def line(self, i, names):
        rng = self.rng
        a, b = rng.choice(names), rng.choice([*names, *names, self.scalar()])
        kind = rng.choice(["arithmetic"] * 5 + ["swapped", "where", "where", "cast", "in_place", "mask"] + ["wide"] * 4 * self.wide)
        dtype = rng.choice(["torch.float32", "torch.bfloat16", "torch.float16", "torch.float64"])
        if kind == "arithmetic":
            return f"t{i} = {a} {rng.choice('+-*/')} {b}"
        if kind == "swapped":
            return f"t{i} = {self.scalar()} {rng.choice('+-*/')} {a}.float()"
        if kind == "where":
            return f"t{i} = torch.where({self.condition(names)}, {a}, {b})"
        if kind == "cast":
            return f"t{i} = {a}.to({dtype})"
        if kind == "in_place":
            # Whatever the result's dtype and sizes: into a new tensor that can hold it.
            op = rng.choice(["+=", "-=", "*=", "/="])
            return f"t{i} = ({a} * 1.0 + ({b})).clone()\n    t{i} {op} {self.scalar() if rng.random() < 0.5 else f't{i}'}"
        if kind == "mask":
            return f"t{i} = {self.condition(names)} * {a}"
        x = f"{a}.to({dtype})"
        return f"t{i} = " + rng.choice([
            f"torch.maximum({x}, {x} * 0.5)", f"torch.minimum({x}, -{x})", f"({x}).abs()", f"-({x})", f"F.relu({x})",
            f"({x}).clamp(-1, 2.5)", f"({x}).clamp(min=0)", f"({x}).floor()", f"({x}).ceil()", f"({x}).round()",
            f"({x}).trunc()", f"({x}).sign()", f"({x}).square()", f"({x}).reciprocal()", f"({x}).sqrt()",
            f"({x}) // 2.0", f"({x}) % 3", f"({x}).fmod(2.5)", f"torch.addcmul({x}, {x}, {x}, value=0.3)",
            f"torch.addcdiv({x}, {x}, {x}, value=2)", f"torch.lerp({x}, {x} * 2, 0.3)", f"({x}).masked_fill({a} > 0, 4.0)",
            f"({x}).isnan()", f"({x}).isinf()", f"({x}).nan_to_num(0.5)", f"torch.logical_and({x}, {a})",
            f"torch.add({x}, {x}, alpha=3)", f"torch.sub({x}, 2, alpha=0.5)", f"F.threshold({x}, 0.1, 20)",
            f"F.leaky_relu({x}, 0.1)", f"F.hardtanh({x})", f"F.relu6({x})", f"({x}).heaviside({x} * 0)",
            f"({x}).frac()", f"torch.copysign({x}, -{x})", f"({x}).pow(2)", f"torch.rsub({x}, 1.5)", f"F.hardswish({x})",
        ])  # fmt: skip

    def source(self, n_inputs, n_lines):
        names = [f"x{i}" for i in range(n_inputs)]
        text = f"def f({', '.join(names)}):\n"
        for i in range(n_lines):
            text += f"    {self.line(i, names)}\n"
            names.append(f"t{i}")
        kept = self.rng.sample(names[n_inputs:], min(2, n_lines))
        return text + f"    return ({', '.join(dict.fromkeys([*kept, names[-1]]))},)\n"
