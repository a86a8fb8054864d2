"""Containers of the program's own classes that a capture makes, and that outlive it.

What they hold is what was put in, whatever their class answers when it is asked.
"""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

import framejit

LOG: list[str] = []


def answering(name: str, answer: Any) -> Any:
    def method(self: Any, *args: Any) -> Any:
        LOG.append(name)
        return answer()

    return method


ANSWERS: dict[str, Any] = {
    "__iter__": lambda: iter([7, 8]),
    "__len__": lambda: 1,
    "__contains__": lambda: True,
    "__getitem__": lambda: 9,
    "__bool__": lambda: False,
    "__reversed__": lambda: iter([]),
    "keys": lambda: ["k"],
    "items": lambda: [("k", 1)],
    "values": lambda: [2],
    "copy": lambda: None,
}
BASES: dict[str, tuple[type, Any]] = {
    "tuple": (tuple, (1, 2)),
    "list": (list, [1, 2]),
    "set": (set, {1, 2}),
    "frozenset": (frozenset, {1, 2}),
    "dict": (dict, {"a": 1, "b": 2}),
    "OrderedDict": (collections.OrderedDict, {"b": 1, "a": 2}),
    "defaultdict": (collections.defaultdict, None),
    "deque": (collections.deque, [1, 2]),
}


def held(value: Any) -> Any:
    """What the type in C says is in it."""
    base = next(b for b in type(value).__mro__ if b.__module__ != __name__)
    items = list(base.__iter__(value))
    return (
        [(key, dict.__getitem__(value, key)) for key in items]
        if base in MAPS
        else items
    )


MAPS = (dict, collections.OrderedDict, collections.defaultdict)


@pytest.mark.parametrize("answers", [*ANSWERS, "all"])
@pytest.mark.parametrize("kind", BASES)
@pytest.mark.parametrize("across", [False, True], ids=["", "break"])
def test_made_containers(kind: str, answers: str, across: bool) -> None:
    base, content = BASES[kind]
    names = ANSWERS if answers == "all" else [answers]
    methods = {n: answering(n, ANSWERS[n]) for n in names}
    made = type("Made", (base,), {"__module__": __name__, **methods})

    def fn(x: torch.Tensor) -> Any:
        value = made() if content is None else made(content)
        y = x + 1
        if across:
            torch._dynamo.graph_break()
        return value, y * 2

    compiled = framejit.compile(fn, backend="eager")
    for _ in range(3):
        LOG.clear()
        expected, asked = held(fn(torch.ones(2))[0]), list(LOG)
        LOG.clear()
        result, y = compiled(torch.ones(2))
        assert (type(result), held(result), LOG) == (made, expected, asked)
        assert y.tolist() == [4, 4]
