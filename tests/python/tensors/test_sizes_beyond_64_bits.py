"""Sizes, strides and offsets computed from the program's integers, which have no room.

A step of a slice is multiplied with a stride, a number of repetitions with a size: the
product is of 64 bits in torch, and its value is known at the call only.
"""

from __future__ import annotations

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same

HUGE = [2**31, 2**40, 2**61 + 1, 2**62 - 1, 2**62, 2**62 + 1, 2**63 - 1]
NUMBERS = [2, 3, *HUGE, 5, -1, -(2**62), -(2**63)]


def written(x, n):
    x[::n] += 1
    return x.clone()


USES = {
    "rows": lambda x, n: x[::n] * 2,
    "columns": lambda x, n: x[:, ::n].sum(),
    "view": lambda x, n: (x[::n], x * n),
    "offset": lambda x, n: x[n - 1 :: n].cos(),
    "end": lambda x, n: x[:n] + x[n:].sum(),
    "both": lambda x, n: x[:: n // 2, ::n] + 1,
    "written": written,
    "as_strided": lambda x, n: x.as_strided((1, 2), (n, 1)) + 1,
    "expand": lambda x, n: x[:1, :1].expand(n, 1)[:2] + 1,
    "narrow": lambda x, n: x.narrow(0, 0, n) + 1,
    "new_empty": lambda x, n: x.new_empty((0, n)) + 1,
    "new_zeros": lambda x, n: x.new_zeros((n, n, 0)).sum(),
    "arange": lambda x, n: torch.arange(n, n + 3),
    "roll": lambda x, n: x.roll(n, 0) + 1,
}
LAYOUTS = {
    "contiguous": lambda: torch.arange(24.0).view(4, 6),
    "transposed": lambda: torch.arange(40.0).view(4, 10).t(),
    "of one row": lambda: torch.arange(3.0).view(1, 3),
    "empty": lambda: torch.ones(0, 3),
}


def outcome(f, make, n):
    x = make()
    try:
        return f(x, n), x
    except (RuntimeError, IndexError, ValueError, OverflowError) as error:
        return type(error), str(error).splitlines()[0], x


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("use", USES)
def test_numbers_that_change(use, backend):
    for numbers in (NUMBERS, NUMBERS[::-1]):
        compiled = framejit.compile(USES[use], dynamic=True, backend=backend)
        for n in numbers:
            for name, make in LAYOUTS.items():
                wanted, actual = outcome(USES[use], make, n), outcome(compiled, make, n)
                assert_same(wanted, actual, f"{n}, {name}")
