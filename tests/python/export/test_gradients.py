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
