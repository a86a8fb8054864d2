"""What an input came from is met by the backward only where eager's meets it.

A call is one node that leads to all its inputs. Behind them may lie nodes that
were freed, gradient functions of the program that count their calls and get
zeros where nothing came, and leaves that have no gradient yet.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import framejit

AOT = ("aot_eager", "native")


def separate(x, y):
    return x * 2, y.sin()


def one_in_both(x, y):
    return x * y, y * 3


def chain(x, y):
    a = x.exp()
    b = a * y
    return a, b, y * y


def all_in_all(x, y):
    return x * y, x + y


def unused(x, y):
    return y * 2, x.detach() * y


PROGRAMS = [separate, one_in_both, chain, all_in_all, unused]


class Counts(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, log: list[str], name: str) -> Any:
        ctx.log, ctx.name = log, name
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.log.append((ctx.name, gradient.tolist()))
        return gradient, None, None


def leaf(w, log, name):
    return w


def freed(w, log, name):
    x = w * w
    x.sum().backward()
    return x


def counted(w, log, name):
    return Counts.apply(w, log, name)


def hooked_node(w, log, name):
    x = w * 2
    x.grad_fn.register_prehook(lambda grads: log.append((name, len(grads))))
    return x


def view(w, log, name):
    return Counts.apply(w, log, name).view(-1)[:3]


BEHIND = [leaf, freed, counted, hooked_node, view]


def story(fn, behind, used, twice):
    """The gradients, calls and errors of some steps with these outputs used."""
    log: list[Any] = []
    for _ in range(3):
        leaves = [torch.full((3,), 0.5 + i, requires_grad=True) for i in range(2)]
        inputs = [b(w, log, i) for i, (b, w) in enumerate(zip(behind, leaves))]
        before = [w.grad for w in leaves]
        outputs = fn(*inputs)
        chosen = [o.sum() for i, o in enumerate(outputs) if i in used]
        for _ in range(1 + twice):
            try:
                torch.autograd.backward(chosen)
            except RuntimeError as error:
                log.append(str(error)[:40])
        for w, old in zip(leaves, before):
            log.append(None if w.grad is None else w.grad.tolist())
            log.append(w.grad is old)
    return log


@pytest.mark.parametrize("backend", AOT)
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("first", BEHIND)
def test_is_met_as_in_eager(first, program, backend):
    compiled = framejit.compile(program, backend=backend)
    count = len(program(torch.ones(3), torch.ones(3)))
    patterns = [
        used
        for size in range(1, count + 1)
        for used in itertools.combinations(range(count), size)
    ]
    for second, used, twice in itertools.product(BEHIND, patterns, (False, True)):
        expected = story(program, (first, second), used, twice)
        actual = story(compiled, (first, second), used, twice)
        assert actual == expected, (second.__name__, used, twice)


@pytest.mark.parametrize("backend", AOT)
def test_where_every_output_needs_every_input_the_call_stays_one_node(backend):
    compiled = framejit.compile(all_in_all, backend=backend)
    w = torch.ones(3, requires_grad=True)
    outputs = compiled(w * 2, w * 3)
    assert "FrameJit" in type(outputs[0].grad_fn).__name__ + outputs[0].grad_fn.name()


def test_steps_that_hand_their_state_on():
    """A result of one call is an input of the next, and its history is freed."""

    def program(state, x, w):
        out = w * x
        return out, (state + out).tanh().mean()

    def run(fn):
        w = torch.full((3,), 0.5, requires_grad=True)
        state, found = torch.zeros(()), []
        for step in range(4):
            out, state = fn(state, torch.full((3,), 1.0 + step), w)
            out.sum().backward()
            found.append(w.grad.tolist())
        try:
            state.backward()
        except RuntimeError as error:
            found.append(str(error)[:40])
        return found

    expected = run(program)
    for backend in ("eager", *AOT):
        framejit.reset()
        assert run(framejit.compile(program, backend=backend)) == expected
