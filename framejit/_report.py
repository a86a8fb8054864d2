"""The report at exit of ``python -m framejit --report``."""

from __future__ import annotations

import collections
import sys
from typing import TextIO

from framejit import _C


def text() -> str:
    """What was compiled since the last reset, one line a code object."""
    rows = _C.all_entries()
    counters = _C.counters()
    lines = [
        "framejit: "
        + ", ".join(f"{count} {name}" for name, count in counters.items())
        + f" in {len(rows)} code objects"
    ]
    if rows:
        lines.append("  hits  entries  ops  breaks    ms  function")
    breaks: collections.Counter[str] = collections.Counter()
    for name, entries in sorted(
        rows, key=lambda row: -sum(e["backend_ms"] + e["capture_ms"] for e in row[1])
    ):
        milliseconds = sum(
            e["capture_ms"] + e["backend_ms"] + e["guards_ms"] for e in entries
        )
        found = [item for e in entries for item in e["breaks"]]
        breaks.update(
            f"{item['id']} {item['reason']}: {item['detail']}  ({item['where']})"
            for item in found
        )
        lines.append(
            f"{sum(e['hits'] for e in entries):6d}"
            f"{len(entries):9d}"
            f"{sum(e['operations'] for e in entries):5d}"
            f"{len(found):8d}"
            f"{milliseconds:6.1f}  {name}"
        )
    if breaks:
        lines.append("breaks:")
        lines += [f"{count:6d}  {item}" for item, count in breaks.most_common(30)]
    return "\n".join(lines)


def print_report(file: TextIO | None = None) -> None:
    print(text(), file=file or sys.stderr)
