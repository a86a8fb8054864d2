"""itertools.chain asks for a part, and iterates it, when the one before is used up;
reversed() of a sequence in Python reads each element when it is wanted."""

from __future__ import annotations

import itertools

import pytest
import torch

import framejit

LOG: list = []


class Node:
    """Its iterator is made of what it holds then."""

    def __init__(self, items):
        self.items = items

    def __iter__(self):
        LOG.append(("iter", len(self.items)))
        return iter(list(self.items))


class Refuses:
    def __iter__(self):
        LOG.append("asked")
        raise KeyError("no")


class Items:
    """The sequence protocol."""

    def __init__(self, items):
        self.items = items

    def __len__(self):
        LOG.append("length")
        return len(self.items)

    def __getitem__(self, index):
        LOG.append(index)
        return self.items[index]


def grows(x):
    found = [x]

    def grow():
        for _ in range(3):
            yield [found[-1] * 2]

    for v in itertools.chain.from_iterable(grow()):
        found.append(v + 1)
    return found[-1]


def logged(x):
    def parts():
        for i in range(3):
            LOG.append(("part", i))
            yield (i, i + 1)

    total = x
    for v in itertools.chain.from_iterable(parts()):
        LOG.append(v)
        total = total + v
    return total


def endless(x):
    for v in itertools.chain.from_iterable([i] for i in itertools.count()):
        x = x + v
        if v > 4:
            break
    return x


def changed_on_the_way(x):
    a, b = Node([1, 2]), Node([3])
    found = []
    for v in itertools.chain(a, b):
        found.append(v)
        if v == 2:
            b.items.append(9)
    return x * len(found), found


def changed_dict(x):
    d = {"a": 1}
    found = []
    for v in itertools.chain([1], d, [2], d.values()):
        found.append(v)
        d.setdefault("b", 2)
    return x, found


def list_that_grows(x):
    a = [1, 2]
    for v in itertools.chain(a, a, Node(a)):
        if len(a) < 5:
            a.append(v + 1)
    return x + len(a), a


def one_that_is_none(x):
    return x + next(itertools.chain([1], 3))


def one_that_is_none_used(x):
    found = []
    try:
        for v in itertools.chain([1], (), Node([]), 3, [4]):
            found.append(v)
    except TypeError as error:
        found.append(str(error))
    return x, found


def after_a_failure(x):
    it = itertools.chain([1], Refuses(), [2])
    found = []
    for _ in range(4):
        try:
            found.append(next(it, "end"))
        except KeyError as error:
            found.append(str(error))
    return x, found


def any_of(x):
    return x * any(itertools.chain([1], Refuses()))


def across_breaks(x):
    it = itertools.chain(Node([1, 2]), (v for v in (3, 4)), [5])
    found = [next(it)]
    framejit.graph_break()
    found.append(next(it))
    framejit.graph_break()
    found += [next(it), next(it)]
    framejit.graph_break()
    return x, found, list(it), type(it).__name__, list(it)


def used_up_across_a_break(x):
    it = itertools.chain.from_iterable([Node([1])])
    found = list(it)
    framejit.graph_break()
    return x, found, list(it), type(it).__name__


def nested(x):
    inner = itertools.chain(Node([1]), Node([2]))
    outer = itertools.chain(inner, inner, Node([3]))
    return x, list(outer)


def as_arguments(x):
    a = dict(zip(itertools.chain(Node("ab"), "c"), itertools.chain([x], Node([1, 2]))))
    b = [*itertools.chain(Node([1]), (2,))], {*itertools.chain(Node([1]))}
    return (
        a,
        b,
        sum(itertools.chain(Node([1, 2]), [3])),
        max(itertools.chain(Node([1]))),
    )


def of_a_class(x):
    return x + sum(itertools.chain.from_iterable({"a": Node([1]), "b": [2]}.values()))


def backwards(x):
    items = Items([1, 2, 3, 4])
    found = []
    for v in reversed(items):
        found.append(v)
        items.items[0] = 7
        if v == 3:
            items.items[1] = 8
    return x * len(found), found


def backwards_shorter(x):
    items = Items([1, 2, 3, 4])
    found = []
    for v in reversed(items):
        found.append(v)
        del items.items[-1]
    return x, found


def backwards_across_a_break(x):
    it = reversed(Items([1, 2, 3]))
    found = [next(it)]
    framejit.graph_break()
    return x, found, list(it), type(it).__name__


PROGRAMS = [
    grows,
    logged,
    endless,
    changed_on_the_way,
    changed_dict,
    list_that_grows,
    one_that_is_none,
    one_that_is_none_used,
    after_a_failure,
    any_of,
    across_breaks,
    used_up_across_a_break,
    nested,
    as_arguments,
    of_a_class,
    backwards,
    backwards_shorter,
    backwards_across_a_break,
]


def outcome(function):
    LOG.clear()
    try:
        result = function(torch.arange(3.0))
    except Exception as error:
        result = repr(error)
    return repr(result), LOG[:]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_lazily(program):
    compiled = framejit.compile(program)
    for _ in range(3):
        assert outcome(compiled) == outcome(program)


def test_of_arguments():
    def function(x, *parts):
        return x + sum(itertools.chain(*parts)), list(
            itertools.chain.from_iterable(parts)
        )

    compiled = framejit.compile(function)
    x = torch.ones(2)
    for parts in (([1], (2,)), ([1, 2], [3]), (Node([4]), {5: 1}), ([1], Node([6, 7]))):
        assert repr(compiled(x, *parts)) == repr(function(x, *parts))


@pytest.mark.parametrize("program", [grows, logged, nested, of_a_class, backwards])
def test_in_one_graph(program):
    framejit.compile(program, fullgraph=True)(torch.ones(3))


def test_chains_of_modules_layers():
    """As torch.nn has them: named_parameters() of several."""

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(3, 3)
            self.b = torch.nn.Linear(3, 3)

        def forward(self, x):
            for p in itertools.chain(self.a.parameters(), self.b.parameters()):
                x = x + p.sum()
            return x

    torch.manual_seed(0)
    model = Model()
    x = torch.ones(3)
    torch.testing.assert_close(framejit.compile(model, fullgraph=True)(x), model(x))
