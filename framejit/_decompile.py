"""Residual and resume code as Python, for the log ``bytecode``.

What stands in the text is what the code does, in Python's words; it is to be
read, not run. Residual code is short: values of the stack are put back, one
instruction of the program runs, and the rest of the function is handed on. It is
walked along every way it may take, with expressions in place of a stack.
Resume code is the program's own, entered at some place: that place is named, and
what follows are the program's lines.
"""

from __future__ import annotations

import dis
import linecache
import os
import types
from collections.abc import Callable, Iterator
from typing import NamedTuple

_INDENT = "    "
_OWN_FOLDER = os.path.dirname(__file__) + os.sep
_MAX_STEPS = 400  # instructions of residual code that are walked


class _Resume(NamedTuple):
    """MAKE_FUNCTION of resume code."""

    code: types.CodeType


class _Tuple(NamedTuple):
    items: list[object]


class _Constant(NamedTuple):
    value: object


_NULL = "<NULL>"

# Instructions that take values and give one: how many they take, and what that is
# in Python. Those of one name that CPython has no longer, or not yet, are harmless.
_EXPRESSIONS: dict[str, tuple[int, str]] = {
    "BINARY_SUBSCR": (2, "{0}[{1}]"),
    "BINARY_SLICE": (3, "{0}[{1}:{2}]"),
    "CONTAINS_OP": (2, "{0} {test} {1}"),
    "IS_OP": (2, "{0} {test} {1}"),
    "COMPARE_OP": (2, "{0} {arg} {1}"),
    "BINARY_OP": (2, "{0} {arg} {1}"),
    "UNARY_NOT": (1, "not {0}"),
    "UNARY_NEGATIVE": (1, "-{0}"),
    "UNARY_POSITIVE": (1, "+{0}"),
    "UNARY_INVERT": (1, "~{0}"),
    "TO_BOOL": (1, "{0}"),
    "GET_ITER": (1, "iter({0})"),
    "GET_YIELD_FROM_ITER": (1, "iter({0})"),
    "GET_AWAITABLE": (1, "{0}.__await__()"),
    "LIST_TO_TUPLE": (1, "tuple({0})"),
    "FORMAT_SIMPLE": (1, "format({0})"),
    "FORMAT_WITH_SPEC": (2, "format({0}, {1})"),
    "CONVERT_VALUE": (1, "{arg}({0})"),
    "LOAD_ATTR": (1, "{0}.{arg}"),
    "YIELD_VALUE": (1, "yield {0}"),
}

# Instructions that take values and give none.
_STATEMENTS: dict[str, tuple[int, str]] = {
    "STORE_SUBSCR": (3, "{1}[{2}] = {0}"),
    "STORE_SLICE": (4, "{1}[{2}:{3}] = {0}"),
    "STORE_ATTR": (2, "{1}.{arg} = {0}"),
    "STORE_GLOBAL": (1, "global {arg}; {arg} = {0}"),
    "STORE_NAME": (1, "{arg} = {0}"),
    "STORE_DEREF": (1, "{arg} = {0}"),
    "DELETE_SUBSCR": (2, "del {0}[{1}]"),
    "DELETE_ATTR": (1, "del {0}.{arg}"),
    "DELETE_DEREF": (0, "del {arg}"),
    "DELETE_GLOBAL": (0, "global {arg}; del {arg}"),
    "PRINT_EXPR": (1, "{0}"),
}

# Additions to a container further down the stack, which stays there.
_ADDITIONS: dict[str, tuple[int, str]] = {
    "LIST_APPEND": (1, "{target}.append({0})"),
    "SET_ADD": (1, "{target}.add({0})"),
    "MAP_ADD": (2, "{target}[{0}] = {1}"),
    "LIST_EXTEND": (1, "{target}.extend({0})"),
    "SET_UPDATE": (1, "{target}.update({0})"),
    "DICT_UPDATE": (1, "{target}.update({0})"),
    "DICT_MERGE": (1, "{target}.update({0})"),
}

_IGNORED = {
    "RESUME", "NOP", "PRECALL", "CACHE", "MAKE_CELL", "COPY_FREE_VARS", "EXTENDED_ARG",
    "PUSH_EXC_INFO", "MAKE_FUNCTION",
}  # fmt: skip


def _name(slot: str) -> str:
    """`.s0`, a value of the stack, and `.0`, an iterator, as names."""
    if slot[1:].isdigit():
        return "iterator"
    return "value_" + slot[2:] if slot.startswith(".s") else slot.lstrip(".")


def _constant(value: object) -> str:
    """As Python has it, where that asks no code of the program."""
    if isinstance(value, tuple):
        inner = ", ".join(_constant(item) for item in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    plain = (int, float, complex, str, bytes, type(None), type(...), frozenset)
    return repr(value) if type(value) in (*plain, bool) else "<object>"


def _names(slots: list[str]) -> str:
    return ", ".join(_name(slot) for slot in slots)


def _lines_of(code: types.CodeType, offset: int) -> int:
    """The line of an instruction, 0 for none."""
    for start, end, line in code.co_lines():
        if start <= offset < end:
            return line or 0
    return 0


class _Walk:
    """The ways of residual code, from an instruction to where they end."""

    def __init__(
        self, code: types.CodeType, resume_codes: tuple[types.CodeType, ...]
    ) -> None:
        self.code = code
        self.resume_codes = resume_codes
        self.instructions = list(dis.get_instructions(code))
        self.at = {each.offset: i for i, each in enumerate(self.instructions)}
        self.lines: list[str] = []
        self.steps = 0
        self.names = 0
        self.seen: set[int] = set()

    def say(self, depth: int, text: str) -> None:
        self.lines.append(_INDENT * depth + text)

    def text(self, value: object) -> str:
        if isinstance(value, _Tuple):
            inner = ", ".join(self.text(item) for item in value.items)
            return f"({inner},)" if len(value.items) == 1 else f"({inner})"
        if isinstance(value, _Resume):
            return self.resume_name(value.code)
        if isinstance(value, _Constant):
            return _constant(value.value)
        return str(value)

    def resume_name(self, code: types.CodeType) -> str:
        if len(self.resume_codes) > 1:
            for number, each in enumerate(self.resume_codes):
                if each is code:
                    return f"resume_{number}"
        return "resume"

    def kept(self, depth: int, stack: list[object], text: str) -> None:
        """Gives the result of a step a name: a later one may change it."""
        name = f"v{self.names}"
        self.names += 1
        self.say(depth, f"{name} = {text}")
        stack.append(name)

    def handed_on(self, depth: int, value: object) -> None:
        if (
            isinstance(value, _Tuple)
            and len(value.items) >= 2
            and isinstance(value.items[1], _Resume)
        ):
            resume = value.items[1]
            args = ", ".join(self.text(item) for item in value.items[2:])
            line = goes_on_at(resume.code)
            self.say(
                depth,
                f"return {self.resume_name(resume.code)}({args})  # goes on "
                + (f"at line {line}" if line else "behind it"),
            )
        else:
            self.say(depth, f"return {self.text(value)}")

    def walk(self, offset: int, depth: int, stack: list[object]) -> None:
        index = self.at[offset]
        keywords: tuple[str, ...] = ()
        while index < len(self.instructions):
            each = self.instructions[index]
            self.steps += 1
            if self.steps > _MAX_STEPS or each.offset in self.seen:
                line = _lines_of(self.code, each.offset)
                self.say(depth, f"...  # the program's own code, from line {line} on")
                return
            self.seen.add(each.offset)
            op = each.opname
            if op.startswith("JUMP") and "IF" not in op:
                index = self.at[int(each.argval)]
                continue
            if op == "KW_NAMES":
                keywords = self.code.co_consts[each.arg or 0]
            elif "JUMP" in op or op in ("FOR_ITER", "SEND"):
                self.branch(each, depth, stack)
                return
            elif op in ("RETURN_VALUE", "RETURN_CONST"):
                value = stack.pop() if op == "RETURN_VALUE" else each.argrepr
                self.handed_on(depth, value)
                return
            elif op in ("RAISE_VARARGS", "RERAISE"):
                count = each.arg or 0 if op == "RAISE_VARARGS" else 1
                taken = [self.text(value) for value in stack[len(stack) - count :]]
                self.say(depth, ("raise " + " from ".join(taken)).rstrip())
                return
            else:
                self.step(each, depth, stack, keywords)
                if op.startswith("CALL"):
                    keywords = ()
            index += 1

    def branch(self, each: dis.Instruction, depth: int, stack: list[object]) -> None:
        op, target = each.opname, int(each.argval)
        behind = self.instructions[self.at[each.offset] + 1].offset
        if op in ("FOR_ITER", "SEND"):
            source = self.text(stack[-1])
            self.say(depth, f"for v{self.names} in {source}:  # one turn")
            self.walk(behind, depth + 1, [*stack, f"v{self.names}"])
            self.names += 1
            self.say(depth, "else:")
            # What stands there still drops the iterator on CPython 3.12 and later.
            after = [*stack] if _keeps(each) else stack[:-1]
            self.walk(target, depth + 1, after)
            return
        value = self.text(stack.pop())
        kept = "OR_POP" in op
        if "NOT_NONE" in op:
            jumps = f"{value} is not None"
        elif "IF_NONE" in op:
            jumps = f"{value} is None"
        else:
            jumps = value if "TRUE" in op else f"not {value}"
        self.say(depth, f"if {_negated(jumps)}:")
        self.walk(behind, depth + 1, list(stack))
        self.say(depth, "else:")
        self.walk(target, depth + 1, [*stack, value] if kept else list(stack))

    def step(
        self,
        each: dis.Instruction,
        depth: int,
        stack: list[object],
        keywords: tuple[str, ...],
    ) -> None:
        op, arg = each.opname, each.arg or 0

        def take(count: int) -> list[object]:
            taken = stack[len(stack) - count :] if count else []
            del stack[len(stack) - count :]
            return taken

        if op in _IGNORED:
            return
        if op in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_DEREF", "LOAD_CLOSURE"):
            stack.append(_name(each.argval))
        elif op == "LOAD_FAST_LOAD_FAST":
            stack.extend(_name(slot) for slot in each.argval)
        elif op == "LOAD_FAST_AND_CLEAR":
            stack.append(_name(each.argval))
        elif op == "STORE_FAST":
            self.store(depth, _name(each.argval), take(1)[0])
        elif op == "STORE_FAST_STORE_FAST":
            for slot in each.argval:
                self.store(depth, _name(slot), take(1)[0])
        elif op == "STORE_FAST_LOAD_FAST":
            self.store(depth, _name(each.argval[0]), take(1)[0])
            stack.append(_name(each.argval[1]))
        elif op == "DELETE_FAST":
            self.deleted(each, depth)
        elif op == "LOAD_CONST":
            value = each.argval
            stack.append(
                _Resume(value)
                if isinstance(value, types.CodeType)
                else _Constant(value)
            )
        elif op in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_CLASSDEREF"):
            if "NULL" in each.argrepr:
                stack.append(_NULL)
            stack.append(each.argval)
        elif op == "PUSH_NULL":
            stack.append(_NULL)
        elif op == "POP_TOP":
            take(1)  # what was worth a line has had one
        elif op in ("END_FOR", "POP_ITER"):
            if stack:
                take(1)
        elif op == "SWAP":
            stack[-1], stack[-arg] = stack[-arg], stack[-1]
        elif op == "COPY":
            stack.append(stack[-arg])
        elif op.startswith("BUILD_"):
            self.build(each, stack, take)
        elif op in _ADDITIONS:
            count, form = _ADDITIONS[op]
            taken = [self.text(value) for value in take(count)]
            self.say(depth, form.format(*taken, target=self.text(stack[-arg])))
        elif op == "LOAD_METHOD" or (op == "LOAD_ATTR" and "NULL" in each.argrepr):
            stack.append(f"{self.text(take(1)[0])}.{each.argval}")
            stack.append(_NULL)
        elif op in _EXPRESSIONS:
            count, form = _EXPRESSIONS[op]
            self.kept(depth, stack, self.formed(form, each, take(count)))
        elif op in _STATEMENTS:
            count, form = _STATEMENTS[op]
            self.say(depth, self.formed(form, each, take(count)))
        elif op in ("CALL", "CALL_KW", "CALL_FUNCTION_EX"):
            self.call(each, depth, stack, take, keywords)
        elif op in ("UNPACK_SEQUENCE", "UNPACK_EX"):
            count = arg if op == "UNPACK_SEQUENCE" else (arg & 0xFF) + 1 + (arg >> 8)
            names = [f"v{self.names + i}" for i in range(count)]
            self.names += count
            targets = list(names)
            if op == "UNPACK_EX":
                targets[arg & 0xFF] = "*" + targets[arg & 0xFF]
            self.say(depth, f"{', '.join(targets)} = {self.text(take(1)[0])}")
            stack.extend(reversed(names))
        elif op == "IMPORT_NAME":
            take(2)
            self.kept(depth, stack, f"__import__({each.argval!r})")
        elif op == "IMPORT_FROM":
            self.kept(depth, stack, f"{self.text(stack[-1])}.{each.argval}")
        elif op in ("BEFORE_WITH", "BEFORE_ASYNC_WITH"):
            manager = self.text(take(1)[0])
            stack.append(f"{manager}.__exit__")
            self.kept(depth, stack, f"{manager}.__enter__()")
        elif op == "FORMAT_VALUE":
            parts = take(2 if arg & 4 else 1)
            convert = ("", "str", "repr", "ascii")[arg & 3]
            inner = (
                f"{convert}({self.text(parts[0])})" if convert else self.text(parts[0])
            )
            self.kept(
                depth,
                stack,
                f"format({', '.join([inner, *map(self.text, parts[1:])])})",
            )
        else:
            self.unknown(each, depth, stack)

    def formed(self, form: str, each: dis.Instruction, taken: list[object]) -> str:
        test = {"CONTAINS_OP": ("in", "not in"), "IS_OP": ("is", "is not")}
        arg = each.argrepr
        if each.opname in ("LOAD_ATTR", "STORE_ATTR", "DELETE_ATTR"):
            arg = str(each.argval)
        word = test.get(each.opname, ("", ""))[(each.arg or 0) & 1]
        return form.format(*map(self.text, taken), arg=arg, test=word)

    def store(self, depth: int, name: str, value: object) -> None:
        text = self.text(value)
        if text in (name, _NULL):
            return
        just = f"{_INDENT * depth}{text} = "
        if text.startswith("v") and self.lines[-1].startswith(just):
            text = self.lines.pop()[len(just) :]  # its name for one line
        self.say(depth, f"{name} = {text}")

    def deleted(self, each: dis.Instruction, depth: int) -> None:
        # Of what was just loaded: the value moves. The rest are variables that have
        # no value there.
        before = self.instructions[self.at[each.offset] - 1]
        moves = before.opname.startswith("LOAD_FAST") and before.argval == each.argval
        if not moves:
            self.say(depth, f"del {_name(each.argval)}")

    def build(
        self,
        each: dis.Instruction,
        stack: list[object],
        take: Callable[[int], list[object]],
    ) -> None:
        op, arg = each.opname, each.arg or 0
        if op == "BUILD_TUPLE":
            stack.append(_Tuple(take(arg)))
            return
        if op == "BUILD_MAP":
            taken = [self.text(value) for value in take(2 * arg)]
            pairs = zip(taken[::2], taken[1::2], strict=True)
            stack.append("{" + ", ".join(f"{k}: {v}" for k, v in pairs) + "}")
            return
        if op == "BUILD_CONST_KEY_MAP":
            take(1)
        inner = ", ".join(self.text(value) for value in take(arg))
        form = {
            "BUILD_LIST": "[{}]",
            "BUILD_SET": "{{{}}}",
            "BUILD_STRING": "''.join(({}))",
            "BUILD_SLICE": "slice({})",
        }.get(op, op.lower() + "({})")
        stack.append(form.format(inner))

    def call(
        self,
        each: dis.Instruction,
        depth: int,
        stack: list[object],
        take: Callable[[int], list[object]],
        keywords: tuple[str, ...],
    ) -> None:
        op, arg = each.opname, each.arg or 0
        if op == "CALL_FUNCTION_EX":
            parts = [self.text(value) for value in take(1 + (arg & 1))]
            given = ["*" + parts[0], *("**" + other for other in parts[1:])]
        else:
            if op == "CALL_KW":
                names = take(1)[0]
                keywords = getattr(names, "value", ())
            values = [self.text(value) for value in take(arg)]
            count = len(values) - len(keywords)
            named = zip(keywords, values[count:], strict=True)
            given = values[:count]
            given += [f"{name}={value}" for name, value in named]
        pair = take(2) if len(stack) >= 2 else take(len(stack))
        callee = [self.text(value) for value in pair if value != _NULL]
        # A bound method, loaded in two: the function and what it is bound to.
        given = callee[1:] + given
        self.kept(depth, stack, f"{callee[0] if callee else '?'}({', '.join(given)})")

    def unknown(self, each: dis.Instruction, depth: int, stack: list[object]) -> None:
        """As the disassembly has it; what it leaves has names of its own."""
        effect = (
            dis.stack_effect(each.opcode, each.arg, jump=False)
            if (each.opcode >= dis.HAVE_ARGUMENT)
            else dis.stack_effect(each.opcode)
        )
        self.say(depth, f"# {each.opname} {each.argrepr}".rstrip())
        for _ in range(-effect):
            if stack:
                stack.pop()
        for _ in range(effect):
            stack.append(f"v{self.names}")
            self.names += 1


def _keeps(each: dis.Instruction) -> bool:
    """Does FOR_ITER leave its iterator where it jumps to? (CPython 3.12 on)"""
    return dis.stack_effect(each.opcode, each.arg, jump=True) >= 0


def _negated(condition: str) -> str:
    if condition.startswith("not "):
        return condition[4:]
    if condition.endswith(" is not None"):
        return condition.removesuffix(" is not None") + " is None"
    if condition.endswith(" is None"):
        return condition.removesuffix(" is None") + " is not None"
    return "not " + condition


def _entry(code: types.CodeType) -> int:
    """Where resume code enters the program's: behind its prologue's jump."""
    for each in dis.get_instructions(code):
        if each.opname == "JUMP_FORWARD":
            return int(each.argval)
        if each.opname in ("RETURN_VALUE", "RETURN_CONST"):
            break
    return 0


def goes_on_at(code: types.CodeType) -> int:
    """The line at which resume code enters the program's, 0 for none."""
    return _lines_of(code, _entry(code))


def _program_lines(code: types.CodeType, first: int) -> Iterator[str]:
    last = max((line or 0 for _, _, line in code.co_lines()), default=0)
    lines = linecache.getlines(code.co_filename)
    for number in range(first, min(last, len(lines)) + 1):
        yield f"{number:>5}  {lines[number - 1].rstrip()}"


def residual_as_python(
    code: types.CodeType, resume_codes: tuple[types.CodeType, ...]
) -> str:
    """What residual code does: one instruction of the program, and how it goes on."""
    params = [*code.co_varnames[: code.co_argcount]]
    walk = _Walk(code, resume_codes)
    walk.say(0, f"def residual({_names(params)}):")
    line = _lines_of(code, 0)
    source = linecache.getline(code.co_filename, line).strip()
    walk.say(1, f"# of line {line}" + (f": {source}" if source else ""))
    walk.walk(0, 1, [])
    return "\n".join(walk.lines)


def resume_as_python(code: types.CodeType) -> str:
    """Where resume code goes on, and the program's lines from there."""
    params = [*code.co_varnames[: code.co_argcount]]
    free = [name for name in params if name.startswith(".s")]
    line = goes_on_at(code)
    lines = [f"def resume({_names(params)}):"]
    where = f"line {line}" if line else "the place of the break"
    values = f", with {_names(free)} on the stack" if free else ""
    lines.append(f"{_INDENT}# goes on at {where} of {code.co_name}{values}")
    if line:
        lines.extend(_program_lines(code, line))
    return "\n".join(lines)


def as_python(
    residual: types.CodeType, resume_codes: tuple[types.CodeType, ...]
) -> list[str]:
    """The residual code of an entry and its resume codes, as Python to be read; "" of
    what stands for the program's code and is ours."""
    if residual.co_filename.startswith(_OWN_FOLDER):
        return [""] * (1 + len(resume_codes))
    return [
        residual_as_python(residual, resume_codes),
        *(resume_as_python(code) for code in resume_codes),
    ]
