"""Every kind of object that comes in, and every way to change it.

For each row an object is made outside, changed inside a compiled function
between two tensor operations, and compared afterwards with eager's: what the
function returned or raised, and the object. Twice with one object, and with a
second one; also when the function raises after the change. The methods that
change a builtin object are all in the rows: the last test walks the types.
"""

from __future__ import annotations

import re
import textwrap
import types
from typing import Any

import effect_objects
import effect_rows
import effect_rows_library
import effect_rows_methods
import pytest
import torch
from effect_changes import ROWS

import framejit

# Importing them fills the table.
_ROWS = (effect_rows, effect_rows_library, effect_rows_methods)
NAMES = vars(effect_objects)


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return "tensor", value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [shown(item) for item in value]
    if isinstance(value, dict):
        items = [(shown(k), shown(v)) for k, v in value.items()]
        return type(value).__name__, items
    return re.sub(r"0x[0-9a-f]+", "0x", repr(value))


def function_of(change: str, raises: bool):
    end = "    raise KeyError(7)\n" if raises else ""
    source = (
        "def f(x, o):\n    r = None\n    y = x + 1\n"
        + textwrap.indent(change, "    ")
        + f"\n    y = y * 2\n{end}    return y, r\n"
    )
    made: dict[str, Any] = {}
    exec(compile(source, "<row>", "exec"), NAMES, made)
    return made["f"]


def outcomes(fn, setup: str, look: str, before: str) -> list[Any]:
    found = []
    for _ in range(2):
        exec(before, NAMES)
        o = NAMES["o"] = eval(setup, NAMES)
        for _ in range(2):
            try:
                result = shown(fn(torch.ones(2), o))
            except Exception as error:
                causes = (
                    type(error.__cause__).__name__,
                    type(error.__context__).__name__,
                )
                result = type(error).__name__, str(error), causes
            try:
                seen = shown(eval(look, NAMES, {"o": o}))
            except Exception as error:
                seen = repr(error)
            found.append((result, seen))
            if "list(o)" in look and "iter" in setup:
                break  # looking took its items
    return found


@pytest.mark.parametrize(
    ("raises", "backend"),
    ((False, "eager"), (False, "native"), (True, "native")),
    ids=("eager", "native", "raises"),
)
@pytest.mark.parametrize(
    ("setup", "change", "look", "before"), ROWS, ids=lambda text: str(text)[:60]
)
def test_effect_on_an_input(setup, change, look, before, raises, backend):
    fn = function_of(change, raises)
    expected = outcomes(fn, setup, look, before)
    compiled = framejit.compile(fn, backend=backend)
    assert outcomes(compiled, setup, look, before) == expected


# Names in types whose use changes nothing of the object (or makes another one, or
# is its end).
HARMLESS = """
__firstlineno__ __static_attributes__
__del__ __add__ __alloc__ __and__ __await__ __buffer__ __class_getitem__ __contains__ __copy__
__deepcopy__ __dict__ __getitem__ __getnewargs__ __iter__ __len__ __length_hint__
__missing__ __mod__ __module__ __mul__ __neg__ __or__ __pos__ __rand__
__release_buffer__ __reversed__
__rmod__ __rmul__ __ror__ __rsub__ __rxor__ __sub__ __weakref__ __xor__
_checkClosed _checkReadable _checkSeekable _checkWritable _from_flags
buffer_info c_contiguous capitalize center closed contiguous copy count decode derive detach
encoding endswith errors exceptions expandtabs f_contiguous fileno find format
from_iterable fromhex fromkeys get getvalue hex index isalnum isalpha isascii isatty isdigit isdisjoint
islower isspace issubset issuperset istitle isupper items itemsize join keys
line_buffering ljust locked locked_lock lower lstrip maketrans mapping maxlen message
nbytes ndim newlines obj partition readable readonly removeprefix removesuffix
replace rfind rindex rjust rpartition rsplit rstrip seekable shape split splitlines
startswith strides strip suboffsets subgroup swapcase tell title tobytes tofile tolist
total tounicode translate typecode union upper values writable zfill
""".split()
# An operator that calls the method, and is in the rows in its place.
OPERATORS = {
    "__iadd__": "o+=",
    "__iand__": "o&=",
    "__imul__": "o*=",
    "__ior__": "o|=",
    "__isub__": "o-=",
    "__ixor__": "o^=",
}


def kinds() -> dict[type, list[str]]:
    """Of the types written in C: the changes that rows make to an object."""
    found: dict[type, list[str]] = {}
    for setup, change, _, before in ROWS:
        exec(before, NAMES)
        NAMES["o"] = eval(setup, NAMES)
        found.setdefault(type(NAMES["o"]), []).append(change)
    # What is known by other means: functions, classes and modules have no
    # methods but attributes; frames and tracebacks are opaque.
    named = ("builtins", "collections", "itertools", "array", "_io", "_thread")
    others = "function type module method property staticmethod classmethod cell "
    others += "frame traceback slice tuple iterator coroutine generator _local RLock"
    return {
        kind: changes
        for kind, changes in found.items()
        if kind.__module__ in named
        and kind.__name__ not in others.split()
        and not kind.__flags__ & 1 << 9  # a heap type of Python code: ChainMap
        or kind.__name__ == "Counter"
    }


def test_every_method_has_a_row():
    missing = []
    for kind, changes in kinds().items():
        text = "\n".join(changes)
        # What all exceptions have is in the rows of some of them.
        names = vars(kind) if issubclass(kind, BaseException) else dir(kind)
        for name in names:
            if name in dir(object) or name in HARMLESS:
                continue
            if f".{name}" in text or OPERATORS.get(name, "?") in text:
                continue
            if name == "__next__" and "next(o)" in text:
                continue
            if isinstance(vars(kind).get(name), types.MemberDescriptorType) and (
                issubclass(kind, BaseException)
            ):
                continue  # fields of one exception type, alike for all
            missing.append(f"{kind.__name__}.{name}")
    assert not missing


def test_stop_iteration_keeps_the_value():
    def f(x):
        def numbers():
            yield 1
            return x

        made = numbers()
        next(made)
        try:
            next(made)
        except StopIteration as stop:
            return stop.value * 2, stop.value is x

    x = torch.ones(2)
    assert shown(framejit.compile(f, fullgraph=True)(x)) == shown(f(x))
