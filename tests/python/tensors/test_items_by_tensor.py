"""x[t] with tensors of no dims: reads and writes, what is done with the result and
with x before and behind, by every backend. Plain reads become part of kernels."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, ClassVar

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


# ---- what changes between the forward and the backward


def first(x: Any, t: Any) -> Any:
    return (x[t] * 3).sum()


def squared(x: Any, t: Any) -> Any:
    return (x[t] * x[t]).sum()


def put(x: Any, t: Any) -> Any:
    y = x * 2
    y[t] = x.sum(0)
    return (y * y).sum()


def chained(x: Any, t: Any) -> Any:
    row = x[t]
    return (row[t] * row).sum()


def next_index(x: Any, t: Any) -> None:
    t.add_(1)


def zeroed(x: Any, t: Any) -> None:
    with torch.no_grad():
        x.zero_()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("between", [next_index, zeroed])
@pytest.mark.parametrize("program", [first, squared, put, chained])
def test_written_before_the_backward(program: Any, between: Any, backend: str) -> None:
    def step(fn: Any) -> Any:
        x, t = torch.arange(9.0).reshape(3, 3).requires_grad_(), torch.tensor(1)
        loss = fn(x, t)
        between(x, t)
        try:
            loss.backward()
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error)
            return "refused"
        return x.grad.tolist()

    framejit.reset()
    compiled = framejit.compile(program, backend=backend)
    for _ in range(2):
        assert step(compiled) == step(program)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("index", [0, 2, 7, -4])
def test_in_range_where_there_are_no_elements(index: int, backend: str) -> None:
    def read(x: Any, t: Any) -> Any:
        return x[t].sum()

    def write(x: Any, t: Any) -> Any:
        x[t] = x.sum(0)
        return x + 1

    for program in (read, write):
        framejit.reset()
        compiled = framejit.compile(program, backend=backend)
        for fn in (program, compiled):
            if -3 <= index < 3:
                fn(torch.ones(3, 0), torch.tensor(index))
                continue
            with pytest.raises(IndexError):
                fn(torch.ones(3, 0), torch.tensor(index))


# ---- tensors of classes that are asked, as indices


class Asked(torch.Tensor):
    calls: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        cls.calls.append(func.__name__)
        return super().__torch_function__(func, types, args, kwargs or {})


def asked(value: Any) -> Any:
    return torch.tensor(value).as_subclass(Asked)


ASKED: dict[str, Any] = {
    "0-dim": lambda x: x[asked(1)],
    "1-dim": lambda x: x[asked([1])],
    "mask": lambda x: x[asked([True, False])],
    "in a tuple": lambda x: x[asked(1), 0],
    "behind": lambda x: x[..., asked(1)],
    "in a list": lambda x: x[[asked(1)]],
    "by its name": lambda x: x.__getitem__(asked([1])),
    "written": lambda x: operator.setitem(x, asked(1), 5),
    "written, 1-dim": lambda x: operator.setitem(x, asked([1]), 5),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ASKED)
def test_an_index_is_asked(name: str, backend: str) -> None:
    def program(x: Any, index: Any) -> Any:
        return ASKED[name](x), x.sum()

    framejit.reset()
    compiled = framejit.compile(program, backend=backend)
    for _ in range(2):
        pictures = []
        for fn in (program, compiled):
            Asked.calls.clear()
            x = torch.arange(6.0).reshape(2, 3)
            found, _ = fn(x, None)
            calls = [c for c in Asked.calls if c.endswith("item__")]
            pictures.append((type(found), str(found), x.tolist(), calls))
        assert pictures[0] == pictures[1]
