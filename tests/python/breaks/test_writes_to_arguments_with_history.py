"""Operations in place on arguments that require grad: what was computed before the
call is written to as in eager, behind a break that says what it is; a leaf is refused
with eager's words."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

BLOCK = nn.Sequential(nn.ReLU(inplace=True), nn.Linear(4, 4))


def add(x):
    x.add_(1)
    return x * x


def activation(x):
    return F.relu(x * 2 + F.relu(x, inplace=True))


def module(x):
    return BLOCK(x)


def part(x):
    x[0].mul_(3)
    return x.exp()


def item(x):
    x[:, 1] = 2.0
    return x.sin()


def flat(x):
    x.view(-1).clamp_(min=0)
    return x + 1


def behind_work(x):
    y = x * 3
    x.neg_()
    return y + x


PROGRAMS = [add, activation, module, part, item, flat, behind_work]


def run(fn, make):
    torch.manual_seed(3)
    leaf = torch.randn(3, 4, requires_grad=True)
    argument = make(leaf)
    result = fn(argument)
    result.sum().backward()
    return result.detach(), argument.detach(), leaf.grad


@pytest.mark.parametrize("backend", ["native", "eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_computed_before(program, backend):
    framejit.reset()
    compiled = framejit.compile(program, backend=backend)
    for make in (lambda leaf: leaf * 2, lambda leaf: leaf + 0.5):
        expected = run(program, make)
        for _ in range(2):
            for a, b in zip(run(compiled, make), expected, strict=True):
                torch.testing.assert_close(a, b)
    found = {
        brk.id
        for brk in framejit.explain(program)(
            torch.randn(3, 4).requires_grad_() * 2
        ).breaks
    }
    assert "FJ407" in found and "FJ203" not in found


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_leaf_is_refused(program):
    framejit.reset()
    compiled = framejit.compile(program)
    texts = []
    for fn in (program, compiled):
        with pytest.raises(RuntimeError, match="leaf Variable") as caught:
            fn(torch.ones(3, 4, requires_grad=True))
        texts.append(str(caught.value))
    assert texts[0] == texts[1]
    run(compiled, lambda leaf: leaf * 2)  # and the other kind by the same function
