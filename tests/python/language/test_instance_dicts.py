"""An object made in a capture and its `__dict__`, held side by side, are two ways
to one place: behind a break, in the result, and in what the program holds."""

from __future__ import annotations

import collections
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit
from differential import opaque


class Box:
    def __init__(self, n: Any) -> None:
        self.n = n


class Table(dict[str, int]):
    pass


class Failure(Exception):
    pass


def boxed(n: int) -> Any:
    return Box(n)


def table(n: int) -> Any:
    made = Table(a=1)
    made.n = n  # type: ignore[attr-defined]
    return made


def ordered(n: int) -> Any:
    made = collections.OrderedDict(a=1)
    made.n = n  # type: ignore[attr-defined]
    return made


def failure(n: int) -> Any:
    made = Failure(1)
    made.n = n  # type: ignore[attr-defined]
    return made


def namespace(n: int) -> Any:
    return types.SimpleNamespace(n=n)


def function(n: int) -> Any:
    def made() -> None:
        pass

    made.n = n  # type: ignore[attr-defined]
    return made


MAKERS = [boxed, table, ordered, failure, namespace, function]
SHARED: dict[str, Any] = {}


def written_as_a_dict(x, make):
    made = make(3)
    held = made.__dict__
    opaque()
    held["n"] = 5
    del held
    return x + made.n, vars(made)


def written_as_an_object(x, make):
    held = made = make(3)
    held = vars(made)
    opaque()
    made.n = 5
    made.new = 1
    return x + held["n"], held


def dict_met_first(x, make):
    a = b = make(3)
    a = vars(b)
    opaque()
    a["n"] = 6
    return x + b.n, a, a is vars(b)


def dict_met_last(x, make):
    a = b = make(3)
    b = vars(a)
    opaque()
    b["n"] = 6
    return x + a.n, b, b is vars(a)


def both_returned(x, make):
    made = make(3)
    return x + 1, [vars(made), made], {"a": made, "b": vars(made)}


def holds_its_own(x, make):
    made = make(3)
    made.own = vars(made)
    opaque()
    made.n = 7
    return x + made.own["n"], made.own is vars(made)


def hold_each_others(x, make):
    a, b = make(3), make(4)
    a.other, b.other = vars(b), vars(a)
    opaque()
    a.other["n"], b.other["n"] = 8, 9
    return x + a.n * b.n, a.other is vars(b), b.other is vars(a)


def by_a_method(x, make):
    made = make(3)
    update = vars(made).update
    opaque()
    update(n=4)
    return x + made.n


def by_a_view(x, make):
    made = make(3)
    items = vars(made).items()
    opaque()
    made.n = 4
    return x + dict(items)["n"]


def by_an_iterator(x, make):
    made = make(3)
    rest = iter(vars(made).values())
    opaque()
    made.n = 4
    return x + next(rest)


def by_its_own_iterator(x, make):
    made = make(3)
    made.rest = None
    made.rest = iter(vars(made))
    first = next(made.rest)
    opaque()
    return x + made.n, first, list(made.rest)


def one_dict_of_two(x, make):
    a, b = make(3), make(4)
    b.__dict__ = vars(a)
    opaque()
    b.n = 9
    return x + a.n, vars(a) is vars(b), a, b


def a_dict_put_in(x, make):
    made, held = make(3), {"n": 1}
    made.__dict__ = held
    opaque()
    held["n"] = 9
    return x + made.n, vars(made) is held, made, held


def a_dict_of_the_program_put_in(x, make):
    made = make(3)
    made.__dict__ = SHARED
    opaque()
    made.n = 9
    return x + SHARED["n"], vars(made) is SHARED, made


def put_into_the_programs(x, make):
    made = make(3)
    SHARED["made"] = made
    SHARED["held"] = vars(made)
    return x + 1


PROGRAMS = [
    written_as_a_dict,
    written_as_an_object,
    dict_met_first,
    dict_met_last,
    both_returned,
    holds_its_own,
    hold_each_others,
    by_a_method,
    by_a_view,
    by_an_iterator,
    by_its_own_iterator,
    one_dict_of_two,
    a_dict_put_in,
    a_dict_of_the_program_put_in,
    put_into_the_programs,
]


def picture(value: Any, seen: dict[int, int]) -> Any:
    """What is in it, and which places are one object: its number."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (int, str, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [picture(v, seen) for v in value]
    if not isinstance(value, dict) and not hasattr(value, "__dict__"):
        return list(value) if hasattr(value, "__next__") else type(value).__name__
    known = id(value) in seen
    number = seen.setdefault(id(value), len(seen))
    if known:
        return number
    held = dict(value) if isinstance(value, dict) else {}
    found = [number, type(value).__name__]
    found += [[k, picture(v, seen)] for k, v in held.items()]
    return found + ([picture(vars(value), seen)] if hasattr(value, "__dict__") else [])


def run(fn: Callable[..., Any], make: Callable[[int], Any], x: torch.Tensor) -> Any:
    SHARED.clear()
    SHARED["n"] = 0
    try:
        result = fn(x, make)
    except AttributeError as error:  # a namespace keeps its dict
        result = str(error)
    return picture([result, SHARED], {})


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_an_object_and_its_dict_are_one_place(program, make):
    compiled = framejit.compile(program, backend="eager")
    for turn in range(3):
        x = torch.full((2,), float(turn))
        assert run(compiled, make, x) == run(program, make, x), turn
    assert framejit.counters()["failures"] == 0


def test_it_costs_no_break():
    for program in (written_as_a_dict, dict_met_first, both_returned):
        compiled = framejit.compile(program, backend="eager")
        run(compiled, boxed, torch.ones(2))
        entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
        breaks = [b.detail for e in entries for b in e.breaks]
        assert entries and all("opaque" in detail for detail in breaks)
