"""functools.lru_cache: after a call its counters, what it holds and what it will
forget next are as eager leaves them."""

from __future__ import annotations

import functools

import pytest
import torch

import framejit

SCALE = [2]


def cached(maxsize, typed, called):
    @functools.lru_cache(maxsize=maxsize, typed=typed)
    def function(key, *, step=0):
        if called is not None:
            called.append(key)  # an effect: CPython runs it
        return key * 2 + step

    return function


def calls_all(x, h, keys):
    r = [h(key) for key in keys]
    return x + 1, r


def between_operations(x, h, keys):
    y = x + 1
    for key in keys:
        y = y * h(key)
    return y, h.cache_info().hits


def clears(x, h, keys):
    h(keys[0])
    h.cache_clear()
    return x * h(keys[1]), h.cache_info()


def by_name(x, h, keys):
    return x + h(keys[0], step=3), h(keys[0], step=3), h(key=keys[1]), h(keys[0])


def unhashable(x, h, keys):
    try:
        h([keys])
    except TypeError as error:
        return x + 1, str(error)


@pytest.mark.parametrize("typed", [False, True])
@pytest.mark.parametrize("maxsize", [2, 3, None, 0])
@pytest.mark.parametrize("effect", [False, True])
@pytest.mark.parametrize(
    "fn", [calls_all, between_operations, clears, by_name, unhashable]
)
def test_counters_and_eviction(fn, maxsize, typed, effect):
    for keys in ([1, 2, 3, 1], [1, 1.0, True, 1], [1, 2, 1, 3, 2, 1]):
        called: list[list[int]] = [[], []]
        eager, other = (cached(maxsize, typed, c if effect else None) for c in called)
        compiled = framejit.compile(fn)
        x = torch.ones(2)
        for _ in range(4):
            expected, actual = fn(x, eager, keys), compiled(x, other, keys)
            assert repr(actual) == repr(expected), keys
            assert other.cache_info() == eager.cache_info(), keys
            assert called[0] == called[1]
        # What is still held, and in which order it goes.
        for key in (*keys, 7, *keys, 8, *keys):
            assert eager(key) == other(key)
            assert other.cache_info() == eager.cache_info()


class Owner:
    def __init__(self):
        self.factor = 3

    @functools.lru_cache(maxsize=2)  # noqa: B019
    def scaled(self, key):
        return key * self.factor


def test_a_method():
    def f(x, owner):
        return x * owner.scaled(2) + owner.scaled(3) + owner.scaled(2)

    compiled = framejit.compile(f)
    seen = []
    for fn in (f, compiled):
        Owner.scaled.cache_clear()
        owner = Owner()
        seen.append(
            [
                (fn(torch.ones(2), owner).tolist(), Owner.scaled.cache_info())
                for _ in "abc"
            ]
        )
    assert seen[0] == seen[1]


def make_nested():
    @functools.lru_cache
    def inner(key):
        return key + SCALE[0]

    @functools.cache
    def outer(key):
        return inner(key) * inner(key + 1)

    @functools.lru_cache
    def refuses(key):
        if key > 2:
            raise ValueError(key)
        return key

    return inner, outer, refuses


def test_nested_and_stale():
    def f(x, outer, inner):
        return x * outer(1) + inner(2)

    seen = []
    for wrap in (lambda fn: fn, framejit.compile):
        inner, outer, _ = make_nested()
        fn = wrap(f)
        steps = []
        for scale in (2, 5, 7):
            SCALE[0] = scale  # what is held stays
            for _ in range(2):
                result = fn(torch.ones(2), outer, inner).tolist()
                steps.append((result, inner.cache_info(), outer.cache_info()))
        inner.cache_clear()
        steps.append((fn(torch.ones(2), outer, inner).tolist(), inner.cache_info()))
        seen.append(steps)
    SCALE[0] = 2
    assert seen[0] == seen[1]


def test_a_call_that_raises_counts():
    def f(x, refuses, key):
        try:
            return x + refuses(key)
        except ValueError:
            return x - 1

    seen = []
    for wrap in (lambda fn: fn, framejit.compile):
        refuses = make_nested()[2]
        fn = wrap(f)
        seen.append(
            [
                (fn(torch.ones(2), refuses, key).tolist(), refuses.cache_info())
                for key in (1, 3, 1, 3, 2)
            ]
        )
    assert seen[0] == seen[1]


def test_by_name_of_what_is_held():
    """The result is the one that was kept, though another would be made now."""

    @functools.lru_cache
    def scaled(*, key):
        return key * SCALE[0]

    def f(x):
        return x + scaled(key=4)

    SCALE[0] = 2
    scaled(key=4)
    SCALE[0] = 10
    compiled = framejit.compile(f)
    assert compiled(torch.ones(2)).tolist() == [9, 9]
    SCALE[0] = 2


def test_a_cache_keeps_a_graph_whole():
    scaled = make_nested()[0]

    def f(x):
        return x * scaled(1) + scaled(2) + scaled(1)

    compiled = framejit.compile(f, fullgraph=True)
    for _ in range(3):
        assert compiled(torch.ones(2)).tolist() == f(torch.ones(2)).tolist()
    assert scaled.cache_info()[:2] == (16, 2)
