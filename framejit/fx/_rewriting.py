"""Frames of a traced program run from bytecode whose calls ask the tracer first.

    LOAD_GLOBAL  (NULL + len)              LOAD_GLOBAL  (NULL + 'len, asked')
    LOAD_GLOBAL  torch                ->   LOAD_GLOBAL  (NULL + 'torch.zeros, asked')
    LOAD_METHOD  zeros                     NOP

C functions such as ``len``, ``int``, ``isinstance`` and ``torch.zeros`` cannot take a
proxy: they want a number or a real tensor. In a function that calls one, the loads
of what is called, and only those, become loads of other names. These are found
among the builtins that such a function has, and what stands there (``answers.py``)
asks the tracer where a proxy is among the arguments, and calls the original
elsewhere. ``int`` that is no call (``isinstance(x, int)``) stays what it is, no
module is changed, and no other thread sees anything of it. Instructions keep their
places, so lines, jumps and exception tables hold.

A name is looked up again for each frame: where the program means another ``len``,
its own is called.
"""

from __future__ import annotations

import builtins
import dis
import os
import sys
import types
import weakref
from typing import Any, NamedTuple

import torch

from framejit._C import _fx
from framejit.fx._answers import ANSWERS, asked_is, asked_match
from framejit.fx._expanding import IS_ASKED, MATCH_ASKED, expanded

__all__ = ["begin", "twin_of"]

_LOAD_GLOBAL = dis.opmap["LOAD_GLOBAL"]
_EXTENDED_ARG = dis.opmap["EXTENDED_ARG"]
_NOP = dis.opmap["NOP"]
# That of a method to be called; from 3.12 on the low bit of LOAD_ATTR says so.
# (dis lists a LOAD_METHOD there, too, which no code has.)
_LOAD_METHOD = dis.opmap["LOAD_METHOD"] if sys.version_info < (3, 12) else None
_LOAD_ATTR = dis.opmap["LOAD_ATTR"]
_NOT_THE_PROGRAMS = (os.path.dirname(__file__), os.path.dirname(torch.__file__))

_NAMES = {answer.name.rpartition(".")[2] for answer in ANSWERS.values()}
# The builtins of functions that are rewritten; made what they are now by each trace.
_builtins = {f"{answer.name}, asked": answer.asked for answer in ANSWERS.values()}
_builtins |= {IS_ASKED: asked_is, MATCH_ASKED: asked_match}


class _Load(NamedTuple):
    """A load of what is called."""

    at: int  # offset of the LOAD_GLOBAL
    end: int  # where the next instruction begins
    name: str
    attribute: str | None


class _Plan:
    """What may be rewritten in a code, and what it became."""

    def __init__(self, code: types.CodeType) -> None:
        self.loads = _loads(code)
        # By the answers that the loads have.
        self.made: dict[tuple[str | None, ...], types.CodeType | None] = {}


def _loads(code: types.CodeType) -> list[_Load]:
    found = []
    instructions = list(dis.get_instructions(code))
    offsets = [i.offset for i in instructions] + [len(code.co_code)]
    for at, this in enumerate(instructions):
        if this.opcode != _LOAD_GLOBAL or this.arg is None or this.arg > 255:
            continue
        pushes_null = bool(this.arg & 1)
        after = instructions[at + 1] if at + 1 < len(instructions) else None
        if after is None:
            continue
        if (is_method := _loads_method(after)) is not None:
            # One of the two pushes the NULL of a call.
            if (
                pushes_null != is_method
                and not after.is_jump_target
                and _is_called(instructions, at + 1)
            ):
                end = offsets[at + 2]
                found.append(_Load(this.offset, end, this.argval, after.argval))
        elif pushes_null and _is_called(instructions, at):
            found.append(_Load(this.offset, offsets[at + 1], this.argval, None))
    return found


def _loads_method(instruction: dis.Instruction) -> bool | None:
    """Of a load of an attribute: is it to be called, with what it is of?"""
    if instruction.opcode == _LOAD_METHOD:
        return True
    if instruction.opcode == _LOAD_ATTR:
        return _LOAD_METHOD is None and bool((instruction.arg or 0) & 1)
    return None


def _is_called(instructions: list[dis.Instruction], at: int) -> bool:
    """Is what this instruction loads called as it is, not a part or item of it?"""
    above = 0
    for this in instructions[at + 1 :]:
        name = this.opname
        if name.startswith(_TO_A_CALL):
            return True
        if above < 1 + name.startswith(("BINARY", "COMPARE", "CONTAINS", "IS_OP")) and (
            not name.startswith(_ONLY_PUSHES)
        ):
            return False
        above += dis.stack_effect(
            this.opcode, this.arg if this.opcode >= dis.HAVE_ARGUMENT else None
        )
    return False


# The arguments come before a call; what is called is not asked in between.
_TO_A_CALL = ("CALL", "PRECALL", "KW_NAMES", "JUMP", "POP_JUMP", "FOR_ITER", "SEND")
_ONLY_PUSHES = (
    *("LOAD_FAST", "LOAD_CONST", "LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF"),
    *("LOAD_CLOSURE", "LOAD_ASSERTION_ERROR", "PUSH_NULL", "NOP", "EXTENDED_ARG"),
    *("CACHE", "COPY", "MAKE_CELL", "BUILD", "RESUME"),
)


def _answer_to(load: _Load, names: dict[str, Any]) -> str | None:
    """The name of the answer for what is called there, if there is one."""
    value = names.get(load.name, vars(builtins).get(load.name))
    if load.attribute is not None:
        if not isinstance(value, types.ModuleType):
            return None
        value = vars(value).get(load.attribute)
    answer = ANSWERS.get(id(value))
    return answer.name if answer is not None else None


def _rewritten(
    code: types.CodeType, plan: _Plan, answers: tuple[str | None, ...]
) -> types.CodeType | None:
    if not any(answers):
        return None
    names = list(code.co_names)
    text = bytearray(code.co_code)
    for load, answer in zip(plan.loads, answers, strict=True):
        if answer is None:
            continue
        name = f"{answer}, asked"
        if name not in names:
            names.append(name)
        index = names.index(name)
        if index > 127:  # no room in the instruction: what it cannot do is refused
            continue
        text[load.at + 1] = index << 1 | 1
        if load.attribute is not None:
            # (The caches of the load stay behind it.)
            first = load.at + 2 + 2 * _caches_of_load_global()
            for at in range(first, load.end, 2):
                text[at : at + 2] = bytes((_NOP, 0))
    return code.replace(co_code=bytes(text), co_names=tuple(names))


def _caches_of_load_global() -> int:
    table = getattr(dis, "_inline_cache_entries", None)
    if isinstance(table, dict):  # 3.13
        return int(table["LOAD_GLOBAL"])
    return int(table[_LOAD_GLOBAL])  # type: ignore[index]


# (Code of graph modules is made and goes.)
_plans: weakref.WeakKeyDictionary[types.CodeType, _Plan] = weakref.WeakKeyDictionary()


def twin_of(
    expands: bool, sets: types.FunctionType, function: types.FunctionType
) -> types.FunctionType | None:
    """A function whose calls ask the tracer, or None where none needs to.

    expands: ``is`` and ``match`` are asked about, too, since examples answer.
    sets: what assigns attributes of modules.
    """
    code = function.__code__
    if function is torch.nn.Module.__setattr__:
        return sets
    if code.co_filename.startswith(_NOT_THE_PROGRAMS):
        return None
    names = function.__globals__
    asks = _expanded_of(code) if expands else None
    if asks is not None:
        code = asks
    elif not any(
        name in _NAMES or id(names.get(name)) in ANSWERS for name in code.co_names
    ):
        return None
    plan = _plans.get(code)
    if plan is None:
        plan = _plans[code] = _Plan(code)
    answers = tuple([_answer_to(load, names) for load in plan.loads])
    if answers not in plan.made:
        plan.made[answers] = _rewritten(code, plan, answers)
    new = plan.made[answers] or asks
    if new is None:
        return None
    twin = types.FunctionType(
        new, names, function.__name__, function.__defaults__, function.__closure__
    )
    twin.__kwdefaults__ = function.__kwdefaults__
    twin.__qualname__ = function.__qualname__
    _fx.set_builtins(twin, _builtins)
    return twin


_expanded: dict[types.CodeType, types.CodeType | None] = {}


def _expanded_of(code: types.CodeType) -> types.CodeType | None:
    if code not in _expanded:
        _expanded[code] = expanded(code)
    return _expanded[code]


def begin() -> None:
    """A trace begins: the builtins are those that there are now."""
    _builtins.update(vars(builtins))
