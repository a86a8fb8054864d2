"""What is known of a node's value without running it: ``node.meta["val"]``.

A size or number that differs from call to call is a `Number`, an expression over the
symbols of the program (``s0*4+1``) in the syntax of Python.
"""

from __future__ import annotations

import ast
import functools
import math
import re
import struct
import types
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch

__all__ = ["Number", "TensorValue", "ValueRange", "value_of"]


def _same(a: float, b: float) -> bool:
    return struct.pack("d", a) == struct.pack("d", b)


# What expressions call. `defined(x)`: x has a value, or evaluating it raises.
FUNCTIONS: dict[str, Any] = {
    **{name: getattr(math, name) for name in ("sqrt", "exp", "expm1", "log", "log1p")},
    **{name: getattr(math, name) for name in ("log2", "log10", "sin", "cos", "tan")},
    **{name: getattr(math, name) for name in ("asin", "acos", "atan", "sinh", "cosh")},
    **{name: getattr(math, name) for name in ("tanh", "atan2", "fmod", "copysign")},
    **{"min": min, "max": max, "float": float, "abs": abs, "pow": pow},
    **{"round": round, "same": _same, "defined": lambda _: True},
    **{"inf": math.inf, "nan": math.nan},
}
_HEX_FLOAT = re.compile(r"-?0x[0-9a-f]+(?:\.[0-9a-f]*)?p[+-]?\d+")


def without_hex_floats(text: str) -> str:
    """With decimal ones, which Python has."""
    return _HEX_FLOAT.sub(lambda found: repr(float.fromhex(found.group())), text)


@functools.lru_cache(maxsize=4096)
def _compiled(text: str) -> tuple[types.CodeType, frozenset[str]]:
    tree = ast.parse(without_hex_floats(text), "<size>", "eval")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    return compile(tree, "<size>", "eval"), frozenset(names - FUNCTIONS.keys())


class Number:
    """An expression over symbols. Equal texts are equal.

    text: in Python's syntax, over names of symbols, ``min``, ``max`` and functions of
        floats.
    hint: its value for the example inputs.
    """

    __slots__ = ("hint", "text")

    def __init__(self, text: str, hint: int | None = None) -> None:
        self.text = text
        self.hint = hint

    @property
    def symbols(self) -> frozenset[str]:
        """The names of the symbols in it."""
        return _compiled(self.text)[1]

    def evaluate(self, symbols: Mapping[str, int]) -> Any:
        """Its value where the symbols have these. NameError: one has none."""
        scope = {"__builtins__": {}, **FUNCTIONS}
        return eval(_compiled(self.text)[0], scope, dict(symbols))

    @property
    def is_of_ints(self) -> bool:
        """Is there no float in it, nor a function but min and max?"""
        tree = ast.parse(without_hex_floats(self.text), mode="eval")
        return not any(
            isinstance(node, ast.Constant)
            and isinstance(node.value, float)
            or isinstance(node, ast.Name)
            and node.id in FUNCTIONS
            and node.id not in ("min", "max")
            or isinstance(node, ast.Div)
            for node in ast.walk(tree)
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Number) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text

    __repr__ = __str__


class ValueRange(NamedTuple):
    """From ``lower`` to ``upper``, both in it; ``upper`` None: there is no bound."""

    lower: int
    upper: int | None

    def __contains__(self, value: object) -> bool:
        return (
            isinstance(value, int)
            and self.lower <= value
            and (self.upper is None or value <= self.upper)
        )

    def __str__(self) -> str:
        return f"[{self.lower}, {'inf' if self.upper is None else self.upper}]"


_SHORT = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "b8",
    torch.complex64: "c64",
    torch.complex128: "c128",
}


class TensorValue(NamedTuple):
    """A tensor without its elements. Sizes and strides are ints or `Number`s."""

    dtype: torch.dtype
    shape: tuple[int | Number, ...]
    strides: tuple[int | Number, ...]
    storage_offset: int | Number
    device: torch.device
    requires_grad: bool

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[dim]

    def stride(self, dim: int | None = None) -> Any:
        return self.strides if dim is None else self.strides[dim]

    def dim(self) -> int:
        return len(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{_SHORT.get(self.dtype, str(self.dtype))}{list(self.shape)}"

    @staticmethod
    def of(tensor: torch.Tensor) -> TensorValue:
        return TensorValue(
            tensor.dtype,
            tuple(tensor.shape),
            tensor.stride(),
            int(tensor.storage_offset()),
            tensor.device,
            tensor.requires_grad,
        )


def value_of(described: Any, hints: Mapping[str, int]) -> Any:
    """What `_C.ExportCapture` says of a value: a tuple of a tensor, an int or the text
    of an expression of a number, None of anything else."""

    def number(item: Any) -> Any:
        if not isinstance(item, str):
            return item
        made = Number(item)
        made.hint = made.evaluate(hints)
        return made

    if not isinstance(described, tuple):
        return number(described)
    dtype, sizes, strides, offset, device, requires_grad = described
    return TensorValue(
        dtype,
        tuple(map(number, sizes)),
        tuple(map(number, strides)),
        number(offset),
        device,
        requires_grad,
    )
