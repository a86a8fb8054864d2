"""The standard library inside a compiled function.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import contextlib
import contextvars
import functools
import itertools
import logging
import math
import operator
import types
import warnings

import pytest
import torch

from differential import check, leaf, one, program

# ---- functools


@functools.lru_cache(maxsize=None)
def slow_square(n):
    return n * n


@functools.cache
def cached_add(a, b=1):
    return a + b


@program(one)
def test_lru_cache(x):
    return x * slow_square(3) + cached_add(2) + cached_add(2, b=3), slow_square(3)


class WithCached:
    def __init__(self, n):
        self.n = n
        self.calls = 0

    @functools.cached_property
    def heavy(self):
        self.calls += 1
        return self.n * 10

    @functools.lru_cache
    def method(self, k):
        return self.n + k


@program(lambda: (torch.randn(3), WithCached(2)))
def test_cached_property(x, obj):
    return x * obj.heavy + obj.heavy, obj.calls, WithCached(4).heavy


@program(lambda: (torch.randn(3), WithCached(2)), graphs=None, breaks=None)
def test_lru_cache_on_method(x, obj):
    return x * obj.method(3)


@functools.singledispatch
def describe(value):
    return "other"


@describe.register
def _(value: int):
    return "int"


@describe.register(list)
def _(value):
    return "list"


@describe.register(torch.Tensor)
def _(value):
    return value * 2


@program(one)
def test_singledispatch(x):
    return describe(x), describe(3), describe([1]), describe("s"), describe(True)


class WithDispatchMethod:
    @functools.singledispatchmethod
    def go(self, v):
        return "other"

    @go.register
    def _(self, v: int):
        return "int"


@program(lambda: (torch.randn(3), WithDispatchMethod()))
def test_singledispatchmethod(x, obj):
    return x * 2, obj.go(3), obj.go("a")


def scaled(v, k, plus=0):
    return v * k + plus


@program(one)
def test_partial(x):
    f = functools.partial(scaled, k=3)
    g = functools.partial(f, plus=1)
    h = functools.partial(scaled, x, 2)
    return f(x), g(x), g(x, plus=5), h(), f.func is scaled, f.keywords, h.args[1]


PARTIAL = functools.partial(scaled, k=4)


@program(lambda: (torch.randn(3), functools.partial(scaled, k=2, plus=3)))
def test_partial_input_and_global(x, p):
    return p(x), PARTIAL(x), p(x, plus=1)


@program(one, graphs=0, breaks=0)
def test_partial_escapes(x):
    return functools.partial(scaled, x, k=2)


class WithPartialMethod:
    def base(self, v, k):
        return v * k

    twice = functools.partialmethod(base, k=2)


@program(lambda: (torch.randn(3), WithPartialMethod()))
def test_partialmethod(x, obj):
    return obj.twice(x)


@program(one)
def test_reduce_and_wraps(x):
    def deco(f):
        @functools.wraps(f)
        def inner(*a):
            return f(*a) + 1

        return inner

    @deco
    def double(v):
        "doc"
        return v * 2

    return (
        functools.reduce(operator.add, [x, x, x]),
        functools.reduce(lambda a, b: a * b, [1, 2, 3], x),
        double(x),
        double.__name__,
        double.__doc__,
        double.__wrapped__(x),
    )


@program(one, graphs=None, breaks=None)
def test_total_ordering_and_cmp_to_key(x):
    @functools.total_ordering
    class V:
        def __init__(self, n):
            self.n = n

        def __eq__(self, o):
            return self.n == o.n

        def __lt__(self, o):
            return self.n < o.n

    return (
        x * 2,
        V(1) <= V(2),
        V(1) >= V(2),
        sorted([3, 1], key=functools.cmp_to_key(lambda a, b: a - b)),
    )


# ---- itertools


@program(one)
def test_itertools_finite(x):
    it = itertools
    return (
        x * 2,
        list(it.chain([1], (2, 3), "a")),
        list(it.chain.from_iterable([[1], [2]])),
        list(it.product([1, 2], "ab")),
        list(it.product([0, 1], repeat=2)),
        list(it.permutations([1, 2, 3], 2)),
        list(it.combinations([1, 2, 3], 2)),
        list(it.combinations_with_replacement([1, 2], 2)),
        list(it.zip_longest([1, 2], [3], fillvalue=0)),
        list(it.islice(range(10), 2, 8, 2)),
        list(it.accumulate([1, 2, 3])),
        list(it.accumulate([1, 2, 3], lambda a, b: a * b, initial=2)),
        list(it.takewhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(it.dropwhile(lambda v: v < 3, [1, 2, 3, 1])),
        list(it.filterfalse(lambda v: v % 2, range(5))),
        list(it.compress("abc", [1, 0, 1])),
        list(it.starmap(lambda a, b: a * b, [(1, 2), (3, 4)])),
        list(it.pairwise([1, 2, 3])),
        [(k, list(g)) for k, g in it.groupby([1, 1, 2, 1])],
        [(k, len(list(g))) for k, g in it.groupby(["aa", "b", "cc"], key=len)],
        list(it.repeat(5, 2)),
    )


@program(one)
def test_itertools_infinite(x):
    c = itertools.count(1, 2)
    a, b = next(c), next(c)
    cy = itertools.cycle("ab")
    r = itertools.repeat(x)
    out = [next(cy) for _ in range(3)]
    for i, v in zip(range(2), r):
        x = x + v * i
    return x, a, b, out, [n for n, _ in zip(itertools.count(), "abc")]


@program(one)
def test_itertools_tee(x):
    a, b = itertools.tee([1, 2, 3])
    next(a)
    return x * next(a), list(b), list(a)


@program(one)
def test_itertools_over_tensors(x):
    parts = [x, x + 1, x + 2]
    total = sum(a * b for a, b in itertools.combinations(parts, 2))
    runs = list(itertools.accumulate(parts))
    return total, runs, [p for p in itertools.chain(parts, [x])][3]


# ---- operator and math


@program(
    lambda: (torch.randn(3), types.SimpleNamespace(a=types.SimpleNamespace(b=2), c=3))
)
def test_operator_getters(x, ns):
    get = operator.itemgetter(1)
    many = operator.itemgetter("a", "b")
    attr = operator.attrgetter("a.b")
    attrs = operator.attrgetter("c", "a.b")
    method = operator.methodcaller("upper")
    scaled_ = operator.methodcaller("mul", 3)
    return (
        x * get([1, 2]),
        many({"a": 1, "b": 2}),
        attr(ns),
        attrs(ns),
        method("q"),
        scaled_(x),
        sorted([(1, 2), (0, 5)], key=operator.itemgetter(1)),
        max([ns], key=operator.attrgetter("c")) is ns,
    )


@program(one)
def test_operator_functions(x):
    o = operator
    xs = [1, 2]
    o.setitem(xs, 0, 5)
    ys = o.iadd(xs, [3])
    o.delitem(xs, 1)
    return (
        o.add(x, 1),
        o.mul(x, x),
        o.neg(x),
        o.matmul(x, x),
        o.truediv(6, 4),
        o.floordiv(7, 2),
        o.mod(7, 4),
        o.pow(2, 3),
        o.eq(1, 1),
        o.lt(1, 2),
        o.not_(0),
        o.truth([1]),
        o.is_(None, None),
        o.is_not(1, None),
        o.contains([1], 1),
        o.getitem({"a": 1}, "a"),
        o.index(3),
        o.concat([1], [2]),
        o.countOf([1, 1], 1),
        o.indexOf([4, 5], 5),
        o.length_hint([1, 2]),
        o.and_(6, 3),
        o.xor(6, 3),
        o.lshift(1, 3),
        o.inv(5),
        o.abs(-3),
        o.call(lambda v: v + 1, 2),
        xs,
        ys is xs,
    )


@program(one)
def test_math(x):
    m = math
    return (
        x * m.pi,
        m.sqrt(4),
        m.ceil(1.2),
        m.floor(-1.2),
        m.log(8, 2),
        m.log2(8),
        m.exp(0),
        m.gcd(12, 18),
        m.lcm(4, 6),
        m.prod([1, 2, 3]),
        m.isclose(0.1 + 0.2, 0.3),
        m.isnan(m.nan),
        m.isinf(m.inf),
        m.factorial(5),
        m.comb(5, 2),
        m.hypot(3, 4),
        m.fsum([0.1] * 3),
        m.copysign(1, -2),
        m.trunc(2.7),
        m.modf(2.5),
        m.frexp(8.0),
        m.degrees(m.pi),
        m.atan2(1, 1),
        m.dist([1, 2], [3, 4]),
        m.isqrt(17),
        m.erf(0.5),
        m.fmod(5, 3),
        m.tau,
    )


@program(lambda: (torch.randn(3, 4),))
def test_math_on_shapes(x):
    n = x.shape[-1]
    return (
        x / math.sqrt(n),
        math.ceil(n / 3),
        math.log2(x.size(0)),
        math.prod(x.shape),
        n**-0.5,
    )


# ---- contextlib, contextvars


@contextlib.contextmanager
def tracked(log, name):
    log.append("+" + name)
    try:
        yield name
    except KeyError:
        log.append("caught")
    finally:
        log.append("-" + name)


@program(one)
def test_contextmanager(x):
    log = []
    with tracked(log, "a") as a, tracked(log, "b"):
        y = x * len(a)
    with tracked(log, "c"):
        raise KeyError("k")
    return y, log


@program(one)
def test_contextlib_managers(x):
    log = []
    with contextlib.nullcontext(3) as n:
        y = x * n
    with contextlib.suppress(KeyError, IndexError):
        log.append("in")
        [][1]  # noqa: B018
        log.append("never")
    with contextlib.ExitStack() as stack:
        stack.enter_context(tracked(log, "s"))
        stack.callback(log.append, "cb")
        z = y + 1
    with contextlib.closing(contextlib.ExitStack()) as c:
        log.append(type(c).__name__)
    return y, z, log


@program(one)
def test_contextmanager_as_decorator(x):
    log = []

    @tracked(log, "d")
    def f(v):
        log.append("f")
        return v * 2

    return f(x), f(x), log


class Managed(contextlib.AbstractContextManager):
    def __exit__(self, *a):
        return None


@program(leaf)
def test_managers_and_grad(x):
    cm = torch.no_grad() if x.shape[0] > 100 else contextlib.nullcontext()
    with cm, Managed() as m:
        y = x * 2
    with torch.set_grad_enabled(False), contextlib.ExitStack() as stack:
        stack.enter_context(torch.enable_grad())
        z = x * 3
    return y, z, isinstance(m, Managed)


VAR = contextvars.ContextVar("VAR", default=3)
VAR2 = contextvars.ContextVar("VAR2")


@program(one)
def test_context_var(x):
    a = VAR.get()
    token = VAR.set(5)
    b = VAR.get()
    VAR.reset(token)
    c = VAR.get()
    return x * a + b, c, VAR2.get(None), VAR2.get("d"), VAR.name


# ---- generators that are dropped


@program(lambda: (torch.randn(3), []))
def test_generator_left_suspended(x, log):
    def gen():
        try:
            yield x * 2
            yield x * 3
        finally:
            log.append("closed")

    g = gen()
    return next(g) + 1


@program(lambda: (torch.randn(3), []))
def test_generator_dropped(x, log):
    def gen():
        with tracked(log, "g"):
            for i in range(5):
                yield x * i

    out = [a * v for a, v in zip([1, 2], gen())]
    log.append("between")
    g = gen()
    out.append(next(g))
    g = None
    log.append("end")
    return out


# ---- effects


@program(one)
def test_print_of_constants(x):
    print("a", 1, sep="-", end="")
    y = x * 2
    print("shape", x.shape, end="")
    return y


@program(one, graphs=None, breaks=None)
def test_warnings(x):
    y = x * 2
    with warnings.catch_warnings(record=True):
        pass
    return y


@program(one, graphs=None, breaks=None)
def test_warn(x):
    warnings.warn("careful", stacklevel=2)
    return x * 2


@program(one)
def test_logging_disabled(x):
    logger = logging.getLogger("framejit.test.quiet")
    logger.debug("value %s", x.shape)
    if logger.isEnabledFor(logging.DEBUG):
        x = x + 1
    return x * 2


LOGGER = logging.getLogger("framejit.test.loud")


@program(one)
def test_logging_warning(x):
    y = x * 2
    LOGGER.debug("not shown")
    LOGGER.info("not shown either")
    return y + 1


# ---- types


@program(one)
def test_types(x):
    ns = types.SimpleNamespace(a=1, b=x)
    ns.c = 3
    ro = types.MappingProxyType({"k": 2})
    m = types.MethodType(lambda self, v: v * self.a, ns)
    return (
        ns.b * ns.c,
        ro["k"],
        "k" in ro,
        list(ro),
        m(x),
        isinstance(m, types.MethodType),
        isinstance(tracked, types.FunctionType),
    )


@program(one)
def test_string_module_and_re(x):
    import re
    import string

    m = re.match(r"(\w+)\.(\d+)", "layer.12")
    return (
        x * int(m.group(2)),
        m.group(1),
        string.ascii_lowercase[:3],
        re.sub("a", "b", "banana"),
        re.findall(r"\d", "a1b2"),
        bool(re.search("z", "abc")),
        re.split(",", "a,b"),
        re.compile("a+").fullmatch("aaa").span(),
    )


@program(one, graphs=None, breaks=None)
def test_random_and_time_free(x):
    import bisect
    import heapq
    import json

    h = [3, 1, 2]
    heapq.heapify(h)
    heapq.heappush(h, 0)
    return (
        x * heapq.heappop(h),
        bisect.bisect([1, 2, 3], 2),
        h,
        json.dumps({"a": [1, 2]}),
        heapq.nlargest(2, [1, 3, 2]),
    )


@program(one)
def test_fractions_and_statistics(x):
    import statistics
    from fractions import Fraction

    return x * float(Fraction(1, 2) + Fraction(1, 4)), statistics.mean([1, 2, 3])


# ---- torch.masked: its helpers make a class at every call


@pytest.mark.parametrize(
    "name",
    "sum prod mean median amax argmin norm var softmax logsumexp cumsum normalize".split(),
)
def test_masked(name):
    function = getattr(torch.masked, name)
    order = (2.0,) if name in ("norm", "normalize") else ()

    def f(x, mask):
        return function(x, *order, 1, mask=mask)

    def make():
        return torch.randn(3, 4), torch.tensor([True, False, True, True]).expand(3, 4)

    check(f, make, breaks=0)
