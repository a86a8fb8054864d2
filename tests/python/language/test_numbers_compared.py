"""Numbers that become symbolic, compared with every kind of object.

Enum members, NumPy's scalars, decimals, subclasses of int and complex numbers are
equal to some of them.
"""

from __future__ import annotations

import enum
import operator
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch

import framejit


class Dims(enum.IntEnum):
    ROW = 3
    COLUMN = 4


class Flags(enum.IntFlag):
    FIRST = 1
    THIRD = 4


class Int(int):
    pass


class Float(float):
    pass


class Four:
    def __eq__(self, other: object) -> bool:
        return other == 4

    __hash__ = None  # type: ignore[assignment]


OTHERS: dict[str, Any] = {
    "int64": np.int64(4),
    "int32": np.int32(4),
    "uint8": np.uint8(3),
    "float64": np.float64(4),
    "float32": np.float32(4),
    "bool_": np.bool_(True),
    "0-dim array": np.array(4),
    "complex": 4 + 0j,
    "complex with a part": 4 + 1j,
    "decimal": Decimal(4),
    "fraction": Fraction(4),
    "enum member": Dims.COLUMN,
    "flag": Flags.THIRD,
    "own int": Int(4),
    "own float": Float(4.0),
    "python __eq__": Four(),
    "bool": True,
    "large": 10**30,
    "nan": float("nan"),
    "str": "4",
    "bytes": b"4",
    "bytearray": bytearray(b"a"),
    "None": None,
    "tuple": (4,),
    "list": [4],
    "set": {4},
    "range": range(4),
    "size": torch.Size([4]),
    "type": int,
    "dtype": torch.float32,
    "ellipsis": ...,
}

OPERATIONS: dict[str, Callable[[Any, Any], Any]] = {
    "==": lambda a, b: (a == b, b == a, operator.eq(a, b)),
    "!=": lambda a, b: (a != b, b != a),
    "of floats": lambda a, b: (a * 1.0 == b, a / 2 * 2 == b),
    "in": lambda a, b: (a in (b,), a in [1, b], b in (a,)),
    "sequences": lambda a, b: ((a, 1) == (b, 1), [a] == [b]),
    "count": lambda a, b: [a, b].count(a),
    "a branch": lambda a, b: 1 if a == b else 2,
    "an index": lambda a, b: [1, 2][bool(a == b)],
    "keys": lambda a, b: ({b: 5}.get(a), {a: 1} == {b: 1}),
    "sets": lambda a, b: ({a} == {b}, len({a, b})),
    "order": lambda a, b: (a < b, b <= a),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("of_size", [False, True])
@pytest.mark.parametrize("other", OTHERS)
def test_comparisons(other: str, of_size: bool, dynamic: bool | None) -> None:
    for name, operation in OPERATIONS.items():

        def f(x, a, b, operation=operation):
            try:
                found = operation(x.size(0) if of_size else a, b)
            except Exception as error:
                found = type(error), str(error)
            return x * 2, found

        framejit.reset()
        compiled = framejit.compile(f, backend="eager", dynamic=dynamic)
        for n in (2, 3, 4, 5, 1):
            x = torch.ones(n, 2)
            expected, actual = f(x, n, OTHERS[other]), compiled(x, n, OTHERS[other])
            assert repr(actual[1]) == repr(expected[1]), (name, n)


def test_match_of_enum_members() -> None:
    def f(x):
        match x.size(0):
            case Dims.ROW:
                return x * 3
            case Dims.COLUMN:
                return x * 4
        return x

    compiled = framejit.compile(f)
    for n in (2, 3, 4, 3, 7):
        torch.testing.assert_close(compiled(torch.ones(n)), f(torch.ones(n)))
