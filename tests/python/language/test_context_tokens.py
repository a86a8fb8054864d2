"""Tokens of context variables: what may be done with one, and how often."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import torch

import framejit

v: contextvars.ContextVar[int] = contextvars.ContextVar("v", default=1)
w: contextvars.ContextVar[int] = contextvars.ContextVar("w")


def twice(x):
    t = v.set(2)
    v.reset(t)
    try:
        v.reset(t)
    except RuntimeError as error:
        return x * 2, str(error)[:24], v.get()
    return x * 3


def twice_uncaught(x):
    t = v.set(2)
    v.reset(t)
    v.set(5)
    v.reset(t)
    return x * v.get()


def crossed(x):
    t = v.set(2)
    u = v.set(3)
    v.reset(t)
    a = v.get()
    v.reset(u)
    return x * a, v.get()


def of_another(x):
    t = v.set(2)
    try:
        w.reset(t)
    except ValueError as error:
        return x * 2, str(error)[:24], v.get()
    return x * 3, v.get()


def of_none(x):
    t = w.set(2)
    w.reset(t)
    try:
        return x * w.get()
    except LookupError:
        return x * 5


def what_it_was(x):
    t, u = v.set(2), v.set(3)
    s = w.set(4)
    found = (
        t.old_value is contextvars.Token.MISSING,
        u.old_value,
        s.old_value is s.MISSING,
        t.var is v,
    )
    v.reset(u)
    v.reset(t)
    w.reset(s)
    return x * v.get(), found


def many(x):
    for i in range(3):
        t = v.set(i)
        x = x * v.get() + 1
        v.reset(t)
    return x, v.get()


def escapes(x):
    t = v.set(v.get() + 1)
    return x * v.get(), t


def again_after_a_break(x):
    t = v.set(2)
    framejit.graph_break()
    v.reset(t)
    try:
        v.reset(t)
    except RuntimeError:
        return x * 2
    return x * 3


def no_token(x):
    try:
        v.reset(3)
    except TypeError as error:
        return x * 2, str(error)


def in_another_context(x):
    t = v.set(2)
    try:
        contextvars.copy_context().run(v.reset, t)
    except ValueError:
        x = x * 2
    v.reset(t)
    return x, v.get()


def outcome(fn: Any, *args: Any) -> str:
    try:
        found = fn(torch.ones(1), *args)
    except Exception as error:
        found = type(error).__name__, str(error)[:24]
    if isinstance(found, tuple) and isinstance(found[-1], contextvars.Token):
        v.reset(found[-1])
        with pytest.raises(RuntimeError):
            v.reset(found[-1])
        found = found[0]
    return str((found, v.get(), w.get(None)))


@pytest.mark.parametrize(
    "fn",
    [
        twice,
        twice_uncaught,
        crossed,
        of_another,
        of_none,
        what_it_was,
        many,
        escapes,
        again_after_a_break,
        no_token,
        in_another_context,
    ],
    ids=lambda fn: fn.__name__,
)
def test_token_of_the_function(fn):
    framejit.reset()
    compiled = framejit.compile(fn)
    for _ in range(3):
        expected = contextvars.copy_context().run(outcome, fn)
        assert contextvars.copy_context().run(outcome, compiled) == expected


def test_token_of_the_caller():
    def fn(x, t):
        try:
            v.reset(t)
        except (RuntimeError, ValueError) as error:
            return x * 2, type(error).__name__
        return x * 3, v.get()

    framejit.reset()
    compiled = framejit.compile(fn)

    def calls(run: Any) -> list[str]:
        t = v.set(5)
        seen = [outcome(run, t) for _ in range(3)]
        t = v.set(6)
        seen.append(contextvars.copy_context().run(outcome, run, t))
        return [*seen, outcome(run, t)]

    expected = contextvars.copy_context().run(calls, fn)
    assert contextvars.copy_context().run(calls, compiled) == expected
