"""Is a call one that the exported program is for? Each error names the input."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from framejit.export._constraints import Fact, Symbol, holds
from framejit.export._inputs import keyword_order
from framejit.export._objects import Objects, check_leaf
from framejit.export._values import Number, TensorValue, ValueRange

__all__ = ["InputChecks", "InputError", "Own", "share_memory"]


class InputError(ValueError):
    """A call that an exported program is not for."""


@dataclasses.dataclass
class InputChecks:
    """What is known of the inputs of a program.

    spec: their structure. names: of the leaves. values: a `TensorValue` or `Number`
    each, or the constant that it is. symbols, facts, ranges: what sizes may be.
    """

    spec: pytree.TreeSpec
    names: list[str]
    values: list[Any]
    symbols: list[Symbol]
    facts: list[Fact]
    ranges: dict[str, ValueRange]
    written: list[int] = dataclasses.field(default_factory=list)
    objects: Objects = Objects()

    def flatten(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> list[Any]:
        """The leaves of a call, checked; tensors laid out as those of the example.

        Raises InputError: structure, type or size is another.
        """
        ordered = keyword_order(kwargs, self.spec)
        leaves, spec = pytree.tree_flatten(
            (args, kwargs if ordered is None else ordered)
        )
        if ordered is None or spec != self.spec:
            raise InputError(
                "the inputs of the exported program have another structure:\n"
                f"  expected {self.spec}\n  got {spec}"
            )
        if (wrong := self.objects.wrong(self.names, leaves, kwargs)) is not None:
            raise InputError(wrong)
        self.check(leaves)
        return [
            self.laid_out(i, leaf) if isinstance(leaf, torch.Tensor) else leaf
            for i, leaf in enumerate(leaves)
        ]

    def check(self, leaves: list[Any]) -> None:
        for name, leaf, value in zip(self.names, leaves, self.values, strict=True):
            if isinstance(value, TensorValue):
                self._check_tensor(name, leaf, value)
            elif isinstance(value, Number):
                if type(leaf) is not int:
                    raise InputError(f"{name}: expected an int, got {_kind(leaf)}")
            elif type(leaf) is not type(value) or not _same(leaf, value):
                raise InputError(
                    f"{name}: the program was exported for {value!r}, got {leaf!r}"
                )
        symbols = {s.name: _read(leaves[s.leaf], s) for s in self.symbols}
        for symbol in self.symbols:
            found, span = symbols[symbol.name], self.ranges[symbol.name]
            if found not in span:
                raise InputError(f"{symbol.what} is {found}: expected {_span(span)}")
        for name, leaf, value in zip(self.names, leaves, self.values, strict=True):
            if not isinstance(value, TensorValue):
                continue
            for dim, size in enumerate(value.shape):
                expected = size if isinstance(size, int) else size.evaluate(symbols)
                if leaf.size(dim) != expected:
                    why = f" ({size})" if isinstance(size, Number) else ""
                    raise InputError(
                        f"{name}.shape[{dim}] is {leaf.size(dim)}: expected "
                        f"{expected}{why}"
                    )
        for fact in self.facts:
            if not holds(fact.text, symbols):
                words = fact.text
                for symbol in reversed(self.symbols):
                    words = words.replace(symbol.name, symbol.what)
                raise InputError(f"{words} is not true{fact.why}")
        self._check_written(leaves)

    def _check_tensor(self, name: str, leaf: Any, value: TensorValue) -> None:
        if not isinstance(leaf, torch.Tensor):
            raise InputError(f"{name}: expected a tensor, got {_kind(leaf)}")
        if (wrong := check_leaf(name, leaf)) is not None:
            raise InputError(wrong)
        if leaf.layout is not torch.strided:
            raise InputError(f"{name}: expected a strided tensor, got {leaf.layout}")
        for what in ("dtype", "device"):
            found, expected = getattr(leaf, what), getattr(value, what)
            if found != expected:
                raise InputError(f"{name}.{what} is {found}: expected {expected}")
        if leaf.dim() != value.dim():
            raise InputError(
                f"{name} has {leaf.dim()} dims, shape {list(leaf.shape)}: "
                f"expected {value.dim()}"
            )

    def _check_written(self, leaves: list[Any]) -> None:
        """What the program writes to shares its memory with no other input."""
        for number in self.written:
            for other, leaf in enumerate(leaves):
                if (
                    other != number
                    and isinstance(leaf, torch.Tensor)
                    and share_memory(leaves[number], leaf)
                ):
                    raise InputError(
                        f"{self.names[number]} is written to and shares its memory "
                        f"with {self.names[other]}"
                    )

    def check_own(self, leaves: list[Any], own: list[Own]) -> None:
        """Inputs share no memory with tensors of the program, where either is written
        to. Raises InputError."""
        writes = any(tensor.is_written for tensor in own)
        if not self.written and not writes:
            return
        for number, leaf in enumerate(leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            is_written = number in self.written
            for path, tensor, own_is_written in own:
                if (is_written or own_is_written) and share_memory(leaf, tensor):
                    what = self.names[number] if is_written else path
                    raise InputError(
                        f"{self.names[number]} shares its memory with {path} of the "
                        f"program, and {what} is written to: pass a clone"
                    )

    def laid_out(self, number: int, leaf: torch.Tensor) -> torch.Tensor:
        """The tensor, or a copy with the strides that the program was exported for."""
        value = self.values[number]
        wanted = self._wanted(leaf, value)
        if wanted is None:
            return leaf
        if number in self.written:
            raise InputError(
                f"{self.names[number]} is written to, and has strides "
                f"{list(leaf.stride())}: expected {wanted}"
            )
        made = torch.empty_strided(
            leaf.shape, wanted, dtype=leaf.dtype, device=leaf.device
        )
        return made.copy_(leaf)

    def _wanted(self, leaf: torch.Tensor, value: TensorValue) -> list[int] | None:
        """None: it lies as it should."""
        found = leaf.stride()
        if found == value.strides:
            return None
        sizes = {
            symbol.name: leaf.size(symbol.dim)
            for symbol in self.symbols
            if symbol.kind == "size" and self.values[symbol.leaf] is value
        }
        wanted = []
        for stride, has, size in zip(value.strides, found, leaf.shape, strict=True):
            if isinstance(stride, Number):
                if not stride.symbols <= sizes.keys():
                    return None  # a stride of its own, which the program reads
                stride = stride.evaluate(sizes)
            wanted.append(has if size == 1 else stride)
        return None if tuple(wanted) == found or leaf.numel() == 0 else wanted


class Own(NamedTuple):
    """A tensor of the program's, and whether the program writes to it."""

    path: str
    tensor: torch.Tensor
    is_written: bool


def share_memory(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Do the storages of two tensors overlap?"""
    if one.device != other.device:
        return False
    a, b = one.untyped_storage(), other.untyped_storage()
    first, second = a.data_ptr(), b.data_ptr()
    if not first or not second:
        return False
    return first < second + b.nbytes() and second < first + a.nbytes()


def _kind(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"[:80]


def _same(leaf: Any, value: Any) -> bool:
    """As numbers, with the signs of zeros; all NaNs are one."""
    if isinstance(value, complex):
        return _same(leaf.real, value.real) and _same(leaf.imag, value.imag)
    if isinstance(value, float) and leaf == value:
        return math.copysign(1.0, leaf) == math.copysign(1.0, value)
    return bool(leaf == value) or leaf != leaf and value != value


def _read(leaf: Any, symbol: Symbol) -> int:
    if symbol.kind == "size":
        return int(leaf.size(symbol.dim))
    if symbol.kind == "stride":
        return int(leaf.stride(symbol.dim))
    if symbol.kind == "offset":
        return int(leaf.storage_offset())
    return int(leaf)


def _span(span: ValueRange) -> str:
    if span.upper is None:
        return f"{span.lower} or more"
    if span.lower == span.upper:
        return str(span.lower)
    return f"{span.lower} to {span.upper}"
