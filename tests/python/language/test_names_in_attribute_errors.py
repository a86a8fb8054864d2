"""`name` and `obj` of an AttributeError: set by whoever asks for the attribute, and
only where CPython of this version sets them."""

from __future__ import annotations

import operator
import sys
import types
from typing import Any

import pytest
import torch

import framejit


class Plain:
    pass


class Slots:
    __slots__ = ("a",)


class Properties:
    @property
    def p(self):
        raise AttributeError("x")

    @property
    def read_only(self):
        return 1


class Hook:
    def __getattr__(self, name):
        raise AttributeError("no " + name)


class Own:
    def __getattribute__(self, name):
        raise AttributeError("own " + name)


class Named(Hook):
    def __getattr__(self, name):
        raise AttributeError("named", name="other", obj=3)


class Late:
    def __get__(self, instance, owner):
        raise AttributeError("late")


class WithLate:
    late = Late()


def delete(o):
    del o.foo


def delete_a(o):
    del o.a


def delete_read_only(o):
    del o.read_only


def store(o):
    o.b = 1


def store_read_only(o):
    o.read_only = 1


def read(o):
    return o.foo


def call(o):
    return o.foo()


def read_p(o):
    return o.p


def call_p(o):
    return o.p()


def read_late(o):
    return o.late


def read_a(o):
    return o.a


def by_name(o):
    return getattr(o, "p")  # noqa: B009


def by_getter(o):
    return operator.attrgetter("p")(o)


def by_super(o):
    return super(Plain, o).foo


def by_default(o):
    return getattr(o, "foo", 1) + read(o)


CASES: list[tuple[Any, Any]] = [
    (delete, Plain),
    (delete, Slots),
    (delete_a, Slots),
    (delete_read_only, Properties),
    (store, Slots),
    (store, object),
    (store_read_only, Properties),
    (read, Plain),
    (call, Plain),
    (read, Slots),
    (read_a, Slots),
    (call_p, Properties),
    (by_name, Properties),
    (by_getter, Properties),
    (read, Hook),
    (call, Hook),
    (call, Own),
    (read, Named),
    (read_late, WithLate),
    (by_super, Plain),
    (by_default, Plain),
    (by_default, Hook),
    (read, lambda: types),
    (read, lambda: Plain),
    (delete, lambda: Plain),
    (read, lambda: 5),
    (read, lambda: torch.ones(1)),
    (read, lambda: torch.nn.Linear(1, 1)),
    (call, lambda: torch.nn.Linear(1, 1)),
]
# From 3.12 on an instruction that has seen such a class a few times calls its code
# itself, and what that raises is left as it is: it depends on how often eager ran.
if sys.version_info < (3, 12):
    CASES += [(read_p, Properties), (read, Own)]


def caught(x, ask, o):
    try:
        ask(o)
    except AttributeError as error:
        return x + 1, str(error), error.name, type(error.obj).__name__, error.obj is o
    return x, None


def thrown(x, ask, o):
    y = x + 1
    ask(o)
    return y


def fields(fn: Any, ask: Any, o: Any) -> Any:
    try:
        fn(torch.ones(1), ask, o)
    except AttributeError as error:
        return str(error), error.name, type(error.obj).__name__, error.obj is o
    return None


@pytest.mark.parametrize("ask, make", CASES)
def test_where_it_is_caught_and_outside(ask, make):
    framejit.reset()
    inside, outside = framejit.compile(caught), framejit.compile(thrown)
    for _ in range(2):
        o = make()
        assert inside(torch.ones(1), ask, o)[1:] == caught(torch.ones(1), ask, o)[1:]
        assert fields(outside, ask, o) == fields(thrown, ask, o)


def test_an_error_that_comes_in():
    error = AttributeError("kept")

    class Raises:
        def __getattr__(self, name):
            raise error

    def asks(x, o):
        try:
            return o.foo
        except AttributeError as e:
            return x + 1, e.name

    framejit.reset()
    compiled = framejit.compile(asks)
    o = Raises()
    assert compiled(torch.ones(1), o)[1] == "foo"
    assert error.name == "foo" and error.obj is o
