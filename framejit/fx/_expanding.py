"""Code in which ``is`` and patterns of ``match`` ask a function.

    LOAD_FAST   x                      LOAD_FAST   x
    LOAD_CONST  None            ->     LOAD_CONST  None
    IS_OP       0                      CALL        'is, asked' (2 arguments)

CPython answers ``x is None`` and the classes of ``match`` without a word to the
object, so a proxy could say nothing. The instructions that ask take room: the code is
taken apart, and jumps, lines and exception tables are made anew.
"""

from __future__ import annotations

import dis
import sys
import types
from typing import Any, NamedTuple

__all__ = ["IS_ASKED", "MATCH_ASKED", "expanded"]

#: The builtins that such code calls.
IS_ASKED, MATCH_ASKED = "is, asked", "match, asked"
_MATCHES = {"MATCH_CLASS": 3, "MATCH_MAPPING": 1, "MATCH_SEQUENCE": 1}
_JUMPS = {*dis.hasjrel, *dis.hasjabs}
_NO_ARG = 0


class _Instruction(NamedTuple):
    name: str
    arg: int
    old: int | None  # where it was; None: it is new
    first: int  # where its prefixes began; of new ones, what they stand for
    target: int | None  # where it jumped to


def expanded(code: types.CodeType) -> types.CodeType | None:
    """The same code that asks; None where there is nothing to ask about."""
    names, constants = list(code.co_names), list(code.co_consts)
    new: list[_Instruction] = []
    found = False
    first = None
    for old in dis.get_instructions(code):
        first = old.offset if first is None else first
        if old.opcode == dis.EXTENDED_ARG:
            continue
        target = old.argval if old.opcode in _JUMPS else None
        here = _Instruction(old.opname, old.arg or 0, old.offset, first, target)
        asks = _asking(here, names, constants)
        found = found or asks is not None
        new.extend(asks or [here])
        first = None
    if not found:
        return None
    starts, data = _assembled(new, len(code.co_code))
    return code.replace(
        co_code=bytes(data),
        co_names=tuple(names),
        co_consts=tuple(constants),
        co_stacksize=code.co_stacksize + 4,
        co_exceptiontable=_exception_table(code, starts),
        co_linetable=_line_table(code, new, starts, len(data)),
    )


def _asking(
    at: _Instruction, names: list[str], constants: list[Any]
) -> list[_Instruction] | None:
    def made(*parts: tuple[str, int]) -> list[_Instruction]:
        return [_Instruction(name, arg, None, at.first, None) for name, arg in parts]

    def call(function: str, count: int) -> list[tuple[str, int]]:
        # What a LOAD_GLOBAL pushes for a call, two objects, goes under the arguments.
        if function not in names:
            names.append(function)
        load = ("LOAD_GLOBAL", names.index(function) << 1 | 1)
        swaps = (3, 2, 4, 2) if count == 2 else (3, 2, 3, 2)
        calls = [("PRECALL", count)] if sys.version_info < (3, 12) else []
        return [load, *(("SWAP", n) for n in swaps), *calls, ("CALL", count)]

    if at.name == "IS_OP":
        negated = [("UNARY_NOT", _NO_ARG)] if at.arg else []
        return made(*call(IS_ASKED, 2), *negated)
    if at.name.startswith("POP_JUMP") and at.name.endswith("_NONE"):
        at_none = next((i for i, c in enumerate(constants) if c is None), None)
        if at_none is None:
            at_none = len(constants)
            constants.append(None)
        jump = at.name.replace("NOT_NONE", "FALSE").replace("NONE", "TRUE")
        asked = made(("LOAD_CONST", at_none), *call(IS_ASKED, 2))
        return [*asked, at._replace(name=jump)]
    if at.name in _MATCHES:
        copied = ("COPY", _MATCHES[at.name])
        return [*made(copied, *call(MATCH_ASKED, 1), ("POP_TOP", _NO_ARG)), at]
    return None


def _caches(name: str) -> int:
    table: Any = dis._inline_cache_entries  # type: ignore[attr-defined]
    if isinstance(table, dict):  # 3.13
        return int(table.get(name, 0))
    return int(table[dis.opmap[name]])


def _assembled(new: list[_Instruction], end: int) -> tuple[dict[int, int], bytearray]:
    """Where each old offset is now, and the code."""
    args = [each.arg for each in new]
    while True:
        starts: dict[int, int] = {}
        at, ends = 0, []
        for each, arg in zip(new, args, strict=True):
            starts.setdefault(each.first, at)
            at += 2 * (1 + _prefixes(arg) + _caches(each.name))
            ends.append(at)
        starts[end] = at
        fixed = [
            each.arg if each.target is None else abs(starts[each.target] - after) // 2
            for each, after in zip(new, ends, strict=True)
        ]
        # (A jump never gets shorter, so that this ends.)
        longer = [max(pair) for pair in zip(fixed, args, strict=True)]
        if all(_prefixes(a) == _prefixes(b) for a, b in zip(longer, args, strict=True)):
            break
        args = longer
    data = bytearray()
    for each, wide, arg in zip(new, args, fixed, strict=True):
        for shift in range(_prefixes(wide), 0, -1):
            data += bytes((dis.EXTENDED_ARG, arg >> 8 * shift & 255))
        data += bytes((dis.opmap[each.name], arg & 255))
        data += bytes(2 * _caches(each.name))
    return starts, data


def _prefixes(arg: int) -> int:
    return 0 if arg < 1 << 8 else 1 if arg < 1 << 16 else 2 if arg < 1 << 24 else 3


def _exception_table(code: types.CodeType, starts: dict[int, int]) -> bytes:
    table = bytearray()
    parse: Any = dis._parse_exception_table  # type: ignore[attr-defined]
    for entry in parse(code):
        start, end = starts[entry.start], starts[entry.end]
        parts = (
            start // 2,
            (end - start) // 2,
            starts[entry.target] // 2,
            entry.depth << 1 | entry.lasti,
        )
        for at, value in enumerate(parts):
            chunks = [value & 63]
            while value := value >> 6:
                chunks.insert(0, value & 63 | 64)
            chunks[0] |= 128 if at == 0 else 0
            table += bytes(chunks)
    return bytes(table)


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 63:
        out.append(value & 63 | 64)
        value >>= 6
    return bytes((*out, value))


def _line_table(
    code: types.CodeType, new: list[_Instruction], starts: dict[int, int], end: int
) -> bytes:
    """Each old instruction, and what is new for it, with its place."""
    places = list(code.co_positions())
    olds = sorted({each.first for each in new})
    bounds = [starts[old] for old in olds] + [end]
    # (The place of an instruction is that behind its prefixes, too.)
    table, line_before = bytearray(), code.co_firstlineno
    for old, start, after in zip(olds, bounds[:-1], bounds[1:], strict=True):
        line, end_line, column, end_column = places[old // 2]
        units = (after - start) // 2
        while units > 0:
            count = min(units, 8)
            units -= count
            if line is None:
                table.append(128 | 15 << 3 | count - 1)
                continue
            delta, line_before = line - line_before, line
            signed = delta << 1 if delta >= 0 else -delta << 1 | 1
            if None in (end_line, column, end_column):
                table.append(128 | 13 << 3 | count - 1)
                table += _varint(signed)
                continue
            table.append(128 | 14 << 3 | count - 1)
            table += _varint(signed) + _varint((end_line or line) - line)
            table += _varint((column or 0) + 1) + _varint((end_column or 0) + 1)
    return bytes(table)
