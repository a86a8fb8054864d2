"""Memory that inputs share with the program, or its tensors with each other."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import framejit
from differential import assert_same
from framejit import export as fe


class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("b", torch.ones(3))
        self.register_buffer("c", torch.ones(3))
        self.constant = torch.ones(3)
        self.p = nn.Parameter(torch.ones(3))


class WritesBuffer(Own):
    def forward(self, x):
        self.b.add_(1)
        return x * 2 + self.c


class ReplacesBuffer(Own):
    def forward(self, x):
        self.b = self.b + 1
        return x * 2 + self.c


class WritesInput(Own):
    def forward(self, x):
        x.add_(1)
        return self.b * 2 + self.constant + self.p


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        (WritesBuffer, "b"),
        (ReplacesBuffer, "b"),
        (WritesInput, "b"),
        (WritesInput, "constant"),
        (WritesInput, "p"),
    ],
)
@pytest.mark.parametrize("view", [lambda t: t, lambda t: t.view(1, 3)[0]])
def test_an_input_that_is_the_programs_own(kind, path, view):
    module = fe.export(kind(), (torch.rand(3),)).module()
    own = getattr(module, path).detach()
    with pytest.raises(fe.InputError, match=f"shares its memory with {path} of"):
        module(view(own))
    x = torch.rand(3)
    assert_same(module(x.clone()), kind()(x.clone()), "an input of its own")


def test_memory_of_numpy():
    array = torch.ones(8).numpy()
    module = WritesInput()
    module.b = torch.from_numpy(array[1:4])
    program = fe.export(module, (torch.rand(3),)).module()
    with pytest.raises(fe.InputError, match="shares its memory with b"):
        program(torch.from_numpy(array[2:5]))


def test_what_is_not_written_may_be_shared():
    module = fe.export(WritesBuffer(), (torch.rand(3),)).module()
    assert_same(module(module.c), torch.full((3,), 3.0), "c is only read")


@pytest.mark.parametrize("view", [lambda t: t, lambda t: t[1:], lambda t: t.view(4)])
def test_buffers_that_share_memory_and_are_replaced(view):
    class Replaces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            memory = torch.zeros(4)
            self.register_buffer("a", memory)
            self.register_buffer("b", view(memory))

        def forward(self, x):
            self.a = self.a + 1
            return x + self.b

    with pytest.raises(framejit.GraphBreakError, match="shares its memory with b"):
        fe.export(Replaces(), (torch.rand(1),))


def test_a_parameter_that_shares_a_replaced_buffer():
    class Average(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.p = nn.Linear(2, 2)
            self.register_buffer("average", self.p.weight.data)

        def forward(self, x):
            self.average = self.average * 0.5
            return self.p(x)

    with pytest.raises(
        framejit.GraphBreakError, match=r"shares its memory with p\.weight"
    ):
        fe.export(Average(), (torch.rand(1, 2),))
