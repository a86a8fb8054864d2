"""Classes that a frame makes and uses, and the library that makes them out of
text: namedtuple, dataclasses, enums, exec and eval of known code."""

from __future__ import annotations

import abc
import collections
import contextlib
import dataclasses
import enum
import functools
import inspect
import sys
import types
import typing
from typing import Any

import torch

import framejit
from differential import one, program

NUMBER = 4


# ---- namedtuple


@program(one)
def test_namedtuple(x):
    Pair = collections.namedtuple("Pair", ["u", "v"], defaults=[x])
    p = Pair(2)
    return p.v * p.u, p._fields, p._replace(u=5).u, p.u, Pair._make([1, 2]).v


@program(one)
def test_typed_namedtuple(x):
    class Pair(typing.NamedTuple):
        u: int
        v: Any = 3

    Other = typing.NamedTuple("Other", [("w", int)])
    return Pair(2, x).v * Pair(1).v, Other(4).w


# A class cannot be made again after the graph: the frame stops before it.
@program(one, graphs=None, breaks=None)
def test_namedtuple_that_leaves(x):
    Pair = collections.namedtuple("Pair", "u v")
    return Pair(x * 2, 1)


# ---- dataclasses


@program(one)
def test_dataclass(x):
    @dataclasses.dataclass(order=True)
    class Item:
        a: int = 1
        b: list = dataclasses.field(default_factory=list, compare=False)

        def __post_init__(self):
            self.c = self.a * 2

    d, e = Item(3), Item(4, [1])
    return x * d.c, d < e, d == Item(3), [f.name for f in dataclasses.fields(Item)]


@program(one)
def test_frozen_dataclass(x):
    @dataclasses.dataclass(frozen=True)
    class Item:
        a: int = 1

    text = ""
    try:
        Item().a = 3
    except dataclasses.FrozenInstanceError as error:
        text = str(error)
    return x * Item(2).a, text, hash(Item(1)) == hash(Item(1))


@program(one)
def test_dataclass_with_slots(x):
    @dataclasses.dataclass(slots=True, kw_only=True)
    class Item:
        a: int = 1

    return x * Item(a=4).a, Item.__slots__


@dataclasses.dataclass
class Settings:
    a: int
    b: Any = None


@program(one)
def test_repr_of_a_dataclass(x):
    return x * 2, repr(Settings(1, (2, "c"))), str(Settings(Settings(1)))


# ---- enums


@program(one)
def test_enum(x):
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

        @property
        def twice(self):
            return self.value * 2

    Other = enum.Enum("Other", "A B")
    names = [c.name for c in Color], Color["RED"].name, str(Other.A)
    return x * Color.BLUE.twice, names, Color(2) is Color.BLUE, Other.B.value


@program(one)
def test_enums_of_numbers_and_text(x):
    class Level(enum.IntEnum):
        LOW = enum.auto()
        HIGH = 5

    class Kind(str, enum.Enum):
        A = "a"

    return x * Level.HIGH, Level.LOW < Level.HIGH, Kind.A == "a", Level.LOW + 1


@program(one)
def test_flags(x):
    class Access(enum.Flag):
        R = enum.auto()
        W = enum.auto()

    both = Access.R | Access.W
    return x * both.value, Access.R in both, bool(Access.R & Access.W)


# ---- hooks of class statements


class Plugin:
    def __init_subclass__(cls, /, tag=None, **rest):
        super().__init_subclass__(**rest)
        cls.tag = tag


class Named:
    def __set_name__(self, owner, name):
        self.name = name
        owner.names = (*getattr(owner, "names", ()), name)

    def __get__(self, obj, owner=None):
        return self if obj is None else obj.__dict__.get("_" + self.name, 9)

    def __set__(self, obj, value):
        obj.__dict__["_" + self.name] = value * 2


@program(one)
def test_init_subclass_and_set_name(x):
    class A(Plugin, tag="t"):
        first = Named()
        second = Named()

    class B(A):
        pass

    a = A()
    before = a.first
    a.first = 4
    return x * a.first, before, A.names, A.tag, B.tag, A.second.name


@program(one)
def test_property_with_setter_and_deleter(x):
    class A:
        def __init__(self):
            self._v = 1

        @property
        def v(self):
            return self._v

        @v.setter
        def v(self, n):
            self._v = n * 2

        @v.deleter
        def v(self):
            self._v = 100

    a = A()
    a.v = 4
    before = a.v
    del a.v
    return x * before * a.v


@program(one)
def test_abstract_classes(x):
    class A(abc.ABC):
        @abc.abstractmethod
        def f(self): ...

    class B(A):
        def f(self):
            return 4

    text = ""
    try:
        A()
    except TypeError as error:
        text = str(error)
    return x * B().f(), text, isinstance(B(), A), issubclass(int, A)


@program(one)
def test_metaclass(x):
    class Meta(type):
        def __new__(mcs, name, bases, space):
            cls = super().__new__(mcs, name, bases, space)
            cls.made = name.lower()
            return cls

        def __call__(cls, *args):
            obj = super().__call__(*args)
            obj.tag = 5
            return obj

    class A(metaclass=Meta):
        def __init__(self, v):
            self.v = v

    return x * A(2).v * A(1).tag, A.made


@program(one)
def test_total_ordering(x):
    @functools.total_ordering
    class V:
        def __init__(self, n, label=""):
            self.n, self.label = n, label

        def __eq__(self, other):
            return self.n == other.n

        def __lt__(self, other):
            return self.n < other.n

    items = [V(3, "a"), V(1, "b"), V(3, "c"), V(2, "d")]
    up = [v.label for v in sorted(items)]
    down = [v.label for v in sorted(items, reverse=True)]
    return x * max(items).n, V(1) <= V(2), V(1) >= V(2), up, down


@program(one)
def test_sort_counts_comparisons(x):
    asked = []

    class V:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            asked.append((self.n, other.n))
            return self.n < other.n

    for items in ([3, 1, 2], [1, 2, 3, 2, 0], [5, 4, 3, 9], [2, 2, 1, 1], [7]):
        for turned in (False, True):
            asked.append([v.n for v in sorted(map(V, items), reverse=turned)])
    return x * 2, asked


# ---- exec and eval


@program(one)
def test_exec_and_eval(x):
    space: dict[str, Any] = {}
    exec("def f(a, k=2):\n    return a * k", space)
    n = 3
    names = {"n": 5}
    return (
        space["f"](x),
        eval("n + 1"),
        eval(" n * NUMBER", globals(), names),
        sorted(space)[:1],
    )


@program(one)
def test_eval_of_text_that_is_wrong(x):
    text = ""
    try:
        eval("1 +")
    except SyntaxError as error:
        text = type(error).__name__
    return x * 2, text


def test_exec_writes_to_a_module():
    space = {"__builtins__": __builtins__, "k": 2}

    def fn(x):
        exec("k = k + 1\nl = k * 2", space)
        return x * space["k"] + space["l"]

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    for expected in (3 + 6, 4 + 8, 5 + 10):
        assert compiled(torch.ones(1)).item() == expected
    assert space["k"] == 5 and space["l"] == 10


# ---- looking at classes and functions


def sample(a, b=2, *c, d: int = 3, **e): ...


class Callable:
    def __init__(self, a, b=3): ...

    def __call__(self, z): ...

    def method(self, q, r=1): ...


@program(one)
def test_signatures(x):
    s = inspect.signature(sample)
    bound = s.bind(1, b=5)
    bound.apply_defaults()
    return (
        x * s.parameters["b"].default,
        str(s),
        [p.kind.name for p in s.parameters.values()],
        bound.arguments,
        list(inspect.signature(Callable).parameters),
        list(inspect.signature(Callable(1).method).parameters),
        list(inspect.signature(Callable(1)).parameters),
        str(inspect.signature(functools.partial(sample, 1))),
        inspect.getfullargspec(sample).args,
    )


@program(one)
def test_signature_of_a_function_made_here(x):
    @functools.wraps(sample)
    def inner(*args, **kwargs):
        return sample(*args, **kwargs)

    def plain(u, v=3): ...

    return (
        x * 2,
        list(inspect.signature(inner).parameters),
        str(inspect.signature(plain)),
    )


@typing.runtime_checkable
class HasGet(typing.Protocol):
    def get(self): ...


class Box(typing.Generic[typing.TypeVar("T")]):  # type: ignore[misc]
    def __init__(self, v):
        self.v = v

    def get(self):
        return self.v


@program(one, graphs=None, breaks=None)
def test_generic_alias_called(x):
    return Box[int](x).get() * 2, type(Box[int](1)) is Box


@program(one)
def test_protocols(x):
    return x * 2, isinstance(Box(1), HasGet), isinstance(3, HasGet)


@program(one)
def test_frames(x):
    def inner():
        return sys._getframe(1).f_code.co_name, sys._getframe().f_globals["NUMBER"]

    return x * 2, inner()


@program(one)
def test_namespaces(x):
    space = types.SimpleNamespace(a=x, b=2)
    space.c = 3
    return space.a * space.b, vars(space)["c"], space


@program(one)
def test_contexts_made_here(x):
    log = []

    class Manager:
        def __enter__(self):
            log.append("in")
            return self

        def __exit__(self, kind, *rest):
            log.append(kind and kind.__name__)
            return True

        def close(self):
            log.append("close")

    with contextlib.ExitStack() as stack:
        stack.enter_context(Manager())
        stack.callback(log.append, "called back")
        stack.enter_context(torch.no_grad())
        y = x * 2
        with contextlib.suppress(KeyError):
            {}["missing"]
        with contextlib.closing(Manager()):
            raise ValueError
    return y, log
