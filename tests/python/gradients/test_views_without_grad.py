"""A view that was made without grad mode refuses what has a history, also where
nothing but the view is left of what it is of: in the same function, behind a break,
and outside of the compiled function."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import framejit

VIEWS = {
    "slice": lambda b: b[1:],
    "all": lambda b: b[:],
    "t": lambda b: b.t(),
    "view": lambda b: b.view(-1),
    "select": lambda b: b[0],
    "expand_as": lambda b: b.view_as(b),
    "diagonal": lambda b: b.diagonal(),
    "two": lambda b: b.t()[1:],
    "none": lambda b: b,
}
WRITES = {
    "add": lambda y, x: y.add_(x.sum()),
    "item": lambda y, x: y.__setitem__(0, x.sum()),
    "copy": lambda y, x: y.copy_(x.mean()),
    "mul": lambda y, x: y.mul_(x.max()),
    "plain": lambda y, x: y.mul_(2),
}


def outcome(function: Any, *args: Any) -> Any:
    try:
        result = function(*args)
    except RuntimeError as error:
        return str(error)[:60]
    return [
        (part.tolist(), part.requires_grad, part.is_leaf)
        if isinstance(part, torch.Tensor)
        else part
        for part in result
    ]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kept", [False, True])
def test_where_it_is_written_to(view: str, write: str, kept: bool) -> None:
    make: Any = VIEWS[view]
    change: Any = WRITES[write]

    def inside(x: Any) -> Any:
        with torch.no_grad():
            base = x + 1
            y = make(base)
            if not kept:
                base = None
        change(y, x)
        return x * 2, y, base

    def across(x: Any) -> Any:
        with torch.no_grad():
            base = x + 1
            y = make(base)
            if not kept:
                base = None
        framejit.graph_break()
        change(y, x)
        return x * 2, y, base

    def within(x: Any) -> Any:
        with torch.no_grad():
            framejit.graph_break()
            base = x + 1
            y = make(base)
            if not kept:
                base = None
        change(y, x)
        return x * 2, y, base

    def made(x: Any) -> Any:
        with torch.no_grad():
            base = x + 1
            y = make(base)
        return (y, base) if kept else (y, None)

    def outside(function: Any) -> Any:
        def run(x: Any) -> Any:
            y, base = function(x)
            change(y, x)
            return x * 2, y, base

        return run

    for backend in ("native", "aot_eager"):
        for function in (inside, across, within):
            framejit.reset()
            compiled = framejit.compile(function, backend=backend)
            for _ in range(2):
                x = torch.arange(9.0).view(3, 3).requires_grad_()
                assert outcome(compiled, x) == outcome(function, x), function
        framejit.reset()
        compiled = outside(framejit.compile(made, backend=backend))
        for _ in range(2):
            x = torch.arange(9.0).view(3, 3).requires_grad_()
            assert outcome(compiled, x) == outcome(outside(made), x)
