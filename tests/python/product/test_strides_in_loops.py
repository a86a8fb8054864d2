"""Programs that say where elements lie (as_strided, and adaptive pools of channels
last, which are made of it), as loops: eager's values, gradients and strides."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

Program = Callable[..., Any]
FLOATS = (torch.float32, torch.float64, torch.bfloat16)
# The interpreter of loops gives parts of results memory of their own.
HAS_OFFSETS = os.environ.get("FRAMEJIT_ISA") != "loops"
FORMATS = {
    "contiguous": torch.contiguous_format,
    "channels last": torch.channels_last,
}
SHAPES = (
    (2, 8, 9, 7),
    (1, 8, 6, 6),
    (2, 1, 6, 6),
    (1, 1, 5, 4),
    (3, 4, 1, 1),
    (0, 3, 4, 4),
)


def outcome(program: Program, x: torch.Tensor) -> list[torch.Tensor]:
    result = program(x)
    results = list(result) if isinstance(result, tuple) else [result]
    ends = [t for t in results if t.requires_grad]
    if not ends:
        return results
    # A backward is compiled for gradients that lie as the outputs do.
    weights = [
        torch.empty_like(t).copy_(torch.linspace(-1, 2, t.numel()).view(t.shape))
        for t in ends
    ]
    return [*results, *torch.autograd.grad(ends, [x], weights)]


def compare(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> None:
    for mine, eager in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, eager)
        # What a gradient has along dims of one element is left open.
        assert [
            n for n, size in zip(mine.stride(), mine.shape, strict=True) if size > 1
        ] == [
            n for n, size in zip(eager.stride(), eager.shape, strict=True) if size > 1
        ]
        if HAS_OFFSETS:
            assert mine.storage_offset() == eager.storage_offset()
        if mine.requires_grad:
            assert mine.stride() == eager.stride()


def check(
    program: Program, make: Callable[[], torch.Tensor], compiled: Any = None
) -> None:
    """Equal to eager; every graph with elements is loops."""
    compiled = compiled or framejit.compile(program)
    compare(outcome(compiled, make()), outcome(program, make()))
    for entry in framejit.inspect(compiled) if make().numel() else ():
        assert entry.kernels, "a graph that is no loops"


def image(
    shape: tuple[int, ...], dtype: torch.dtype, layout: str, train: bool
) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.float64).to(dtype)
    return x.to(memory_format=FORMATS[layout]).requires_grad_(train)


POOLS: dict[str, Program] = {
    "mean": lambda x: F.adaptive_avg_pool2d(x * 2, 1),
    "mean, read": lambda x: F.adaptive_avg_pool2d(x * 2, 1) + 1,
    "mean, flat": lambda x: F.adaptive_avg_pool2d(x * 2, (1, 1)).flatten(1) * 3,
    "mean, gate": lambda x: F.adaptive_avg_pool2d(x, 1).sigmoid() * x,
    "means": lambda x: F.adaptive_avg_pool2d(x * 2, (2, 3)) + 1,
    "maximum": lambda x: F.adaptive_max_pool2d(x * 2, 1) + 1,
    "maxima": lambda x: F.adaptive_max_pool2d(x * 2, (3, 2)) + 1,
    "places": lambda x: F.adaptive_max_pool2d(x * 2, 2, return_indices=True),
}


@pytest.mark.parametrize("layout", FORMATS)
@pytest.mark.parametrize("pool", POOLS)
def test_adaptive_pools(pool: str, layout: str) -> None:
    for shape, dtype, train in itertools.product(SHAPES, FLOATS, (False, True)):
        check(POOLS[pool], lambda: image(shape, dtype, layout, train))


@pytest.mark.parametrize("layout", FORMATS)
def test_adaptive_pools_of_any_size(layout: str) -> None:
    compiled = framejit.compile(POOLS["mean, gate"], dynamic=True)
    for shape in ((2, 8, 9, 7), (3, 4, 8, 8), (5, 6, 7, 8), (1, 6, 7, 8), (4, 1, 3, 3)):
        check(
            POOLS["mean, gate"],
            lambda: image(shape, torch.float32, layout, True),
            compiled,
        )


class Block(nn.Module):
    def __init__(self, wide: int, out: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(wide, out, 3, stride, 1, bias=False)
        self.norm = nn.BatchNorm2d(out)
        self.second = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.other = nn.BatchNorm2d(out)
        self.short = nn.Conv2d(wide, out, 1, stride)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.other(self.second(self.norm(self.first(x)).relu()))
        return (y + self.short(x)).relu()


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 7, 2, 3)
        self.blocks = nn.Sequential(Block(16, 16, 1), Block(16, 32, 2))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.max_pool2d(self.stem(x).relu(), 3, 2, 1)
        return self.head(torch.flatten(self.pool(self.blocks(x)), 1))


@pytest.mark.parametrize("layout", FORMATS)
def test_a_classifier_of_images(layout: str) -> None:
    torch.manual_seed(0)
    model = Classifier().to(memory_format=FORMATS[layout])
    check(model, lambda: image((2, 3, 64, 64), torch.float32, layout, True))


# Sizes, strides and an offset in memory of (4, 6) elements that lie in order, or in
# the order of its columns.
PLACES: dict[str, tuple[Any, ...]] = {
    "the same": ((4, 6), (6, 1)),
    "dims of one element": ((1, 4, 1, 6), (77, 6, 5, 1)),
    "transposed": ((6, 4), (1, 6)),
    "fewer": ((3, 2), (6, 1)),
    "a row": ((6,), (1,)),
    "a column": ((4,), (6,)),
    "one element": ((), ()),
    "repeated": ((4, 3, 6), (6, 0, 1)),
    "in a line": ((24,), (1,)),
    "every second": ((12,), (2,)),
    "windows": ((4, 3), (5, 4)),
    "overlapping": ((4, 4), (2, 1)),
    "from the third on": ((2, 3), (4, 1), 2),
    "from the start": ((2, 3), (6, 1), 0),
}
MEMORIES: dict[str, Program] = {
    "rows": lambda x: x * 2,
    "columns": lambda x: (x.t() * 2).contiguous().t(),
    "a line": lambda x: (x * 2).flatten() + 1,
    "part": lambda x: (torch.cat([x, x, x]) * 2)[4:],
    "the caller's": lambda x: x,
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("places", PLACES)
def test_strides_into_memory(places: str, memory: str) -> None:
    where = PLACES[places]
    if memory == "part" and len(where) > 2 and not HAS_OFFSETS:
        pytest.skip("an offset counts from elsewhere")

    def read(x: torch.Tensor) -> torch.Tensor:
        return MEMORIES[memory](x).as_strided(*where) * 3

    def view(x: torch.Tensor) -> torch.Tensor:
        return MEMORIES[memory](x).as_strided(*where)

    def copied(x: torch.Tensor) -> torch.Tensor:
        return torch.as_strided_copy(MEMORIES[memory](x), *where) + 1

    def put(x: torch.Tensor) -> torch.Tensor:
        base = MEMORIES[memory](x)
        part = torch.arange(float(torch.Size(where[0]).numel())).view(where[0])
        return torch.as_strided_scatter(base, part, *where) + 1

    def written(x: torch.Tensor) -> torch.Tensor:
        base = MEMORIES[memory](x).clone(memory_format=torch.preserve_format)
        base.as_strided(*where).mul_(4)
        return base + 1

    x = torch.arange(24.0).view(4, 6)
    for program, train in itertools.product(
        (read, view, copied, put, written), (False, True)
    ):
        compiled = framejit.compile(program)
        for base in (x, torch.cat([x, x])[3:7]):

            def make(base: torch.Tensor = base, train: bool = train) -> torch.Tensor:
                return base.detach().requires_grad_(train)

            try:
                eager = outcome(program, make())
            except RuntimeError as error:
                # Several elements at one place, or no such gradient.
                assert re.search(
                    "single memory location|contiguous inputs", str(error)
                ), error
                continue
            compare(outcome(compiled, make()), eager)
