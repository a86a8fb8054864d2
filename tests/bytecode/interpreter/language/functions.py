# ruff: noqa
# Calls, functions made inside, closures, generators, imports, names.

# ==== calls of every form
# args: (1, (2, 3))
# args: (1, ())
def g(*args, **kwargs):
    return args, list(kwargs.items())

def f(a, rest):
    more = {"z": a}
    return (
        g(a, x=a),
        g(*rest, **more),
        g(a, *(3,), y=1, **more, w=5),
        g(**more),
        g(a, k=2 if a else 3),
        g(*rest, a),
        g(*rest, *rest, **{}),
        g(),
    )

# ==== parameters of every kind
# args: (1,)
def g(a, /, b=2, *c, d, e=5, **f):
    return a, b, c, d, e, sorted(f.items())

def f(n):
    return g(n, d=4), g(n, 3, 4, 5, d=6, e=7, z=8), g(n, d=1, a=2), g(*[1, 2], **{"d": 3})

# ==== calls that do not bind
# args: ()
def g(a, b, /, c, *, k):
    return a

def f():
    out = []
    for args, kwargs in [((), {}), ((1,), {}), ((1, 2, 3), {}), ((1, 2, 3, 4), {"k": 1}),
                         ((1, 2), {"c": 3, "k": 4, "z": 5}), ((1, 2), {"a": 1, "c": 2, "k": 3}),
                         ((1, 2, 3), {"k": 4})]:
        try:
            out.append(g(*args, **kwargs))
        except TypeError as e:
            out.append(str(e))
    return out

# ==== star arguments that cannot be
# args: ()
def g(**kwargs):
    return kwargs

def f():
    out = []
    try:
        g(*1)
    except TypeError as e:
        out.append(str(e))
    try:
        g(**1)
    except TypeError as e:
        out.append(str(e))
    try:
        g(**{"a": 1}, **{"a": 2})
    except TypeError as e:
        out.append(str(e))
    try:
        g(a=1, **{"a": 2})
    except TypeError as e:
        out.append(str(e))
    return out

# ==== methods
# args: (fake.tensor([2], [1., 2.]), "a,b")
class A:
    def __init__(self, n):
        self.n = n
    def m(self, by, *, plus=0):
        return self.n * by + plus
    @staticmethod
    def s(v):
        return v + 1
    @classmethod
    def c(cls, v):
        return cls.__name__, v
    @property
    def p(self):
        return self.n + 0.5

def f(x, text):
    a = A(3)
    m = a.m
    parts = text.split(",")
    parts.append("z".zfill(3))
    return (a.m(2), a.m(2, plus=1), m(1), A.m(a, 4), a.s(1), A.s(2), a.c(3), A.c(4), a.p,
            "-".join(s.upper() for s in parts), x.sum(), x.cos().sum())

# ==== recursion
# args: (fake.tensor([1], [1.]), 4)
def g(x, n):
    return x if n <= 0 else g(x * 2.0, n - 1) + n

def f(x, n):
    def fib(k):
        return k if k < 2 else fib(k - 1) + fib(k - 2)
    return g(x, n), fib(7)

# ==== local functions with defaults and annotations
# args: (2,)
def f(n):
    def g(a: int, b: "str" = n, *c: float, k: int = n + 1, **d) -> list:
        "Documented."
        return [a, b, c, k, d]
    n = 10
    return g(1), g(1, 2, 3, k=4, z=5), g.__doc__, g.__defaults__, g.__kwdefaults__, g.__name__

# ==== closures and nonlocal
# args: (3,)
def f(k):
    total = k
    def add(d):
        nonlocal total
        total += d
        return total
    add(1)
    total *= 3
    def outer():
        def inner():
            return total + k
        return inner
    k = 7
    return add(0), total, outer()()

# ==== a cell that is unbound
# args: (1,)
# args: (0,)
def f(flag):
    def get():
        return v
    if flag:
        v = 1
        get()
        del v
    try:
        return get()
    except NameError as e:
        return str(e)

# ==== a deleted cell
# args: (1,)
def f(flag):
    def get():
        return v
    v = flag
    del v
    out = []
    try:
        del v
    except NameError as e:
        out.append((type(e).__name__, str(e)))
    try:
        v
    except NameError as e:
        out.append((type(e).__name__, str(e)))
    v = 3
    return out, get()

# ==== argument cells
# args: (1,)
def f(n):
    def g(a, *b, d=4, **c):
        def get():
            return a, b, c, d
        a += 1
        b = b + (9,)
        c["k"] = a
        d = n
        n_ = lambda: n
        return get(), n_()
    n += 1
    return g(n), g(n, 2, 3, e=5)

# ==== unbound locals
# args: (0,)
# args: (1,)
# args: (2,)
def f(flag):
    if flag == 1:
        v = "v"
    elif flag == 2:
        v = 5
        del v
    try:
        return v
    except UnboundLocalError as e:
        return str(e)

# ==== del of an unbound local
# args: (0,)
# args: (1,)
def f(flag):
    if flag:
        v = 1
    try:
        del v
    except UnboundLocalError as e:
        return str(e)
    return "deleted"

# ==== closures in a loop
# args: (fake.tensor([1], [1.]), 3)
def f(x, n):
    fs = []
    for i in range(n):
        fs.append(lambda v, i=i: v * i)
        fs.append(lambda v: v + i)
    return [g(x) for g in fs]

# ==== decorators
# args: (fake.tensor([1], [1.]), 2)
import functools
def f(x, n):
    def twice(g):
        @functools.wraps(g)
        def wrapper(*args, **kwargs):
            return g(g(*args, **kwargs))
        return wrapper
    def scaled(by):
        def decorate(g):
            return lambda v: g(v) * by
        return decorate
    @scaled(n)
    @twice
    def step(v):
        return v + 1.0
    return step(x)

# ==== function attributes
# args: (2,)
def g(a, b=3):
    return a + b

def f(n):
    def h(v):
        return v
    h.tag = n
    h.tag += 1
    return h.tag, g.__name__, g.__defaults__, h.__qualname__, g(n)

# ==== global names
# args: (10,)
counter = 1
def f(n):
    global counter, made
    counter += n
    made = [counter]
    made.append(1)
    global gone
    gone = 1
    del gone
    try:
        gone
    except NameError as e:
        return counter, made, str(e)

# ==== del of a missing global
# args: ()
def f():
    global missing
    try:
        del missing
    except NameError as e:
        return str(e)

# ==== a name that is nowhere
# args: ()
def f():
    try:
        return undefined_name
    except NameError as e:
        return str(e)

# ==== a global that hides a builtin
# args: ([1, 2],)
def len(x):
    return "hidden"
def f(l):
    return len(l), sum(l)

# ==== imports
# args: (4,)
def f(n):
    import math
    import os.path
    import os.path as p
    from os.path import curdir, sep as s
    return math.sqrt(n), "a:b".replace(":", s), p is os.path, curdir

# ==== imports that fail
# args: ()
# expect: FJ201
def f():
    out = []
    try:
        import no_such_module_anywhere
    except ImportError as e:
        out.append(str(e))
    try:
        from math import no_such_name
    except ImportError as e:
        out.append(str(e).split("(")[0])
    return out

# ==== a generator consumed in the frame
# args: (fake.tensor([1], [1.]), 3)
def gen(n):
    for i in range(n):
        got = yield i
        if got:
            yield ("got", got)
    return "returned"

def f(x, n):
    out = [v for v in gen(n)]
    g = gen(n)
    out.append(next(g))
    out.append(g.send("sent"))
    for v in g:
        x = x + v
        out.append(v)
    try:
        next(g)
    except StopIteration as e:
        out.append(e.value)
    a, b, c = gen(3)
    return out, x, (a, b, c), list(gen(2)), sum(gen(4)), max(gen(2))

# ==== yield from
# args: (3,)
def inner(n):
    got = None
    for i in range(n):
        got = yield (i, got)
    return "inner"

def gen(n):
    r = yield from inner(n)
    yield r
    r = yield from [10, 20]
    yield r
    yield from (v for v in "ab")
    return "end"

def f(n):
    g = gen(n)
    out = [next(g), g.send("a"), g.send("b")]
    for v in g:
        out.append(v)
    return out, list(gen(1))

# ==== throw and close
# args: ()
log = []
def inner():
    try:
        yield "i1"
    except ValueError as e:
        yield "caught " + str(e)
    finally:
        log.append("inner done")
    return 5

def gen():
    try:
        r = yield from inner()
        yield r
        yield "last"
    except KeyError:
        log.append("key")
        yield "key"

def f():
    out = []
    g = gen()
    out.append(next(g))
    out.append(g.throw(ValueError("v")))
    out.append(next(g))
    try:
        g.throw(KeyError("k"))
    except KeyError:
        out.append("key left")
    out.append(list(g))
    g = gen()
    next(g)
    g.close()
    g.close()
    out.append(list(g))
    g = gen()
    try:
        g.throw(TypeError("t"))
    except TypeError as e:
        out.append(str(e))
    return out

# ==== yield from closed by an exception
# args: ()
log = []
def inner():
    try:
        while True:
            yield 1
    except GeneratorExit:
        log.append("exit")
        raise
    finally:
        log.append("finally")

def gen():
    yield from inner()

def f():
    g = gen()
    next(g)
    g.close()
    h = gen()
    next(h)
    try:
        h.throw(KeyError("x"))
    except KeyError as e:
        log.append(repr(e))
    return list(log)

# ==== throw that the delegate turns into a return
# args: ()
def inner():
    try:
        yield 1
    except ValueError:
        return "swallowed"

def gen():
    r = yield from inner()
    yield ("result", r)

def f():
    g = gen()
    return next(g), g.throw(ValueError("x")), list(g)

# ==== StopIteration inside a generator
# args: ()
def gen():
    yield 1
    raise StopIteration("inside")

def f():
    out = []
    try:
        for v in gen():
            out.append(v)
    except RuntimeError as e:
        out.append((str(e), repr(e.__cause__)))
    return out

# ==== a generator with try, with and locals
# args: (fake.tensor([1], [1.]),)
class M:
    def __enter__(self):
        return 5
    def __exit__(self, *e):
        return e[0] is ValueError

def gen(x):
    n = 0
    with M() as m:
        n += m
        yield x * n
        raise ValueError
    try:
        yield n
    finally:
        n += 1
    yield n

def f(x):
    return list(gen(x))

# ==== generator expressions that are sent around
# args: ([1, 2, 3],)
def f(values):
    g = (v * 2 for v in values)
    h = (v + 1 for v in g if v > 2)
    return next(h), list(h), list(g)

# ==== iterators
# args: ([1, 2, 3],)
class Count:
    def __init__(self, n):
        self.n = n
    def __iter__(self):
        return self
    def __next__(self):
        self.n -= 1
        if self.n < 0:
            raise StopIteration
        return self.n

def f(values):
    it = iter(values)
    a = next(it), next(it), next(it), next(it, "default")
    b = [v for v in Count(3)]
    c, *d = Count(4)
    return a, b, c, d, list(Count(2)), sum(Count(5))

# ==== iteration through __getitem__
# args: (2,)
class Items:
    def __getitem__(self, i):
        if i >= 2:
            raise IndexError
        return i * 10

def f(n):
    return [v for v in Items()], 10 in Items(), n

# ==== async functions are made, not run
# args: (1,)
def f(n):
    async def g():
        return n
    async def h():
        yield n
    return g.__name__, h.__name__, n

# ==== async functions that are run
# args: (1,)
# expect: FJ402 FJ201
def run(c):
    try:
        c.send(None)
    except StopIteration as e:
        return e.value

class M:
    async def __aenter__(self):
        return 3
    async def __aexit__(self, *e):
        return False

async def numbers(n):
    for i in range(n):
        yield i

async def add(a, b):
    return a + b

async def g(n):
    async with M() as m:
        n += m
    async for i in numbers(3):
        n += i
    values = [j async for j in numbers(2)]
    try:
        async for j in numbers(1):
            raise ValueError
    except ValueError:
        n += 1
    return await add(n, 1), values

def f(n):
    return run(g(n)), n + 1

# ==== partial, reduce and operators
# args: (fake.tensor([1], [2.]), [1, 2, 3])
import functools, operator, itertools
def g(a, b, c=0):
    return a * 100 + b * 10 + c

def f(x, values):
    p = functools.partial(g, 1, c=5)
    return (p(2), functools.reduce(operator.add, values), functools.reduce(lambda a, b: a * b, values, x),
            list(itertools.chain(values, [9])), operator.itemgetter(1)(values))

# ==== many locals
# args: (1,)
def f(a):
    b = a; c = b; d = c; e = d; g = e; h = g; i = h; j = i; k = j; l = k; m = l; n = m
    o = n; p = o; q = p; r = q; s = r; t = s; u = t; v = u; w = v; x = w; y = x; z = y
    a, b = b, a + 1
    t, u = u + 5, t
    w, x, y, z = z, y, x + 1, w
    t = u = v = w
    return a, b, t, u, v, w, x, y, z, [q for q in (r, s)]

# ==== global statement with a nested function
# args: (1,)
state = {"n": 0}
def f(n):
    def bump():
        global state
        state["n"] += n
        state = dict(state)
        return state["n"]
    return bump(), bump(), state

# ==== mutable defaults and late binding
# args: (1,)
def g(v, seen=[]):
    seen.append(v)
    return list(seen)

def f(n):
    def h(v, memo={}):
        memo[v] = memo.get(v, 0) + 1
        return dict(memo)
    return g(n), g(n + 1), h(1), h(1)

# ==== three levels of closures
# args: (fake.tensor([1], [1.]), 2)
def f(x, n):
    a = n
    def one():
        b = a + 1
        def two():
            nonlocal b
            b += 1
            def three(v):
                nonlocal b
                b += a
                return v * b
            return three
        return two(), lambda: b
    three, get = one()
    y = three(x)
    a = 100
    return y, get(), three(x), get()

# ==== recursion through a closure and mutual recursion
# args: (6,)
def f(n):
    def even(k):
        return True if k == 0 else odd(k - 1)
    def odd(k):
        return False if k == 0 else even(k - 1)
    fact = lambda k: 1 if k < 2 else k * fact(k - 1)
    return even(n), odd(n), fact(n)

# ==== a generator that recurses
# args: ([1, [2, [3, []], 4]],)
def walk(tree):
    for node in tree:
        if isinstance(node, list):
            yield from walk(node)
        else:
            yield node

def f(tree):
    return list(walk(tree)), sum(walk(tree))

# ==== generators as pipelines
# args: (fake.tensor([1], [1.]), 4)
def numbers(n):
    i = 0
    while i < n:
        received = yield i
        i = received if received is not None else i + 1

def scaled(source, x):
    for v in source:
        yield x * v

def pairs(source):
    while True:
        try:
            yield next(source), next(source)
        except StopIteration:
            return "exhausted"

def f(x, n):
    g = numbers(n)
    first = next(g), g.send(3)
    total = x
    for a, b in pairs(scaled(numbers(n), x)):
        total = total + a * b
    return first, total

# ==== an object with a generator as __iter__
# args: (3,)
class Tree:
    def __init__(self, *children):
        self.children = children
    def __iter__(self):
        yield self
        for child in self.children:
            yield from child
    def __len__(self):
        return sum(1 for _ in self)

def f(n):
    t = Tree(Tree(), Tree(Tree(), Tree()))
    a, *b = t
    return len(t), len(list(t)), a is t, len(b) + n, t in t

# ==== keyword arguments keep their order
# args: ({"z": 1, "a": 2},)
def g(**kw):
    return list(kw)

def f(d):
    return g(b=1, **d, c=3), g(**d, **{"q": 1}), g(**{}, x=0), dict(y=1, **d)

# ==== calls through every kind of callable
# args: (fake.tensor([1], [2.]), 3)
import functools, operator
class C:
    def __init__(self, n):
        self.n = n
    def __call__(self, v, *, k=1):
        return v * self.n + k
    @classmethod
    def make(cls, n):
        return cls(n)
    @staticmethod
    def twice(v):
        return v * 2

def plain(v):
    return v - 1.0

def f(x, n):
    fs = [C(n), C.make(2), C.twice, C(1).twice, plain, lambda v: v, functools.partial(plain), C(5).__call__, operator.neg]
    return [g(x) for g in fs], C(2)(x, k=n), [].__len__(), {}.get(n, n)

# ==== locals in a closure
# args: (3,)
def outer():
    free = 5
    def f(n):
        a = free + n
        return sorted(locals().items())
    return f
f = outer()
