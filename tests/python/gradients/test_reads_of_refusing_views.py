"""Views that can no longer say their history.

A part of `unbind`, or a view made without gradients, of a base that was written
to since: eager's operators raise when they read it, whether or not anything
comes of their result. So must a graph that it comes into, as an argument or
behind a break, where the read is dead in it, too.
"""

from __future__ import annotations

import itertools

import pytest
import torch
from torch.nn import functional as F

import framejit
from differential import BACKENDS


def no_grad_view(y):
    with torch.no_grad():
        return y[0]


VIEWS = {
    "unbind": lambda y: y.unbind()[0],
    "split": lambda y: y.split(1)[0],
    "chunk": lambda y: torch.chunk(y, 3)[1],
    "unpacked": lambda y: [*y][2],
    "no_grad": no_grad_view,
    "select": lambda y: y[0],  # may be read
}


def by_view(y, part):
    with torch.no_grad():
        part.fill_(2.0)


def by_base(y, part):
    with torch.no_grad():
        y.mul_(2)


def by_other_view(y, part):
    y.t().mul_(2)


def by_nothing(y, part):
    pass


WRITES = [by_view, by_base, by_other_view, by_nothing]


def used(y, part):
    return y * 2 + part.sin().sum()


def dead(y, part):
    part.sin()
    return y * 2


def dead_among_others(y, part):
    F.softplus(part + 1).sum()
    return torch.relu(y), y.detach() + 1


def dead_without_gradients(y, part):
    with torch.no_grad():
        part.sin()
    return y * 2


def dead_view(y, part):
    part[:1]
    return y * 2


def nothing(y, part):
    return y * 2


READS = [used, dead, dead_among_others, dead_without_gradients, dead_view, nothing]


def outcome(fn):
    y = torch.linspace(0, 1, 9).reshape(3, 3).requires_grad_() * 1
    try:
        found = fn(y)
    except RuntimeError as error:
        return str(error)
    tensors = [found] if torch.is_tensor(found) else found
    return [t.detach().round(decimals=4).tolist() for t in tensors]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("view", VIEWS)
def test_eager_raises_where_compiled_does(view, backend):
    make = VIEWS[view]
    raised = 0
    for write, read in itertools.product(WRITES, READS):

        def as_argument(y, write=write, run=read):
            part = make(y)
            write(y, part)
            return run(y, part)

        def behind_a_break(y, write=write, read=read):
            part = make(y)
            write(y, part)
            framejit.graph_break()
            return read(y, part)

        expected = outcome(as_argument)
        raised += isinstance(expected, str)
        framejit.reset()
        compiled = framejit.compile(read, backend=backend)
        whole = framejit.compile(behind_a_break, backend=backend)
        for number in range(3):
            got = outcome(lambda y: as_argument(y, run=compiled))
            assert got == expected, (write, read, "argument", number)
            got = outcome(whole)
            assert got == expected, (write, read, "break", number)
    assert (raised > 0) == (view != "select")
