"""A graph that would give out a history which a backward within it has used says so
in our words, and the page's advice makes it a graph of operators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import framejit

PAGE = Path(__file__).parents[3] / "docs" / "breaks" / "FJ601.md"


PROGRAMS = {
    "retained": """
def step(layer, head, optimizer, x):
    loss = head((x @ layer).relu()).square().mean()
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    {end}
""",
    "written": """
def step(layer, head, optimizer, x):
    loss = ((x @ layer).sum(1) - 1).square().mean()
    (gradient,) = torch.autograd.grad(loss, [layer], create_graph=True)
    optimizer.zero_grad()
    (x @ (layer - 0.05 * gradient)).square().mean().backward()
    with torch.no_grad():
        layer.mul_(0.99)
    {end}
""",
    "meta": """
def step(layer, head, optimizer, x):
    loss = head(x @ layer).square().mean()
    (gradient,) = torch.autograd.grad(loss, [layer], create_graph=True)
    meta = head(x @ (layer - 0.05 * gradient)).square().mean()
    optimizer.zero_grad()
    meta.backward()
    loss = meta
    del meta
    {end}
""",
}
ENDS = [
    "return loss.item()",
    "return loss.detach()",
    "loss = loss.detach(); return loss.item()",
]


def run(program: str, end: str, compiled: bool) -> tuple[Any, ...]:
    torch.manual_seed(0)
    layer, head = nn.Parameter(torch.full((4, 8), 0.1)), nn.Linear(8, 1)
    optimizer = torch.optim.SGD([layer, *head.parameters()], 0.05)
    names: dict[str, Any] = {"torch": torch}
    exec(PROGRAMS[program].format(end=end), names)
    function = framejit.compile(names["step"]) if compiled else names["step"]
    found = [
        float(function(layer, head, optimizer, torch.randn(5, 4))) for _ in range(4)
    ]
    return found, [layer.detach(), head.weight.detach()], function


def reasons(function: Any) -> set[str]:
    entries = [e for top in framejit.inspect(function) for e in top.walk()]
    return {entry.fallback_reason for entry in entries if entry.fallback_reason}


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("end", ENDS)
def test_equals_eager_and_speaks_for_itself(program: str, end: str) -> None:
    framejit.reset()
    found, weights, function = run(program, end, compiled=True)
    expected, expected_weights, _ = run(program, end, compiled=False)
    assert found == pytest.approx(expected, rel=1e-5)
    torch.testing.assert_close(weights, expected_weights)
    texts = " ".join([*reasons(function), *(text for _, text in framejit.events())])
    assert "inplace operation" not in texts and "second time" not in texts
    if end != ENDS[0]:
        assert not reasons(function)
    elif program == "retained":
        assert reasons(function)
    for reason in reasons(function):
        assert "the history of an output was used by a backward in the graph" in reason
        assert "loss = loss.detach()" in reason


def test_the_page_has_it() -> None:
    text = " ".join(PAGE.read_text().split())
    assert "the history of an output was used by a backward in the graph" in text
    assert "assigns data of a tensor" in text
