"""What `inspect` and `explain` return."""

from __future__ import annotations

import inspect
import linecache
import re
import types
from dataclasses import dataclass, field
from typing import Any

from framejit import _C


@dataclass(frozen=True)
class BreakInfo:
    """One place where capture stopped.

    Attributes:
        id: stable reason id (``FJ101``), see ``docs/breaks/``.
        reason: the reason in words.
        detail: what exactly, in the user's words.
        where: ``file:line in function``.
        stack: the user's frames, outermost first.
        hint: what to do about it; may be empty.
    """

    id: str
    reason: str
    detail: str
    where: str
    stack: list[str]
    hint: str

    def __str__(self) -> str:
        text = f"{self.id} {self.reason}"
        if self.detail:
            text += f": {self.detail}"
        text += f"\n  at {self.where}"
        text += f"\n  hint: {self.hint}" if self.hint else ""
        return text + f"\n  page: {self.page}"

    @property
    def page(self) -> str:
        """What the reason means and what to do, in the repository and, under the
        folder of this package, where FrameJIT is installed."""
        return f"docs/breaks/{self.id}.md"


# Of a model's entry there are hundreds.
SHOWN_GUARDS = 10
_NAME = re.compile(r"[^\W\d]\w*")
_TEXT = re.compile(r"'(?:[^'\\]|\\.)*'")
# What may stand before the name in a guard's line.
_WORDS = ("type", "len", "id", "not")


def _subject(guard: str) -> str:
    """The first name in a guard's line that is none of _WORDS: `type(x) is list`."""
    names = _NAME.findall(_TEXT.sub("", guard))
    return next((name for name in names if name not in _WORDS), "")


def _arguments(code: types.CodeType | None) -> tuple[str, ...]:
    """The names of what callers pass: not the object of a method."""
    if code is None:
        return ()
    count = code.co_argcount + code.co_kwonlyargcount
    count += bool(code.co_flags & inspect.CO_VARARGS)
    count += bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return tuple(name for name in code.co_varnames[:count] if name != "self")


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s'[number == 1 :]}"


@dataclass(frozen=True, repr=False)
class EntryInfo:
    """One compiled specialisation of a code object.

    Printed, it is a line and its breaks; guards, graphs and kernels are fields.

    Attributes:
        number: entries of the function that were made before, as logs count.
        guards: one line per guard, in the user's words.
        guard_failures: for each guard, how many calls that were compiled anew
            it was the first to turn away.
        guard_reasons: for each guard on sizes and numbers what it is there for,
            as ``because x[:64] at model.py:12 in f``; "" for the others.
        pins: sizes that can be one number only because of an operator or a
            function of torch: ``x.size(0) == 5 by aten.foo at model.py:12 in f``.
        symbols: sources of the symbolic sizes, ``s0`` first.
        hits: calls this entry answered.
        predicates: native predicates armed for it.
        operations: calls in the torch-level graph.
        torch_graph, joint_graph, forward_graph, backward_graph: graphs as text.
        kernels: one text per generated kernel.
        loop_nodes: nodes of the forward and backward graph that are loops.
        not_lowered: why the other nodes are calls of ATen, a line each: the
            operator, the line of the program, the reason. (One line for all
            nodes of a graph that is not lowered at all.)
        saved_tensors: tensors kept from forward to backward.
        fallback_reason: why the graph, or calls of it, runs at torch level, or "".
        breaks: where the frame broke (at most one per entry).
        residual_code: the generated code that runs the breaking instruction.
        resume: entries of the resume functions, by code object; each function
            is under the first entry that leads to it.
        instructions: bytecode instructions interpreted.
        inlined_calls: Python calls inlined.
        capture_ms, backend_ms, guards_ms: milliseconds spent.
    """

    number: int
    guards: list[str]
    guard_failures: list[int]
    guard_reasons: list[str]
    pins: list[str]
    symbols: list[str]
    hits: int
    predicates: int
    operations: int
    torch_graph: str
    joint_graph: str
    forward_graph: str
    backward_graph: str
    kernels: list[str]
    loop_nodes: int
    not_lowered: list[str]
    saved_tensors: int
    fallback_reason: str
    breaks: list[BreakInfo]
    residual_code: types.CodeType | None
    resume: dict[types.CodeType, list[EntryInfo]]
    instructions: int
    inlined_calls: int
    capture_ms: float
    backend_ms: float
    guards_ms: float

    @property
    def compile_ms(self) -> float:
        """Milliseconds from the call to the finished entry."""
        return self.capture_ms + self.backend_ms + self.guards_ms

    def guard_lines(self) -> list[str]:
        """The guards with how often each held and turned a call away."""
        return [
            " ".join(filter(None, (text, reason)))
            + f"  ({self.hits} hits"
            + (f", {failures} misses)" if failures else ")")
            for text, reason, failures in zip(
                self.guards, self.guard_reasons, self.guard_failures, strict=True
            )
        ]

    def shown_guards(self, arguments: tuple[str, ...]) -> list[str]:
        """At most `SHOWN_GUARDS` of the guards, as `guard_lines` and in their order,
        and how many are left out. Of many guards only those that turned calls away,
        the most often first, and those of `arguments` (names)."""
        lines = self.guard_lines()
        if len(lines) <= SHOWN_GUARDS:
            return lines

        chosen = [
            at
            for at, text in enumerate(self.guards)
            if self.guard_failures[at] or _subject(text) in arguments
        ]
        chosen.sort(key=lambda at: (-self.guard_failures[at], at))
        chosen = sorted(chosen[:SHOWN_GUARDS])
        left = len(lines) - len(chosen)
        return [lines[at] for at in chosen] + [f"... and {left} more: .guards"]

    def __repr__(self) -> str:
        facts = [
            _count(self.operations, "operation"),
            _count(len(self.guards), "guard"),
            _count(len(self.kernels), "kernel"),
            _count(self.hits, "hit"),
            f"{self.compile_ms:.1f} ms to compile",
        ]
        if self.resume:
            facts.append(_count(len(self.resume), "resume function"))
        if self.fallback_reason:
            facts.append(f"torch level: {self.fallback_reason}")
        facts += [f"break {item.id} at {item.where}" for item in self.breaks]
        return f"<entry {self.number}: {', '.join(facts)}>"

    def __str__(self) -> str:
        symbols = [f"s{i} is {source}" for i, source in enumerate(self.symbols)]
        breaks = [
            f"break: {line}" for item in self.breaks for line in str(item).splitlines()
        ]
        return "\n".join([repr(self), *(f"  {line}" for line in symbols + breaks)])

    def walk(self) -> list[EntryInfo]:
        """This entry and those of its resume functions, depth first."""
        return [entry for entry, _ in self.walk_codes(None)]

    def walk_codes(
        self, code: types.CodeType | None
    ) -> list[tuple[EntryInfo, types.CodeType | None]]:
        """The same, each with the code it is an entry of; `code`: this one's."""
        found: list[tuple[EntryInfo, types.CodeType | None]] = [(self, code)]
        for resume_code, entries in self.resume.items():
            for entry in entries:
                found += entry.walk_codes(resume_code)
        return found


def why_nothing(function: types.FunctionType, identifier: str) -> str:
    """The line for a function that was not even looked at."""
    (title,) = (row[2] for row in _C.break_reasons() if row[1] == identifier)
    code = function.__code__
    place = f"{code.co_filename}:{code.co_firstlineno}"
    return f"not captured: {code.co_qualname} ({place})\n{identifier} {title}"


def _expression(code: types.CodeType, offset: int) -> str:
    """The part of a line that an instruction is of, or the whole line."""
    positions = list(code.co_positions())
    if not 0 <= offset // 2 < len(positions):
        return ""
    line, last, begin, end = positions[offset // 2]
    if line is None:
        return ""
    text = linecache.getline(code.co_filename, line).encode()
    if last == line and begin is not None and end is not None:
        text = text[begin:end]
    return " ".join(text.decode(errors="replace").split())


def _reason(code: types.CodeType, offset: int, place: str, by: str | None) -> str:
    what = [_expression(code, offset), f"by {by}" if by else ""]
    return " ".join(filter(None, ("because", *what, "at", place)))


def entry_info(
    raw: dict[str, Any],
    key: _C.CompileOptions,
    seen: set[types.CodeType],
) -> EntryInfo:
    """Converts what the C++ side says; follows resume functions once each.

    Breaks in a loop come back to the same resume functions in any order, so the
    paths through them are too many to follow: a function's entries are shown
    where it is met first.
    """
    data = dict(raw)
    del data["hands_over"]
    codes = [code for code in data.pop("resume_codes") if code not in seen]
    seen.update(codes)
    resume = {
        code: [entry_info(item, key, seen) for item in _C.entries(code, key)]
        for code in codes
    }
    data["breaks"] = [BreakInfo(**item) for item in data["breaks"]]
    data["guard_reasons"] = [
        _reason(*item) if item else "" for item in data["guard_reasons"]
    ]
    return EntryInfo(resume=resume, **data)


@dataclass(frozen=True)
class Explanation:
    """What one run of a function captured.

    Printed, it has the breaks, the graphs and of each entry the guards that say
    most; `guards` has all of them.

    Attributes:
        result: what the function returned.
        entries: cache entries of the function itself.
        events: (channel, text) of everything that happened during the run,
            callees that became frames of their own included.
        code: the code object of the function.
    """

    result: Any
    entries: list[EntryInfo]
    events: list[tuple[str, str]]
    code: types.CodeType | None = field(default=None, repr=False)

    def _all(self) -> list[EntryInfo]:
        return [found for entry in self.entries for found in entry.walk()]

    @property
    def graphs(self) -> list[str]:
        """Torch-level graphs with at least one operation."""
        return [entry.torch_graph for entry in self._all() if entry.operations]

    @property
    def graph_count(self) -> int:
        return len(self.graphs)

    @property
    def op_count(self) -> int:
        return sum(entry.operations for entry in self._all())

    @property
    def breaks(self) -> list[BreakInfo]:
        return [item for entry in self._all() for item in entry.breaks]

    @property
    def graph_break_count(self) -> int:
        return len(self.breaks)

    @property
    def guards(self) -> list[str]:
        return [guard for entry in self._all() for guard in entry.guards]

    def __str__(self) -> str:
        if not self.entries:
            why = [text for channel, text in self.events if channel == "graph_breaks"]
            return "\n".join(["nothing was captured", *why])
        counts = {
            "graph": self.graph_count,
            "operation": self.op_count,
            "break": len(self.breaks),
            "guard": len(self.guards),
        }
        lines = [", ".join(_count(n, what) for what, n in counts.items())]
        found = [pair for entry in self.entries for pair in entry.walk_codes(self.code)]
        for number, (entry, code) in enumerate(found):
            lines.append(
                f"entry {number}: {entry.operations} operations, {entry.hits} hits"
            )
            lines += [f"  {line}" for line in entry.torch_graph.splitlines()]
            for item in entry.breaks:
                lines += [f"  break: {line}" for line in str(item).splitlines()]
            lines += [f"  pinned: {pin}" for pin in entry.pins]
            guards = entry.shown_guards(_arguments(code))
            lines += [f"  guard: {guard}" for guard in guards]
        return "\n".join(lines)
