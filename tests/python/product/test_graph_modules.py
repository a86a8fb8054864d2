"""What tracers return is a module again: fx.GraphModule, exported programs."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import framejit
from differential import BACKENDS, assert_same
from framejit import _script


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 4)
        self.norm = nn.BatchNorm1d(8)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls.add_(1)
        return self.second(self.norm(self.first(x)).relu()) * self.calls


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x):
        y = self.linear(x)
        self.total.add_(y.detach().sum(0))
        return y * 2, {"total": self.total + 0}


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        y = self.inner(x + 1)
        return (y[0] if isinstance(y, tuple) else y).tanh()


TRACERS = {
    "symbolic_trace": lambda module, x: torch.fx.symbolic_trace(module),
    "export": lambda module, x: torch.export.export(module, (x,)).module(),
    "twice": lambda module, x: torch.fx.symbolic_trace(torch.fx.symbolic_trace(module)),
}


def traced(kind, cls):
    torch.manual_seed(0)
    module = cls()
    return TRACERS[kind](module, torch.rand(3, 4))


def no_graph_is_missing(graphs=1):
    assert framejit.counters()["breaks"] == 0, framejit.events()
    assert framejit.counters()["compiles"] == graphs, framejit.events()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("outer", [False, True], ids=["alone", "submodule"])
@pytest.mark.parametrize("cls", [Net, Buffers])
@pytest.mark.parametrize("kind", TRACERS)
def test_traced_modules_compile(kind, cls, outer, backend):
    module = traced(kind, cls)
    if outer:
        module = Outer(module)
    plain = copy.deepcopy(module)
    compiled = framejit.compile(module, backend=backend)
    framejit.reset()
    for _ in range(3):
        x = torch.rand(3, 4)
        a, b = x.clone().requires_grad_(), x.clone().requires_grad_()
        found, expected = compiled(a), plain(b)
        assert_same(found, expected)
        for result, at in ((found, a), (expected, b)):
            loss = result[0] if isinstance(result, tuple) else result
            loss.sum().backward()
        assert_same(a.grad, b.grad)
    for (name, one), (_, other) in zip(
        module.named_parameters(), plain.named_parameters(), strict=True
    ):
        assert_same(one.grad, other.grad), name
    for one, other in zip(module.buffers(), plain.buffers(), strict=True):
        assert_same(one, other)
    no_graph_is_missing()


@pytest.mark.parametrize("cls", [Net, Buffers])
@pytest.mark.parametrize("kind", TRACERS)
def test_traced_modules_compile_in_place_and_with_hooks(kind, cls):
    module = traced(kind, cls)
    plain = copy.deepcopy(module)
    for each in (module, plain):
        each.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    framejit.reset()
    framejit.compile_inplace(module)
    for _ in range(2):
        x = torch.rand(3, 4)
        assert_same(module(x), plain(x))
    no_graph_is_missing()


def test_a_graph_that_is_edited_is_compiled_again():
    module = traced("symbolic_trace", Net)
    compiled = framejit.compile(module)
    x = torch.rand(3, 4)
    for node in module.graph.nodes:
        if node.target in (torch.relu, "relu"):
            node.target = "tanh"
    before = compiled(x)
    module.recompile()
    plain = copy.deepcopy(module)
    after = compiled(x)
    assert_same(after, plain(x))
    assert not torch.equal(before, after)


class Direct(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(4, 4))

    def forward(self, x):
        return x @ self.weight


def test_an_input_that_does_not_fit_raises_what_eager_raises(capsys):
    module = traced("symbolic_trace", Direct)
    compiled = framejit.compile(module)
    with pytest.raises(RuntimeError) as wanted:
        module(torch.rand(3, 5))
    said = capsys.readouterr().err
    with pytest.raises(RuntimeError) as found:
        compiled(torch.rand(3, 5))
    assert str(found.value) == str(wanted.value)
    assert "FX-traced Module" in said
    assert "FX-traced Module" in capsys.readouterr().err


def test_exported_shapes_are_checked():
    module = traced("export", Net)
    compiled = framejit.compile(module)
    with pytest.raises((RuntimeError, AssertionError)) as wanted:
        module(torch.rand(5, 4))
    with pytest.raises((RuntimeError, AssertionError)) as found:
        compiled(torch.rand(5, 4))
    assert type(found.value) is type(wanted.value)
    assert str(found.value) == str(wanted.value)


def test_an_export_with_a_dynamic_size_has_one_symbolic_entry():
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))
    batch = torch.export.Dim("batch", min=2)
    exported = torch.export.export(
        module, (torch.rand(3, 4),), dynamic_shapes={"input": {0: batch}}
    ).module()
    compiled = framejit.compile(exported)
    framejit.reset()
    for size in (3, 5, 7, 9, 16, 17):
        x = torch.rand(size, 4)
        assert_same(compiled(x), exported(x))
    no_graph_is_missing(graphs=2)


def test_the_mode_for_scripts_compiles_them():
    module = traced("symbolic_trace", Net)
    plain = copy.deepcopy(module)
    framejit.reset()
    _script.start()
    try:
        for _ in range(3):
            x = torch.rand(3, 4)
            assert_same(module(x), plain(x))
    finally:
        _script.stop()
    assert framejit.counters()["compiles"] >= 1
