# ruff: noqa
# Operators, containers, comprehensions, formatting, subscripts, unpacking.

# ==== binary operators
# args: (7, 3)
# args: (7.5, 2)
def f(a, b):
    return a + b, a - b, a * b, a / b, a // b, a % b, a**b, divmod(a, b)

# ==== integer operators
# args: (12, 5)
def f(a, b):
    return a & b, a | b, a ^ b, a << b, a >> 1, ~a, -a, +a, not a

# ==== in-place operators
# args: (7, 3, [1], fake.tensor([2], [1., 2.]))
def f(a, b, items, x):
    same = items
    a += b
    a -= 1
    a *= b
    a //= 2
    a **= 2
    a %= 50
    a <<= 2
    a >>= 1
    a &= 255
    a |= 1
    a ^= 3
    c = a
    c /= 2
    items += [2]
    items *= 2
    x = x + a
    y = x
    y -= 1.0
    return a, c, items is same, x, y

# ==== operator protocol of a class
# args: (2, 3)
class V:
    def __init__(self, n):
        self.n = n
    def __add__(self, o):
        return V(self.n + o.n) if isinstance(o, V) else NotImplemented
    def __radd__(self, o):
        return V(o - self.n)
    def __iadd__(self, o):
        self.n += 100
        return self
    def __matmul__(self, o):
        return self.n * 10 + o.n
    def __neg__(self):
        return V(-self.n)
    def __pos__(self):
        return V(+self.n)
    def __invert__(self):
        return ~self.n
    def __lt__(self, o):
        return self.n < o.n
    def __eq__(self, o):
        return self.n == o.n
    def __bool__(self):
        return self.n > 2
    def __getitem__(self, k):
        return (self.n, k)
    def __setitem__(self, k, v):
        self.n = (k, v)
    def __delitem__(self, k):
        self.n = ("deleted", k)
    def __contains__(self, k):
        return k == 1
    def __len__(self):
        return 5
    def __call__(self, *a, **k):
        return a, k

def f(a, b):
    v, w = V(a), V(b)
    out = [(v + w).n, (1 + v).n, v @ w, (-v).n, (+v).n, ~v, v < w, v > w, v == w, v != w]
    out += ["true" if v else "false", not w, v[1], v[1:2], 1 in v, 2 not in v, len(v)]
    out.append(v(1, k=2))
    u = v
    u += w
    out.append((u is v, v.n))
    v[3] = 4
    out.append(v.n)
    v[1:2] = 5
    out.append(str(v.n))
    del v[7]
    out.append(v.n)
    return out

# ==== tensors in operators
# args: (fake.tensor([2], [1., 2.]), fake.tensor([2], [3., 4.]))
def f(x, y):
    z = x + y * 2.0 - x
    z = 1.0 + z
    return z, -z, x * y

# ==== list, tuple, set and dict displays
# args: (fake.tensor([1], [1.]), 2)
def f(x, n):
    a = [n, x, "s"]
    b = (n, a)
    c = {n, 3, n}
    d = {"a": n, n: x}
    e = {"const": 1, "keys": n, "three": a}
    return a, b, sorted(c), d, e, [], (), {}, set(), [[n], [n]]

# ==== displays with stars
# args: ([1, 2], (3, 4), {"k": 5})
def f(a, b, d):
    s = {*a, *b}
    return [*a, 0, *b], (*b, *a), sorted(s), {**d, "z": 1, **{"k": 6}}, [*d], [*range(3)]

# ==== display of a long constant
# args: ()
def f():
    a = [1, 2, 3, 4, 5]
    b = {1, 2, 3, 4}
    c = (1, (2, 3), "x")
    a.append(6)
    b.add(5)
    return a, sorted(b), c

# ==== list comprehensions
# args: (fake.tensor([2], [1., 2.]), [1, 2, 3])
def f(x, values):
    n = 10
    a = [v * n for v in values if v > 1]
    b = [(i, j) for i in values for j in range(i) if j]
    c = [x * v for v in values]
    d = [[q + z for q in range(2)] for z in range(2)]
    return a, b, c, d, n

# ==== set and dict comprehensions
# args: ([1, 2, 3],)
def f(values):
    a = {v % 2 for v in values}
    b = {v: v * v for v in values if v != 2}
    c = {str(k): [k] * k for k in values}
    return sorted(a), b, c

# ==== a comprehension keeps the name outside
# args: (3,)
def f(n):
    x = "keep"
    a = [x for x in range(n)]
    b = [lambda: x for x in range(2)]
    return x, a, [g() for g in b]

# ==== a name a comprehension does not bind
# args: (2,)
def f(n):
    a = [z for z in range(n)]
    try:
        return a, z
    except NameError as e:
        return a, str(e)

# ==== a comprehension that raises restores the name
# args: (2,)
def f(n):
    x = "keep"
    try:
        return [4 // x for x in range(n, -1, -1)]
    except ZeroDivisionError:
        return x

# ==== comprehensions over cells
# args: (3,)
def f(n):
    def inner():
        return n
    a = [inner() + i for i in range(n)]
    n = 5
    b = [(lambda k=i: k + n)() for i in range(2)]
    return a, b, inner()

# ==== comprehension in a comprehension's condition
# args: ([1, 2, 3, 4],)
def f(values):
    return [v for v in values if v in [w * 2 for w in values] and any(u == v for u in values)]

# ==== generator expressions
# args: (fake.tensor([1], [1.]), [1, 2, 3])
def f(x, values):
    a = sum(v * 2 for v in values)
    b = list(x * v for v in values)
    c = any(v > 2 for v in values), all(v > 0 for v in values)
    d = tuple(i for i in range(3) if i)
    e = dict((k, v) for k, v in zip("abc", values))
    f = max((v for v in values), key=lambda v: -v)
    g = "".join(str(v) for v in values)
    h = next(v for v in values if v > 1)
    return a, b, c, d, e, f, g, h

# ==== f-strings
# args: (3.14159, "x", 5)
def f(a, b, n):
    return (
        f"{a:.2f} {b!r:>{n}} {b} {a!s}" + f"{b}",
        f"{n:05d}|{n!a}|{b:^7}|{{}}",
        f"{'nested ' + f'{n}'}",
        f"{n=} {a=:.1f}",
        f"",
        f"{n}",
        f"{n!r}",
        f"{n:x}",
    )

# ==== old formatting and methods of str
# args: ("a", 3)
def f(s, n):
    return "%s %d %5.2f" % (s, n, n / 2), "{} {n}".format(s, n=n), s * n, s.upper() + ",".join([s, s])

# ==== formatting of shapes
# args: (fake.tensor([2, 3], [1., 2., 3., 4., 5., 6.]),)
def f(x):
    return f"{x.shape[0]}x{x.shape[1]}", x.ndim, str(x.shape[1])

# ==== subscripts
# args: ([3, 1, 2, 5],)
def f(values):
    values[0] = values[1] + values[-1]
    values[1:2] = [7, 8]
    values[2] += 5
    del values[0]
    a = values[1:], values[:-1], values[:], values[::-1], values[1:3:2]
    del values[1:2]
    values[len(values):] = [1, 1]
    return values, a

# ==== slices of tuples and strings
# args: ((1, 2, 3, 4), "text", 2)
def f(t, s, n):
    return t[n:], t[:n], t[-n:], s[n:], s[::-1], s[n], t[slice(1, 3)], slice(n, None)

# ==== slices stored with names
# args: ([1, 2, 3, 4, 5], 1, 3)
def f(l, i, j):
    l[i:j] = [l[i:j]]
    m = list(l)
    m[i:] = ()
    m[:0] = [9]
    return l, m

# ==== subscripts of dicts
# args: ({"a": 1, "b": {"c": 2}},)
def f(d):
    d["n"] = d["a"] + 1
    d["b"]["c"] += 5
    del d["a"]
    d["l"] = []
    d["l"].append(d["b"]["c"])
    return d, d.get("zz"), "b" in d

# ==== errors of subscripts
# args: ([1], {"k": 1})
def f(l, d):
    out = []
    for step in range(5):
        try:
            if step == 0:
                l[5]
            elif step == 1:
                d["missing"]
            elif step == 2:
                l["x"]
            elif step == 3:
                t = 1
                t[0]
            else:
                del d["missing"]
        except (IndexError, KeyError, TypeError) as e:
            out.append((type(e).__name__, str(e)))
    return out

# ==== unpacking
# args: (1, [2, 3], (4, 5, 6))
def f(a, b, c):
    x, y = b
    (p, q), r = (a, x), [y]
    first, *rest = c
    *most, last = c
    one, *middle, two = range(5)
    [u, v] = "uv"
    x, y = y, x
    i = j = k = a
    l, (m, *n) = 1, (2, 3, 4)
    return x, y, p, q, r, first, rest, most, last, one, middle, two, u, v, i, j, k, l, m, n

# ==== unpacking that fails
# args: ()
def f():
    out = []
    for v in ([1], [1, 2, 3], 5, [1, 2]):
        try:
            a, b = v
            out.append((a, b))
        except (ValueError, TypeError) as e:
            out.append(str(e))
    for v in ([1], [], [1, 2]):
        try:
            a, *b, c = v
            out.append((a, b, c))
        except ValueError as e:
            out.append(str(e))
    return out

# ==== attributes and subscripts as targets
# args: ()
class A:
    pass

def f():
    a = A()
    a.l = [0, 0, 0]
    a.x, a.l[1] = 1, 2
    for a.i in range(3):
        a.l[0] += a.i
    (a.y, *a.l[2:]) = 7, 8, 9
    a.x += 5
    return a.x, a.y, a.l, a.i

# ==== del of every target
# args: ({"k": 1, "z": 2}, [1, 2, 3])
class A:
    pass

def f(d, l):
    a = A()
    a.x, a.y = 1, 2
    b = c = 3
    del a.x, d["k"], l[0], b
    del l[:1], (c)
    try:
        return b
    except UnboundLocalError as e:
        return str(e), vars(a), d, l

# ==== evaluation order
# args: ()
log = []
def t(v):
    log.append(v)
    return v

def f():
    a = [t(1), t(2)][t(0)]
    d = {t("k"): t("v"), t("l"): t("w")}
    t([1, 2])[t(0)] = t(5)
    x = t(1) + t(2) * t(3)
    y = t(1) < t(0) < t(9)
    z = t(0) or t(4) and t(6)
    return a, d, x, y, z

# ==== names with many constants
# args: (2,)
def f(n):
    return [None, True, False, ..., 1, -1, 2.5, 1j, "s", b"b", (1, 2), frozenset({1}) if n else 0, 10**20]

# ==== lambdas
# args: (fake.tensor([1], [2.]), 3)
def f(x, n):
    g = lambda a, b=n, *c, k=4, **d: (a, b, c, k, sorted(d))
    h = lambda: x * n
    return g(1), g(1, 2, 3, k=5, z=6), h(), (lambda v: v + 1)(n), sorted([3, 1, 2], key=lambda v: -v)

# ==== subscripts with stars and tuples
# args: ((1, 2),)
class K:
    def __getitem__(self, key):
        return key

def f(t):
    k = K()
    return k[1, 2], k[*t], k[0, *t, 3], k[1:2, ...], k[:, None], k[t], k[()]

# ==== augmented assignment reads its target once
# args: ({"k": 1},)
log = []
def t(v):
    log.append(v)
    return v

class A:
    n = 1

def f(d):
    a = A()
    t(a).n += t(2)
    t(d)["k"] += t(3)
    l = [1, 2, 3]
    l[t(1)] *= t(5)
    l[t(0):t(1)] += [t(9)]
    A.n += 10
    return a.n, d, l, A.n

# ==== nested comprehensions with conditions
# args: ([[1, 2], [3, 4]],)
def f(rows):
    flat = [v for row in rows for v in row if v % 2 == 0 if v > 1]
    turned = [[row[i] for row in rows] for i in range(2)]
    table = {i: {j: rows[i][j] for j in range(2) if j >= i} for i in range(2)}
    sets = sorted({v for row in rows for v in {*row}})
    calls = [g() for g in [lambda r=r: sum(r) for r in rows]]
    late = [g() for g in [lambda: r for r in rows]]
    return flat, turned, table, sets, calls, late

# ==== comprehension that shadows arguments and cells
# args: (1, 2)
def f(a, b):
    get = lambda: (a, b)
    x = [a for a in range(3)]
    y = {b: a for b in range(2)}
    z = [[b for b in range(a)] for a in range(3)]
    w = [(lambda: a)() for a in "pq"]
    return a, b, x, y, z, w, get()

# ==== conditional expressions with calls and awkward values
# args: (0.0, "", [0])
def f(a, b, c):
    return a or b or c, a and b and c, [a, b, c][bool(c)], (not a) + (not b) + (not c), None or 0 or "" or ()

# ==== integers of every size
# args: (2**70, -7, True)
def f(big, n, flag):
    return big + 1, big * big % 97, n // 2, n % 3, -n ** 2, (-n) ** 0.5, flag + 1, flag & True, big >> 60, 1 << 80, ~n

# ==== strings
# args: ("Hello, World", 3)
def f(s, n):
    parts = [p.strip().lower() for p in s.split(",")]
    return parts, s[::2], s[-n:], s * n, "lo" in s, s.find("o"), "{:>8}|{:<{}}".format(parts[0], parts[1], n + 5), s.replace("l", "L", 1), "%s-%03d" % (s[0], n), s < "I", s.partition(",")[2]
