"""A descriptor that only writes (`__set__` or `__delete__`, no `__get__`) does not
hide what the object itself holds: every kind of it, on every kind of object, read
in every way, while its class gains and loses methods."""

from __future__ import annotations

import itertools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit


def reads(self: Any, o: Any, t: Any = None) -> int:
    return 42


def writes(self: Any, o: Any, value: Any) -> None:
    pass


def deletes(self: Any, o: Any) -> None:
    pass


METHODS: dict[str, Callable[..., Any]] = {
    "__get__": reads,
    "__set__": writes,
    "__delete__": deletes,
}
KINDS = [
    frozenset(names)
    for count in range(4)
    for names in itertools.combinations(METHODS, count)
]


class Module(torch.nn.Module):
    pass


class Tensor(torch.Tensor):
    pass


class Package(types.ModuleType):
    pass


class Meta(type):
    pass


def plain(descriptor: Any, held: bool) -> Any:
    cls = type("Plain", (), {"d": descriptor})
    made = cls()
    if held:
        made.__dict__["d"] = 7
    return made


def module(descriptor: Any, held: bool) -> Any:
    made = type("M", (Module,), {"d": descriptor})()
    if held:
        made.__dict__["d"] = 7
    return made


def package(descriptor: Any, held: bool) -> Any:
    made = type("P", (Package,), {"d": descriptor})("name")
    if held:
        made.__dict__["d"] = 7
    return made


def tensor(descriptor: Any, held: bool) -> Any:
    made = torch.ones(2).as_subclass(type("T", (Tensor,), {"d": descriptor}))
    if held:
        made.__dict__["d"] = 7
    return made


def of_a_metaclass(descriptor: Any, held: bool) -> Any:
    meta = type("M", (Meta,), {"d": descriptor})
    return meta("C", (), {"d": 7} if held else {})


def of_a_class(descriptor: Any, held: bool) -> Any:
    return type("C", (), {"d": descriptor})


HOLDERS = [plain, module, package, tensor, of_a_metaclass, of_a_class]


def attribute(x: Any, o: Any) -> Any:
    found = o.d
    return x * (found if isinstance(found, int) else 3), type(found).__name__


def default(x: Any, o: Any) -> Any:
    found = getattr(o, "d", None)
    return x + 1, isinstance(found, int), hasattr(o, "d")


def compared(x: Any, o: Any) -> Any:
    return x * (2 if o.d == 7 else 3)


def outcome(fn: Any, x: Any, o: Any) -> Any:
    try:
        result = fn(x, o)
    except Exception as error:
        return type(error).__name__
    parts = result if isinstance(result, tuple) else (result,)
    return [p.tolist() if isinstance(p, torch.Tensor) else p for p in parts]


@pytest.mark.parametrize("read", [attribute, default, compared])
@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("held", [True, False])
def test_each_kind(holder: Any, read: Any, held: bool) -> None:
    x = torch.ones(2)
    for names in KINDS:
        framejit.reset()
        kind = type("D", (), {name: METHODS[name] for name in names})
        compiled = framejit.compile(read)
        for _ in range(2):
            made = holder(kind(), held)
            assert outcome(compiled, x, made) == outcome(read, x, made), names


@pytest.mark.parametrize("read", [attribute, default, compared])
@pytest.mark.parametrize("holder", HOLDERS)
def test_its_class_changes(holder: Any, read: Any) -> None:
    x = torch.ones(2)
    for before, after in itertools.permutations(KINDS, 2):
        framejit.reset()
        kind = type("D", (), {name: METHODS[name] for name in before})
        made = holder(kind(), True)
        compiled = framejit.compile(read)
        assert outcome(compiled, x, made) == outcome(read, x, made), before
        for name in before - after:
            delattr(kind, name)
        for name in after - before:
            setattr(kind, name, METHODS[name])
        expected = outcome(read, x, made)
        assert outcome(compiled, x, made) == expected, (before, after)
