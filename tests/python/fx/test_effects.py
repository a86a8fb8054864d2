"""What no graph does when it runs is refused while the program is traced."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fx.both import ours

x34 = torch.linspace(-1, 1, 12).view(3, 4)


class Writes(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(4))
        self.weight = nn.Parameter(torch.ones(4))
        self.cache = None


class KeepsAProxy(Writes):
    def forward(self, x):
        self.cache = x * 2
        return x + self.cache


class NewBuffer(Writes):
    def forward(self, x):
        self.mean = self.mean + x[0]
        return x + self.mean


class CountsBuffer(Writes):
    def forward(self, x):
        self.mean = self.mean + 1
        return x + self.mean


class SetsData(Writes):
    def forward(self, x):
        self.weight.data = self.weight.data + 1
        return x + self.weight


class SetsRequiresGrad(Writes):
    def forward(self, x):
        x.requires_grad = True
        return x * 2


class Swallows(Writes):
    def forward(self, x):
        try:
            self.cache = x
        except ValueError:
            pass
        return x


@pytest.mark.parametrize(
    "cls",
    [KeepsAProxy, NewBuffer, CountsBuffer, SetsData, SetsRequiresGrad, Swallows],
)
@pytest.mark.parametrize("how", [{}, {"example_inputs": (x34,)}])
def test_what_a_graph_cannot_assign_is_refused(cls, how):
    module = cls()
    state = dict(vars(module)["_buffers"])
    with pytest.raises(ours.TraceError, match=r"test_effects.py:\d+ in forward: "):
        ours.symbolic_trace(module, **how)
    assert vars(module)["_buffers"] == state and module.cache is None
    assert not isinstance(module.weight.data, ours.Proxy)


def test_modules_made_in_a_trace_and_plain_values_are_assigned():
    class Makes(nn.Module):
        def forward(self, x):
            self.calls = 3
            inner = nn.BatchNorm1d(4)
            inner.weight = nn.Parameter(torch.ones(4))
            return x * self.calls * inner.num_features

    module = Makes()
    assert torch.equal(ours.symbolic_trace(module)(x34), x34 * 12)
    assert module.calls == 3
    module.cache = x34  # (and nothing is left in nn.Module)


def test_a_tracer_may_assign():
    class Tracer(ours.Tracer):
        def create_arg(self, a):
            if type(a) is bytes:
                self.root.table = torch.tensor(list(a))
                return self.create_node("get_attr", "table", (), {})
            return super().create_arg(a)

    class Reads(nn.Module):
        def forward(self, x):
            return x.add(b"1234") + torch.ones(4)

    tracer = Tracer()
    graph = tracer.trace(Reads())
    made = ours.GraphModule(tracer.root, graph)
    assert torch.equal(made(x34), x34 + torch.tensor([49, 50, 51, 52]) + 1)
