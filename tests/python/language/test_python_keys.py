"""Keys of fresh dicts and sets whose class hashes and compares in Python.

To rebuild such a container is to ask its keys again: twice, and at another
time than eager does.
"""

from typing import Any

import pytest
import torch

import framejit


class Key:
    asked: list[str] = []

    def __init__(self, value: int) -> None:
        self.value = value

    def __hash__(self) -> int:
        Key.asked.append(f"hash {self.value}")
        return self.value

    def __eq__(self, other: object) -> bool:
        Key.asked.append("eq")
        return isinstance(other, Key)


def dict_of_one(x, key):
    made = {key: 1}
    key.value = 2
    return x + 1, made


def dict_of_two(x, key):
    other = Key(2)
    made = {key: 1, other: 2}
    other.value = 1
    return x + 1, made


def set_of_two(x, key):
    other = Key(2)
    made = {key, other}
    other.value = 1
    return x + 1, made


def frozenset_of_two(x, key):
    return x + 1, frozenset([key, Key(3)])


def by_comprehension(x, key):
    made = {k: k.value for k in (key, Key(4))}
    key.value = 4
    return x * 2, made


def by_copy(x, key):
    made = dict({key: 1})
    key.value = 5
    return x * 2, made | {Key(5): 2}


def in_a_subclass(x, key):
    made = type("Own", (dict,), {})()
    made[key] = 1
    key.value = 5
    return x * 2, made


def kept_by_a_callee(x, key):
    def make():
        return {key: 1}

    made = make()
    key.value = 7
    return x * 2, [made]


def across_a_break(x, key):
    made = {key: 1}
    key.value = 8
    framejit.graph_break()
    return x * 2, made


def asked_later(x, key):
    made = {key: 1}
    key.value = 8
    return x * 2, key in made, len(made)


def dropped(x, key):
    made = {key: 3}
    return x * made[key], None


def seen(result: Any, key: Key) -> Any:
    asked = list(Key.asked)
    made = result[1][0] if isinstance(result[1], list) else result[1]
    found = None
    if isinstance(made, (dict, set, frozenset)):
        found = (len(made), key in made, Key(1) in made, Key(2) in made)
    return result[0].tolist(), result[2:], found, asked


@pytest.mark.parametrize(
    "function",
    [
        dict_of_one,
        dict_of_two,
        set_of_two,
        frozenset_of_two,
        by_comprehension,
        by_copy,
        in_a_subclass,
        kept_by_a_callee,
        across_a_break,
        asked_later,
        dropped,
    ],
    ids=lambda f: f.__name__,
)
def test_a_key_is_asked_as_often_and_when_eager_asks(function):
    compiled = framejit.compile(function, backend="aot_eager")
    for value in (1, 1, 3, 2):
        sides = []
        for run in (function, compiled):
            Key.asked = []
            key = Key(value)
            sides.append(seen(run(torch.ones(2), key), key))
        assert sides[1] == sides[0]


def test_a_dropped_dict_does_not_break():
    framejit.reset()
    compiled = framejit.compile(dropped, backend="aot_eager", fullgraph=True)
    assert compiled(torch.ones(2), Key(1))[0].tolist() == [3, 3]
