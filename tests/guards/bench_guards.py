"""Nanoseconds of guarding: run by `run.sh PYTHON --bench`."""

import sys

import torch
import torch.nn as nn
from harness import Sources, anything, stress
from torch_guards import module_guards


def bench(name, guards, inputs, locals_):
    program = stress.Program(guards, inputs)
    for _ in range(5):
        assert isinstance(program.run(locals_, anything), list), program.explain(locals_, anything)
    ns = program.bench(locals_, anything)
    print(f"{name:<46} {ns:10.1f} ns  {len(guards):6} guards {len(inputs):6} inputs  sections {program.counts()[:2]}")
    return ns


def main():
    print("CPython %d.%d, torch %s" % (*sys.version_info[:2], torch.__version__))
    s = Sources()
    x = s.local(0)
    t = torch.empty(8, 4)
    bench("global state alone", [("GlobalState", x)], [], [])
    bench("one tensor", [("Tensor", x, t)], [x], [t])
    bench("one tensor, requires grad", [("Tensor", x, t.clone().requires_grad_())], [x], [t.clone().requires_grad_()])
    bench("two tensors and an int", [("Tensor", x, t), ("Tensor", s.local(1), t), ("Equals", s.local(2), 3)], [x, s.local(1)], [t, t, 3])
    for n in (20, 100, 1000):
        tensors = [torch.empty(8, 4) for _ in range(n)]
        sources = [s.local(i) for i in range(n)]
        bench(f"{n} tensors as arguments", [("Tensor", v, t) for v in sources], sources, tensors)
    for n in (1, 20, 100, 1000):
        for what, make in (
            ("Linear", lambda: nn.Linear(4, 4)),
            ("Linear without grad", lambda: nn.Linear(4, 4).requires_grad_(False)),
            ("Identity", nn.Identity),
        ):
            model = nn.Sequential(*[make() for _ in range(n)])
            s = Sources()
            inputs = []
            guards = module_guards(s, s.local(0), model, inputs)
            bench(f"Sequential of {n} {what}", guards, inputs, [model])


main()
