"""Every builtin over what a capture may pass on but not know (a traceback, what the
caller handles, id(), a context token, a frame, a text that is handed on): eager's
answer, whether by a break, a guard or a model."""

from __future__ import annotations

import contextvars
import copy
import functools
import gc
import inspect
import operator
import pickle
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit


class Holder:
    value: Any = None


VARIABLE: contextvars.ContextVar[int] = contextvars.ContextVar("VARIABLE", default=0)


def traceback_of_handler(use: Any, given: Any) -> Any:
    try:
        raise ValueError("v")
    except ValueError:
        return use(sys.exc_info()[2])


def traceback_of_exit(use: Any, given: Any) -> Any:
    class Manager:
        def __enter__(self) -> Any:
            return self

        def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
            self.result = use(traceback)
            return True

    manager = Manager()
    with manager:
        raise ValueError("v")
    return manager.result


def handled_by_caller(use: Any, given: Any) -> Any:
    return use(sys.exc_info()[1])


def class_handled_by_caller(use: Any, given: Any) -> Any:
    return use(sys.exc_info()[0])


def identity(use: Any, given: Any) -> Any:
    return use(id(VARIABLE))


def token(use: Any, given: Any) -> Any:
    token = VARIABLE.set(1)
    result = use(token)
    VARIABLE.reset(token)
    return result


def frame(use: Any, given: Any) -> Any:
    return use(sys._getframe())


def moved(use: Any, given: Any) -> Any:
    holder = Holder()
    holder.value = given
    return use(holder.value)


def moved_in_a_list(use: Any, given: Any) -> Any:
    holder = Holder()
    holder.value = [given]
    return use(holder.value[0])


KINDS = [
    traceback_of_handler, traceback_of_exit, handled_by_caller, class_handled_by_caller,
    identity, token, frame, moved, moved_in_a_list,
]  # fmt: skip


def name_of(value: Any) -> Any:
    return value.__name__ if isinstance(value, type) else type(value).__name__


def is_text(value: Any) -> Any:
    return [isinstance(value, kind) for kind in (str, bytes, int, type, BaseException)]


def is_class(value: Any) -> Any:
    return [
        issubclass(type(value), kind)
        for kind in (str, bytes, int, BaseException, object)
    ]


def matched(value: Any) -> Any:
    match value:
        case str():
            return "text"
        case int():
            return "number"
        case None:
            return "none"
        case [*_]:
            return "sequence"
        case {}:
            return "mapping"
        case BaseException():
            return "exception"
        case type():
            return "class"
        case _:
            return "other"


USES: dict[str, Callable[[Any], Any]] = {
    "dir": lambda v: dir(v),
    "len dir": lambda v: ("upper" in dir(v), len(dir(v))),
    "vars": lambda v: sorted(vars(v)),
    "type": lambda v: name_of(type(v)),
    "type is": lambda v: (type(v) is str, type(v) is int, type(v) is type(None)),
    "class": lambda v: name_of(v.__class__),
    "isinstance": is_text,
    "isinstance tuple": lambda v: isinstance(v, (str, int)),
    "issubclass": is_class,
    "issubclass of": lambda v: issubclass(v, BaseException),
    "id": lambda v: id(v) == id(v),
    "hash": lambda v: hash(v) == hash(v),
    "hash type": lambda v: name_of(hash(v)),
    "len": lambda v: len(v),
    "repr": lambda v: name_of(repr(v)),
    "repr start": lambda v: repr(v)[:6],
    "str": lambda v: str(v)[:6],
    "ascii": lambda v: ascii(v)[:6],
    "format": lambda v: format(v)[:6],
    "f-string": lambda v: f"{v}"[:6],
    "f-string repr": lambda v: f"{v!r:.5}",
    "percent": lambda v: ("%s" % (v,))[:6],
    "percent d": lambda v: len("%d" % v) > 0,
    "str.format": lambda v: "{}".format(v)[:6],
    "bool": lambda v: (bool(v), not v, v and 1),
    "callable": lambda v: callable(v),
    "call": lambda v: name_of(v()),
    "getattr": lambda v: name_of(getattr(v, "__doc__", 1)),
    "getattr default": lambda v: getattr(v, "nothing", 5),
    "getattr own": lambda v: [
        name_of(getattr(v, name, 7))
        for name in ("tb_next", "f_back", "upper", "args", "var", "real")
    ],
    "hasattr": lambda v: [
        hasattr(v, name)
        for name in ("tb_lineno", "f_lineno", "upper", "args", "var", "real", "nothing")
    ],
    "setattr": lambda v: setattr(v, "attribute_of_test", 1),
    "delattr": lambda v: delattr(v, "nothing"),
    "iter": lambda v: len(list(v)) > 0,
    "next": lambda v: next(v),
    "in": lambda v: v in [1, "q", v],
    "in text": lambda v: v in "abc",
    "contains": lambda v: "a" in v,
    "is": lambda v: (v is None, v is v, v is not True),
    "equal": lambda v: (v == 5, v == None, v != "q", v == v),  # noqa: E711
    "less": lambda v: v < 5,
    "sorted": lambda v: len(sorted([v, v])),
    "sorted key": lambda v: sorted([2, 1], key=lambda i: (i, v))[0],
    "min": lambda v: min(v, v) is v,
    "max": lambda v: name_of(max([v])),
    "sum": lambda v: name_of(sum([v])),
    "any": lambda v: (any([v]), all([v])),
    "abs": lambda v: abs(v) > 0,
    "int": lambda v: int(v) > 0,
    "float": lambda v: float(v) > 0,
    "complex": lambda v: name_of(complex(v)),
    "round": lambda v: round(v) > 0,
    "divmod": lambda v: name_of(divmod(v, 2)),
    "pow": lambda v: name_of(pow(v, 2)),
    "hex": lambda v: hex(v)[:2],
    "chr": lambda v: chr(v),
    "ord": lambda v: ord(v),
    "index": lambda v: operator.index(v) > 0,
    "range": lambda v: len(range(v)) > 0,
    "bytes": lambda v: name_of(bytes(v, "ascii")),
    "memoryview": lambda v: name_of(memoryview(v)),
    "slice": lambda v: name_of(slice(v).stop),
    "list": lambda v: (name_of([v][0]), len([v])),
    "tuple": lambda v: name_of(tuple([v])[0]),
    "dict": lambda v: name_of(dict(a=v)["a"]),
    "dict key": lambda v: {v: 1}[v],
    "set": lambda v: len({v, v}),
    "frozenset": lambda v: v in frozenset([v]),
    "zip": lambda v: name_of(list(zip([v], strict=True))[0][0]),
    "map": lambda v: list(map(name_of, [v])),
    "map type": lambda v: [t.__name__ for t in map(type, [v])],
    "map callable": lambda v: list(map(callable, [v])),
    "filter": lambda v: len(list(filter(None, [v]))),
    "enumerate": lambda v: name_of(list(enumerate([v]))[0][1]),
    "reversed": lambda v: name_of(list(reversed([v]))[0]),
    "weakref": lambda v: name_of(weakref.ref(v)),
    "weak set": lambda v: len(weakref.WeakSet([v])),
    "copy": lambda v: name_of(copy.copy(v)),
    "deepcopy": lambda v: name_of(copy.deepcopy(v)),
    "pickle": lambda v: name_of(pickle.dumps(v)),
    "referents": lambda v: len(gc.get_referents(v)) >= 0,
    "tracked": lambda v: gc.is_tracked(v),
    "getsizeof": lambda v: sys.getsizeof(v),
    "sizeof": lambda v: v.__sizeof__(),
    "getrefcount": lambda v: name_of(sys.getrefcount(v)),
    "intern": lambda v: sys.intern(v) is not None,
    "isbuiltin": lambda v: inspect.isbuiltin(v),
    "isclass": lambda v: inspect.isclass(v),
    "isfunction": lambda v: inspect.isfunction(v),
    "ismodule": lambda v: inspect.ismodule(v),
    "isframe": lambda v: (inspect.isframe(v), inspect.istraceback(v)),
    "isawaitable": lambda v: inspect.isawaitable(v),
    "ismethod": lambda v: (inspect.ismethod(v), inspect.isroutine(v)),
    "getdoc": lambda v: name_of(inspect.getdoc(v)),
    "getmembers": lambda v: len(inspect.getmembers(v)) > 3,
    "partial": lambda v: functools.partial(name_of, v)(),
    "reduce": lambda v: name_of(functools.reduce(lambda a, b: a, [v, 1])),
    "singledispatch": lambda v: functools.singledispatch(name_of)(v),
    "attrgetter": lambda v: name_of(operator.attrgetter("__class__")(v)),
    "itemgetter": lambda v: name_of(operator.itemgetter(0)(v)),
    "truth": lambda v: (operator.truth(v), operator.not_(v)),
    "is_": lambda v: (operator.is_(v, v), operator.is_(v, None)),
    "not": lambda v: not v,
    "and": lambda v: 1 if v else 2,
    "add": lambda v: name_of(v + v),
    "add one": lambda v: name_of(v + 1),
    "one add": lambda v: name_of(1 + v),
    "negative": lambda v: name_of(-v),
    "subscript": lambda v: name_of(v[0]),
    "with": lambda v: name_of(v.__enter__),
    "dunder": lambda v: (name_of(v.__class__), name_of(v.__hash__), name_of(v.__doc__)),
    "reduce_ex": lambda v: name_of(v.__reduce_ex__(2)),
    "match": matched,
    "exception": lambda v: name_of(ValueError(v).args[0]),
    "exception text": lambda v: str(KeyError(v))[:4],
    "import error": lambda v: str(ImportError(v))[:4],
    "unpack": lambda v: name_of([*v]),
    "keywords": lambda v: name_of(dict(**v)),
    "print": lambda v: print(v, end="") if isinstance(v, (str, type(None))) else 0,
    "property": lambda v: name_of(property(v).fget),
    "staticmethod": lambda v: name_of(staticmethod(v).__func__),
    "super": lambda v: name_of(super(type(v), v)),
    "typed": lambda v: type("C", (), {"a": v}).a is v,  # type: ignore[attr-defined]
    "bases": lambda v: name_of(type("C", (v,), {})),
    "namespace": lambda v: name_of(type("C", (), {"__module__": v}).__module__),
    "object": lambda v: object.__repr__(v)[:2],
    "object eq": lambda v: (object.__eq__(v, v), object.__ne__(v, 1)),
    "object hash": lambda v: object.__hash__(v) == object.__hash__(v),
    "object dir": lambda v: len(object.__dir__(v)),
    "object getattribute": lambda v: name_of(object.__getattribute__(v, "__class__")),
    "object sizeof": lambda v: object.__sizeof__(v),
    "type instancecheck": lambda v: type.__instancecheck__(str, v),
    "tensor": lambda v: name_of(torch.tensor(v)),
    "tensor add": lambda v: name_of(torch.ones(1) + v),
    "is_tensor": lambda v: (torch.is_tensor(v), isinstance(v, torch.Tensor)),
    "errno": lambda v: stored_in_c(OSError("a"), "errno", v),
    "name": lambda v: stored_in_c(ImportError("a"), "msg", v),
    "module": lambda v: repr(stored_in_c(type("C", (), {}), "__module__", v))[:3],
    "traceback": lambda v: stored_in_c(ValueError("a"), "__traceback__", v),
}  # fmt: skip


def stored_in_c(made: Any, name: str, value: Any) -> Any:
    setattr(made, name, value)
    return made if isinstance(made, type) else str(made)


def outcome(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except Exception as error:
        return type(error), str(error)


def called(function: Any, handling: bool, given: Any) -> Any:
    if not handling:
        return outcome(lambda: function(torch.ones(1), given)[1:])
    try:
        raise LookupError("handled")
    except LookupError:
        return outcome(lambda: function(torch.ones(1), given)[1:])


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("use", USES)
def test_equals_eager(use: str, kind: Callable[..., Any]) -> None:
    look = USES[use]

    def f(x: Any, given: Any) -> Any:
        return x + 1, kind(look, given)

    compiled = framejit.compile(f)
    for given in ("a", "bc", "a", b"a"):
        for handling in (False, True):
            eager = called(f, handling, given)
            assert called(compiled, handling, given) == eager, (given, handling)
