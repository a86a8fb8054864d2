"""Classes made in a call, or before each: an entry keeps none of them alive, nor what
their functions hold, and meets no other object in the place of a property."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch

import framejit


def of_super(held):
    class Base:
        @property
        def value(self):
            return 1

    class Derived(Base):
        @property
        def value(self):
            return super().value + held.numel()

    return Derived


def with_setter(held):
    class Plain:
        def __init__(self):
            self.kept = 2

        @property
        def value(self):
            return self.kept + __class__.one + held.numel()

        @value.setter
        def value(self, number):
            self.kept = number

        one = 1

    return Plain


def class_method(held):
    class Plain:
        one = 1

        @classmethod
        def make(cls):
            return cls.one + __class__.one + held.numel()

        @property
        def value(self):
            return self.make()

    return Plain


def static_method(held):
    class Plain:
        one = 1

        @staticmethod
        def make():
            return __class__.one + held.numel()

        @property
        def value(self):
            return self.make()

    return Plain


def over_super(held):
    Plain = with_setter(held)

    class Derived(Plain):
        @property
        def value(self):
            return super().value + 1

    return Derived


MAKERS = [over_super, of_super, with_setter, class_method, static_method]


@pytest.mark.parametrize("breaks", [False, True])
@pytest.mark.parametrize("where", ["inside", "argument"])
@pytest.mark.parametrize("make", MAKERS, ids=lambda f: f.__name__)
def test_they_go(make, where, breaks):
    def inside(x, made):
        cls = make(x)
        if breaks and x.sum() > 1e9:
            x = x + 1
        return x * cls().value

    def argument(x, made):
        y = x * made().value
        if breaks and y.sum() > 1e9:
            y = y + 1
        return y * made().value

    function = inside if where == "inside" else argument
    compiled = framejit.compile(function)
    gc.collect()
    kept = []
    for _ in range(6):
        x = torch.ones(3)
        made = None if where == "inside" else make(x)
        assert torch.equal(compiled(x, made), function(x, made))
        kept.append(weakref.ref(x))
        if made is not None:
            kept.append(weakref.ref(made))
        del x, made
    gc.collect()
    assert [reference() for reference in kept] == [None] * len(kept)


def test_another_property_in_its_place():
    """Also where it comes to lie at the address of the one before."""

    class Holder:
        pass

    def two(self):
        return 2.0

    def three(self):
        return 3.0

    compiled = framejit.compile(lambda x, h: x * h.value)
    x, holder = torch.ones(2), Holder()
    for kind in (property, lambda f: property(f, two), lambda f: property(f, f, f)):
        for number in range(20):
            function = (two, three)[number % 2]
            Holder.value = None
            Holder.value = kind(function)
            assert torch.equal(compiled(x, holder), x * function(holder))


def test_another_kind_in_its_place():
    class Holder:
        number = 5.0

        def value(self):
            return self.number

    def value(self=None):
        return getattr(self, "number", 1.0)

    compiled = framejit.compile(lambda x, h: x * h.value())
    x, holder = torch.ones(2), Holder()
    kinds = [staticmethod, classmethod, lambda f: f]
    for number in range(24):
        Holder.value = None
        Holder.value = kinds[number % 3](value)
        Holder.number = float(number)
        assert torch.equal(compiled(x, holder), x * holder.value())
