"""`round(x, n)` of a float that is another at each call is one entry, and CPython's
number: of the decimals that the float is exactly, halves to even."""

from __future__ import annotations

import math
import random
from typing import Any

import pytest
import torch

import framejit


def numbers() -> list[float]:
    draw = random.Random(7)
    found = [0.5, 1.5, 2.5, 2.675, 1.005, 0.125, 0.375, -0.0, 0.0, 1e22, 1e16, 123456.5]
    found += [1e300, -1e300, 5e-324, 2.2250738585072014e-308, 0.1 + 0.2, 1 / 3, 1e-7]
    found += [math.inf, -math.inf, math.nan]
    found += [draw.uniform(-10, 10) for _ in range(60)]
    found += [draw.uniform(-1, 1) * 10.0 ** draw.randint(-30, 30) for _ in range(60)]
    found += [draw.randint(-(10**6), 10**6) / 1000 + 0.0005 for _ in range(60)]
    return found


DIGITS: list[int | None] = [0, 1, 2, 3, 5, 15, 22, 300, 301, 400, -1, -3, -400, None]


def same(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return math.isnan(a) and math.isnan(b) or a.hex() == b.hex()
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("digits", DIGITS)
def test_every_number(digits: int | None) -> None:
    def fn(x: Any, v: float) -> Any:
        return x + 1, round(v, digits)

    def outcome(function: Any, v: float) -> Any:
        try:
            return function(torch.ones(1), v)[1]
        except (OverflowError, ValueError) as error:
            return type(error), str(error)

    compiled = framejit.compile(fn)
    for number in numbers():
        expected = outcome(fn, number)
        assert same(outcome(compiled, number), expected), (number, expected)


def test_one_entry_for_all() -> None:
    kept: list[float] = []

    def step(x: Any) -> Any:
        loss = (x * 2).sum()
        kept.append(round(loss.item(), 4))
        return x + 1

    compiled = framejit.compile(step)
    before = framejit.counters()["compiles"]
    for number in range(40):
        compiled(torch.full((3,), number / 7))
    assert framejit.counters()["compiles"] - before <= 4
    assert kept == [
        round((torch.full((3,), n / 7) * 2).sum().item(), 4) for n in range(40)
    ]


def test_what_the_number_of_digits_is() -> None:
    def fn(x: Any, v: float, n: Any) -> Any:
        return x + 1, round(v, n)

    class Index:
        def __index__(self) -> int:
            return 2

    compiled = framejit.compile(fn)
    for digits in (2, 3, True, Index(), 2, None, 4):
        expected = fn(torch.ones(1), 2.34567, digits)[1]
        assert same(compiled(torch.ones(1), 2.34567, digits)[1], expected)
    for wrong in ("2", 2.0):
        with pytest.raises(TypeError):
            compiled(torch.ones(1), 2.34567, wrong)
