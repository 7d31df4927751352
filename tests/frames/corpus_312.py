"""Cases in the syntax of Python 3.12 and later: type parameters, nested f-strings."""

from corpus import case


@case(lambda: 3)
def generic_function(n):
    def first[T](xs: list[T]) -> T:
        return xs[0]

    return first([n]), first.__type_params__[0].__name__


@case()
def generic_class():
    class Box[T: int, *Ts, **P]:
        def __init__(self, v: T):
            self.v = v

        def get(self) -> T:
            return self.v

    return Box(4).get(), [str(p) for p in Box.__type_params__], [p.__bound__ for p in Box.__type_params__[:1]]


@case()
def type_alias():
    type Pair[T] = tuple[T, T]
    type Name = str
    return Pair.__name__, str(Pair[int]), Name.__value__


@case(lambda: "q")
def nested_f_strings(s):
    return f"{f"{s + "x"}":>{len(f"{s}") + 3}}"


@case(lambda: 3)
def class_comprehension(n):
    class A:
        k = n
        v = [k for k in range(n)]
        w = [n for _ in range(2)]

    return A.v, A.w, A.k


@case(lambda: 3)
def inlined_comprehension_cells(n):
    x = "outer"
    fs = [lambda: x for x in range(n)]
    return [f() for f in fs], x


@case(lambda: 3)
def lazy_alias_in_class(n):
    class A:
        own = n
        type Global = int
        type Own = own
        type Outer = n

    return A.Global.__value__, A.Own.__value__, A.Outer.__value__
