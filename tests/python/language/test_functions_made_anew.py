"""Functions that are made anew for each call: an entry serves all that are equal in
what it relies on, and none that are not.

Each program is called with functions that come from one `def` again and again, and
with others in between, and must do what plain Python does.
"""

from __future__ import annotations

import functools
import types
from typing import Any

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same
from framejit import _C

# ---- makers: number of the call -> function


def plain(i):
    return lambda t: t + 1


def over_number(i):
    k = float(i % 3)
    return lambda t: t * k


def over_tensor(i):
    w = torch.full((3,), float(i))
    return lambda t: t * w


def over_list(i):
    items = [1.0] * (i % 4)
    return lambda t: t + len(items)


def over_function(i):
    inner = over_number(i)
    return lambda t: inner(t) + 1


def with_default(i):
    return lambda t, k=float(i % 3): t - k


def with_keyword_default(i):
    def g(t, *, k=float(i % 3)):
        return t - k

    if i % 5 == 4:
        g.__kwdefaults__ = {"k": 9.0}
    return g


def of_two_codes(i):
    return (lambda t: t.sin()) if i % 2 else (lambda t: t.cos())


def other_code(i):
    g = plain(i)
    if i % 3 == 2:
        g.__code__ = (lambda t: t * 10).__code__
    return g


def other_globals(i):
    def g(t):
        return t * SCALE  # noqa: F821

    return types.FunctionType(g.__code__, {"SCALE": float(i % 3)}, "g")


def marked(i):
    g = over_number(i)
    return framejit.disable(g) if i % 3 == 2 else g


def with_attribute(i):
    g = over_number(i)
    if i % 2:
        g.extra = float(i)
    return g


def counting(i):
    count = 0

    def g(t):
        nonlocal count
        count += 1
        return t + count

    return g


def renamed(i):
    g = plain(i)
    if i % 3 == 2:
        g.__name__ = g.__qualname__ = "other"
    return g


def generator(i):
    k = i % 3

    def g(t):
        yield t
        yield t * k

    return g


MAKERS = [
    plain,
    over_number,
    over_tensor,
    over_list,
    over_function,
    with_default,
    with_keyword_default,
    of_two_codes,
    other_code,
    other_globals,
    marked,
    with_attribute,
    counting,
    renamed,
    generator,
]
KEPT = plain(0)
SEEN: dict[Any, int] = {}


def result_of(fn, x):
    y = fn(x)
    return sum(y) if isinstance(y, types.GeneratorType) else y


# ---- programs: (x, function) -> result


def calls(x, fn):
    return result_of(fn, x.sin()).cos()


def calls_behind_a_break(x, fn):
    y = x.sin()
    framejit.graph_break()
    return result_of(fn, y).cos()


def makes_and_breaks(x, fn):
    g = lambda t: result_of(fn, t) + 1  # noqa: E731
    framejit.graph_break()
    return g(x)


def passes_on(x, fn):
    def inner(t, f):
        return result_of(f, t) * 2

    return inner(x, fn)


def returns(x, fn):
    return result_of(fn, x), fn


def stores(x, fn):
    box = types.SimpleNamespace()
    box.fn = fn
    return result_of(box.fn, x)


def in_a_list(x, fn):
    for f in [fn, fn]:
        x = result_of(f, x)
    return x


def starred(x, fn):
    def inner(*fns):
        return [result_of(f, x) for f in fns]

    return inner(fn, KEPT)


def is_kept(x, fn):
    return x + 1 if fn is KEPT else result_of(fn, x)


def equals_kept(x, fn):
    return x + 1 if fn == KEPT or fn in (KEPT, None) else result_of(fn, x)


def as_key(x, fn):
    return x + {fn: 1, KEPT: 2}[fn], len({fn, KEPT})


def by_name(x, fn):
    return result_of(fn, x), fn.__name__, fn.__defaults__, callable(fn)


def by_attribute(x, fn):
    return result_of(fn, x) + getattr(fn, "extra", 0)


def in_a_partial(x, fn):
    return result_of(functools.partial(fn), x)


def truth(x, fn):
    return result_of(fn, x) if fn and fn is not None else x


@functools.lru_cache
def number_of(fn):
    return SEEN.setdefault(fn, len(SEEN))


def cached(x, fn):
    return x + (number_of(fn) == number_of(KEPT)), result_of(fn, x)


def mapped(x, fn):
    return [result_of(y, x) if callable(y) else y for y in map(lambda f: f, [fn])]


def as_default(x, fn):
    def inner(t, f=fn):
        return result_of(f, t)

    return inner(x)


PROGRAMS = [
    calls,
    calls_behind_a_break,
    makes_and_breaks,
    passes_on,
    returns,
    stores,
    in_a_list,
    starred,
    is_kept,
    equals_kept,
    as_key,
    by_name,
    by_attribute,
    in_a_partial,
    truth,
    cached,
    mapped,
    as_default,
]


@pytest.fixture(params=["0", "1"], ids=["", "verified"])
def verify(request):
    _C.set_option("verify", request.param)
    yield
    _C.set_option("verify", "0")


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_each_call_gets_its_own_function(program, maker, verify):
    compiled = framejit.compile(program, backend="aot_eager")
    x = torch.linspace(0, 1, 3)
    for i in range(8):
        if i in (3, 6):
            got, want = compiled(x, KEPT), program(x, KEPT)
            assert_same(want, got, f"{i}, kept")
        fn, other = maker(i), maker(i)
        got, want = compiled(x, fn), program(x, other)
        if program is returns:
            assert got[1] is fn and want[1] is other
        assert_same(want, got, f"call {i}")


def compiles(compiled, make_args, calls=12):
    before = _C.counters()["compiles"]
    for i in range(calls):
        compiled(*make_args(i))
    return _C.counters()["compiles"] - before


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "maker, expected", [(plain, 2), (over_number, 4), (over_tensor, 2)]
)
def test_an_entry_serves_all_functions_of_a_code(maker, expected, backend):
    compiled = framejit.compile(calls, backend=backend, dynamic=False)
    x = torch.ones(3)
    assert compiles(compiled, lambda i: (x, maker(i))) <= expected


def test_the_rest_of_a_function_that_makes_one():
    @framejit.compile
    def f(x):
        g = lambda t: t + 1  # noqa: E731
        framejit.graph_break()
        return g(x)

    x = torch.ones(3)
    assert compiles(f, lambda i: (x,)) <= 3


def test_a_function_that_stays_is_guarded_by_identity():
    compiled = framejit.compile(calls)
    for n in (3, 4, 5):  # compiled twice
        compiled(torch.ones(n), KEPT)
    (entry, *_) = framejit.inspect(compiled)
    lines = [line for line in entry.guard_lines() if line.startswith("fn is ")]
    assert len(lines) == 1, entry.guard_lines()


def test_different_ones_in_turn():
    def step(x, call):
        return call(x) * 2

    compiled = framejit.compile(step, backend="eager")
    before = framejit.counters()["compiles"]
    x = torch.ones(3)
    for i in range(12):
        for call in (lambda t: t + 1, lambda t: t - 3, lambda t, i=i: t * i):
            torch.testing.assert_close(compiled(x, call), step(x, call))
    # Once each by identity, once by its parts, once with a symbolic default.
    assert framejit.counters()["compiles"] - before <= 8


def test_two_at_once():
    def both(x, f, g):
        return f(x) + g(x), f is g

    compiled = framejit.compile(both, backend="aot_eager")
    x = torch.ones(3)
    for i in range(10):
        f, g = over_number(i), over_number(i + (i > 5))
        if i % 4 == 3:
            g = f
        assert_same(both(x, f, g), compiled(x, f, g), f"call {i}")


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_and_transforms_run_the_function_of_the_call(backend):
    def hooked(x, fn):
        y = x * 2
        y.register_hook(fn)
        return y.sum()

    def transformed(x, fn):
        return torch.func.grad(lambda t: fn(t).sum())(x), torch.vmap(fn)(x)

    for program in (hooked, transformed):
        framejit.reset()
        compiled = framejit.compile(program, backend=backend)
        for i in range(6):
            found = []
            for run, fn in ((program, over_number(i)), (compiled, over_number(i))):
                x = torch.linspace(0, 1, 3).requires_grad_()
                y = run(x, fn)
                if program is hooked:
                    y.backward()
                found.append((y, x.grad))
            assert_same(*found, f"{program.__name__} {i}")
