"""A proxy of weakref says that it is of its object's class."""

from __future__ import annotations

import collections.abc
import weakref
from typing import Any

import pytest
import torch

import framejit


class Base:
    pass


class Object(Base):
    v = 1

    def __len__(self) -> int:
        return 3


class Callable(Object):
    def __call__(self) -> int:
        return 5


def of_classes(x: Any, p: Any) -> Any:
    return x + 1, isinstance(p, Object), isinstance(p, (int, Base)), isinstance(p, int)


def abstract(x: Any, p: Any) -> Any:
    return x + 1, isinstance(p, collections.abc.Sized), isinstance(p, Callable)


def pattern(x: Any, p: Any) -> Any:
    match p:
        case Callable():
            return x + 1, "callable"
        case Object(v=1):
            return x + 2, "object"
        case _:
            return x + 3, "other"


def its_type(x: Any, p: Any) -> Any:
    return x + 1, type(p).__name__, p.__class__.__name__, issubclass(type(p), Object)


PROGRAMS = [of_classes, abstract, pattern, its_type]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_it_is_of_its_objects_class(program: Any) -> None:
    compiled = framejit.compile(program)
    objects = [Object(), Callable(), Base(), Object()]
    for held in objects:
        proxy = weakref.proxy(held)
        try:
            expected: Any = program(torch.ones(1), proxy)[1:]
        except Exception as error:
            expected = type(error)
        try:
            got: Any = compiled(torch.ones(1), proxy)[1:]
        except Exception as error:
            got = type(error)
        assert got == expected
