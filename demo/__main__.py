"""``python -m demo [--vs-torch]``: a table of what oxyfuel makes of five real models.

Each model is compiled with ``fullgraph=True`` in a process of its own with an empty cache, so "compile"
is a cold first call. Latencies are medians of interleaved warm samples. "error" is the largest distance
from the same model in float64. Exits with 1 when a model failed, broke, or was less accurate than the
rule in ``demo.compare`` allows.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any

from tqdm import tqdm

NAMES = ("torchvision resnet18", "transformers BERT", "transformers GPT-2", "timm ViT", "hand-written GPT")
STAGES = ("importing", "building", "compiling", "measuring")


def run(name: str, compiler: str, seconds: float) -> dict[str, Any]:
    """One worker, with a progress line while it takes longer than a second."""
    with tempfile.TemporaryDirectory() as cache, tempfile.TemporaryFile() as log:
        env = dict(os.environ, OXYFUEL_CACHE_DIR=f"{cache}/oxyfuel", TORCHINDUCTOR_CACHE_DIR=f"{cache}/inductor")
        process = subprocess.Popen(
            [sys.executable, "-m", "demo.worker", name, compiler, str(seconds)],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=env,
        )
        lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()

        def read() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                lines.put(line)
            lines.put(None)

        threading.Thread(target=read, daemon=True).start()
        started, last = time.monotonic(), {}
        with tqdm(total=len(STAGES), leave=False, delay=1, bar_format="{desc} {bar:24} {elapsed}") as bar:
            while True:
                try:
                    line = lines.get(timeout=0.25)
                except queue.Empty:
                    if time.monotonic() - started > 1:
                        bar.refresh()
                    continue
                if line is None:
                    break
                last = json.loads(line)
                if "stage" in last:
                    bar.set_description_str(f"{name} ({compiler}): {last['stage']}", refresh=False)
                    bar.update(STAGES.index(last["stage"]) - bar.n)
        status = process.wait()
        if "result" in last:
            return last["result"]
        log.seek(0)
        tail = log.read().decode(errors="replace").strip().splitlines()[-30:]
        return {"failure": last.get("failure") or f"the process ended with status {status}", "log": tail}


def cell(value: Any, form: str = "{}") -> str:
    return "-" if value is None else form.format(value)


def row(name: str, ours: dict[str, Any], torchs: dict[str, Any] | None) -> list[str]:
    if "failure" in ours:
        cells = [name, "failed"] + [""] * 9
    else:
        cells = [
            name,
            cell(ours["operators"]),
            cell(ours["graphs"]),
            cell(ours["breaks"]),
            cell(ours["kernels"]),
            cell(ours["compile_s"], "{:.2f} s"),
            cell(ours["eager_s"] * 1e3, "{:.2f} ms"),
            cell(ours["compiled_s"] * 1e3, "{:.2f} ms"),
            cell(ours["eager_s"] / ours["compiled_s"], "{:.2f}x"),
            cell(ours["error"], "{:.1e}") + ("" if ours["allowed"] else " !"),
            cell(ours["eager_error"], "{:.1e}"),
        ]
    if torchs is not None:
        if "failure" in torchs:
            cells += ["failed", "", "", ""]
        else:
            cells += [
                cell(torchs["compile_s"], "{:.2f} s"),
                cell(torchs["compiled_s"] * 1e3, "{:.2f} ms"),
                cell(torchs["eager_s"] / torchs["compiled_s"], "{:.2f}x"),
                cell(torchs["error"], "{:.1e}"),
            ]
    return cells


HEAD = ["model", "operators", "graphs", "breaks", "kernels", "compile", "eager", "oxyfuel", "speed", "error", "eager's"]
TORCH_HEAD = ["torch: compile", "latency", "speed", "error"]


def table(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    first, *rest = widths
    return "\n".join(
        "  ".join([line[0].ljust(first), *(text.rjust(width) for text, width in zip(line[1:], rest, strict=True))])
        for line in rows
    )


def is_good(ours: dict[str, Any]) -> bool:
    return "failure" not in ours and ours["allowed"] and ours["graphs"] == 1 and not ours["breaks"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m demo", description=__doc__.splitlines()[0])
    parser.add_argument("--vs-torch", action="store_true", help="torch.compile's columns too")
    parser.add_argument("--only", metavar="TEXT", default="", help="models whose name contains this")
    parser.add_argument("--seconds", type=float, default=3.0, help="of sampling for each model")
    options = parser.parse_args()
    names = [name for name in NAMES if options.only.lower() in name.lower()]
    rows = [HEAD + (TORCH_HEAD if options.vs_torch else [])]
    failures = []
    good = True
    for name in names:
        ours = run(name, "oxyfuel", options.seconds)
        torchs = run(name, "torch", options.seconds) if options.vs_torch else None
        rows.append(row(name, ours, torchs))
        good &= is_good(ours)
        failures += [(name, result) for result in (ours, torchs or {}) if "failure" in result]
    print(table(rows))
    print("compile: cold first call, whole graph. error: largest distance from float64; `!`: more than eager's allows.")
    for name, result in failures:
        print(f"\n{name}: {result['failure']}", *result["log"], sep="\n    ")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
