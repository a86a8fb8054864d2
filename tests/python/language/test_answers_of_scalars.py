"""C code is given numbers, text, tuples and members of enums whose classes have methods.

Such an object is known by its identity, but what C code makes of it its class says:
by methods that it has, or gets between two calls. Every expression below with every
class, each method of the list set on the class between calls: results, errors and
what was asked are eager's.
"""

from __future__ import annotations

import bisect
import collections
import copy
import enum
import math
import operator
import re
from typing import Any

import pytest
import torch

import framejit

LOG: list[str] = []
MODULES = {m.__name__: m for m in (bisect, copy, math, operator, re)}
ANSWERS: dict[str, Any] = {
    "__str__": "text",
    "__repr__": "words",
    "__format__": "form",
    "__eq__": False,
    "__hash__": 11,
    "__lt__": True,
    "__bool__": False,
    "__index__": 2,
    "__int__": 3,
    "__float__": 4.5,
    "__complex__": 5j,
    "__len__": 1,
    "__floor__": 6,
    "__add__": 7,
    "__radd__": 8,
    "__rmod__": 9,
    "__rmul__": 10,
    "__contains__": True,
    "__iter__": lambda: iter([13, 14]),
}


def answering(name: str) -> Any:
    def method(self: Any, *args: Any) -> Any:
        LOG.append(name)
        answer = ANSWERS[name]
        return answer() if callable(answer) else answer

    return method


def make_int() -> Any:
    return type("Number", (int,), {})(1)


def make_float() -> Any:
    return type("Real", (float,), {})(1.0)


def make_str() -> Any:
    return type("Text", (str,), {})("a")


def make_bytes() -> Any:
    return type("Bytes", (bytes,), {})(b"a")


def make_int_enum() -> Any:
    return enum.IntEnum("Level", {"LOW": 1, "HIGH": 2}).LOW


def make_str_enum() -> Any:
    return enum.Enum("Name", {"A": "a", "B": "b"}, type=str).A


def make_flag() -> Any:
    return enum.Flag("Flags", {"A": 1, "B": 2}).A


def make_tuple() -> Any:
    return type("Pair", (tuple,), {})((1, 2))


def make_named_tuple() -> Any:
    return collections.namedtuple("Point", "a b")(1, 2)


def make_frozenset() -> Any:
    return type("Few", (frozenset,), {})((1, 2))


def make_object() -> Any:
    return type("Thing", (), {})()


KINDS = [
    make_int,
    make_float,
    make_str,
    make_bytes,
    make_int_enum,
    make_str_enum,
    make_flag,
    make_tuple,
    make_named_tuple,
    make_frozenset,
    make_object,
]
EXPRESSIONS = """
"%s" % v
"%r" % (v,)
"%d" % v
"%(a)s" % {"a": v}
b"%b" % v
"{}".format(v)
"{:>4}".format(v)
"-".join(["b", v])
"abc".replace("a", v)
"abc".find(v)
complex(v)
complex(1, v)
math.sqrt(v)
math.floor(v)
math.hypot(v, 1)
math.fsum([v, 1])
math.isclose(v, 1)
math.dist([v], [1])
math.gcd(v, 4)
math.prod([v, 2.0])
sum([v, 2])
sum([1.5, v])
operator.index(v)
operator.truth(v)
[1, v].count(1)
[1, v].index(v)
(1, v) == (1, 1)
chr(v)
hex(v)
(5).__add__(v)
(5).to_bytes(v, "little")
re.compile("a").match(v)
re.escape(v)
bytes(v)
int.from_bytes(v, "little")
math.fsum(v)
math.dist(v, v)
bisect.bisect_left(v, 2)
operator.length_hint(v)
operator.countOf(v, 1)
"abc".translate(v)
tuple.__eq__(v, (1, 2))
(5).__eq__(v)
repr([v])
repr(Exception(v))
{"a": 1}.keys() | v
{"a": 1}.keys() & v
v != 1
copy.copy(v) == v
list(copy.copy(v))
copy.deepcopy([v]) == [v]
x * v
x.new_tensor(v)
x.new_full((2,), v)
torch.full((2,), v)
torch.tensor([v])
""".strip().splitlines()


def outcome(fn: Any, v: Any) -> Any:
    LOG.clear()
    try:
        result = fn(v, torch.ones(2))
    except Exception as error:
        return type(error), re.sub("0x[0-9a-f]+", "", str(error)), list(LOG)
    log = list(LOG)
    if isinstance(result, torch.Tensor):
        return result.tolist(), result.dtype, log
    return type(result), result.span() if isinstance(result, re.Match) else result, log


@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__[5:])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_answers_of_scalars(expression: str, make: Any) -> None:
    namespace: dict[str, Any] = {"torch": torch, **MODULES}
    exec(f"def fn(v, x):\n    return {expression}", namespace)
    fn = namespace["fn"]
    for name in ANSWERS:
        framejit.reset()
        compiled = framejit.compile(fn, backend="eager")
        v = make()
        outcome(compiled, v)
        setattr(type(v), name, answering(name))
        for _ in range(2):
            assert outcome(compiled, v) == outcome(fn, v), name
        delattr(type(v), name)
        assert outcome(compiled, v) == outcome(fn, v), name
