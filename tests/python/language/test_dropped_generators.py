"""A suspended generator that is dropped runs its `finally` there and then, also where
that is what breaks the graph: by leaving the loop, by an exception that takes the stack
of the frame, by a name that gets another object."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

LOG: list[Any] = []


def closing(source):
    try:
        yield 1
        yield 2
    finally:
        LOG.append(("closed", next(source, -1)))


def leaves(x, source):
    for i in closing(source):
        if i:
            break
    LOG.append("after")
    return x + 1


def returns(x, source):
    for _ in closing(source):
        return x * 3


def raises(x, source):
    for _ in closing(source):
        raise KeyError("k")


def raises_from_none(x, source):
    y = x * 2
    with contextlib.ExitStack() as stack:
        stack.callback(LOG.append, "callback")
        for _ in closing(source):
            raise RuntimeError("") from None
    return y


def caught(x, source):
    try:
        for _ in closing(source):
            LOG.append("in")
            raise KeyError("k")
    except KeyError:
        LOG.append("caught")
    return x + 1


def through_finally(x, source):
    try:
        for _ in closing(source):
            x = x * 2
            [][1]
    finally:
        LOG.append("finally")


def in_callee(x, source):
    def callee():
        for _ in closing(source):
            raise KeyError("k")

    try:
        callee()
    except KeyError:
        LOG.append("caught")
    return x + 1


def in_expression(x, source):
    try:
        return x + [next(closing(source)), {}["a"]][0]
    except KeyError:
        LOG.append("caught")
    return x


def rebound(x, source):
    g = closing(source)
    next(g)
    try:
        g = None
        LOG.append("gone")
        {}["a"]
    except KeyError:
        LOG.append("caught")
    return x + 1, g


def suppressed(x, source):
    with contextlib.suppress(KeyError):
        for _ in closing(source):
            {}["a"]
    LOG.append("behind")
    return x + 1


def nested(x, source):
    try:
        for _ in closing(source):
            for _ in closing(source):
                {}["a"]
    except KeyError as error:
        LOG.append(str(error))
    return x + 1


def behind_a_break(x, source):
    try:
        for _ in closing(source):
            framejit.graph_break()
            {}["a"]
    except KeyError as error:
        LOG.append(str(error))
    return x + 1


PROGRAMS = [
    leaves,
    returns,
    raises,
    raises_from_none,
    caught,
    through_finally,
    in_callee,
    in_expression,
    rebound,
    suppressed,
    nested,
    behind_a_break,
]
# What is read in the `finally`: captured, and not.
SOURCES: dict[str, Callable[[], Any]] = {
    "list": lambda: iter([5, 6, 7]),
    "accumulate": lambda: itertools.accumulate([1, 2, 3]),
}


def outcome(fn: Any, source: str) -> Any:
    LOG.clear()
    try:
        found = fn(torch.ones(2), SOURCES[source]())
    except Exception as error:
        found = repr(error)
    if isinstance(found, tuple):
        found = found[0]
    text = found.tolist() if isinstance(found, torch.Tensor) else found
    return text, list(LOG)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_closes_there(program, source, backend):
    framejit.reset()
    expected = outcome(program, source)
    assert any(entry[0] == "closed" for entry in expected[1])
    compiled = framejit.compile(program, backend=backend)
    for _ in range(2):
        assert outcome(compiled, source) == expected
