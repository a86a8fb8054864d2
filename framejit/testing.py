"""Assertions about compilation, for the tests of programs that use FrameJIT.

>>> with framejit.testing.no_recompile():
...     for batch in batches:
...         step(batch)
>>> with framejit.testing.count_graphs() as graphs:
...     step(batch)
>>> assert graphs.count == 1

`pytest --framejit-strict` is `strict()` around every test.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from framejit import _C

__all__ = ["GraphCount", "count_graphs", "no_break", "no_recompile", "strict"]


@contextlib.contextmanager
def _recorded(*kinds: str) -> Iterator[list[tuple[str, dict[str, Any]]]]:
    """The trace records of the block, whatever else listens."""
    records: list[tuple[str, dict[str, Any]]] = []

    def listen(kind: str, record: dict[str, Any]) -> None:
        if kind in kinds:
            records.append((kind, record))

    _C.add_trace_listener(listen)
    try:
        yield records
    finally:
        _C.remove_trace_listener(listen)


@contextlib.contextmanager
def no_recompile(*, first: bool = True) -> Iterator[None]:
    """Fails, at the end of the block, if a function was compiled again in it.

    Args:
        first: functions with no entry yet may be compiled; False: nothing may.

    Raises:
        AssertionError: with the guards that did not hold. An exception of the
            block itself goes first.
    """
    with _recorded("recompile", "compile_end") as records:
        yield
    lines = [
        f"{record['function']}, entry {record['entry']}: {record['reason']}"
        + (f"  hint: {record['hint']}" if record["hint"] else "")
        for kind, record in records
        if kind == "recompile"
    ]
    if not first:
        lines += [
            f"{record['function']}: compiled"
            for kind, record in records
            if kind == "compile_end"
        ]
    if lines:
        raise AssertionError("compiled again:\n  " + "\n  ".join(lines))


@dataclass
class GraphCount:
    """What was compiled in a `count_graphs` block; complete when it ends.

    Attributes:
        count: graphs with at least one operation.
        operations: operations in them.
        breaks: where graphs broke, as text.
        graphs: the torch-level graphs as text.
    """

    count: int = 0
    operations: int = 0
    breaks: list[str] = field(default_factory=list)
    graphs: list[str] = field(default_factory=list)

    def _add(self, record: dict[str, Any]) -> None:
        if "break" in record:
            self.breaks.append(record["break"])
        entry = record.get("entry")
        if entry is None:
            return
        if entry["operations"]:
            self.count += 1
            self.operations += entry["operations"]
            self.graphs.append(entry["torch_graph"])
        self.breaks += [
            f"{item['id']} {item['reason']}: {item['detail']}  ({item['where']})"
            for item in entry["breaks"]
        ]


@contextlib.contextmanager
def count_graphs(expected: int | None = None) -> Iterator[GraphCount]:
    """Counts the graphs that are compiled in the block.

    Args:
        expected: fails at the end when the count is another.
    """
    result = GraphCount()
    with _recorded("compile_end") as records:
        try:
            yield result
        finally:
            for _, record in records:
                result._add(record)
    if expected is not None and result.count != expected:
        raise AssertionError(
            f"{result.count} graphs were compiled, not {expected}"
            + "".join(f"\n{graph}" for graph in result.graphs)
            + "".join(f"\nbreak: {item}" for item in result.breaks)
        )


@contextlib.contextmanager
def no_break() -> Iterator[None]:
    """Fails, at the end of the block, if a graph compiled in it broke."""
    with count_graphs() as graphs:
        yield
    if graphs.breaks:
        raise AssertionError("graphs broke:\n  " + "\n  ".join(graphs.breaks))


@contextlib.contextmanager
def strict() -> Iterator[None]:
    """Errors inside FrameJIT raise, and so do graphs that fall back to eager.

    Raises:
        AssertionError: a graph runs at torch level, or a call ran its original
            code because its graph failed.
    """
    before = _C.option_text("strict")
    failures = _C.counters()["fallbacks"]
    _C.set_option("strict", "1")
    try:
        yield
    finally:
        _C.set_option("strict", before)
    count = _C.counters()["fallbacks"] - failures
    if count > 0:
        texts = [text for channel, text in _C.recent_events() if channel == "fallbacks"]
        raise AssertionError(
            f"{count} graphs or calls fell back:\n  " + "\n  ".join(texts)
        )
