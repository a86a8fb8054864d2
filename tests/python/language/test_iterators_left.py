"""C code that stops in the middle of an iterator leaves the rest of it."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch

import framejit


def generated(items: list[int]) -> Any:
    yield from items


class Stepping:
    def __init__(self, items: list[int]) -> None:
        self.items = iter(items)

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> int:
        return next(self.items)


ITERATORS = {
    "list": iter,
    "generator": generated,
    "own": Stepping,
    "map": lambda items: map(abs, items),
    "chain": lambda items: itertools.chain(items[:2], items[2:]),
    "reversed": lambda items: reversed(items[::-1]),
}
CONSUMERS = """
{1}.isdisjoint(it)
{9}.isdisjoint(it)
frozenset([1, 2]).intersection(it)
{1, 2}.intersection(it)
{1, 2}.issuperset(it)
{1, 2}.issubset(it)
{1, 2}.union(it)
{1, 2}.difference(it)
{1, 2}.symmetric_difference(it)
2 in it
any(v > 1 for v in it)
all(v < 2 for v in it)
next(it)
list(zip(it, [0, 0]))
list(zip([0, 0], it))
list(itertools.islice(it, 2))
list(itertools.takewhile(lambda v: v < 2, it))
next(filter(lambda v: v > 1, it))
[v for v, _ in zip(it, range(1))]
max(it)
dict.fromkeys(itertools.islice(it, 1))
""".strip().splitlines()


@pytest.mark.parametrize("made_outside", [False, True])
@pytest.mark.parametrize("kind", ITERATORS)
@pytest.mark.parametrize("consumer", CONSUMERS)
def test_iterators_left(consumer: str, kind: str, made_outside: bool) -> None:
    make = ITERATORS[kind]
    names: dict[str, Any] = {"make": make, "itertools": itertools}
    first = "" if made_outside else "    it = make([1, 2, 3, 4])\n"
    exec(
        f"def fn(it, x):\n{first}    found = {consumer}\n"
        "    return found, list(it), x + 1",
        names,
    )
    compiled = framejit.compile(names["fn"], backend="eager")
    for _ in range(2):
        ours, theirs = make([1, 2, 3, 4]), make([1, 2, 3, 4])
        expected = names["fn"](theirs, torch.ones(1))[:2]
        assert compiled(ours, torch.ones(1))[:2] == expected
        assert list(ours) == list(theirs)
