"""What C code takes for the absence of an attribute: none was found, or __getattr__
(of a class, a metaclass, a module) raised AttributeError."""

from __future__ import annotations

import sys
import types

import pytest
import torch

import framejit


class Refuses:
    def __getattr__(self, name):
        raise AttributeError(f"no {name}")


class Meta(type):
    def __getattr__(cls, name):
        raise AttributeError(f"no {name}")


class OfMeta(metaclass=Meta):
    pass


class Slotted:
    __slots__ = ("a",)

    def __getattr__(self, name):
        raise AttributeError(f"no {name}")


class Other(Exception):
    pass


class RaisesOther:
    def __getattr__(self, name):
        raise Other(name)


LAYER = torch.nn.Linear(2, 2)


def match_module(x):
    match LAYER:
        case torch.nn.Linear(scale=s):
            return x * s
        case torch.nn.Module():
            return x * 3


def match_object(x):
    match Refuses():
        case Refuses(scale=s):
            return x * s
        case _:
            return x * 3


def match_positional(x):
    match OfMeta():
        case OfMeta(5):
            return x
    return x * 3


def match_other(x):
    match RaisesOther():
        case RaisesOther(scale=s):
            return x * s
    return x


def subscript(x):
    return x, OfMeta[int]


def derive(x):
    class S(Refuses()):
        pass

    return x, S


def variables(x):
    return x, vars(Slotted())


def from_module(x):
    from framejit_lazy import fast

    return x * fast


def star(x):
    exec("from framejit_lazy import *", {})
    return x


def default(x):
    return x * getattr(Refuses(), "scale", 2), hasattr(LAYER, "scale")


def plain(x):
    return x * Refuses().scale


def unpack(x):
    return {**Refuses()}, x


def of_dict(x):
    return dict(Refuses()), x


def as_instance(x):
    return x, isinstance(Refuses(), int), isinstance(3, OfMeta)


PROGRAMS = [
    match_module,
    match_object,
    match_positional,
    match_other,
    subscript,
    derive,
    variables,
    from_module,
    star,
    default,
    plain,
    unpack,
    of_dict,
    as_instance,
]


def outcome(function, x):
    try:
        return repr(function(x))
    except Exception as error:
        return repr(error)


def handled(program):
    def function(x):
        try:
            return program(x)
        except ImportError as error:
            return "import", str(error)
        except TypeError as error:
            return "type", str(error)
        except Other as error:
            return "other", str(error)
        except AttributeError as error:
            return "attribute", str(error)

    return function


@pytest.fixture(autouse=True)
def lazy_module(monkeypatch):
    module = types.ModuleType("framejit_lazy")

    def refuse(name):
        raise AttributeError(f"nope {name}")

    module.__getattr__ = refuse
    monkeypatch.setitem(sys.modules, "framejit_lazy", module)


@pytest.mark.parametrize("inside", [True, False])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_refused(program, inside):
    function = handled(program) if inside else program
    x = torch.ones(2)
    compiled = framejit.compile(function)
    for _ in range(2):
        assert outcome(compiled, x) == outcome(function, x)
