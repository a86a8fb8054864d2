"""The program of the project's first page, and the two that go with it."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import framejit
from differential import BACKENDS


def make_function(threshold):
    taken = {"true": 0, "false": 0}

    def function(inputs):
        x, y = inputs["x"], inputs["y"]
        x = x.cos().cos()
        if x.mean() > threshold:
            x = x / 1.1
        return x * y

    def count(inputs):
        branch = inputs["x"].cos().cos().mean() > threshold
        taken["true" if branch else "false"] += 1

    return function, count, taken


def leaves(n, scale=1.0):
    x = (torch.randn(n) * scale).requires_grad_()
    y = torch.randn(n, requires_grad=True)
    return x, y


def one_round(function, compiled, n, scale=1.0):
    x, y = leaves(n, scale)
    x2, y2 = (t.detach().clone().requires_grad_() for t in (x, y))
    expected = function({"x": x, "y": y})
    actual = compiled({"x": x2, "y": y2})
    torch.testing.assert_close(actual, expected)
    expected.sum().backward()
    actual.sum().backward()
    torch.testing.assert_close(x2.grad, x.grad)
    torch.testing.assert_close(y2.grad, y.grad)


def all_entries(compiled):
    return [e for entry in framejit.inspect(compiled) for e in entry.walk()]


@pytest.mark.parametrize("backend", BACKENDS)
def test_main_job(backend):
    function, _, _ = make_function(0.5)
    compiled = framejit.compile(function, backend=backend)
    compiles = {}
    for n in (10, 8, 11, 300):
        for _ in range(100):
            one_round(function, compiled, n)
        compiles[n] = framejit.counters()["compiles"]
    # Frame and true branch, once static and once with a symbolic size.
    assert compiles == {10: 2, 8: 4, 11: 4, 300: 4}
    first = framejit.inspect(compiled)
    assert len(first) == 2
    assert [len(entry.symbols) for entry in first] == [1, 0]
    assert all(len(entry.breaks) == 1 for entry in first)
    assert first[0].breaks[0].id == "FJ101"
    assert len(first[0].resume) == 2
    assert framejit.counters()["fallbacks"] == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_both_branches(backend):
    function, count, taken = make_function(0.7)
    compiled = framejit.compile(function, backend=backend)
    for n in (10, 8, 300):
        for scale in (0.3, 3.0):
            for _ in range(50):
                x, y = leaves(n, scale)
                count({"x": x, "y": y})
                expected = function({"x": x, "y": y})
                torch.testing.assert_close(compiled({"x": x, "y": y}), expected)
            for _ in range(20):
                one_round(function, compiled, n, scale)
    # 0.3*randn: cos(cos x) is about cos 1 = 0.54..0.6: false; 3*randn: mostly true.
    assert taken["false"] >= 150
    assert taken["true"] >= 50
    entries = all_entries(compiled)
    resumed = [list(entry.resume.values()) for entry in framejit.inspect(compiled)]
    assert any(all(len(found) >= 1 for found in both) for both in resumed), entries


def test_keeps_one_tensor_for_backward():
    @framejit.compile(backend="aot_eager")
    def function(x):
        return x.cos().cos()

    x = torch.randn(10, requires_grad=True)
    function(x).sum().backward()
    torch.testing.assert_close(x.grad, torch.autograd.grad(x.cos().cos().sum(), x)[0])
    (entry,) = framejit.inspect(function)
    assert entry.saved_tensors == 1


class Small(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(16, 64)
        self.norm = nn.LayerNorm(64)
        self.dropout = nn.Dropout(0.1)
        self.down = nn.Linear(64, 4)

    def forward(self, x):
        x = torch.nn.functional.gelu(self.up(x))
        return self.down(self.dropout(self.norm(x)))


@pytest.mark.parametrize("backend", BACKENDS)
def test_trains_like_eager(backend):
    torch.manual_seed(1)
    eager = Small()
    plain = copy.deepcopy(eager)
    compiled = framejit.compile(plain, backend=backend)
    inputs, targets = torch.randn(32, 16), torch.randn(32, 4)
    losses = []
    for model in (eager, compiled):
        torch.manual_seed(2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        history = []
        for _ in range(10):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            optimizer.step()
            history.append(loss.item())
        losses.append(history)
    torch.testing.assert_close(torch.tensor(losses[1]), torch.tensor(losses[0]))
    for (name, a), (_, b) in zip(eager.named_parameters(), compiled.named_parameters()):
        torch.testing.assert_close(b, a, msg=lambda m, name=name: f"{name}: {m}")
    entries = all_entries(compiled)
    assert len(entries) == 1 and not entries[0].breaks


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x):
        return torch.tanh(self.linear(x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_equal_layers_share_one_entry(backend):
    layers = [Layer() for _ in range(24)]

    @framejit.compile(backend=backend)
    def helper(layer, x):
        return layer(x)

    def run(call, x):
        for layer in layers:
            x = call(layer, x)
        return x

    # What a layer returns requires grad, so the first input does, too.
    x = torch.randn(3, 8, requires_grad=True)
    for _ in range(3):
        torch.testing.assert_close(run(helper, x), run(lambda layer, x: layer(x), x))
    assert len(framejit.inspect(helper)) == 1
    assert framejit.counters()["compiles"] == 1
