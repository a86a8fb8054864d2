"""A text that is only handed on is a stand-in while a capture runs, which C code does
not take for a text. So where C code may see it, the text is a fact: what is stored in a
field of C, and what a callee of C is given."""

from __future__ import annotations

import builtins
import collections
import copy
import dataclasses
import enum
import functools
import json
import operator
import os
import pickle
import re
import sys
import types
import typing
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

TEXTS = ["a", "b", "", "a.b", "\N{SNOWMAN}x", b"a", "b", 3, None]


def shown(value: Any) -> Any:
    if isinstance(value, BaseException):
        return type(value), shown(value.args), str(value), repr(value)
    if isinstance(value, type):
        return value.__name__, value.__module__, value.__doc__, value.__qualname__
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [shown(item) for item in value]
    return type(value), repr(value), str(value)


def outcome(function: Any, value: Any) -> Any:
    try:
        return shown(function(torch.ones(2), value)[1:])
    except Exception as error:
        return "raised", type(error), str(error)


def check(function: Callable[..., Any], values: list[Any] = TEXTS) -> None:
    compiled = framejit.compile(function)
    for _ in range(2):
        for value in values:
            assert outcome(compiled, value) == outcome(function, value), value


# ---- attributes of objects of C


class Mine(Exception):
    pass


class MyImportError(ImportError):
    pass


class Slotted:
    __slots__ = ("__doc__", "name", "text")


class Plain:
    pass


class MyDict(dict):  # type: ignore[type-arg]
    pass


class MyPartial(functools.partial):  # type: ignore[type-arg]
    pass


def made_function() -> Any:
    def inner(a: Any = 1) -> Any:
        "doc"
        return a

    return inner


def no_text(value: Any) -> Any:
    return None


ATTRIBUTES: dict[str, tuple[Callable[[], Any], list[str], Callable[[Any], Any]]] = {
    "ImportError": (
        lambda: ImportError("q"),
        ["msg", "name", "path", "args", "__cause__", "__notes__", "other", "__module__"],
        lambda e: (str(e), repr(e), e.msg, e.name, e.path),
    ),
    "ModuleNotFoundError": (
        lambda: ModuleNotFoundError("q", name="n"),
        ["msg", "name"],
        lambda e: (str(e), e.name),
    ),
    "derived": (lambda: MyImportError("q"), ["msg", "other"], lambda e: (str(e), repr(e))),
    "SyntaxError": (
        lambda: SyntaxError("q"),
        ["msg", "filename", "lineno", "offset", "text", "print_file_and_line"],
        lambda e: (str(e), e.msg, e.filename, e.text),
    ),
    "OSError": (
        lambda: OSError(2, "q", "f"),
        ["errno", "strerror", "filename", "filename2"],
        lambda e: (str(e), e.strerror, e.filename),
    ),
    "UnicodeTranslateError": (
        lambda: UnicodeTranslateError("abc", 0, 1, "r"),
        ["object", "reason", "start"],
        lambda e: str(e),
    ),
    "UnicodeDecodeError": (
        lambda: UnicodeDecodeError("utf-8", b"abc", 0, 1, "r"),
        ["object", "reason", "encoding"],
        lambda e: str(e),
    ),
    "UnicodeEncodeError": (
        lambda: UnicodeEncodeError("utf-8", "abc", 0, 1, "r"),
        ["object", "reason", "encoding"],
        lambda e: str(e),
    ),
    "StopIteration": (lambda: StopIteration(1), ["value", "args"], lambda e: (e.value, str(e))),
    "SystemExit": (lambda: SystemExit(1), ["code"], lambda e: (e.code, str(e))),
    "NameError": (lambda: NameError("q"), ["name"], lambda e: (e.name, str(e))),
    "AttributeError": (
        lambda: AttributeError("q"), ["name", "obj"], lambda e: (e.name, e.obj, str(e)),
    ),
    "KeyError": (lambda: KeyError("q"), ["args", "other"], lambda e: (e.args, str(e))),
    "Mine": (lambda: Mine("q"), ["args", "name", "__doc__"], lambda e: (str(e), repr(e))),
    "class": (
        lambda: type("C", (), {}),
        ["__module__", "__name__", "__qualname__", "__doc__", "__match_args__", "name",
         "__slots__", "__annotations__", "__text_signature__"],
        lambda c: (repr(c), c.__name__, c.__module__, c.__doc__),
    ),
    "exception class": (
        lambda: type("E", (Exception,), {}),
        ["__module__", "__name__", "__qualname__"],
        lambda c: (repr(c), repr(c("x")), repr(c())),
    ),
    "function": (
        made_function,
        ["__name__", "__qualname__", "__module__", "__doc__", "__defaults__", "__code__",
         "__kwdefaults__", "__annotations__", "other", "__wrapped__"],
        lambda f: (f.__name__, f.__qualname__, f.__module__, f.__doc__),
    ),
    "module": (
        lambda: types.ModuleType("m"),
        ["__name__", "__file__", "__doc__", "__spec__", "__loader__", "other"],
        lambda m: (repr(m), m.__name__, m.__doc__),
    ),
    "namespace": (
        lambda: types.SimpleNamespace(a=1),
        ["a", "b", "__class__"],
        lambda n: repr(n),
    ),
    "partial": (
        lambda: functools.partial(no_text, 1),
        ["name", "__doc__", "func", "args"],
        lambda p: (p.func is no_text, p.args, p.__doc__),
    ),
    "property": (lambda: property(no_text), ["__doc__"], lambda p: p.__doc__),
    "slots": (Slotted, ["name", "text", "__doc__"], lambda s: getattr(s, "name", 0)),
    "plain": (
        Plain,
        ["name", "__doc__", "__module__", "__name__", "__qualname__", "__class__",
         "__dict__", "__origin__", "__wrapped__", "__notes__"],
        lambda p: (p.__doc__, p.__module__, type(p).__name__),
    ),
    "dict": (MyDict, ["name", "__doc__"], lambda d: (repr(d), d.__doc__)),
    "deque": (collections.deque, ["maxlen", "name"], lambda d: repr(d)),
    "wrapped": (lambda: functools.wraps(no_text)(made_function()), ["__name__"],
                lambda f: f.__name__),
    "static": (lambda: staticmethod(no_text), ["__name__", "__doc__"],
               lambda f: (f.__name__, f.__doc__)),
    "tensor": (lambda: torch.ones(1), ["name", "grad", "names", "data", "__module__"],
               lambda t: t.tolist()),
    "parameter": (lambda: torch.nn.Parameter(torch.ones(1)), ["name", "requires_grad"],
                  lambda t: t.tolist()),
    "nn": (lambda: torch.nn.Linear(1, 1), ["name", "training", "weight", "__doc__"],
           lambda m: m.training),
}  # fmt: skip


def setting(kind: str, attribute: str, nested: bool) -> Callable[..., Any]:
    make, _, look = ATTRIBUTES[kind]
    names: dict[str, Any] = {"make": make, "look": look}
    value = "(value,)" if nested else "value"
    source = (
        "def f(x, value):\n"
        "    made = make()\n"
        f"    made.{attribute} = {value}\n"
        "    return x + 1, look(made)\n"
    )
    exec(source, names)
    function: Callable[..., Any] = names["f"]
    return function


@pytest.mark.parametrize("nested", [False, True], ids=["text", "tuple"])
@pytest.mark.parametrize(
    ("kind", "attribute"),
    [(kind, name) for kind, row in ATTRIBUTES.items() for name in row[1]],
)
def test_attributes_of_objects_of_c(kind: str, attribute: str, nested: bool) -> None:
    texts = [value for value in TEXTS if isinstance(value, str)]
    # (CPython reads the memory of another object as if it were a text.)
    is_read_unseen = attribute == "object" and kind.startswith("Unicode")
    if not (is_read_unseen and nested):
        check(setting(kind, attribute, nested), texts if is_read_unseen else TEXTS)


def test_an_attribute_of_a_python_object_is_still_handed_on() -> None:
    for make in (Plain, Slotted):

        def f(x: Any, value: Any, make: Any = make) -> Any:
            made = make()
            made.name = value
            return x + 1, made

        compiled = framejit.compile(f)
        compiled(torch.ones(1), "first")
        before = framejit.counters()["compiles"]
        for number in range(5):
            assert compiled(torch.ones(1), f"n{number}")[1].name == f"n{number}"
        assert framejit.counters()["compiles"] == before


# ---- what is stored, and then given to C


class Holder:
    text: Any = None
    pair: Any = None


class Pair(typing.NamedTuple):
    a: Any
    b: Any = 1


@dataclasses.dataclass
class Data:
    a: Any
    b: Any = 1


class Color(enum.Enum):
    A = "a"
    B = "b"


def matched(value: Any) -> Any:
    match value:
        case "a":
            return 1
        case str() | bytes():
            return 2, type(value)
        case [first, *rest]:
            return 3, first, rest
        case _:
            return 4


def exception_of(error: BaseException) -> Any:
    try:
        raise error
    except BaseException as caught:
        return caught, str(caught)


def raised(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:
        return type(error), str(error)


def of_a_class(names: Any) -> Any:
    made = type("C", (), dict(names))
    return made.__module__, made.__doc__, repr(made)


TWO = {"a": 1, "b": 2}

USES: dict[str, Callable[[Any], Any]] = {
    "ImportError": lambda t: str(ImportError(t)),
    "ImportError names": lambda t: exception_of(ImportError("q", name=t, path=t)),
    "SyntaxError": lambda t: str(SyntaxError("q", (t, 1, 2, t))),
    "SyntaxError msg": lambda t: str(SyntaxError(t)),
    "OSError": lambda t: str(OSError(2, t, t)),
    "OSError two": lambda t: str(OSError(t, "x")),
    "UnicodeDecodeError": lambda t: raised(
        lambda: str(UnicodeDecodeError(t, b"abc", 0, 1, "r"))
    ),
    "KeyError": lambda t: exception_of(KeyError(t)),
    "Mine": lambda t: exception_of(Mine(t)),
    "MyImportError": lambda t: exception_of(MyImportError(t)),
    "StopIteration": lambda t: StopIteration(t).value,
    "SystemExit": lambda t: str(SystemExit(t)),
    "NameError": lambda t: NameError("q", name=t).name,
    "raise": lambda t: raised(lambda: exception_of(t)),
    "type name": lambda t: raised(lambda: type(t, (), {}).__name__),
    "type module": lambda t: raised(lambda: of_a_class({"__module__": t})),
    "type doc": lambda t: raised(lambda: of_a_class({"__doc__": t})),
    "type slots": lambda t: raised(lambda: dir(type("C", (), {"__slots__": t}))[-1]),
    "type attribute": lambda t: type("C", (), {"a": t}).a,  # type: ignore[attr-defined]
    "namedtuple": lambda t: raised(lambda: repr(collections.namedtuple(t, "a b")(1, 2))),
    "namedtuple fields": lambda t: raised(lambda: collections.namedtuple("T", t)._fields),
    "Pair": lambda t: (Pair(t), repr(Pair(t)), Pair(t)._replace(b=t), hash(Pair(t)) != 0),
    "dataclass": lambda t: (repr(Data(t)), dataclasses.asdict(Data(t)), Data(t) == Data("a")),
    "replace": lambda t: repr(dataclasses.replace(Data(1), b=t)),
    "enum": lambda t: raised(lambda: Color(t)),
    "enum name": lambda t: raised(lambda: Color[t]),
    "partial": lambda t: functools.partial(shown, t)(),
    "attrgetter": lambda t: raised(lambda: operator.attrgetter(t)("x")),
    "itemgetter": lambda t: raised(lambda: operator.itemgetter(t)(TWO)),
    "methodcaller": lambda t: raised(lambda: operator.methodcaller(t)("x")),
    "keywords": lambda t: raised(lambda: dict(**{t: 1})),
    "key": lambda t: ({t: 1}, {t}, TWO.get(t), t in TWO, frozenset([t])),
    "item": lambda t: raised(lambda: TWO[t]),
    "join": lambda t: raised(lambda: "-".join([t, t])),
    "percent": lambda t: ("%s %r" % (t, t), f"{t!r}{t!s:>5}", "{}".format(t)),
    "percent alone": lambda t: raised(lambda: "%s" % t),
    "format": lambda t: raised(lambda: format(t, ">5")),
    "int": lambda t: raised(lambda: int(t)),
    "float": lambda t: raised(lambda: float(t)),
    "str": lambda t: (str(t), repr(t), ascii(t)),
    "bytes": lambda t: raised(lambda: bytes(t)),
    "bytearray": lambda t: raised(lambda: bytearray(t)),
    "len": lambda t: raised(lambda: len(t)),
    "ord": lambda t: raised(lambda: ord(t)),
    "setattr": lambda t: raised(lambda: setattr(Plain(), t, 1)),
    "getattr": lambda t: raised(lambda: getattr(Holder, t, 5)),
    "hasattr": lambda t: raised(lambda: hasattr(Holder, t)),
    "intern": lambda t: raised(lambda: sys.intern(t)),
    "isinstance": lambda t: (isinstance(t, str), isinstance(t, (bytes, int)), type(t)),
    "isinstance abc": lambda t: isinstance(t, collections.abc.Sequence),
    "callable": lambda t: (callable(t), bool(t), hash(t) == hash("a")),
    "identity": lambda t: (t is None, id(t) == id(t)),
    "dir": lambda t: (len(dir(t)), "upper" in dir(t)),
    "vars": lambda t: raised(lambda: vars(t)),
    "size": lambda t: sys.getsizeof(t),
    "weakref": lambda t: raised(lambda: weakref.ref(t)),
    "iter": lambda t: raised(lambda: list(t)),
    "unpacked": lambda t: raised(lambda: [*t]),
    "sorted": lambda t: raised(lambda: sorted([t, "b", "a"])),
    "min": lambda t: raised(lambda: (min([t, "b"]), max(t, "b"))),
    "zip": lambda t: (list(zip([t], [t], strict=True)), list(enumerate([t]))),
    "map": lambda t: (list(map(type, [t])), list(filter(None, [t, t]))),
    "counter": lambda t: (collections.Counter([t, t]), collections.OrderedDict(a=t)),
    "copy": lambda t: (copy.copy(t), copy.deepcopy([t])),
    "pickle": lambda t: pickle.loads(pickle.dumps((t, [t]))),
    "json": lambda t: raised(lambda: json.dumps({"a": t})),
    "match": matched,
    "match list": lambda t: matched([t, t]),
    "compare": lambda t: ([t == "a", "a" == t, t != "b"], raised(lambda: t < "b")),
    "contains": lambda t: raised(lambda: (t in "abc", "a" in t)),
    "add": lambda t: raised(lambda: (t + "x", "x" + t)),
    "times": lambda t: raised(lambda: t * 2),
    "eval": lambda t: raised(lambda: eval(t, {"a": 1, "b": 2})),
    "super": lambda t: raised(lambda: super(t, t)),
    "import": lambda t: raised(lambda: builtins.__import__(t)),
    "typing": lambda t: raised(lambda: repr(typing.NewType(t, int))),
    "alias": lambda t: repr(types.GenericAlias(list, t)),
    "literal": lambda t: repr(typing.Literal[t]),
    "forward": lambda t: raised(lambda: repr(typing.Optional[t])),
    "namespace": lambda t: (repr(types.SimpleNamespace(a=t)), types.SimpleNamespace(a=t).a),
    "property": lambda t: property(None, None, None, t).__doc__,
    "static": lambda t: staticmethod(t).__func__,
    "device": lambda t: raised(lambda: torch.zeros(1, device=t).shape),
    "einsum": lambda t: raised(lambda: torch.einsum(t, torch.ones(2)).shape),
    "interpolate": lambda t: raised(
        lambda: torch.nn.functional.pad(torch.ones(1, 2), (1, 1), mode=t).shape
    ),
    "dtype": lambda t: raised(lambda: torch.ones(1).to(t).shape),
    "index": lambda t: raised(lambda: torch.ones(1)[t]),
    "norm": lambda t: raised(lambda: torch.norm(torch.ones(2), p=t).shape),
}  # fmt: skip


@pytest.mark.parametrize("through", ["attribute", "tuple", "list", "dict"])
@pytest.mark.parametrize("use", USES)
def test_stored_and_then_given_to_c(use: str, through: str) -> None:
    put, take = {
        "attribute": ("value", "h.text"),
        "tuple": ("(1, value)", "h.text[1]"),
        "list": ("[value]", "h.text[0]"),
        "dict": ("{'k': value}", "h.text['k']"),
    }[through]
    names: dict[str, Any] = {"Holder": Holder, "use": USES[use]}
    exec(
        "def f(x, value):\n"
        "    h = Holder()\n"
        f"    h.text = {put}\n"
        f"    return x + 1, use({take})\n",
        names,
    )
    check(names["f"])


CONTAINER_USES: dict[str, Callable[[Any], Any]] = {
    "class": lambda c: raised(lambda: of_a_class([("__module__", c[0])])),
    "dict of pairs": lambda c: of_a_class(dict([("__doc__", c[0])])),
    "exception": lambda c: (str(ImportError(*c)), str(Mine(c)), repr(KeyError(*c))),
    "str": lambda c: (str(c), repr(c), f"{c}", "%s" % (c,)),
    "join": lambda c: raised(lambda: ",".join(c)),
    "sorted": lambda c: raised(lambda: sorted([*c, "b"])),
    "copy": lambda c: (list(c), tuple(c), copy.copy(c), copy.deepcopy(c)),
    "json": lambda c: raised(lambda: json.dumps(c)),
    "pickle": lambda c: pickle.loads(pickle.dumps(c)),
    "set": lambda c: (set(c), dict.fromkeys(c)),
    "count": lambda c: (c.count("a"), "a" in c, raised(lambda: c.index("b"))),
    "equal": lambda c: (c == ["a"], ["a"] == c),
    "map": lambda c: raised(lambda: list(map(len, c))),
    "namedtuple": lambda c: repr(Pair(*c)),
    "partial": lambda c: functools.partial(shown, c)(),
    "defaults": lambda c: types.FunctionType(
        made_function().__code__, {}, "f", tuple(c)
    )(),
    "type": lambda c: [type(i) for i in c],
    "size": lambda c: torch.Size,
}


@pytest.mark.parametrize("use", CONTAINER_USES)
def test_a_container_of_them_given_to_c(use: str) -> None:
    function = CONTAINER_USES[use]

    def f(x: Any, value: Any) -> Any:
        h = Holder()
        h.text = [value]
        return x + 1, function(h.text)

    check(f)


def test_an_attribute_of_a_module_is_still_handed_on() -> None:
    class Model(torch.nn.Module):
        last: Any = None

        def forward(self, batch: Any) -> Any:
            self.last = batch["name"]
            return batch["x"] + 1

    model = Model()
    compiled = framejit.compile(model)
    compiled({"x": torch.ones(1), "name": "first"})
    before = framejit.counters()["compiles"]
    for number in range(5):
        compiled({"x": torch.ones(1), "name": f"n{number}"})
        assert model.last == f"n{number}"
    assert framejit.counters()["compiles"] == before


# ---- what functions that C code calls give it


class Answering:
    """Every special method gives the text."""

    def __init__(self, batch: Any) -> None:
        self.batch = batch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return self.batch["n"]


def answer(self: Any, *args: Any) -> Any:
    return self.batch["n"]


for special in (
    "fspath str repr format bytes reduce_ex index len bool hash dir iter next call eq lt "
    "contains enter instancecheck sizeof round reversed getitem length_hint copy abs int "
    "float set_name"
).split():
    setattr(Answering, f"__{special}__", answer)

ANSWERS = [
    "os.fspath(p)", "str(p)", "repr(p)", "format(p)", "f'{p}'", "'%s' % p", "bytes(p)",
    "copy.copy(p)", "copy.deepcopy(p)", "len(p)", "bool(p)", "hash(p)", "dir(p)",
    "list(p)", "iter(p)", "next(p)", "p(1)", "p == 1", "p < 1", "1 in p",
    "getattr(p, 'q')", "hasattr(p, 'q')", "getattr(p, 'q', 1)", "isinstance(1, p)",
    "round(p)", "reversed(p)", "p[0]", "abs(p)", "int(p)", "float(p)", "range(p)",
    "[1, 2][p]", "re.sub('a', lambda m: d['n'], 'bab')",
    "json.dumps(p, default=lambda o: d['n'])",
    "functools.reduce(lambda a, b: d['n'], [1, 2, 3])",
    "max([1, 2], key=lambda i: d['n'])", "sorted([2, 1], key=lambda i: d['n'])",
    "list(map(lambda i: d['n'], [1]))", "list(filter(lambda i: d['n'], [1]))",
    "''.join(map(lambda i: d['n'], [1]))", "dict(map(lambda i: (d['n'], 1), [1]))",
    "dict(map(lambda i: (1, d['n']), [1]))", "type('C', (), {'a': p}).__name__",
    "any(map(lambda i: d['n'], [1]))", "ImportError(*map(lambda i: d['n'], [1])).msg",
    "str(ImportError(*map(lambda i: d['n'], [1])))", "next(map(lambda i: d['n'], [1]))",
    "next(iter(lambda: d['n'], 5))", "min(map(lambda i: d['n'], [1]))",
    "'abc'.replace('a', p.q)", "functools.partial(lambda i: d['n'])(1)",
    "type('C', (), dict(map(lambda i: ('__module__', d['n']), [1]))).__module__",
    "sum(map(lambda i: d['n'], [1]), '')", "functools.lru_cache(lambda i: d['n'])(1)",
    "str(p, 'ascii')", "torch.Size(p)",
]  # fmt: skip


@pytest.mark.parametrize("answer", ANSWERS)
def test_what_c_code_is_answered(answer: str) -> None:
    names: dict[str, Any] = {
        "Holder": Holder, "Answering": Answering, "torch": torch, "os": os, "re": re,
        "copy": copy, "json": json, "functools": functools,
    }  # fmt: skip
    exec(
        "def f(x, text):\n"
        "    d = {'n': text}\n"
        "    h, p = Holder(), Answering(d)\n"
        f"    h.text = {answer}\n"
        "    return x + 1, h.text if isinstance(h.text, str) else type(h.text)\n"
        "def of_a_batch(x, d):\n"
        "    h, p = Holder(), Answering(d)\n"
        f"    h.text = {answer}\n"
        "    return x + 1, h.text\n",
        names,
    )
    check(names["f"])
    compiled = framejit.compile(names["of_a_batch"])
    for value in TEXTS:
        found, eager = (
            outcome(lambda x, d, f=f: (x, type(f(x, d)[1])), {"n": value})
            for f in (compiled, names["of_a_batch"])
        )
        assert found == eager, value
