"""Jacobians as torch.func gives them: views that refuse writes with a history. The
graph is compiled all the same, and what it returns refuses the same."""

from __future__ import annotations

import pytest
import torch
from torch.func import hessian, jacfwd, jacrev, vmap

import framejit
from differential import BACKENDS

W = torch.linspace(-1, 1, 25).view(5, 5)


def f(x):
    return torch.tanh(W @ x).pow(2)


def both(a, b):
    return torch.sin(W @ a) * b


PROGRAMS = {
    "jacrev": lambda x: jacrev(f)(x),
    "jacfwd": lambda x: jacfwd(f)(x),
    "hessian": lambda x: hessian(lambda z: f(z).sum())(x),
    "of a batch": lambda x: vmap(jacrev(f))(x.expand(7, 5)),
    "of two": lambda x: jacrev(both, argnums=(0, 1))(x, x + 1),
    "of a dict": lambda x: jacrev(lambda p: both(p["a"], p["b"]))({"a": x, "b": -x}),
    "with more": lambda x: (jacrev(f)(x), x * 2),
    "a part": lambda x: x.mul(2).split(2)[0].view(-1),
    "parts of a batch": lambda x: vmap(lambda t: t.split(2)[0])(x + x[:3, None]),
    "all parts of a batch": lambda x: vmap(lambda t: t.split(2))(x + x[:3, None]),
}


def tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    return [found for item in values for found in tensors(item)]


def said(tensor):
    """What the program can find out of it, writes last."""
    found = [tensor.shape, tensor.stride(), tensor.requires_grad, tensor._is_view()]
    found += [tensor._version, tensor.is_inference(), tensor.storage_offset()]
    weight = torch.ones(tensor.shape[-1:], requires_grad=True)
    for write in (
        lambda: tensor.add_(1),
        lambda: tensor[:1].mul_(2),
        lambda: tensor.mul_(weight),
        lambda: tensor.view(-1).mul_(weight.sum()),
    ):
        try:
            write()
            found.append(tensor._version)
        except RuntimeError as error:
            found.append(str(error))
    return [*found, tensor.detach()]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_returned(name, backend):
    fn = PROGRAMS[name]
    framejit.reset()
    compiled = framejit.compile(fn, backend=backend)
    for _ in range(3):
        x = torch.randn(5)
        got, want = tensors(compiled(x)), tensors(fn(x))
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
            *facts, a = said(a)
            *expected, b = said(b)
            assert facts == expected
            torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["jacrev", "hessian", "of a batch", "of two"])
def test_the_graph_is_compiled(name):
    framejit.reset()
    compiled = framejit.compile(PROGRAMS[name])
    compiled(torch.randn(5))
    (entry,) = framejit.inspect(compiled)
    assert not entry.fallback_reason and entry.forward_graph and not entry.breaks


def test_gradients_through_them():
    """With a history they are what they were."""

    def fn(x, w):
        return jacrev(lambda z: torch.tanh(w @ z))(x) * 1

    compiled = framejit.compile(fn)
    for _ in range(2):
        w = W.clone().requires_grad_()
        x = torch.randn(5)
        (got,) = torch.autograd.grad(compiled(x, w).sum(), w)
        (want,) = torch.autograd.grad(fn(x, w).sum(), w)
        torch.testing.assert_close(got, want)
