"""Which of several equal numbers, strings and tuples it is: `a is b`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

NUMBER = 12345
TEXT = "some_text"

MAKE: dict[str, Callable[[], Any]] = {
    "int": lambda: int("1000"),
    "small_int": lambda: int("5"),
    "large_int": lambda: int("1" * 30),
    "float": lambda: float("2.5"),
    "nan": lambda: float("nan"),
    "complex": lambda: complex("1+2j"),
    "str": lambda: "".join(["a ", "b"]),
    "bytes": lambda: b"ab" + bytes([3]),
    "tuple": lambda: (int("1000"),),
    "frozenset": lambda: frozenset([1]),
    "range": lambda: range(int("3"), 9),
    "slice": lambda: slice(1, int("2")),
    "bool": lambda: True,
}


class Holder:
    value: Any = None


def two(x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    return x * 2 if a is b else x * 3


def negated(x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    x = x + 1
    if a is not b:
        x = x * 2
    return x


def in_tuple(x: torch.Tensor, a: Any, b: Any) -> torch.Tensor:
    return two(x, *(a, b))


def in_list(x: torch.Tensor, items: list[Any]) -> torch.Tensor:
    return x * sum(1 for i in items for j in items if i is j)


def of_global(x: torch.Tensor, a: Any) -> torch.Tensor:
    return x * 2 if a is NUMBER else x * 3


def of_text(x: torch.Tensor, a: Any) -> torch.Tensor:
    return x * 2 if a is TEXT else x * 3


def of_default(x: torch.Tensor, a: Any, b: Any = NUMBER) -> torch.Tensor:
    return x * 2 if a is b else x * 3


def of_attribute(x: torch.Tensor, holder: Holder, a: Any) -> torch.Tensor:
    return x * 2 if holder.value is a else x * 3


def of_items(x: torch.Tensor, items: tuple[Any, ...]) -> torch.Tensor:
    return x * 2 if items[0] is items[1] else x * 3


def of_itself(x: torch.Tensor, a: Any) -> torch.Tensor:
    return x * 2 if a is a else x * 3


def of_computed(x: torch.Tensor, a: Any) -> torch.Tensor:
    return x * 2 if a + 1 is a else x * 3


Call = tuple[Callable[..., torch.Tensor], tuple[Any, ...]]


def compare(calls: list[Call], dynamic: bool | None) -> None:
    for order in (1, -1):
        framejit.reset()
        compiled = {f: framejit.compile(f, dynamic=dynamic) for f, _ in calls}
        for f, args in calls[::order] * 2:
            x = torch.ones(2)
            assert torch.equal(f(x, *args), compiled[f](x, *args)), (f, args, order)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", MAKE)
def test_of_two_arguments(name: str, dynamic: bool | None) -> None:
    one, other, third = MAKE[name](), MAKE[name](), MAKE[name]()
    pairs = [(one, one), (one, other), (third, third), (other, one)]
    for f in (two, negated, in_tuple):
        compare([(f, pair) for pair in pairs], dynamic)


@pytest.mark.parametrize("dynamic", [None, True])
def test_of_other_places(dynamic: bool | None) -> None:
    def fresh() -> int:
        return int("12345")

    one = fresh()
    holder = Holder()
    holder.value = one
    compare(
        [
            (of_global, (NUMBER,)),
            (of_global, (fresh(),)),
            (of_text, (TEXT,)),
            (of_text, ("".join(["some", "_text"]),)),
            (of_default, (NUMBER,)),
            (of_default, (fresh(),)),
            (of_default, (one, one)),
            (of_attribute, (holder, one)),
            (of_attribute, (holder, fresh())),
            (of_items, ((one, one),)),
            (of_items, ((one, fresh()),)),
            (in_list, ([one, one, fresh()],)),
            (in_list, ([one, fresh(), fresh()],)),
            (of_itself, (one,)),
            (of_itself, (fresh(),)),
            (of_computed, (one,)),
        ],
        dynamic,
    )
