"""Results with named fields that reach a function as they are: as an argument,
or behind the break where torch made them."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

import framejit


def matrix() -> torch.Tensor:
    return torch.arange(9.0).reshape(3, 3).sin() + torch.eye(3)


MAKERS = {
    "lstsq": lambda x: torch.linalg.lstsq(x, torch.ones(3, 1)),
    "svd": torch.linalg.svd,
    "eigh": lambda x: torch.linalg.eigh(x + x.T),
    "slogdet": torch.linalg.slogdet,
    "lu_factor": torch.linalg.lu_factor,
    "max": lambda x: torch.max(x, 0),
    "sort": torch.sort,
    "topk": lambda x: torch.topk(x, 2),
    "frexp": torch.frexp,
    "aminmax": torch.aminmax,
    "mode": lambda x: torch.mode(x, 1),
}


def fields_of(result: Any) -> list[str]:
    names = type(result).__dict__
    return [n for n in names if type(names[n]).__name__ == "member_descriptor"]


@pytest.mark.parametrize("kind", MAKERS)
def test_fields_of_an_argument(kind):
    made = MAKERS[kind](matrix())
    for name in fields_of(made):

        def fn(x, r, name=name):
            value = getattr(r, name)
            return value * x.sum(), r

        framejit.reset()
        compiled = framejit.compile(fn)
        for _ in range(2):
            result, same = compiled(torch.ones(2), made)
            torch.testing.assert_close(result, fn(torch.ones(2), made)[0])
            assert same is made
        assert framejit.counters()["breaks"] == 0, framejit.events()


@pytest.mark.parametrize("kind", MAKERS)
def test_fields_behind_a_break(kind):
    name = fields_of(MAKERS[kind](matrix()))[0]

    def fn(x):
        r = MAKERS[kind](x)
        framejit.graph_break()
        return getattr(r, name) * 2, r[0] + 1

    framejit.reset()
    compiled = framejit.compile(fn)
    for _ in range(2):
        torch.testing.assert_close(compiled(matrix()), fn(matrix()))
    assert not any("another capture" in text for _, text in framejit.events())


def test_one_break_at_lstsq():
    def fn(a, b):
        return torch.linalg.lstsq(a, b).solution * 2

    framejit.reset()
    compiled = framejit.compile(fn)
    a = matrix().requires_grad_()
    torch.testing.assert_close(compiled(a, torch.ones(3, 1)), fn(a, torch.ones(3, 1)))
    assert framejit.counters()["breaks"] == 1


def test_fields_that_are_no_items():
    def fn(x, t):
        return x * t.tm_year, t.tm_zone, t.tm_gmtoff

    framejit.reset()
    compiled = framejit.compile(fn)
    t = time.gmtime(0)
    for _ in range(2):
        assert str(compiled(torch.ones(1), t)) == str(fn(torch.ones(1), t))
