"""Runs scripts in forked children of a process that has torch and oxyfuel imported.

Reads paths from standard input, one a line; answers each with a JSON line: the exit status (negative:
the signal that ended it, 124: out of time) and what the script printed.
"""

import importlib
import json
import os
import runpy
import signal
import sys
import tempfile
import time
import traceback


def child(script, output):
    os.dup2(output, 1)
    os.dup2(output, 2)
    status = 0
    try:
        sys.argv = [script]
        runpy.run_path(script, run_name="__main__")
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException as error:
        if sys.excepthook is sys.__excepthook__:
            traceback.print_exc()
        else:
            sys.excepthook(type(error), error, error.__traceback__)
        status = 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def wait(pid, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return 124


def main():
    seconds = float(sys.argv[1])
    sys.path.insert(0, os.getcwd())
    importlib.import_module("torch")
    if os.environ.get("CONFORMANCE_IMPL", "oxyfuel") == "oxyfuel":
        importlib.import_module("oxyfuel")
    while script := sys.stdin.readline().strip():
        with tempfile.TemporaryFile() as output:
            sys.stdout.flush()
            pid = os.fork()
            if pid == 0:
                child(script, output.fileno())
            status = wait(pid, seconds)
            output.seek(0)
            text = output.read().decode(errors="replace")
        print(json.dumps({"status": status, "output": text}), flush=True)


if __name__ == "__main__":
    main()
