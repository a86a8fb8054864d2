"""The language: functions, scopes, calls, builtin values, generators, statements.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import dataclasses
import sys

from differential import one, program, two

COUNTER = 0


class Square:
    def __init__(self, n):
        self.n = n


# ---- functions, scopes, calls


@program(one)
def test_star_arguments_everywhere(x):
    def f(a, /, b, *args, c=1, **kw):
        return a, b, args, c, kw

    xs, d = [1, 2], {"c": 5, "z": 6}
    out = [
        f(*xs),
        f(*xs, *xs),
        f(0, *xs, **d),
        f(*(i for i in range(4)), y=2, **d),
        f(*"ab", **{"q": 1}, **{"r": 2}),
        f(1, b=2),
    ]
    return x * len(out), out, [*xs, *range(2)], {**d, "c": 1}, (*xs, 3), {*xs, *"a"}


@program(one)
def test_call_errors(x):
    def f(a, b=2, *, k):
        return a

    errors = []
    for args, kw in [
        ((), {}),
        ((1,), {}),
        ((1, 2, 3), {"k": 1}),
        ((1,), {"k": 1, "z": 2}),
        ((1,), {"a": 1, "k": 1}),
    ]:
        try:
            f(*args, **kw)
        except TypeError as error:
            errors.append(str(error).replace("<locals>", ""))
    return x + len(errors), errors


@program(one)
def test_global_write(x):
    global COUNTER
    COUNTER = 5
    COUNTER += 1
    y = x * COUNTER
    COUNTER = 0
    return y


@program(one)
def test_global_deleted(x):
    global FLEETING
    FLEETING = 3
    y = x * FLEETING
    del FLEETING
    try:
        FLEETING  # noqa: B018
    except NameError as error:
        return y, str(error)


@program(one)
def test_nonlocal_and_del(x):
    a = 1

    def inner():
        nonlocal a
        a = a + 1
        return a

    def drop():
        nonlocal a
        del a

    r = inner() + inner()
    drop()
    try:
        a  # noqa: B018
    except NameError as error:
        return x * r, str(error)


@program(one)
def test_locals_call(x):
    a, b = 1, 2
    y = x * a
    d = locals()
    return y + b, sorted(d), d["a"]


@program(one)
def test_vars_of_object(x):
    sq = Square(3)
    return x * vars(sq)["n"], vars(sq)


@program(one, graphs=None, breaks=None)
def test_dir_and_globals(x):
    return x * 2, "COUNTER" in globals(), "n" in dir(Square(1)), "append" in dir([])


@program(one)
def test_import_inside(x):
    import collections.abc as cabc
    import math
    from functools import partial as p
    from os import path

    f = p(lambda a, b: a * b, 3)
    return (
        x * math.floor(2.7) + f(2),
        isinstance([], cabc.Sequence),
        path.basename("a/b"),
    )


@program(one)
def test_recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def walk(tree):
        if isinstance(tree, list):
            return sum(walk(t) for t in tree)
        return tree

    return x * fact(5) + walk([1, [2, [3, 4]]])


@program(one)
def test_mutual_recursion_and_default_binding(x):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    fs = [lambda v, k=k: v * k for k in range(3)]
    return x * sum(f(2) for f in fs), even(10), odd(7)


def outer_decorator(times):
    def wrap(f):
        def inner(*args, **kwargs):
            return f(*args, **kwargs) * times

        inner.times = times
        return inner

    return wrap


@outer_decorator(3)
def decorated(v):
    return v + 1


@program(one)
def test_decorators(x):
    @outer_decorator(2)
    @outer_decorator(5)
    def local(v):
        return v - 1

    return decorated(x), local(x), local.times


@program(one)
def test_lambda_in_containers(x):
    ops = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b}
    return [ops[k](x, 2) for k in sorted(ops)], (lambda *a, **k: (a, k))(1, z=2)


@program(one)
def test_function_attributes_and_introspection(x):
    def f(a, b=2):
        "doc"
        return a

    f.k = 3
    return (
        x * f.k,
        f.__name__,
        f.__doc__,
        f.__defaults__,
        f.__code__.co_argcount,
        f.__module__,
    )


@program(one)
def test_chained_walrus_and_conditionals(x):
    if (n := len(x)) > 2 and (m := n * 2) > 3:
        y = x * m
    else:
        y = x
    a = b = c = 3
    return y, n, 1 < a < 5 > b == c, a if not b else None, [z := 3, z + 1]


@program(one)
def test_while_else_and_nested_break(x):
    out = []
    i = 0
    while i < 5:
        i += 1
        for j in range(i):
            if j == 2:
                break
            if j % 2:
                continue
            out.append((i, j))
        else:
            out.append("full")
            continue
        if i == 4:
            break
    else:
        out.append("never")
    return x * i, out


LINES = "\u00e9\n\\ ' \""


@dataclasses.dataclass
class Point:
    a: int
    b: int


@program(one)
def test_match_everything(x):
    out = []
    for case in [
        [1, 2, 3],
        (1,),
        {"k": 1, "z": 2},
        Point(1, 2),
        Point(3, 4),
        "text",
        None,
        3.5,
        [1, [2, 3]],
        -1,
        True,
    ]:
        match case:
            case [a, *rest] if len(rest) == 2:
                out.append(("seq", a, rest))
            case (1,):
                out.append("one")
            case {"k": k, **others}:
                out.append(("map", k, others))
            case Point(a=1, b=b):
                out.append(("point", b))
            case Point(a, b):
                out.append(("other", a, b))
            case str() as s:
                out.append(s)
            case None:
                out.append("none")
            case float(f):
                out.append(f)
            case [_, [b, c]]:
                out.append((b, c))
            case -1 | -2:
                out.append("neg")
            case True:
                out.append("true")
    return x * len(out), out


# ---- values of builtin types


@program(one, graphs=None, breaks=None)
def test_string_methods(x):
    s = "Hello World"
    return (
        x * s.count("o"),
        s.split(),
        s.lower().title(),
        "-".join(["a", "b"]),
        "{} {k:>5} {!r}".format(1, 2, k=2.5),
        "{0.a} {1[0]}".format(Point(1, 2), [3]),
        "%d %5.2f %s %r" % (1, 2.5, "a", "b"),
        "%(a)s" % {"a": 3},
        s.partition(" "),
        s.replace("l", "L", 1),
        s[::-1],
        s.startswith(("He", "x")),
        s.encode("utf8"),
        s.find("W"),
        s.isalpha(),
        "a,b".rsplit(",", 1),
        s.center(20, "*"),
        s.zfill(15),
        s.translate({72: "J"}),
        "abc".strip("a"),
        s.removeprefix("He"),
        f"{3.14159:.2f} {10:x} {'a':>3} {x.shape} {x.dtype} {1_000:,}",
        "a" * 3,
        "b" in s,
        ord("a"),
        chr(98),
        ascii("é"),
        ascii(LINES),
        ascii([LINES, 1]),
        f"{LINES!a}",
        "é".encode("latin-1").decode("latin-1"),
        bytes([1, 2]) + b"x",
        b"ab".hex(),
        str.maketrans("a", "b"),
    )


@program(one)
def test_numbers(x):
    return (
        x * round(2.567, 1),
        divmod(7, 3),
        pow(2, 10, 7),
        abs(-3),
        7 // 2,
        -7 % 3,
        2**-1,
        1 << 3,
        5 & 3 | 8 ^ 1,
        ~5,
        int("12", 8),
        float("inf"),
        complex(1, 2) * 2,
        (3).bit_length(),
        (2.5).is_integer(),
        (0.1).hex(),
        max(1, 2.5),
        min([3, 1], key=lambda v: -v),
        sum([[1], [2]], []),
        bin(5),
        hex(255),
        oct(8),
        int.from_bytes(b"\x01\x02", "big"),
        (5).to_bytes(2, "little"),
        bool([]),
        1.0 == 1,
        round(7),
        isinstance(True, int),
        float.fromhex("0x1p-1"),
    )


@program(one)
def test_sets(x):
    a, b = {1, 2, 3}, {2, 3, 4}
    c = set(a)
    c |= {9}
    c -= {1}
    c ^= {2}
    c.update([5], (6,))
    return (
        x * len(a & b),
        a | b,
        a - b,
        a ^ b,
        a <= {1, 2, 3, 4},
        a.isdisjoint({9}),
        c,
        frozenset(a) & b,
        {frozenset([1]): 2}[frozenset([1])],
        sorted(a.symmetric_difference(b)),
        2 in a,
        {i % 2 for i in range(5)},
        a == {3, 2, 1},
        a > {1},
    )


@program(one)
def test_slices(x):
    xs = list(range(10))
    ys = xs[:]
    ys[2:4] = [20, 30, 40]
    del ys[-1]
    del ys[::3]
    ys[::2] = [0] * len(ys[::2])
    s = slice(1, None, 2)
    return (
        x[1:] * len(ys),
        ys,
        xs[s],
        s.indices(7),
        "hello"[s],
        (1, 2, 3)[::-1],
        xs[-3:-1],
        s.start,
    )


@program(one)
def test_sorting(x):
    pairs = [("b", 2), ("a", 3), ("c", 1)]
    pairs.sort(key=lambda p: p[1])
    objs = sorted([Point(3, 1), Point(1, 2)], key=lambda p: p.a)
    return (
        x * objs[0].a,
        pairs,
        sorted({"z": 1, "y": 2}),
        sorted([3, 1, 2], reverse=True),
        sorted(["b", "A"], key=str.lower),
        min(pairs, key=lambda p: p[0]),
        max([], default=4),
        [o.a for o in objs],
    )


@program(one)
def test_iteration_builtins(x):
    it = iter([1, 2, 3])
    seen = []
    for a, b in zip(it, it):
        seen.append((a, b))
    pop = [3, 2, 1]
    return (
        x * sum(v for v in range(3)),
        seen,
        list(zip([1, 2], "ab", strict=True)),
        list(enumerate("ab", 5)),
        list(map(lambda a, b: a + b, [1, 2], [3, 4])),
        list(filter(None, [0, 1, 2])),
        any(v > 1 for v in [1, 2]),
        all([]),
        list(reversed([1, 2])),
        next(iter([]), "d"),
        list(iter(pop.pop, 1)),
        dict(zip("ab", [1, 2])),
        list(range(5, 0, -2)),
        tuple(i for i in range(3) if i),
        [*map(str, range(2))],
        dict(a=1, **{"b": 2}),
        dict([("x", 1)]),
        {k: v for k, v in zip("ab", range(2))},
    )


# ---- generators, exceptions, statements


@program(one)
def test_generator_protocol(x):
    def gen():
        got = None
        try:
            while True:
                got = yield (got, x * 2)
                if got == "stop":
                    return "done"
        except ValueError as error:
            yield str(error)
        finally:
            log.append("closed")

    log = []
    g = gen()
    a = next(g)
    b = g.send(3)
    c = g.throw(ValueError("thrown"))
    g.close()
    h = gen()
    next(h)
    try:
        h.send("stop")
    except StopIteration as stop:
        value = stop.value
    return a[1], b, c, value, log


@program(one)
def test_yield_from(x):
    def inner(n):
        got = 0
        for i in range(n):
            got += (yield x * i) or 0
        return got

    def outer():
        a = yield from inner(2)
        b = yield from [1, 2]
        yield (a, b)

    g = outer()
    out = [next(g), g.send(5), *g]
    return out


@program(one)
def test_generator_expression_laziness(x):
    log = []

    def note(v):
        log.append(v)
        return v

    g = (note(i) * x for i in range(5))
    a = next(g)
    b = next(g)
    return a + b, log, sum(1 for _ in g), len(log)


@program(one)
def test_exceptions_have_cause_and_context(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as inner:
            raise ValueError("b") from inner
    except ValueError as error:
        cause, context, hidden = (
            error.__cause__,
            error.__context__,
            error.__suppress_context__,
        )
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            [].pop()
    except IndexError as error:
        second = error.__context__
    return x + 1, repr(cause), cause is context, hidden, repr(second), str(second)


@program(one)
def test_sys_exc_info(x):
    try:
        raise ValueError("a")
    except ValueError:
        kind, value, tb = sys.exc_info()
        del tb
    return x + 1, kind.__name__, str(value)


@program(one, graphs=0, breaks=0)
def test_exception_attributes(x):
    error = ValueError("a", 2)
    error.code = 3
    error.add_note("note")
    try:
        raise error
    except (TypeError, ValueError) as e:
        out = e.args, e.code, e.__notes__
    return x, out, repr(error), isinstance(error, Exception)


@program(one)
def test_finally_order(x):
    log = []

    def f(kind):
        for i in range(3):
            try:
                if kind == "break":
                    break
                if kind == "continue":
                    continue
                if kind == "return":
                    return i
                if kind == "raise":
                    raise KeyError(i)
            finally:
                log.append((kind, i))
        return "end"

    out = [f("break"), f("continue"), f("return")]
    try:
        f("raise")
    except KeyError:
        out.append("raised")
    return x * len(log), log, out


@program(one)
def test_multiple_with(x):
    log = []

    class CM:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append("+" + self.name)
            return self

        def __exit__(self, kind, value, tb):
            log.append(("-" + self.name, kind and kind.__name__, str(value)))
            return self.name == "b"

    with CM("a"), CM("b") as b, CM("c"):
        y = x * len(b.name)
        raise ValueError("v")
    return y, log


@program(two)
def test_unpacking_forms(x, y):
    (a, [b, *c]), d = (x, [y, 1, 2]), {"k": 3}
    for i, (j, k) in enumerate([(1, 2), (3, 4)]):
        a = a * j + k - i
    head, *_, tail = range(5)
    return a, b, c, d, head, tail


@program(one)
def test_del_forms(x):
    d = {"a": 1, "b": 2}
    xs = [1, 2, 3, 4]
    p = Point(1, 2)
    del d["a"], xs[0], p.a
    t = 3
    del t
    return x * xs[0], d, xs, hasattr(p, "a")


@program(one)
def test_augmented_everything(x):
    a = [1]
    b = a
    a += [2]
    a *= 2
    d = {"k": 1}
    d["k"] += 5
    d |= {"z": 1}
    n = 7
    n //= 2
    n **= 2
    n <<= 1
    n |= 1
    n &= 15
    n ^= 2
    n >>= 1
    n %= 5
    n -= 1
    s = "a"
    s += "b"
    p = Point(1, 2)
    p.a += 3
    return x * n, a is b, a, d, s, p.a
