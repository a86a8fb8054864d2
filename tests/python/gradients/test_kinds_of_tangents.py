"""Gradients that come to a call's outputs in every form that autograd gives them.

Expanded, transposed, sliced, negated lazily, sparse, without memory (the zeros
that formulas like sgn's answer with), of another floating type's making.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import framejit

Form = Callable[[torch.Tensor], torch.Tensor]
FORMS: dict[str, Form] = {
    "plain": lambda g: g.clone(),
    "expanded": lambda g: g[:1, :1].expand_as(g),
    "a row expanded": lambda g: g[:1].expand_as(g),
    "transposed": lambda g: g.t().contiguous().t(),
    "sliced": lambda g: torch.stack([g, g], 2)[..., 1],
    "flipped": lambda g: g.flip(0),
    "lazily negative": lambda g: torch._neg_view(g),
    "imaginary part": lambda g: torch.complex(g, g).conj().imag,
    "without memory": lambda g: torch._efficientzerotensor(g.shape),
    "sparse": lambda g: g.to_sparse(),
    "another view": lambda g: g.unsqueeze(0)[0],
    "not to be written to": lambda g: g.detach().requires_grad_(False),
}


class Gives(torch.autograd.Function):
    """The identity, whose gradient has the form."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, form: Form) -> torch.Tensor:
        ctx.form = form
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        return ctx.form(grad), None


def one(x, w):
    return ((x * w).exp(),)


def two(x, w):
    y = x * w
    return y, y.sin()


def matmul(x, w):
    return (x @ (x * w),)


def reduced(x, w):
    y = x * w
    return y.softmax(1), y.sum(1, keepdim=True) * y


def copied(x, w):
    return (x * w).contiguous(), (x * w).clone()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("f", [one, two, matmul, reduced, copied])
def test_tangents(f: Callable[..., Any], form: str, backend: str) -> None:
    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    for call in range(3):
        found = []
        for fn in (f, compiled):
            torch.manual_seed(call)
            x = torch.randn(4, 4, requires_grad=True)
            w = nn.Parameter(torch.randn(4))
            outputs = [Gives.apply(y, FORMS[form]) for y in fn(x, w)]
            loss = sum((y * y.detach()).sum() for y in outputs)
            try:
                found.append(torch.autograd.grad(loss, [x, w], allow_unused=True))
            except RuntimeError:  # eager has no such kernel, sparse
                assert fn is f and form == "sparse"
                return
        for expected, actual in zip(*found, strict=True):
            torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize(
    "behind", [torch.abs, torch.sign, torch.sgn, torch.relu, torch.floor, torch.round]
)
def test_zeros_of_formulas(behind: Callable[..., Any], backend: str) -> None:
    """A second derivative that is zero everywhere comes without memory."""

    def f(x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        y.masked_fill_(y < 0, 0.0)
        y = torch.where(y + x > x * 2, y + x, x * 2)
        framejit.graph_break()
        return behind(y)

    w = nn.Parameter(torch.tensor([0.5]))
    compiled = framejit.compile(f, backend=backend)
    for _ in range(3):
        found = []
        for fn in (f, compiled):
            (first,) = torch.autograd.grad(
                fn(w.expand(3, 3)).sum(), [w], create_graph=True
            )
            second = None
            if first.requires_grad:
                (second,) = torch.autograd.grad(
                    first.square().sum(), [w], allow_unused=True
                )
            found.append((first.detach(), second))
        assert repr(found[0]) == repr(found[1])


DRAWS: dict[str, Callable[..., Any]] = {
    "dropout": lambda x, w: (nn.functional.dropout(x * w, 0.5) * x,),
    "rand": lambda x, w: (torch.rand(4) * x * w, w * x.sin() * torch.rand_like(w)),
    "bernoulli": lambda x, w: (torch.bernoulli(x.detach().sigmoid()) * x * w,),
    "in place": lambda x, w: (torch.empty(4, 4).normal_() * (x * w).exp(),),
    "permutation": lambda x, w: ((x * w)[torch.randperm(4)] * x,),
    "none": lambda x, w: ((x * w).exp(), x[:, 0] * w),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("name", DRAWS)
def test_several_at_once(name: str, backend: str) -> None:
    """is_grads_batched, as torch.autograd.functional's vectorize=True: what draws
    random numbers is refused there, and the call has drawn them before."""
    framejit.reset()
    compiled = framejit.compile(DRAWS[name], backend=backend)
    for call in range(3):
        found = []
        for fn in (DRAWS[name], compiled):
            torch.manual_seed(call)
            x = torch.randn(4, 4, requires_grad=True)
            w = nn.Parameter(torch.randn(4))
            grads: list[Any] = []
            for y in fn(x, w):
                rows = torch.stack([torch.ones_like(y), y.detach(), y.detach() * 2])
                grads += torch.autograd.grad(
                    y, [x, w], rows, retain_graph=True, is_grads_batched=True
                )

            def of(x: Any, fn: Any = fn, w: Any = w, call: int = call) -> Any:
                torch.manual_seed(call)
                return fn(x, w)

            grads += torch.autograd.functional.jacobian(of, x.detach(), vectorize=True)
            found.append([*grads, torch.rand(2)])
        for expected, actual in zip(*found, strict=True):
            torch.testing.assert_close(actual, expected)
