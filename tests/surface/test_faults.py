"""Errors of the user's are the user's; a fault of the engine's ends in eager execution and one log line."""

import logging
import sys
import traceback

import pytest
import torch

import oxyfuel

X = torch.ones(4)


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append(record.getMessage())


@pytest.fixture
def log():
    handler = Records()
    logging.getLogger("oxyfuel").addHandler(handler)
    yield handler.lines
    logging.getLogger("oxyfuel").removeHandler(handler)


def divide(x, n):
    y = x + 1
    z = 10 // n
    return y * z


def outer(x, n):
    x = x * 2
    return divide(x, n)


def test_an_exception_has_the_users_traceback():
    compiled = oxyfuel.compile(outer)
    torch.testing.assert_close(compiled(X, 5), outer(X, 5))
    for call in (compiled, outer):
        with pytest.raises(ZeroDivisionError) as caught:
            call(X, 0)
        frames = [frame for frame in traceback.extract_tb(caught.value.__traceback__) if frame.filename == __file__]
        assert [(frame.name, frame.line) for frame in frames[-2:]] == [
            ("outer", "return divide(x, n)"),
            ("divide", "z = 10 // n"),
        ]


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_panic_ends_in_eager_execution_and_one_line(log, fullgraph):
    compiled = oxyfuel.compile(lambda x: x * 2 + 1, fullgraph=fullgraph)
    with oxyfuel.config.patch(inject_panic="trace"):
        for _ in range(3):
            torch.testing.assert_close(compiled(X), X * 2 + 1)
    assert len(log) == 1 and "oxyfuel" in log[0]


def test_a_panic_is_an_error_when_strict():
    compiled = oxyfuel.compile(lambda x: x * 2 + 1)
    with oxyfuel.config.patch(inject_panic="trace", strict=True), pytest.raises(SystemError, match="oxyfuel"):
        compiled(X)


def resident_kib():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


def test_calls_leak_nothing():
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    compiled = oxyfuel.compile(model, fullgraph=True)
    chain = oxyfuel.compile(lambda x, scale: torch.relu(x * scale + 1), fullgraph=True)
    scale = 3.5

    def calls(count):
        for _ in range(count):
            chain(X, scale)
            compiled(X)

    with torch.no_grad():
        calls(5_000)
        watched = [X, model, model[0].weight, scale, None, True, type(model)]
        before, memory = [sys.getrefcount(each) for each in watched], resident_kib()
        calls(50_000)
        after = [sys.getrefcount(each) for each in watched]
    assert all(abs(b - a) < 50 for a, b in zip(before, after, strict=True)), (before, after)
    assert resident_kib() - memory < 4096
