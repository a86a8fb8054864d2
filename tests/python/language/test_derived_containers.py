"""Classes derived from builtin types that override one protocol of several.

C code that knows a type reads the elements, the table or the number of derived
classes as they lie (`in`, `==`, `set(s)`, `f(**d)`, `int(n)`), or asks a method
(`list(l)`, `sorted(l)`), each use by a rule of its own.
"""

import ast
import collections
import itertools
import math
import types
from typing import Any

import pytest
import torch

import framejit
from differential import assert_same

EXPRESSIONS = """
list(v), tuple(v), [*v], (*v,), [0] + v, (0,) + v, v + [1], v + (1,), v * 2
set(v), frozenset(v), {*v}, v | {1}, v & {1}, v - {1}, v ^ {1}, {1} | v, {1, 7} - v
{1}.union(v), {1}.intersection(v), {1, 2}.difference(v), {1}.symmetric_difference(v)
{1}.issubset(v), {1}.issuperset(v), {5}.isdisjoint(v), v.isdisjoint({1}), v.union({7})
done({0}, "update", v), done({0, 1}, "difference_update", v), done({0}, "__ior__", v)
done({0, 1}, "intersection_update", v), done([0], "extend", v), done([0], "__iadd__", v)
done([0], "__setitem__", slice(None), v), done({}, "update", v), done({}, "__ior__", v)
dict(v), {**v}, {} | v, v | {}, args(*v), args(**v), args(a=1, **v), "{a}".format(**v)
collections.OrderedDict(v), collections.Counter(v), collections.deque(v), dict.fromkeys(v)
collections.defaultdict(int, v), types.SimpleNamespace(**v), ",".join(v), sorted(v)
len(v), bool(v), not v, 1 in v, "i" in v, "a" in v, v == base(v), v != v, v < v, v <= v
v.count(1), v.index(1), v.copy(), v.get("a"), v.pop(), list(v.keys()), list(v.items())
done(v, "remove", 1), done(v, "append", 3), done(v, "add", 3), done(v, "clear")
list(reversed(v)), list(zip(v, v)), list(enumerate(v)), list(map(str, v)), list(iter(v))
[i for i in v], [i for i in base.__iter__(v)], max(v), sum(v), any(v), v[0], v[:1]
list(itertools.chain(v, v)), list(itertools.product(v, v)), base.__contains__(v, 1)
"%s %s" % v, "%s" % v, "%(a)s" % v, "%d" % v, str(v), repr(v), f"{v}", f"{v!r:>9}"
isinstance(1, v), "a".startswith(v), kind(v), bytes(v), divmod(*v), hash(v) == 0
int(v), float(v), complex(v), round(v), abs(v), -v, v + 1, 1 + v, v**2, v == 2, [1, 2, 3][v]
list(range(v)), math.floor(v), math.sqrt(v), hex(v), format(v, "5"), [1, 2].count(v)
x * v, v * x, x + v, x - v, x**v, x[v], x.reshape(v), x.new_zeros(v), torch.full((2,), v)
torch.tensor(v), torch.stack(v), {v: 1}, {"a": 1}.get(v), "abcd"[v:], [1] * v, getattr(x, v)
"""


MODULES = {m.__name__: m for m in (collections, itertools, math, torch, types)}


def it(self: Any) -> Any:
    return iter(["i", "j"])


def given(self: Any, key: Any) -> Any:
    return "given"


OVERRIDES: dict[str, dict[str, Any]] = {
    "iter": {"__iter__": it},
    "getitem": {"__getitem__": given},
    "len": {"__len__": lambda self: 1},
    "contains": {"__contains__": lambda self, item: True},
    "keys": {"keys": lambda self: ["a", "k"], "__getitem__": given},
    "missing": {"__missing__": given},
    "eq": {"__eq__": lambda self, other: True, "__hash__": lambda self: 4},
    "numbers": {
        "__index__": lambda self: 1,
        "__bool__": lambda self: False,
        "__float__": lambda self: 7.5,
    },
    "index": {"__index__": lambda self: 1},
    "operators": {
        "__add__": lambda self, other: "add",
        "__rmul__": lambda self, other: "rmul",
        "__radd__": lambda self, other: "radd",
        "__rpow__": lambda self, other: "rpow",
        "__rsub__": lambda self, other: "rsub",
    },
    "text": {
        "__str__": lambda self: "text",
        "__repr__": lambda self: "shown",
        "__format__": lambda self, spec: "made",
    },
}
VALUES: dict[type, tuple[Any, list[str]]] = {
    list: ([1, 2], ["iter", "getitem", "len", "contains", "eq"]),
    tuple: ((1, 2), ["iter", "getitem", "len", "contains", "eq"]),
    dict: ({"a": 1, "b": 2}, ["iter", "getitem", "len", "keys", "missing", "contains"]),
    set: ({1, 2}, ["iter", "len", "contains"]),
    frozenset: ({1, 2}, ["iter", "len", "contains", "eq"]),
    str: ("ab", ["iter", "getitem", "len", "eq", "text"]),
    bytes: (b"ab", ["iter", "getitem"]),
    int: (2, ["numbers", "index", "operators", "text", "eq"]),
    float: (2.5, ["numbers", "operators", "text"]),
    collections.deque: ([1, 2], ["iter", "getitem", "len"]),
    collections.OrderedDict: ({"a": 1}, ["iter", "getitem", "keys"]),
    collections.Counter: ("aab", ["iter", "getitem"]),
}


def args(*positional: Any, **keywords: Any) -> Any:
    return positional, keywords


def done(target: Any, method: str, *operands: Any) -> Any:
    return getattr(target, method)(*operands), target


def kind(value: Any) -> Any:
    match value:
        case [_, second]:
            return second
        case {"a": 1}:
            return "map"
        case 2 | "ab":
            return "constant"
    return "no"


def outcome(function: Any, value: Any, base: Any) -> list[Any]:
    try:
        result = function(torch.arange(3.0) + 1, value, base)
    except Exception as error:
        result = type(error), str(error)
    # What its elements are now, as they lie.
    shown = base.__repr__(value) if base is not object else ""
    return [str(result), result, shown]


CASES = [(base, name) for base, (_, names) in VALUES.items() for name in names]


@pytest.mark.parametrize(
    ("base", "override"), CASES, ids=[f"{b.__name__}-{n}" for b, n in CASES]
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_one_protocol_of_several(base: type, override: str) -> None:
    derived = type("Derived", (base,), dict(OVERRIDES[override]))
    lines = EXPRESSIONS.strip().splitlines()

    for tree in [t for line in lines for t in _elements(ast.parse(line, mode="eval"))]:
        text = ast.unparse(tree)
        namespace: dict[str, Any] = {
            **MODULES,
            "args": args,
            "done": done,
            "kind": kind,
        }
        exec(
            f"def f(x, v, base):\n    y = x * 2\n    return y, ({text}), y + 1",
            namespace,
        )
        compiled = framejit.compile(namespace["f"], backend="eager")
        for _ in range(2):
            expected = outcome(namespace["f"], derived(VALUES[base][0]), base)
            found = outcome(compiled, derived(VALUES[base][0]), base)
            if " at 0x" not in expected[0]:
                assert expected[0] == found[0], text
            assert_same(expected[2], found[2], text)


def _elements(tree: Any) -> list[Any]:
    body = tree.body
    return list(body.elts) if hasattr(body, "elts") else [body]


def test_keywords_that_are_no_strings() -> None:
    """Behind the break at the first dict, the call says so."""

    def f(x: torch.Tensor, keywords: Any) -> Any:
        return x * 2, args(**keywords, a=1)

    compiled = framejit.compile(f)
    for keywords in ({"b": 1}, {1: 2}, {1: 2}, {"a": 1}, {"b": 3}):
        assert (
            outcome(lambda x, v, base: f(x, v), keywords, dict)[0]
            == (outcome(lambda x, v, base: compiled(x, v), keywords, dict)[0])
        )


class Sized:
    """Iterable, and says how many it has, or may have, in its own way."""

    def __init__(self, length, hint=NotImplemented):
        self.length, self.hint, self.log = length, hint, []

    def __iter__(self):
        self.log.append("iter")
        return iter([1, 2])

    def __len__(self):
        self.log.append("len")
        if isinstance(self.length, Exception):
            raise self.length
        return self.length

    def __length_hint__(self):
        self.log.append("hint")
        if isinstance(self.hint, Exception):
            raise self.hint
        return self.hint


class Hinting(Sized):
    __len__ = None


SIZED = [
    lambda: Sized(2),
    lambda: Sized(7, 1),
    lambda: Sized(-1),
    lambda: Sized("text"),
    lambda: Sized(TypeError("no length"), 3),
    lambda: Sized(TypeError("no length"), -3),
    lambda: Sized(TypeError("no length"), "text"),
    lambda: Sized(TypeError("no length"), TypeError("no hint")),
    lambda: Sized(NotImplementedError("no length")),
    lambda: Sized(TypeError("no length"), KeyError("no hint")),
    lambda: Hinting(2, 3),
    lambda: Hinting(2, KeyError("no hint")),
]
LISTS = ["list(v)", "tuple(v)", "[*v]", "[0, *v]", "(*v,)", "args(*v)", "args(1, *v)"]
# Which of them asks, and when, is each one's own.
OTHERS = [
    "list(itertools.product(v))",
    "list(itertools.product(v, v))",
    "list(itertools.product(v, repeat=2))",
    "list(itertools.permutations(v))",
    "list(itertools.combinations(v, 1))",
    "list(itertools.combinations(v, 'text'))",
    "list(itertools.combinations_with_replacement(v, 1))",
    "list(itertools.chain(v, v))",
    "list(itertools.zip_longest(v, [1]))",
    "list(itertools.pairwise(v))",
    "list(itertools.islice(itertools.cycle(v), 3))",
    "list(zip(v, v))",
    "list(map(str, v))",
    "sorted(v)",
    "sum(v)",
    "max(v)",
    "set(v)",
    "dict.fromkeys(v)",
    "collections.deque(v)",
    "collections.Counter(v)",
    "''.join(v)",
    "Pair._make(v)",
    "OwnTuple(v)",
    "OwnList(v)",
    "[1, 2, 3].extend(v)",
    "assign(v)",
    "torch.Size(v)",
]
Pair = collections.namedtuple("Pair", "a b")


class OwnTuple(tuple):
    pass


class OwnList(list):
    pass


def assign(values):
    found = [1, 2, 3]
    found[1:] = values
    found += values
    found.extend(values)
    return found


LISTS += ["sorted(v)", "done([0], 'extend', v)", "done([0], '__iadd__', v)"]
LISTS += ["set(v)", "{*v}", "max(v)", "dict.fromkeys(v)", "[i for i in v]"]


@pytest.mark.parametrize("text", LISTS + OTHERS)
@pytest.mark.parametrize("make", SIZED)
def test_who_asks_for_the_length(text: str, make: Any) -> None:
    """Before the items come: what __len__ raises, list() raises."""
    namespace: dict[str, Any] = {**globals(), "args": args, "done": done}
    exec(f"def f(x, v, base):\n    return x * 2, {text}", namespace)
    compiled = framejit.compile(namespace["f"], backend="eager")
    for _ in range(2):
        plain, seen = make(), make()
        expected = outcome(namespace["f"], plain, object)[0]
        assert expected == outcome(compiled, seen, object)[0]
        assert plain.log == seen.log


class Longer(list):
    def __len__(self) -> int:
        return 7


class LongerBySuper(dict):
    def __len__(self) -> int:
        return super().__len__() + 7


class Counting(collections.defaultdict):
    pass


RECEIVERS = [
    lambda: Longer([1, 2]),
    lambda: LongerBySuper(a=1),
    lambda: [1, 2],
    lambda: (1, 2),
    lambda: {"a": 1},
    lambda: {1, 2},
    lambda: "ab",
]
UNBOUND = [
    f"{kind}.{method}"
    for kind in ("list", "tuple", "dict", "set")
    for method in ("__len__(v)", "__contains__(v, 'a')", "__contains__(v, 1)")
]
UNBOUND += ["list.__getitem__(v, 0)", "dict.__getitem__(v, 0)", "tuple.count(v, 1)"]
UNBOUND += ["list.index(v, 1)", "list(list.__iter__(v))", "len(v)", "dict.get(v, 'a')"]


@pytest.mark.parametrize("text", UNBOUND)
@pytest.mark.parametrize("make", RECEIVERS)
def test_methods_of_a_named_type(text: str, make: Any) -> None:
    """Neither what a derived class has in their place, nor for other types."""
    namespace: dict[str, Any] = {}
    exec(f"def f(x, v, base):\n    return x * 2, {text}", namespace)
    compiled = framejit.compile(namespace["f"], backend="eager")
    for _ in range(2):
        expected = outcome(namespace["f"], make(), object)[0]
        assert expected == outcome(compiled, make(), object)[0]


@pytest.mark.parametrize("factory", [int, None])
def test_the_text_of_a_derived_defaultdict(factory: Any) -> None:
    def f(x: torch.Tensor, v: Any) -> tuple[torch.Tensor, str, str]:
        return x * 2, repr(v), f"{v}"

    x = torch.ones(2)
    compiled = framejit.compile(f, backend="eager")
    for _ in range(2):
        assert_same(compiled(x, Counting(factory, a=1)), f(x, Counting(factory, a=1)))
