"""What unpacking says of a value that does not fit: type and text as eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import framejit


class NoIter:
    pass


class Refuses:
    __iter__ = None


class OldSequence:
    def __getitem__(self, index: int) -> int:
        if index > 1:
            raise IndexError
        return index


class Raises:
    def __iter__(self) -> Any:
        raise TypeError("mine")


class GivesNone:
    def __iter__(self) -> Any:
        return 3


def fixed(v):
    a, b, c = v
    return a


def starred_last(v):
    a, b, c, *d = v
    return d


def starred_first(v):
    *d, a, b, c = v
    return d


def starred_between(v):
    a, *d, b, c = v
    return d


def nested(v):
    (a, *b), *c = v, v
    return b


def in_a_loop(v):
    for a, *b in [v]:
        return b


def in_a_list(v):
    return [*v]


def in_a_call(v):
    return max(*v)


VALUES = {
    "int": lambda: 5,
    "none": lambda: None,
    "float": lambda: 1.5,
    "function": lambda: len,
    "type": lambda: int,
    "object": NoIter,
    "refuses": Refuses,
    "old_sequence": OldSequence,
    "raises": Raises,
    "gives_none": GivesNone,
    "short": lambda: (1, 2),
    "empty": lambda: [],
    "text": lambda: "ab",
    "dict": lambda: {1: 2},
    "generator": lambda: (i for i in range(2)),
    "fits": lambda: [3, 1, 2],
}


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize(
    "unpack",
    [
        fixed,
        starred_last,
        starred_first,
        starred_between,
        nested,
        in_a_loop,
        in_a_list,
        in_a_call,
    ],
    ids=lambda f: f.__name__,
)
def test_what_unpacking_says(unpack, value):
    def caught(x, v):
        try:
            return x * 2, unpack(v)
        except Exception as error:
            return x * 3, type(error).__name__, str(error)

    def made_inside(x, v):
        return caught(x, VALUES[value]())

    framejit.reset()
    for fn in (caught, made_inside):
        compiled = framejit.compile(fn, backend="eager")
        for _ in range(2):
            expected = fn(torch.ones(1), VALUES[value]())
            assert str(compiled(torch.ones(1), VALUES[value]())) == str(expected)
