"""Runs one program many times and says what grew.

Blocks of Python's allocator, live objects by type, code objects that stayed,
resident memory and memory mapped to be executed, before and after so many
turns; what the first turns leave (caches that fill up, imports) is not counted.
Memory that only grows now and then (arenas, hash tables that double) has a
bound; what grows with every turn is above it.
"""

from __future__ import annotations

import collections
import ctypes
import dataclasses
import gc
import io
import logging
import re
import sys
import threading
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import framejit
from framejit import _api
from leaks.programs import Row

BLOCKS_PER_TURN = 6.0
OBJECTS_PER_TURN = 0.5  # of one type
CODE_BYTES_PER_TURN = 200.0
RESIDENT_BYTES_PER_TURN = 20_000.0


def _mapped_code() -> int:
    """Bytes of memory that is executable and no file's."""
    total = 0
    for line in Path("/proc/self/maps").read_text().splitlines():
        addresses, rights, _, _, inode, *_ = line.split()
        if "x" in rights and inode == "0":
            start, end = (int(a, 16) for a in addresses.split("-"))
            total += end - start
    return total


class _Malloc(ctypes.Structure):
    """What glibc says of its heap; the part that is free comes ninth."""

    _names = (
        "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"
    )
    _fields_ = [(name, ctypes.c_size_t) for name in _names.split()]


def _free_heap() -> int:
    """Bytes that malloc keeps for later: fragments grow and shrink."""
    library = ctypes.CDLL(None)
    if not hasattr(library, "mallinfo2"):
        return 0
    library.mallinfo2.restype = _Malloc
    return int(library.mallinfo2().fordblks)


def _resident() -> int:
    """Resident bytes that are in use."""
    text = Path("/proc/self/status").read_text()
    kilobytes = int(re.findall(r"VmRSS:\s+(\d+) kB", text)[0])
    return kilobytes * 1024 - _free_heap()


@dataclasses.dataclass
class Sight:
    types: collections.Counter[str]
    mapped: int
    resident: int


def _look() -> Sight:
    _api._options_of_locals.clear()  # the last few, and what was compiled with them
    for _ in range(3):  # finalizers make garbage
        gc.collect()
    types_seen = collections.Counter(
        f"{type(o).__module__}.{type(o).__qualname__}" for o in gc.get_objects()
    )
    return Sight(types_seen, _mapped_code(), _resident())


@dataclasses.dataclass
class Growth:
    """Per turn."""

    blocks: float
    types: dict[str, float]
    mapped: float
    resident: float
    functions: int  # of the program, that live on

    def held(self) -> list[str]:
        """What no allocator's or cache's habits explain."""
        found = [
            f"{n:.1f} {name} a turn"
            for name, n in self.types.items()
            if n > OBJECTS_PER_TURN
        ]
        if self.functions > 2:  # the last may still be held by what it ran
            found.append(f"{self.functions} functions of the program live on")
        if self.mapped > CODE_BYTES_PER_TURN:
            found.append(f"{self.mapped:.0f} bytes of machine code a turn")
        return found

    def faults(self) -> list[str]:
        found = self.held()
        if self.blocks > BLOCKS_PER_TURN:
            found.append(f"{self.blocks:.1f} blocks a turn")
        if self.resident > RESIDENT_BYTES_PER_TURN:
            found.append(f"{self.resident:.0f} bytes a turn")
        return found


def _namespace() -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "leak_program", "sink": io.StringIO()}
    names.update(torch=torch, framejit=framejit, threading=threading)
    return names


def _turns(row: Row, backend: str) -> Callable[[], None]:
    filename = f"<leaks {row.name}>"
    compile_with = {"backend": backend}
    original = framejit.compile

    def execute(names: dict[str, Any]) -> None:
        # A code object of its own for every turn.
        stand_in = types.SimpleNamespace(**vars(framejit))
        stand_in.compile = lambda fn: original(fn, **compile_with)
        names["framejit"] = stand_in
        exec(compile(row.source, filename, "exec"), names)

    if row.steady:
        names = _namespace()
        execute(names)
        return names["turn"]
    return lambda: execute(_namespace())


def measure(row: Row, turns: int, warm: int, backend: str = "native") -> Growth:
    turn = _turns(row, backend)
    filename = f"<leaks {row.name}>"

    def functions() -> int:
        return sum(
            1
            for o in gc.get_objects()
            if type(o) is types.FunctionType and o.__code__.co_filename == filename
        )

    # Who collects the records (pytest, say) keeps them.
    log, level = logging.getLogger("framejit"), logging.getLogger("framejit").level
    log.setLevel(logging.CRITICAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for _ in range(warm):
            turn()
        before, known = _look(), functions()
        blocks = sys.getallocatedblocks()  # with the look's own
        for _ in range(turns):
            turn()
        for _ in range(3):
            gc.collect()
        blocks = sys.getallocatedblocks() - blocks
        after = _look()
    log.setLevel(level)
    grown = {
        name: (count - before.types[name]) / turns
        for name, count in after.types.items()
        if count > before.types[name]
    }
    return Growth(
        blocks / turns,
        grown,
        (after.mapped - before.mapped) / turns,
        (after.resident - before.resident) / turns,
        functions() - known,
    )
