"""A leaf whose dict of hooks is empty (it was pickled, or a hook was removed) has
none; one that is put there later is met."""

from __future__ import annotations

import collections
import io

import pytest
import torch

import framejit
from differential import assert_same

COMPILED = ["aot_eager", "native"]


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
    )


def loaded():
    file = io.BytesIO()
    torch.save(model(), file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def removed():
    m = model()
    for parameter in m.parameters():
        parameter.register_hook(lambda gradient: gradient).remove()
        parameter.register_post_accumulate_grad_hook(lambda leaf: None).remove()
    return m


def assigned():
    m = model()
    for parameter in m.parameters():
        parameter._backward_hooks = collections.OrderedDict()
    return m


MADE = [loaded, removed, assigned]


def forward(m, x):
    return m(x).sin()


def whole_step(m, x):
    loss = m(x).sin().sum()
    loss.backward()
    return loss.detach()


def train(step, m):
    x = torch.linspace(-1, 1, 15).view(5, 3)
    seen = []

    def hook(gradient):
        seen.append(gradient.clone())
        return gradient * 2

    for turn in range(6):
        handle = m[0].weight.register_hook(hook) if turn == 3 else None
        result = step(m, x)
        if result.requires_grad:
            result.sum().backward()
        seen.append([p.grad.clone() for p in m.parameters()])
        if handle:
            handle.remove()
    return seen


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("step", [forward, whole_step])
@pytest.mark.parametrize("made", MADE)
def test_hooks_that_come_later_are_met(made, step, backend):
    compiled = framejit.compile(step, backend=backend)
    assert_same(train(step, made()), train(compiled, made()))


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("step", [forward, whole_step])
@pytest.mark.parametrize("made", MADE)
def test_no_torch_level(made, step, backend):
    compiled = framejit.compile(step, backend=backend)
    m = made()
    for _ in range(3):
        result = compiled(m, torch.ones(5, 3))
        if result.requires_grad:
            result.sum().backward()
    for entry in framejit.inspect(compiled):
        assert not entry.fallback_reason, entry.fallback_reason
        assert not entry.breaks
