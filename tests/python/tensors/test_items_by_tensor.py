"""x[t] with tensors of no dims: reads and writes, what is done with the result and
with x before and behind, by every backend. Plain reads become part of kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit
from differential import BACKENDS, check

INDICES: dict[str, Callable[[], Any]] = {
    "first": lambda: torch.tensor(0),
    "last": lambda: torch.tensor(-1),
    "int32": lambda: torch.tensor(2, dtype=torch.int32),
    "int8": lambda: torch.tensor(1, dtype=torch.int8),
    "beyond": lambda: torch.tensor(9),
    "below": lambda: torch.tensor(-9),
    "uint8": lambda: torch.tensor(1, dtype=torch.uint8),
    "bool": lambda: torch.tensor(True),
    "one element": lambda: torch.tensor([1]),
    "float": lambda: torch.tensor(1.0),
}

Program = Callable[[Any, Any], Any]


def written(x: Any, t: Any) -> Any:
    y = x[t]
    y.add_(1)
    return x * 2


def written_below(x: Any, t: Any) -> Any:
    y = x[t]
    y[0].mul_(3)
    return x * 2, y + 1


def base_written(x: Any, t: Any) -> Any:
    y = x[t]
    x.mul_(2)
    return y + 1


def base_written_before(x: Any, t: Any) -> Any:
    x.mul_(2)
    return x[t] + 1


def made_and_written(x: Any, t: Any) -> Any:
    z = x * 2
    y = z[t]
    z.add_(1)
    return y * 2, z


def put(x: Any, t: Any) -> Any:
    x[t] = x.sum(0)
    return x + 1


def put_number(x: Any, t: Any) -> Any:
    x[t] = 3.0
    return x + 1


def put_other_type(x: Any, t: Any) -> Any:
    x[t] = torch.arange(x.shape[1])
    return x + 1


def put_too_much(x: Any, t: Any) -> Any:
    x[t] = torch.ones(1, 1, x.shape[1])
    return x + 1


def put_into_made(x: Any, t: Any) -> Any:
    z = x * 2
    z[t] = x[0] * 5
    return z.sin()


def added(x: Any, t: Any) -> Any:
    x[t] += 1
    return x * 2


def both(x: Any, t: Any) -> Any:
    z = x * 2
    y = z[t]
    z[t] = y + 1
    return z, y * 2


PROGRAMS: dict[str, Program] = {
    "read": lambda x, t: (x * 2)[t] + 1,
    "read an argument": lambda x, t: x[t].sin() * 2,
    "two": lambda x, t: x[t, t] * 2,
    "with a slice": lambda x, t: x[t, 1:] * 2,
    "behind a slice": lambda x, t: x[:, t] * 2,
    "method": lambda x, t: x.__getitem__(t) * 2,
    "argmax": lambda x, t: x[x.sum(1).argmax()] + t,
    "transposed": lambda x, t: x.t()[t] * 2,
    "chain": lambda x, t: x[t][t] * 2,
    "in a loop": lambda x, t: sum((x[t + i - 1] * i).sum() for i in range(2)),
    "returned": lambda x, t: (x[t], x + 1),
    "returned view": lambda x, t: x[t][1:],
    "of made, returned": lambda x, t: (x * 2)[t],
    "view of made, returned": lambda x, t: ((x * 2)[t].view(-1), x + 1),
    "detached": lambda x, t: x[t].detach() + x,
    "too many": lambda x, t: x[t, t, t],
    "written": written,
    "written below": written_below,
    "base written": base_written,
    "base written before": base_written_before,
    "made and written": made_and_written,
    "put": put,
    "put number": put_number,
    "put other type": put_other_type,
    "put too much": put_too_much,
    "put into made": put_into_made,
    "added": added,
    "both": both,
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("name", PROGRAMS)
def test_equals_eager(name: str, index: str, requires_grad: bool, backend: str) -> None:
    def make_args() -> tuple[Any, ...]:
        x = torch.arange(12.0).reshape(4, 3).requires_grad_(requires_grad)
        return x, INDICES[index]()

    check(PROGRAMS[name], make_args, backends=(backend,))


LOWERED = ["read", "read an argument", "two", "argmax", "chain", "put into made"]


@pytest.mark.parametrize("name", LOWERED)
def test_it_is_part_of_the_graph(name: str) -> None:
    compiled = framejit.compile(PROGRAMS[name])
    compiled(torch.ones(4, 3), torch.tensor(1))
    (entry,) = framejit.inspect(compiled)
    assert entry.fallback_reason == "" and entry.loop_nodes > 0


def test_a_function_of_that_name_is_another() -> None:
    @framejit.allow_in_graph
    def getitem(x: Any, t: Any) -> Any:
        return x * t

    def f(x: Any, t: Any) -> Any:
        return getitem(x, t) + 1

    compiled = framejit.compile(f)
    for _ in range(2):
        x, t = torch.arange(12.0).reshape(4, 3), torch.tensor(2)
        assert torch.equal(compiled(x, t), f(x, t))
