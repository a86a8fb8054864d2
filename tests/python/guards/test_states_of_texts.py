"""What C code writes of a number may be for a state to say that no guard covers."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

import framejit

THIRD = np.float64(1) / 3
LARGE = 10**800

TEXTS = {
    "repr": repr,
    "str": str,
    "f": lambda v: f"{v}",
    "f repr": lambda v: f"{v!r}",
    "f ascii": lambda v: f"{v!a}",
    "format": lambda v: format(v),
    "percent": lambda v: "%s" % (v,),  # noqa: UP031
    "percent repr": lambda v: "%r" % (v,),  # noqa: UP031
    "method": lambda v: "{}".format(v),  # noqa: UP032
    "in a list": lambda v: str([v]),
    "in a dict": lambda v: repr({"a": v}),
    "in a tuple": lambda v: f"{(v, 1)}",
    "length": lambda v: len(str(v)),
}


@contextlib.contextmanager
def few_digits() -> Iterator[None]:
    before = sys.get_int_max_str_digits()
    sys.set_int_max_str_digits(640)
    try:
        yield
    finally:
        sys.set_int_max_str_digits(before)


CASES = [
    (THIRD, lambda: np.printoptions(legacy="1.25")),
    (np.float32(1) / 3, lambda: np.printoptions(legacy="1.13")),
    (np.int64(3), lambda: np.printoptions(legacy="1.25")),
    (LARGE, few_digits),
    (-LARGE, few_digits),
]


def outcome(fn: Any, *args: Any) -> Any:
    try:
        return fn(torch.ones(1), *args)[1]
    except ValueError as error:
        return type(error)


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("case", range(len(CASES)))
@pytest.mark.parametrize("argument", [False, True])
def test_the_state_changes(name: str, case: int, argument: bool) -> None:
    value, other = CASES[case]
    text: Any = TEXTS[name]

    def of_constant(x: Any) -> Any:
        return x + 1, text(value)

    def of_argument(x: Any, v: Any) -> Any:
        return x + 1, text(v)

    fn: Any = of_argument if argument else of_constant
    args = (value,) if argument else ()
    for first in (contextlib.nullcontext, other):
        framejit.reset()
        compiled = framejit.compile(fn)
        second = other if first is contextlib.nullcontext else contextlib.nullcontext
        for state in (first, first, second, first):
            with state():
                expected = outcome(fn, *args)
                assert outcome(compiled, *args) == expected
