"""``python -m oxyfuel run script.py [args]``: run a program with ``torch.compile`` taken over.

``-m module`` runs a module instead of a file. The program sees its own ``sys.argv``, ``sys.path[0]``
and ``__main__``, as if Python had started it.
"""

from __future__ import annotations

import argparse
import os
import runpy
import sys


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m oxyfuel", description="torch.compile, rebuilt in Rust.")
    parser.add_argument("--version", action="store_true", help="print the version and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    run = commands.add_parser("run", help="run a program whose torch.compile calls use oxyfuel")
    run.add_argument("-m", dest="module", action="store_true", help="the program is a module name")
    run.add_argument("program", help="a Python file, or a module name with -m")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program finds in sys.argv")
    options = parser.parse_args(argv)

    import oxyfuel

    if options.version:
        print(oxyfuel.__version__)
        return
    if options.command is None:
        parser.error("give a command: run")
    oxyfuel.install()
    if options.module:
        sys.argv = [options.program, *options.arguments]
        runpy.run_module(options.program, run_name="__main__", alter_sys=True)
    else:
        if not os.path.exists(options.program):
            parser.error(f"no such file: {options.program}")
        sys.argv = [options.program, *options.arguments]
        sys.path[0] = os.path.dirname(os.path.abspath(options.program))
        runpy.run_path(options.program, run_name="__main__")


if __name__ == "__main__":
    main()
