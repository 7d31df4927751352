"""Writes code objects as text, for the decoder's tests.

    python dump_code.py stdlib              every code object of this interpreter's standard library
    python dump_code.py file PATH           every code object of one source file, with its names

One line per code object, fields separated by tabs:

    code  VERSION  WHERE  argcount posonly kwonly flags stacksize firstlineno  kinds  code  exceptions  lines
          positions  jumps

Bytes are hexadecimal. `positions` is the run-length coded answer of `co_positions()`, one entry per code word:
`count:line:end_line:column:end_column`, with `-` for None. `jumps` are the code words `dis` finds jumped to or
used as handlers. With `file`, lines `locals`, `names`, `consts` with one tab-separated field per entry come
before each `code` line.
"""

import dis
import itertools
import os
import sys
import sysconfig
import types
import warnings

CO_FAST_LOCAL, CO_FAST_CELL, CO_FAST_FREE = 0x20, 0x40, 0x80


def localsplus(code):
    """The names and kinds of the slots (the kinds that can be told from Python)."""
    slots = [
        (name, CO_FAST_LOCAL | (CO_FAST_CELL if name in code.co_cellvars else 0)) for name in code.co_varnames
    ]
    slots += [(name, CO_FAST_CELL) for name in code.co_cellvars if name not in code.co_varnames]
    slots += [(name, CO_FAST_FREE) for name in code.co_freevars]
    return [name for name, _ in slots], bytes(kind for _, kind in slots)


def positions(code):
    runs = []
    for position, group in itertools.groupby(code.co_positions()):
        fields = ("-" if field is None else str(field) for field in position)
        runs.append(f"{sum(1 for _ in group)}:{':'.join(fields)}")
    return ",".join(runs)


def code_objects(code):
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from code_objects(constant)


def short(constant):
    if isinstance(constant, types.CodeType):
        return f"<code {constant.co_qualname}>"
    if isinstance(constant, frozenset):
        return f"frozenset({sorted(constant, key=repr)!r})"
    return repr(constant)


def write(code, where, out, with_names=False):
    names, kinds = localsplus(code)
    if with_names:
        for kind, entries in (
            ("locals", names),
            ("names", code.co_names),
            ("consts", map(short, code.co_consts)),
        ):
            print(kind, *(entry.replace("\t", "\\t") for entry in entries), sep="\t", file=out)
    handlers = {entry.target for entry in dis._parse_exception_table(code)}
    jumps = sorted({offset // 2 for offset in dis.findlabels(code.co_code)} | {h // 2 for h in handlers})
    print(
        "code",
        f"{sys.version_info.major}.{sys.version_info.minor}",
        where,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
        code.co_stacksize,
        code.co_firstlineno,
        kinds.hex(),
        code.co_code.hex(),
        code.co_exceptiontable.hex(),
        code.co_linetable.hex(),
        positions(code),
        ",".join(map(str, jumps)),
        sep="\t",
        file=out,
    )


def compile_file(path):
    with open(path, "rb") as file:
        source = file.read()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return compile(source, path, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError):
        return None  # the test suite contains files that are wrong on purpose


def stdlib_files():
    root = sysconfig.get_path("stdlib")
    for directory, children, files in os.walk(root):
        children[:] = sorted(c for c in children if c not in ("site-packages", "__pycache__"))
        for file in sorted(files):
            if file.endswith(".py"):
                path = os.path.join(directory, file)
                yield path, os.path.relpath(path, root)


def main(arguments):
    out = open(1, "w", encoding="utf-8", errors="backslashreplace", newline="\n", closefd=False)
    match arguments:
        case ["stdlib"]:
            for path, name in stdlib_files():
                module = compile_file(path)
                for code in code_objects(module) if module else ():
                    write(code, f"{name}:{code.co_qualname}:{code.co_firstlineno}", out)
        case ["file", path]:
            module = compile_file(path)
            if module is None:
                sys.exit(f"{path} does not compile")
            for code in code_objects(module):
                write(code, code.co_qualname, out, with_names=True)
        case _:
            sys.exit(__doc__)
    out.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
