"""Classes derived from builtin ones whose methods C code asks: with their attributes.

C code that gets an object of the program gets a copy of it, which has none of its
attributes. What it asks such an object is asked of the object itself, or breaks.
"""

from __future__ import annotations

import collections
import math

import pytest
import torch

import framejit


def methods(scale):
    """Each answers by an attribute of the instance, or of the class."""
    return {
        "__float__": lambda self: float(getattr(self, scale)),
        "__int__": lambda self: int(getattr(self, scale)),
        "__index__": lambda self: int(getattr(self, scale)),
        "__bool__": lambda self: getattr(self, scale) > 5,
        "__repr__": lambda self: f"<{getattr(self, scale)}>",
        "__str__": lambda self: f"({getattr(self, scale)})",
        "__format__": lambda self, spec: f"{getattr(self, scale)}:{spec}",
        "__eq__": lambda self, other: getattr(self, scale) == getattr(other, scale, 4),
        "__lt__": lambda self, other: getattr(self, scale) < getattr(other, scale, 4),
        "__hash__": lambda self: getattr(self, scale),
        "__round__": lambda self, n=0: getattr(self, scale),
        "__trunc__": lambda self: getattr(self, scale),
        "__floor__": lambda self: getattr(self, scale),
        "__complex__": lambda self: complex(getattr(self, scale)),
        "__add__": lambda self, other: getattr(self, scale),
        "__len__": lambda self: getattr(self, scale),
        "__iter__": lambda self: iter([getattr(self, scale)]),
        "__contains__": lambda self, item: getattr(self, scale) == item,
        "__getitem__": lambda self, key: getattr(self, scale),
    }


BASES = {
    "list": (list, ([1, 2],)),
    "dict": (dict, ({"a": 1},)),
    "OrderedDict": (collections.OrderedDict, ({"a": 1},)),
    "Counter": (collections.Counter, ("ab",)),
    "defaultdict": (collections.defaultdict, (int, {"a": 1})),
    "set": (set, ([1],)),
    "frozenset": (frozenset, ([1],)),
    "deque": (collections.deque, ([1, 2],)),
    "tuple": (tuple, ((1, 2),)),
    "int": (int, (3,)),
    "float": (float, (2.5,)),
    "str": (str, ("a",)),
}
EXPRESSIONS = [
    "str([a])", "f'{(a,)}'", "'%s' % a", "'%s' % (a,)", "'%d' % a", "'{}'.format(a)",
    "repr((a,))", "str({1: a})", "repr([[a]])", "f'{[a]} {a}'", "str({'k': [a]})",
    "{1: a} == {1: b}", "[a] == [b]", "(a, 1) == (b, 1)", "[[a]] == [[b]]",
    "dict(k=a) == dict(k=b)", "[a, b].index(b)", "(b, a).count(a)", "a in [b]",
    "a in {1: b}.values()", "(a, 1) < (b, 2)", "[a] < [b]", "sorted([b, a]) == [a, b]",
    "max([a, b]) is a", "min(a, b) is a", "{a: 1}[b]", "{a} == {b}", "len({a, b})",
    "hash((a,)) == hash((b,))", "collections.Counter([a, b])[a]",
    "math.sqrt(a)", "math.pow(a, 2)", "math.floor(a)", "math.gcd(a, 6)", "math.comb(a, 2)",
    "math.isclose(a, b)", "math.hypot(a, b)", "math.fsum([a, b])", "math.trunc(a)",
    "complex(a)", "float(a)", "int(a)", "bool(a)", "round(a)", "range(a)", "list(range(a))",
    "bytes(a)", "hex(a)", "bin(a)", "chr(a)", "'ab' * a", "[0] * a", "round(2.345, a)",
    "(5).to_bytes(a, 'big')", "'xab'.find('a', a)", "'a'.ljust(a)", "'a'.zfill(a)",
    "(0, 1, 2).index(1, a) if a < 2 else 9", "[5, 6, 7, 8, 9, 10, 11, 12, 13, 14][a]",
    "slice(a)", "slice(a) == slice(b)", "str(slice(0, a))", "any([a])", "all([a, b])",
    "not a", "sum([a, b], 1)", "len(a)", "list(a)", "tuple(a)", "[*a]", "sorted(a)",
    "dict.fromkeys(a)", "set(a)", "list(zip(a, b))", "list(map(str, a))", "sum(a)",
    "1 in a", "'-'.join(a)", "isinstance(a, list)", "format(a, 'x')", "str(a)", "repr(a)",
    "ascii([a])", "print(a)", "divmod(17, a)", "pow(2, a)", "abs(a)", "list(enumerate([1], a))",
]  # fmt: skip


def function(expression):
    names = {"math": math, "collections": collections}
    source = f"""
def f(x, a, b):
    try:
        made = {expression}
    except Exception as error:
        made = type(error), str(error)
    return x * 2, made
"""
    exec(source, names)
    return names["f"]


def text(result):
    made = result[1] if isinstance(result, tuple) else result
    return str(made), type(made)


def classes(base, names, attribute):
    """A class with these methods, and a way to change it."""
    body = {name: methods(attribute)[name] for name in names}
    if attribute == "scale":
        body["scale"] = 1
    return type("Own", (base,), body)


KINDS = {
    "texts": ["__repr__", "__str__", "__format__"],
    "comparisons": ["__eq__", "__hash__", "__lt__"],
    "conversions": ["__float__", "__int__", "__index__", "__bool__", "__complex__"],
    "roundings": ["__round__", "__trunc__", "__floor__", "__add__"],
    "elements": ["__iter__", "__len__", "__getitem__", "__contains__"],
}


@pytest.mark.parametrize("attribute", ["scale", "name"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("base", BASES)
def test_answers(base, kind, attribute):
    cls, args = BASES[base]
    own = classes(cls, KINDS[kind], attribute)
    plain = type("Plain", (cls,), {})
    for expression in EXPRESSIONS:
        f = function(expression)
        compiled = framejit.compile(f, backend="eager")
        for a_scale, b_scale in ((4, 4), (9, 4), (0, 2)):
            a, b = own(*args), own(*args)
            setattr(a, attribute, a_scale)
            setattr(b, attribute, b_scale)
            expected = text(f(torch.ones(1), a, b))
            actual = text(compiled(torch.ones(1), a, b))
            assert actual == expected, (expression, a_scale)
        # The class gets and loses its methods.
        a, b = plain(*args), plain(*args)
        for change in (None, "add", "remove"):
            for name in KINDS[kind]:
                if change == "add":
                    setattr(plain, name, methods("late")[name])
                elif change == "remove":
                    delattr(plain, name)
            a.late, b.late = 4, 9
            expected = text(f(torch.ones(1), a, b))
            actual = text(compiled(torch.ones(1), a, b))
            assert actual == expected, (expression, change)


class Plain:
    """An object of the program in a slice, a frozenset, a dict."""


@pytest.mark.parametrize(
    "expression",
    [
        "slice(a) == slice(b)", "str(slice(a))", "slice(0, a) == slice(0, b)",
        "{1: slice(a)} == {1: slice(b)}", "s == slice(b)", "str(s)", "str([s])",
        "s == t", "fs == frozenset([b])", "fs == fs2", "str(fs)", "b in fs", "{1: fs} == {1: fs2}",
    ],
)  # fmt: skip
def test_objects_in_slices_and_sets(expression):
    cls = type("Plain", (), {})
    a, b = cls(), cls()
    names = {
        "s": slice(a), "t": slice(b), "fs": frozenset([a]), "fs2": frozenset([b]),
    }  # fmt: skip
    f = function(expression)
    f.__globals__.update(names)
    compiled = framejit.compile(f, backend="eager")
    for change in (None, "add", "remove", "add"):
        for name in ("__eq__", "__repr__", "__hash__"):
            if change == "add":
                answers = {"__eq__": True, "__repr__": "<a>", "__hash__": 1}
                setattr(cls, name, lambda *args, answer=answers[name]: answer)
            elif change == "remove":
                delattr(cls, name)
        assert text(compiled(torch.ones(1), a, b)) == text(f(torch.ones(1), a, b))


@pytest.mark.parametrize("call", ["{**m}", "dict(m)", "dict(**m)", "{}.update(m)"])
def test_what_is_no_mapping(call):
    for m in (torch.nn.Linear(1, 1), object(), 3, [1], torch.nn.ModuleDict()):
        f = function(call.replace("m)", "a)").replace("m}", "a}"))
        compiled = framejit.compile(f, backend="eager")
        assert text(compiled(torch.ones(1), m, 1)) == text(f(torch.ones(1), m, 1))
