"""Planes at other sizes, linear: each input has the sum of what the outputs
around it give, whatever the two sizes are."""

from __future__ import annotations

import math

import pytest
import torch
import torch.nn.functional as F
from test_rows_in_loops import check

import framejit

SIZES = [(1, 1), (1, 4), (4, 1), (2, 4), (3, 9), (3, 12), (5, 30), (7, 14), (16, 32)]
SIZES += [(4, 8), (31, 63), (30, 62), (8, 4), (9, 3), (12, 3), (7, 5), (5, 7), (17, 6)]
SIZES += [(33, 33), (10, 100), (100, 10), (6, 1), (2, 3), (3, 2), (40, 41), (41, 40)]


@pytest.mark.parametrize("align", (False, True))
@pytest.mark.parametrize("size", SIZES)
def test_lines(isa: str, size: tuple[int, int], align: bool) -> None:
    x = torch.randn(2, 3, size[0], dtype=torch.float64).float().requires_grad_()

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=size[1], mode="linear", align_corners=align)

    check(program, [x], "upsample_linear1d")


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.bfloat16))
@pytest.mark.parametrize("align", (False, True))
@pytest.mark.parametrize(
    "sizes", [((8, 5), (16, 10)), ((3, 8), (9, 4)), ((5, 6), (7, 6))]
)
def test_planes(isa: str, sizes, align: bool, dtype: torch.dtype) -> None:
    x = torch.randn(2, 3, *sizes[0]).to(dtype).requires_grad_()

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=sizes[1], mode="bilinear", align_corners=align)

    check(program, [x], "upsample_bilinear2d")


@pytest.mark.parametrize("factor", (2, 3, 2.5, 1.7, 0.5, 0.4, 4, 6, 7))
@pytest.mark.parametrize("recompute", (False, True))
def test_factors(isa: str, factor: float, recompute: bool) -> None:
    x = torch.randn(1, 2, 9, 13, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(
            x,
            scale_factor=factor,
            mode="bilinear",
            align_corners=False,
            recompute_scale_factor=recompute,
        )

    check(program, [x], "upsample_bilinear2d")


def test_volumes(isa: str) -> None:
    x = torch.randn(1, 2, 4, 5, 6, requires_grad=True)

    def program(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, scale_factor=2, mode="trilinear", align_corners=False)

    check(program, [x], "upsample_trilinear3d")


@pytest.mark.parametrize("value", (float("nan"), float("inf"), -0.0))
@pytest.mark.parametrize("size", [(4, 8), (6, 9), (8, 4)])
def test_one_odd_gradient_stays_where_it_belongs(size, value) -> None:
    compiled = framejit.compile(
        lambda x: F.interpolate(x, size=size[1], mode="linear", align_corners=False)
    )
    for place in range(size[1]):
        found = []
        for fn in (
            lambda x: F.interpolate(x, size=size[1], mode="linear"),
            compiled,
        ):
            x = torch.randn(1, 1, size[0], generator=torch.Generator().manual_seed(1))
            x.requires_grad_()
            grad = torch.ones(1, 1, size[1])
            grad[..., place] = value
            fn(x).backward(grad)
            found.append(x.grad)
        finite = torch.isfinite(found[1])
        # (A share of 0 of what is not finite is NaN in eager, and none of ours at
        # an edge.)
        assert (finite | ~torch.isfinite(found[0])).all()
        both = torch.isfinite(found[0]) & finite
        torch.testing.assert_close(found[0][both], found[1][both])
        # Who takes of it most has it.
        assert finite.all() == math.isfinite(value)
