"""Symbolic integers near the ends of 64 bits, under every operator and number that a
program may put beside them: the value is Python's, whatever its size."""

from __future__ import annotations

import operator
from typing import Any

import pytest
import torch

import framejit

LIMITS = [
    5, 7, 9, 2**31, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1, 2**63, 2**64, 0, 1, -1,
    -5, -(2**31), -(2**62), -(2**62) - 1, -(2**63) + 1, -(2**63), -(2**63) - 1,
]  # fmt: skip
BESIDE = [
    1,
    -1,
    2,
    -2,
    3,
    -7,
    2**31,
    -(2**31) - 1,
    2**62,
    -(2**62),
    2**63 - 1,
    -(2**63),
]
OPERATORS = {
    "//": operator.floordiv,
    "%": operator.mod,
    "divmod": divmod,
    "*": operator.mul,
    "+": operator.add,
    "-": operator.sub,
    "min": min,
    "max": max,
    "<": operator.lt,
    "==": operator.eq,
    "nested": lambda n, c: (n // c) // 2 + (n % c) * 3 - (-n) // c,
    "sum": lambda n, c: ((7 & 10) - (n + n)) // c,
    "reversed": lambda n, c: (c // n, c % n) if n else 0,
    "abs": lambda n, c: abs(n) % c + abs(-n // c),
}


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize("dynamic", [None, True])
def test_at_every_size(name: str, dynamic: bool | None) -> None:
    operation: Any = OPERATORS[name]
    for beside in BESIDE:
        framejit.reset()

        def fn(x: Any, n: int, beside: int = beside) -> Any:
            return x + 1, operation(n, beside)

        compiled = framejit.compile(fn, dynamic=dynamic, recompile_limit=64)
        for n in LIMITS:
            got = compiled(torch.ones(1), n)[1]
            assert got == operation(n, beside), (n, beside)
            assert type(got) is type(operation(n, beside))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(
    "number", [153307835428503554, 2**60 + 2**36 + 1, 2**53 + 1, 2**24 + 1]
)
def test_beside_a_tensor_they_are_rounded_once(number: int, dtype: torch.dtype) -> None:
    programs = [
        lambda x, n: x * n,
        lambda x, n: x + n,
        lambda x, n: x - n,
        lambda x, n: n / x,
        lambda x, n: torch.where(x > 0, n, x),
        lambda x, n: torch.full_like(x, n),
        lambda x, n: x.clamp(min=n),
        lambda x, n: x.masked_fill(x > 0, n),
    ]
    x = torch.ones(19, dtype=dtype)
    for sign in (1, -1):
        constant = sign * number
        for program in programs:
            literal = framejit.compile(lambda x, p=program, c=constant: p(x, c))
            symbolic = framejit.compile(program, dynamic=True)
            expected = program(x, constant)
            assert torch.equal(literal(x), expected)
            assert torch.equal(symbolic(x, constant), expected)
