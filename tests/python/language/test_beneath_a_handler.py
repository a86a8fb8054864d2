"""Functions that are called while their caller handles an exception.

What is raised and caught meanwhile has that exception as its `__context__`, bare
`raise` raises it again and sys.exc_info() names it. Each program is called with
and without a handler around it, in both orders.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import framejit

BACKENDS = ("eager", "native")
BODIES: dict[str, Callable[[torch.Tensor], Any]] = {}
PLACES: dict[str, Callable[[Callable[[], Any]], Any]] = {}


def body(f: Callable[[torch.Tensor], Any]) -> Callable[[torch.Tensor], Any]:
    BODIES[f.__name__] = f
    return f


def place(f: Callable[[Callable[[], Any]], Any]) -> Callable[[Callable[[], Any]], Any]:
    PLACES[f.__name__] = f
    return f


def chain(error: BaseException | None) -> list[str]:
    found = []
    while error is not None:
        found.append(repr(error))
        error = error.__context__
    return found


@body
def raises_and_catches(x):
    try:
        raise ValueError("mine")
    except ValueError as error:
        return x + 1, chain(error)


@body
def returns_what_it_caught(x):
    try:
        raise ValueError("mine")
    except ValueError as error:
        return x + 1, error.with_traceback(None)


@body
def catches_of_c(x):
    y = x * 2
    try:
        {}["missing"]
    except KeyError as error:
        seen = type(error.__context__)
    return y, seen


@body
def catches_in_a_callee(x):
    def inner():
        try:
            int("x")
        except ValueError as error:
            return chain(error)

    return x + 1, inner()


@body
def raises_in_a_callee(x):
    def inner():
        raise IndexError("inner")

    try:
        inner()
    except IndexError as error:
        return x + 1, chain(error)


@body
def finally_while_raising(x):
    seen = []
    try:
        try:
            raise ValueError("first")
        finally:
            seen += chain(sys.exc_info()[1])
    except ValueError:
        pass
    return x + 1, seen


@body
def suppressed_by_a_manager(x):
    seen = []

    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, kind, error, lines):
            seen.extend(chain(error))
            return True

    with Manager():
        raise ValueError("in with")
    return x + 1, seen


@body
def thrown_into_a_generator(x):
    seen = []

    def generator():
        try:
            yield 1
        except ValueError as error:
            seen.extend(chain(error))
        yield 2

    made = generator()
    next(made)
    made.throw(ValueError("thrown"))
    return x + 1, seen


@body
def a_context_manager_function(x):
    seen = []

    @contextlib.contextmanager
    def manager():
        try:
            yield 1
        except ValueError as error:
            seen.extend(chain(error))

    with manager():
        raise ValueError("in with")
    return x + 1, seen


@body
def within_its_own_handler(x):
    try:
        raise ValueError("outer of mine")
    except ValueError:
        try:
            raise IndexError("inner of mine")
        except IndexError as error:
            return x + 1, chain(error)


@body
def asks_what_is_handled(x):
    kind, error, lines = sys.exc_info()
    return x + 1, kind, repr(error), lines is None


@body
def branches_on_what_is_handled(x):
    return x + 1 if sys.exc_info()[0] is None else x - 1


@body
def raises_again(x):
    y = x + 1
    try:
        raise
    except Exception as error:
        return y, repr(error)


@body
def lets_it_go(x):
    y = x + 1
    raise ValueError(str(y.shape))


@body
def catches_nothing(x):
    y = x + 1
    with contextlib.suppress(IndexError):
        y = y * 2
    return y, [v for v in iter([1, 2])], next(iter(()), None)


@place
def nowhere(call):
    return call()


@place
def in_except(call):
    try:
        raise OSError("handled")
    except OSError:
        return call()


@place
def in_finally(call):
    found = None
    with contextlib.suppress(OSError):
        try:
            raise OSError("handled")
        finally:
            found = call()
    return found


@place
def in_exit(call):
    found = []

    class Manager:
        def __enter__(self):
            return self

        def __exit__(self, *_):
            found.append(call())
            return True

    with Manager():
        raise OSError("handled")
    return found[0]


@place
def in_a_generator(call):
    def generator() -> Iterator[Any]:
        try:
            raise OSError("handled")
        except OSError:
            yield call()
            yield call()

    made = generator()
    next(made)
    return next(made)


@place
def beside_a_suspended_one(call):
    def generator() -> Iterator[Any]:
        try:
            raise OSError("handled")
        except OSError:
            yield 1

    made = generator()
    next(made)
    return call()


def outcome(where: Callable[..., Any], f: Callable[..., Any]) -> Any:
    def call() -> Any:
        try:
            return f(torch.ones(2))
        except Exception as error:
            return "raised", chain(error)

    value = where(call)
    if isinstance(value, tuple) and isinstance(value[-1], BaseException):
        value = (*value[:-1], chain(value[-1]))
    return repr(value)


ORDERS = [
    order
    for order in itertools.permutations(PLACES, 2)
    if "nowhere" in order or order[0] == "in_except"
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", BODIES)
def test_calls_beneath_handlers(name: str, backend: str) -> None:
    f = BODIES[name]
    for order in ORDERS:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        for where in (*order, *order):
            expected = outcome(PLACES[where], f)
            assert outcome(PLACES[where], compiled) == expected, (order, where)


def test_what_catches_nothing_is_one_entry() -> None:
    """Only a program that catches asks whether somebody handles an exception."""
    compiled = framejit.compile(BODIES["catches_nothing"])
    for where in PLACES.values():
        outcome(where, compiled)
    (entry,) = framejit.inspect(compiled)
    assert not entry.breaks
