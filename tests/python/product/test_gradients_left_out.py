"""Gradients that nobody asked for: operators leave them out."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import framejit

Program = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def batch_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, w, b, training=True)


def running_norm(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, b.detach(), w.detach().abs() + 1, w, b)


PROGRAMS: dict[str, tuple[Program, tuple[int, ...], tuple[int, ...]]] = {
    "convolution": (F.conv2d, (2, 3, 9, 8), (3, 3, 2, 2)),
    "transposed": (F.conv_transpose2d, (2, 3, 9, 8), (3, 3, 2, 2)),
    "layer_norm": (lambda x, w, b: F.layer_norm(x, (3,), w, b), (2, 7, 3), (3,)),
    "group_norm": (lambda x, w, b: F.group_norm(x, 3, w, b), (2, 3, 9), (3,)),
    "batch_norm": (batch_norm, (2, 3, 9), (3,)),
    "running_norm": (running_norm, (2, 3, 9), (3,)),
    "linear": (F.linear, (2, 7, 3), (3, 3)),
    "bilinear": (lambda x, w, b: F.bilinear(x, x * 2, w, b), (2, 7, 3), (3, 3, 3)),
    "prelu": (lambda x, w, b: F.prelu(x, w) + b[:, None], (2, 3, 9), (3,)),
    "lerp": (lambda x, w, b: torch.lerp(x, w, b), (2, 7, 3), (3,)),
}
MASKS = [m for m in itertools.product((False, True), repeat=3) if any(m)]


@pytest.mark.parametrize("asked", MASKS, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_only_these_gradients(isa: str, name: str, asked: tuple[bool, ...]) -> None:
    function, *sizes = PROGRAMS[name]
    torch.manual_seed(0)
    inputs = [torch.randn(size) for size in (*sizes, (3,))]

    def program(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return function((x * 2).relu(), w, b).sigmoid()

    compiled = framejit.compile(program)
    gradients = []
    for run in (program, compiled):
        leaves = [
            t.clone().requires_grad_(a) for t, a in zip(inputs, asked, strict=True)
        ]
        run(*leaves).square().sum().backward()
        gradients.append([leaf.grad for leaf in leaves])
    torch.testing.assert_close(gradients[1], gradients[0], rtol=1e-4, atol=1e-5)
    (entry,) = framejit.inspect(compiled)
    assert "whole graph" not in str(entry.not_lowered)
    # Around the call are kernels.
    assert any("sigmoid_backward" in text for text in entry.kernels)


# ---- what is kept for the gradients alone


@pytest.mark.parametrize("kind", ["GRUCell", "LSTMCell"])
@pytest.mark.parametrize("batch", (1, 2, 17))
def test_gates_of_recurrent_cells(isa: str, kind: str, batch: int) -> None:
    """Their parts share memory without saying so, which nobody sees."""
    torch.manual_seed(0)
    cell = getattr(torch.nn, kind)(7, 16)

    def program(x: torch.Tensor) -> torch.Tensor:
        state = None
        for step in x:
            state = cell(step, state)
        last = state if kind == "GRUCell" else state[0]
        return last.square().sum()

    compiled = framejit.compile(program)
    outcomes = []
    for run in (program, compiled):
        x = torch.linspace(-2, 2, 3 * batch * 7).view(3, batch, 7).requires_grad_()
        cell.zero_grad()
        loss = run(x)
        loss.backward()
        outcomes.append([loss, x.grad, *(p.grad for p in cell.parameters())])
    torch.testing.assert_close(outcomes[1], outcomes[0], rtol=1e-4, atol=1e-5)
    (entry,) = framejit.inspect(compiled)
    assert "whole graph" not in str(entry.not_lowered)


def test_parts_that_the_program_sees_share_memory(isa: str) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.unsafe_split(x * 2, 2)

    compiled = framejit.compile(program)
    for run in (program, compiled):
        first, second = run(torch.arange(4.0))
        assert first.untyped_storage().data_ptr() == second.untyped_storage().data_ptr()
        assert second.tolist() == [4, 6]
