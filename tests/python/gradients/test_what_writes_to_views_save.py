"""What an operator that wrote to a view has saved is in eager within the history of
the view's base: it may not be written to before the backward, and has the history
that it got since when it is differentiated again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

BACKENDS = ["eager", "aot_eager", "native"]

VIEWS: dict[str, Callable[[Any], Any]] = {
    "none": lambda y: y,
    "t": lambda y: y.t(),
    "rows": lambda y: y[1:],
    "flat": lambda y: y.view(-1),
    "diagonal": lambda y: y.diagonal(),
    "of a view": lambda y: y.t()[:, 1:],
}

WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "mul_": lambda v, a: v.mul_(a),
    "div_": lambda v, a: v.div_(a),
    "addcmul_": lambda v, a: v.addcmul_(a, a),
    "lerp_": lambda v, a: v.lerp_(a, a),
    "pow_": lambda v, a: v.pow_(a),
    "add_": lambda v, a: v.add_(a),
    "item": lambda v, a: v.copy_(a),
    "mul_ exp_": lambda v, a: v.mul_(a).exp_(),
}


def program(view: Any, write: Any) -> Any:
    def f(a: Any, w: Any) -> Any:
        y = w * torch.linspace(0.2, 1.4, 9, dtype=torch.float32).view(3, 3)
        write(view(y), a)
        return a, y

    return f


def answer(act: Any, fn: Any, view: Any) -> Any:
    a = view(torch.linspace(0.3, 1.7, 9).view(3, 3)).clone()
    w = torch.tensor([0.5], requires_grad=True)
    try:
        return act(fn, a, w)
    except RuntimeError as error:
        return "modified by an inplace" in str(error) or str(error)


def saved_is_written(fn: Any, a: Any, w: Any) -> Any:
    _, y = fn(a, w)
    a.add_(1)
    return torch.autograd.grad(y.sum(), w)


def late_leaf(fn: Any, a: Any, w: Any) -> Any:
    _, y = fn(a, w)
    a.requires_grad_()
    leaves = [a, w]
    first = torch.autograd.grad(y.sum(), leaves, create_graph=True, allow_unused=True)
    found = [g for g in first if g is not None]
    penalty = sum(g.square().sum() for g in found)
    if not isinstance(penalty, torch.Tensor) or not penalty.requires_grad:
        return found
    return [*found, *torch.autograd.grad(penalty, leaves, allow_unused=True)]


def other_default_dtype(fn: Any, a: Any, w: Any) -> Any:
    torch.set_default_dtype(torch.float64)
    try:
        _, y = fn(a, w)
    finally:
        torch.set_default_dtype(torch.float32)
    return torch.autograd.grad(y.sum(), w)


def other_default_dtype_and_a_write(fn: Any, a: Any, w: Any) -> Any:
    """To what the graph reads; only some of it has eager saved."""
    torch.set_default_dtype(torch.float64)
    try:
        _, y = fn(a, w)
    finally:
        torch.set_default_dtype(torch.float32)
    a.add_(1)
    return torch.autograd.grad(y.sum(), w)


ACTS = [
    saved_is_written,
    late_leaf,
    other_default_dtype,
    other_default_dtype_and_a_write,
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.__name__)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("view", VIEWS)
def test_as_eager(view: str, write: str, act: Any, backend: str) -> None:
    f = program(VIEWS[view], WRITES[write])
    expected = answer(act, f, VIEWS[view])
    compiled = framejit.compile(f, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(answer(act, compiled, VIEWS[view]), expected)
