"""Functions for the differential test of residual and resume code.

CASES: (function, [arguments or a factory of them...]). Whatever a function
does beyond its result it writes to LOG.
"""

# ruff: noqa: F821, F842, UP008
import contextlib
import sys

from resume_world import Manager, Point, Truth, fail, say

CASES = []


def case(*argument_sets):
    def register(function):
        CASES.append((function, argument_sets or ((),)))
        return function

    return register


@case((1, 2), (3, "x"), (0.5, 4))
def arithmetic(a, b):
    c = a * 2 + b
    d = [c, -a, ~int(a), not b, +a]
    d += [a**2, c is b, a in d]
    return c, d


@case((0,), (3,), (7,), (200,))
def branches(n):
    if n == 0:
        r = "zero"
    elif n < 5 and n != 4:
        r = "small"
    elif n > 100 or n == 7:
        r = "odd"
    else:
        r = "else"
    return r if n else (r, n)


@case((5,), (0,))
def while_loop(n):
    total = 0
    while n > 0:
        n -= 1
        if n == 3:
            continue
        total += say(n)
    else:
        total += 100
    return total


@case(([1, 2, 3],), ([],), ([4, -1, 6],))
def for_loop(values):
    out = []
    for i, v in enumerate(values):
        if v < 0:
            break
        out.append(say(v) * i)
    else:
        out.append("end")
    return out


@case((2, 3), (0, 1))
def nested_loops(n, m):
    found = []
    for i in range(n):
        for j in range(m):
            if i == j == 1:
                continue
            for k in (i, j):
                found.append((i, j, say(k)))
    return found


@case((1,), (0,), ("s",), (None,))
def try_except(v):
    try:
        r = say(10 / v)
    except ZeroDivisionError as e:
        r = "zero", str(e), sys.exc_info()[0].__name__
    except TypeError:
        r = "type", str(sys.exc_info()[1])
        say("handling")
        if v is None:
            raise
    else:
        r = "fine", r
    return r, sys.exc_info()


@case((1,), (0,))
def try_finally(v):
    try:
        say("body")
        return 10 / v
    finally:
        say("finally", repr(sys.exc_info()[1]))


@case((0,), (1,), (2,))
def chained(v):
    out = []
    try:
        try:
            if v == 1:
                fail("one")
            out.append(1 // v)
        except ValueError as e:
            raise KeyError("two") from e
        finally:
            out.append(say("finally"))
    except (KeyError, ZeroDivisionError) as e:
        out += [repr(e), repr(e.__cause__), repr(e.__context__)]
    return out


@case((0,), (1,), (2,))
def nested_handlers(v):
    out = []
    try:
        fail("outer")
    except ValueError as first:
        out.append(str(sys.exc_info()[1]))
        try:
            fail("inner")
        except ValueError as second:
            out.append(repr(second.__context__))
            if v == 1:
                raise
        out.append(str(sys.exc_info()[1]))
        if v == 2:
            raise RuntimeError("third")
    out.append(sys.exc_info())
    return out


@case((0,), (1,))
def loop_finally(v):
    for i in range(3):
        try:
            if v:
                fail(str(i))
            say(i)
        except ValueError:
            continue
        finally:
            if i == 1:
                break
    return i


@case(([3, 0, "x", None, 1],))
def loop_try(values):
    """The breaking call raises and control comes back to it in the loop."""
    out = []
    for v in values:
        try:
            out.append(6 / v)
        except ZeroDivisionError:
            out.append("zero")
            continue
        except TypeError:
            extra = say("type")
            if v is None:
                break
        else:
            say("else", v)
        finally:
            out.append(say("f"))
    return out, extra


@case((False, False), (True, False), (True, True))
def with_block(bad, swallow):
    with Manager("a", swallow) as name:
        say(name)
        if bad:
            fail("in with")
        r = 1
    return "behind", bad


@case((0,), (1,), (2,), (3,))
def with_failures(v):
    with Manager("outer", swallow=v == 3):
        with Manager("x", bad_enter=v == 1, bad_exit=v == 2) as x, Manager("y"):
            say("body", x)
            if v == 3:
                fail("body")
        say("after")
    return v


@case((0,), (1,), (2,))
def with_jumps(v):
    for i in range(3):
        with Manager(i):
            if i == 1:
                if v == 0:
                    return "return", i
                if v == 1:
                    continue
                break
            say(i)
    return "end", i


@case((3,), (0,))
def comprehensions(n):
    x = "keep"
    a = [say(x) * 2 for x in range(n) if x != 1]
    b = {x: x + 1 for x in a}
    c = {x % 2 for x in range(n)}
    d = sum(x * n for x in range(n))
    return x, a, b, c, d


@case((3,))
def unbound_comprehension(n):
    a = [[q + z for q in range(2)] for z in range(n)]
    try:
        return a, z
    except NameError as e:
        return a, str(e)


@case((2,), (0,))
def raising_comprehension(n):
    x = "keep"
    try:
        return [4 // x for x in range(n, -1, -1)]
    except ZeroDivisionError:
        return x


@case((2,))
def closures(k):
    total = k

    def add(d):
        nonlocal total
        total += d
        return total

    add(1)
    say(total)
    total *= 3
    return add(0), add.__closure__[0].cell_contents, sorted(locals())


def make_counter():
    count = 0
    seen = [1]

    def use_free(n):
        nonlocal count
        for i in range(n):
            count += i
            seen.append(say(count))
        inner = lambda: (n, count)
        return inner(), list(seen), use_free.__name__

    def reset():
        nonlocal count
        count = 0
        seen[:] = [1]

    use_free.reset = reset
    return use_free


CASES.append((make_counter(), [(3,)]))


@case((1, 2), (5, 0))
def cell_arguments(a, b):
    def get():
        return a, b

    a += 1
    try:
        c = a / b
    except ZeroDivisionError:
        c, b = None, "replaced"
    return get(), c, sorted(locals())


@case((1,), (0,))
def unbound_cell(flag):
    def get():
        return v

    if flag:
        v = 1
        say(get())
        del v
    try:
        return get()
    except NameError as e:
        return str(e)


@case((0,), (1,), (2,))
def maybe_unbound(flag):
    if flag == 1:
        v = say("v")
    elif flag == 2:
        v = 5
        del v
    say("between")
    try:
        return v
    except UnboundLocalError as e:
        return str(e), sorted(locals())


@case((1,))
def deleting(a):
    b = [a]
    c = b
    del b
    say("deleted")
    del a, c
    return sorted(locals())


def _keywords(*args, **kwargs):
    say("called", len(args))
    return args, list(kwargs.items())


@case((1, 2), (1, 2, 3))
def calls(a, *rest):
    more = {"z": a}
    return (
        _keywords(a, x=say(a)),
        _keywords(*rest, **more),
        _keywords(a, *(3,), y=1, **more, w=say(5)),
        _keywords(**more),
        _keywords(a, k=2 if a else say(3)),
        _keywords(*rest, a),
    )


def keyword_only(a, /, b=2, *c, d, e=5, **f):
    say(a, b)
    return a, b, c, d, e, sorted(f.items())


CASES.append((lambda: keyword_only(1, d=4, g=7), [()]))
CASES.append((keyword_only, [(1,)]))


@case(
    (1,),
    ((1, 2),),
    ([1, 2, 3],),
    ({"k": 1, "z": 2},),
    (Point(0, 3),),
    (Point(4, 4),),
    ("text",),
    (None,),
)
def matching(v):
    match v:
        case 1 | 2:
            return "number", v
        case (a, b):
            return "pair", a, b
        case [a, *rest] if say(len(rest)) == 2:
            return "list", a, rest
        case {"k": k, **rest}:
            return "mapping", k, rest
        case Point(0, y):
            return "point", y
        case Point(x=x, y=y) if x == y:
            return "diagonal", x
        case str() as text:
            return text
    return "other"


@case((5,), (-5,))
def methods(n):
    parts = "a,b".split(",")
    parts.append(str(n).zfill(say(4)))
    p = Point(n, 1).scaled(2, plus=say(3))
    return "-".join(x.upper() for x in parts), p.scaled(p.scaled(1).x).y


@case((5,), (-5,))
def attributes(n):
    p = Point(n, 1)
    p.extra = p.method(n)
    try:
        say(p.risky)
        p.missing()
    except AttributeError as e:
        say(str(e))
    del p.extra
    p.x += 1
    return p, vars(p)


@case(([3, 1, 2],), ([],))
def subscripts(values):
    values = list(values)
    try:
        values[0] = values[1] + values[-1]
        values[1:2] = [7, 8]
        values[2] += 5
        del values[0]
    except IndexError as e:
        say(str(e))
    return values, values[1:], values[::-1]


@case((1, 5, 3), (9, 5, 1))
def comparisons(a, b, c):
    return (
        say(a) < say(b) < say(c),
        a < b > c != a,
        (a, b) in [(1, 5)],
        a is not b,
        c not in (1,),
    )


@case((1, 0), (0, 1), (0, 0))
def booleans(a, b):
    x = say(a) and say(b)
    y = say(a) or say(b) or "none"
    z = (a if say(b) else b) if a or not b else "q"
    return x, y, z


@case((1,), (0,), ("bad",))
def truths(v):
    r = []
    if Truth(v):
        r.append("true")
    while Truth(v) and len(r) < 3:
        r.append("loop")
        v = 0
    return r, (not Truth(v)), Truth(v) or Truth(1).value


@case((None,), (3,))
def none_tests(v):
    r = []
    for i in range(2):
        if v is None:
            continue
        r.append(i)
    while v is not None:
        v = None
    return r if v is None else v


@case((3.14159, "x"))
def formatting(a, b):
    return f"{a:.2f} {b!r:>{5}} {say(b)} {a!s}" + f"{b}"


@case((1, 2))
def unpacking(a, b):
    a, b = b, a
    (c, d), e = (a, b), [say(1)]
    f, *g, h = range(5)
    x = y = z = say("z")
    try:
        p, q = say([1, 2, 3])
    except ValueError as error:
        p = str(error)
    return a, b, c, d, e, f, g, h, x, y, z, p


@case((1,), (0,))
def asserting(v):
    assert v, say("message")
    return "fine"


@case((4,))
def importing(n):
    import math
    from os.path import join
    from os.path import sep as s

    return math.sqrt(n), join("a", "b").replace(s, "/")


@case((4,))
def recursion(n):
    return 1 if n <= 1 else n * recursion(n - 1)


@case((10,))
def global_names(n):
    global _temporary
    _temporary = n
    _temporary += 1
    r = _temporary
    del _temporary
    try:
        _temporary
    except NameError as e:
        return r, str(e)


class Base:
    def hello(self, x):
        return "base", x

    @classmethod
    def name(cls):
        return cls.__name__


class Derived(Base):
    tag = "tag"

    def hello(self, x):
        r = super().hello(say(x))
        return r + (__class__.__name__, super().name())

    def in_cell(self, x):
        tag = lambda: self.tag
        r = super().hello(x)
        return r, tag(), super(Derived, self).hello(say(2))

    def stored(self, x):
        method = super().hello
        return method(x), super().__init__()


for _method in Derived.hello, Derived.in_cell, Derived.stored:
    CASES.append((_method, [lambda: (Derived(), 1)]))


@case((3,))
def local_class(n):
    class Local(Base):
        k = n

        def get(self):
            return self.k, super().hello(n)

    return Local().get(), Local.name()


@case((1,), (0,))
def walrus(n):
    if (m := say(n)) and (k := m + 1) > 1:
        return m, k
    return [y := 1, y**2], y


@case((3,))
def local_names(n):
    a = 1
    b = lambda: a
    r = dict(locals())
    r.pop("b")
    c = eval("n + a", globals(), locals())
    return list(r), c, sorted(locals())


@case((0,), (1,), (2,))
def except_groups(k):
    r = []
    try:
        if k == 0:
            raise ExceptionGroup("g", [ValueError(1), TypeError(2)])
        if k == 1:
            raise ExceptionGroup("g", [ValueError(1), OSError(2)])
        say("none")
    except* ValueError as e:
        r.append(("v", [str(x) for x in e.exceptions]))
    except* TypeError as e:
        r.append(("t", [str(x) for x in e.exceptions]))
    return r


@case((2,))
def suppressing(n):
    with contextlib.suppress(ZeroDivisionError):
        for i in range(n, -1, -1):
            say(10 // i)
    return i


@case((2,))
def generators(n):
    def make():
        for i in range(n):
            got = yield i
            say("got", got)
        return "result"

    g = make()
    out = [next(g), g.send("sent")]
    for v in make():
        out.append(v)
    try:
        next(g)
    except StopIteration as e:
        out.append(e.value)
    return out


@case((5,))
def constants(n):
    t = 0
    for a, b in zip("abc", (1, 2, 3)):
        t += {"a": 1, "b": 2, "c": 3}[a] * b
    return t, [1, 2, 3, n], {1, 2, n}, {"x": n, **{"y": 1}}, (*[n], 2), {*[1], n}


@case((0,), (1,))
def conditional_arguments(x):
    return say(1, *((2,) if x else ()), say("k" if x else fail("argument")))


@case((2,))
def deep_stack(n):
    return say(1) + (say(2) * (say(3) - (say(4) // (say(n) + len([say(5), [say(6)]])))))


@case((0,), (1,), (2,))
def return_in_finally(k):
    try:
        if k == 1:
            fail()
        if k == 2:
            return "try"
    finally:
        return say("finally")


@case((0,), (1,))
def exception_context(k):
    try:
        try:
            fail("a")
        finally:
            if k:
                {}["missing"]
            say("cleanup")
    except KeyError as e:
        return repr(e.__context__), sys.exc_info()[1] is e
    except ValueError as e:
        return str(e), e.__context__


@case((3,))
def while_true(n):
    i = 0
    while True:
        try:
            i += 1
            if i > n:
                raise StopIteration(i)
            if i == 2:
                continue
            with Manager(i):
                say("body", i)
        except StopIteration as e:
            return e.value
        finally:
            say("finally", i)


@case((5,), (0,))
def try_loop_with(n):
    total = 0
    with Manager("outer", swallow=True):
        for i in range(n):
            try:
                if i == 3:
                    fail("three")
                total += 10 // (i - 1)
            except ZeroDivisionError:
                total += 100
        say(total)
    return total


@case(())
def multi_line():
    x = [1, 2]
    try:
        say(
            x[0],
            x[5],
        )
    except IndexError:
        fail("lines")


@case((1,))
def annotated(x: int, y: "str" = "d") -> tuple:
    """A docstring."""
    z: int = x + 1
    w: list
    return x, y, z, annotated.__doc__


exec(
    "def many_locals(n):\n"
    + "".join(f"    v{i} = n + {i}\n" for i in range(270))
    + "    r = 0\n    for q in range(2):\n"
    + "".join(f"        r += v{i}\n" for i in range(0, 270, 30))
    + "    return r\n"
)
CASES.append((many_locals, [(1,)]))

exec(
    "def many_cells(n):\n"
    + "".join(f"    v{i} = n + {i}\n" for i in range(14))
    + "    f = lambda: ("
    + ",".join(f"v{i}" for i in range(14))
    + ")\n"
    + "    v3 += 1\n    w = say(v3)\n    return f(), w\n"
)
CASES.append((many_cells, [(1,)]))
