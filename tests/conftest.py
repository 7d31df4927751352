"""Expected failures: one file for each test that is known to fail.

``tests/expected_failures/<suite>/<test>`` holds the reason. A listed test that fails, or that brings its
worker process down, counts as an expected failure; a listed test that passes fails the run until its
file is deleted. A reason that begins with ``[3.12, 3.13]`` holds on those versions of Python only.
``scripts/bless_expected_failures.py`` writes and deletes the files.
"""

import hashlib
import json
import os
import re
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
EXPECTED = TESTS / "expected_failures"
PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"
SUITES = ("conformance/tracing", "cases", "surface", "models", "capture", "trace", "numerics", "fuzz")


def pytest_addoption(parser):
    parser.addoption("--section", default=None, help="conformance: only tests whose section contains this text")


def expectation_file(nodeid):
    """The file that lists ``nodeid`` (``tests/<suite>/<file>::<test>``) as an expected failure."""
    suite = next((s for s in SUITES if nodeid.startswith(f"tests/{s}/")), None)
    if suite is None:
        return None
    rest = nodeid[len(f"tests/{suite}/") :].replace(".py::", ".", 1).replace("::", ".")
    name = re.sub(r"[^A-Za-z0-9_.=-]+", "_", rest).rstrip("_")
    if name != rest.replace("[", "_").replace("]", "") or len(name) > 150:
        # two ids may map to one readable name: tell them apart
        name = f"{name[:140]}.{hashlib.sha1(rest.encode()).hexdigest()[:8]}"
    return EXPECTED / suite / name


def expected_reason(nodeid):
    path = expectation_file(nodeid)
    if os.environ.get("OXY_IGNORE_EXPECTED") or os.environ.get("CONFORMANCE_IMPL", "oxyfuel") != "oxyfuel":
        return None
    if path is None or not path.exists():
        return None
    reason = path.read_text().strip()
    versions = re.match(r"\[(3\.\d+(?:, 3\.\d+)*)\]", reason)
    return reason if versions is None or PYTHON in versions[1].split(", ") else None


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    reason = expected_reason(item.nodeid)
    if reason is None or hasattr(report, "wasxfail"):
        return report
    if report.failed:
        report.outcome, report.wasxfail = "skipped", reason
    elif report.when == "call" and report.passed:
        report.outcome = "failed"
        path = expectation_file(item.nodeid).relative_to(TESTS.parent)
        report.longrepr = f"this test is listed as an expected failure and passes now: delete {path}"
    return report


@pytest.hookimpl(optionalhook=True)
def pytest_handlecrashitem(crashitem, report, sched):
    """A worker process died (a crash, or the watchdog ended it) while running ``crashitem``."""
    reason = expected_reason(crashitem)
    if reason is not None:
        report.outcome, report.wasxfail = "skipped", reason


def _first_line(report):
    if report.when == "???":  # made up by pytest-xdist
        return "the process died while running this test"
    crash = getattr(report.longrepr, "reprcrash", None)
    text = crash.message if crash is not None else str(report.longrepr)
    return next((line.strip() for line in text.splitlines() if line.strip()), "failed")


def pytest_runtest_logreport(report):
    """For the blessing script: one line for each outcome, written by the process that controls the run."""
    path = os.environ.get("OXY_OUTCOMES")
    if path is None or "PYTEST_XDIST_WORKER" in os.environ:
        return
    if report.when == "call" or not report.passed:
        # an expected failure by marker is the test's own business
        outcome = "marked" if hasattr(report, "wasxfail") else report.outcome
        reason = _first_line(report) if report.failed else ""
        with open(path, "a") as file:
            file.write(json.dumps([report.nodeid, outcome, reason]) + "\n")
