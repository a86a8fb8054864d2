"""Programs cut down from what real models do."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

import framejit
from differential import check, leaf, one, program


class Output(OrderedDict):  # type: ignore[type-arg]
    """An output class as libraries write them: items are attributes, too."""

    def __init__(self, **items: Any) -> None:
        super().__init__()
        for name, item in items.items():
            if item is not None:
                self[name] = item

    def __setitem__(self, key: str, item: Any) -> None:
        super().__setitem__(key, item)
        super().__setattr__(key, item)

    def to_tuple(self) -> tuple[Any, ...]:
        return tuple(self[key] for key in self.keys())


@program(leaf)
def test_ordered_dict_subclass(x: Any) -> Any:
    out = Output(loss=x.sum(), logits=x * 2, nothing=None)
    out["more"] = out.logits + 1
    return out, out.to_tuple()


class Sized(OrderedDict):  # type: ignore[type-arg]
    __slots__ = ("size",)


@program(leaf)
def test_ordered_dict_subclass_with_slots(x: Any) -> Any:
    out = Sized(a=x + 1)
    out.size = x.shape[0]
    out.move_to_end("a")
    return out, out.size


class Layers(Sequence[int]):
    """Sequence.__iter__ is a generator that waits inside a try block."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def __len__(self) -> int:
        return len(self.sizes)

    def __getitem__(self, index: Any) -> Any:
        return self.sizes[index]


@program(one)
def test_zip_drops_generator_in_try(x: Any) -> Any:
    for scale, layer in zip([1.0, 2.0], Layers(2, 3, 4), strict=False):
        x = x * scale + layer
    return x


@program(one)
def test_first_of_sequence(x: Any) -> Any:
    return x + next(iter(Layers(2, 3, 4)))


def numbers(log: list[str]) -> Iterator[int]:
    try:
        yield 1
        yield 2
    finally:
        log.append("closed")


@program(one)
def test_dropped_generator_runs_finally(x: Any) -> Any:
    log: list[str] = []
    for n in numbers(log):
        x = x + n
        break
    log.append("after")
    return x, log


@program(one)
def test_dropped_generator_in_callee(x: Any) -> Any:
    log: list[str] = []

    def first(values: Iterator[int]) -> int:
        return next(values)

    x = x * first(numbers(log))
    log.append("after")
    return x, log


def test_dropped_generator_writes_to_input() -> None:
    def fn(x: torch.Tensor, log: list[str]) -> torch.Tensor:
        x = x + next(numbers(log))
        log.append("after")
        return x * 2

    check(fn, lambda: (torch.ones(3), ["start"]))


def ignoring() -> Iterator[int]:
    while True:
        try:
            yield 1
        except GeneratorExit:
            return


@program(one)
def test_dropped_generator_catches_exit(x: Any) -> Any:
    return x + next(ignoring())


def test_item_and_attribute_of_one_name() -> None:
    """Both are written: neither stands for the other."""

    def fn(out: Output, x: torch.Tensor) -> Any:
        out["a"] = x + 1
        out["b"] = x * 2
        out.pop("b")
        return out.a

    def make() -> tuple[Any, ...]:
        return Output(a=torch.zeros(3), c=torch.ones(3)), torch.ones(3)

    check(fn, make)


def test_attribute_of_replaced_dict() -> None:
    def fn(out: Output, x: torch.Tensor) -> Any:
        out.move_to_end("a")
        out["a"] = x + 1
        del out["c"]
        out["d"] = x
        return out.d

    def make() -> tuple[Any, ...]:
        return Output(a=torch.zeros(3), c=torch.ones(3)), torch.ones(3)

    check(fn, make, graphs=None, breaks=None)


class Recipe:
    """What a cached parser of patterns returns."""

    def __init__(self, axes: list[int], names: dict[str, int]) -> None:
        self.axes = axes
        self.names = names


@functools.lru_cache(None)
def parse(pattern: str) -> Recipe:
    names = {name: i for i, name in enumerate(pattern.split())}
    return Recipe(list(names.values()), names)


@functools.lru_cache(16)
def reconstruct(recipe: Recipe, shape: tuple[int, ...], flip: bool = False) -> Any:
    sizes = [shape[axis] for axis in recipe.axes]
    return sizes[::-1] if flip else sizes


@program(lambda: (torch.randn(2, 3),))
def test_lru_cache_of_an_object(x: Any) -> Any:
    recipe = parse("a b")
    assert recipe is parse("a b")
    sizes = reconstruct(recipe, x.shape, flip=True)
    return x.permute(1, 0) * recipe.names["b"], sum(sizes)


def test_lru_cache_of_symbolic_sizes() -> None:
    def fn(x: torch.Tensor) -> Any:
        return x.reshape(-1, *reconstruct(parse("a b"), x.shape)).sum(0)

    for n in (2, 3, 4, 5):
        check(fn, lambda n=n: (torch.randn(n, 3),), calls=1, breaks=0)
    compiled = framejit.compile(fn, backend="eager")
    for n in (2, 3, 4, 5):
        x = torch.randn(n, 3)
        assert torch.equal(compiled(x), fn(x))


def test_lru_cache_result_is_returned() -> None:
    """The object of the cache comes back, not a copy."""
    compiled = framejit.compile(lambda x: (x + 1, parse("a b c")), backend="eager")
    assert compiled(torch.ones(2))[1] is parse("a b c")


def test_lru_cache_result_is_changed() -> None:
    """The change is one of the cached object."""

    def fn(x: torch.Tensor) -> Any:
        recipe = parse("c d")
        recipe.axes.append(9)
        recipe.names["new"] = 1
        return x + len(recipe.axes)

    compiled = framejit.compile(fn, backend="eager")
    assert compiled(torch.zeros(1)).item() == 3
    assert compiled(torch.zeros(1)).item() == 4
    assert parse("c d").axes == [0, 1, 9, 9] and "new" in parse("c d").names
