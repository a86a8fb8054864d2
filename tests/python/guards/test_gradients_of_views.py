"""Views made in no_grad: what their own fields do not say, their base does.

Arguments that are such views, of bases with and without a gradient in any order, and
of one that begins to require a gradient between two calls.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch

import framejit

VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "t": lambda x: x.t(),
    "view": lambda x: x.view(2, 2),
    "index": lambda x: x[:],
    "chain": lambda x: x.t().t(),
    "split": lambda x: x.split(2)[0],
    "detach": lambda x: x.detach(),
    "itself": lambda x: x,
}


def argument(view: str, grad: bool) -> torch.Tensor:
    base = torch.ones(2, 2, requires_grad=grad)
    with torch.no_grad():
        return VIEWS[view](base)


def fn(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def across(x: torch.Tensor) -> tuple[torch.Tensor, bool, torch.Tensor]:
    with torch.no_grad():
        v = x.t()
    torch._dynamo.graph_break()
    return v, v.requires_grad, v * 2


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("view", VIEWS)
def test_arguments(view: str, backend: str) -> None:
    for order in itertools.product([False, True], repeat=3):
        compiled = framejit.compile(fn, backend=backend)
        for grad in order:
            x = argument(view, grad)
            assert compiled(x).requires_grad == fn(x).requires_grad, order


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("view", VIEWS)
def test_base_that_begins(view: str, backend: str) -> None:
    base = torch.ones(2, 2)
    with torch.no_grad():
        x = VIEWS[view](base)
    compiled = framejit.compile(fn, backend=backend)
    assert compiled(x).requires_grad == fn(x).requires_grad
    base.requires_grad_()
    for _ in range(2):
        assert compiled(x).requires_grad == fn(x).requires_grad


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_across_a_break(backend: str) -> None:
    compiled = framejit.compile(across, backend=backend)
    for grad in (False, True, True, False):
        x = torch.ones(2, 2, requires_grad=grad)
        for got, expected in zip(compiled(x), across(x), strict=True):
            if isinstance(expected, torch.Tensor):
                got, expected = got.requires_grad, expected.requires_grad
            assert got == expected
