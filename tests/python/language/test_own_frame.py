"""Functions that look into their own frame: it must be the one they run in."""

from __future__ import annotations

import inspect
import sys

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same, opaque


def current_frame(x):
    y = x.relu()
    frame = inspect.currentframe()
    return frame.f_locals["y"] + 1, sorted(frame.f_locals), frame.f_code.co_name


def get_frame(x):
    y = x.relu()
    return sys._getframe().f_locals["y"] * 2


def kept_over_a_break(x):
    frame = inspect.currentframe()
    y = x.sin()
    opaque()
    return frame.f_locals["y"] + y, frame.f_code.co_name


def behind_a_break(x):
    y = x.sin()
    opaque()
    return inspect.currentframe().f_locals["y"] + y


def its_line(x):
    y = x.relu()
    frame = sys._getframe()
    return y, frame.f_lineno - frame.f_code.co_firstlineno


def caller_locals():
    return sys._getframe(1).f_locals["y"]


def of_the_caller(x):
    y = x.relu()
    return caller_locals() + y


def name_of_the_caller(x):
    y = x.relu()
    return y + len(sys._getframe(0).f_code.co_name)


def own_locals(x):
    y = x.relu()
    return locals()["y"] + len(vars()) + y


PROGRAMS = [
    current_frame,
    get_frame,
    kept_over_a_break,
    behind_a_break,
    its_line,
    of_the_caller,
    name_of_the_caller,
    own_locals,
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)
def test_own_frame(program, backend):
    framejit.reset()
    compiled = framejit.compile(program, backend=backend)
    for size in (2, 2, 3):
        x = torch.randn(size)
        assert_same(compiled(x), program(x))
