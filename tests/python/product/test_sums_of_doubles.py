"""Sums and prefix sums of float64 are as exact as eager's, of few elements and of
many."""

import fractions

import pytest
import torch
from test_rows_in_loops import check

import framejit


@pytest.mark.parametrize("count", (1, 2, 3, 8, 15, 16, 17, 33, 1000))
@pytest.mark.parametrize("dim", (0, 1))
def test_their_error_is_at_most_twice_eagers(isa: str, count: int, dim: int) -> None:
    torch.manual_seed(count)
    x = torch.randn(count, 40, dtype=torch.float64) * 10 ** (
        torch.rand(count, 40, dtype=torch.float64) * 12
    )
    x = x if dim == 0 else x.t().contiguous()
    compiled = check(lambda x: (x.sum(dim), x.cumsum(dim)), [x], "cumsum")
    found = compiled(x)
    rows = (x.t() if dim == 0 else x).tolist()
    for place, row in enumerate(rows):
        exact = fractions.Fraction(0)
        size = fractions.Fraction(0)
        for at, number in enumerate(row):
            exact += fractions.Fraction(number)
            size += abs(fractions.Fraction(number))
            prefix = found[1][at, place] if dim == 0 else found[1][place, at]
            allowed = size * (at + 1) / 2**53
            assert abs(fractions.Fraction(prefix.item()) - exact) <= allowed
        allowed = size * min(count, 16) / 2**53
        assert abs(fractions.Fraction(found[0][place].item()) - exact) <= allowed


def test_windows() -> None:
    x = torch.rand(1000, dtype=torch.float64)
    for size in (2, 8, 16, 17):
        compiled = framejit.compile(lambda x, size=size: x.unfold(0, size, 2).sum(1))
        torch.testing.assert_close(
            compiled(x), x.unfold(0, size, 2).sum(1), rtol=1e-15, atol=1e-14
        )
