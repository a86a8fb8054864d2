"""A class attribute that a function gives another value, whatever was there."""

import gc
import weakref

import pytest
import torch

import framejit


class Plain:
    pass


def with_descriptor(kind):
    class Descriptor:
        pass

    def method(self, *args):
        return "through the descriptor"

    setattr(Descriptor, kind, method)
    return Descriptor()


BEFORE = {
    "none": lambda: None,
    "number": lambda: 3,
    "text": lambda: "text",
    "list": lambda: [1],
    "tensor": lambda: torch.ones(2),
    "object": Plain,
    "function": lambda: lambda self: 5,
    "class": lambda: Plain,
    "property": lambda: property(lambda self: 6),
    "static": lambda: staticmethod(lambda: 7),
    "getter": lambda: with_descriptor("__get__"),
    "setter": lambda: with_descriptor("__set__"),
    "deleter": lambda: with_descriptor("__delete__"),
    "missing": None,
}


def written(x, cls):
    cls.attribute = x * 2
    return x + 1


def number_written(x, cls):
    cls.attribute = 4
    return x + cls.attribute


def read_behind(x, cls):
    cls.attribute = x * 2
    return cls.attribute + cls().attribute


def read_before(x, cls):
    before = getattr(cls, "attribute", None)
    cls.attribute = x * 2
    return x + 1, type(before).__name__, hasattr(cls, "attribute")


def read_through_a_subclass(x, cls):
    class Derived(cls):
        pass

    cls.attribute = x * 2
    return Derived.attribute + cls.attribute


def deleted_behind(x, cls):
    cls.attribute = x * 2
    del cls.attribute
    return x + 1, hasattr(cls, "attribute")


PROGRAMS = [written, number_written, read_behind, read_before]
PROGRAMS += [read_through_a_subclass, deleted_behind]


def outcome(program, x, cls):
    try:
        result = program(x, cls)
    except Exception as error:
        result = type(error).__name__, str(error)
    found = vars(cls).get("attribute", "none there")
    return result, type(found).__name__, found


def prepared(cls, make):
    if "attribute" in vars(cls):
        del cls.attribute
    if make is not None:
        cls.attribute = make()


def same(a, b):
    if isinstance(a, torch.Tensor):
        return torch.equal(a, b)
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b or type(a).__name__ == type(b).__name__


@pytest.mark.parametrize("first", BEFORE)
@pytest.mark.parametrize("program", PROGRAMS)
def test_other_values_before_each_call(program, first):
    class Mine:
        pass

    class Theirs:
        pass

    compiled = framejit.compile(program, backend="eager")
    for name in (first, first, *BEFORE, first):
        x = torch.rand(2)
        prepared(Mine, BEFORE[name])
        prepared(Theirs, BEFORE[name])
        got, expected = outcome(compiled, x, Mine), outcome(program, x, Theirs)
        assert same(got[:2], expected[:2]), name


@pytest.mark.parametrize("where", ["base", "metaclass"])
def test_a_descriptor_that_comes_later(where):
    class Meta(type):
        pass

    class Base:
        attribute = None

    class Mine(Base, metaclass=Meta):
        attribute = Plain()

    compiled = framejit.compile(written, backend="eager")
    seen = []

    class Watches:
        def __set__(self, instance, value):
            seen.append(value)

        def __get__(self, instance, owner=None):
            return 9

    for turn in range(4):
        if turn == 2:
            setattr(Meta if where == "metaclass" else Base, "attribute", Watches())
        compiled(torch.ones(2), Mine)
    # One of the metaclass is asked, one of a base is not.
    assert len(seen) == (2 if where == "metaclass" else 0)


def test_a_class_that_becomes_a_descriptor():
    class Value:
        pass

    class Mine:
        attribute = Value()

    calls = []
    compiled = framejit.compile(written, backend="eager")
    compiled(torch.ones(2), Mine)
    Mine.attribute = Value()
    Value.__set__ = lambda self, instance, value: calls.append(value)
    compiled(torch.ones(2), Mine)
    # (Of an instance alone it is a setter.)
    assert calls == [] and type(Mine.attribute) is torch.Tensor


def test_nothing_is_kept_of_what_was_there():
    class Mine:
        attribute = None

    compiled = framejit.compile(written, backend="eager")
    references = []
    for _ in range(20):
        Mine.attribute = Plain()
        references.append(weakref.ref(Mine.attribute))
        compiled(torch.ones(2), Mine)
    gc.collect()
    assert not any(reference() for reference in references)
    assert len(framejit.inspect(compiled)) <= 2
