"""Runs the corpus plainly, by steps, and left to the interpreter at each possible point, and compares everything.

    python test_stress.py [substring of a case's name]

Needs the extension module of `run.sh` and nothing else; pytest may collect it too.
"""

import contextlib
import gc
import io
import os
import sys
import threading
import time
import types
import weakref

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
for directory in filter(None, os.environ.get("OXY_FRAMES_STRESS", "").split(os.pathsep)):
    sys.path.insert(0, directory)

import oxy_frames_stress as stress

import corpus

if sys.version_info >= (3, 12):
    import corpus_312
    MODULES = (corpus, corpus_312)
else:
    MODULES = (corpus,)

FILES = {module.__file__ for module in MODULES}


class Holder:
    """Something with a `__code__`, for marking code objects that have no function yet."""

    def __init__(self, code):
        self.__code__ = code


def mark_code(code):
    stress.mark(Holder(code))
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            mark_code(constant)


def mark_module(module):
    def visit(value):
        if isinstance(value, types.FunctionType) and value.__code__.co_filename == module.__file__:
            mark_code(value.__code__)
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for member in vars(value).values():
                visit(member)

    for value in list(vars(module).values()):
        visit(value)


def describe(value):
    """A comparable text of a result, without addresses."""
    if isinstance(value, (list, tuple)):
        return type(value).__name__ + "(" + ", ".join(map(describe, value)) + ")"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{describe(k)}: {describe(v)}" for k, v in value.items()) + "}"
    text = repr(value)
    return type(value).__name__ if " at 0x" in text else f"{type(value).__name__}:{text}"


def describe_exception(error, depth=0):
    if error is None or depth > 4:
        return None
    places = []
    tb = error.__traceback__
    while tb is not None:
        if tb.tb_frame.f_code.co_filename in FILES:
            code = tb.tb_frame.f_code
            # Not `tb_lasti` itself: an inlined call leaves it at the last word of the same instruction.
            position = list(code.co_positions())[tb.tb_lasti // 2]
            places.append((code.co_name, tb.tb_lineno, position))
        tb = tb.tb_next
    nested = [describe_exception(e, depth + 1) for e in getattr(error, "exceptions", ())]
    return (
        type(error).__name__, str(error), describe(error.args), places, nested, error.__suppress_context__,
        describe_exception(error.__cause__, depth + 1), describe_exception(error.__context__, depth + 1),
    )


def observe(function, factories, run):
    """Everything a run does that can be compared, and what it leaks."""
    arguments = tuple(factory() for factory in factories)
    counts = [sys.getrefcount(a) for a in arguments]
    compare = getattr(function, "compare", lambda result: result)
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        try:
            result = run(function, arguments)
            outcome = "returned", describe(compare(result))
            del result
        except Exception as error:
            outcome = "raised", describe_exception(error)
    gc.collect(0)
    leaks = [sys.getrefcount(a) - c for a, c in zip(arguments, counts) if not isinstance(a, (int, str, bool, float))]
    tokens = [weakref.ref(a) for a in arguments if isinstance(a, corpus.Token)]
    del arguments
    gc.collect()
    return outcome, output.getvalue(), leaks, [token() is None for token in tokens], repr(sys.exc_info())


def plain(function, arguments):
    return function(*arguments)


def stepped(function, arguments):
    return stress.run_stepped(function, arguments, None)


def raising(function, arguments):
    return stress.run_raising(function, arguments, None)


def leaving(steps):
    return lambda function, arguments: stress.run_leaving(function, arguments, None, steps)


class Failure(Exception):
    pass


def check_same(name, how, expected, got):
    if expected != got:
        raise Failure(f"{name}, {how}:\n  expected {expected}\n  got      {got}")


def run_case(function, factories, count):
    name = function.__name__
    expected = observe(function, factories, plain)
    check_same(name, "plainly again", expected, observe(function, factories, plain))
    stress.reset_counts()
    check_same(name, "stepped", expected, observe(function, factories, stepped))
    if stress.reset_counts()[0] == 0:
        raise Failure(f"{name}: not a single step was made")
    check_same(name, "raising", expected, observe(function, factories, raising))
    steps = 0
    while count is None or steps < count:
        check_same(name, f"leaving after {steps} steps", expected, observe(function, factories, leaving(steps)))
        if stress.steps_of_first() < steps:
            break
        steps += 1
    check_growth(name, function, factories)
    return steps


def growth(function, factories, run):
    """What 20 runs leave behind: objects and memory blocks."""
    def once():
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                run(function, tuple(factory() for factory in factories))
            except Exception:
                pass

    for _ in range(3):
        once()
    gc.collect()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    for _ in range(20):
        once()
    gc.collect()
    return len(gc.get_objects()) - objects, sys.getallocatedblocks() - blocks


def check_growth(name, function, factories):
    """Repeats runs of each kind and looks at what the process holds on to beyond what plain runs make it hold."""
    objects, blocks = growth(function, factories, plain)
    for how, run in (("stepped", stepped), ("raising", raising), ("leaving", leaving(7))):
        more_objects, more_blocks = growth(function, factories, run)
        if more_objects > max(objects, 0) + 10 or more_blocks > max(blocks, 0) + 15:
            raise Failure(
                f"{name}, {how}: 20 runs left {more_objects} objects and {more_blocks} blocks, "
                f"plain ones {objects} and {blocks}"
            )


# ---- things beside the corpus


def check_deep_recursion():
    """Stepped recursion ends where the interpreter's does, and deep data stacks are popped chunk by chunk."""
    def down(n):
        a, b, c, d, e, f, g, h = range(8)
        return 0 if n == 0 else down(n - 1) + 1

    mark_code(down.__code__)
    for _ in range(5):
        assert stress.run_stepped(down, (700,), None) == 700
        assert down(700) == 700

    def forever(n):
        return forever(n + 1)

    mark_code(forever.__code__)
    for _ in range(3):
        try:
            stress.run_stepped(forever, (0,), None)
        except RecursionError:
            pass
        else:
            raise Failure("no RecursionError")


def check_very_deep_recursion():
    """Where the interpreter alone would recurse without limit, so does it under the hook."""
    def stepped_down(n):
        return 0 if n == 0 else stepped_down(n - 1) + 1

    def skipped_down(n):
        return 0 if n == 0 else skipped_down(n - 1) + 1

    def unmarked_down(n):
        return 0 if n == 0 else unmarked_down(n - 1) + 1

    mark_code(stepped_down.__code__)
    stress.mark_skip(skipped_down)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)
    try:
        for function in (stepped_down, skipped_down, unmarked_down):
            assert stress.run_stepped(function, (30_000,), None) == 30_000
    finally:
        sys.setrecursionlimit(limit)
    stress.reset_counts()
    stress.run_stepped(stepped_down, (3,), None)
    assert stress.reset_counts()[0] > 0, "the hook is back"


def check_threads():
    """Several threads step at once, and the hook passes the frames of those that don't."""
    def work(n):
        t = 0
        for i in range(n):
            t += len([i])
        return t

    def spin(n):
        t = 0
        for i in range(n):
            t += 1
        return t

    mark_code(work.__code__)
    results = []
    threads = [threading.Thread(target=lambda: results.append(stress.run_stepped(work, (3000,), None))) for _ in range(4)]
    threads += [threading.Thread(target=lambda: results.append(spin(3000))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [3000] * 6, results


def check_other_threads_run():
    """A stepped loop without calls lets other threads run."""
    stop = []

    def wait(stop):
        n = 0
        while not stop:
            n += 1
        return n

    mark_code(wait.__code__)
    timer = threading.Timer(0.05, lambda: stop.append(1))
    timer.start()
    assert stress.run_stepped(wait, (stop,), None) > 0
    timer.join()


def check_signals():
    """A signal handler runs, and may raise, in the middle of a stepped loop."""
    import signal

    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm(frame.f_code.co_name)

    def wait():
        try:
            while True:
                pass
        except Alarm as e:
            return e.args[0]

    mark_code(wait.__code__)
    old = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        assert stress.run_stepped(wait, (), None) == "wait"
    finally:
        signal.signal(signal.SIGALRM, old)


def check_async_exception():
    """An exception that another thread asks for arrives in a stepped loop."""
    import ctypes

    class Stop(Exception):
        pass

    def wait(started):
        started.append(threading.get_ident())
        try:
            while True:
                pass
        except Stop as e:
            return e.__traceback__.tb_next is None

    mark_code(wait.__code__)
    started, results = [], []
    thread = threading.Thread(target=lambda: results.append(stress.run_stepped(wait, (started,), None)))
    thread.start()
    while not started:
        time.sleep(0.001)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(started[0]), ctypes.py_object(Stop))
    thread.join(10)
    assert results == [True], results


def check_collector_runs():
    """Garbage is collected while a loop is stepped."""
    class Node:
        pass

    def make(n):
        for _ in range(n):
            a = Node()
            a.me = a

    mark_code(make.__code__)
    alive = []
    gc.collect()
    before = gc.get_stats()[0]["collections"]
    stress.run_stepped(make, (20000,), None)
    assert gc.get_stats()[0]["collections"] > before, alive


def check_tracing():
    """A traced function is left to the interpreter, with the events it would have had."""
    def f(x):
        y = x + 1
        return y * 2

    mark_code(f.__code__)

    def trace_with(run):
        events = []

        def tracer(frame, event, arg):
            if frame.f_code is f.__code__:
                events.append((event, frame.f_lineno))
            return tracer

        sys.settrace(tracer)
        try:
            run()
        finally:
            sys.settrace(None)
        return events

    expected = trace_with(lambda: f(1))
    assert expected, expected
    assert trace_with(lambda: stress.run_stepped(f, (1,), None)) == expected


def check_tracing_starts_inside():
    """Tracing that starts in the middle is served from the next call on."""
    events = []

    def tracer(frame, event, arg):
        if frame.f_code.co_name in ("later", "starts"):
            events.append((frame.f_code.co_name, event))
        return tracer

    def later():
        return 1

    def starts():
        sys.settrace(tracer)
        r = later()
        sys.settrace(None)
        return r

    mark_code(starts.__code__)
    mark_code(later.__code__)
    starts()
    expected, events = events, []
    assert stress.run_stepped(starts, (), None) == 1
    assert events == expected, (events, expected)


def check_monitoring():
    """Code that a monitoring tool watches is left to the interpreter."""
    if sys.version_info < (3, 12):
        return
    monitoring = sys.monitoring

    def f(x):
        y = x + 1
        return y

    mark_code(f.__code__)
    lines = []
    monitoring.use_tool_id(3, "stress")
    try:
        monitoring.register_callback(3, monitoring.events.LINE, lambda code, line: lines.append(line) if code is f.__code__ else None)
        monitoring.set_events(3, monitoring.events.LINE)
        f(1)
        expected, lines[:] = list(lines), []
        stress.run_stepped(f, (1,), None)
        assert lines == expected and expected, (lines, expected)
    finally:
        monitoring.set_events(3, 0)
        monitoring.free_tool_id(3)
    stress.run_stepped(f, (1,), None)
    stress.reset_counts()
    stress.run_stepped(f, (1,), None)
    assert stress.reset_counts()[0] > 0


def check_panic():
    """A panic before anything was done means plain evaluation; later, an error, and nothing is lost."""
    def f(token):
        x = [token]
        return [x, len(x), token]

    mark_code(f.__code__)
    token = corpus.Token()
    count = sys.getrefcount(token)
    errors = os.dup(2)
    with open(os.devnull, "w") as null:
        os.dup2(null.fileno(), 2)
    try:
        assert stress.run_panicking(f, (token,), 0) == [[token], 1, token]
        for step in range(1, 8):
            try:
                stress.run_panicking(f, (token,), step)
            except SystemError as error:
                assert "panic" in str(error)
            else:
                raise Failure(f"no error for the panic at {step}")
    finally:
        os.dup2(errors, 2)
        os.close(errors)
    assert sys.getrefcount(token) == count


def check_misuse():
    """Every wrong use of a frame is refused, and the frame is none the worse for it."""
    def f(token):
        x = [token]
        return [x, len(x), token]

    mark_code(f.__code__)
    token = corpus.Token()
    count = sys.getrefcount(token)
    for step in range(1, 10):
        try:
            assert stress.run_misusing(f, (token,), step) == [[token], 1, token]
        except SystemError as error:
            assert "can't be entered" in str(error), error
    assert sys.getrefcount(token) == count


# Rows whose only code is generators and coroutines, which are the interpreter's.
SUSPENDING = {
    "before_async_with", "cleanup_throw", "end_async_for", "end_send", "get_aiter", "get_anext", "get_awaitable",
    "get_yield_from_iter", "return_generator", "send", "yield_value",
}

# Rows that other versions' compilers make, or that are only reached by inlined generators.
OF_OTHER_VERSIONS = {
    (3, 11): {
        "binary_slice", "convert_value", "end_for", "load_fast_and_clear", "load_from_dict_or_deref",
        "load_from_dict_or_globals", "load_locals", "load_super_attr", "set_function_attribute", "store_slice", "to_bool",
    },
    (3, 12): {"convert_value", "end_for", "jump_if_or_pop", "load_classderef", "set_function_attribute", "to_bool"},
    (3, 13): {"build_const_key_map", "end_for", "jump_if_or_pop", "load_classderef", "load_closure"},
}


def check_every_instruction():
    """The corpus has every row of the instruction table that this version's compiler makes. (Runs last.)"""
    known, performed = stress.instructions()
    missing = set(known) - set(performed) - SUSPENDING - OF_OTHER_VERSIONS[sys.version_info[:2]]
    assert not missing, sorted(missing)


def check_marks():
    """Marks go away with their code objects, and a skipped function is never stepped."""
    namespace = {}
    exec("def f(x):\n    return x + 1\n", namespace)
    f = namespace["f"]
    # After monitoring was used, the interpreter has to see new code once before it may be stepped through.
    f(1)
    stress.mark(f)
    stress.reset_counts()
    assert stress.run_stepped(f, (1,), None) == 2
    assert stress.reset_counts()[0] > 0
    stress.mark_skip(f)
    assert stress.run_stepped(f, (1,), None) == 2
    assert stress.reset_counts()[0] == 0
    stress.unmark(f)
    assert stress.run_stepped(f, (1,), None) == 2
    assert stress.reset_counts()[0] == 0
    stress.mark(f)
    reference = weakref.ref(f.__code__)
    del f
    namespace.clear()
    gc.collect()
    assert reference() is None


def check_cost_of_unrelated_frames():
    """Prints what the hook costs a frame that nobody wants. Not a test: machines differ."""
    def callee():
        pass

    def loop(n):
        for _ in range(n):
            callee()

    def seconds(run):
        best = 1e9
        for _ in range(5):
            start = time.perf_counter()
            run()
            best = min(best, time.perf_counter() - start)
        return best

    n = 100_000
    base = seconds(lambda: loop(n))
    unwanted = seconds(lambda: stress.run_unwanted(loop, (n,)))
    stress.mark_skip(callee)
    skipped = seconds(lambda: stress.run_hooked(loop, (n,)))
    per_call = [1e9 * (t - base) / n for t in (unwanted, skipped)]
    print(f"hook cost per call beyond an inlined call: {per_call[0]:.0f} ns unwanted, {per_call[1]:.0f} ns skipped")


CHECKS = [
    value
    for name, value in list(globals().items())
    if name.startswith("check_") and value not in (check_same, check_growth)
]


def main(wanted):
    for module in MODULES:
        mark_module(module)
    started, failures, points = time.perf_counter(), [], 0
    for function, factories, count in corpus.CASES:
        if wanted in function.__name__:
            try:
                points += run_case(function, factories, count)
            except Failure as failure:
                failures.append(str(failure))
    for check in CHECKS:
        if wanted in check.__name__:
            try:
                check()
            except Exception as error:
                failures.append(f"{check.__name__}: {type(error).__name__}: {error}")
    for failure in failures:
        print("FAILED", failure)
    version = ".".join(map(str, sys.version_info[:3]))
    print(
        f"{version}: {len(corpus.CASES)} functions, {points} points left at, {len(CHECKS)} other checks, "
        f"{len(failures)} failures, {time.perf_counter() - started:.0f} s"
    )
    return 1 if failures else 0


def test_stress():
    assert main("") == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
