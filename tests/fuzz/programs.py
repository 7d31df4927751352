"""Random Python programs over tensors, containers, control flow, exceptions and output.

``source(seed)`` gives the text of a function ``program(a, b, n, items, table, out)``; the same seed gives the same text.
Programs terminate, and raise only exceptions of Python's own.
"""

from __future__ import annotations

import random

UNARY = [
    "torch.relu({})",
    "torch.sin({})",
    "({} * 2)",
    "-{}",
    "{}.abs()",
    "{}.clone()",
    "{}.sum(0, keepdim=True).expand(4)",
]
BINARY = ["({} + {})", "({} * {})", "({} - {})", "torch.maximum({}, {})", "torch.where({0} > {1}, {0}, {1})"]


class Writer:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.lines: list[str] = []
        self.tensors = ["a", "b"]
        self.ints = ["n"]
        self.depth = 1
        self.count = 0

    def say(self, text: str) -> None:
        self.lines.append("    " * self.depth + text)

    def fresh(self, prefix: str) -> str:
        self.count += 1
        return f"{prefix}{self.count}"

    def tensor(self) -> str:
        kind = self.random.random()
        if kind < 0.4:
            return self.random.choice(self.tensors)
        if kind < 0.7:
            return self.random.choice(UNARY).format(self.random.choice(self.tensors))
        return self.random.choice(BINARY).format(self.random.choice(self.tensors), self.random.choice(self.tensors))

    def integer(self) -> str:
        x = self.random.choice(self.ints)
        return self.random.choice(
            [x, str(self.random.randint(0, 3)), f"({x} + 1)", f"({x} * 2 % 5)", "len(items)", "a.dim()"]
        )

    def block(self, size: int) -> None:
        tensors, ints = list(self.tensors), list(self.ints)
        self.depth += 1
        for _ in range(size):
            self.statement()
        self.depth -= 1
        # names bound inside may be unbound after
        self.tensors, self.ints = tensors, ints

    def statement(self) -> None:
        kinds = [
            self.assign_tensor,
            self.assign_tensor,
            self.assign_int,
            self.in_place,
            self.append,
            self.store,
            self.say_out,
            self.branch,
            self.loop,
            self.attempt,
            self.call,
            self.comprehension,
            self.unpack,
            self.use_item,
            self.text,
            self.while_loop,
            self.closure,
            self.view,
            self.raise_caught,
            self.delete,
            self.manager,
        ]
        if self.depth > 3:
            kinds = kinds[:7]
        self.random.choice(kinds)()

    def assign_tensor(self) -> None:
        value, name = self.tensor(), self.fresh("t")
        self.say(f"{name} = {value}")
        self.tensors.append(name)

    def assign_int(self) -> None:
        value, name = self.integer(), self.fresh("i")
        self.say(f"{name} = {value}")
        self.ints.append(name)

    def in_place(self) -> None:
        target = self.random.choice(self.tensors)
        self.say(
            self.random.choice(
                [
                    f"{target} += 1",
                    f"{target} = {target} * 0.5",
                    f"{target}.add_({self.tensor()})" if target == "a" else f"{target} = {target} + 1",
                ]
            )
        )

    def append(self) -> None:
        self.say(
            self.random.choice(
                [
                    f"items.append({self.tensor()})",
                    f"items.append({self.integer()})",
                    f"items.insert(0, {self.integer()})",
                    "items.reverse()",
                ]
            )
        )

    def store(self) -> None:
        key = self.random.choice(["'x'", "'y'", self.integer()])
        self.say(
            self.random.choice(
                [
                    f"table[{key}] = {self.tensor()}",
                    f"table[{key}] = {self.integer()}",
                    f"table.pop({key}, None)",
                    f"table.setdefault({key}, {self.integer()})",
                ]
            )
        )

    def say_out(self) -> None:
        self.say(f"print({self.integer()}, sorted(map(str, table)), len(items), file=out)")

    def branch(self) -> None:
        condition = self.random.choice(
            [
                f"{self.integer()} > {self.integer()}",
                "'x' in table",
                f"{self.random.choice(self.tensors)}.sum() > 0",
                f"{self.integer()}",
            ]
        )
        self.say(f"if {condition}:")
        self.block(2)
        if self.random.random() < 0.5:
            self.say("else:")
            self.block(1)

    def loop(self) -> None:
        name = self.fresh("k")
        over = self.random.choice(
            [f"range({self.integer()})", "list(table)", "enumerate(items[:2])", "zip(items[:2], range(3))"]
        )
        self.say(f"for {name} in {over}:")
        self.block(2)
        if self.random.random() < 0.3:
            self.say("else:")
            self.block(1)

    def while_loop(self) -> None:
        name = self.fresh("w")
        self.say(f"{name} = 0")
        self.say(f"while {name} < 2:")
        self.depth += 1
        self.say(f"{name} += 1")
        self.depth -= 1
        self.block(1)

    def attempt(self) -> None:
        self.say("try:")
        self.depth += 1
        self.say(
            self.random.choice(
                [
                    f"_ = table[{self.integer()}]",
                    "_ = items[7]",
                    f"_ = 1 // ({self.integer()} - 1)",
                    "_ = int('q')",
                    f"_ = {self.tensor()}",
                ]
            )
        )
        self.depth -= 1
        self.block(1)
        self.say("except (KeyError, IndexError, ZeroDivisionError, ValueError) as error:")
        self.depth += 1
        self.say("print(type(error).__name__, error.args, file=out)")
        self.depth -= 1
        if self.random.random() < 0.4:
            self.say("finally:")
            self.block(1)

    def raise_caught(self) -> None:
        self.say("try:")
        self.depth += 1
        self.say(f"if {self.integer()} > 1: raise ValueError('v', {self.integer()})")
        self.say("print('kept', file=out)")
        self.depth -= 1
        self.say("except ValueError as error:")
        self.depth += 1
        self.say("table['error'] = error.args[1]")
        self.depth -= 1

    def call(self) -> None:
        name = self.fresh("t")
        self.say(
            self.random.choice(
                [
                    f"{name} = helper({self.tensor()}, {self.integer()})",
                    f"{name} = helper({self.tensor()}, k={self.integer()})",
                    f"{name} = noisy({self.tensor()}, out)",
                ]
            )
        )
        self.tensors.append(name)

    def comprehension(self) -> None:
        name = self.fresh("t")
        self.say(f"{name} = sum([q * j for j, q in enumerate([{self.tensor()}, {self.tensor()}])])")
        self.tensors.append(name)

    def unpack(self) -> None:
        x, y = self.fresh("t"), self.fresh("i")
        self.say(f"{x}, ({y}, *_) = {self.tensor()}, ({self.integer()}, 5, 6)")
        self.tensors.append(x)
        self.ints.append(y)

    def use_item(self) -> None:
        name = self.fresh("t")
        self.say(f"{name} = items[0] if items and isinstance(items[0], torch.Tensor) else {self.tensor()}")
        self.tensors.append(name)

    def text(self) -> None:
        self.say(f"table['text'] = f'{{{self.integer()}}}-{{a.shape}}'")

    def closure(self) -> None:
        name, result = self.fresh("f"), self.fresh("t")
        self.say(f"def {name}(z, *rest):")
        self.depth += 1
        self.say("nonlocal n")
        self.say("n = n + 1")
        self.say(f"return z + len(rest) + {self.random.choice(self.tensors)}")
        self.depth -= 1
        self.say(f"{result} = {name}({self.tensor()}, 1, 2)")
        self.tensors.append(result)

    def view(self) -> None:
        name = self.fresh("t")
        self.say(f"{name} = {self.random.choice(self.tensors)}.view(2, 2).t().reshape(4)")
        self.tensors.append(name)

    def delete(self) -> None:
        self.say("if 'y' in table: del table['y']")

    def manager(self) -> None:
        self.say(self.random.choice(["with torch.no_grad():", "with Noting(out) as noting:"]))
        self.block(2)


def source(seed: int) -> str:
    writer = Writer(seed)
    writer.lines.append("def make(n):")
    writer.say("def program(a, b, items, table, out):")
    writer.depth += 1
    writer.say("nonlocal n")
    for _ in range(writer.random.randint(3, 9)):
        writer.statement()
    writer.say(f"return {writer.tensor()}, {writer.integer()}, items, [{writer.tensor()}]")
    writer.depth -= 1
    writer.say("return program")
    return "\n".join(writer.lines) + "\n"
