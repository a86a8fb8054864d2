"""`Dim`: which sizes of the inputs of an exported program may change, and how."""

from __future__ import annotations

import enum
import re
from typing import Any

from framejit.errors import ConstraintViolationError

__all__ = ["Dim", "DimHint", "as_dim", "dims"]


class _HintKind(enum.Enum):
    AUTO = 1
    STATIC = 2
    DYNAMIC = 3


class DimHint:
    """A size without a name. `Dim.AUTO`: it may change if the program lets it;
    `Dim.DYNAMIC`: it changes, or the export is an error; `Dim.STATIC`: it is what it
    is now. ``Dim.AUTO(min=2, max=64)`` is one with bounds."""

    def __init__(
        self, kind: _HintKind, min: int | None = None, max: int | None = None
    ) -> None:
        self.kind = kind
        self.min = min
        self.max = max

    def __call__(self, min: int | None = None, max: int | None = None) -> DimHint:
        for bound in (min, max):
            if bound is not None and bound < 0:
                raise ValueError(f"Dim.{self.kind.name}: a bound of {bound}")
        if min is not None and max is not None and min > max:
            raise ValueError(f"Dim.{self.kind.name}: min {min} is above max {max}")
        return DimHint(self.kind, min, max)

    def __repr__(self) -> str:
        bounds = [
            f"{name}={bound}"
            for name, bound in (("min", self.min), ("max", self.max))
            if bound is not None
        ]
        return f"Dim.{self.kind.name}" + (f"({', '.join(bounds)})" if bounds else "")


class Dim:
    """A size with a name. All sizes of one `Dim` are equal in every call, and those of
    ``2 * dim + 1`` follow from it.

    name: an identifier.
    min, max: what it may be, bounds included.

    Raises:
        ValueError: no identifier, or no number lies between the bounds.
    """

    AUTO = DimHint(_HintKind.AUTO)
    STATIC = DimHint(_HintKind.STATIC)
    DYNAMIC = DimHint(_HintKind.DYNAMIC)

    def __init__(
        self, name: str, *, min: int | None = None, max: int | None = None
    ) -> None:
        if not name.isidentifier():
            raise ValueError(f"Dim: {name!r} is not an identifier")
        if max is not None and max <= (min or 0):
            raise ValueError(f"Dim {name!r}: no size lies between {min} and {max}")
        self.__name__ = name
        self.root = self
        self.scale = 1
        self.offset = 0
        self._min = min
        self._max = max

    def _derived(self, scale: int, offset: int) -> Dim:
        made = Dim.__new__(Dim)
        name = self.root.__name__ if scale == 1 else f"{scale}*{self.root.__name__}"
        if offset:
            name += f" {'+' if offset > 0 else '-'} {abs(offset)}"
        made.__name__ = name
        made.root, made.scale, made.offset = self.root, scale, offset
        made._min = made._max = None
        return made if (scale, offset) != (1, 0) else self.root

    @property
    def is_derived(self) -> bool:
        return self.root is not self

    @property
    def has_no_min(self) -> bool:
        return self.root._min is None

    @property
    def min(self) -> int:
        return self.at(self.root._min or 0)

    @property
    def max(self) -> int | None:
        return None if self.root._max is None else self.at(self.root._max)

    def at(self, root: int) -> int:
        """Its size where that of its root is `root`."""
        return self.scale * root + self.offset

    def __add__(self, other: int) -> Dim:
        if type(other) is not int:
            raise TypeError(f"{self.__name__} + {other!r}: sizes are linear, in ints")
        return self._derived(self.scale, self.offset + other)

    __radd__ = __add__

    def __sub__(self, other: int) -> Dim:
        return self + -other

    def __mul__(self, other: int) -> Dim:
        if type(other) is not int or other <= 0:
            raise TypeError(
                f"{self.__name__} * {other!r}: sizes are linear and increase with "
                "their root, so the factor is an int above 0"
            )
        return self._derived(self.scale * other, self.offset * other)

    __rmul__ = __mul__

    def __repr__(self) -> str:
        if self.is_derived:
            return self.__name__
        bounds = [
            f", {name}={bound}"
            for name, bound in (("min", self._min), ("max", self._max))
            if bound is not None
        ]
        return f"Dim('{self.__name__}'{''.join(bounds)})"


def dims(
    *names: str, min: int | None = None, max: int | None = None
) -> tuple[Dim, ...]:
    """A `Dim` for each name."""
    return tuple(Dim(name, min=min, max=max) for name in names)


def as_dim(value: Any, known: dict[str, Dim], where: str) -> Dim | DimHint | int:
    """What a dimension is said to be: one of ours, or one of ``torch.export``'s.

    known: the roots so far by name, for those of torch.
    Raises ConstraintViolationError: it is none of these.
    """
    if value is None:
        return Dim.STATIC
    if isinstance(value, (Dim, DimHint)) or type(value) is int:
        return value
    kind = getattr(getattr(value, "type", None), "name", None)
    if isinstance(kind, str) and kind in _HintKind.__members__:
        return DimHint(_HintKind[kind], value.min, value.max)
    if type(value).__module__.startswith("torch.export"):
        root = getattr(value, "root", value)
        if (made := known.get(root.__name__)) is None:
            bound = root.max if isinstance(root.max, int) else None
            made = Dim(root.__name__, min=root.min or None, max=bound)
            known[root.__name__] = made
        if root is value:
            return made
        offset = int(value.fn(0))
        return made * (int(value.fn(1)) - offset) + offset
    raise ConstraintViolationError(
        f"dynamic_shapes{where}: expected a Dim, a hint such as Dim.AUTO, an int or "
        f"None, got {type(value).__name__}"
    )


_TERM = re.compile(r"(?:(\d+)\*)?([A-Za-z_]\w*)(?:\s*([+-])\s*(\d+))?\Z")


def parse_dim(text: str, roots: dict[str, Dim]) -> Dim | int:
    """``4``, ``dx``, ``2*dx + 1``, by the roots of these names.

    Raises ValueError: it is none of these.
    """
    text = text.strip()
    if text.isdigit():
        return int(text)
    found = _TERM.match(text)
    if found is None:
        raise ValueError(f"no size: {text}")
    scale, name, sign, offset = found.groups()
    root = roots.setdefault(name, Dim(name)) if name not in roots else roots[name]
    made = root * int(scale) if scale else root
    return made + int(offset) * (1 if sign == "+" else -1) if sign else made
