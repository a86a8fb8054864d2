"""``isinstance`` of values without examples: right, checked by the graph, or refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fx.both import ours

x34 = torch.linspace(-1, 1, 12).view(3, 4)


class Own(nn.Module):
    """Of what it asks is seen in the result."""

    def __init__(self, classes):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.ones(4))
        self.inner = nn.Sequential(nn.Linear(4, 4))
        self.classes = classes

    def forward(self, x):
        scale = 1.0
        if isinstance(self.weight, self.classes):
            scale = scale * 2
        if isinstance(self.mean, self.classes):
            scale = scale * 3
        if isinstance(self.inner[0].bias, self.classes):
            scale = scale * 5
        return x * scale


@pytest.mark.parametrize(
    "classes", [torch.Tensor, nn.Parameter, (int, nn.Parameter), (list, tuple)]
)
@pytest.mark.parametrize("how", [{}, {"example_inputs": (x34,)}])
def test_parameters_are_what_they_are(classes, how):
    program = Own(classes)
    traced = ours.symbolic_trace(program, **how)
    assert torch.equal(traced(x34), program(x34))


DERIVED = [
    lambda x: x * 2 if isinstance(x.shape, tuple) else x * 3,
    lambda x: x * 2 if isinstance(x.shape[0], int) else x * 3,
    lambda x: x * 2 if isinstance(x.shape[:1], torch.Size) else x * 3,
    lambda x: x * 2 if isinstance(x.size(), torch.Size) else x * 3,
    lambda x: x * 2 if isinstance(x.size(0), int) else x * 3,
    lambda x: x * 2 if isinstance(x.stride(), tuple) else x * 3,
    lambda x: x * 2 if isinstance(x.max(0), tuple) else x * 3,
    lambda x: x * 2 if isinstance(x.max(), tuple) else x * 3,
    lambda x: x * 2 if isinstance(x.sort(), tuple) else x * 3,
    lambda x: x * 2 if isinstance(x.dtype, torch.dtype) else x * 3,
    lambda x: x * 2 if isinstance(x[0], torch.Tensor) else x * 3,
    lambda x: x * 2 if isinstance(x.relu() + 1, (tuple, list)) else x * 3,
]


@pytest.mark.parametrize("at", range(len(DERIVED)))
def test_what_follows_from_an_input_that_is_a_tensor(at):
    program = DERIVED[at]
    traced = ours.symbolic_trace(program)
    assert torch.equal(traced(x34), program(x34))
    assert torch.equal(ours.symbolic_trace(traced)(x34), program(x34))


def test_other_inputs_are_found_out():
    traced = ours.symbolic_trace(
        lambda x: x * 2 if isinstance(x[0], torch.Tensor) else x * 3
    )
    with pytest.raises(TypeError, match="is a Tensor .* but it is of class int"):
        traced([1, 2])
    plain = ours.symbolic_trace(
        lambda x: x * 2 if isinstance(x, nn.Parameter) else x * 3
    )
    assert torch.equal(plain(x34), x34 * 3)
    with pytest.raises(TypeError, match="is no Parameter .*of class Parameter"):
        plain(nn.Parameter(x34))


def test_what_nothing_is_known_of_is_refused():
    class Calls(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(4, 3)

        def forward(self, x):
            made = self.gru(x)
            return made[0] if isinstance(made, tuple) else made

    for program in (
        Calls(),
        lambda x: x * 2 if isinstance(x.mean().item(), float) else x,
        lambda x: x * 2 if isinstance(torch.max(x, 0), tuple) else x,
    ):
        with pytest.raises(ours.TraceError, match="hint: trace with example_inputs"):
            ours.symbolic_trace(program)
    traced = ours.symbolic_trace(Calls(), example_inputs=(x34,))
    assert traced(x34).shape == (3, 3)


def _asks_for(classes):
    return lambda x: x + isinstance(x, classes)


@pytest.mark.parametrize("how", [{}, {"example_inputs": (x34,)}])
def test_classes_that_are_dtypes_are_refused(how):
    for classes in (torch.FloatTensor, (int, torch.LongTensor)):
        with pytest.raises(ours.TraceError, match=r"hint: ask for x\.dtype"):
            ours.symbolic_trace(_asks_for(classes), **how)
