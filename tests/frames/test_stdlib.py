"""Runs test modules of the standard library with every frame of the thread stepped through.

    python test_stdlib.py [module ...]

A test that fails plainly doesn't count; one that fails only when stepped through does. Slow; `run_stdlib.sh` runs it.
"""

import contextlib
import importlib
import io
import os
import sys
import time
import unittest
import warnings

for directory in filter(None, os.environ.get("OXY_FRAMES_STRESS", "").split(os.pathsep)):
    sys.path.insert(0, directory)

import oxy_frames_stress as stress

# What the language does, as its own tests see it.
MODULES = """
    test_augassign test_baseexception test_binop test_bool test_builtin test_call test_class test_closure
    test_collections test_compare test_complex test_contains test_contextlib test_coroutines test_dataclasses
    test_decorators test_defaultdict test_descr test_dict test_dictcomps test_dictviews test_dynamic
    test_dynamicclassattribute test_enum test_enumerate test_except_star test_exception_group test_exception_hierarchy
    test_exception_variations test_exceptions test_extcall test_finalization test_fstring test_funcattrs test_functools
    test_generator_stop test_generators test_genericclass test_genexps test_global test_grammar test_index
    test_isinstance test_iter test_iterlen test_itertools test_keywordonlyarg test_lambda test_list test_listcomps
    test_longexp test_metaclass test_named_expressions test_opcodes test_operator test_patma test_pep646_syntax
    test_positional_only_arg test_pow test_property test_raise test_range test_richcmp test_scope test_setcomps
    test_slice test_sort test_string test_subclassinit test_super test_traceback test_tuple test_type_aliases
    test_type_params test_typechecks test_unary test_unpack test_unpack_ex test_userdict test_userlist test_weakref
    test_with test_yield_from
""".split()

# Tests of what a frame evaluator changes by its nature, or of the interpreter's internals.
EXPECTED = {
    "test_lru_recursion": "recurses through C until the interpreter's count of C calls is nearly spent",
    "test_recursive_traceback_cpython_internal": "counts the frames of a recursion that ends at a limit",
    "test_recursive_traceback_python": "counts the frames of a recursion that ends at a limit",
}


def load(name):
    try:
        return importlib.import_module(f"test.{name}")
    except (ImportError, unittest.SkipTest):
        return None


def run(module):
    suite = unittest.defaultTestLoader.loadTestsFromModule(module)
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        return unittest.TextTestRunner(stream=io.StringIO(), verbosity=0).run(suite)


def failed(result):
    return {test.id(): text for test, text in result.failures + result.errors}


def main(names):
    os.chdir(os.environ.get("TMPDIR", "/tmp"))
    bad, ran, steps = [], 0, 0
    for name in names:
        module = load(name)
        if module is None:
            continue
        started = time.perf_counter()
        plain = failed(run(module))
        middle = time.perf_counter()
        stress.reset_counts()
        result = stress.run_everything(run, (module,))
        made = stress.reset_counts()[0]
        ran, steps = ran + result.testsRun, steps + made
        new = {
            test: text for test, text in failed(result).items()
            if test not in plain and test.rsplit(".", 1)[-1] not in EXPECTED
        }
        bad += new.items()
        times = f"{middle - started:.1f} s plain, {time.perf_counter() - middle:.1f} s stepped"
        print(f"{name}: {result.testsRun} tests, {made} steps, {times}, {len(new)} new failures", flush=True)
    for test, text in bad:
        print("FAILED", test)
        print(text)
    print(f"{'.'.join(map(str, sys.version_info[:3]))}: {ran} tests, {steps} steps, {len(bad)} fail only when stepped")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or MODULES))
