"""Rows that become columns: blocks of elements of every width, and ATen's copy where
their number is a symbol."""

import pytest
import torch

import framejit

SIZES = [(64, 64), (48, 80), (33, 130), (17, 24), (16, 9), (128, 20), (1, 40), (0, 16)]
DTYPES = [
    torch.float32,
    torch.bfloat16,
    torch.float16,
    torch.float64,
    torch.int64,
    torch.int32,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def copied(x, y):
    return x.t().contiguous()


def joined(x, y):
    return torch.where(y > 0, x.t(), y)


def widened(x, y):
    return x.t().float() * 2 + y.float()


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("function", [copied, joined, widened])
def test_rows_become_columns(function, dtype, dynamic):
    compiled = framejit.compile(function, dynamic=dynamic, recompile_limit=64)
    for size in SIZES:
        x = (torch.randn(size) * 20).to(dtype)
        y = (torch.randn(size[::-1]) * 20).to(dtype)
        wanted, got = function(x, y), compiled(x, y)
        assert torch.equal(wanted, got), size
        assert (wanted.dtype, wanted.stride()) == (got.dtype, got.stride())


def test_a_copy_of_symbols_is_atens():
    compiled = framejit.compile(copied, dynamic=True)
    x = torch.randn(32, 48)
    assert torch.equal(compiled(x, x), x.t())
    (entry,) = framejit.inspect(compiled)
    assert any("whose number is not known" in line for line in entry.not_lowered)
