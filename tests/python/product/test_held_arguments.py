"""An object that only the arguments of a call hold dies where eager drops them:
with the parameter, or behind the call with the tuple or dict of a star.
"""

from __future__ import annotations

import functools  # noqa: F401  (the programs name it)
import itertools

import pytest
import torch
from test_finalizers import BUFFER, LOG, WATCH, Guarded, watched

import framejit


def deletes(a, y):
    LOG.append("in")
    del a
    LOG.append("out")
    return y + BUFFER


def rebinds(a, y):
    LOG.append("in")
    a = None
    LOG.append("out")
    return y + BUFFER if a is None else y


def keeps(a, y):
    LOG.append("in")
    y = y + BUFFER
    LOG.append("out")
    return y


def of_any_number(*args, **kwargs):
    LOG.append("in")
    y = kwargs["y"] if "y" in kwargs else args[-1]
    kwargs.clear()
    del args
    LOG.append("out")
    return y + BUFFER


def passes_on(a, y):
    LOG.append("on")
    y = deletes(*(a, y))
    LOG.append("back")
    del a
    LOG.append("dropped")
    return y


class Methods:
    """The call in between is one of Python's own."""

    def __init__(self, f):
        self.f = f

    def method(self, a, y):
        return self.f(a=a, y=y)

    def __call__(self, *args):
        return self.f(*args)


class Made:
    def __init__(self, a, y):
        LOG.append("init")
        del a
        LOG.append("made")
        self.y = y + BUFFER


CALLEES = [deletes, rebinds, keeps, of_any_number, passes_on]
CALLS = [
    "f(make(), y)",
    "f(*(make(), y))",
    "f(*[make(), y])",
    "f(make(), *(y,))",
    "f(*(make(),), y)",
    "f(*(make(),), **{'y': y})",
    "f(a=make(), y=y)",
    "f(**{'a': make(), 'y': y})",
    "f(**dict(a=make(), y=y))",
    "f(y=y, **{'a': make()})",
    "functools.partial(f, make())(y)",
    "functools.partial(f, make(), y)()",
    "functools.partial(f, y=y)(make())",
    "functools.partial(f)(*(make(), y))",
    "Methods(f).method(make(), y)",
    "Methods(f).method(*(make(), y))",
    "Methods(f)(*(make(), y))",
    "(lambda bound: bound(*(make(), y)))(Methods(f).method)",
    "Made(make(), y).y",
    "Made(*(make(), y)).y",
    "list(map(f, [make()], [y]))[0]",
    "[f(*pair) for pair in [(make(), y)]][0]",
    "list(itertools.starmap(f, [(make(), y)]))[0]",
    "[y for _ in filter(lambda a: f(a, y) is not None, [make()])][0]",
    "sorted([make()], key=lambda a: len(f(a, y))) and y",
    "functools.reduce(lambda y, a: f(a, y), [make(), make('second')], y)",
]
PROGRAM = """
def program(x, f, make):
    y = x + BUFFER
    {before}
    y = {call}
    LOG.append("after")
    y = y * 2 + BUFFER
    LOG.append("end")
    return y
"""


def run(program, *args):
    LOG.clear()
    WATCH.clear()
    BUFFER.zero_()
    result = program(*args)
    LOG.append("returned")
    return result, list(LOG), BUFFER.tolist()


@pytest.mark.parametrize("before", ["pass", "framejit.graph_break()"])
@pytest.mark.parametrize("call", CALLS)
def test_an_argument_dies_where_eager_drops_it(call, before):
    space = {**globals()}
    exec(PROGRAM.format(call=call, before=before), space)
    program = space["program"]
    for callee, make in itertools.product(CALLEES, (Guarded, watched)):
        framejit.reset()
        compiled = framejit.compile(program, backend="eager")
        for turn in range(2):
            x = torch.full((2,), float(turn))
            expected = run(program, x, callee, make)
            found = run(compiled, x, callee, make)
            torch.testing.assert_close(found[0], expected[0])
            assert found[1:] == expected[1:], (callee.__name__, make.__name__)
