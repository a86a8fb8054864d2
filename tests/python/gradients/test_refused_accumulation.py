"""Where a step cannot write in place, what comes before that in eager is there."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit

BACKENDS = ("eager", "aot_eager", "native")


class State:
    def __init__(self) -> None:
        self.w = torch.ones(2, 3, requires_grad=True)
        self.v = torch.ones(2, requires_grad=True)
        self.count = torch.zeros(2)


def accumulates(s: Any, x: Any) -> Any:
    loss = F.linear(x, s.w, s.v).sum()
    loss.backward()
    return loss.detach()


def counts_first(s: Any, x: Any) -> Any:
    s.count.add_(1)
    F.linear(x, s.w, s.v).sum().backward()
    return s.count * 2


def writes_to_both(s: Any, x: Any) -> Any:
    s.count.mul_(2).add_(1)
    x.add_(1)
    return x * 2


def writes_to_a_part(s: Any, x: Any) -> Any:
    s.count.add_(1)
    x[0].add_(1)
    return x * 2


def overlapping_weight_gradient(s: Any) -> Any:
    s.w.grad = torch.ones(1, 3).expand(2, 3)
    return torch.ones(2, 3)


def overlapping_bias_gradient(s: Any) -> Any:
    s.v.grad = torch.ones(1).expand(2)
    return torch.ones(2, 3)


def overlapping_argument(s: Any) -> Any:
    return torch.ones(1, 3).expand(2, 3)


def plain(s: Any) -> Any:
    return torch.ones(2, 3)


def outcome(body: Any, prepare: Any, calls: int) -> Any:
    state = State()
    x = prepare(state)
    found: list[Any] = []
    for _ in range(calls):
        try:
            found.append(body(state, x).clone())
        except RuntimeError as error:
            found.append(str(error))
        for tensor in (state.w.grad, state.v.grad, state.count, x):
            found.append(None if tensor is None else tensor.clone())
    return found


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "prepare",
    [
        plain,
        overlapping_weight_gradient,
        overlapping_bias_gradient,
        overlapping_argument,
    ],
)
@pytest.mark.parametrize(
    "body", [accumulates, counts_first, writes_to_both, writes_to_a_part]
)
def test_the_rest_is_as_eager_leaves_it(body: Any, prepare: Any, backend: str) -> None:
    framejit.reset()
    expected = outcome(body, prepare, 6)
    found = outcome(framejit.compile(body, backend=backend), prepare, 6)
    assert len(expected) == len(found)
    for a, b in zip(expected, found, strict=True):
        if isinstance(a, torch.Tensor):
            torch.testing.assert_close(b, a)
        else:
            assert a == b
