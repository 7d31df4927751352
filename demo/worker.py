"""One model and one compiler in a process of its own: ``python -m demo.worker MODEL COMPILER SECONDS``.

Writes JSON lines: ``{"stage": ...}`` as it goes, then one ``{"result": ...}``. What the model or the
compiler prints goes to standard error.
"""

from __future__ import annotations

import gc
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any


def say(stream: Any, **message: Any) -> None:
    print(json.dumps(message), file=stream, flush=True)


def interleaved(eager: Callable[[], Any], compiled: Callable[[], Any], seconds: float) -> tuple[float, float]:
    """Median seconds per call of both, sampled in turns so that noise hits both alike."""
    samples: tuple[list[float], list[float]] = ([], [])
    calls = (eager, compiled)
    end = time.perf_counter() + seconds
    gc.collect()
    gc.disable()
    while time.perf_counter() < end or len(samples[0]) < 10:
        order = (0, 1) if len(samples[0]) % 2 else (1, 0)
        for i in order:
            start = time.perf_counter()
            calls[i]()
            samples[i].append(time.perf_counter() - start)
    gc.enable()
    return statistics.median(samples[0]), statistics.median(samples[1])


def oxyfuel_compiler() -> tuple[Callable[..., Any], Callable[[], dict[str, Any]]]:
    import oxyfuel

    return oxyfuel.compile, oxyfuel.stats


def torch_compiler() -> tuple[Callable[..., Any], Callable[[], dict[str, Any]]]:
    import torch
    from torch._dynamo.utils import counters

    def stats() -> dict[str, Any]:
        return {
            "graphs": counters["stats"]["unique_graphs"],
            "graph_breaks": sum(counters["graph_break"].values()),
            "operators": counters["stats"]["calls_captured"],
        }

    return torch.compile, stats


def measure(name: str, compiler: str, seconds: float, stage: Callable[[str], None]) -> dict[str, Any]:
    stage("importing")
    import torch

    from demo.compare import errors, in_float64
    from demo.models import build

    compile, stats = {"oxyfuel": oxyfuel_compiler, "torch": torch_compiler}[compiler]()
    stage("building")
    module, args, kwargs = build(name)
    with torch.no_grad():
        eager = module(*args, **kwargs)
        reference = in_float64(module, args, kwargs)
        stage("compiling")
        start = time.perf_counter()
        compiled = compile(module, fullgraph=True)
        result = compiled(*args, **kwargs)
        compile_s = time.perf_counter() - start
        found = errors(result, eager, reference)
        stage("measuring")
        for _ in range(3):
            compiled(*args, **kwargs)
            module(*args, **kwargs)
        eager_s, compiled_s = interleaved(
            lambda: module(*args, **kwargs), lambda: compiled(*args, **kwargs), seconds
        )
    counts = stats()
    return {
        "operators": counts.get("operators"),
        "graphs": counts.get("graphs"),
        "breaks": counts.get("graph_breaks"),
        "kernels": counts.get("kernels"),
        "compile_s": compile_s,
        "eager_s": eager_s,
        "compiled_s": compiled_s,
        "error": found.compiled,
        "eager_error": found.eager,
        "allowed": found.allowed,
    }


def main() -> None:
    name, compiler, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
    stream = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        say(stream, result=measure(name, compiler, seconds, lambda stage: say(stream, stage=stage)))
    except Exception as error:
        traceback.print_exc()
        first = (str(error).strip().splitlines() or [""])[0]
        say(stream, failure=f"{type(error).__name__}: {first}")


if __name__ == "__main__":
    main()
