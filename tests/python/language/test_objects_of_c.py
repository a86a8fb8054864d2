"""Objects of C that C code looks into: an array as an index, sequences without an
iterator of their own, what torch.Size() is made of. What they hold may be another
thing at the next call, and no guard tells."""

from __future__ import annotations

import array
import collections
import ctypes
import enum
import itertools
import mmap
import operator
import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest
import torch

import framejit


class Number(int):
    pass


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


def inserted(x, v):
    items = [1, 2, 3]
    items.insert(v, 9)
    return items


def popped(x, v):
    items = collections.deque([1, 2, 3])
    items.rotate(v)
    return items, [1, 2, 3].pop(v)


def written(x, v):
    items = [1, 2, 3]
    items[v] = 7
    del items[v]
    return items


INDICES = {
    "a list": lambda x, v: [x, x * 2, x * 3][v].sum(),
    "a tuple": lambda x, v: (1, 2, 3)[v],
    "a text": lambda x, v: "abc"[v],
    "bytes": lambda x, v: b"abc"[v],
    "a range": lambda x, v: range(5, 9)[v],
    "a deque": lambda x, v: collections.deque([1, 2, 3])[v],
    "a size": lambda x, v: x[None, None].shape[v],
    "a slice": lambda x, v: ([1, 2, 3][v:], (1, 2, 3)[:v], "abc"[v:]),
    "steps": lambda x, v: [1, 2, 3, 4][:: v + 1],
    "getitem": lambda x, v: operator.getitem([1, 2, 3], v),
    "itemgetter": lambda x, v: operator.itemgetter(v)([1, 2, 3]),
    "repeat": lambda x, v: list(itertools.repeat(0, v)),
    "times": lambda x, v: list(itertools.repeat(v, times=v)),
    "range()": lambda x, v: list(range(v)),
    "islice": lambda x, v: list(itertools.islice([1, 2, 3], v)),
    "insert": inserted,
    "pop": popped,
    "item set": written,
    "repeated": lambda x, v: [1] * int(v),
}
NUMBERS = {
    "array": [lambda: np.array(0), lambda: np.array(2), lambda: np.array([2])],
    "numpy": [lambda: np.int64(0), lambda: np.int64(2), lambda: np.uint8(1)],
    "int": [lambda: 0, lambda: 2, lambda: Number(1)],
    "bool": [lambda: False, lambda: np.bool_(True), lambda: True],
    "enum": [lambda: Level.LOW, lambda: Level.HIGH, lambda: 1.0],
}


def memory(content):
    file = mmap.mmap(-1, len(content))
    file.write(content)
    return file


def record(*values):
    return np.array([values], dtype=[("a", "i4"), ("b", "i4")])[0]


SEQUENCES = {
    "ctypes": [lambda: (ctypes.c_int * 2)(1, 2), lambda: (ctypes.c_int * 2)(3, 4)],
    "numpy": [lambda: record(1, 2), lambda: record(3, 4)],
    "element": [
        lambda: ElementTree.fromstring("<a><b/><c/></a>"),
        lambda: ElementTree.fromstring("<a><d/><e/></a>"),
    ],
    "mmap": [lambda: memory(b"ab"), lambda: memory(b"cd")],
    "array": [lambda: array.array("i", [1, 2]), lambda: array.array("i", [3, 4])],
    "memory": [lambda: memoryview(b"ab"), lambda: memoryview(b"cd")],
    "deque": [lambda: collections.deque([1, 2]), lambda: collections.deque([3, 4])],
    "generator": [lambda: (i for i in [1, 2]), lambda: (i for i in [3, 4])],
    "values": [lambda: {1: 1, 2: 2}.values(), lambda: {1: 3, 2: 4}.values()],
    "keys": [lambda: {1: 1, 2: 2}.keys(), lambda: {3: 3, 4: 2}.keys()],
    "list": [lambda: [1, 2], lambda: [3, 4], lambda: [Number(1), Level.HIGH]],
    "nested": [lambda: [np.array(2), 3], lambda: [np.array(3), 4], lambda: [2, 3]],
}


def unpacked(x, v):
    a, b = v
    return plain(a), plain(b)


def plain(value):
    """What is seen of an item: without the address in its text."""
    return getattr(value, "tag", value)


def appended(x, v):
    v.append(7)
    return torch.Size(v)


USES = {
    "unpacked": unpacked,
    "list": lambda x, v: [plain(a) for a in list(v)],
    "tuple": lambda x, v: len(tuple(v)),
    "comprehension": lambda x, v: [plain(a) for a in v],
    "starred": lambda x, v: [plain(a) for a in [*v]],
    "zip": lambda x, v: [plain(a) for a, _ in zip(v, range(9))],
    "map": lambda x, v: list(map(plain, v)),
    "enumerate": lambda x, v: [(i, plain(a)) for i, a in enumerate(v)],
    "chain": lambda x, v: [plain(a) for a in itertools.chain(v, [1])],
    "next": lambda x, v: plain(next(iter(v))),
    "sum": lambda x, v: sum(1 for _ in v),
    "Size": lambda x, v: torch.Size(v),
    "Size, then list": lambda x, v: (torch.Size(v), [plain(a) for a in v]),
    "Size of types": lambda x, v: [type(a).__name__ for a in torch.Size(v)],
    "broadcast_shapes": lambda x, v: torch.broadcast_shapes(v, (1,)),
    "Size, written": appended,
}


def outcome(function, value):
    try:
        return repr(function(torch.ones(2), value()))
    except Exception as error:
        return type(error).__name__


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("kind, use", list(itertools.product(NUMBERS, INDICES)))
def test_as_an_index(kind, use, backend):
    function = INDICES[use]
    for values in (NUMBERS[kind], NUMBERS[kind][::-1]):
        framejit.reset()
        compiled = framejit.compile(function, backend=backend)
        for value in values:
            assert outcome(compiled, value) == outcome(function, value)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind, use", list(itertools.product(SEQUENCES, USES)))
def test_as_a_sequence(kind, use):
    function = USES[use]
    for values in (SEQUENCES[kind], SEQUENCES[kind][::-1]):
        framejit.reset()
        compiled = framejit.compile(function)
        for value in values:
            assert outcome(compiled, value) == outcome(function, value)


def test_a_number_that_repeats_itself():
    """Repeated as the object that it is, as often as its __index__ says."""

    class Index:
        def __index__(self):
            return 2

    programs = (
        lambda x, v: [a is v for a in itertools.repeat(v, v)],
        lambda x, v: [a is v for a in itertools.repeat(v, times=v)],
        lambda x, v: [a is v for a in itertools.repeat(times=v, object=v)],
    )
    for program in programs:
        compiled = framejit.compile(program)
        assert compiled(torch.ones(2), Index()) == [True, True]


def test_an_array_that_is_written():
    index = np.array(0)
    compiled = framejit.compile(lambda x: [x, x * 2][index])
    x = torch.ones(2)
    for i in (0, 1, 0):
        index[...] = i
        torch.testing.assert_close(compiled(x), x * (i + 1))
