"""Export of captured graphs as ``torch.fx.GraphModule``."""

from __future__ import annotations

import re
import types
from typing import Any, NamedTuple

import torch
import torch.fx


class Ref(NamedTuple):
    """A tensor of the graph, by number."""

    number: int


_METHODS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def export(nodes: Any, inputs: Any, outputs: Any, fakes: Any) -> torch.fx.GraphModule:
    graph = torch.fx.Graph()
    env: dict[int, torch.fx.Node] = {}

    def place(number: int, source: str, fake: Any, real: Any) -> None:
        name = re.sub(r"\W+", "_", source).strip("_").lower() or "x"
        node = graph.placeholder(name)
        node.meta["example_value"] = fake
        env[number] = node

    for number, source, fake, real in inputs:
        place(number, source, fake, real)

    def convert(arg: Any) -> Any:
        if isinstance(arg, Ref):
            return env[arg.number]
        if type(arg) in (tuple, list):
            return type(arg)(convert(item) for item in arg)
        if isinstance(arg, slice):
            return slice(convert(arg.start), convert(arg.stop), convert(arg.step))
        if type(arg) is dict:
            return {key: convert(value) for key, value in arg.items()}
        return arg

    def bind(out: Any, node: torch.fx.Node) -> None:
        if isinstance(out, int):
            if out not in env:
                env[out] = node
                node.meta["example_value"] = fakes[out]
        elif isinstance(out, list):
            for index, item in enumerate(out):
                if item is not None and not (isinstance(item, list) and not item):
                    bind(item, graph.call_function(_getitem, (node, index)))

    for callable, args, kwargs, out, trace in nodes:
        args, kwargs = convert(args), convert(kwargs)
        if isinstance(callable, _METHODS) or (
            isinstance(callable, types.FunctionType) and callable.__module__ == "torch._tensor"
        ):
            node = graph.call_method(callable.__name__, args, kwargs)
        else:
            node = graph.call_function(callable, args, kwargs)
        node.stack_trace = trace
        bind(out, node)
    graph.output(tuple(env[number] for number in outputs))
    return torch.fx.GraphModule(torch.nn.Module(), graph)


_getitem = __import__("operator").getitem
