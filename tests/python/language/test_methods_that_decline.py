"""Operators of classes that the program derives from builtin ones.

A class may define an operator's method, its reflected one, the one in place, each
of which answers, declines (NotImplemented) or is None; what is left the builtin
base answers in C, in place too, and so may the other operand's type. Every base
with every operator and a sample of such classes, against eager: the value, its
type, whether it is the operand itself, what became of the operand, the exception.
"""

from __future__ import annotations

import collections
import random
from typing import Any

import numpy as np
import pytest
import torch

import framejit

BASES: dict[str, tuple[type, Any]] = {
    "int": (int, 6),
    "float": (float, 2.5),
    "complex": (complex, 1 + 2j),
    "str": (str, "a%s"),
    "bytes": (bytes, b"b"),
    "bytearray": (bytearray, b"b"),
    "list": (list, [1, 2]),
    "tuple": (tuple, (1, 2)),
    "dict": (dict, {"a": 1}),
    "OrderedDict": (collections.OrderedDict, {"a": 1}),
    "set": (set, {1, 2}),
    "frozenset": (frozenset, {1, 2}),
    "deque": (collections.deque, [1, 2]),
    "object": (object, None),
}
BINARY = {
    "add": "+",
    "sub": "-",
    "mul": "*",
    "truediv": "/",
    "floordiv": "//",
    "mod": "%",
    "pow": "**",
    "lshift": "<<",
    "rshift": ">>",
    "and": "&",
    "or": "|",
    "xor": "^",
    "matmul": "@",
}
COMPARE = {
    "eq": ("eq", "=="),
    "ne": ("ne", "!="),
    "lt": ("gt", "<"),
    "le": ("ge", "<="),
    "gt": ("lt", ">"),
    "ge": ("le", ">="),
}
KINDS = ["absent", "absent", "answers", "declines", "declines", "none"]
PLAIN = [2, 2.5, True, 1j, "c", b"b", (1,), frozenset({2}), None]


def plain(choose: random.Random) -> Any:
    """Something that no class of the program is about."""
    made = [lambda: [1, 2], lambda: {1}, lambda: {"a": 2}, lambda: np.float64(3)]
    made += [lambda: np.int64(2), lambda: collections.deque([3])]
    return choose.choice([*(lambda v=v: v for v in PLAIN), *made])()


def with_methods(base: type, methods: dict[str, str]) -> type:
    body: dict[str, Any] = {}
    for name, kind in methods.items():
        if kind == "answers":
            body[name] = lambda self, other, name=name: (name, type(other).__name__)
        elif kind == "declines":
            body[name] = lambda self, other: NotImplemented
        elif kind == "none":
            body[name] = None
    if "__eq__" in body:
        body["__hash__"] = base.__hash__
    if base is object:  # whose text is an address
        body["__repr__"] = lambda self: type(self).__name__
    return type("Own" + base.__name__.title(), (base,), body)


def made(cls: type, content: Any) -> Any:
    return cls() if content is None else cls(content)


def shown(value: Any) -> Any:
    return type(value).__name__, repr(value) if type(value) is not object else ""


def outcome(fn: Any, operands: Any) -> Any:
    a, b = operands()
    found = fn(torch.ones(1), a, b)[1]
    text = found if isinstance(found, str) else ""
    return shown(found), found is a, shown(a), shown(b), text


def check(source: str, operands: Any, words: Any) -> None:
    names: dict[str, Any] = {}
    exec(source, names)
    expected = outcome(names["f"], operands)
    framejit.reset()
    compiled = framejit.compile(names["f"], backend="eager")
    for _ in range(2):
        assert outcome(compiled, operands) == expected, (source, words)


def program(statement: str) -> str:
    return (
        "def f(x, a, b):\n"
        "    try:\n"
        f"        {statement}\n"
        "    except (TypeError, ValueError) as error:\n"
        "        r = 'raised ' + str(error)\n"
        "    return x * 2, r\n"
    )


def sides(choose: random.Random, base: str, methods: list[str]) -> Any:
    """Operands, at least one of a class of the program; and words for them."""
    kinds = [{m: choose.choice(KINDS) for m in methods} for _ in range(2)]
    first, content = BASES[base]
    other = choose.choice(["plain", "same class", "subclass", base, "object", "any"])
    if other == "any":
        other = choose.choice(list(BASES))
    swapped = choose.random() < 0.5
    number = choose.random()

    def operands() -> tuple[Any, Any]:
        cls = with_methods(first, kinds[0])
        a = made(cls, content)
        if other == "plain":
            b = plain(random.Random(number))
        elif other == "same class":
            b = made(cls, content)
        elif other == "subclass":
            b = made(with_methods(cls, kinds[1]), content)
        else:
            b = made(with_methods(BASES[other][0], kinds[1]), BASES[other][1])
        return (b, a) if swapped else (a, b)

    return operands, (other, swapped, kinds)


@pytest.mark.parametrize("operator", BINARY)
@pytest.mark.parametrize("base", BASES)
def test_binary(base: str, operator: str) -> None:
    choose = random.Random(f"{base} {operator}")
    methods = [f"__{operator}__", f"__r{operator}__", f"__i{operator}__"]
    symbol = BINARY[operator]
    for _ in range(20):
        operands, words = sides(choose, base, methods)
        check(program(f"r = a {symbol} b"), operands, words)
        check(program(f"r = a; r {symbol}= b"), operands, words)


@pytest.mark.parametrize("operator", COMPARE)
@pytest.mark.parametrize("base", BASES)
def test_comparison(base: str, operator: str) -> None:
    choose = random.Random(f"{base} {operator}")
    reflected, symbol = COMPARE[operator]
    methods = list(dict.fromkeys([f"__{operator}__", f"__{reflected}__", "__eq__"]))
    for _ in range(20):
        operands, words = sides(choose, base, methods)
        check(program(f"r = a {symbol} b"), operands, words)
        check(program("r = (a in [b], [b, 1].count(a))"), operands, words)
