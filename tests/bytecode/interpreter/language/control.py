# ruff: noqa
# Control flow: branches, loops, conditions, pattern matching.

# ==== if, elif and else
# args: (fake.tensor([1], [1.]), 0)
# args: (fake.tensor([1], [1.]), 3)
# args: (fake.tensor([1], [1.]), 7)
# args: (fake.tensor([1], [1.]), 50)
def f(x, n):
    if n == 0:
        x = x + 1.0
    elif n < 5 and n != 4:
        x = x * 2.0
    elif n > 40 or n == 7:
        x = -x
    else:
        x = x - 1.0
    return x if n else (x, n)

# ==== while with else, continue and break
# args: (fake.tensor([1], [1.]), 6, 2)
# args: (fake.tensor([1], [1.]), 3, 9)
def f(x, n, stop):
    while n > 0:
        n -= 1
        if n == 4:
            continue
        if n == stop:
            break
        x = x + n
    else:
        x = x * 100.0
    return x, n

# ==== while true
# args: (fake.tensor([1], [1.]),)
def f(x):
    n = 0
    while True:
        n += 1
        x = x * 2.0
        if n >= 3:
            return x, n

# ==== for with else
# args: ([1, 2, 3],)
# args: ([],)
# args: ([4, -1, 6],)
def f(values):
    out = []
    for i, v in enumerate(values):
        if v < 0:
            break
        out.append(v * i)
    else:
        out.append("end")
    return out

# ==== nested loops with continue and break
# args: (fake.tensor([1], [1.]), 3, 3)
def f(x, n, m):
    found = []
    for i in range(n):
        for j in range(m):
            if i == j == 1:
                continue
            if j == 2 and i:
                break
            for k in (i, j):
                found.append((i, j, k))
                x = x + k
    return found, x

# ==== loops over every kind of iterable
# args: (fake.tensor([1], [1.]), {"a": 1, "b": 2.0}, "xyz")
def f(x, d, text):
    out = []
    for k in d:
        out.append(k)
    for k, v in d.items():
        x = x * v
    for v in d.values():
        out.append(v)
    for c in text:
        out.append(c)
    for b in b"ab":
        out.append(b)
    for v in reversed([1, 2, 3]):
        out.append(v)
    for s in {7}:
        out.append(s)
    for a, (b, c) in [(1, (2, 3)), (4, (5, 6))]:
        out.append(a + b * c)
    for n in range(10, 0, -3):
        out.append(n)
    for p, q in zip((1, 2), "ab"):
        out.append((p, q))
    for v in filter(None, map(abs, [-1, 0, 2])):
        out.append(v)
    return out, x

# ==== returns out of loops and blocks
# args: (fake.tensor([1], [1.]), 0)
# args: (fake.tensor([1], [1.]), 1)
# args: (fake.tensor([1], [1.]), 2)
log = []
def f(x, where):
    for i in range(3):
        try:
            if where == 0 and i == 1:
                return "try", x
            if where == 1 and i == 2:
                break
        finally:
            log.append(i)
        x = x + i
    return "end", x

# ==== conditional expressions
# args: (fake.tensor([1], [1.]), 1, 0)
# args: (fake.tensor([1], [1.]), 0, 0)
def f(x, a, b):
    y = x + 1.0 if a else x - 1.0
    z = (1 if b else 2) if a else 3 if b else 4
    return y, z, (a and "yes") or "no", not a and not b, a or b or None

# ==== chained comparisons
# args: (1, 5, 3)
# args: (9, 5, 1)
def f(a, b, c):
    return a < b < c, a < b > c != a, a <= b == 5 >= c, 1 < a < 2 or a is not b

# ==== chained comparison as a condition
# args: (fake.tensor([1], [1.]), 3)
# args: (fake.tensor([1], [1.]), 30)
def f(x, n):
    if 0 < n < 10:
        x = x * 2.0
    while 1 < n <= 3:
        n -= 1
    assert 0 <= n < 100
    return x, n

# ==== is, in and not
# args: (None, [1, None])
# args: (1, [2])
def f(a, values):
    r = []
    if a is None:
        r.append("none")
    if a is not None:
        r.append("some")
    if a in values:
        r.append("in")
    if a not in values:
        r.append("out")
    while a is not None:
        a = None
    n = 0
    while a is None:
        n += 1
        if n > 2:
            a = n
    for v in values:
        if v is None:
            continue
        r.append(v)
    for v in values:
        if v is not None:
            continue
        r.append("none")
    return r, not a, a is None

# ==== boolean operators keep their operands
# args: (1, 0, [])
# args: (0, 1, [2])
def f(a, b, c):
    x = a and b
    y = a or b or "none"
    z = c and c[0] or (a if b else b)
    w = [a and c, b or c, not (a or c)]
    if (a and b) or c:
        w.append("or")
    if a and (b or not c):
        w.append("and")
    return x, y, z, w

# ==== walrus
# args: (3, [5, 6])
# args: (0, [])
def f(n, values):
    if (m := n) and (k := m + 1) > 1:
        r = m, k
    else:
        r = (m,)
    while (n := n - 1) > 0:
        r += (n,)
    return r, [y := 1, y**2], y, [last := v for v in values], (n := -n)

# ==== assert
# args: (1,)
# args: (0,)
# expect: FJ406
def f(v):
    assert v, "message %d" % v
    assert v == 1
    return "fine"

# ==== pass and ellipsis
# args: ()
def f():
    if True:
        pass
    for _ in ():
        pass
    while False:
        pass
    return ...

# ==== match on constants
# args: (1,)
# args: (None,)
# args: ("text",)
# args: (True,)
# args: (2.5,)
# args: (-3,)
def f(v):
    match v:
        case None:
            return "none"
        case True | False:
            return "bool"
        case 1 | 2:
            return "number"
        case -3:
            return "negative"
        case "text":
            return "text"
    return "other"

# ==== match on sequences
# args: ((1, 2),)
# args: ([1, 2, 3],)
# args: ([],)
# args: ((0, (5, [6, 7, 8])),)
# args: ("ab",)
# args: (range(2),)
def f(v):
    match v:
        case []:
            return "empty"
        case (0, (a, [b, *c])):
            return "nested", a, b, c
        case (a, b) if a == b:
            return "equal"
        case (a, b):
            return "pair", a, b
        case [first, *_, last]:
            return "ends", first, last
    return "other"

# ==== match on mappings
# args: ({"k": 1, "z": 2},)
# args: ({"k": {"n": fake.tensor([1], [2.])}},)
# args: ({},)
# args: ([],)
def f(v):
    match v:
        case {"k": {"n": n}}:
            return "inner", n + 1.0
        case {"k": k, **rest}:
            return "outer", k, rest
        case {}:
            return "any mapping"
    return "other"

# ==== match on classes
# args: (0,)
# args: (1,)
# args: (2,)
# args: (3,)
# args: (4,)
class Point:
    __match_args__ = ("x", "y")

    def __init__(self, x, y):
        self.x, self.y = x, y

class Other:
    pass

def f(which):
    v = [Point(0, 3), Point(4, 4), "text", 5, Other()][which]
    match v:
        case Point(0, y):
            return "axis", y
        case Point(x=x, y=y) if x == y:
            return "diagonal", x
        case str() as text:
            return text
        case int(n) | float(n):
            return "number", n
        case Point():
            return "point"
        case object(x=_):
            return "has x"
    return "other"

# ==== match with captures, values and alternatives
# args: ((1, "go", [2, 3]),)
# args: ((2, "stop", []),)
# args: ((9, 9, 9),)
class Color:
    RED = 1
    BLUE = 2

def f(v):
    match v:
        case (Color.RED as c, ("go" | "stop") as word, [*items]):
            return c, word, items
        case (Color.BLUE, str(word), []):
            return word
        case whole:
            return whole

# ==== match in a loop
# args: (fake.tensor([1], [1.]), [("add", 2.0), ("mul", 3.0), ("neg",), "noise"])
def f(x, program):
    for step in program:
        match step:
            case ("add", n):
                x = x + n
            case ("mul", n):
                x = x * n
            case ("neg",):
                x = -x
            case _:
                continue
    return x

# ==== match that raises
# args: ()
class Bad:
    __match_args__ = ("a",)

def f():
    try:
        match Bad():
            case Bad(1, 2):
                return "matched"
    except TypeError as e:
        return str(e)

# ==== deep nesting
# args: (fake.tensor([1], [1.]), 2)
def f(x, n):
    out = []
    for a in range(n):
        if a:
            for b in range(n):
                while b < 2:
                    b += 1
                    try:
                        if b == 1:
                            continue
                        for c in (a, b):
                            if c > 1:
                                break
                            out.append((a, b, c))
                        else:
                            out.append("inner else")
                    finally:
                        x = x + 1.0
        else:
            out.append("zero")
    return out, x

# ==== wide jumps
# args: (fake.tensor([1], [1.]), 3)
def f(x, n):
    total = 0
    for i in range(n):
        if i == 1:
            total = total + 1 + 2 + 3 + 4 + 5 + 6 + 7 + 8 + 9 + 10 + 11 + 12 + i
            total = total - i * 2 + i * 3 - i * 4 + i * 5 - i * 6 + i * 7 - i * 8
            total = total - i * 2 + i * 3 - i * 4 + i * 5 - i * 6 + i * 7 - i * 8
            total = total - i * 2 + i * 3 - i * 4 + i * 5 - i * 6 + i * 7 - i * 8
            total = total - i * 2 + i * 3 - i * 4 + i * 5 - i * 6 + i * 7 - i * 8
            total = total - i * 2 + i * 3 - i * 4 + i * 5 - i * 6 + i * 7 - i * 8
            total = total - i * 2 + i * 3 - i * 4 + i * 5 - i * 6 + i * 7 - i * 8
            total = total - i * 2 + i * 3 - i * 4 + i * 5 - i * 6 + i * 7 - i * 8
            total = total - i * 2 + i * 3 - i * 4 + i * 5 - i * 6 + i * 7 - i * 8
        else:
            total += 100
    return x + total, total

# ==== for targets of every form
# args: ([(1, (2, 3)), (4, (5, 6))],)
class A:
    pass

def f(pairs):
    a, d, l, out = A(), {}, [0, 0], []
    for a.x, (d["k"], l[0]) in pairs:
        out.append((a.x, d["k"], l[0]))
    for i, (x, *rest) in enumerate([(1, 2, 3), (4,)]):
        out.append((i, x, rest))
    for l[1] in range(3):
        pass
    return out, a.x, d, l, i

# ==== loops that change what they go over
# args: ([1, 2, 3], {"a": 1})
# expect: FJ407 FJ204
def f(values, d):
    out = []
    for v in values:
        out.append(v)
        if len(values) < 5:
            values.append(v * 10)
    for v in values[:]:
        values.remove(v)
    try:
        for k in d:
            d["new"] = 1
    except RuntimeError as e:
        out.append(str(e))
    return out, values, d

# ==== while with a walrus and try
# args: ([3, 2, 1, 0],)
def f(values):
    out = []
    while (v := values.pop()) is not None:
        try:
            out.append(6 / v)
        except ZeroDivisionError:
            continue
        else:
            if v == 3:
                break
    else:
        out.append("never")
    return out, v

# ==== early returns out of nested loops
# args: (3,)
# args: (9,)
def f(n):
    for i in range(4):
        for j in range(4):
            for k in range(4):
                if i + j + k == n:
                    return i, j, k
    return "none"

# ==== match with nested or-patterns and guards that write
# args: ([("a", 1), ("b", [2, 3]), ("c", {"x": 5, "y": 6}), 7],)
def f(items):
    seen, out = [], []
    for item in items:
        match item:
            case ("a" | "z", int(n)) if seen.append(n) or n > 0:
                out.append(n)
            case (str(name), [first, *rest]):
                out.append((name, first, rest))
            case (name, {"x": x, **others}):
                out.append((name, x, others))
            case int() | float() as number:
                out.append(number)
    return seen, out
