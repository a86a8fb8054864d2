"""Indices and counts that no machine word holds, of everything that is indexed."""

from __future__ import annotations

import collections

import pytest
import torch

from differential import check

HUGE = [2**31, 2**63 - 1, 2**63, 2**64 - 1, 2**64 + 1, 10**20, -(2**63), -(10**20)]
HOLDERS = {
    "list": lambda: [1, 2],
    "tuple": lambda: (1, 2),
    "str": lambda: "ab",
    "bytes": lambda: b"ab",
    "range": lambda: range(5),
    "deque": lambda: collections.deque([1, 2]),
    "dict": lambda: {-1: 1, 1: 2},
    "list of tensors": lambda: [torch.ones(2), torch.zeros(2)],
    "torch.Size": lambda: torch.Size([3, 4]),
}


def get(x, held, i):
    return held[i]


def set_(x, held, i):
    held[i] = 5
    return held


def delete(x, held, i):
    del held[i]
    return held


def slice_(x, held, i):
    return held[:i], held[i:]


def insert(x, held, i):
    held.insert(i, 7)
    return held


def pop(x, held, i):
    return held.pop(i), held


def repeat(x, held, i):
    return held * 0, held * min(i, 2)


def advance(x, held, i):
    return list(zip(range(i, i + 2), held))


OPERATIONS = [get, set_, delete, slice_, insert, pop, repeat, advance]


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("holder", HOLDERS)
def test_is_eager(holder, operation):
    def program(x, held, i):
        try:
            result = operation(x, held, i)
        except Exception as error:
            result = type(error), str(error)
        return x + 1, result, held

    for i in HUGE:
        make = HOLDERS[holder]
        check(program, lambda: (torch.ones(2), make(), i), backends=("eager",))


def test_after_small_ones():
    """An entry for a small index is not one for a huge one."""
    import framejit

    def program(x, held, i):
        try:
            return x + 1, held[i]
        except IndexError:
            return x - 1, None

    compiled = framejit.compile(program, backend="eager")
    for i in (0, 1, -1, 3, *HUGE, 1, -2):
        expected = program(torch.ones(2), [4, 5], i)
        actual = compiled(torch.ones(2), [4, 5], i)
        assert actual[1] == expected[1], i
        assert torch.equal(actual[0], expected[0]), i
