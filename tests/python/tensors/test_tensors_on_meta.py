"""Tensors without data among a model's parameters: what is only passed on is no
reason to break (the ensembles of torch.func); what is computed with them is."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.func import functional_call, stack_module_state, vmap

import framejit
from differential import BACKENDS


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_ensemble(backend):
    models = [nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 2)) for _ in "abc"]
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def one(p, b, x):
        return functional_call(base, (p, b), (x,))

    def fn(p, b, x):
        return vmap(one, (0, 0, None))(p, b, x)

    framejit.reset()
    compiled = framejit.compile(fn, backend=backend)
    for _ in range(3):
        x = torch.randn(5, 4)
        got, want = compiled(parameters, buffers, x), fn(parameters, buffers, x)
        torch.testing.assert_close(got, want)
    assert all(p.is_meta for p in base.parameters())
    assert framejit.counters()["breaks"] == 0
    (entry,) = framejit.inspect(compiled)
    assert entry.operations


class Holder(nn.Module):
    def __init__(self):
        super().__init__()
        self.used = nn.Parameter(torch.randn(3))
        self.idle = nn.Parameter(torch.empty(3, device="meta"))


def test_facts_of_them():
    module = Holder()

    def fn(x):
        count = sum(p.numel() for p in module.parameters() if not p.is_meta)
        idle = module.idle
        return x * module.used + count, idle, idle.device.type, idle.dtype

    framejit.reset()
    compiled = framejit.compile(fn)
    for _ in range(2):
        x = torch.randn(3)
        got, want = compiled(x), fn(x)
        assert got[1] is want[1] is module.idle
        assert got[2:] == want[2:]
        torch.testing.assert_close(got[0], want[0])
    # Another takes its place: with data.
    module.idle = nn.Parameter(torch.ones(3))
    got, want = compiled(x), fn(x)
    assert got[1] is want[1] and got[2:] == want[2:]
    torch.testing.assert_close(got[0], want[0])


USES = {
    "sum": lambda m, x: (x * 2, m + 1),
    "method": lambda m, x: (x * 2, m.sum()),
    "like": lambda m, x: (x * 2, torch.zeros_like(m)),
    "detach": lambda m, x: (x * 2, m.detach()),
    "written": lambda m, x: (x * 2, m.detach().add_(1)),
    "gradient": lambda m, x: (x * 2, (m * 2).requires_grad),
    "attribute": lambda m, x: (x * 2, m.T),
}


@pytest.mark.parametrize("name", USES)
def test_operations_on_them_break(name):
    use = USES[name]
    framejit.reset()
    compiled = framejit.compile(lambda m, x: use(m, x))
    for _ in range(2):
        m, x = torch.empty(3, device="meta"), torch.randn(3)
        got, want = compiled(m, x), use(m, x)
        torch.testing.assert_close(got[0], want[0])
        if isinstance(want[1], torch.Tensor):
            assert got[1].is_meta and got[1].shape == want[1].shape
        else:
            assert got[1] == want[1]
    breaks = [text for channel, text in framejit.events() if channel == "graph_breaks"]
    assert any("FJ302" in text and "a tensor on meta" in text for text in breaks)
