"""Writes to one container on both sides of a call that is made after the graph.

The content that is written as a whole has all of them, once.
"""

import pytest
import torch

import framejit

OPEN: list[object] = []


class Opened:
    def __enter__(self):
        OPEN.append(self)

    def __exit__(self, *error):
        OPEN.remove(self)


def iterator_between(x, items, it):
    items.pop()
    next(it)
    items.append(1)
    return x + 1


def print_between(x, items, it):
    items.pop()
    print("between")
    items.append(1)
    return x + 1


def both_between(x, items, it):
    items.pop()
    next(it)
    print(len(items))
    items.append(1)
    next(it)
    items.reverse()
    print(len(items))
    items.append(2)
    return x + 1


def appended_first(x, items, it):
    items.append(3)
    next(it)
    items.pop(0)
    print("after")
    return x + 1


def opened_in_a_loop(x, items, it):
    for _ in range(4):
        with Opened():
            x = x + 1
            framejit.graph_break()
            x = x * 0.5
    return x


def popped_in_a_loop(x, items, it):
    for i in range(3):
        items.append(i)
        x = x + 1
        framejit.graph_break()
        items.pop()
    return x


@pytest.mark.parametrize("kind", [list, dict, set])
@pytest.mark.parametrize("between", ["next", "print", "both"])
def test_other_containers(kind, between, capsys):
    def function(x, made, it):
        made.pop("a") if kind is dict else made.pop()
        if between != "print":
            next(it)
        if between != "next":
            print(len(made))
        if kind is dict:
            made["z"] = 1
        elif kind is set:
            made.add(9)
        else:
            made.append(9)
        return x + 1

    make = {
        list: lambda: [1, 2],
        dict: lambda: {"a": 1, "b": 2},
        set: lambda: {1, 2},
    }[kind]
    compiled = framejit.compile(function, backend="eager")
    for _ in range(2):
        sides = []
        for run in (function, compiled):
            made = make()
            run(torch.ones(2), made, iter([1, 2, 3]))
            sides.append((made, list(made), capsys.readouterr().out))
        assert sides[1] == sides[0]


@pytest.mark.parametrize(
    "function",
    [
        iterator_between,
        print_between,
        both_between,
        appended_first,
        opened_in_a_loop,
        popped_in_a_loop,
    ],
    ids=lambda f: f.__name__,
)
def test_each_write_arrives_once(function, capsys):
    compiled = framejit.compile(function, backend="eager")
    for items in ([5], [4, 5], [1, 2, 3]):
        sides = []
        for run in (function, compiled):
            OPEN.clear()
            passed = list(items)
            result = run(torch.ones(2), passed, iter([1, 2, 3]))
            out = capsys.readouterr().out
            sides.append((result.tolist(), passed, list(OPEN), out))
        assert sides[1] == sides[0]
