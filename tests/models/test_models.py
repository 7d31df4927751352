"""The demo's models at small sizes: one graph, no break, as accurate as eager."""

import pytest

torch = pytest.importorskip("torch")
oxyfuel = pytest.importorskip("oxyfuel")
for needed in ("torchvision", "timm", "transformers"):
    pytest.importorskip(needed, reason="the models suite needs dependency group `models`")

from demo.compare import errors, in_float64  # noqa: E402
from demo.models import MODELS, build  # noqa: E402

pytestmark = pytest.mark.timeout(180)


@pytest.fixture(autouse=True)
def fresh():
    oxyfuel.reset()
    yield
    oxyfuel.reset()


def stats_since(before):
    after = oxyfuel.stats()
    return {key: after[key] - before[key] for key in ("graphs", "graph_breaks", "recompiles")}


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_whole_graph_and_accuracy(name):
    module, args, kwargs = build(name, "small")
    eager, reference = module(*args, **kwargs), in_float64(module, args, kwargs)
    before = oxyfuel.stats()
    compiled = oxyfuel.compile(module, fullgraph=True)
    for _ in range(2):  # the call that compiles, and one that reuses
        found = errors(compiled(*args, **kwargs), eager, reference)
        assert found.allowed, found
    assert stats_since(before) == {"graphs": 1, "graph_breaks": 0, "recompiles": 0}


@pytest.mark.parametrize("name", MODELS)
def test_gradients_are_eagers(name):
    module, args, kwargs = build(name, "small")

    def gradients(target):
        module.zero_grad(set_to_none=True)
        result = target(*args, **kwargs)
        out = result if isinstance(result, torch.Tensor) else result[0]
        out.square().mean().backward()
        return {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}

    want = gradients(module)
    got = gradients(oxyfuel.compile(module, fullgraph=True))
    assert got.keys() == want.keys()
    for parameter, gradient in want.items():
        torch.testing.assert_close(
            got[parameter], gradient, rtol=1e-3, atol=1e-5, msg=lambda text: f"{parameter}: {text}"
        )


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_default_mode_agrees(name):
    module, args, kwargs = build(name, "small")
    eager, reference = module(*args, **kwargs), in_float64(module, args, kwargs)
    assert errors(oxyfuel.compile(module)(*args, **kwargs), eager, reference).allowed
