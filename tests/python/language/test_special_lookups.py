"""Methods that the language looks up on a class, where a class has what nobody
expects: a function of C that is no method, `object`'s own, another kind of
descriptor; and where the class changes behind the first call. Every such method on
classes derived from every builtin, asked in every way the language asks."""

from __future__ import annotations

import abc
import collections
import collections.abc
import enum
import operator
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

BASES: dict[str, tuple[type, tuple[Any, ...]]] = {
    "object": (object, ()),
    "list": (list, ([1, 2],)),
    "dict": (dict, ({1: 2},)),
    "set": (set, ([1],)),
    "frozenset": (frozenset, ([1],)),
    "tuple": (tuple, ((1, 2),)),
    "int": (int, (3,)),
    "float": (float, (2.5,)),
    "str": (str, ("ab",)),
    "bytes": (bytes, (b"ab",)),
    "OrderedDict": (collections.OrderedDict, ({1: 2},)),
    "deque": (collections.deque, ([1],)),
}

# What C code may stand in a class: called without the object, or another's method.
ODD: dict[str, dict[str, Any]] = {
    "__contains__": {
        "bound": frozenset({5}).__contains__,
        "builtin": callable,
        "class": bool,
    },
    "__format__": {"bound": (7.5).__format__},
    "__add__": {"builtin": len, "bound": [1].count},
    "__mul__": {"builtin": len},
    "__radd__": {"builtin": len},
    "__iadd__": {"builtin": len},
    "__len__": {"bound": [1, 2, 3].__len__},
    "__bool__": {"bound": {}.__len__, "class": bool},
    "__iter__": {"bound": [7].__iter__},
    "__getitem__": {"bound": [7, 8, 9].__getitem__},
    "__eq__": {"builtin": callable, "bound": [1].__contains__},
    "__ne__": {"builtin": callable, "object's": object.__ne__},
    "__lt__": {"builtin": callable},
    "__hash__": {"bound": (5).__hash__},
    "__str__": {"bound": "s".upper},
    "__repr__": {"bound": "r".upper},
    "__index__": {"bound": [1].__len__},
    "__reversed__": {"bound": [1].__iter__},
    "__neg__": {"bound": [1].__len__},
}

ASKED: dict[str, Callable[[Any, Any, Any], Any]] = {
    "in": lambda x, a, b: x + (5 in a),
    "format": lambda x, a, b: (x + 1, f"{a}"),
    "format spec": lambda x, a, b: (x + 1, format(a, "")),
    "+": lambda x, a, b: (x + 1, a + b),
    "+ tensor": lambda x, a, b: a + x,
    "* tensor": lambda x, a, b: a * x,
    "tensor +": lambda x, a, b: x + a,
    "len": lambda x, a, b: x + len(a),
    "truth": lambda x, a, b: x + 1 if a else x - 1,
    "iterate": lambda x, a, b: (x + 1, list(a)),
    "item": lambda x, a, b: (x + 1, a[1]),
    "==": lambda x, a, b: x + (a == b),
    "!=": lambda x, a, b: x + 1 if a != b else x - 1,
    "<": lambda x, a, b: x + (a < b),
    "hash": lambda x, a, b: x + hash(a),
    "key": lambda x, a, b: x + {a: 1}[a],
    "str": lambda x, a, b: (x + 1, str(a)),
    "repr": lambda x, a, b: (x + 1, repr(a)),
    "%s": lambda x, a, b: (x + 1, "%s|%r" % (a, a)),  # noqa: UP031
    "index": lambda x, a, b: x + [4, 5, 6, 7][a],
    "reversed": lambda x, a, b: (x + 1, list(reversed(a))),
    "-": lambda x, a, b: (x + 1, -a),
    "count": lambda x, a, b: x + [a].count(b),
}


def outcome(function: Any, *args: Any) -> Any:
    try:
        result = function(*args)
    except RecursionError:
        raise
    except Exception as error:
        return type(error), str(error)
    return shown(result)


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if type(value) in (tuple, list):
        return [shown(each) for each in value]
    try:
        return type(value).__name__, object.__repr__(value).split(" at ")[0], +value
    except Exception:
        return type(value).__name__


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("method", ODD)
def test_c_functions_in_classes(base: str, method: str) -> None:
    of, args = BASES[base]
    for kind, odd in ODD[method].items():
        cls: Any = type("C", (of,), {method: odd})
        for name, ask in ASKED.items():
            framejit.reset()
            compiled = framejit.compile(ask)
            for _ in range(2):
                a, b = cls(*args), cls(*args)
                expected = outcome(ask, torch.ones(2), a, b)
                got = outcome(compiled, torch.ones(2), a, b)
                if name == "repr" and "object at" in str(expected):
                    continue
                assert got == expected, (kind, name)


# ---- what a class says of itself, changed behind the first call


class Sized:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, key: Any) -> int:
        return 4

    def get(self, key: Any, default: Any) -> int:
        return 9


def by_mapping(x: Any, o: Any) -> Any:
    match o:
        case {"a": v}:
            return x * v
        case _:
            return x


def by_sequence(x: Any, o: Any) -> Any:
    match o:
        case [a, b]:
            return x * a + b
        case _:
            return x


@pytest.mark.parametrize("derived", [False, True])
@pytest.mark.parametrize(
    ("match_it", "abstract"),
    [
        (by_mapping, collections.abc.Mapping),
        (by_sequence, collections.abc.Sequence),
        (by_sequence, collections.abc.Mapping),
    ],
)
def test_registered_behind_the_first_call(
    match_it: Any, abstract: Any, derived: bool
) -> None:
    registered: Any = type("Own", (Sized,), {})
    cls = type("Derived", (registered,), {}) if derived else registered
    compiled = framejit.compile(match_it)
    x = torch.ones(2)
    assert outcome(compiled, x, cls()) == outcome(match_it, x, cls())
    abstract.register(registered)
    for _ in range(2):
        assert outcome(compiled, x, cls()) == outcome(match_it, x, cls())


@pytest.mark.parametrize("metaclass", [type, abc.ABCMeta])
@pytest.mark.parametrize("how", ["class", "Python __new__", "keyword"])
def test_abstract_behind_the_first_call(metaclass: Any, how: str) -> None:
    space: dict[str, Any] = {"m": lambda self: 1}
    if how == "Python __new__":
        space["__new__"] = lambda cls: object.__new__(cls)
    cls = metaclass("A", (), space)

    def f(x: Any) -> Any:
        return x + cls().m()

    compiled = framejit.compile(f)
    x = torch.ones(2)
    for methods in ((), ("m",), (), ("m", "n")):
        cls.__abstractmethods__ = frozenset(methods)
        for _ in range(2):
            assert outcome(compiled, x) == outcome(f, x)


# ---- `with`


class Getter:
    def __get__(self, o: Any, t: Any = None) -> Any:
        return lambda *args: 11


def seven(*args: Any) -> int:
    return 7


ENTERS: dict[str, Any] = {
    "function": lambda self: 5,
    "staticmethod": staticmethod(lambda: 5),
    "classmethod": classmethod(lambda cls: 5),
    "property": property(lambda self: lambda: 5),
    "builtin": dict,
    "descriptor": Getter(),
    "partial": __import__("functools").partial(lambda: 5),
}


@pytest.mark.parametrize("instance", ["", "__enter__", "__exit__", "both"])
@pytest.mark.parametrize("getattribute", [False, True])
@pytest.mark.parametrize("enter", ENTERS)
def test_with_asks_the_class(enter: str, getattribute: bool, instance: str) -> None:
    space: dict[str, Any] = {
        "__enter__": ENTERS[enter],
        "__exit__": staticmethod(lambda *a: None),
    }
    if getattribute:
        space["__getattribute__"] = lambda self, name: seven
    cls: Any = type("A", (), space)

    def f(x: Any, a: Any) -> Any:
        with a as v:
            x = x * len(v) if isinstance(v, dict) else x * v
        return x

    def make() -> Any:
        a = cls()
        for name in ("__enter__", "__exit__"):
            if instance in (name, "both"):
                object.__getattribute__(a, "__dict__")[name] = seven
        return a

    compiled = framejit.compile(f)
    for _ in range(3):
        x = torch.ones(2)
        assert outcome(compiled, x, make()) == outcome(f, x, make())


# ---- patterns


class Point:
    __match_args__: Any = ("x", "y")

    def __init__(self, x: Any, y: Any) -> None:
        self.x, self.y = x, y


class Name(str):
    pass


def positional(x: Any, o: Any) -> Any:
    match o:
        case Point(a, y=2):
            return x * a
    return x


def twice(x: Any, o: Any) -> Any:
    match o:
        case Point(a, b):
            return x * a + b
    return x


@pytest.mark.parametrize("function", [positional, twice])
@pytest.mark.parametrize(
    "match_args",
    [
        ("x", "y"),
        ("y",),
        ("y", "x"),
        ("x", "x"),
        ("x", 5),
        ("x", None),
        (Name("x"), "y"),
        ("z", "x"),
        ("z", 5),
        (),
        ["x", "y"],
        None,
    ],
    ids=repr,
)
def test_match_args(function: Any, match_args: Any) -> None:
    before = Point.__match_args__
    compiled = framejit.compile(function)
    x = torch.ones(2)
    try:
        for each in (before, match_args):
            Point.__match_args__ = each
            for _ in range(2):
                o = Point(3, 2)
                assert outcome(compiled, x, o) == outcome(function, x, o)
    finally:
        Point.__match_args__ = before


class Keys(enum.Enum):
    A = "z"
    B = "q"


class Names:
    A: Any = "z"
    B: Any = "q"


def by_keys(x: Any, d: Any) -> Any:
    match d:
        case {Names.A: v, Names.B: w}:
            return x * v + w
    return x


@pytest.mark.parametrize("other", ["q", "z", Name("z"), 1, True, Keys.A, None])
def test_keys_of_mapping_patterns(other: Any) -> None:
    compiled = framejit.compile(by_keys)
    x = torch.ones(2)
    before = Names.B
    try:
        for each in (before, other):
            Names.B = each
            for d in ({"z": 1, "q": 2}, {"z": 1, 1: 5}, {"z": 3, Keys.A: 4}, {}):
                assert outcome(compiled, x, d) == outcome(by_keys, x, d)
    finally:
        Names.B = before


# ---- what C code checks of what it is given


@pytest.mark.parametrize(
    "answer", [3, True, "no", 2.5, None, torch.tensor(3), Name("a"), 2**70], ids=repr
)
def test_results_of_index(answer: Any) -> None:
    class Index:
        def __index__(self) -> Any:
            return answer

    def f(x: Any, o: Any) -> Any:
        i = operator.index(o)
        return x + 1, f"{i}", type(i).__name__

    compiled = framejit.compile(f)
    with pytest.warns(DeprecationWarning) if answer is True else no_warning():
        for _ in range(2):
            expected = outcome(f, torch.ones(2), Index())
            assert outcome(compiled, torch.ones(2), Index()) == expected


def no_warning() -> Any:
    import contextlib

    return contextlib.nullcontext()


@pytest.mark.parametrize("function", [5, len, seven, None, int], ids=range(5))
@pytest.mark.parametrize("owner", [3, None, [1]], ids=repr)
def test_methods_made(function: Any, owner: Any) -> None:
    def f(x: Any, a: Any, b: Any) -> Any:
        m = types.MethodType(a, b)
        return x + 1, m.__self__, m.__func__ is a

    compiled = framejit.compile(f)
    for _ in range(2):
        expected = outcome(f, torch.ones(2), function, owner)
        assert outcome(compiled, torch.ones(2), function, owner) == expected


@pytest.mark.parametrize("entries", [(), (dict,), [dict], iter(()), None], ids=range(5))
def test_what_stands_for_a_base(entries: Any) -> None:
    class Base:
        def __mro_entries__(self, bases: Any) -> Any:
            return entries

    base = Base()

    def f(x: Any) -> Any:
        class D(base):  # type: ignore[misc, valid-type]
            pass

        return x + len(D.__mro__)

    compiled = framejit.compile(f)
    for _ in range(2):
        assert outcome(compiled, torch.ones(2)) == outcome(f, torch.ones(2))


# ---- object.__ne__: the inverse of what the class's __eq__ says, if anything


class SaysFive:
    def __eq__(self, other: Any) -> Any:
        return 5

    __hash__ = None  # type: ignore[assignment]


class Declines:
    def __eq__(self, other: Any) -> Any:
        return NotImplemented

    __hash__ = None  # type: ignore[assignment]


class NotItself:
    def __eq__(self, other: Any) -> Any:
        return False

    __hash__ = None  # type: ignore[assignment]


class Aliased:
    __lt__ = object.__ne__


class Super:
    def __ne__(self, other: Any) -> Any:
        found = super().__ne__(other)
        return "asked" if found is NotImplemented else found


DIFFERS: dict[str, Callable[[Any, Any], Any]] = {
    "function": lambda a, b: object.__ne__(a, b),
    "method": lambda a, b: a.__ne__(b),
    "held": lambda a, b: (a.__ne__, 0)[0](b),
    "operator": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "equal": lambda a, b: object.__eq__(a, b),
}


@pytest.mark.parametrize("way", DIFFERS)
@pytest.mark.parametrize(
    "owner", [object, SaysFive, Declines, NotItself, Aliased, Super, lambda: 5]
)
def test_object_ne(owner: Any, way: str) -> None:
    def asks(x: Any, a: Any, b: Any) -> Any:
        try:
            return x + 1, DIFFERS[way](a, b)
        except TypeError as error:
            return x + 1, str(error)

    framejit.reset()
    compiled = framejit.compile(asks)
    a = owner()
    for b in (a, 1, 5, object(), owner(), "a", None):
        x = torch.ones(1)
        expected, actual = asks(x, a, b)[1], compiled(x, a, b)[1]
        assert repr(actual) == repr(expected), (owner, way, b)


# ---- __torch_function__ is the object's, not its class's


class ByInstance:
    def __init__(self) -> None:
        self.__torch_function__ = lambda *args, **kwargs: "asked"

    def __radd__(self, other: Any) -> Any:
        return "reflected"


class ByHook:
    def __getattr__(self, name: str) -> Any:
        if name == "__torch_function__":
            return lambda *args, **kwargs: "asked"
        raise AttributeError(name)

    def __radd__(self, other: Any) -> Any:
        return "reflected"


class ByGetattribute(ByInstance):
    def __init__(self) -> None:
        pass

    def __getattribute__(self, name: str) -> Any:
        if name == "__torch_function__":
            return lambda *args, **kwargs: "asked"
        return super().__getattribute__(name)


class ByNobody:
    def __radd__(self, other: Any) -> Any:
        return "reflected"


@pytest.mark.parametrize("owner", [ByInstance, ByHook, ByGetattribute, ByNobody])
def test_torch_function_of_the_object(owner: Any) -> None:
    def adds(x: Any, o: Any) -> Any:
        return (x * 2) + o

    framejit.reset()
    compiled = framejit.compile(adds)
    o = owner()
    for _ in range(2):
        assert compiled(torch.ones(1), o) == adds(torch.ones(1), o)
    if owner is ByNobody:
        o.__torch_function__ = lambda *args, **kwargs: "asked"
        assert compiled(torch.ones(1), o) == adds(torch.ones(1), o) == "asked"
