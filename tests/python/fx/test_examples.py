"""What examples decide is a fact of the graph, and looking at them changes nothing."""

from __future__ import annotations

import threading

import torch
from torch import nn

from fx.both import ours

TraceError = ours.TraceError

x34 = torch.linspace(-1, 1, 12).view(3, 4)


class Keeps(nn.Module):
    """Writes what it can into itself."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.scale = nn.Parameter(torch.ones(4))
        self.plain = torch.zeros(2)
        self.seen, self.table, self.number = [], {}, 0
        self.lock = threading.Lock()
        self.inner = nn.BatchNorm1d(4, momentum=None)

    def forward(self, x):
        self.calls += 1
        self.plain.add_(1)
        self.last = x
        self.seen.append(x)
        self.table["x"] = x
        self.number += 1
        self.calls = self.calls + 1
        with self.lock, torch.no_grad():
            self.scale.mul_(2)
        return self.inner(x) * self.scale * self.number


class LeavesAlone(ours.Tracer):
    def is_leaf_module(self, m, path):
        return isinstance(m, Keeps) or super().is_leaf_module(m, path)


def test_modules_that_run_for_examples_are_left_as_they_were():
    leaf = Keeps()
    leaf.register_forward_pre_hook(lambda m, args: setattr(m, "hooked", args))
    root = nn.Sequential(leaf, nn.BatchNorm1d(4), nn.GRU(4, 3), leaf)[:3]
    state = {k: v.clone() for k, v in root.state_dict().items()}
    tensors = {k: id(v) for k, v in root.state_dict(keep_vars=True).items()}
    names = list(vars(leaf))

    tracer = LeavesAlone()
    graph = tracer.trace(root, example_inputs=(x34,))
    assert [n.op for n in graph.nodes].count("call_module") == 3
    assert tensors == {k: id(v) for k, v in root.state_dict(keep_vars=True).items()}
    for key, value in root.state_dict().items():
        assert torch.equal(value, state[key]), key
    assert list(vars(leaf)) == names
    assert leaf.seen == [] and leaf.table == {} and leaf.number == 0
    assert torch.equal(leaf.plain, torch.zeros(2))


def test_what_a_leaf_writes_the_next_call_of_it_finds():
    class Counts(nn.Module):
        number = 0

        def forward(self, x):
            self.number += 1
            return x[: self.number]

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf = Counts()

        def forward(self, x):
            first, second = self.leaf(x), self.leaf(x)
            return x * 2 if first.shape[0] < second.shape[0] else x

    class Tracer(ours.Tracer):
        def is_leaf_module(self, m, path):
            return isinstance(m, Counts)

    root = Twice()
    graph = Tracer().trace(root, example_inputs=(x34,))
    assert root.leaf.number == 0
    assert torch.equal(ours.GraphModule(root, graph)(x34), x34 * 2)
