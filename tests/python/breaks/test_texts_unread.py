"""A text or bytes that comes in and is not read is no fact of the entry: other ones
are answered by it, wherever the function breaks, and what reads it still guards it."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit


def printed_after(x: Any, name: Any, out: Any) -> Any:
    y = x * 2
    print(f"name {name}", file=out)
    return y + 1


def written_over(x: Any, name: Any, out: Any) -> Any:
    name = 3
    return x + name


def deleted(x: Any, name: Any, out: Any) -> Any:
    del name
    return x * 2


def behind_a_break(x: Any, name: Any, out: Any) -> Any:
    x = x * 2
    framejit.graph_break()
    return x + 1


def read_behind_a_break(x: Any, name: Any, out: Any) -> Any:
    x = x * 2
    framejit.graph_break()
    return x + len(name)


def in_a_cell(x: Any, name: Any, out: Any) -> Any:
    def inner() -> Any:
        return name

    return x + len(inner())


def in_a_cell_unread(x: Any, name: Any, out: Any) -> Any:
    def inner() -> Any:
        return name

    return x + 1


def in_locals(x: Any, name: Any, out: Any) -> Any:
    return x + len(locals()["name"])


def returned(x: Any, name: Any, out: Any) -> Any:
    return x + 1, name


def compared(x: Any, name: Any, out: Any) -> Any:
    return x + 1 if name == "b" else x - 1


def is_asked(x: Any, name: Any, out: Any) -> Any:
    return x + 1 if name is None else x - 1


def handed_on(x: Any, name: Any, out: Any) -> Any:
    return compared(x, name, out) * 2


def handed_on_unread(x: Any, name: Any, out: Any) -> Any:
    return deleted(x, name, out) * 2


def in_an_except(x: Any, name: Any, out: Any) -> Any:
    try:
        return x + out[name]
    except (KeyError, TypeError):
        return x - 1


def default(x: Any, name: Any, out: Any, *, text: str = "a") -> Any:
    return x + 1


PROGRAMS: list[Callable[..., Any]] = [
    printed_after,
    written_over,
    deleted,
    behind_a_break,
    read_behind_a_break,
    in_a_cell,
    in_a_cell_unread,
    in_locals,
    returned,
    compared,
    is_asked,
    handed_on,
    handed_on_unread,
    in_an_except,
    default,
]
VALUES = ["a", "b", "", "long" * 99, b"a", b"", "a", 3, None, 2.5, ["b"], "b", b"b"]


def outcome(function: Any, value: Any) -> Any:
    out = io.StringIO()
    try:
        result = function(torch.ones(3), value, out)
    except Exception as error:
        return type(error), str(error), out.getvalue()
    parts = result if type(result) is tuple else (result,)
    return [
        p.tolist() if isinstance(p, torch.Tensor) else p for p in parts
    ], out.getvalue()


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_equals_eager(function: Any) -> None:
    compiled = framejit.compile(function)
    for _ in range(2):
        for value in VALUES:
            assert outcome(compiled, value) == outcome(function, value), value


@pytest.mark.parametrize(
    "function",
    [written_over, deleted, behind_a_break, default],
    ids=lambda f: f.__name__,
)
@pytest.mark.parametrize("kind", [str, lambda i: b"%d" % i], ids=["str", "bytes"])
def test_one_entry_for_all(function: Any, kind: Any) -> None:
    compiled = framejit.compile(function)
    compiled(torch.ones(3), kind(0), io.StringIO())
    before = framejit.counters()["compiles"]
    for number in range(1, 12):
        compiled(torch.ones(3), kind(number), io.StringIO())
    assert framejit.counters()["compiles"] == before
