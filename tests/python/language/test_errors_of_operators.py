"""What an operator says to operands that it does not take, in place or not.

All binary operators, with each pair of kinds of operands; the text is compared,
for a program may print it.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch

import framejit

SYMBOLS = ["+", "&", "//", "<<", "@", "*", "%", "|", "**", ">>", "-", "/", "^"]
VALUES: dict[str, Any] = {
    "int": 3,
    "negative": -1,
    "float": 2.5,
    "bool": True,
    "complex": 1j,
    "str": "a",
    "bytes": b"a",
    "bytearray": bytearray(b"x"),
    "None": None,
    "list": [1],
    "tuple": (1,),
    "dict": {1: 2},
    "set": {1},
    "type": int,
    "range": range(3),
    "slice": slice(1),
    "size": torch.Size([2]),
    "dtype": torch.float32,
    "tensor": torch.ones(2),
}


def program(statement: str) -> Any:
    names: dict[str, Any] = {}
    lines = ["def f(x, a, b):", "    y = x + 1", "    try:", f"        {statement}"]
    lines += ["        r = a", "    except Exception as e:"]
    lines += ["        r = (type(e).__name__, str(e))", "    return y * 2, r", ""]
    exec(compile("\n".join(lines), "<operator>", "exec"), names)
    return names["f"]


def outcome(f: Any, a: Any, b: Any) -> str:
    try:
        return repr(f(torch.ones(2), copy.deepcopy(a), copy.deepcopy(b)))
    except Exception as error:
        return f"raised {error!r}"


@pytest.mark.parametrize("statement", ["a = a {} b", "a {}= b"])
@pytest.mark.parametrize("symbol", SYMBOLS)
def test_operands_of_all_kinds(symbol: str, statement: str) -> None:
    f = program(statement.format(symbol))
    different = []
    for left, a in VALUES.items():
        for right, b in VALUES.items():
            numbers = {left, right} <= {"int", "negative", "bool", "float", "complex"}
            for dynamic in (None, True) if numbers else (None,):
                framejit.reset()
                compiled = framejit.compile(f, backend="eager", dynamic=dynamic)
                expected, actual = outcome(f, a, b), outcome(compiled, a, b)
                if expected != actual:
                    different.append((left, right, dynamic, expected, actual))
    assert not different
