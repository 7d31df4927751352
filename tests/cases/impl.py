"""Shared helper: picks the compile implementation under test and reports one-line verdicts.

CONFORMANCE_IMPL=oxyfuel   -> oxyfuel.compile    (default)
CONFORMANCE_IMPL=torch     -> torch.compile
CONFORMANCE_IMPL=identity  -> no compilation at all: checks that each case's expectation is eager's own
Exit codes: 0 right, 1 wrong, 2 unexpected exception escaped the case.
"""
import os
import sys
import warnings

import torch

NAME = os.environ.get("CONFORMANCE_IMPL", "oxyfuel")
if NAME == "torch":
    _compile = torch.compile
elif NAME == "oxyfuel":
    import oxyfuel

    _compile = oxyfuel.compile
elif NAME == "identity":
    def _compile(fn, **kw):
        return fn
else:
    raise SystemExit(f"unknown CONFORMANCE_IMPL={NAME!r}")

torch.manual_seed(1234)
warnings.filterwarnings("ignore")


def comp(fn, *, codegen=False, **kw):
    """Compile fn.  codegen=True leaves the implementation's default backend in place."""
    if not codegen:
        kw.setdefault("backend", "eager")
    return _compile(fn, **kw)


def check(cond, msg):
    if not cond:
        print("FAIL: " + " ".join(str(msg).split())[:300])
        sys.stdout.flush()
        os._exit(1) if _threads_alive() else sys.exit(1)


def ok(note=""):
    print("OK" + (": " + note if note else ""))


def outcome(fn, *args, **kwargs):
    """('value', v) or ('raise', exception)"""
    try:
        return "value", fn(*args, **kwargs)
    except Exception as e:  # noqa: BLE001
        return "raise", e


def brief(e):
    if isinstance(e, BaseException):
        first = (str(e).strip().splitlines() or [""])[0]
        return f"{type(e).__name__}({first[:110]})"
    return repr(e)[:140]


def bits(t):
    w = {2: torch.int16, 4: torch.int32, 8: torch.int64}[t.element_size()]
    return t.contiguous().view(w)


class Counter:
    """Backend that runs the captured graph as is and counts how many graphs it was given."""

    def __init__(self):
        self.graphs = 0
        self.calls = 0

    def __call__(self, gm, example_inputs):
        self.graphs += 1

        def run(*a):
            self.calls += 1
            return gm.forward(*a)

        return run


def _threads_alive():
    import threading

    return threading.active_count() > 1


def _hook(tp, val, tb):
    if os.environ.get("CONFORMANCE_TRACE"):
        sys.__excepthook__(tp, val, tb)
    print("FAIL: escaped " + brief(val))
    sys.stdout.flush()
    os._exit(2)


sys.excepthook = _hook
