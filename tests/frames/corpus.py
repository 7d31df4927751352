"""Ordinary Python functions, each of which is run plainly, by single steps, and left to the interpreter anywhere.

A case is a function decorated with `case(*arguments)`: the arguments of a run are made afresh by calling each of
the given factories. Functions are deterministic, clean up after themselves, and return or raise something that can
be compared. Every code object in this file is stepped through, nested ones included.
"""

import contextlib
import functools
import sys
import traceback

CASES = []


def case(*factories, count=None):
    """Registers a case. `count`: how many leaving points to try, for the long ones."""

    def register(function):
        CASES.append((function, factories, count))
        return function

    return register


class Token:
    """An argument whose references can be counted."""

    def __init__(self, name="token"):
        self.name = name

    def __repr__(self):
        return f"Token({self.name})"


class Noisy:
    """Prints when it dies, so that the order of drops is compared too."""

    def __init__(self, name):
        self.name = name

    def __del__(self):
        print("del", self.name)

    def __add__(self, other):
        return Noisy(self.name + other.name)

    def __repr__(self):
        return f"Noisy({self.name})"


# ---- arithmetic, comparison, truth


@case(lambda: 7, lambda: 3)
def arithmetic(a, b):
    c = a + b - 2 * a
    d = a / b, a // b, a % b, a**b, -a, +a, ~a, not a
    e = a << b, a >> 1, a & b, a | b, a ^ b
    return c, d, e


@case(lambda: 7)
def in_place(a):
    b = a
    b += 1
    b -= 2
    b *= 3
    b //= 2
    b %= 7
    b **= 2
    b <<= 3
    b >>= 1
    b |= 5
    b &= 0xFF
    b ^= 3
    x = [1]
    y = x
    x += [2]
    b /= 4
    return b, x, y is x


class Matrix:
    def __init__(self, v):
        self.v = v

    def __matmul__(self, other):
        return self.v * other.v

    def __imatmul__(self, other):
        self.v *= other.v
        return self

    def __rpow__(self, other):
        return ("rpow", other)


@case()
def operator_methods():
    m = Matrix(3)
    r = m @ Matrix(4)
    m @= Matrix(5)
    return r, m.v, 2**m


@case(lambda: 5)
def chained_comparisons(x):
    return 1 < x < 10, 1 < x > 10 < 3, x == 5 != 6, x is x is not None, x in (1, 5) not in [3], 3 >= x <= 2


@case(lambda: Token())
def truth(t):
    r = []
    if not [] and (t or 0):
        r.append(1)
    if [] or None or "":
        r.append(2)
    r.append([] or t)
    r.append(t and 5)
    r.append(0 and t)
    return len(r), r[0], r[2], not t


class BadBool:
    def __bool__(self):
        raise ValueError("no truth")


@case()
def truth_raises():
    b = BadBool()
    try:
        if b:
            return 1
    except ValueError as e:
        first = str(e)
    try:
        return b and 1
    except ValueError as e:
        return first, str(e), (not [b])


@case()
def truth_raises_out():
    while BadBool():
        pass


@case(lambda: 1, lambda: "a")
def type_error_in_add(a, b):
    x = [a]
    return x[0] + b


@case()
def division_by_zero():
    values = [1, 0]
    total = 0
    for v in values:
        total += 10 / v
    return total


@case(lambda: Token("x"), lambda: 4)
def conditional_expression(t, n):
    return t if n > 3 else None, "big" if n > 10 else "small"


# ---- loops


@case(lambda: 5)
def while_else(n):
    r = []
    while n:
        n -= 1
        if n == 2:
            continue
        r.append(n)
    else:
        r.append("else")
    return r


@case(lambda: 5)
def while_break(n):
    while True:
        n -= 1
        if n < 2:
            break
    else:
        return "never"
    return n


@case(lambda: [3, 1, 2])
def for_else(xs):
    for x in xs:
        if x == 9:
            break
    else:
        return "not found"
    return x


@case(lambda: [3, 1, 2], lambda: 1)
def for_break(xs, y):
    for i, x in enumerate(xs):
        for z in range(x):
            if z == y:
                break
        else:
            continue
        return i, x, z
    return None


class CountDown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration("done")
        self.n -= 1
        return self.n


@case(lambda: 4)
def custom_iterator(n):
    return [x * 2 for x in CountDown(n)], sum(CountDown(n)), list(zip(CountDown(3), CountDown(n)))


class BadIterator:
    def __iter__(self):
        return self

    def __next__(self):
        raise KeyError("bad next")


@case()
def iterator_raises():
    for x in BadIterator():
        print(x)


@case(lambda: 5)
def not_iterable(x):
    for y in x:
        print(y)


@case(lambda: 20)
def fibonacci_loop(n):
    a, b = 0, 1
    for _ in range(n):
        a, b = b, a + b
    return a


def recursive_fibonacci(n):
    return n if n < 2 else recursive_fibonacci(n - 1) + recursive_fibonacci(n - 2)


@case(lambda: 6)
def recursion(n):
    return recursive_fibonacci(n)


def runaway(n):
    return runaway(n + 1) + 1


@case(count=20)
def recursion_limit():
    limit = sys.getrecursionlimit()
    frame, depth = sys._getframe(), 0
    while frame is not None:
        frame, depth = frame.f_back, depth + 1
    sys.setrecursionlimit(depth + 60)
    try:
        runaway(0)
    except RecursionError as e:
        return str(e).startswith("maximum recursion depth exceeded")
    finally:
        sys.setrecursionlimit(limit)


# ---- containers, comprehensions, slices, unpacking


@case(lambda: Token("t"))
def displays(t):
    a, b = [t, 1, 2], (t, "x")
    c = {1, 2, 3, t}
    d = {"a": t, "b": 2, t: 3}
    e = {"k1": 1, "k2": t, "k3": 3}
    return a, b, len(c), d["b"], list(e), [], (), {}, set()


@case(lambda: [1, 2], lambda: {"x": 1})
def star_displays(xs, d):
    return [0, *xs, *"ab"], (*xs, 3), {*xs, 5}, {**d, "y": 2, **{"x": 3}}


@case(lambda: 5)
def star_display_error(x):
    return [1, *x]


@case(lambda: 5)
def dict_update_error(x):
    return {"a": 1, **x}


@case(lambda: 4)
def comprehensions(n):
    a = [i * j for i in range(n) for j in range(i) if (i + j) % 2]
    b = {i: str(i) for i in range(n)}
    c = {i % 2 for i in range(n)}
    d = list(x + n for x in a)
    e = [[y for y in range(x)] for x in range(3)]
    return a, b, c, d, e


@case(lambda: 3)
def comprehension_shadows(x):
    before = x
    r = [x for x in range(4) if x]
    return before, x, r


@case(lambda: 3)
def comprehension_raises(n):
    i = "outer"
    try:
        return [10 // (i - 1) for i in range(n)]
    except ZeroDivisionError:
        return i


@case(lambda: 3)
def comprehension_closure(n):
    fs = [lambda: (i, n) for i in range(n)]
    return [f() for f in fs]


@case(lambda: list(range(10)))
def slices(xs):
    ys = xs[:]
    ys[2:4] = ["a"]
    del ys[0]
    del ys[-2:]
    s = slice(1, 3)
    return xs[1:5], xs[::2], xs[-3:], ys, xs[s], xs[5:1:-1], "hello"[1:3]


@case(lambda: {"a": 1})
def slice_errors(d):
    try:
        d["x":"y"]
    except (TypeError, KeyError) as e:
        first = type(e).__name__
    try:
        (1, 2)[0:1] = 5
    except TypeError as e:
        second = str(e)
    return first, second


@case(lambda: Token("u"))
def unpacking(t):
    a, b = t, 2
    (c, d), *e = (a, b), 3, 4
    f, *g, h = range(5)
    *i, j = "xy"
    [k, l] = {1: 2, 3: 4}
    m, *n = [1]
    a, b = b, a
    return a, b, c, d, e, f, g, h, i, j, k, l, m, n


@case(lambda: (1, 2, 3))
def unpack_too_many(t):
    a, b = t
    return a


@case(lambda: iter((1, 2)))
def unpack_too_few(t):
    a, b, c = t
    return a


@case(lambda: [1])
def unpack_star_too_few(t):
    a, *b, c, d = t
    return a


@case(lambda: 3)
def unpack_not_iterable(t):
    a, b = t


@case(lambda: {"a": 1, "b": {"c": [1, 2]}})
def dict_operations(d):
    d["z"] = d.pop("a")
    d["b"]["c"].append(3)
    del d["b"]["c"][0]
    k = sorted(d.items(), key=lambda kv: kv[0])
    m = d | {"q": 1}
    m |= {"r": 2}
    return k, m, "z" in d, "a" not in d, d.get("no"), {**d} == d


@case(lambda: {1, 2, 3})
def set_operations(s):
    s.add(9)
    return sorted(s & {2, 9}), sorted(s | {0}), sorted(s - {1}), sorted(s ^ {1, 7}), s >= {1}


@case(lambda: {})
def missing_key(d):
    x = 1
    return d["missing"] + x


@case(lambda: [1])
def missing_index(xs):
    xs[5] = 2


# ---- strings


class Formatted:
    def __format__(self, spec):
        return f"<{spec}>"

    def __repr__(self):
        return "FÖ"


@case(lambda: 3.14159, lambda: "wörld")
def f_strings(x, s):
    w = 10
    o = Formatted()
    return f"{x:.2f} {s!r} {s!s:>{w}} {o} {o!r} {o!a} {o:abc} {x!r:^12} {{}} {w=} {s}" f"{w}{w}"


@case(lambda: 5)
def format_error(x):
    return f"{x:zz}"


@case(lambda: ["a", "b"])
def string_building(parts):
    s = ""
    for p in parts:
        s += p * 2
    return s + "%s-%d" % (s, len(s)) + "{}".format(parts) + ",".join(parts)


# ---- functions, closures, arguments


@case(lambda: 10)
def closures(n):
    total = 0

    def add(k):
        nonlocal total
        total += k + n
        return total

    def outer():
        def inner():
            return total, n

        return inner

    add(1)
    add(2)
    return add(3), outer()()


@case(lambda: Token("cell"))
def cell_argument(t):
    def get():
        return t

    r = get()
    t = None
    return r, get()


@case()
def unbound_cell():
    def get():
        return later

    try:
        get()
    except NameError as e:
        text = str(e), type(e).__name__
    later = 1
    r = get()
    del later
    try:
        get()
    except NameError as e:
        return text, r, str(e)


@case()
def unbound_own_cell():
    def get():
        return x

    try:
        print(x)
    except UnboundLocalError as e:
        text = str(e)
    x = 1
    del x
    try:
        del x
    except UnboundLocalError as e:
        return text, str(e), get


unbound_own_cell.compare = lambda r: r[:2]


@case(lambda: False)
def unbound_local(flag):
    if flag:
        value = 1
    return value


@case()
def unbound_delete():
    x = 1
    del x
    del x


@case()
def unknown_global():
    return no_such_name_anywhere


@case()
def unknown_global_suggestion():
    try:
        return CASE
    except NameError as e:
        return e.name, str(e)


def takes_all(a, b=2, /, c=3, *args, d, e=5, **kwargs):
    return a, b, c, args, d, e, kwargs


@case(lambda: [1, 2], lambda: {"d": 4, "z": 9})
def calls(xs, kw):
    return (
        takes_all(1, d=4),
        takes_all(1, 2, 3, 4, 5, d=6, q=7),
        takes_all(*xs, **kw),
        takes_all(0, *xs, d=1, **{"w": 2}),
        takes_all(*(i for i in xs), **dict(kw)),
        max(1, 2, key=lambda v: -v),
        print("printed", end="!\n", sep=""),
    )


@case(lambda: 1)
def call_error_missing(x):
    return takes_all(x)


@case(lambda: {"d": 1})
def call_error_twice(kw):
    return takes_all(1, d=2, **kw)


@case(lambda: 5)
def call_error_not_mapping(x):
    return takes_all(1, **x)


@case(lambda: 5)
def call_error_not_iterable(x):
    return takes_all(*x, d=1)


@case()
def call_error_duplicate_merge():
    return takes_all(1, **{"q": 1}, **{"q": 2})


@case(lambda: 5)
def call_not_callable(x):
    return x(1, 2)


@case(lambda: Token("arg"))
def default_arguments(t):
    def f(a=t, *, b: int = 3, c=None) -> str:
        return a, b, c

    return f(), f(1, b=2), f.__defaults__, f.__kwdefaults__, sorted(f.__annotations__), f.__qualname__


@case(lambda: 3)
def lambdas(n):
    f = lambda x, y=n: x * y
    return f(2), (lambda *a, **k: (a, k))(1, z=2), sorted([3, 1, 2], key=lambda v: -v)


def logged(prefix):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            print(prefix, function.__name__, args, sorted(kwargs))
            return function(*args, **kwargs)

        return wrapper

    return decorate


@case(lambda: 2)
def decorators(n):
    @logged("call")
    @logged("inner")
    def f(x, *, y=1):
        return x + y + n

    return f(1), f(1, y=5), f.__name__


@case()
def star_names():
    def f(*args, **kwargs):
        return args, kwargs

    partial = functools.partial(f, 1, a=2)
    return partial(3, b=4)


@case(lambda: [Token("a"), Token("b")])
def many_arguments(ts):
    return max(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20), [*ts], ts


# ---- globals, imports, names

COUNTER = 0


@case()
def global_statement():
    global COUNTER, MADE
    COUNTER += 5
    MADE = COUNTER
    r = MADE
    del MADE
    try:
        del MADE
    except NameError as e:
        text = str(e)
    COUNTER = 0
    return r, text, "MADE" in globals()


@case()
def imports_inside():
    import os.path as p
    import collections.abc
    from math import floor as f, pi
    from os import path

    return p.join("a", "b"), f(pi), path is p, collections.abc.Sized is not None


@case()
def import_error():
    from math import no_such_function_here


@case()
def import_missing_module():
    try:
        import no_such_module_at_all
    except ModuleNotFoundError as e:
        return e.name, str(e)


@case(lambda: Token("kept"))
def attributes(t):
    t.x = 1
    t.y = [2]
    t.x += 5
    t.y[0] *= 3
    del t.x
    try:
        t.x
    except AttributeError as e:
        return str(e), t.y, t.__dict__.pop("y"), e.name


@case(lambda: Token("kept"))
def attribute_missing(t):
    return t.nothing.at_all


@case(lambda: 3)
def attribute_not_settable(x):
    x.value = 1


# ---- classes


@case(lambda: 3)
def classes(n):
    class Base:
        """doc"""

        kind = "base"
        doubled = n * 2

        def __init__(self, x):
            self.x = x

        def get(self):
            return self.x, self.kind

        @property
        def prop(self):
            return self.x * n

        @staticmethod
        def s(a):
            return a

        @classmethod
        def c(cls):
            return cls.__name__

    class Derived(Base, metaclass=type):
        kind = "derived"

        def __init__(self, x):
            super().__init__(x + 1)
            self.y = super().get()

        def get(self):
            return "derived", super().get(), super(Derived, self).prop, __class__.__name__

    d = Derived(n)
    return d.get(), d.y, d.prop, Derived.s(1), d.c(), Base.__doc__, Derived.doubled, Derived.__qualname__


@case()
def class_annotations():
    class A:
        x: int = 1
        y: str

        def f(self) -> int:
            return self.x

    return sorted(A.__annotations__), A().f()


@case(lambda: 4)
def class_scope(n):
    x = "function"

    class A:
        y = n
        z = x
        k = "class"
        v = k, y
        w = [n for _ in range(2)]
        try:
            q = undefined_in_class
        except NameError as e:
            q = str(e)
        del y

    return A.v, A.z, A.w, A.q, hasattr(A, "y")


@case()
def class_scope_errors():
    class A:
        try:
            del nothing
        except NameError as e:
            text = str(e)
        x = 1
        del x
        y = x


@case()
def class_with_keywords():
    class Meta(type):
        def __new__(mcls, name, bases, ns, **kw):
            c = super().__new__(mcls, name, bases, ns)
            c.kw = kw
            return c

        def __init__(cls, name, bases, ns, **kw):
            super().__init__(name, bases, ns)

    class A(metaclass=Meta, flag=1, **{"other": 2}):
        pass

    return A.kw


@case()
def class_body_raises():
    class A:
        x = 1
        y = x / 0

    return A


class Shadow:
    def __init__(self, *args):
        self.args = args

    def method(self, *args):
        return self.args, args


@case()
def super_shadowed():
    super = Shadow

    class A(Shadow):
        def m(self):
            return super(1, 2).method(3)

    return A().m()


@case()
def super_missing():
    class A:
        def m(self):
            return super().nothing

    return A().m()


@case()
def special_methods():
    class Box:
        def __init__(self):
            self.d = {}

        def __getitem__(self, k):
            return self.d[k]

        def __setitem__(self, k, v):
            self.d[k] = v

        def __delitem__(self, k):
            del self.d[k]

        def __len__(self):
            return len(self.d)

        def __contains__(self, k):
            return k == 5

        def __call__(self, *a):
            return a

        def __eq__(self, other):
            return "eq"

        def __getattr__(self, name):
            if name.startswith("dyn"):
                return name
            raise AttributeError(name)

    b = Box()
    b[1] = 2
    b[2] = 3
    del b[1]
    return b[2], len(b), 5 in b, 6 not in b, b(1, 2), b == 1, b.dynamic, bool(b)


# ---- exceptions


@case(lambda: 0)
def try_except_else_finally(n):
    log = []
    for k in range(4):
        try:
            log.append(("try", k))
            if k == 1:
                raise ValueError("v", k)
            if k == 2:
                [][n]
            if k == 3:
                break
        except ValueError as e:
            log.append(("value", e.args))
        except (IndexError, KeyError) as e:
            log.append(("index", str(e)))
            continue
        else:
            log.append("else")
        finally:
            log.append(("finally", k))
    return log, "e" in locals()


@case(lambda: Token("r"))
def return_in_finally(t):
    def f(x):
        try:
            if x:
                return t
            raise KeyError("lost")
        finally:
            if not x:
                return "finally"

    return f(1), f(0)


@case()
def nested_try():
    try:
        try:
            1 / 0
        except ZeroDivisionError as e:
            raise KeyError("second") from e
        finally:
            print("inner finally")
    except KeyError as e:
        return repr(e), repr(e.__cause__), repr(e.__context__), e.__suppress_context__


@case()
def exception_escapes_finally():
    try:
        raise KeyError("escaping")
    finally:
        x = [i for i in range(2)]
        print("cleanup", x)


@case()
def exception_replaced_in_handler():
    try:
        {}["a"]
    except KeyError:
        int("x")


@case()
def bare_raise():
    try:
        try:
            raise ValueError("again")
        except ValueError:
            print("saw")
            raise
    except ValueError as e:
        tb = e.__traceback__
        depth = 0
        while tb:
            tb, depth = tb.tb_next, depth + 1
        return depth


@case()
def bare_raise_escapes():
    try:
        raise ValueError("out")
    except ValueError:
        raise


@case()
def bare_raise_without_exception():
    raise


@case()
def raise_from_none():
    try:
        raise KeyError(1)
    except KeyError:
        raise ValueError("clean") from None


@case()
def raise_class():
    raise KeyError


@case()
def raise_from_class():
    raise KeyError from ValueError


@case()
def raise_not_exception():
    raise 42


@case()
def raise_bad_cause():
    raise ValueError("x") from "string"


class BadNew(Exception):
    def __new__(cls):
        return 5


@case()
def raise_bad_new():
    raise BadNew


@case()
def raise_from_bad_new():
    try:
        raise ValueError("x") from BadNew
    except Exception as e:
        return type(e).__name__, str(e), type(e.__cause__).__name__


@case()
def except_not_class():
    try:
        1 / 0
    except "text":
        return 1


@case()
def except_tuple_not_class():
    try:
        1 / 0
    except (ValueError, 3):
        return 1


@case()
def handled_exception_stack():
    seen = []

    def current():
        return repr(sys.exc_info()[1])

    seen.append(current())
    try:
        raise ValueError(1)
    except ValueError:
        seen.append(current())
        try:
            raise KeyError(2)
        except KeyError:
            seen.append(current())
        seen.append(current())
    seen.append(current())
    return seen


@case(lambda: 3)
def assertions(n):
    assert n == 3
    assert n, "message"
    try:
        assert n > 5, f"n is {n}"
    except AssertionError as e:
        first = e.args
    assert not n, ("tuple", n)
    return first


def raises_deep(n):
    if n == 0:
        return {}["deep"]
    return raises_deep(n - 1)


@case()
def traceback_lines():
    try:
        x = 1
        raises_deep(
            2
        )
    except KeyError as e:
        lines = [(f.name, f.lineno - traceback_lines.__code__.co_firstlineno) for f in traceback.extract_tb(e.__traceback__)]
        return lines, x


@case()
def traceback_kept():
    t = Token("in the frame")
    try:
        raises_deep(1)
    except KeyError as e:
        tb = e.__traceback__
        names = []
        while tb:
            names.append((tb.tb_frame.f_code.co_name, tb.tb_lineno, sorted(tb.tb_frame.f_locals)))
            tb = tb.tb_next
        return names, t


@case()
def exception_notes():
    try:
        try:
            raise ValueError("noted")
        except ValueError as e:
            e.add_note("a note")
            raise
    except ValueError as e:
        return e.__notes__


@case()
def drop_order():
    a = Noisy("a")
    b = Noisy("b")
    c = a + b
    print(c)
    a = None
    Noisy("temp")
    [Noisy("x"), Noisy("y")]
    del b
    f = lambda *args: len(args)
    print(f(Noisy("1")), f())
    for n in (Noisy("l1"), Noisy("l2")):
        print("in loop", n)
    return "end"


@case()
def drop_order_in_exceptions():
    try:
        x = Noisy("local")
        [Noisy("p"), Noisy("q"), 1 / 0]
    except ZeroDivisionError:
        print("handler")
    del x
    d = {}
    try:
        d[Noisy("key")] += Noisy("value")
    except KeyError:
        print("second handler")
    raise ValueError("end")


# ---- exception groups


@case(lambda: ExceptionGroup("g", [ValueError(1), KeyError(2), ExceptionGroup("h", [ValueError(3), OSError(4)])]))
def except_star(group):
    log = []
    try:
        try:
            raise group
        except* ValueError as e:
            log.append(("value", len(e.exceptions), str(e)))
        except* KeyError as e:
            log.append(("key", repr(e)))
    except ExceptionGroup as rest:
        log.append(("rest", repr(rest)))
    return log


@case()
def except_star_all():
    log = []
    try:
        raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
    except* (ValueError, TypeError) as e:
        log.append(repr(e))
    else:
        log.append("else")
    finally:
        log.append("finally")
    return log


@case()
def except_star_naked():
    try:
        raise ValueError("naked")
    except* ValueError as e:
        return_value = repr(e)
    return return_value


@case()
def except_star_no_match():
    try:
        raise KeyError("none")
    except* ValueError:
        print("not reached")


@case()
def except_star_raises():
    try:
        raise ExceptionGroup("g", [ValueError(1), KeyError(2)])
    except* ValueError:
        raise TypeError("new")


@case()
def except_star_invalid():
    try:
        raise ValueError(1)
    except* ExceptionGroup:
        pass


# ---- with


class Manager:
    def __init__(self, name, suppress=False, fail=None):
        self.name, self.suppress, self.fail = name, suppress, fail

    def __enter__(self):
        print("enter", self.name)
        if self.fail == "enter":
            raise RuntimeError("enter failed")
        return self

    def __exit__(self, kind, value, tb):
        print("exit", self.name, kind and kind.__name__, value, tb and tb.tb_lineno - tb.tb_frame.f_code.co_firstlineno)
        if self.fail == "exit":
            raise RuntimeError("exit failed")
        return self.suppress


@case(lambda: Token("w"))
def with_statement(t):
    with Manager("a") as a, Manager("b"):
        r = a.name, t
    return r


@case()
def with_suppresses():
    with Manager("s", suppress=True):
        print("body")
        1 / 0
    print("after")
    with Manager("o", suppress=True), Manager("i"):
        raise KeyError("inner")
    return "done"


@case()
def with_propagates():
    with Manager("p"):
        with Manager("q"):
            [][1]


@case()
def with_exit_raises():
    with Manager("x", fail="exit"):
        raise ValueError("body")


@case()
def with_enter_raises():
    with Manager("outer"):
        with Manager("e", fail="enter"):
            print("not reached")


@case()
def with_return_and_break():
    for i in range(3):
        with Manager(i):
            if i == 0:
                continue
            if i == 1:
                break
    with Manager("r"):
        return i


@case(lambda: 5)
def with_not_manager(x):
    with x:
        pass


class OnlyEnter:
    def __enter__(self):
        return 1


@case()
def with_no_exit():
    with OnlyEnter():
        pass


@case()
def with_contextlib():
    log = []

    @contextlib.contextmanager
    def managed(name):
        log.append(("enter", name))
        try:
            yield name
        except KeyError as e:
            log.append(repr(e))
        finally:
            log.append(("exit", name))

    with managed("one") as x, contextlib.suppress(ValueError):
        log.append(x)
        raise ValueError
    with managed("two"):
        raise KeyError("two")
    return log


# ---- match


class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y


def classify(v):
    match v:
        case 0 | 1:
            return "small"
        case int(n) if n > 100:
            return "large", n
        case float() | int():
            return "number"
        case str("hello"):
            return "greeting"
        case str() as s:
            return "str", s
        case []:
            return "empty"
        case [x]:
            return "one", x
        case [Point(x=0), *rest]:
            return "origin first", len(rest)
        case [first, *_, last]:
            return "ends", first, last
        case {"type": "circle", "r": r, **rest}:
            return "circle", r, rest
        case {"type": t}:
            return "shape", t
        case {}:
            return "mapping"
        case Point(0, y):
            return "on axis", y
        case Point(x, y=5):
            return "y five", x
        case Point():
            return "point"
        case None:
            return "none"
        case _:
            return "other"


@case()
def match_statement():
    return [
        classify(v)
        for v in (
            0, 500, 7, 2.5, "hello", "bye", [], [1], [1, 2, 3], [Point(0, 1), 2], (1, 2), {"type": "circle", "r": 2, "c": 1},
            {"type": "square"}, {"x": 1}, Point(0, 3), Point(4, 5), Point(1, 1), None, object, b"bytes", {1},
        )
    ]


class BadMatchArgs:
    __match_args__ = ["x"]


@case()
def match_bad_args():
    match BadMatchArgs():
        case BadMatchArgs(1):
            return 1


@case()
def match_too_many_positional():
    match Point(1, 2):
        case Point(a, b, c):
            return a


@case()
def match_repeated_attribute():
    match Point(1, 2):
        case Point(a, x=b):
            return a


@case(lambda: 5)
def match_not_class(x):
    match 1:
        case x():
            return 1


# ---- generators and coroutines, from outside


def numbers(n):
    for i in range(n):
        got = yield i
        if got:
            print("got", got)
    return "returned"


def delegating(n):
    r = yield from numbers(n)
    yield r


@case(lambda: 3)
def generators(n):
    g = numbers(n)
    first = next(g)
    second = g.send("hello")
    rest = list(g)
    return first, second, rest, list(delegating(2)), sum(x * x for x in numbers(4))


@case()
def generator_raises():
    def g():
        try:
            yield 1
            raise ValueError("in generator")
        finally:
            print("generator closed")

    return list(g())


@case()
def generator_closed():
    def g():
        try:
            yield 1
            yield 2
        except GeneratorExit:
            print("exit")
            raise

    it = g()
    next(it)
    it.close()
    it2 = g()
    next(it2)
    try:
        it2.throw(KeyError("thrown"))
    except KeyError as e:
        return repr(e)


@case(lambda: 3)
def coroutines(n):
    async def inner(x):
        return x * 2

    async def outer():
        return await inner(n) + 1

    try:
        outer().send(None)
    except StopIteration as e:
        return e.value


# ---- frames


@case(lambda: Token("frame"))
def frame_inspection(t):
    x = 1
    f = sys._getframe()
    here = f.f_lineno - f.f_code.co_firstlineno
    names = sorted(f.f_locals)
    y = [
        sys._getframe().f_lineno - f.f_code.co_firstlineno,
        1,
    ]
    back = f.f_back is not None
    del f
    return here, names, x, y, back, t


@case()
def frame_outlives():
    def child(v):
        w = Token(v)
        return sys._getframe(), w

    f, w = child("kept")
    names = sorted(f.f_locals), f.f_locals["v"], f.f_locals["w"] is w, f.f_code.co_name, f.f_lineno - f.f_code.co_firstlineno
    back = f.f_back.f_code.co_name if f.f_back else None
    f.clear()
    return names, back, sorted(f.f_locals)


def keep_caller(store):
    store.append(sys._getframe(1))


@case()
def frame_of_caller():
    def child(store):
        local = [1, 2]
        keep_caller(store)
        return local

    store = []
    child(store)
    f = store.pop()
    return f.f_locals["local"], f.f_code.co_name, f.f_lineno - f.f_code.co_firstlineno


@case(lambda: Token("l"))
def locals_function(t):
    a = 1
    d = dict(locals())
    b = 2

    def inner():
        return a

    e = locals()
    return sorted(d), sorted(k for k in e if k != "e"), inner()


@case()
def eval_and_exec():
    a = 5
    ns = {"a": a}
    exec("b = a + 1\ndef f(x):\n    return x * b\n", ns)
    return eval("a + 2"), ns["b"], ns["f"](2), eval("[a for _ in range(2)]", {"a": 1})


@case()
def walrus():
    if (n := len("abc")) > 2:
        r = [y := n * 2, y + 1]
    total = [last := i for i in range(3)]
    return n, r, total, last


@case()
def deletes():
    a, b, c = 1, [1, 2, 3], {"k": 1}
    del a, b[0], c["k"]
    return b, c


@case()
def print_expression():
    print(1, "two", [3])
    print(*[4, 5], sep="-")
    return None


@case(lambda: 3)
def long_if_chain(n):
    if n == 1:
        return "one"
    elif n == 2:
        return "two"
    elif n is None or not isinstance(n, int):
        return "none"
    elif n == 3 and (n > 2 or n < 0):
        x = "three"
    else:
        x = "many"
    return x


def ackermann(m, n):
    if m == 0:
        return n + 1
    return ackermann(m - 1, 1) if n == 0 else ackermann(m - 1, ackermann(m, n - 1))


@case()
def nested_calls():
    return ackermann(2, 2)


@case()
def sorting():
    data = [("b", 2), ("a", 2), ("c", 1)]
    data.sort(key=lambda kv: (kv[1], kv[0]))
    return data, sorted(data, reverse=True), min(data), [*map(lambda p: p[0], data)], list(filter(None, [0, 1]))


@case()
def many_locals():
    a0 = a1 = a2 = a3 = a4 = a5 = a6 = a7 = a8 = a9 = 1
    b0 = b1 = b2 = b3 = b4 = b5 = b6 = b7 = b8 = b9 = 2
    return a0 + a1 + a2 + a3 + a4 + a5 + a6 + a7 + a8 + a9 + b0 + b1 + b2 + b3 + b4 + b5 + b6 + b7 + b8 + b9


@case(lambda: list(range(300)), count=40)
def long_loop(xs):
    t = 0
    for x in xs:
        if x % 3:
            continue
        t += x
    return t
