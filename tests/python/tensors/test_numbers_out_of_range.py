"""A number that no element of the type can be: eager's error, result used or not."""

from __future__ import annotations

import itertools

import pytest
import torch

import framejit
from differential import BACKENDS, check

CALLS = {
    "masked_fill": lambda x: x.masked_fill(x > 0, 1e39),
    "masked_fill int": lambda x: x.int().masked_fill(x > 0, 2**40),
    "full": lambda x: torch.full((2,), 300, dtype=torch.uint8),
    "new_full": lambda x: x.new_full((2,), 1e39),
    "full_like": lambda x: torch.full_like(x, 1e39),
    "full_like half": lambda x: torch.full_like(x.half(), 1e6),
    "clamp": lambda x: x.clamp(max=1e39),
    "where": lambda x: torch.where(x > 0, x, 1e39),
    "pad": lambda x: torch.nn.functional.pad(x, (1, 1), value=1e39),
    "fill_": lambda x: (x * 1).fill_(1e39),
    "index_fill": lambda x: x.index_fill(0, torch.tensor([0]), 1e39),
    "scatter": lambda x: x.int().scatter(0, torch.tensor([0]), 2**40),
    "fraction to unsigned": lambda x: x.byte().masked_fill(x > 0, -0.25),
    "fill_ fraction": lambda x: x.byte().mul(1).fill_(-0.25),
    "full_like fraction": lambda x: torch.full_like(x.byte(), -0.25),
    "fraction to signed": lambda x: x.int().masked_fill(x > 0, -0.25),
    "beyond int64": lambda x: x.long().masked_fill(x > 0, 1e30),
    "nan to int": lambda x: torch.full_like(x.int(), float("nan")),
    "infinite": lambda x: x.masked_fill(x > 0, float("inf")),
    "nan": lambda x: torch.full_like(x, float("nan")),
    "in range": lambda x: x.masked_fill(x > 0, 3e38),
    "negative unsigned": lambda x: torch.full((2,), -1, dtype=torch.uint8),
}


@pytest.mark.parametrize("name", CALLS)
def test_unused_results(name):
    call = CALLS[name]

    def unused(x):
        try:
            call(x)
        except RuntimeError as error:
            return str(error)
        return x + 1

    def used(x):
        try:
            return call(x) * 1
        except RuntimeError as error:
            return str(error)

    check(unused, lambda: (torch.ones(2),))
    check(used, lambda: (torch.ones(2),))


# ---- numbers that are known at the call only

WRITES = {
    "fill_": lambda x, s: (x * 1).fill_(s),
    "item": lambda x, s: (x * 1).__setitem__(0, s),
    "item of a view": lambda x, s: (x * 1).view(-1).__setitem__(0, s),
    "masked item": lambda x, s: (x * 1).__setitem__(x > 0, s),
    "full_like": lambda x, s: torch.full_like(x, s),
    "new_full": lambda x, s: x.new_full((2,), s),
    "masked_fill": lambda x, s: x.masked_fill(x > 0, s),
    "index_fill": lambda x, s: x.index_fill(0, torch.tensor([0]), s),
    "clamp": lambda x, s: x.clamp(s),
    "where": lambda x, s: torch.where(x > 0, x, s),
    "pad": lambda x, s: torch.nn.functional.pad(x, (1, 1), value=s),
    "scatter": lambda x, s: x.scatter(0, torch.tensor([0]), s),
    "threshold": lambda x, s: torch.nn.functional.threshold(x, 0, s),
    "add": lambda x, s: x + s,
}
NUMBERS = {
    "floats": [2.5, 1.5, -2.0, 300.5, 1e39, -1e39, float("nan"), float("inf"), 7.0],
    "ints": [2, 3, -2, 300, 2**40, 5, -5],
}
TYPES = [torch.uint8, torch.int8, torch.int64, torch.half, torch.float, torch.double]


@pytest.mark.parametrize("used", [True, False])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("name", WRITES)
def test_numbers_that_change(name, numbers, used):
    def fn(x, number):
        result = WRITES[name](x, number)
        return (x + 1, result) if used else x + 1

    def outcome(call, *args):
        try:
            return str(call(*args))
        except RuntimeError as error:
            return str(error)

    for backend, dtype in itertools.product(BACKENDS, TYPES):
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        for number in NUMBERS[numbers]:
            args = torch.ones(2, dtype=dtype), number
            expected = outcome(fn, *args)
            assert outcome(compiled, *args) == expected, (backend, dtype, number)


# alpha, of a type that may not hold its negative, which is what eager adds.
SUBTRACTIONS = {
    "sub": lambda x, n: torch.sub(x, x, alpha=n),
    "sub_": lambda x, n: x.clone().sub_(x, alpha=n),
    "rsub": lambda x, n: torch.rsub(x, x * 2, alpha=n),
    "add": lambda x, n: torch.add(x, x, alpha=n),
}


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("factor", [-(2**63), 2**63 - 1, -(2**31), -1, 0])
@pytest.mark.parametrize("name", SUBTRACTIONS)
def test_factors_without_a_negative(name, factor, dynamic, backend):
    f = SUBTRACTIONS[name]
    for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.int32):
        framejit.reset()
        compiled = framejit.compile(f, backend=backend, dynamic=dynamic)
        for n in (3, 4, factor):
            x = torch.tensor([1, 2, 3]).to(dtype)
            try:
                expected = f(x, n)
            except RuntimeError:
                with pytest.raises(RuntimeError):
                    compiled(x, n)
                continue
            assert torch.equal(compiled(x, n), expected), (dtype, n)
