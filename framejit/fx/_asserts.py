"""Branches that are checks, as the bytecode says.

    assert x.shape[0] == y.shape[0]
    if x.dim() != 4: raise ValueError(f"4 dims, not {x.dim()}")

are branches on values that no trace knows. What is checked is known, though: it
holds, or the program raises. So the graph asserts it. Where the function has a
handler around the check, the program may go on either way, and it is a branch like
any other.
"""

from __future__ import annotations

import dis
import types
from typing import Any

__all__ = ["asserted_truth"]

_JUMPS = {
    f"POP_JUMP{direction}_IF_{truth}": truth == "TRUE"
    for direction in ("", "_FORWARD")
    for truth in ("TRUE", "FALSE")
}
# What stands before a RAISE_VARARGS: the exception is made.
_MAKES_AN_EXCEPTION = (
    *("LOAD_", "PUSH_NULL", "PRECALL", "CALL", "KW_NAMES", "FORMAT", "CONVERT"),
    *("BUILD_STRING", "BUILD_TUPLE", "BINARY", "COPY", "NOP", "EXTENDED_ARG", "CACHE"),
)


def asserted_truth(frame: types.FrameType) -> bool | None:
    """The truth with which the check that the frame is at holds; None: it is at none.

    `frame` is asking for the truth of a value.
    """
    instructions = list(dis.get_instructions(frame.f_code))
    places = {i.offset: at for at, i in enumerate(instructions)}
    at = places[frame.f_lasti]
    if instructions[at].opname == "TO_BOOL":  # 3.13
        at += 1
    jump = instructions[at]
    if jump.opname not in _JUMPS or _is_guarded(frame.f_code, jump.offset):
        return None
    target = places.get(jump.argval)
    if target is None:
        return None
    goes_on, jumps = _raises(instructions, at + 1), _raises(instructions, target)
    if goes_on == jumps:
        return None
    return _JUMPS[jump.opname] if goes_on else not _JUMPS[jump.opname]


def _raises(instructions: list[dis.Instruction], at: int) -> bool:
    """Does the code from here on do nothing but raise?"""
    for instruction in instructions[at:]:
        if instruction.opname == "RAISE_VARARGS":
            return instruction.arg != 0  # else it raises again what is handled
        if not instruction.opname.startswith(_MAKES_AN_EXCEPTION):
            return False
    return False


def _is_guarded(code: types.CodeType, offset: int) -> bool:
    """Is there an ``except`` or ``finally`` around it in this function?"""
    instructions = {i.offset: i for i in dis.get_instructions(code)}
    parse: Any = dis._parse_exception_table  # type: ignore[attr-defined]
    for entry in parse(code):
        if entry.start <= offset < entry.end:
            first = instructions.get(entry.target)
            second = instructions.get(entry.target + 2)
            # Of a `with`, which the exception passes.
            is_with = (
                first is not None
                and second is not None
                and first.opname == "PUSH_EXC_INFO"
                and second.opname == "WITH_EXCEPT_START"
            )
            if not is_with:
                return True
    return False
