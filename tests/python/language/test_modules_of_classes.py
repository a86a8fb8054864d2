"""What asks the frame that calls it for its module, its globals, its names or its place:
type.__new__ for a class without a __module__, the functions that make classes, exec and
eval, warnings. In a capture that frame is interpreted, and not the one that called the
compiled function."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum
import functools
import importlib
import inspect
import sys
import types
import typing
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

# Functions of three modules, which call each other.
CALLER, PROGRAM = types.ModuleType("caller"), types.ModuleType("program.part")
exec("def call(f, *args): return f(*args)", CALLER.__dict__)
exec(
    "import abc, types\n"
    "def make(*args): return type(*args)\n"
    "class Meta(type):\n"
    "    def __new__(meta, name, bases, space, **more):\n"
    "        return super().__new__(meta, name, bases, space)\n"
    "class Plain(type): pass\n"
    "class Early(type):\n"
    "    def __new__(meta, name, bases, space):\n"
    "        space = dict(space, __module__='early')\n"
    "        return type.__new__(meta, name, bases, space)\n",
    PROGRAM.__dict__,
)
make, Meta, PlainMeta, Early = (
    getattr(PROGRAM, name) for name in ("make", "Meta", "Plain", "Early")
)


class Base:
    pass


class Watching:
    seen: typing.ClassVar[list[Any]] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        Watching.seen.append((cls.__module__, list(vars(cls))))


class Named:
    def __set_name__(self, owner: Any, name: str) -> None:
        self.owner = owner.__module__, list(vars(owner))


def of(made: Any) -> Any:
    """What a class says of its module, and where that is."""
    names = list(vars(made)) if isinstance(made, type) else None
    return made.__module__, names, repr(made)


def named(name: str) -> Any:
    space = {"a": Named()}
    type(name, (), space)
    return space["a"].owner, list(space)


def watching(name: str) -> Any:
    Watching.seen = []
    type(name, (Watching,), {"b": 1})
    return Watching.seen


def by_a_class_statement() -> Any:
    class C(Base):
        x = 1

    return of(C)


def nested() -> Any:
    class Outer:
        Inner = type("Inner", (), {"y": 1})

    return of(Outer), of(Outer.Inner)


def from_a_comprehension() -> Any:
    return [of(type(name, (), {})) for name in ("A", "B")]


def with_exec(globals: Any) -> Any:
    exec("C = type('C', (), {})", globals)
    made = globals["C"]
    return getattr(made, "__module__", None), "__module__" in vars(made)


def super_in_exec() -> Any:
    class A:
        def f(self) -> Any:
            return super().__repr__()[:1], __class__.__name__  # type: ignore[name-defined]

    return A().f()


MAKERS: dict[str, Callable[[], Any]] = {
    "type": lambda: of(type("C", (), {})),
    "type with names": lambda: of(type("C", (Base,), {"a": 1, "__doc__": "d"})),
    "type with a module": lambda: of(type("C", (), {"__module__": "m", "b": 1})),
    "type with a qualname": lambda: of(type("C", (), {"__qualname__": "Q.C", "b": 1})),
    "type with slots": lambda: of(type("C", (), {"__slots__": ("a", "b")})),
    "type of an ordered dict": lambda: of(type("C", (), collections.OrderedDict(a=1))),
    "type.__new__": lambda: of(type.__new__(type, "C", (), {})),
    "type.__call__": lambda: of(type.__call__(type, "C", (), {})),
    "partial": lambda: of(functools.partial(type, "C")((), {})),
    "map": lambda: [of(made) for made in map(type, ["C"], [()], [{}])],
    "in another module": lambda: of(make("C", (), {})),
    "metaclass": lambda: of(Meta("C", (), {"a": 1})),
    "metaclass without __new__": lambda: of(PlainMeta("C", (), {"a": 1})),
    "metaclass with a module": lambda: of(Early("C", (), {"a": 1})),
    "ABCMeta": lambda: of(abc.ABCMeta("C", (), {})),
    "abc statement": by_a_class_statement,
    "new_class": lambda: of(types.new_class("C")),
    "new_class body": lambda: of(
        types.new_class("C", (Base,), {}, lambda space: space.update(a=1))
    ),
    "exception": lambda: of(type("E", (ValueError,), {})),
    "exception repr": lambda: repr(type("E", (ValueError,), {})("q")),
    "module": lambda: of(type("M", (torch.nn.Module,), {})),
    "tensor": lambda: of(type("T", (torch.Tensor,), {})),
    "make_dataclass": lambda: of(dataclasses.make_dataclass("D", ["a", "b"]))[0],
    "dataclass": lambda: of(dataclasses.dataclass(type("D", (), {}))),
    "namedtuple": lambda: of(collections.namedtuple("T", "a b")),
    "namedtuple module": lambda: of(collections.namedtuple("T", "a b", module="m")),
    "typing.NamedTuple": lambda: of(typing.NamedTuple("T", [("a", int)])),
    "TypedDict": lambda: of(typing.TypedDict("T", {"a": int})),  # type: ignore[operator]
    "NewType": lambda: typing.NewType("N", int).__module__,
    "TypeVar": lambda: typing.TypeVar("T").__module__,
    "ParamSpec": lambda: typing.ParamSpec("P").__module__,
    "Enum": lambda: enum.Enum("E", "A B").__module__,
    "IntEnum": lambda: enum.IntEnum("E", {"A": 1}).__module__,
    "Flag": lambda: repr(enum.Flag("F", "A B")),
    "SimpleNamespace": lambda: type(types.SimpleNamespace()).__module__,
    "nested": nested,
    "comprehension": from_a_comprehension,
    "named": lambda: named("C"),
    "watching": lambda: watching("C"),
    "prepared": lambda: of(types.prepare_class("C")[0]),
    "exec with a name": lambda: with_exec({"__name__": "executed"}),
    "exec without a name": lambda: with_exec({}),
    "exec with a number": lambda: with_exec({"__name__": 5}),
    "eval": lambda: of(eval("type('C', (), {})")),
    "eval with a name": lambda: of(
        eval("type('C', (), {})", {"__name__": "evaluated"})
    ),
    "eval by partial": lambda: functools.partial(eval, "__name__")(),
    "eval by map": lambda: list(map(eval, ["__name__"])),
    "eval of globals": lambda: eval("globals()['__name__']"),
    "exec of globals": lambda: (
        exec("a = __name__", space := {"__name__": 1}),
        space["a"],
    ),
    "globals": lambda: globals()["__name__"],
    "globals by partial": lambda: functools.partial(globals)()["__name__"],
    "globals by name": lambda: getattr(sys.modules["builtins"], "globals")()[
        "__name__"
    ],
    "locals": lambda: sorted(locals()),
    "locals in a function": lambda: (lambda a, b: sorted(locals()))(1, 2),
    "locals by partial": lambda: (lambda a: sorted(functools.partial(locals)()))(1),
    "vars": lambda: (lambda a, b: sorted(vars()))(1, 2),
    "dir": lambda: (lambda a, b: dir())(1, 2),
    "vars by map": lambda: (lambda a: [sorted(f()) for f in (vars, locals)])(1),
    "import": lambda: __import__("math").__name__,
    "import by name": lambda: importlib.import_module("collections.abc").__name__,
    "relative import": lambda: with_relative_import(),
    "getframe": lambda: sys._getframe().f_globals["__name__"],
    "getframe code": lambda: sys._getframe().f_code.co_name,
    "getframe up": lambda: (lambda: sys._getframe(1).f_code.co_name)(),
    "currentframe": lambda: inspect.currentframe().f_globals["__name__"],  # type: ignore
    "super": super_in_exec,
    "warn": lambda: warned(lambda: warnings.warn("text", stacklevel=1)),
    "warn up": lambda: warned(lambda: warnings.warn("text", stacklevel=2)),
    "warn further up": lambda: warned(lambda: warnings.warn("text", stacklevel=3)),
    "escape in eval": lambda: warned(lambda: eval(r"'\d'")),
    "truth of NotImplemented": lambda: warned(lambda: bool(NotImplemented)),
    "not NotImplemented": lambda: warned(lambda: not NotImplemented),
    "escape in exec": lambda: warned(lambda: exec(r"a = '\d'", {})),
    "escape in compile": lambda: warned(lambda: compile(r"'\d'", "file", "eval")),
    "escape and an error": lambda: warned(
        lambda: outcome(lambda: compile("a = '\\d'\nreturn 5", "file", "exec"))
    ),
    "an error": lambda: outcome(lambda: eval("a b")),
    "an error in exec": lambda: outcome(lambda: exec("return 5")),
    "is of a literal": lambda: warned(lambda: eval("1 is 1")),
}


def with_relative_import() -> Any:
    try:
        return __import__("nothing", globals(), None, (), 1)
    except Exception as error:
        return type(error), str(error)


def warned(do: Callable[[], Any]) -> Any:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        do()
    return [(str(w.message), w.category, w.filename, w.lineno) for w in caught]


def outcome(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("maker", MAKERS)
def test_what_asks_its_caller(maker: str) -> None:
    make = MAKERS[maker]

    def f(x: Any) -> Any:
        return x + 1, make()

    compiled = framejit.compile(f)
    for call in (CALLER.call, lambda f, *args: f(*args), CALLER.call):
        eager = outcome(lambda call=call: call(f, torch.ones(1))[1])
        assert outcome(lambda call=call: call(compiled, torch.ones(1))[1]) == eager


def test_the_name_of_a_module_that_changes() -> None:
    names: dict[str, Any] = {"__name__": "before"}
    exec("def f(x): return x + 1, type('C', (), {}).__module__", names)
    compiled = framejit.compile(names["f"])
    for name in ("before", "after", "before", None, 5):
        names["__name__"] = name
        assert compiled(torch.ones(1))[1] == names["f"](torch.ones(1))[1] == name
    del names["__name__"]

    def of_no_module() -> Any:
        return outcome(lambda: compiled(torch.ones(1))[1])

    assert of_no_module() == outcome(lambda: names["f"](torch.ones(1))[1])


def test_the_frames_of_a_capture_that_breaks() -> None:
    def f(x: Any) -> Any:
        first = type("A", (), {}).__module__
        framejit.graph_break()
        return x + 1, first, type("B", (), {}).__module__

    compiled = framejit.compile(f)
    for call in (CALLER.call, PROGRAM.__dict__.setdefault("call", CALLER.call)):
        assert call(compiled, torch.ones(1))[1:] == call(f, torch.ones(1))[1:]
