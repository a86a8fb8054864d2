"""What a capture needs of the sizes, beside what the user said they may be.

The guards of the capture are the source: each comparison of sizes that the program, or
an operator, decided. All of them are checked in every call of the exported program.
Here it is found out whether the sizes that the user allows can break one: then the
export is an error, which names the line and what ``dynamic_shapes`` should be.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from framejit.errors import ConstraintViolationError
from framejit.export._dims import Dim, DimHint
from framejit.export._values import Number, ValueRange

__all__ = ["Fact", "Findings", "Symbol", "find_constraints"]

Place = tuple[str, int, str] | None


class Symbol(NamedTuple):
    """A number that is read off an input: the size, stride or offset of a tensor, or
    an int. ``leaf``: which one."""

    name: str
    kind: str
    leaf: int
    dim: int
    hint: int
    what: str  # in words: "x.shape[0]"


class Fact(NamedTuple):
    """A comparison that holds in every call, the line that made it and the operator."""

    text: str
    place: Place
    cause: str | None

    @property
    def why(self) -> str:
        by = f" by {self.cause}" if self.cause else ""
        return by + (" at {}:{} in {}".format(*self.place) if self.place else "")


class Findings(NamedTuple):
    ranges: dict[str, ValueRange]  # by symbol
    static: list[tuple[int, int]]  # (leaf, dim) of Dim.AUTO that are one number


# Sizes that a comparison is tried out on, beside those around the example's.
_LARGE = (60, 64, 97, 128, 255, 256, 1000, 1024, 4096, 65537, 1_000_003, 2**31)
_BOUND = re.compile(r"(?:(\d+) <= s\d+|s\d+ <= (\d+)|s\d+ == (\d+))")


class _Shape(NamedTuple):
    """The values of one number for which a comparison holds."""

    lower: int
    upper: int | None
    step: int  # multiples of it alone

    @property
    def only(self) -> int | None:
        return self.lower if self.lower == self.upper else None


def holds(text: str, values: Mapping[str, int]) -> bool:
    """Is a comparison true? Where it has no value (a division by zero), it is not."""
    try:
        return bool(Number(text).evaluate(values))
    except (ArithmeticError, ValueError):
        return False


# Of sizes that have 0 and 1 apart: not what the program asked for.
_NOT_ONE = re.compile(r"2 <= .+|1 < .+|0 < .+|.+ != [01]")


def _shape_of(text: str, name: str, hint: int) -> _Shape | None:
    """Of values from 2 on. None: they are neither a range nor multiples."""
    if found := _BOUND.fullmatch(text):
        low, high, only = found.groups()
        if low:
            return _Shape(int(low), None, 1)
        return _Shape(2 if high else int(only), int(high or only), 1)
    tried = sorted({*range(2, 40), *(max(hint + d, 2) for d in range(-9, 10)), *_LARGE})
    good = [v for v in tried if holds(text, {name: v})]
    if not good:
        return None
    first, last = tried.index(good[0]), tried.index(good[-1])
    if good == tried[first : last + 1]:
        lower, upper = good[0], None
        if first:
            lower = _border(text, name, good[0], tried[first - 1])
        if last + 1 < len(tried):
            upper = _border(text, name, good[-1], tried[last + 1])
        return _Shape(lower, upper, 1)
    step = good[1] - good[0] if len(good) > 1 else 0
    if step and good == [v for v in tried if v >= good[0] and v % step == 0]:
        return _Shape(good[0], None, step)
    return None


def _border(text: str, name: str, good: int, bad: int) -> int:
    """The last number on the way from a good one to a bad one that is good."""
    while abs(good - bad) > 1:
        middle = (good + bad) // 2
        if holds(text, {name: middle}):
            good = middle
        else:
            bad = middle
    return good


def _linear(text: str, of: str, by: str, hint: int) -> tuple[int, int] | None:
    """(a, b) where the comparison says that ``of == a * by + b``."""
    pairs = []
    for value in (hint, hint + 1, hint + 2, hint + 7):
        found = [v for v in range(10 * value + 64) if holds(text, {by: value, of: v})]
        if len(found) != 1:
            return None
        pairs.append((value, found[0]))
    scale = pairs[1][1] - pairs[0][1]
    offset = pairs[0][1] - scale * pairs[0][0]
    fits = all(out == scale * value + offset for value, out in pairs)
    return (scale, offset) if fits and scale > 0 else None


class _Finder:
    def __init__(
        self,
        symbols: list[Symbol],
        facts: Iterable[Fact],
        said: Mapping[tuple[int, int], Dim | DimHint],
    ) -> None:
        self.symbols = {symbol.name: symbol for symbol in symbols}
        self.facts = list(facts)
        self.said = {
            s.name: said[s.leaf, s.dim]
            for s in symbols
            if s.kind in ("size", "value") and (s.leaf, s.dim) in said
        }
        self.ranges: dict[str, ValueRange] = {}
        self.static: list[tuple[int, int]] = []
        self.wrong: list[str] = []
        self.fixes: dict[str, str] = {}
        # Of the roots: what the program needs.
        self.needs: dict[str, _Shape] = {}
        self.roots: dict[str, Dim] = {}

    def root_hint(self, dim: Dim) -> int:
        for name, what in self.said.items():
            if isinstance(what, Dim) and what.root is dim.root:
                return (self.symbols[name].hint - what.offset) // what.scale
        return 2

    def values_of(self, root: Dim) -> list[int]:
        """Sizes that the user allows, to try: many from the least on, some large."""
        low = root.min
        for what in self.said.values():
            if isinstance(what, Dim) and what.root is root:
                while what.at(low) < 2:
                    low += 1
        high = root.max
        hint = self.root_hint(root)
        tried = {
            *range(low, low + 24),
            hint - 1,
            hint,
            hint + 1,
            97,
            1009,
            *_LARGE[-4:-1],
        }
        if high is not None:
            tried |= {high - 1, high}
        return sorted(v for v in tried if v >= low and (high is None or v <= high))

    def find(self) -> Findings:
        for symbol in self.symbols.values():
            self.start_range(symbol)
        for fact in self.facts:
            self.fact(fact)
        for root in self.roots.values():
            self.suggest(root)
        if self.wrong:
            fixes = [f"  {name} = {text}" for name, text in self.fixes.items()]
            text = "the program needs more than dynamic_shapes says:\n" + "\n".join(
                f"  - {line}" for line in dict.fromkeys(self.wrong)
            )
            if fixes:
                text += "\nSuggested fixes:\n" + "\n".join(fixes) + "\n"
            raise ConstraintViolationError(text)
        return Findings(self.ranges, self.static)

    def start_range(self, symbol: Symbol) -> None:
        what = self.said.get(symbol.name)
        low, high = (what.min or 0, what.max) if what is not None else (0, None)
        if symbol.kind == "size":
            low = max(low, 2)
        self.ranges[symbol.name] = ValueRange(low, high)

    def fact(self, fact: Fact) -> None:
        names = sorted(Number(fact.text).symbols)
        if any(name not in self.symbols for name in names) or not names:
            return
        if len(names) == 1 and self.of_one(fact, self.symbols[names[0]]):
            return
        whats = [self.said.get(name) for name in names]
        if not all(isinstance(what, Dim) for what in whats):
            return  # of what has no name, anything may be needed, and is checked
        dims = [what for what in whats if isinstance(what, Dim)]
        roots = list(dict.fromkeys(dim.root for dim in dims))
        # A size that is not said to be as small as that is not.
        unsaid = all(root.has_no_min for root in roots)
        if unsaid and _NOT_ONE.fullmatch(fact.text):
            return
        choices = [self.values_of(root) for root in roots]
        if len(roots) > 2:
            choices = [values[:5] for values in choices]
        for values in itertools.product(*choices):
            at = dict(zip(roots, values, strict=True))
            sizes = {
                name: dim.at(at[dim.root])
                for name, dim in zip(names, dims, strict=True)
            }
            if not holds(fact.text, sizes):
                return self.violated(fact, names, dims, sizes)

    def of_one(self, fact: Fact, symbol: Symbol) -> bool:
        """Takes a fact about one number; False: it is of another kind."""
        what = self.said.get(symbol.name)
        shape = _shape_of(fact.text, symbol.name, symbol.hint)
        if shape is None:
            return False
        known = self.ranges[symbol.name]
        high = known.upper
        if shape.upper is not None:
            high = shape.upper if high is None else min(high, shape.upper)
        merged = ValueRange(max(known.lower, shape.lower), high)
        self.ranges[symbol.name] = merged
        pinned = merged.lower == merged.upper
        if isinstance(what, DimHint):
            if pinned and what.kind.name == "AUTO":
                self.static.append((symbol.leaf, symbol.dim))
            elif pinned:
                self.wrong.append(
                    f"{symbol.what} is {what!r}, and must be {merged.lower}{fact.why}"
                )
            return True
        return what is None

    def violated(
        self, fact: Fact, names: list[str], dims: list[Dim], sizes: dict[str, int]
    ) -> None:
        words = fact.text
        for name in sorted(names, key=len, reverse=True):
            words = words.replace(name, self.symbols[name].what)
        allowed = ", ".join(
            f"{dim.__name__} = {sizes[name]}"
            for name, dim in zip(names, dims, strict=True)
        )
        self.wrong.append(f"{words}{fact.why}; {allowed} is allowed, where it fails")
        if len(names) == 1:
            dim = dims[0]
            self.roots[dim.root.__name__] = dim.root
            text = Number(fact.text)
            hint = self.root_hint(dim)
            shape = self.shape_for_root(text, names[0], dim, hint)
            if shape is not None:
                self.merge(dim.root, shape)
        elif len(names) == 2 and "==" in fact.text:
            self.relate(fact, names, dims)

    def shape_for_root(
        self, text: Number, name: str, dim: Dim, hint: int
    ) -> _Shape | None:
        replaced = text.text.replace(name, f"({dim.scale}*root+{dim.offset})")
        return _shape_of(replaced, "root", hint)

    def merge(self, root: Dim, shape: _Shape) -> None:
        known = self.needs.get(root.__name__, _Shape(0, None, 1))
        uppers = [u for u in (known.upper, shape.upper) if u is not None]
        step = max(known.step, shape.step)
        self.needs[root.__name__] = _Shape(
            max(known.lower, shape.lower), min(uppers) if uppers else None, step
        )

    def relate(self, fact: Fact, names: list[str], dims: list[Dim]) -> None:
        """One of two sizes follows from the other."""
        if dims[0].root is dims[1].root or any(dim.is_derived for dim in dims):
            return
        for of, by in ((1, 0), (0, 1)):
            hint = self.symbols[names[by]].hint
            found = _linear(fact.text, names[of], names[by], hint)
            if found is None or dims[of].__name__ in self.fixes:
                continue
            made = dims[by] * found[0] + found[1]
            self.fixes[dims[of].__name__] = made.__name__
            return

    def suggest(self, root: Dim) -> None:
        name = root.__name__
        need = self.needs.get(name)
        if need is None or name in self.fixes:
            return
        low = max(root.min, need.lower)
        highs = [h for h in (root.max, need.upper) if h is not None]
        high = min(highs) if highs else None
        if low == high or need.only is not None:
            self.fixes[name] = str(high if need.only is None else need.only)
        elif need.step > 1:
            inner = Dim(
                f"_{name}",
                min=-(-low // need.step) if low > 2 else None,
                max=None if high is None else high // need.step,
            )
            self.fixes[inner.__name__] = repr(inner)
            self.fixes[name] = (inner * need.step).__name__
        else:
            self.fixes[name] = repr(Dim(name, min=self.said_min(root, low), max=high))

    def said_min(self, root: Dim, low: int) -> int | None:
        """None: sizes below 2 need no word, where the root is a size itself."""
        derived = any(
            isinstance(what, Dim) and what.root is root and what.is_derived
            for what in self.said.values()
        )
        return low if low > 2 or derived and low > 0 else None


def find_constraints(
    symbols: list[Symbol],
    facts: Iterable[Fact],
    said: Mapping[tuple[int, int], Dim | DimHint],
) -> Findings:
    """The range of each symbol, and which sizes of `Dim.AUTO` are one number.

    said: by leaf and dim (-1: an int).
    Raises ConstraintViolationError: a size that is allowed breaks the program.
    """
    return _Finder(symbols, facts, said).find()
