"""Elements that lie backwards or apart in memory, and those that many points
store to: eager's values, and none of them a call of ATen."""

from __future__ import annotations

import pytest
import torch

import framejit
from tests.python.product.test_rows_in_loops import nodes_of

SIZES = (1000, 100, 17, 16, 7, 1, 0)
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
DTYPES = (*FLOATS, *INTEGERS, torch.bool)

pytestmark = pytest.mark.usefixtures("isa")


def numbers(dtype: torch.dtype, *sizes: int) -> torch.Tensor:
    torch.manual_seed(sum(sizes))
    return (torch.randn(sizes, dtype=torch.float64) * 50).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_flips_are_read_backwards(dtype: torch.dtype) -> None:
    @framejit.compile(dynamic=True)
    def flipped(x: torch.Tensor, wide: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return x.flip(0), wide.flip(1), wide.flip(0, 1), wide.flip(0) == wide

    for size in SIZES:
        x, wide = numbers(dtype, size), numbers(dtype, 3, size)
        ours = flipped(x, wide)
        eager = x.flip(0), wide.flip(1), wide.flip(0, 1), wide.flip(0) == wide
        for a, b in zip(ours, eager, strict=True):
            assert torch.equal(a, b) and a.stride() == b.stride(), size
        if size == SIZES[0]:
            loops, calls = nodes_of(flipped)
            assert "aten.flip" in loops and "aten.flip" not in calls


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_elements_apart(dtype: torch.dtype) -> None:
    @framejit.compile
    def apart(x: torch.Tensor, at: torch.Tensor) -> tuple[torch.Tensor, ...]:
        # The last element of a storage is read where it is its first, too.
        return x[::3] == x[1::3], x[at], x.view(-1, 3).t().contiguous()

    for size in (3, 48, 51, 999):
        x = numbers(dtype, size)
        at = torch.arange(size).flip(0)
        for a, b in zip(
            apart(x, at), (x[::3] == x[1::3], x[at], x.view(-1, 3).t()), strict=True
        ):
            assert torch.equal(a, b), size


@pytest.mark.parametrize("dtype", (*FLOATS, *INTEGERS), ids=str)
def test_many_points_of_one_place(dtype: torch.dtype) -> None:
    @framejit.compile(dynamic=True)
    def added(
        base: torch.Tensor, rows: torch.Tensor, at: torch.Tensor, x: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        return (
            base.scatter_add(0, at, x),
            rows.scatter_add(1, at.expand(4, -1), x.expand(4, -1)),
            rows.t().scatter_add(
                0, at[:, None].expand(-1, 4), x[:, None].expand(-1, 4)
            ),
            base.index_add(0, at, x),
        )

    for size in SIZES:
        # Whole numbers: sums do not depend on their order.
        base, rows = (torch.arange(n).remainder(5).to(dtype) for n in (20, 80))
        x = torch.arange(size).remainder(3).to(dtype)
        at = torch.arange(size).remainder(7) * 2
        rows = rows.view(4, 20)
        eager = (
            base.scatter_add(0, at, x),
            rows.scatter_add(1, at.expand(4, -1), x.expand(4, -1)),
            rows.t().scatter_add(
                0, at[:, None].expand(-1, 4), x[:, None].expand(-1, 4)
            ),
            base.index_add(0, at, x),
        )
        for a, b in zip(added(base, rows, at, x), eager, strict=True):
            assert torch.equal(a, b), size
        if size == SIZES[0]:
            loops, calls = nodes_of(added)
            assert "aten.scatter_add" in loops and "aten.scatter_add" not in calls


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_last_of_one_place_stays(dtype: torch.dtype) -> None:
    @framejit.compile
    def put(base: torch.Tensor, at: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return base.scatter(0, at, x)

    for size in SIZES:
        base, x = numbers(dtype, 20), numbers(dtype, size)
        at = torch.arange(size).remainder(11)
        assert torch.equal(put(base, at, x), base.scatter(0, at, x)), size
