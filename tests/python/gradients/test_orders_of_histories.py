"""Outputs of which one is in the history of another, whichever was made first.

A view gets its history anew when its base is written to, so what it passes
through may have been made after it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

BACKENDS = ("eager", "aot_eager", "native")
View = Callable[[torch.Tensor], torch.Tensor]
Write = Callable[[torch.Tensor, torch.Tensor], Any]

VIEWS: dict[str, View] = {
    "row": lambda x: x[0],
    "column": lambda x: x[:, 0],
    "transposed": lambda x: x.t(),
    "viewed": lambda x: x.view(-1),
    "diagonal": lambda x: x.diagonal(),
}
WRITES: dict[str, Write] = {
    "base": lambda x, v: x.neg_(),
    "view": lambda x, v: v.mul_(2),
    "base, then view": lambda x, v: (x.add_(1), v.mul_(2)),
    "view, then base": lambda x, v: (v.mul_(2), x.sin_()),
    "nothing": lambda x, v: None,
}
RESULTS: dict[str, Callable[..., Any]] = {
    "other names": lambda a, x, v: (a.clamp(min=1e-3) @ a, (x.t() * v.sum()).sum(0)),
    "all": lambda a, x, v: (x, v, x.exp(), v.exp()),
    "view last": lambda a, x, v: (x.exp(), x, v + 1, v),
    "of both": lambda a, x, v: (v.sum() * x, v, (v.sum() * x).sin()),
    "base first": lambda a, x, v: (x * 2, x.sum(), v * 3),
}


def gradients(fn: Callable[..., Any], call: int) -> Any:
    torch.manual_seed(call)
    a = torch.randn(3, 3, requires_grad=True)
    outputs = fn(a)
    total = sum((i + 1) * t.square().sum() for i, t in enumerate(outputs))
    try:
        return torch.autograd.grad(total, [a])[0]
    except RuntimeError as error:
        return str(error)[:60]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("break_behind", [False, True])
@pytest.mark.parametrize("write", WRITES)
def test_gradients(write: str, break_behind: bool, backend: str) -> None:
    for view, results in itertools.product(VIEWS, RESULTS):

        def f(a, view=VIEWS[view], results=RESULTS[results]):
            x = a * 1
            v = view(x)
            WRITES[write](x, v)
            found = results(a, x, v)
            if break_behind:
                framejit.graph_break()
            return found

        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        for call in range(2):
            expected, actual = gradients(f, call), gradients(compiled, call)
            where = f"{view}, {results}"
            if isinstance(expected, str):
                assert actual == expected, where
            else:
                torch.testing.assert_close(
                    actual, expected, msg=lambda m, w=where: f"{w}: {m}"
                )
