"""Calls in which ATen reads a number that the program gave: they are captured, and
do what eager does, errors included. Where the number is in a tensor, it is read."""

from __future__ import annotations

import itertools

import pytest
import torch

import framejit
from differential import BACKENDS, check

SHAPES = [(), (1,), (6,), (4, 5), (2, 3, 4)]
INTERPOLATIONS = ["linear", "lower", "higher", "midpoint", "nearest"]


def data(shape, dtype=torch.float32, nan=False):
    def make():
        x = torch.randn(shape, dtype=dtype)
        if nan and x.numel() > 3:
            x.view(-1)[2] = float("nan")
        return (x.requires_grad_(),)

    return make


@pytest.mark.parametrize("name", ["quantile", "nanquantile"])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("interpolation", INTERPOLATIONS)
def test_quantiles(name, shape, interpolation):
    dims = [None, *range(-len(shape), len(shape))] if shape else [None, 0, -1]
    rows = itertools.product(dims, (False, True), (0.3, 1))
    for at, (dim, keepdim, q) in enumerate(rows):

        def fn(x):
            found = getattr(torch, name)(
                x * 2, q, dim, keepdim, interpolation=interpolation
            )
            return found, getattr(x, name)(q, dim=dim, keepdim=keepdim) + 1

        backends = BACKENDS if at == 0 else BACKENDS[at % 3 : at % 3 + 1]
        nan = name == "nanquantile"
        framejit.reset()
        check(fn, data(shape, nan=nan), graphs=1, breaks=0, backends=backends)


def test_quantile_of_doubles_with_nan():
    def fn(x):
        return x.quantile(0.25, dim=1), x.nanquantile(0.25, dim=0)

    check(fn, data((4, 5), torch.float64, nan=True), graphs=1, breaks=0)


@pytest.mark.parametrize("q", [-0.1, 1.5, float("nan")])
def test_a_number_out_of_range_raises_as_in_eager(q):
    def fn(x):
        return torch.quantile(x, q)

    check(fn, data((4,)), graphs=None, breaks=None)


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16])
def test_types_that_eager_refuses(dtype):
    def fn(x):
        return torch.quantile(x, 0.5)

    check(fn, lambda: (torch.ones(4, dtype=dtype),), graphs=None, breaks=None)
    check(fn, lambda: (torch.ones(0),), graphs=None, breaks=None)


def test_sizes_that_change_are_one_entry():
    def fn(x):
        return x.clamp(max=x.quantile(0.9)), torch.cov(x[None]), torch.corrcoef(x)

    framejit.reset()
    compiled = framejit.compile(fn)
    for size in (5, 7, 9, 12, 30):
        x = torch.randn(size)
        torch.testing.assert_close(compiled(x), fn(x), equal_nan=True)
    counters = framejit.counters()
    assert (counters["compiles"], counters["breaks"]) == (2, 0)


@pytest.mark.parametrize("shape", [(), (6,), (1, 6), (4, 5)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.complex64])
def test_covariances(shape, dtype):
    def fn(x):
        return torch.cov(x * 2, correction=0), torch.cov(x)

    breaks = None if not shape else 0  # no degrees of freedom: a warning
    check(fn, data(shape, dtype), graphs=None, breaks=breaks)


@pytest.mark.parametrize("shape", [(6,), (4, 5)])
def test_correlations(shape):
    def fn(x):
        return torch.corrcoef(x * 2), x.corrcoef()

    check(fn, data(shape), graphs=1, breaks=0)


def test_integers_have_covariances():
    def fn(x):
        return torch.cov(x)

    check(fn, lambda: (torch.randint(0, 9, (3, 5)),), graphs=1, breaks=0)


def test_weights_are_read():
    def fn(x, w):
        return torch.cov(x, fweights=w), torch.cov(x, aweights=w.float())

    def make():
        return torch.randn(3, 4), torch.tensor([1, 2, 3, 1])

    check(fn, make, graphs=None, breaks=None)


def test_a_tensor_as_q_is_read_and_the_break_says_where():
    def fn(x, q):
        return torch.quantile(x, q)

    check(fn, lambda: (torch.randn(8), torch.tensor([0.1, 0.9])))
    explained = framejit.explain(lambda x, q: torch.quantile(x * 2, q) + 1)
    (found,) = explained(torch.randn(8), torch.tensor(0.5)).breaks
    assert found.id == "FJ102"
    assert found.detail.endswith("within torch.quantile")
