"""Recorded graphs, performed on real tensors, are eager to the bit; fakes have eager's metadata."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from recording import metadata, record
from torch import Tensor, nn
from torch.utils import _pytree as pytree


def check(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """Records, runs both ways from equal random state, and compares results, metadata and mutated inputs."""
    recorded = record(fn, *args, **kwargs)
    before = torch.get_rng_state()
    tensors = [tensor.detach().clone() for tensor in recorded.tensors]
    for tensor, real in zip(tensors, recorded.tensors, strict=True):
        tensor.requires_grad_(real.requires_grad)
    got = recorded.run(tensors)
    torch.set_rng_state(before)
    wanted = [leaf for leaf in pytree.tree_leaves(fn(*args, **kwargs)) if isinstance(leaf, Tensor)]
    fakes = [leaf for leaf in pytree.tree_leaves(recorded.result) if isinstance(leaf, Tensor)]
    assert len(got) == len(wanted) == len(fakes)
    for fake, real, result in zip(fakes, wanted, got, strict=True):
        assert metadata(fake) == metadata(real)
        assert (result.shape, result.stride(), result.dtype) == (real.shape, real.stride(), real.dtype)
        assert torch.equal(result, real) or torch.equal(result.nan_to_num(7), real.nan_to_num(7))
    for tensor, real in zip(tensors, recorded.tensors, strict=True):
        assert torch.equal(tensor, real), "an input was mutated differently"
    assert [output["shape"] for output in recorded.graph.outputs] == [tuple(real.shape) for real in wanted]
    assert [output["requires_grad"] for output in recorded.graph.outputs] == [real.requires_grad for real in wanted]
    return recorded.text()


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm(x)).split(d, dim=2)
        q, k, v = (y.view(b, t, self.heads, d // self.heads).transpose(1, 2) for y in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None)
        x = x + self.out(y.transpose(1, 2).contiguous().view(b, t, d))
        return x + self.mlp(x)


@pytest.mark.parametrize("grad", [False, True])
def test_mlp(grad: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4), nn.Sigmoid()).requires_grad_(grad)
    text = check(model, torch.randn(3, 8))
    assert text.count("aten.addmm.default") == 2 and "detach" not in text


@pytest.mark.parametrize("channels_last", [False, True])
@pytest.mark.parametrize("training", [False, True])
def test_conv_bn_relu(channels_last: bool, training: bool) -> None:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.Conv2d(8, 8, 3, stride=2, groups=2), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
    ).train(training)  # fmt: skip
    x = torch.randn(2, 3, 16, 16)
    if channels_last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    with torch.no_grad():
        text = check(model, x)
    for name in ("convolution", "native_batch_norm", "relu_", "max_pool2d_with_indices"):
        assert f"aten.{name}.default" in text


@pytest.mark.parametrize("mask", ["causal", "bool", "float"])
@pytest.mark.parametrize("grad", [False, True])
def test_transformer_block(mask: str, grad: bool) -> None:
    model = Attention(32, 4).requires_grad_(grad)
    masks = {"causal": None, "bool": torch.rand(6, 6) > 0.1, "float": torch.randn(6, 6)}
    text = check(model, torch.randn(2, 6, 32), masks[mask])
    assert "aten._scaled_dot_product_flash_attention_for_cpu.default" in text


def test_attention_layouts() -> None:
    plain = torch.randn(2, 3, 5, 8)
    packed = [x.view(2, 5, 3, 8).transpose(1, 2) for x in torch.randn(2, 5, 72).split(24, 2)]

    def fn(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, v)

    for q, k, v in (
        (plain, plain, plain),
        packed,
        (plain.mT.contiguous().mT, plain, plain),
        (plain[..., :2, :], *packed[1:]),
    ):
        recorded = record(fn, q, k, v)
        for fake, real in zip(recorded.result, fn(q, k, v), strict=True):
            assert metadata(fake) == metadata(real)


def test_embedding_layernorm() -> None:
    embedding, norm = nn.Embedding(10, 8), nn.LayerNorm(8)
    check(lambda i, w, g, b: F.layer_norm(F.embedding(i, w), (8,), g, b),
          torch.randint(0, 10, (2, 5)), embedding.weight, norm.weight, norm.bias)  # fmt: skip


def test_views_and_in_place() -> None:
    def fn(x: Tensor) -> Any:
        y = x.clone()
        y.view(-1)[2:5].add_(1)
        y[:, 1] = 0
        y.t()[0].mul_(2)
        z = y[None].squeeze(0).unsqueeze(1)
        z.relu_()
        return y, z.expand(3, 2, 4), y.diagonal()

    check(fn, torch.randn(3, 4))


def test_mutated_inputs() -> None:
    def fn(x: Tensor, y: Tensor) -> Tensor:
        x.add_(y)
        x[0].zero_()
        x.masked_fill_(y > 0, 3.0)
        return x * 2

    check(fn, torch.randn(3, 4), torch.randn(3, 4))


def test_metadata_in_place() -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 2
        y.t_()
        y.unsqueeze_(0)
        y.add_(1)
        y.transpose_(1, 2)
        return y.squeeze_(0)

    check(fn, torch.randn(3, 4))


def test_splitting_and_joining() -> None:
    def fn(x: Tensor, y: Tensor) -> Any:
        a, b = x.split([1, 3], dim=1)
        c, d = y.chunk(2, dim=0)
        e = x.unbind(0)
        return torch.cat([a, b, y], 1), torch.stack([c, d]), torch.stack(e, dim=1), torch.hstack([a, b])

    check(fn, torch.randn(4, 4), torch.randn(4, 4))


def test_indexing() -> None:
    def fn(x: Tensor, i: Tensor, j: Tensor) -> Any:
        x = x.clone()
        x[0, ..., 1:] = 5.0
        x[i] += 1
        return x[1:, None, ::2], x[i], x[i, j], x[:, i], x[..., -1], x.gather(1, j[:, None]), x.index_select(1, i)

    check(fn, torch.randn(4, 5), torch.tensor([0, 2]), torch.tensor([1, 3]))


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "expanded"])
def test_advanced_indexing_layouts(layout: str) -> None:
    x = torch.randn(4, 5, 6, 3)
    if layout == "transposed":
        x = x.permute(2, 0, 3, 1)
    elif layout == "expanded":
        x = torch.randn(4, 1, 6, 1).expand(4, 5, 6, 3)
    i, j, k = torch.tensor([0, 2, 1]), torch.tensor([[1], [2]]), torch.tensor([[2, 1, 0], [0, 1, 2]])

    def fn(x: Tensor, i: Tensor, j: Tensor, k: Tensor) -> Any:
        wide = j.expand(2, 3)
        return (
            x[i], x[:, i], x[:, :, i], x[..., i], x[i, j], x[:, i, k], x[i, :, j], x[:, j, :, k], x[j], x[k.t()],
            x[wide], x[..., wide], x[i, i, i, i], x[:, j, k.contiguous()], x[wide, k, :, i],
        )  # fmt: skip

    recorded = record(fn, x, i, j, k)
    for fake, real in zip(recorded.result, fn(x, i, j, k), strict=True):
        assert metadata(fake) == metadata(real)


def test_factories() -> None:
    def fn(x: Tensor) -> Any:
        n = x.shape[0]
        return (
            torch.zeros(n, 2), torch.ones_like(x), torch.full((n,), 3), torch.full((2,), 1.5), torch.arange(n),
            torch.arange(0, 1, 0.25), torch.eye(n), torch.linspace(0, 1, 5), x.new_zeros(2), x.new_full((2,), 1),
            torch.zeros((), dtype=torch.int32), torch.ones(n, n).tril(), torch.empty(0), torch.full_like(x, 2),
        )  # fmt: skip

    check(fn, torch.randn(3, 4))


def test_casts() -> None:
    def fn(x: Tensor, i: Tensor) -> Any:
        h, b = x.half(), x.bfloat16()
        return (
            h,
            b + 1,
            x.double() * i,
            i / 2,
            i + 0.5,
            i.float().t() @ x,
            (x > 0).long(),
            b.to(x),
            i.bool(),
            h + x,
            i // 2,
        )

    check(fn, torch.randn(3, 4), torch.randint(0, 9, (3, 1)))


def test_several_results() -> None:
    def fn(x: Tensor) -> Any:
        return (
            x.max(1), x.topk(2), x.sort(dim=0), torch.var_mean(x, 1), x.min(0, keepdim=True).values, x.argmax(),
            torch.aminmax(x), x.cumsum(1), x.std(1), torch.linalg.vector_norm(x, dim=1), x.unique_consecutive
            and x.sum(), x.mean((0, 1)), x.any(), x.all(1), x.logsumexp(1), x.prod(1), x.softmax(0), x.norm(),
        )  # fmt: skip

    check(fn, torch.randn(4, 5))


def test_new_tensors_from_data_are_copies_of_constants() -> None:
    def fn(x: Tensor) -> Any:
        weights = torch.tensor([1.0, 2.0, 3.0])
        weights.add_(1)
        scale = torch.tensor(2)
        return x * weights + scale.item(), torch.as_tensor([1, 2])

    x = torch.randn(2, 3)
    recorded = record(fn, x)
    assert len(recorded.capture.constants) == 3 == recorded.graph.num_constants
    first, again = recorded.run([x]), recorded.run([x])
    assert torch.equal(first[0], again[0]) and torch.equal(first[0], fn(x)[0])


def test_real_tensors_inside_are_inputs_by_reference() -> None:
    weight = torch.randn(3, requires_grad=True)
    recorded = record(lambda x: x * weight + weight, torch.randn(2, 3))
    assert recorded.capture.constants[0] is weight and len(recorded.capture.constants) == 1
    assert recorded.result.requires_grad


def test_random_numbers_are_drawn_when_the_graph_runs() -> None:
    def fn(x: Tensor) -> Any:
        return F.dropout(x, 0.5), torch.rand(3), torch.randn_like(x), torch.randint(0, 5, (3,)), x.bernoulli(0.3)

    check(fn, torch.randn(40, 4))


def test_generator_is_carried() -> None:
    generator = torch.Generator()
    recorded = record(lambda x: torch.rand(3, generator=generator) + x, torch.zeros(3))
    state = generator.get_state()
    got = recorded.run([torch.zeros(3)])[0]
    generator.set_state(state)
    assert torch.equal(got, torch.rand(3, generator=generator))


def test_the_processes_random_state_is_not_touched() -> None:
    x = torch.randn(5)
    before = torch.get_rng_state()
    record(lambda x: F.dropout(torch.rand(5) + x.normal_(), 0.5), x)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("layout", ["contiguous", "transposed", "channels_last", "strided", "expanded"])
def test_elementwise_layouts(layout: str) -> None:
    made = {
        "contiguous": lambda: torch.randn(2, 3, 4, 5),
        "transposed": lambda: torch.randn(5, 3, 2, 4).permute(2, 1, 3, 0),
        "channels_last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
        "strided": lambda: torch.randn(4, 3, 8, 10)[::2, :, ::2, ::2],
        "expanded": lambda: torch.randn(2, 1, 4, 1).expand(2, 3, 4, 5),
    }[layout]
    x = made()
    others = [torch.randn(5), torch.randn(3, 1, 1), torch.randn(2, 3, 4, 5), torch.randn(5, 4).t(), torch.tensor(2.0)]
    others.append(torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last))

    def fn(x: Tensor, others: list[Tensor]) -> Any:
        out = [x.exp(), F.gelu(x), x + 1, x > 0, -x, x.clamp(0, 1), F.silu(x), x.softmax(1), x.sum(1), x.clone()]
        for y in others:
            out += [x + y, y * x, torch.where(x > y, x, 0.0), torch.maximum(x, y), x / y, torch.lerp(x, y, 0.5)]
        return out

    recorded = record(fn, x, others)
    for fake, real in zip(recorded.result, fn(x, others), strict=True):
        assert metadata(fake) == metadata(real)


DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


@pytest.mark.parametrize("a", DTYPES, ids=str)
@pytest.mark.parametrize("b", DTYPES, ids=str)
def test_promotion(a: torch.dtype, b: torch.dtype) -> None:
    x, y, zero = torch.ones(2, 3).to(a), torch.ones(3).to(b), torch.ones(()).to(b)

    def fn(x: Tensor, y: Tensor, zero: Tensor) -> Any:
        out = [x + y, x * zero, x / y, x == y, x * 2, x + 1.5, zero + True, torch.where(x > 0, x, zero)]
        out += [x.exp(), x.sum(), x.cumsum(0), torch.maximum(x, y), x.any(1), torch.cat([x[0], y]), x**2, x.sqrt()]
        return out

    recorded = record(fn, x, y, zero)
    for fake, real in zip(recorded.result, fn(x, y, zero), strict=True):
        assert metadata(fake) == metadata(real)


def test_autocast_is_part_of_the_graph_and_left_behind() -> None:
    def fn(x: Tensor, w: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return (x @ w).relu() + x @ w

    check(fn, torch.randn(4, 4), torch.randn(4, 4))
    assert not torch.is_autocast_enabled("cpu")


def test_inference_mode() -> None:
    model = Attention(32, 4)
    with torch.inference_mode():
        text = check(model, torch.randn(2, 6, 32))
    assert "aten.addmm.default" in text and "linear" not in text


def test_a_custom_operator_is_one_node() -> None:
    @torch.library.custom_op("oxyfuel_tests::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    twice.register_fake(lambda x: torch.empty_like(x))
    text = check(lambda x: twice(x) + 1, torch.randn(3))
    assert "oxyfuel_tests.twice.default" in text
