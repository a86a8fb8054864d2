"""Python's numbers beneath a function mode of the program.

A mode sees calls of torch and nothing of what is done to numbers, symbolic or
not: they are plain integers and floats to the program.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import framejit

Op = Callable[[int], Any]


class Names(TorchFunctionMode):
    def __init__(self) -> None:
        self.names: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", "?"))
        return func(*args, **(kwargs or {}))


class Doubling(TorchFunctionMode):
    """Whose answers are other ones."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if isinstance(out, (int, float, torch.Tensor)) else out


OPERATIONS: dict[str, Op] = {
    "times a float": lambda a: a * 1.0,
    "times a negative": lambda a: a * -0.25,
    "float": lambda a: float(a),
    "quotient": lambda a: a / 2,
    "floor quotient": lambda a: (a // 2, a * 0.5 // 1, a % 3, a * 0.5 % 2),
    "equal": lambda a: (a * 1.0 == a * -0.25, a == 3.0, [a] == [3.0]),
    "compared": lambda a: (a < 2.5, a >= 3.0, a * 0.5 > 1, 1.5 < a * 0.5),
    "max": lambda a: max(0.5, a * 1.0),
    "min of mixed": lambda a: min([a * 0.5, a]),
    "sum of mixed": lambda a: sum([a * 0.5, a]),
    "sorted": lambda a: sorted([a, a * 0.5, 2]),
    "negated": lambda a: (-a, -(a * 0.5), abs(-a * 0.5)),
    "round": lambda a: (round(a * 0.5, 1), round(a * 0.5)),
    "int": lambda a: int(a * 0.5),
    "bool": lambda a: (bool(a * 0.5), not a),
    "powers": lambda a: (a**2, 2**a, (a * 0.5) ** 2, pow(a, 2, 5)),
    "in": lambda a: (a in (1, 2), a * 0.5 in (1.0, 1.5)),
    "text": lambda a: f"{a * 0.5:.2f} {a}",
    "method": lambda a: (a.__mul__(2), (a * 0.5).is_integer()),
    "operator": lambda a: operator.mul(a, 0.5),
    "reduce": lambda a: functools.reduce(operator.mul, [a, 0.5, a]),
    "hypot": lambda a: math.hypot(a, a * 0.5),
    "isclose": lambda a: math.isclose(a * 1.0, 3.0),
    "fsum": lambda a: math.fsum([a * 0.5, a]),
    "a factor": lambda a: torch.ones(2) * (a * 0.5),
    "alpha": lambda a: torch.ones(2).add(2, alpha=a * 0.5),
    "filled": lambda a: torch.full((a,), a * 0.5),
    "sym_float": lambda a: torch.sym_float(a),
    "sym_max": lambda a: torch.sym_max(a, 3),
}
for _name in ("floor", "ceil", "trunc", "sqrt", "exp", "sin", "log2", "fabs", "modf"):
    OPERATIONS[_name] = lambda a, g=getattr(math, _name): (g(a), g(a * 0.25))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("kind", ["names", "doubling", "device"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_numbers_in_a_mode(name: str, kind: str, dynamic: bool | None) -> None:
    operation = OPERATIONS[name]
    modes: dict[str, Callable[[], Any]] = {
        "names": Names,
        "doubling": Doubling,
        "device": lambda: torch.device("cpu"),
    }
    mode = modes[kind]

    def f(x: torch.Tensor, a: int) -> Any:
        with mode() as entered:
            r = operation(a)
            y = x + 1
        return y, r, getattr(entered, "names", None)

    framejit.reset()
    compiled = framejit.compile(f, backend="eager", dynamic=dynamic)
    for a in (3, 5, 6, 2):
        expected, actual = f(torch.ones(2), a), compiled(torch.ones(2), a)
        assert repr(actual) == repr(expected)
