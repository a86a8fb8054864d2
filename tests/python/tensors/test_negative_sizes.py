"""A size computed of ints and sizes that becomes negative: eager's error, every time.

A capture for sizes where it is positive must not serve a call where it is not: memory
would be taken of it, and written beyond.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import framejit
from differential import BACKENDS, assert_same

OF_A_NUMBER = {
    "zeros": lambda x, n: (torch.zeros(n, 2).sum(), x + 1),
    "zeros shape": lambda x, n: (torch.zeros(n, 2).shape, x + 1),
    "full": lambda x, n: torch.full((n,), 7.0) * 2,
    "empty": lambda x, n: torch.empty(n, 3).shape,
    "new_zeros": lambda x, n: x.new_zeros(3, n).sum(0),
    "eye": lambda x, n: torch.eye(n) * 2,
    "arange": lambda x, n: torch.arange(n) + 1,
    "linspace": lambda x, n: torch.linspace(0, 1, n),
    "expand": lambda x, n: x[:1].expand(n).sum(),
    "expand both": lambda x, n: torch.ones(1, 1).expand(n, n) + 1,
    "repeat": lambda x, n: x[:1].repeat(n).sum(),
    "topk": lambda x, n: x.topk(n).values.shape,
    "narrow": lambda x, n: x.narrow(0, 1, n) + 1,
    "as_strided": lambda x, n: x.as_strided((2,), (n,)) + 1,
    "as_strided size": lambda x, n: x.as_strided((n,), (1,)) + 1,
    "offset": lambda x, n: x.as_strided((1,), (1,), n) + 1,
    "view": lambda x, n: x[:6].view(n, -1) + 1,
    "pad": lambda x, n: F.pad(x, (0, n)) + 1,
    "one more": lambda x, n: torch.zeros(n + 1).mean(),
    "cat": lambda x, n: torch.cat([x, torch.zeros(6 - n)]) * 2,
    "cat of two dims": lambda x, n: (
        torch.cat([torch.ones(4, 6), torch.zeros(4, 6 - n)], 1) * 2
    ),
    "split": lambda x, n: x.split([n, len(x) - n])[1] + 1,
    "unfold": lambda x, n: x.unfold(0, n, 1).sum(1),
    "chunked": lambda x, n: x[: n * 2].reshape(2, n) + 1,
    "interpolate": lambda x, n: F.interpolate(x.view(1, 1, -1), size=n) + 1,
    "roll and slice": lambda x, n: x.roll(n)[n:] + 1,
    "randn": lambda x, n: torch.randn(n, 2).shape,
    "numel": lambda x, n: torch.zeros(n, 3).numel() + x,
    "ones like": lambda x, n: torch.ones_like(x[:1].expand(n)) + 1,
}
OF_SIZES = {
    "pad to": lambda x, y: torch.cat([x, x.new_zeros(len(y) - len(x))]),
    "full to": lambda x, y: torch.cat([torch.full((len(y) - len(x),), 7.0), x * 2]),
    "difference": lambda x, y: torch.zeros(len(x) - len(y)).sum() + x,
    "both ways": lambda x, y: (y.new_zeros(len(x) - len(y) + 3), y.shape[0] - 1),
    "narrow": lambda x, y: x.narrow(0, 0, len(x) - len(y)) * 2,
    "reduced": lambda x, y: (torch.ones(len(x) - len(y)) + 1).sum(),
    "half": lambda x, y: x.new_ones((len(x) - len(y)) // 2).sum(),
    "convolution": lambda x, y: F.conv1d(x.view(1, 1, -1), y.view(1, 1, -1)) + 1,
    "pool": lambda x, y: F.max_pool1d(x.view(1, 1, -1), len(y)) + 1,
}


def outcome(f, *args):
    torch.manual_seed(0)
    try:
        return f(*args)
    except (RuntimeError, IndexError, ValueError, TypeError) as error:
        return type(error), str(error).splitlines()[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("use", OF_A_NUMBER)
def test_numbers(use, backend):
    f = OF_A_NUMBER[use]
    for dynamic in (None, True):
        for numbers in ((3, 5, 4, -1, 2, -3, 0, 7, 1), (-1, 2, 3, 5, -2, 4)):
            framejit.reset()
            compiled = framejit.compile(f, backend=backend, dynamic=dynamic)
            for n in numbers:
                x = torch.arange(1.0, 9.0)
                assert_same(outcome(f, x, n), outcome(compiled, x, n), f"{n}")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("use", OF_SIZES)
def test_sizes(use, backend):
    f = OF_SIZES[use]
    sizes = [(3, 8), (4, 9), (5, 11), (9, 6), (12, 2), (6, 6), (8, 3), (7, 5), (2, 9)]
    for order in (sizes, sizes[::-1]):
        for dynamic in (None, True):
            framejit.reset()
            compiled = framejit.compile(f, backend=backend, dynamic=dynamic)
            for n, m in order:
                args = torch.arange(1.0, n + 1), torch.arange(1.0, m + 1)
                assert_same(outcome(f, *args), outcome(compiled, *args), f"{n}, {m}")


def test_products_of_sizes():
    def f(n):
        return torch.ones(1, 1).expand(n, n).shape

    compiled = framejit.compile(f)
    for n in (3, 5, 2**40, 4):
        assert_same(outcome(f, n), outcome(compiled, n), f"{n}")
