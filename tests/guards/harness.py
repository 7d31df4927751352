"""What the guards' tests and benchmark share: the built module, short names for sources, and a runner."""

import os
import sys

sys.path.insert(0, os.environ.get("OXY_GUARDS_STRESS", ""))
import oxy_guards_stress as stress

try:
    import torch
except ImportError:  # The tests of plain Python objects need no torch.
    torch = None

UNBOUND = ...


class Sources:
    """Short names: `s.local(0)`, `s.attr(base, "name")`."""

    def __init__(self):
        self.table = stress.Table()

    def __getattr__(self, name):
        return lambda *fields: self.table.src(name, *fields)

    def local(self, slot):
        return self.table.src("Local", slot)

    def held(self, value):
        return self.table.src("Object", value)

    def attr(self, base, name):
        return self.table.src("InstanceAttr", base, sys.intern(name))

    def item(self, base, key):
        return self.table.src("DictItem", base, key)

    def type_attr(self, base, name):
        return self.table.src("TypeAttr", base, sys.intern(name))


def anything():
    """The entry function where a test doesn't care."""


def passes(program, locals_, function=anything):
    return isinstance(program.run(locals_, function), list)


class Checker:
    """A program on given locals: asserts outcomes and sentences."""

    def __init__(self, guards, inputs=(), exit=None):
        self.program = stress.Program(guards, list(inputs), exit)

    def ok(self, *locals_, function=anything):
        found = self.program.run(list(locals_), function)
        assert isinstance(found, list), self.program.explain(list(locals_), function)
        assert self.program.explain(list(locals_), function) == []
        return found

    def fails(self, *locals_, says=None, function=anything):
        found = self.program.run(list(locals_), function)
        assert not isinstance(found, list), "the guards hold"
        sentences = self.program.explain(list(locals_), function)
        assert sentences, "no reason given"
        if says is not None:
            assert any(says in sentence for sentence in sentences), sentences
        return sentences


def run_tests(namespace):
    """Runs all `test_*` functions whose name contains the argument, if one is given."""
    wanted = sys.argv[1] if len(sys.argv) > 1 else ""
    failed = 0
    count = 0
    for name, test in sorted(namespace.items()):
        if not name.startswith("test_") or wanted not in name:
            continue
        count += 1
        try:
            test()
        except Exception:
            import traceback

            failed += 1
            print(f"FAILED {name}")
            traceback.print_exc()
    version = "%d.%d" % sys.version_info[:2]
    print(f"guards on CPython {version}: {count - failed} of {count} passed")
    sys.exit(1 if failed else 0)
