"""What a bound method of C that comes in says of the object it is bound to: read,
written and guarded as that object, whoever leads to the method."""

from __future__ import annotations

import functools
import random
import re
from typing import Any

import pytest
import torch

import framejit


class Derived(list):
    pass


class Holder:
    def __init__(self, method: Any) -> None:
        self.log = method


def length(x, m):
    return x + len(m.__self__)


def length_of_part(x, m):
    return x + len(m.func.__self__)


def length_held(x, m):
    return x + len(m.log.__self__)


def size(x, m):
    return x + m.__self__.shape[0]


def pattern(x, m):
    return x + len(m.__self__.pattern), bool(m("abc"))


def number(x, m):
    return x + m.__self__, m()


def text(x, m):
    return x, m.__self__, m()


def qualified(x, m):
    return x, m.__qualname__, m.__name__, m.__doc__


def state(x, m):
    return x + m.__self__.getstate()[0], m(8)


CASES: dict[str, tuple[Any, list[Any]]] = {
    "length": (length, [lambda: [].append, lambda: [1, 2].append, lambda: {1: 2}.get]),
    "derived": (length, [lambda: Derived().append, lambda: Derived([1]).append]),
    "wrapper": (length, [lambda: [].__len__, lambda: [1, 2].__len__]),
    "part": (
        length_of_part,
        [
            lambda: functools.partial([].append),
            lambda: functools.partial([1, 2].append),
        ],
    ),
    "held": (length_held, [lambda: Holder([].append), lambda: Holder([1].append)]),
    "size": (size, [lambda: torch.ones(2).add, lambda: torch.ones(5).add]),
    "pattern": (
        pattern,
        [lambda: re.compile("a").match, lambda: re.compile("bcd").match],
    ),
    "number": (number, [lambda: (5).bit_length, lambda: (700).bit_length]),
    "text": (text, [lambda: "ab".upper, lambda: "cde".upper]),
    "qualified": (
        qualified,
        [lambda: [].append, lambda: Derived().append, lambda: {}.get],
    ),
    "state": (
        state,
        [lambda: random.Random(1).getrandbits, lambda: random.Random(2).getrandbits],
    ),
}


def outcome(fn: Any, method: Any) -> Any:
    found = fn(torch.ones(1), method)
    parts = found if isinstance(found, tuple) else (found,)
    return [p.tolist() if isinstance(p, torch.Tensor) else p for p in parts]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("case", CASES)
def test_reads_its_object(case, backend):
    framejit.reset()
    program, makers = CASES[case]
    compiled = framejit.compile(program, backend=backend)
    for make in [*makers, *makers]:
        assert outcome(compiled, make()) == outcome(program, make()), case


def appends(x, m):
    m.__self__.append(9)
    return x + len(m.__self__)


def appends_behind_a_break(x, m):
    m.__self__.append(9)
    framejit.graph_break()
    return x + len(m.__self__)


def stores(x, m):
    m.__self__[0] = x * 2
    return x + 1


def with_the_list(x, m, items):
    m.__self__.append(1)
    return x + len(items)


@pytest.mark.parametrize("program", [appends, appends_behind_a_break, stores])
def test_writes_to_its_object(program):
    framejit.reset()
    compiled = framejit.compile(program)
    ours, eagers = (
        [[torch.zeros(2)], [torch.zeros(2)]],
        [[torch.zeros(2)] for _ in "ab"],
    )
    for i in (0, 1, 0, 0, 1):
        a = compiled(torch.ones(2), ours[i].append)
        b = program(torch.ones(2), eagers[i].append)
        assert torch.equal(a, b)
    assert str(ours) == str(eagers)


def test_its_object_may_be_another_argument():
    framejit.reset()
    compiled = framejit.compile(with_the_list)
    one, other = [1], [1, 2, 3]
    for method, items in ((one, other), (one, one), (other, one), (other, other)):
        twin = list(method)
        expected = len(twin) + 1 if method is items else len(items)
        assert compiled(torch.zeros(1), method.append, items).item() == expected


BOUND = [1].append


def test_of_a_global():
    def reads(x):
        BOUND.__self__.append(1)
        return x + len(BOUND.__self__)

    framejit.reset()
    compiled = framejit.compile(reads)
    before = len(BOUND.__self__)
    found = [compiled(torch.zeros(1)).item() - before for _ in range(3)]
    assert found == [1, 2, 3]
