"""What eager saves for the backward: it may not be written to, and goes with it."""

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit


@pytest.mark.parametrize(
    "op", ["exp", "tanh", "sigmoid", "sqrt", "relu", "softmax", "reciprocal"]
)
def test_an_output_that_its_formula_reads(op: str) -> None:
    def program(x: Any, v: Any) -> Any:
        a = x * v
        return (a.softmax(0) if op == "softmax" else getattr(a, op)()), a

    def outcome(fn: Any, which: int) -> Any:
        x = torch.full((3,), 0.5, requires_grad=True)
        results = fn(x, torch.full((3,), 2.0, requires_grad=True))
        with torch.no_grad():
            results[which].add_(1)
        try:
            sum(r.sum() for r in results).backward()
        except RuntimeError as error:
            return "modified by an inplace operation" in str(error)
        assert x.grad is not None
        return x.grad.tolist()

    framejit.reset()
    compiled = framejit.compile(program)
    for which in (0, 1):
        expected, actual = outcome(program, which), outcome(compiled, which)
        assert actual == pytest.approx(expected), (op, which)


# ---- backward twice

TWICE: dict[str, Callable[..., Any]] = {
    "a constant": lambda x, y: (x * 2, x * 3),
    "nothing": lambda x, y: (x + 1, x - y),
    "one of two": lambda x, y: (x * x, x * 3),
    "one of two, nothing": lambda x, y: (x * y, x + 1),
    "shared": lambda x, y: (x.exp() * 2, x.exp() + y),
    "a chain": lambda x, y: ((x + 1).sin() + 1, (x + 1).sum()),
    "sizes": lambda x, y: (x.sum(), x.view(-1)[1:] + 0),
    "power": lambda x, y: (x**2, x / 2),
    "of the other": lambda x, y: (x * y.detach(), x.neg()),
    "one output": lambda x, y: (x * 2,),
}


@pytest.mark.parametrize("name", TWICE)
def test_a_second_backward_raises_as_eager_does(name: str) -> None:
    fn = TWICE[name]
    framejit.reset()
    compiled = framejit.compile(fn)
    for order in itertools.product((0, 1, 2), repeat=3):
        seen = []
        for f in (fn, compiled):
            x, y = (torch.full((3,), 0.5, requires_grad=True) for _ in range(2))
            outputs = f(x, y)
            raised: list[Any] = []
            for which in order:
                part = outputs if which == 2 else outputs[which : which + 1]
                if not part:
                    continue
                try:
                    total = sum(t.sum() for t in part)
                    torch.autograd.grad(total, (x, y), allow_unused=True)
                    raised.append(None)
                except RuntimeError as error:
                    raised.append(str(error)[:40])
                    break  # of what it had freed by then, nothing is said
            seen.append(raised)
        assert seen[0] == seen[1], (name, order)


@pytest.mark.parametrize(
    "change",
    [lambda t: t[:1], lambda t: t.double(), lambda t: t.t(), lambda t: t[:, :1]],
    ids=["shorter", "double", "turned", "narrower"],
)
def test_hooks_that_give_back_something_else(change: Any) -> None:
    def f(x: torch.Tensor) -> torch.Tensor:
        return x.sin() * 2

    compiled = framejit.compile(f)
    x = torch.randn(64, 64, requires_grad=True)
    compiled(x).sum().backward()
    found = []
    for fn in (f, compiled):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t, change):
            y = fn(x)
        found.append(torch.autograd.grad(y.sum(), x)[0])
    torch.testing.assert_close(*found, rtol=0, atol=0)
