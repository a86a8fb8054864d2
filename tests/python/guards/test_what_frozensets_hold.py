"""What a frozenset holds may change, as may the class of what is known by identity.

Native code reads the items of a frozenset, which is guarded to be itself: each
item, and what is read of it, is guarded as well, however the frozenset is reached
and read. Objects that are guarded to be themselves (modules, classes, items of
frozensets) may get another class.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

X = torch.ones(2)


class Thing:
    def __init__(self, n: float = 1.0) -> None:
        self.n = n
        self.seen: list[float] = []


class Derived(Thing):
    @property
    def n(self) -> float:  # type: ignore[override]
        return 40.0

    @n.setter
    def n(self, value: float) -> None:
        pass


class Set(frozenset):  # type: ignore[type-arg]
    pass


READS: dict[str, Callable[[Any], Any]] = {
    "for": lambda t: [o for o in t][0],
    "list": lambda t: list(t)[0],
    "tuple": lambda t: tuple(t)[0],
    "sorted": lambda t: sorted(t, key=lambda o: o.n)[0],
    "max": lambda t: max(t, key=lambda o: o.n),
    "next": lambda t: next(iter(t)),
    "union": lambda t: list(t | frozenset())[0],
    "intersection": lambda t: list(t & t)[0],
    "pop": lambda t: set(t).pop(),
    "unpack": lambda t: [*t][0],
    "map": lambda t: list(map(lambda o: o, t))[0],
}
HOLDERS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda o: frozenset([o]),
    "derived": lambda o: Set([o]),
    "nested": lambda o: frozenset([frozenset([o])]),
    "tuple inside": lambda o: frozenset([(o, 1)]),
    "slice": lambda o: slice(o, None, None),
}


def open_up(item: Any) -> Any:
    while not hasattr(item, "seen"):
        item = next(iter(item)) if isinstance(item, frozenset) else item[0]
    return item


@pytest.mark.parametrize("backend", ["native", "eager"])
@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("holder", ["plain", "derived", "nested", "tuple inside"])
def test_items_change(holder: str, how: str, backend: str) -> None:
    if how in ("sorted", "max") and holder not in ("plain", "derived"):
        pytest.skip("what is inside has no n")
    read = READS[how]

    def run(compile: Callable[[Any], Any]) -> list[Any]:
        thing, found = Thing(), []
        held = HOLDERS[holder](thing)

        def reads(x: torch.Tensor, held: Any) -> torch.Tensor:
            return x * open_up(read(held)).n

        def writes(x: torch.Tensor) -> torch.Tensor:
            item = open_up(read(held))
            item.n = item.n + 1
            item.seen.append(item.n)
            return x * 2

        reader, writer = compile(reads), compile(writes)
        for turn in range(4):
            found.append(reader(X, held).tolist())
            writer(X)
            found.append((thing.n, list(thing.seen)))
            if turn == 2:
                thing.__class__ = Derived
        return found

    expected = run(lambda f: f)
    assert run(lambda f: framejit.compile(f, backend=backend)) == expected


@pytest.mark.parametrize("place", ["closure", "default", "attribute", "key", "class"])
def test_places_of_frozensets(place: str) -> None:
    def run(compile: Callable[[Any], Any]) -> list[Any]:
        thing = Thing()
        held = frozenset([thing])
        keys = {held: 1}

        class Owner:
            things = held

        owner = Owner()
        functions: dict[str, Callable[..., torch.Tensor]] = {
            "closure": lambda x: x * next(iter(held)).n,
            "default": lambda x, held=held: x * next(iter(held)).n,
            "attribute": lambda x: x * next(iter(owner.things)).n,
            "key": lambda x: x * next(iter(next(iter(keys)))).n,
            "class": lambda x: x * next(iter(Owner.things)).n,
        }
        fn, found = compile(functions[place]), []
        for n in (1.0, 2.0, 3.0):
            thing.n = n
            found.append(fn(X).tolist())
        thing.__class__ = Derived
        found.append(fn(X).tolist())
        return found

    assert run(framejit.compile) == run(lambda f: f)


def test_parts_of_slices() -> None:
    def run(compile: Callable[[Any], Any]) -> list[Any]:
        thing = Thing()
        part = slice(thing)
        fn = compile(lambda x: x * part.stop.n)
        found = []
        for n in (1.0, 2.0, 3.0):
            thing.n = n
            found.append(fn(X).tolist())
        return found

    assert run(framejit.compile) == run(lambda f: f)


# ---- classes of what is known by identity


class Shown(types.ModuleType):
    q = property(lambda self: 8.0)

    def __len__(self) -> int:
        return 5

    def __call__(self) -> float:
        return 6.0

    def __bool__(self) -> bool:
        return False


MODULE_READS: dict[str, Callable[[Any], float]] = {
    "attribute": lambda m: m.q,
    "type": lambda m: 1.0 if type(m) is types.ModuleType else 2.0,
    "isinstance": lambda m: 1.0 if isinstance(m, Shown) else 2.0,
    "bool": lambda m: 1.0 if m else 2.0,
    "len": lambda m: float(len(m)) if hasattr(m, "__len__") else 0.0,
    "call": lambda m: m() if callable(m) else 0.0,
}


@pytest.mark.parametrize("how", MODULE_READS)
def test_class_of_a_module(how: str) -> None:
    read = MODULE_READS[how]

    def run(compile: Callable[[Any], Any]) -> list[Any]:
        module = types.ModuleType("module")
        module.q = 3.0  # type: ignore[attr-defined]
        fn, found = compile(lambda x: x * read(module)), []
        for kind in (types.ModuleType, Shown, types.ModuleType, Shown):
            module.__class__ = kind
            found.append(fn(X).tolist())
        return found

    assert run(framejit.compile) == run(lambda f: f)


class Answers(type):
    def __getattribute__(cls, name: str) -> Any:
        return 1.0 if name == "zz" else type.__getattribute__(cls, name)


class Has(type):
    zz = 5.0

    def __hash__(cls) -> int:
        return 3

    def __eq__(cls, other: object) -> bool:
        return True


def inside(x: torch.Tensor, base: Any) -> torch.Tensor:
    class Made(base):  # type: ignore[misc]
        pass

    return x * Made.zz


CLASS_READS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "attribute": lambda x, a, b: x * a.zz,
    "of an instance": lambda x, a, b: x * type(b).zz,
    "class made inside": lambda x, a, b: inside(x, a),
    "class of an instance": lambda x, a, b: inside(x, type(b)),
    "set of classes": lambda x, a, b: x * len({a, int}),
    "keys": lambda x, a, b: x * len({type(b): 1, float: 2}),
}


@pytest.mark.parametrize("how", CLASS_READS)
def test_metaclass(how: str) -> None:
    read = CLASS_READS[how]

    def run(compile: Callable[[Any], Any]) -> list[Any]:
        class First(metaclass=Answers):
            pass

        class Second(metaclass=Answers):
            pass

        second = Second()
        fn, found = compile(lambda x: read(x, First, second)), []
        for kind in (Answers, Has, Answers, Has):
            First.__class__ = Second.__class__ = kind
            found.append(fn(X).tolist())
        return found

    assert run(framejit.compile) == run(lambda f: f)


# ---- tensors in them, which no graph knows


def kept(tensor: torch.Tensor, holder: str) -> Any:
    return {
        "plain": frozenset([tensor]),
        "derived": Set([tensor]),
        "nested": frozenset([frozenset([tensor])]),
        "tuple inside": frozenset([(tensor, 1)]),
        "in a slice": slice(frozenset([tensor])),
    }[holder]


def first(held: Any) -> torch.Tensor:
    while not isinstance(held, torch.Tensor):
        held = held.start or held.stop if isinstance(held, slice) else [*held][0]
    return held


def clear_gradient(x: torch.Tensor, held: Any) -> Any:
    tensor = first(held)
    had = tensor.grad is not None
    tensor.grad = None
    return x + 1, had


TENSOR_USES: dict[str, Callable[[Any, Any], Any]] = {
    "shape": lambda x, held: x * first(held).shape[0],
    "dtype": lambda x, held: x.to(first(held).dtype),
    "gradient": lambda x, held: x * (2 if first(held).grad is None else 3),
    "written": clear_gradient,
    "attribute": lambda x, held: x * getattr(first(held), "mark", 1),
    "identity": lambda x, held: x * (2 if first(held) is x else 3),
    "union": lambda x, held: x * len(held | {x}),
    "difference": lambda x, held: x * len({x} - held),
    "intersection": lambda x, held: x * len(held & {x}),
    "member": lambda x, held: x * (2 if x in held else 3),
    "value": lambda x, held: x * first(held),
}
OF_SETS = ("union", "difference", "intersection", "member")


@pytest.mark.parametrize("backend", ["native", "eager"])
@pytest.mark.parametrize("place", ["argument", "closure", "class"])
@pytest.mark.parametrize("holder", ["plain", "derived", "nested", "in a slice"])
@pytest.mark.parametrize("how", TENSOR_USES)
def test_tensors(how: str, holder: str, place: str, backend: str) -> None:
    if how in OF_SETS and holder == "in a slice":
        pytest.skip("no set")
    use = TENSOR_USES[how]

    def run(compile: Callable[[Any], Any]) -> list[Any]:
        tensor = torch.ones(2, requires_grad=True)
        held = kept(tensor, holder)

        class Owner:
            tensors = held

        functions: dict[str, Callable[..., Any]] = {
            "argument": lambda x, given: use(x, given),
            "closure": lambda x, given: use(x, held),
            "class": lambda x, given: use(x, Owner.tensors),
        }
        fn, found = compile(functions[place]), []
        for turn in range(4):
            x = tensor if turn == 2 and how != "written" else torch.ones(2)
            found.append(fn(x, held))
            if turn == 0:
                tensor.data = torch.full((1,), 3.0)
                tensor.grad = None
                tensor.mark = 5  # type: ignore[attr-defined]
            tensor.grad = torch.ones_like(tensor)
        return [*found, tensor.grad]

    expected = run(lambda f: f)
    compiled = run(lambda f: framejit.compile(f, backend=backend))
    for a, b in zip(expected, compiled, strict=True):
        assert str(a) == str(b)
