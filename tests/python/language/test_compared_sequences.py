"""Sequences that C code walks, comparing, while the program's __eq__ changes them."""

from __future__ import annotations

import collections

import pytest
import torch

import framejit


class Changes:
    """Equal to nothing; changes the sequence each time it is asked."""

    def __init__(self, change, at=1):
        self.asked = 0
        self.change = change
        self.at = at
        self.of = None

    def __eq__(self, other):
        self.asked += 1
        if self.asked == self.at and self.of is not None:
            self.change(self.of)
        return False

    __hash__ = None


def pop(items):
    items.pop()


def append(items):
    if len(items) < 8:
        items.append(9)


def clear(items):
    items.clear()


def replace(items):
    items[-1] = 7


def rotate(items):
    items.append(items[0])
    del items[0]


def nothing(items):
    len(items)


def count(x, items, o):
    return items.count(o)


def contains(x, items, o):
    return o in items


def absent(x, items, o):
    return o not in items


def index(x, items, o):
    return items.index(o)


def remove(x, items, o):
    return items.remove(o)


def less(x, items, o):
    return items < [o, 2, 3]


def equal(x, items, o):
    return items == [o] * len(items)


def of_its_own(x, items, o):
    mine = [1, 2, 3, o]
    o.of = mine
    return mine.count(o), mine


def of_a_tuple(x, items, o):
    return tuple(items).count(o), items


CHANGES = [pop, append, clear, replace, rotate, nothing]
PROGRAMS = [count, contains, absent, index, remove, less, equal, of_its_own, of_a_tuple]


def outcome(function, kind, change, at):
    items, o = kind([1, 2, 3, 4]), Changes(change, at)
    o.of = items
    try:
        result = repr(function(torch.ones(2), items, o))
    except Exception as error:
        result = f"{type(error).__name__}: {error}".split(" object at")[0]
    return result.replace(repr(o), "o"), list(items), o.asked


def wrapped(program):
    def function(x, items, o):
        try:
            return x * 2, program(x, items, o)
        except (ValueError, IndexError, RuntimeError, TypeError) as error:
            return x * 3, str(error).split("<")[0], type(error).__name__

    return function


@pytest.mark.parametrize("at", [1, 2])
@pytest.mark.parametrize("kind", [list, collections.deque])
@pytest.mark.parametrize("change", CHANGES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_changed_on_the_way(program, change, kind, at):
    function = wrapped(program)
    compiled = framejit.compile(function)
    for _ in range(2):
        assert outcome(compiled, kind, change, at) == outcome(
            function, kind, change, at
        )
