"""Iterators of itertools that are alive at a break go on behind it.

They are made anew, taken apart by ``__reduce__``. From CPython 3.12 on that warns:
the program sees neither the warning nor the registry it leaves in a module.
"""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

import framejit

ITERATORS = {
    "chain": lambda values: itertools.chain(values, [9, 8]),
    "chain.from_iterable": lambda values: itertools.chain.from_iterable([values, [7]]),
    "product": lambda values: itertools.product(values, [0, 1]),
    "zip_longest": lambda values: itertools.zip_longest(values, [5]),
    "islice": lambda values: itertools.islice(values, 1, 4),
    "permutations": lambda values: itertools.permutations(values, 2),
    "combinations": lambda values: itertools.combinations(values, 2),
    "with_replacement": lambda values: itertools.combinations_with_replacement(
        values, 2
    ),
    "cycle": lambda values: itertools.cycle(values),
    "compress": lambda values: itertools.compress(values, [1, 0, 1, 1]),
    "accumulate": lambda values: itertools.accumulate(values),
    "takewhile": lambda values: itertools.takewhile(lambda v: v < 4, values),
    "dropwhile": lambda values: itertools.dropwhile(lambda v: v < 2, values),
    "filterfalse": lambda values: itertools.filterfalse(lambda v: v == 2, values),
    "starmap": lambda values: itertools.starmap(max, zip(values, [2, 2, 2, 2])),
    "repeat": lambda values: itertools.repeat(values[0], 4),
    "count": lambda values: itertools.count(values[0]),
}


def program(make):
    def f(x, values):
        iterator = make(values)
        first = next(iterator)
        x = x * 2
        framejit.graph_break()
        second = next(iterator)
        x = x + 1
        framejit.graph_break()
        return x, first, second, list(itertools.islice(iterator, 3))

    return f


@pytest.mark.parametrize("name", ITERATORS)
def test_goes_on_behind_a_break(name):
    f = program(ITERATORS[name])
    values = [1, 2, 3, 4]
    registry = globals().pop("__warningregistry__", None)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = list(warnings.filters)
        compiled = framejit.compile(f)
        for step in range(3):
            x = torch.full((3,), float(step))
            expected, got = f(x, values), compiled(x, values)
            assert torch.equal(got[0], expected[0])
            assert got[1:] == expected[1:]
        assert warnings.filters == filters
    assert "__warningregistry__" not in globals()
    if registry is not None:
        globals()["__warningregistry__"] = registry
    levels = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert "FJ405" not in {b.id for e in levels for b in e.breaks}


def test_items_of_the_program_go_on_too():
    class Item:
        def __init__(self, value):
            self.value = value

    items = [Item(1), Item(2), Item(3)]

    def f(x):
        cycle = itertools.cycle(items)
        x = x + next(cycle).value
        framejit.graph_break()
        x = x * next(cycle).value
        return x, [next(cycle) for _ in range(4)]

    x = torch.ones(2)
    expected, got = f(x), framejit.compile(f)(x)
    assert torch.equal(got[0], expected[0])
    assert all(a is b for a, b in zip(got[1], expected[1], strict=True))
