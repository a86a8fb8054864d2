"""Iterators that outlive a capture which writes to what they run over.

They are rebuilt beside the replayed writes: a position in a list must not be cut
to the length it had, and an iterator over a dict must not be older than a key.
"""

from __future__ import annotations

import itertools
import operator

import pytest
import torch

import framejit
from differential import check

LIST_CHANGES = {
    "append": lambda v: v.append(9),
    "extend": lambda v: v.extend([7, 8, 9]),
    "insert": lambda v: v.insert(0, 5),
    "slice": lambda v: v.__setitem__(slice(0, 1), [4, 5, 6]),
    "delete": lambda v: v.__delitem__(0),
    "clear": lambda v: v.clear(),
}
DICT_CHANGES = {
    "new": lambda v: v.__setitem__("new", 1),
    "same": lambda v: v.__setitem__("a", 9),
    "delete": lambda v: v.__delitem__("a"),
    "replace": lambda v: (v.pop("a"), v.__setitem__("z", 1)),
    "update": lambda v: v.update(x=1, y=2),
    "clear": lambda v: v.clear(),
}


def rest(found, iterator):
    """What is left in it, or what it raises."""
    hint = operator.length_hint(iterator)
    try:
        return [*found, hint, list(itertools.islice(iterator, 9))]
    except RuntimeError as error:
        return [*found, hint, str(error)]


def programs(make_iterator, change):
    def behind(x, v):
        change(v)
        it = make_iterator(v)
        found = [*itertools.islice(it, 3)]
        framejit.graph_break()
        return x + 1, rest(found, it), v

    def between(x, v):
        it = make_iterator(v)
        found = [next(it, None)]
        change(v)
        try:
            found += [*itertools.islice(it, 3)]
        except RuntimeError as error:
            found.append(str(error))
        framejit.graph_break()
        return x + 1, rest(found, it), v

    def returned(x, v):
        change(v)
        it = make_iterator(v)
        next(it, None)
        return x + 1, rest([], framejit.disable(lambda i: i)(it)), v

    return behind, between, returned


@pytest.mark.parametrize("change", LIST_CHANGES)
@pytest.mark.parametrize("make_iterator", [iter, reversed], ids=["iter", "reversed"])
def test_lists(make_iterator, change):
    for fn in programs(make_iterator, LIST_CHANGES[change]):
        for length in (2, 5):
            check(
                fn,
                lambda n=length: (torch.ones(2), list(range(n))),
                backends=("eager",),
            )


@pytest.mark.parametrize("change", DICT_CHANGES)
@pytest.mark.parametrize(
    "make_iterator",
    [
        iter,
        lambda v: iter(v.values()),
        lambda v: iter(v.items()),
        lambda v: reversed(v),
    ],
    ids=["keys", "values", "items", "reversed"],
)
def test_dicts(make_iterator, change):
    for fn in programs(make_iterator, DICT_CHANGES[change]):
        check(
            fn, lambda: (torch.ones(2), {"a": 1, "b": 2, "c": 3}), backends=("eager",)
        )


def test_attributes():
    class Box:
        def __init__(self):
            self.a, self.b = 1, 2

    def f(x, o):
        o.c = 3
        it = iter(vars(o))
        next(it)
        framejit.graph_break()
        return x + 1, list(it)

    check(f, lambda: (torch.ones(2), Box()), backends=("eager",))
