"""The traceback of an exception that goes through context managers, and of one
that is given another by hand: kinds of managers x what raises x where the graph
breaks."""

import contextlib
import sys

import pytest
import torch

import framejit


def opaque():
    return framejit.graph_break()


def nothing():
    return None


def deeper():
    raise ValueError("inner")


@contextlib.contextmanager
def finishes(pause):
    try:
        yield
    finally:
        pause()


@contextlib.contextmanager
def catches_another(pause):
    try:
        yield
    except KeyError:
        pause()


@contextlib.contextmanager
def raises_again(pause):
    try:
        yield
    except ValueError:
        pause()
        raise


@contextlib.contextmanager
def raises_by_name(pause):
    try:
        yield
    except ValueError as error:
        pause()
        raise error


@contextlib.contextmanager
def raises_another(pause):
    try:
        yield
    except ValueError:
        pause()
        raise KeyError("another")


@contextlib.contextmanager
def raises_from(pause):
    try:
        yield
    except ValueError as error:
        pause()
        raise RuntimeError("of it") from error


class Plain:
    def __init__(self, pause):
        self.pause = pause

    def __enter__(self):
        return self

    def __exit__(self, kind, error, traceback):
        self.pause()
        return False


class RaisesAgain(Plain):
    def __exit__(self, kind, error, traceback):
        self.pause()
        raise error


class RaisesWith(Plain):
    def __exit__(self, kind, error, traceback):
        self.pause()
        raise KeyError("with").with_traceback(traceback)


class GivesItsOwn(Plain):
    def __exit__(self, kind, error, traceback):
        try:
            [1][2]
        except IndexError:
            lines = sys.exc_info()[2]
        self.pause()
        error.__traceback__ = lines
        return False


class Forgets(Plain):
    def __exit__(self, kind, error, traceback):
        self.pause()
        error.__traceback__ = None
        return False


MANAGERS = (
    finishes,
    catches_another,
    raises_again,
    raises_by_name,
    raises_another,
    raises_from,
    Plain,
    RaisesAgain,
    RaisesWith,
    GivesItsOwn,
    Forgets,
)


def one(x, manager, before, within, raises):
    y = x + 1
    before()
    with manager(within):
        raises()
    return y


def in_another(x, manager, before, within, raises):
    with finishes(nothing):
        y = x + 1
        before()
        with manager(within), Plain(nothing):
            raises()
    return y


def in_itself(x, manager, before, within, raises):
    with manager(nothing):
        y = x + 1
        before()
        with manager(within):
            raises()
    return y


def in_a_stack(x, manager, before, within, raises):
    y = x + 1
    with contextlib.ExitStack() as stack:
        stack.enter_context(manager(nothing))
        before()
        stack.enter_context(manager(within))
        raises()
    return y


def caught(x, manager, before, within, raises):
    y = x + 1
    try:
        before()
        with manager(within):
            raises()
    except Exception as error:
        y = y * 2
        raise error.with_traceback(sys.exc_info()[2]) from None
    return y


PROGRAMS = (one, in_another, in_itself, in_a_stack, caught)
BREAKS = {"before": (opaque, nothing), "within": (nothing, opaque)}


def lines(error):
    """(file, function, line) of each frame, of the exception and what caused it."""
    found = []
    while error is not None:
        trace, frames = error.__traceback__, []
        while trace:
            code = trace.tb_frame.f_code
            name = code.co_filename
            if name == __file__ or name == contextlib.__file__:
                frames.append((name, code.co_name, trace.tb_lineno))
            trace = trace.tb_next
        found.append((repr(error), frames))
        error = error.__cause__ or error.__context__
    return found


def outcome(fn, *args):
    try:
        return fn(torch.ones(3), *args)
    except Exception as error:
        # The first frame is this one.
        found = lines(error)
        return [(found[0][0], found[0][1][1:]), *found[1:]]


@pytest.mark.parametrize("place", BREAKS)
@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("manager", MANAGERS, ids=lambda each: each.__name__)
def test_lines_are_those_of_eager(manager, fn, place):
    before, within = BREAKS[place]
    for raises in (deeper, lambda: [1][2]):
        expected = outcome(fn, manager, before, within, raises)
        compiled = framejit.compile(fn, backend="eager")
        for _ in range(3):
            assert outcome(compiled, manager, before, within, raises) == expected


def test_an_exception_of_the_caller_gets_the_lines():
    def fn(x, error):
        try:
            deeper()
        except ValueError:
            error.__traceback__ = sys.exc_info()[2]
        return x + 1

    compiled = framejit.compile(fn, backend="eager")
    for function in (fn, compiled, compiled):
        error = KeyError("known")
        function(torch.ones(3), error)
        assert [name for _, name, _ in lines(error)[0][1]] == ["fn", "deeper"]
