"""Captured graphs as ``torch.fx.GraphModule``, for ``backend=`` callables and for running with autograd.

One node per torch callable that the user's program called: methods of tensors are ``call_method`` nodes, all
other callables ``call_function``, with the user's stack trace. Tensors from outside are placeholders, named
after where they come from; parameters and buffers too. Objects that generated code can't spell (generators,
real tensors among the arguments) are attributes of the module.

Promises: calling the module does what the calls did, in their order, in-place changes included; ``example_value``
in a node's ``meta`` is the fake of its result; the module can be copied, printed and transformed, and pickled
when what it refers to can.
"""

from __future__ import annotations

import enum
import keyword
import linecache
import operator
import re
import types
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import torch.fx
from torch import Tensor, nn


class Ref(NamedTuple):
    """A tensor of the graph, by number."""

    number: int


Nodes = Sequence[tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any], Any, str]]
"""(callable, args, kwargs, result, stack trace): the arguments may have ``Ref`` inside, also in containers; the
result is a tensor's number, a list of results, or None for what is not a tensor."""

Inputs = Sequence[tuple[int, str, Any, Any]]
"""(number, source, fake, real tensor)."""


def export(nodes: Nodes, inputs: Inputs, outputs: Sequence[int], fakes: Sequence[Any]) -> torch.fx.GraphModule:
    """The graph as a module from the inputs, in order, to a tuple of the outputs."""
    exporter = _Exporter(fakes)
    for number, source, fake, _ in inputs:
        exporter.input(number, source, fake)
    for fn, args, kwargs, result, trace in nodes:
        exporter.call(fn, args, kwargs, result, trace)
    exporter.graph.output(tuple(exporter.values[number] for number in outputs))
    return torch.fx.GraphModule(exporter.root, exporter.graph)


def run_fx(gm: torch.fx.GraphModule) -> Callable[..., Any]:
    """How a graph runs that no backend compiles: the generated code, without the module call around it."""
    return gm.forward


_FRAME = re.compile(r'\s*File "(.+)", line (\d+), in .+')


def _with_source_lines(trace: str) -> str:
    """A stack trace in which each frame is followed by its line of source, as torch.fx expects it."""
    lines = trace.splitlines()
    out: list[str] = []
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        out.append(line)
        frame = _FRAME.fullmatch(line)
        if frame and (not following.strip() or _FRAME.fullmatch(following)):
            out.append("    " + linecache.getline(frame[1], int(frame[2])).strip())
    return "\n".join(out) + "\n"


class _Exporter:
    def __init__(self, fakes: Sequence[Any]) -> None:
        self.graph = torch.fx.Graph()
        self.root = nn.Module()
        self.values: dict[int, torch.fx.Node] = {}
        self.fakes = fakes
        self.input_names: set[str] = set()
        self.attributes: dict[int, tuple[str, Any]] = {}

    def input(self, number: int, source: str, fake: Any) -> None:
        node = self.graph.placeholder(_unique(input_name(source), self.input_names))
        node.meta["example_value"] = fake
        self.values[number] = node

    def call(self, fn: Callable[..., Any], args: Any, kwargs: Any, result: Any, trace: str | None) -> None:
        args, kwargs = self.argument(tuple(args)), self.argument(dict(kwargs))
        kind, target, args = _target(fn, args)
        node = self.graph.create_node(kind, target, args, kwargs)
        node.stack_trace = _with_source_lines(trace) if trace else None
        self.bind(result, node)

    def bind(self, result: Any, node: torch.fx.Node) -> None:
        """Numbers of the tensors that a node gives. An argument handed back stays the node it was."""
        if isinstance(result, int):
            if result not in self.values:
                self.values[result] = node
                node.meta["example_value"] = self.fakes[result]
        elif isinstance(result, (list, tuple)):
            node.meta["example_value"] = self.example(result)
            for index, item in enumerate(result):
                if _has_tensor(item):
                    getitem = self.graph.call_function(operator.getitem, (node, index))
                    getitem.stack_trace = node.stack_trace
                    self.bind(item, getitem)

    def example(self, result: Any) -> Any:
        if isinstance(result, (list, tuple)):
            return tuple(self.example(item) for item in result)
        return None if result is None else self.fakes[result]

    def argument(self, value: Any) -> Any:
        if isinstance(value, Ref):
            return self.values[value.number]
        kind = type(value)
        if kind in (tuple, list):
            return kind([self.argument(item) for item in value])
        if kind is torch.Size:
            return tuple(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return kind(*map(self.argument, value))
        if kind is slice:
            return slice(self.argument(value.start), self.argument(value.stop), self.argument(value.step))
        if isinstance(value, dict):
            return {key: self.argument(item) for key, item in value.items()}
        if value is None or kind in _SPELLED or isinstance(value, (enum.Enum, torch._ops.OpOverload)):
            return value
        if isinstance(value, type) or (isinstance(value, types.FunctionType) and "<" not in value.__qualname__):
            return value
        return self.attribute(value)

    def attribute(self, value: Any) -> torch.fx.Node:
        known = self.attributes.get(id(value))
        if known is None:
            prefix = "_tensor_constant" if isinstance(value, Tensor) else "_constant"
            known = self.attributes[id(value)] = (f"{prefix}{len(self.attributes)}", value)
            name = known[0]
            if isinstance(value, Tensor) and not isinstance(value, nn.Parameter):
                self.root.register_buffer(name, value, persistent=False)
            else:
                setattr(self.root, name, value)
        return self.graph.create_node("get_attr", known[0])


_SPELLED = {
    bool, int, float, complex, str, bytes, range, type(...), type(NotImplemented), torch.dtype, torch.device,
    torch.layout, torch.memory_format,
}  # fmt: skip
"""Types whose values generated code can spell."""


def _has_tensor(result: Any) -> bool:
    return any(map(_has_tensor, result)) if isinstance(result, (list, tuple)) else result is not None


def _target(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[str, Any, tuple[Any, ...]]:
    """The kind of node that calls ``fn``, its target and its arguments."""
    name = getattr(fn, "__name__", None)
    owner = getattr(fn, "__self__", None)
    if name == "__get__" and isinstance(owner, (types.GetSetDescriptorType, property)) and len(args) in (1, 2):
        attribute = owner.__name__ if isinstance(owner, types.GetSetDescriptorType) else owner.fget.__name__  # type: ignore[union-attr]
        return "call_function", getattr, (args[0], attribute)
    if isinstance(name, str) and args and not isinstance(fn, type) and _is_tensor_method(fn, name):
        return "call_method", name, args
    if name is None or not isinstance(fn, _NAMED):
        return "call_function", _named(fn), args
    return "call_function", fn, args


_NAMED = (
    types.FunctionType,
    types.BuiltinFunctionType,
    type,
    torch._ops.OpOverload,
    torch._ops.OpOverloadPacket,
    torch._ops.HigherOrderOperator,
)
"""Callables that torch.fx knows how to name."""


def _is_tensor_method(fn: Callable[..., Any], name: str) -> bool:
    found = getattr(Tensor, name, None)
    # Methods of the C base class are other objects for each class they are looked up on, with equal descriptors.
    return found is fn or (isinstance(fn, _DESCRIPTORS) and issubclass(Tensor, fn.__objclass__) and found == fn)


_DESCRIPTORS = (types.MethodDescriptorType, types.WrapperDescriptorType)


def _named(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls ``fn``, which has no name that torch.fx could print."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return fn(*args, **kwargs)

    name = getattr(fn, "__name__", None)
    call.__name__ = call.__qualname__ = _identifier(name if isinstance(name, str) else type(fn).__name__)
    return call


def input_name(source: str) -> str:
    """A placeholder's name: ``L['x']`` gives ``l_x_``, as torch names them."""
    return _identifier(source).lower()


def _identifier(text: str) -> str:
    name = re.sub(r"\W+", "_", text, flags=re.ASCII)
    if not name.strip("_") or name[0].isdigit() or keyword.iskeyword(name):
        name = f"x_{name.lstrip('_')}"
    return name


def _unique(name: str, taken: set[str]) -> str:
    unique, n = name, 0
    while unique in taken or keyword.iskeyword(unique):
        n += 1
        unique = f"{name}_{n}" if not name.endswith("_") else f"{name}{n}"
    taken.add(unique)
    return unique
