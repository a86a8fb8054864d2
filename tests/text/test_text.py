"""Runs `*.fjt`: a program, calls of it, and what FrameJIT must say about it.

A file has sections, each opened by a line of its own::

    --- source                 defines f (the file name is model.py)
    --- call backend="eager"   runs with f compiled with these options
    --- check                  ordered expectations

What is printed by the calls, then every cache entry (oldest first, resume
functions after the entry that breaks into them), then the events, is matched
as LLVM's FileCheck does it:

    CHECK: text        occurs somewhere behind the previous match
    CHECK-NEXT: text   occurs on the line after the previous match
    CHECK-NOT: text    does not occur between the matches around it

Runs of blanks count as one. ``{{regex}}`` is a regular expression;
``[[NAME:regex]]`` is one whose match ``[[NAME]]`` stands for from then on.
A first line ``--- requires kernels`` skips the file on CPUs without machine code.
"""

from __future__ import annotations

import contextlib
import io
import linecache
import os
import re
from pathlib import Path
from typing import Any

os.environ.setdefault("FRAMEJIT_STRICT", "1")

import pytest
import torch

import framejit
from framejit import _C, EntryInfo

FILES = sorted(Path(__file__).parent.glob("*.fjt"))
SHOWN_EVENTS = ("bytecode", "recompiles", "fallbacks", "graph_breaks")
_DIRECTIVE = re.compile(r"(CHECK(?:-NEXT|-NOT)?):\s*(.*)$")
_PIECE = re.compile(r"\{\{(.*?)\}\}|\[\[(\w+):(.*?)\]\]|\[\[([A-Za-z]\w*)\]\]")


class Mismatch(AssertionError):
    """An expectation that does not hold."""


def _canonical(text: str) -> str:
    return "\n".join(re.sub(r"[ \t]+", " ", line) for line in text.splitlines())


def _pattern(text: str, known: dict[str, str]) -> re.Pattern[str]:
    """The regular expression of one directive."""
    result, position = "", 0
    new: set[str] = set()
    for piece in _PIECE.finditer(text):
        result += re.escape(text[position : piece.start()])
        position = piece.end()
        regex, defined, value, used = piece.groups()
        if regex is not None:
            result += f"(?:{regex})"
        elif defined is not None:
            result += f"(?P<{defined}>{value})"
            new.add(defined)
        elif used in new:
            result += f"(?P={used})"
        elif used in known:
            result += re.escape(known[used])
        else:
            raise Mismatch(f"[[{used}]] is not defined")
    return re.compile(result + re.escape(text[position:]))


def check(expectations: str, text: str) -> None:
    """Raises `Mismatch` when `text` is not what the directives say."""
    text = _canonical(text)
    known: dict[str, str] = {}
    position = 0
    forbidden: list[str] = []
    count = 0

    def refuse(end: int) -> None:
        for item in forbidden:
            found = _pattern(item, known).search(text, position, end)
            if found:
                raise Mismatch(f"CHECK-NOT: {item}\nfound {found.group()!r} in\n{text}")
        forbidden.clear()

    for line in expectations.splitlines():
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        directive = _DIRECTIVE.match(line)
        if not directive:
            raise Mismatch(f"not a directive: {line}")
        count += 1
        kind, wanted = directive.group(1), _canonical(directive.group(2))
        if kind == "CHECK-NOT":
            forbidden.append(wanted)
            continue
        start, end = position, len(text)
        if kind == "CHECK-NEXT":
            newline = text.find("\n", position)
            start = len(text) if newline < 0 else newline + 1
            newline = text.find("\n", start)
            end = len(text) if newline < 0 else newline
        found = _pattern(wanted, known).search(text, start, end)
        if not found:
            raise Mismatch(f"{kind}: {wanted}\nnot found behind\n{text[position:]}")
        refuse(found.start())
        known |= found.groupdict()
        position = found.end()
    refuse(len(text))
    if not count:
        raise Mismatch("no directives")


def _sections(path: Path) -> dict[str, tuple[str, str]]:
    """Section name -> (rest of its opening line, text)."""
    found: dict[str, tuple[str, str]] = {}
    name = ""
    for line in path.read_text().splitlines():
        if line.startswith("--- "):
            name, _, rest = line[4:].partition(" ")
            found[name] = (rest.strip(), "")
        elif name:
            found[name] = (found[name][0], found[name][1] + line + "\n")
    return found


def _entry_text(entry: EntryInfo) -> str:
    lines = ["guards:", *(f"  {guard}" for guard in entry.guards)]
    lines += [f"symbol s{i} = {s}" for i, s in enumerate(entry.symbols)]
    lines.append(f"operations: {entry.operations}, inlined: {entry.inlined_calls}")
    lines.append(f"saved tensors: {entry.saved_tensors}")
    for name in ("torch", "joint", "forward", "backward"):
        graph = getattr(entry, f"{name}_graph")
        if graph:
            lines += [f"{name} {graph}"]
    lines += [f"{kernel}" for kernel in entry.kernels]
    if entry.fallback_reason:
        lines.append(f"at torch level: {entry.fallback_reason}")
    lines += [f"break: {item}" for item in entry.breaks]
    return "\n".join(lines) + "\n"


def _report(entries: list[EntryInfo]) -> str:
    text = ""
    seen: set[Any] = set()

    def add(name: str, found: list[EntryInfo]) -> None:
        nonlocal text
        for entry in reversed(found):
            text += f"== {name}\n{_entry_text(entry)}"
            for code, resumed in entry.resume.items():
                if code not in seen:
                    seen.add(code)
                    add("resume", resumed)

    add("entry", entries)
    for channel, event in framejit.events():
        if channel in SHOWN_EVENTS:
            text += f"== event {channel}\n{event}\n"
    return text


def run(source: str, options: str, calls: str) -> str:
    """Everything FrameJIT says about the program."""
    framejit.reset()
    # Costly event texts are built for channels that are on.
    framejit.set_logs(",".join(SHOWN_EVENTS))
    torch.manual_seed(0)
    linecache.cache["model.py"] = (
        len(source),
        None,
        source.splitlines(True),
        "model.py",
    )
    namespace: dict[str, Any] = {"torch": torch, "framejit": framejit}
    exec(compile(source, "model.py", "exec", dont_inherit=True), namespace)
    compiled = framejit.compile(namespace["f"], **eval(f"dict({options})"))
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(
            compile(calls, "calls.py", "exec", dont_inherit=True),
            {**namespace, "f": compiled},
        )
    return output.getvalue() + _report(framejit.inspect(compiled))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_file(path: Path) -> None:
    sections = _sections(path)
    assert {"source", "call", "check"} <= set(sections), "missing section"
    if "requires" in sections and not _C.machine_isa():
        pytest.skip("needs AVX2 or AVX-512")
    options, calls = sections["call"]
    try:
        text = run(sections["source"][1], options, calls)
    finally:
        framejit.set_logs("")
        framejit.reset()
    check(sections["check"][1], text)


GRAPH = "entry\n  %1 = cos(%0)\n  %2 = mul(%1, %1)\nreturn %2\n"


@pytest.mark.parametrize(
    "expectations",
    [
        "CHECK: %1 =   cos\nCHECK-NEXT: mul\nCHECK: return",
        "CHECK: {{%\\d}} = mul\nCHECK-NOT: cos",
        "CHECK: [[A:%\\d]] = cos\nCHECK: mul([[A]], [[A]])",
        "CHECK-NOT: mul\nCHECK: cos\nCHECK-NOT: sin\nCHECK: return",
    ],
)
def test_check_accepts(expectations: str) -> None:
    check(expectations, GRAPH)


@pytest.mark.parametrize(
    "expectations",
    [
        "",
        "CHECK: sin",
        "CHECK: mul\nCHECK: cos",
        "CHECK: cos\nCHECK-NEXT: return",
        "CHECK: cos\nCHECK-NOT: mul\nCHECK: return",
        "CHECK: cos\nCHECK-NOT: return",
        "CHECK: [[A:%\\d]] = mul\nCHECK: return [[B]]",
        "CHECK: [[A:%\\d]] = cos\nCHECK: return [[A]]",
        "CHEKC: cos",
    ],
)
def test_check_refuses(expectations: str) -> None:
    with pytest.raises(Mismatch):
        check(expectations, GRAPH)
