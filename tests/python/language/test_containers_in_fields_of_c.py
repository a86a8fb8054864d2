"""A container of the program that is stored in a field of an object of C is looked at by
C code, which no guard covers and which knows nothing of what the capture wrote."""

from __future__ import annotations

import collections
import copy
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit


class Holder:
    pass


class First:
    pass


class Second:
    pass


class Mine(Exception):
    pass


def made() -> Any:
    def inner(a: Any = 1, *, b: Any = 2) -> Any:
        return a, b

    return inner


def raised(do: Callable[[], Any]) -> Any:
    try:
        return do()
    except Exception as error:
        return type(error), str(error)


def arguments(v: Any) -> Any:
    e = KeyError(1)
    e.args = v
    return e.args, str(e), repr(e)


def arguments_in_a_tuple(v: Any) -> Any:
    e = Mine(1)
    e.args = (v,)
    return e.args, str(e), repr(e)


def arguments_that_were_written(v: Any) -> Any:
    v.append(9)
    e = KeyError(1)
    e.args = v
    return e.args, str(e)


def arguments_of_a_class(v: Any) -> Any:
    class Own(Exception):
        pass

    e = Own(1)
    e.args = v
    return e.args, repr(e)


def made_with(v: Any) -> Any:
    e = ImportError(v)
    return str(e), repr(e), e.args


def keyword_defaults(v: Any) -> Any:
    f = made()
    f.__kwdefaults__ = v
    return f()


def defaults(v: Any) -> Any:
    f = made()
    f.__defaults__ = v
    return f()


def annotations(v: Any) -> Any:
    f = made()
    f.__annotations__ = v
    return f.__annotations__


def abstract_methods(v: Any) -> Any:
    made = type("C", (), {})
    made.__abstractmethods__ = v  # type: ignore[attr-defined]
    return raised(lambda: str(type(made())))


def bases(v: Any) -> Any:
    made = type("C", (First,), {})
    return raised(lambda: setattr(made, "__bases__", v)), made.__mro__[1].__name__


def errno(v: Any) -> Any:
    e = OSError(1, "a")
    e.errno = v
    return str(e)


def strerror(v: Any) -> Any:
    e = OSError(1, "a")
    e.strerror = v
    return str(e)


def value(v: Any) -> Any:
    e = StopIteration(1)
    e.value = v
    return repr(e.value)


def dict_of_an_instance(v: Any) -> Any:
    h = Holder()
    h.__dict__ = v
    return sorted(vars(h))


def dict_that_is_written(v: Any) -> Any:
    h = Holder()
    h.__dict__ = v
    h.q = 5  # type: ignore[attr-defined]
    return sorted(v)


def wrapped(v: Any) -> Any:
    f = made()
    f.__annotations__ = v
    f.__wrapped__ = v
    return functools.wraps(f)(made()).__annotations__


def notes(v: Any) -> Any:
    e = Mine(1)
    e.__notes__ = v
    e.add_note("q")
    return e.__notes__, v


LISTS = [[1], [2], [3, 4], [], ["a"]]
TUPLES = [(1,), (2,), ([1], 2), (), ("a",)]
DICTS = [{"b": 1}, {"b": 3}, {"c": 1}, {}]
NUMBERS = [1, 2, 5, 5.5, "a", None]
ROWS: list[tuple[Callable[[Any], Any], list[Any]]] = [
    (arguments, LISTS), (arguments, TUPLES), (arguments, DICTS), (arguments, NUMBERS),
    (arguments, [{1}, {2}, "ab", range(3)]), (arguments_in_a_tuple, LISTS),
    (arguments_in_a_tuple, DICTS), (arguments_that_were_written, LISTS),
    (arguments_of_a_class, LISTS), (arguments_of_a_class, TUPLES), (made_with, LISTS),
    (made_with, TUPLES), (keyword_defaults, DICTS), (defaults, TUPLES),
    (annotations, DICTS), (abstract_methods, [{"q"}, {"r"}, set()]),
    (abstract_methods, LISTS), (bases, [(First,), (Second,), (Second, First)]),
    (errno, LISTS), (errno, NUMBERS), (strerror, LISTS), (strerror, TUPLES),
    (value, LISTS), (value, NUMBERS), (dict_of_an_instance, DICTS),
    (dict_that_is_written, DICTS), (wrapped, DICTS), (notes, LISTS),
]  # fmt: skip


# ---- classes, and other objects of C that are made of what the program has


def with_slots(v: Any) -> Any:
    made = type("C", (), {"__slots__": v})
    return [name for name in ("p", "q", "r") if hasattr(made, name)], made.__slots__  # type: ignore[attr-defined]


def with_slots_that_were_written(v: Any) -> Any:
    v.append("r")
    return with_slots(v)


def with_slots_in_a_body(v: Any) -> Any:
    class C:
        __slots__ = v

    return [name for name in ("p", "q", "r") if hasattr(C, name)]


def of_bases(v: Any) -> Any:
    return type("C", v, {}).__mro__[1].__name__


def of_a_namespace(v: Any) -> Any:
    return sorted(name for name in vars(type("C", (), v)) if name[0] != "_")


def of_a_function(v: Any) -> Any:
    return types.FunctionType(made().__code__, {}, "f", v, None)(b=1)


def of_globals(v: Any) -> Any:
    return types.FunctionType((lambda: b).__code__, v)()  # type: ignore[name-defined] # noqa: F821


def matched_by(v: Any) -> Any:
    made = type("C", (), {"__match_args__": v, "p": 1, "q": 2})
    match made():
        case made(x):  # type: ignore[misc]
            return x
        case _:
            return 0


def named_tuple(v: Any) -> Any:
    return repr(collections.namedtuple("T", v)(*v))


def alias(v: Any) -> Any:
    return repr(types.GenericAlias(list, v))


def partial(v: Any) -> Any:
    made = functools.partial(arguments, v)
    return made.args, made()


def syntax_error(v: Any) -> Any:
    e = SyntaxError("a", v)
    return e.filename, e.lineno, str(e), repr(e)


def os_error(v: Any) -> Any:
    return str(OSError(*v)), OSError(*v).args


def group(v: Any) -> Any:
    return [repr(e) for e in ExceptionGroup("a", v).exceptions]


PLACES: list[list[Any]] = [["a", 1, 2, "x"], ["b", 1, 2, "y"]]
NAMES = [["p"], ["q"], ["p", "q"]]
ROWS += [
    (with_slots, NAMES), (with_slots, [("p",), ("q",)]), (with_slots, ["p", "q"]),
    (with_slots, [{"p": 1}, {"q": 1}]), (with_slots_that_were_written, NAMES),
    (with_slots_in_a_body, NAMES), (of_bases, [(First,), (Second,), (Second, First)]),
    (of_a_namespace, DICTS), (of_a_function, TUPLES), (of_globals, DICTS),
    (matched_by, [("p",), ("q",), ()]), (matched_by, NAMES), (named_tuple, NAMES),
    (alias, LISTS), (alias, TUPLES), (partial, LISTS), (syntax_error, PLACES),
    (syntax_error, [tuple(row) for row in PLACES]), (os_error, [[1, "a"], [2, "b"]]),
    (group, [[KeyError(1)], [KeyError(1), ValueError(2)]]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("use", "values"),
    ROWS,
    ids=[f"{i}-{row[0].__name__}" for i, row in enumerate(ROWS)],
)
def test_equals_eager(use: Callable[[Any], Any], values: list[Any]) -> None:
    def f(x: Any, v: Any) -> Any:
        return x + 1, use(v)

    compiled = framejit.compile(f)
    for given in values * 2:
        found, expected = (
            raised(lambda g=g: repr(g(torch.ones(1), copy.deepcopy(given))[1]))
            for g in (compiled, f)
        )
        assert found == expected, given
