"""Numbers that are computed from numbers again and again: expressions of which each
has all before it in it. They are evaluated, guarded and told once, whatever their
size as a tree is."""

from __future__ import annotations

import logging
import math
import random

import pytest
import torch

import framejit


def newton(t, a):
    x = a
    for _ in range(10):
        x = 0.5 * (x + a / x)
    return t * x


def adam(t, g):
    m = v = 0.0
    p = 1.0
    for k in range(1, 12):
        m = 0.9 * m + 0.1 * g
        v = 0.999 * v + 0.001 * g * g
        p = p - 0.01 * (m / (1 - 0.9**k)) / ((v / (1 - 0.999**k)) ** 0.5 + 1e-8)
    return t * p


def logistic(t, x):
    for _ in range(10):
        x = 3.7 * x * (1 - x)
    return t * x


def branches(t, x):
    total = 0.0
    for _ in range(6):
        x = x * x - 0.5
        total = total + x if x > 0 else total - x
        if total > 3 or (x < -0.4 and total < 1):
            total = total * 0.5
    return t + total


def powers(t, x):
    for _ in range(12):
        x = x + x
    return t * x, x


def fibonacci(t, a):
    a, b = a, a + 1
    for _ in range(20):
        a, b = b, a + b
    return t.new_zeros(2) + a % 97, b


def returns(t, *rewards):
    run, out = 0.0, []
    for x in reversed(rewards):
        run = x + 0.99 * run
        out.append(run)
    return torch.tensor(out[::-1], dtype=torch.float64) + t.sum()


def normalised(t, *xs):
    mean = sum(xs) / len(xs)
    deviation = (sum((x - mean) ** 2 for x in xs) / len(xs)) ** 0.5
    return torch.tensor([(x - mean) / deviation for x in xs]) + t[0]


ONE = [newton, adam, logistic, branches, powers]
MANY = [returns, normalised]


def outcome(function, *args):
    try:
        return repr(function(torch.ones(2), *args))
    except (ZeroDivisionError, OverflowError, RuntimeError) as error:
        return repr(error)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("function", ONE, ids=lambda f: f.__name__)
def test_of_one_number(function, backend, dynamic):
    draw = random.Random(3)
    compiled = framejit.compile(function, backend=backend, dynamic=dynamic)
    special = [0.0, -0.0, math.inf, math.nan, 1e308, 1e-310, -1.0, 3]
    for x in [draw.uniform(-2, 2) for _ in range(25)] + special:
        assert outcome(compiled, x) == outcome(function, x), x


@pytest.mark.parametrize("dynamic", [None, True])
def test_of_integers(dynamic):
    compiled = framejit.compile(fibonacci, dynamic=dynamic)
    for n in (1, 2, 3, 5, 1000, 2**40, 2**62, -7):
        assert outcome(compiled, n) == outcome(fibonacci, n), n


@pytest.mark.parametrize("count", [2, 17, 40])
@pytest.mark.parametrize("function", MANY, ids=lambda f: f.__name__)
def test_of_many_numbers(function, count):
    draw = random.Random(4)
    compiled = framejit.compile(function)
    for _ in range(12):
        xs = [draw.random() for _ in range(count)]
        assert outcome(compiled, *xs) == outcome(function, *xs)


def test_what_is_said_stays_short(caplog):
    compiled = framejit.compile(newton)
    with caplog.at_level(logging.WARNING, logger="framejit"):
        for i in range(30):
            compiled(torch.ones(2), 2.0 + i)
    said = [record.getMessage() for record in caplog.records]
    assert any("recompile_limit" in text for text in said)
    assert max(map(len, said)) < 800
