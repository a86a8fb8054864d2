"""Branches that are asserts, as the bytecode says.

``assert x.shape[0] == y.shape[0]`` is a branch on a value that no trace knows. What is
asserted is known, though: it holds, or the program ends. So the graph asserts it.
"""

from __future__ import annotations

import dis
import types

__all__ = ["asserted_truth"]


def _jump_at(frame: types.FrameType) -> tuple[list[dis.Instruction], int] | None:
    """The instructions, and which of them is the jump that asks for a truth."""
    instructions = list(dis.get_instructions(frame.f_code))
    for at, instruction in enumerate(instructions):
        if instruction.offset == frame.f_lasti:
            if instruction.opname == "TO_BOOL":  # 3.13
                at += 1
            found = instructions[at]
            return (instructions, at) if found.opname in _JUMPS else None
    return None


_JUMPS = {
    f"POP_JUMP{direction}_IF_{truth}": truth == "TRUE"
    for direction in ("", "_FORWARD")
    for truth in ("TRUE", "FALSE")
}


def asserted_truth(frame: types.FrameType) -> bool | None:
    """The truth with which the assert that the frame is at holds; None: it is at none.

    `frame` is asking for the truth of a value.
    """
    found = _jump_at(frame)
    if found is None:
        return None
    instructions, at = found
    jumps_if = _JUMPS[instructions[at].opname]
    if at + 1 < len(instructions) and _fails(instructions[at + 1]):
        return jumps_if
    target = next(
        (i for i in instructions if i.offset == instructions[at].argval), None
    )
    if target is not None and _fails(target):
        return not jumps_if
    return None


def _fails(instruction: dis.Instruction) -> bool:
    return instruction.opname == "LOAD_ASSERTION_ERROR"
