"""A class made in a compiled function: what its bases, members and metaclass do."""

from __future__ import annotations

import pytest
import torch

import framejit

log: list[object] = []


class Base:
    made: list[str] = []

    def __init_subclass__(cls, tag=None, **kwargs):
        super().__init_subclass__(**kwargs)
        log.append(("init_subclass", cls.__name__, tag, sorted(vars(cls))))
        Base.made.append(cls.__name__)


class Member:
    def __set_name__(self, owner, name):
        log.append(("set_name", owner.__name__, name))
        self.name = name


class Refuses:
    def __init_subclass__(cls):
        log.append("refusing")
        raise ValueError(cls.__name__)


class RefusesName:
    def __set_name__(self, owner, name):
        log.append("refusing")
        raise KeyError(name)


class Meta(type):
    @classmethod
    def __prepare__(cls, name, bases, **kwargs):
        log.append(("prepare", name, sorted(kwargs)))
        return {"prepared": 1}

    def __new__(cls, name, bases, namespace, **kwargs):
        log.append(("new", name, sorted(k for k in namespace if k[0] != "_")))
        return super().__new__(cls, name, bases, namespace)

    def __init__(cls, name, bases, namespace, **kwargs):
        log.append(("init", name))
        super().__init__(name, bases, namespace)

    def __call__(cls, *args):
        log.append(("call", cls.__name__))
        return super().__call__(*args)


def with_tag(x):
    log.append("start")

    class C(Base, tag="t"):
        k = 3

        def times(self, x):
            return x * self.k

    y = C().times(x)
    log.append("end")
    return y


def names_its_members(x):
    class C:
        d = Member()
        e = Member()

    log.append(C.__dict__["d"].name)
    return x + 1


def both(x):
    class C(Base):
        d = Member()
        log.append("body")
        t = x * 2

    log.append(issubclass(C, Base))
    return C.t


def metaclass(x):
    log.append("start")

    class C(metaclass=Meta, flag=1):
        k = 2

    y = x * C.k * C.prepared
    C()
    log.append("end")
    return y


def by_calling_type(x):
    made = type("T", (Base,), {"v": 4, "d": Member()}, tag="dynamic")
    return x * made.v


def hook_made_here(x):
    class R(Base):
        def __init_subclass__(cls, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.extra = x + 1
            log.append("R")

    class S(R):
        pass

    return S.extra


def refused_and_caught(x):
    y = x + 1
    try:

        class C(Refuses):
            pass

    except ValueError as error:
        log.append(str(error))
        y = y * 3
    return y


def name_refused_and_caught(x):
    y = x + 1
    try:

        class C:
            d = RefusesName()

    except (RuntimeError, KeyError) as error:
        log.append(repr(error))
        y = y * 3
    return y


def escapes(x):
    class C(Base):
        d = Member()
        k = 5

    log.append("made")
    return C, x * C.k


def with_a_break_inside(x):
    class C(Base):
        d = Member()
        if x.sum() > 0:
            k = 5
        else:
            k = 6

    return x * C.k


PROGRAMS = [
    with_tag,
    names_its_members,
    both,
    metaclass,
    by_calling_type,
    hook_made_here,
    refused_and_caught,
    name_refused_and_caught,
    escapes,
    with_a_break_inside,
]


def outcome(result):
    if isinstance(result, tuple):
        cls, value = result
        return cls.__qualname__, cls.__mro__[1:], sorted(vars(cls)), value.tolist()
    return result.tolist()


def run(function):
    log.clear()
    Base.made.clear()
    results = [outcome(function(torch.ones(2))) for _ in range(3)]
    return results, list(log), list(Base.made)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_in_eager(program):
    expected = run(program)
    assert run(framejit.compile(program)) == expected
