"""Exported graphs: what they compute, how they read, and that torch.fx's own tools work on them."""

from __future__ import annotations

import copy
import functools
import io
import operator
import pickle
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from oxyfuel._capture import Capture
from oxyfuel._fx import Ref, export, input_name, run_fx


class Trace:
    """Calls torch callables on fakes and notes them as the tracer does."""

    def __init__(self) -> None:
        self.capture = Capture()
        self.inputs: list[tuple[Any, ...]] = []
        self.nodes: list[tuple[Any, ...]] = []
        self.fakes: list[Any] = []

    def input(self, source: str, tensor: Tensor) -> Ref:
        fake = self.capture.input(tensor, len(self.inputs))
        self.inputs.append((len(self.fakes), source, fake, tensor))
        self.fakes.append(fake)
        return Ref(len(self.fakes) - 1)

    def call(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        result = self.capture.call(fn, self._fake(args), self._fake(kwargs))
        out = self._number(result)
        self.nodes.append(
            (fn, args, kwargs, out, f'  File "user.py", line 3, in main\n  File "{__file__}", line 1, in f\n')
        )
        return _refs(out)

    def export(self, *outputs: Ref) -> torch.fx.GraphModule:
        gm = export(self.nodes, self.inputs, [ref.number for ref in outputs], self.fakes)
        gm.graph.lint()
        return gm

    def _fake(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self.fakes[value.number]
        if isinstance(value, (tuple, list)):
            return type(value)(self._fake(item) for item in value)
        if isinstance(value, dict):
            return {key: self._fake(item) for key, item in value.items()}
        return slice(*map(self._fake, (value.start, value.stop, value.step))) if isinstance(value, slice) else value

    def _number(self, result: Any) -> Any:
        if isinstance(result, Tensor):
            for number, fake in enumerate(self.fakes):
                if fake is result:
                    return number
            self.fakes.append(result)
            return len(self.fakes) - 1
        return [self._number(item) for item in result] if isinstance(result, (tuple, list)) else None


def _refs(out: Any) -> Any:
    return [_refs(item) for item in out] if isinstance(out, list) else None if out is None else Ref(out)


def mlp() -> tuple[torch.fx.GraphModule, list[Tensor], Tensor]:
    t = Trace()
    x, w, b = torch.randn(3, 4), nn.Parameter(torch.randn(5, 4)), nn.Parameter(torch.randn(5))
    rx = t.input("L['x']", x)
    rw, rb = t.input("L['self'].linear.weight", w), t.input("L['self'].linear.bias", b)
    h = t.call(F.linear, rx, rw, rb)
    h = t.call(torch.relu, h)
    h = t.call(operator.add, h, 1)
    h = t.call(Tensor.view, h, -1)
    top, _ = t.call(torch.topk, h, 3)
    return t.export(top), [x, w, b], (F.relu(F.linear(x, w, b)) + 1).view(-1).topk(3).values


def test_nodes_and_names() -> None:
    gm, inputs, expected = mlp()
    kinds = [(node.op, node.name) for node in gm.graph.nodes]
    assert kinds == [
        ("placeholder", "l_x_"), ("placeholder", "l_self_linear_weight"), ("placeholder", "l_self_linear_bias"),
        ("call_function", "linear"), ("call_function", "relu"), ("call_function", "add"), ("call_method", "view"),
        ("call_function", "topk"), ("call_function", "getitem"), ("call_function", "getitem_1"), ("output", "output"),
    ]  # fmt: skip
    out = run_fx(gm)(*inputs)
    assert isinstance(out, tuple) and torch.equal(out[0], expected) and out[0].requires_grad
    linear = next(node for node in gm.graph.nodes if node.name == "linear")
    assert linear.target is F.linear and "user.py" in linear.stack_trace
    assert linear.meta["example_value"].shape == (3, 5)


def test_tools_of_torch_fx() -> None:
    gm, inputs, expected = mlp()
    text = gm.print_readable(print_output=False)
    assert f'File: {__file__}:1 in f, code: """Exported graphs:' in text and "l_self_linear_weight" in text
    for other in (copy.deepcopy(gm), copy.copy(gm), pickle.loads(pickle.dumps(gm))):
        assert torch.equal(other(*inputs)[0], expected)
    buffer = io.BytesIO()
    torch.save(gm, buffer)
    from torch.fx.passes.shape_prop import ShapeProp

    ShapeProp(gm).propagate(*inputs)
    assert torch.equal(torch.fx.Interpreter(gm).run(*inputs)[0], expected)
    assert gm.graph.eliminate_dead_code()  # the unused half of topk
    gm.recompile()
    assert torch.equal(gm(*inputs)[0], expected)
    traced = torch.fx.symbolic_trace(gm)
    assert torch.equal(traced(*inputs)[0], expected)


def test_effects_stay_in_order() -> None:
    t = Trace()
    x = torch.zeros(3)
    rx = t.input("L['x']", x)
    t.call(operator.setitem, rx, slice(0, 2), 1.0)
    same = t.call(Tensor.add_, rx, 1)
    assert same == rx
    y = t.call(torch.mul, rx, 2)
    gm = t.export(y, rx)
    out = gm(x)
    assert out[0].tolist() == [4.0, 4.0, 2.0] and out[1] is x


def test_containers_slices_and_indices() -> None:
    t = Trace()
    x, i = torch.randn(4, 5), torch.tensor([1, 2])
    rx, ri = t.input("L['x']", x), t.input("G['i']", i)
    a = t.call(operator.getitem, rx, (ri, slice(None, None, 2)))
    b = t.call(torch.cat, [a, a], dim=1)
    c, d = t.call(torch.split, b, 3, dim=1)
    e = t.call(torch.einsum, "ij,ij->i", c, d)
    y = torch.cat([x[i, ::2]] * 2, 1)
    assert torch.equal(t.export(e)(x, i)[0], torch.einsum("ij,ij->i", *y.split(3, 1)))


def test_objects_that_code_cannot_spell() -> None:
    generator = torch.Generator().manual_seed(3)
    constant = torch.randn(3)
    t = Trace()
    x = torch.randn(3)
    rx = t.input("L['x']", x)
    noise = t.call(functools.partial(torch.rand, 3), generator=generator)
    y = t.call(torch.add, rx, noise)
    z = t.call(torch.mul, y, constant)
    gm = t.export(z)
    wanted = (x + torch.rand(3, generator=torch.Generator().manual_seed(3))) * constant
    assert torch.equal(gm(x)[0], wanted)
    assert any(node.op == "get_attr" and "_tensor_constant" in node.target for node in gm.graph.nodes)


def test_callables_of_all_kinds() -> None:
    t = Trace()
    x = torch.randn(3, 4)
    rx = t.input("L['x']", x)
    a = t.call(Tensor.T.__get__, rx)
    b = t.call(getattr, a, "mT")
    c = t.call(Tensor.__add__, b, rx)
    d = t.call(Tensor.norm, c, dim=1)
    e = t.call(torch.ops.aten.exp.default, d)
    f = t.call(torch._C._nn.gelu, e)
    g = t.call(lambda y: y * 2, f)
    gm = t.export(g)
    assert torch.equal(gm(x)[0], F.gelu((x + x).norm(dim=1).exp()) * 2)
    assert [node.op for node in gm.graph.nodes if node.op == "call_method"] == ["call_method"] * 2


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("L['x']", "l_x_"),
        ("L['self'].layers[0].weight", "l_self_layers_0_weight"),
        ("G['lambda']", "g_lambda_"),
        ("é", "x_"),
        ("0", "x_0"),
        ("lambda", "x_lambda"),
        ("", "x_"),
    ],
)
def test_input_names(source: str, name: str) -> None:
    assert input_name(source) == name and name.isidentifier()


def test_input_names_are_unique() -> None:
    t = Trace()
    refs = [t.input(source, torch.randn(2)) for source in ("L['x']", "L.x", "L['X']", "L[x]", "L[ x]")]
    gm = t.export(t.call(torch.stack, refs))
    assert len({node.target for node in gm.graph.nodes if node.op == "placeholder"}) == 5
    assert gm(*(torch.randn(2) for _ in refs))[0].shape == (5, 2)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends_registered_with_torch(backend: str) -> None:
    from torch._dynamo.backends.registry import lookup_backend

    gm, inputs, expected = mlp()
    compiled = lookup_backend(backend)(gm, inputs)
    out = compiled(*inputs)[0]
    assert torch.equal(out, expected)
    out.sum().backward()
    assert inputs[1].grad is not None
