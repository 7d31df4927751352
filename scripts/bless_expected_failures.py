#!/usr/bin/env python3
"""Runs test suites and makes tests/expected_failures say exactly what fails.

    scripts/bless_expected_failures.py [--only-here] [SUITE...]     default: every suite

Writes a file for each test that fails, deletes the files of tests that pass or are gone, and prints what
it changed, grouped by reason. The reason in a file is the failure's type and first line, or a crash.
A reason that someone wrote by hand stays while the test fails: read the diff before you commit it.
Run it on the main version of Python first; then, for what fails on another version alone, run it there
with --only-here, which adds files that hold on that version only and deletes nothing.
"""

from __future__ import annotations

import argparse
import collections
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
sys.path.insert(0, str(TESTS))


def run(suite: str, workers: int) -> dict[str, tuple[str, str]]:
    """``{nodeid: (outcome, reason)}`` of a run in which expectations are ignored."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "outcomes.jsonl"
        env = dict(os.environ, OXY_IGNORE_EXPECTED="1", OXY_OUTCOMES=str(path))
        command = [sys.executable, "-m", "pytest", f"tests/{suite}", "-n", str(workers), "--max-worker-restart=1000"]
        code = subprocess.run([*command, "--tb=no", "-r", "N"], cwd=ROOT, env=env).returncode
        if code not in (0, 1):
            sys.exit(f"pytest exited with {code}; nothing was blessed")
        outcomes: dict[str, tuple[str, str]] = {}
        for line in path.read_text().splitlines():
            nodeid, outcome, reason = json.loads(line)
            if outcomes.get(nodeid, ("", ""))[0] != "failed":
                outcomes[nodeid] = (outcome, reason)
        return outcomes


def stable(reason: str) -> str:
    """Without addresses, paths of this machine and times, so that blessing twice changes nothing."""
    reason = re.sub(r"0x[0-9a-f]{6,}", "0x…", reason)
    reason = re.sub(r"(?:/[\w.+-]+)+/(?=[\w.+-]+)", "", reason)
    return re.sub(r"\b\d+\.\d+ ?s\b", "… s", reason)[:300]


def main() -> None:
    from conftest import EXPECTED, PYTHON, SUITES, expectation_file

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("suites", nargs="*", choices=[*SUITES, []], default=[], metavar="SUITE")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--only-here", action="store_true", help="add for this version of Python, delete nothing")
    options = parser.parse_args()
    prefix = f"[{PYTHON}] " if options.only_here else ""
    for suite in options.suites or SUITES:
        outcomes = run(suite, options.workers)
        added: dict[str, list[str]] = collections.defaultdict(list)
        failing = set()
        for nodeid, (outcome, reason) in sorted(outcomes.items()):
            if outcome != "failed":
                continue
            path = expectation_file(nodeid)
            failing.add(path)
            if not path.exists():
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(f"{prefix}{stable(reason)}\n")
                added[stable(reason)].append(nodeid)
        listed = {path for path in (EXPECTED / suite).glob("*") if path.is_file()}
        gone = set() if options.only_here else listed - failing
        for path in gone:
            path.unlink()
        for reason, nodeids in sorted(added.items(), key=lambda pair: -len(pair[1])):
            print(f"{len(nodeids):4d}  {reason}")
        passed = sum(outcome == "passed" for outcome, _ in outcomes.values())
        print(f"{suite}: {passed} of {len(outcomes)} pass, {len(failing)} listed "
              f"({sum(map(len, added.values()))} added, {len(gone)} deleted)")


if __name__ == "__main__":
    main()
