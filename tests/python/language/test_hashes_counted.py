"""Methods of a dict that find and change ask a key of the program for its hash, and
compare it, as often as in eager."""

from __future__ import annotations

import pytest
import torch

import framejit

LOG: list = []


class Key:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        LOG.append(("hash", self.number))
        return 1

    def __eq__(self, other):
        LOG.append(("eq", self.number, other.number))
        return self.number == other.number

    def __repr__(self):
        return f"Key({self.number})"


def setdefault(x, d):
    first = d.setdefault(Key(1), 5)
    second = d.setdefault(Key(3), x)
    return x * first, second, list(d.values())


def pop(x, d):
    return x * d.pop(Key(1)), d.pop(Key(9), 7), len(d)


def pop_missing(x, d):
    try:
        d.pop(Key(3))
    except KeyError as error:
        return x, str(error)


def popitem(x, d):
    key, value = d.popitem()
    return x * value, key.number, len(d)


def all_of_them(x, d):
    first = d.setdefault(Key(3), 4)
    second = d.pop(Key(1), None)
    return x * first, second, d.popitem()[1]


PROGRAMS = [setdefault, pop, pop_missing, popitem, all_of_them]


def fresh(program):
    def function(x):
        return program(x, {Key(1): 1, Key(2): 2})

    return function


def outcome(function, *args):
    LOG.clear()
    return repr(function(torch.ones(2), *args)), LOG[:]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_of_a_fresh_dict(program):
    function = fresh(program)
    compiled = framejit.compile(function)
    for _ in range(2):
        assert outcome(compiled) == outcome(function)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_of_an_argument(program):
    compiled = framejit.compile(program)
    for _ in range(2):
        expected = outcome(program, {Key(1): 1, Key(2): 2})
        assert outcome(compiled, {Key(1): 1, Key(2): 2}) == expected


FILLS = {
    "set item": lambda d, k: d.__setitem__(k, 1),
    "setdefault": lambda d, k: d.setdefault(k, 1),
    "setdefault twice": lambda d, k: (d.setdefault(k, 1), d.setdefault(k, 2)),
    "update": lambda d, k: d.update({k: 1}),
    "pop and set": lambda d, k: (d.setdefault(k, 1), d.pop(k), d.setdefault(k, 2)),
    "set add": lambda d, k: d.setdefault("set", set()).add(k),
}


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("way", ["returned", "over a break", "stored"])
def test_of_a_fresh_dict_that_outlives_the_graph(fill, way):
    held = []

    def function(x, key):
        d = {}
        FILLS[fill](d, key)
        if way == "over a break":
            framejit.graph_break()
            return x + len(d)
        if way == "stored":
            held.append(d)
            return x + 1
        return x + 1, d

    compiled = framejit.compile(function)
    for _ in range(3):
        expected = outcome(function, Key(1))
        assert outcome(compiled, Key(1)) == expected
