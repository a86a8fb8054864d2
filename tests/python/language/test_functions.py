"""Calls: inlining, closures, generators, classes, everything Python binds."""

import contextlib
import functools

import torch

import framejit
from differential import leaf, one, program, two

SCALE = 3.0
COUNTER = 0
TABLE = {"sin": torch.sin, "cos": torch.cos}


def helper(x, k=2.0, *rest, named=1, **more):
    return x * k + len(rest) + named + more.get("extra", 0)


def depth(x, n):
    return x if n == 0 else depth(x + n, n - 1)


def twice(fn):
    @functools.wraps(fn)
    def inner(*args, **kwargs):
        return fn(fn(*args, **kwargs), **kwargs)

    return inner


@twice
def decorated(x, by=2):
    return x * by


class Base:
    factor = 2.0

    def __init__(self, k):
        self.k = k

    def scale(self, x):
        return x * self.k

    @property
    def double(self):
        return self.k * 2

    @double.setter
    def double(self, value):
        self.k = value / 2

    @classmethod
    def make(cls, k):
        return cls(k)

    @staticmethod
    def plus(x, y):
        return x + y

    def __call__(self, x):
        return self.scale(x) * self.factor

    def __getitem__(self, i):
        return self.k + i

    def __add__(self, other):
        return type(self)(self.k + other)

    def __len__(self):
        return 3

    def __contains__(self, v):
        return v == self.k

    def __bool__(self):
        return self.k > 0

    def __eq__(self, other):
        return isinstance(other, Base) and self.k == other.k

    def __enter__(self):
        self.entered = True
        return self

    def __exit__(self, *exc):
        self.left = exc[0] is None


class Derived(Base):
    factor = 5.0

    def scale(self, x):
        return super().scale(x) + super(Derived, self).scale(x) * 0.5

    def __getattr__(self, name):
        if name.startswith("auto_"):
            return len(name)
        raise AttributeError(name)


@program(two)
def test_inline_with_all_kinds_of_arguments(x, y):
    return (
        helper(x),
        helper(y, 3, 4, 5),
        helper(x, named=2, extra=3),
        helper(*[x, 2], **{"extra": 1}),
    )


@program(one)
def test_global_read(x):
    return x * SCALE, TABLE["sin"](x)


def bump(x):
    global COUNTER
    COUNTER = COUNTER + 1
    return x + 1


@program(one)
def test_closure(x):
    scale = 2

    def inner(y):
        return y * scale + x

    scale = 3
    return inner(x)


@program(one)
def test_nonlocal(x):
    count = 0

    def step():
        nonlocal count, x
        count += 1
        x = x * count

    step()
    step()
    return x, count


@program(one)
def test_closure_returned(x):
    y = x * 2
    return x + 1, [lambda: 3][0]()


@program(leaf)
def test_recursion(x):
    return depth(x, 6)


@program(one)
def test_inner_recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    return x * fact(5)


@program(two)
def test_lambda_default_capture(x, y):
    fs = [lambda v, i=i: v * i for i in range(3)]
    gs = [lambda v: v * i for i in range(3)]
    return [f(x) for f in fs], [g(y) for g in gs]


@program(one)
def test_decorator(x):
    return decorated(x), decorated(x, by=3), decorated.__name__


@program(one)
def test_decorator_inside(x):
    @twice
    def inner(v):
        return v + 1

    return inner(x)


@program(one)
def test_partial(x):
    f = functools.partial(helper, k=4, named=2)
    g = functools.partial(f, extra=1)
    h = functools.partial(torch.add, alpha=2)
    return f(x), g(x, k=1), h(x, x)


@program(
    lambda: (
        torch.randn(3),
        functools.partial(helper, named=5),
        lambda v: v * 2,
        Base(2).scale,
    ),
    graphs=None,
)
def test_callables_in(x, p, f, method):
    return p(x), f(x), method(x)


@program(one)
def test_reduce_and_star_map(x):
    return functools.reduce(lambda a, b: a * b, [x, x, 2]), [
        helper(*a) for a in [(x,), (x, 3)]
    ]


@program(one)
def test_generator_consumed(x):
    def numbers(n):
        for i in range(n):
            yield i

    def chained():
        yield x
        got = yield from numbers(3)
        return got

    return list(chained()), sum(n for n in numbers(4)), tuple(i * x for i in numbers(2))


@program(one)
def test_generator_send(x):
    def accumulate():
        total = x
        while True:
            v = yield total
            if v is None:
                return
            total = total + v

    g = accumulate()
    next(g)
    g.send(1)
    out = g.send(2)
    g.close()
    return out


@program(one)
def test_generator_return_value(x):
    def inner():
        yield 1
        return 5

    def outer():
        v = yield from inner()
        yield v

    return [x * v for v in outer()]


@program(one)
def test_context_manager_generator(x):
    log = []

    @contextlib.contextmanager
    def scope(name):
        log.append("in " + name)
        try:
            yield name
        finally:
            log.append("out " + name)

    with scope("a") as a, scope("b"):
        x = x + len(a)
    return x, log


@program(lambda: (torch.randn(3), Base(3.0)))
def test_methods_and_properties(x, b):
    b.double = 8
    return (
        b.scale(x),
        b(x),
        b.double,
        Base.plus(x, 1),
        b.plus(x, 2),
        b[4],
        len(b),
        4.0 in b,
        bool(b),
    )


@program(lambda: (torch.randn(3), Derived(3.0)))
def test_super_and_getattr(x, d):
    return (
        d.scale(x),
        d(x),
        d.auto_x,
        getattr(d, "none", 7),
        isinstance(d, Base),
        d.factor,
    )


@program(one)
def test_class_used_inside(x):
    d = Derived.make(2.0)
    e = d + 1
    with e as entered:
        x = e(x)
    return x, type(e).__name__, e == Base(3.0), e.left, entered is e


@program(one, graphs=None, breaks=None)
def test_class_made_inside(x):
    class Local(Base):
        factor = 4.0

        def scale(self, x):
            return super().scale(x) + 1

    return Local(2.0)(x)


@program(two)
def test_keyword_only_and_positional_only(x, y):
    def f(a, /, b, *, c, d=4):
        return a * b + c * d

    return f(x, y, c=2), f(x, b=y, c=1, d=3)


def defaults(x, items=None, scale=2, *, bias=1):
    items = items if items is not None else []
    items.append(x * scale + bias)
    return items


@program(one)
def test_mutable_default(x):
    return defaults(x), defaults(x, [1]), defaults(x, bias=3)


@program(lambda: (torch.randn(3), TABLE, "cos"), graphs=None)
def test_function_from_table(x, table, name):
    return table[name](x)


@program(one)
def test_function_attributes(x):
    def f(v):
        return v * f.scale

    f.scale = 3
    return f(x), f.__name__


@program(two)
def test_map_over_tensors(x, y):
    return (
        list(map(torch.sin, [x, y])),
        list(map(lambda a, b: a - b, [x], [y])),
        sorted([3, 1], key=lambda v: -v),
    )


@program(one, graphs=2, breaks=1)
def test_lru_cache(x):
    @functools.lru_cache
    def size(n):
        return n * 2

    return x * size(3) + size(3)


@program(one)
def test_function_returned_and_called(x):
    def make(k):
        def inner(v):
            return v * k

        return inner

    return make(2)(make(3)(x))


@program(one, graphs=None, breaks=None)
def test_function_escapes(x):
    y = x * 2

    def f():
        return y

    return f().sum(), y


@program(one)
def test_varargs_passed_on(x):
    def outer(*args, **kwargs):
        return inner(*args, **kwargs)

    def inner(a, b=1, *args, c=2, **kwargs):
        return a * b + c + len(args) + len(kwargs)

    return outer(x), outer(x, 2, 3, c=5, d=6)


@program(one)
def test_locals_and_dunder_names(x):
    def f(a):
        return a

    return (
        x + f.__code__.co_argcount,
        f.__doc__,
        type(x).__name__,
        Derived.__mro__[1].__name__,
    )


@program(lambda: (torch.randn(3), Base(2.0)))
def test_operators_of_classes(x, b):
    c = b + 3
    return x * c.k, c == Base(5.0), c != b, not b


def documented(p):
    """Of the inner function."""
    return p


def test_a_returned_wrapper_has_everything_of_the_wrapped():
    def decorate(fn, n):
        @functools.wraps(fn)
        def wrapper(*args, **kwargs):
            "Replaced."
            return fn(*args, **kwargs) + n

        def other():
            pass

        other.__doc__ = "given"
        wrapper.count = n
        return wrapper, other

    def looks(fn):
        return fn.__doc__, fn.__name__, fn.__qualname__, fn.__module__, vars(fn)

    compiled = framejit.compile(decorate, backend="eager")
    for n in (1, 2):
        for mine, theirs in zip(compiled(documented, n), decorate(documented, n)):
            assert looks(mine) == looks(theirs)
