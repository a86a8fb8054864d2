"""Methods of C bound to an object, as arguments and across a break: the method and
its object change from call to call, and what they do is eager's."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit


class List(list):  # type: ignore[type-arg]
    pass


class Loud(list):  # type: ignore[type-arg]
    def append(self, item: Any) -> None:
        super().append(("loud", item))


def argument(x: Any, m: Any, held: Any) -> Any:
    m(x.sum().item())
    return x * 2, str(held)


def across(x: Any, m: Any, held: Any) -> Any:
    x = x * 2
    held.append(x[0].item())
    return x + len(held), str(held)


def in_a_loop(x: Any, m: Any, held: Any) -> Any:
    for i in range(3):
        held.append(x[i].item())
        x = x + 1
    return x, str(held)


def method_first(x: Any, m: Any, held: Any) -> Any:
    keep = m
    x = x * 2
    framejit.graph_break()
    keep(float(x.sum().item()))
    return x + 1, str(held), keep.__name__


def called_twice(x: Any, m: Any, held: Any) -> Any:
    m((m(1.5), x.max().item()))
    return x * 3, str(held)


FUNCTIONS: list[Callable[..., Any]] = [
    argument,
    across,
    in_a_loop,
    method_first,
    called_twice,
]


def some() -> list[Any]:
    """Objects and the methods that are called on them, one after the other."""
    lists = [[], [1.0], List(), Loud(), collections.deque(), collections.deque([2], 3)]
    found: list[Any] = [(held.append, held) for held in lists]
    one: list[Any] = []
    found += [(one.append, one), (one.append, one), (one.remove, one)]
    other: list[Any] = [3.0]
    found += [(other.append, one), (one.append, other), (other.count, other)]
    seen: set[Any] = set()
    found += [(seen.add, []), (seen.discard, []), ({}.setdefault, [])]
    found += [("a".join, []), (len, []), ([].append, [9]), (List().append, [9])]
    return found


def outcome(function: Any, m: Any, held: Any) -> Any:
    try:
        x, *rest = function(torch.arange(3.0), m, held)
    except Exception as error:
        return type(error), str(error), str(held)
    return x.tolist(), rest, str(held)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_equals_eager(function: Any, backend: str) -> None:
    compiled = framejit.compile(function, backend=backend, recompile_limit=64)
    for _ in range(2):
        expected = [outcome(function, *pair) for pair in some()]
        got = [outcome(compiled, *pair) for pair in some()]
        assert got == expected


def test_guards_are_native() -> None:
    compiled = framejit.compile(across)
    for _ in range(3):
        compiled(torch.arange(3.0), None, [])
    (entry,) = framejit.inspect(compiled)
    (resumed,) = next(iter(entry.resume.values()))
    guards = [g for g in resumed.guards if "__name__ == 'append'" in g]
    assert guards, resumed.guards
    assert resumed.hits == 3
