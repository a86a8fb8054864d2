"""Operators of the program that say what they are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

CALLS: list[str] = []


def operator(name: str, results: int = 1) -> Any:
    def scaled(x: torch.Tensor, factor: float = 2.0) -> torch.Tensor:
        CALLS.append(name)
        return x * factor + 1

    def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        CALLS.append(name)
        return x / 2, x / 2 + 1

    made = torch.library.custom_op(
        f"framejit_lowering::{name}",
        scaled if results == 1 else halves,
        mutates_args=(),
    )
    if results == 1:
        made.register_fake(lambda x, factor=2.0: torch.empty_like(x))
    else:
        made.register_fake(lambda x: (torch.empty_like(x), torch.empty_like(x)))
    return made


def graph_of(compiled: Any) -> str:
    (entry,) = framejit.inspect(compiled)
    return entry.forward_graph or entry.joint_graph


def run(program: Callable[..., Any], *inputs: torch.Tensor) -> str:
    CALLS.clear()
    compiled = framejit.compile(program, backend="native")
    for _ in range(2):
        torch.testing.assert_close(compiled(*inputs), program(*inputs))
    return graph_of(compiled)


def test_what_it_is_made_of_is_in_the_graph() -> None:
    op = operator("made_of")
    graph = run(lambda x: op(x, 3.0) * 2, torch.randn(5))
    assert "framejit_lowering.made_of" in graph

    @framejit.register_lowering(op)
    def lowering(x, factor=2.0):
        return x * factor + 1

    graph = run(lambda x: op(x, 3.0) * 2 - 1, torch.randn(5))
    assert "framejit_lowering" not in graph
    assert "aten.add" in graph
    # Eager's calls only.
    assert CALLS == ["made_of"] * 2


def test_names_and_several_results() -> None:
    operator("halves", 2)
    name = "framejit_lowering::halves"
    framejit.register_lowering(name)(lambda x: (x / 2, x / 2 + 1))
    op = torch.ops.framejit_lowering.halves
    graph = run(lambda x: op(x)[0] * op(x)[1], torch.randn(5))
    assert "framejit_lowering" not in graph


def test_arguments_are_what_the_operator_is_given() -> None:
    @torch.library.custom_op(
        "framejit_lowering::converted",
        mutates_args=(),
        schema="(Tensor x, ScalarType dtype, Layout layout, "
        "MemoryFormat memory_format, Device device, ScalarType? other=None) -> Tensor",
    )
    def converted(x, dtype, layout, memory_format, device, other=None):
        return x.to(dtype) + 1

    converted.register_fake(lambda x, dtype, *rest: torch.empty_like(x, dtype=dtype))
    seen: list[tuple[Any, ...]] = []

    @framejit.register_lowering(converted)
    def lowering(x, dtype, layout, memory_format, device, other=None):
        seen.append((dtype, layout, memory_format, device, other))
        return x.to(dtype) + 1

    given = (
        torch.float64,
        torch.strided,
        torch.contiguous_format,
        torch.device("cpu"),
        torch.int8,
    )
    graph = run(lambda x: converted(x, *given) * 2, torch.randn(5))
    assert "framejit_lowering" not in graph
    assert seen[-1] == given


def test_results_are_memory_of_their_own() -> None:
    op = operator("same")

    @framejit.register_lowering(op)
    def lowering(x, factor=2.0):
        return x.view(-1).view(x.shape) if factor == 1.0 else x

    compiled = framejit.compile(lambda x: op(x, 1.0))
    x = torch.randn(5)
    y = compiled(x)
    assert torch.equal(x, y)
    assert y.data_ptr() != x.data_ptr()


@pytest.mark.parametrize(
    "lowering",
    [
        lambda x, factor=2.0: x.double() * factor + 1,
        lambda x, factor=2.0: (x * factor + 1)[:2],
        lambda x, factor=2.0: 3,
        lambda x, factor=2.0: 1 / 0,
        lambda x, factor=2.0: x.clone().mul_(factor).add_(1),
        lambda x, factor=2.0: torch.empty(5, device="meta"),
    ],
)
def test_what_is_not_what_the_operator_is_keeps_it(lowering: Any) -> None:
    op = operator(f"kept{len(KEPT)}")
    KEPT.append(op)
    framejit.register_lowering(op)(lowering)
    compiled = framejit.compile(lambda x: op(x) * 2)
    x = torch.randn(5)
    torch.testing.assert_close(compiled(x), (x * 2 + 1) * 2)


KEPT: list[Any] = []


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="torch's own"):
        framejit.register_lowering(torch.ops.aten.mul.Tensor)
    with pytest.raises(ValueError, match="no operator"):
        framejit.register_lowering("framejit_lowering::nothing")
    with pytest.raises(TypeError, match="an operator"):
        framejit.register_lowering(3)

    @torch.library.custom_op("framejit_lowering::writes", mutates_args=("x",))
    def writes(x: torch.Tensor) -> None:
        x.add_(1)

    with pytest.raises(ValueError, match="writes"):
        framejit.register_lowering(writes)
