"""Gradients of exported programs are eager's, or the export is an error."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import framejit
from differential import assert_same
from framejit import export as fe


class Times(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 10


class Net(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.function = function

    def forward(self, x):
        return self.function(self.linear(x))


def own_function(y):
    return Times.apply(y) + y


def hooked(y):
    y.register_hook(lambda g: g * 10)
    return y * 2


@pytest.mark.parametrize(
    ("function", "message"),
    [(own_function, "torch.autograd.Function"), (hooked, "registers a hook")],
)
def test_what_no_graph_has(function, message):
    x = torch.rand(3, 4)
    with pytest.raises(framejit.GraphBreakError, match=message) as error:
        fe.export(Net(function), (x,))
    assert f"in {function.__name__}" in str(error.value)
    if function is own_function:  # (there is nothing to hook)
        frozen = Net(function).requires_grad_(False)
        assert_same(fe.export(frozen, (x,)).module()(x), frozen(x), "no gradients")


def gradients(module: nn.Module, x: torch.Tensor) -> list[Any]:
    given = x.clone().requires_grad_()
    result = module(given)
    (result * torch.arange(1.0, result.numel() + 1).view_as(result)).sum().backward()
    named = sorted(module.named_parameters())
    return [result.detach(), given.grad, *(p.grad for _, p in named)]


@pytest.mark.parametrize(
    "function",
    [
        lambda y: torch.cosine_similarity(y, torch.ones(4)),
        lambda y: F.cosine_similarity(y, y.flip(0), dim=0),
        lambda y: F.cosine_similarity(y * 0, y, eps=0.5),
        lambda y: F.cosine_similarity(y[:, None], y[None], dim=-1, eps=1.0),
        lambda y: nn.CosineSimilarity(dim=1)(y, y * 2),
    ],
)
def test_cosine_similarity(function):
    module, x = Net(function), torch.rand(3, 4)
    run = fe.export(copy.deepcopy(module), (x,)).module()
    assert_same(gradients(run, x), gradients(module, x), "gradients")


def data(y):
    y = y * 1
    y.data.mul_(2)
    return y * y


def detached(y):
    z = y.detach()
    z.mul_(2)
    return y * y


def under_no_grad(y):
    with torch.no_grad():
        y.mul_(2)
    return y * y


def item_under_no_grad(y):
    y = y * 1
    with torch.no_grad():
        y[0] = 0
    return y * y


@torch.no_grad()
def scale_(y):
    y *= 2
    return y


def decorated(y):
    scale_(y)
    return y * y


@pytest.mark.parametrize(
    "function", [data, detached, under_no_grad, item_under_no_grad, decorated]
)
def test_writes_that_autograd_does_not_see(function):
    x = torch.rand(3, 4)
    with pytest.raises(framejit.GraphBreakError, match="writes in place"):
        fe.export(Net(function), (x,))
    frozen = Net(function).requires_grad_(False)
    assert_same(fe.export(frozen, (x,)).module()(x), frozen(x), "no gradients")


class Average(nn.Module):
    """Such writes to buffers are none: they have no gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        y = self.linear(x)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(y.mean(0), alpha=0.1)
            self.mean[0] = 0
        return y - self.mean + y.detach()


def test_buffers_under_no_grad():
    module, x = Average(), torch.rand(3, 4)
    run = fe.export(copy.deepcopy(module), (x,)).module()
    assert_same(gradients(run, x), gradients(module, x), "gradients")
