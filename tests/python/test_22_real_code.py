"""Programs cut down from what real models do."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import Any

import torch

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
