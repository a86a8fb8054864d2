"""The report at exit of ``python -m framejit --report``."""

from __future__ import annotations

import collections
import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, TextIO

from framejit import _C


@dataclass
class _Row:
    """One function of the program, or what is left of it behind a break."""

    name: str
    file: str
    line: int
    behind: int  # the line of the break; 0: the whole function
    entries: list[dict[str, Any]] = field(default_factory=list)
    refusal: str = ""

    def total(self, key: str) -> float:
        return sum(float(entry[key]) for entry in self.entries)

    @property
    def breaks(self) -> int:
        return sum(item["count"] for entry in self.entries for item in entry["breaks"])

    @property
    def milliseconds(self) -> float:
        return self.total("ms")

    def label(self, places: dict[str, str]) -> str:
        text = f"{self.name}  {places[self.file]}:{self.line}"
        return f"{text}, behind line {self.behind}" if self.behind else text


def _rows() -> list[_Row]:
    """Entries of one place together, those that are gone, too: of all options, of a
    module and its forward."""
    found: dict[tuple[Any, ...], _Row] = {}
    for name, file, line, behind, entries, refusal in _C.report_rows():
        key = (name, file, line, behind)
        row = found.setdefault(key, _Row(*key))
        row.entries += entries
        row.refusal = row.refusal or refusal
    for row in found.values():
        # The call of a module that only hands over to its forward.
        own = [entry for entry in row.entries if not entry["hands_over"]]
        row.entries = own or row.entries
    return list(found.values())


def _short(files: Iterable[str]) -> dict[str, str]:
    """The end of each file name that no other one has."""
    parts = {file: file.replace(os.sep, "/").split("/") for file in files}
    short = {}
    for file, own in parts.items():
        count = 1
        while count < len(own) and any(
            other != file and theirs[-count:] == own[-count:]
            for other, theirs in parts.items()
        ):
            count += 1
        short[file] = "/".join(own[-count:])
    return short


def _width(file: TextIO) -> int:
    try:
        return os.get_terminal_size(file.fileno()).columns
    except (OSError, ValueError, AttributeError):  # not a terminal
        return shutil.get_terminal_size((120, 24)).columns


def _fit(text: str, width: int) -> str:
    """Without its beginning, where it is too long: the place is at the end."""
    return text if len(text) <= width else "\N{HORIZONTAL ELLIPSIS}" + text[1 - width :]


_COLUMNS = ("hits", "entries", "ops", "breaks", "ms")


def _table(rows: list[_Row], places: dict[str, str], width: int) -> list[str]:
    cells = [
        (
            f"{row.total('hits'):.0f}",
            f"{row.total('entries'):.0f}",
            f"{row.total('operations'):.0f}",
            f"{row.breaks}",
            f"{row.milliseconds:.1f}",
        )
        for row in rows
    ]
    widths = [
        max(len(line[column]) for line in [_COLUMNS, *cells])
        for column in range(len(_COLUMNS))
    ]

    def line(values: Iterable[str], name: str) -> str:
        numbers = "  ".join(
            value.rjust(size) for value, size in zip(values, widths, strict=True)
        )
        return f"  {numbers}  " + _fit(name, max(20, width - len(numbers) - 4))

    table = [line(_COLUMNS, "function")]
    return table + [
        line(values, row.label(places)) for values, row in zip(cells, rows, strict=True)
    ]


def _order(rows: list[_Row]) -> list[_Row]:
    """The slowest function first, and what is left of it behind it."""
    cost: collections.Counter[tuple[str, str, int]] = collections.Counter()
    for row in rows:
        cost[row.name, row.file, row.line] += row.milliseconds  # type: ignore[assignment]

    def key(row: _Row) -> tuple[Any, ...]:
        place = (row.name, row.file, row.line)
        return (-cost[place], place, row.behind)

    return sorted(rows, key=key)


def text(width: int = 120) -> str:
    """What was compiled since the last reset, one line a function."""
    rows = _order(_rows())
    places = _short({row.file for row in rows})
    captured = [row for row in rows if row.entries]
    counters = _C.counters()
    lines = [
        "framejit: "
        + ", ".join(f"{count} {name}" for name, count in counters.items())
        + f" in {len(captured)} code objects"
    ]
    if captured:
        lines += _table(captured, places, width)
    pins: collections.Counter[str] = collections.Counter()
    for row in captured:
        for item in (item for entry in row.entries for item in entry["pins"]):
            pins[f"{item['by']} {item['where']}"] += item["count"]
    if pins:
        lines.append("sizes pinned by:")
        lines += [f"{count:6d}  {item}" for item, count in pins.most_common(30)]
    breaks: collections.Counter[str] = collections.Counter()
    for row in captured:
        for item in (item for entry in row.entries for item in entry["breaks"]):
            detail = f": {item['detail']}" if item["detail"] else ""
            label = f"{item['id']} {item['reason']}{detail}  ({item['where']})"
            breaks[label] += item["count"]
    if breaks:
        lines.append("breaks:")
        lines += [f"{count:6d}  {item}" for item, count in breaks.most_common(30)]
    refused = [row for row in rows if not row.entries and row.refusal]
    if refused:
        lines.append("not captured:")
        lines += [f"  {row.label(places)}: {row.refusal}" for row in refused]
    return "\n".join(lines)


def print_report(file: TextIO | None = None) -> None:
    file = file or sys.stderr
    print(text(_width(file)), file=file)
