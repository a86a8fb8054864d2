"""Struct sequences of the standard library, which hide fields or cannot be made.

Their numbers become symbols once they change, so a capture works on a copy: that
has the room and the fields of the original, or there is none.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

MAKERS: dict[str, list[Callable[[], Any]]] = {
    "struct_time": [lambda i=i: time.gmtime(i * 1e9) for i in range(4)],
    "localtime": [lambda i=i: time.localtime(i * 1e9) for i in range(4)],
    "stat_result": [
        lambda path=path: os.stat(path)
        for path in ("/", os.path.dirname(__file__), __file__)
    ],
    "made_stat_result": [
        lambda i=i: os.stat_result(range(i, i + 10)) for i in range(4)
    ],
    "statvfs_result": [lambda: os.statvfs("/"), lambda: os.statvfs("/proc")],
    "terminal_size": [lambda i=i: os.terminal_size((i, 2)) for i in range(4)],
    "times_result": [
        lambda i=i: type(os.times())((i, 1.5, 2.5, 3, 4)) for i in range(4)
    ],
    "uname_result": [os.uname],
    "rusage": [lambda i=i: resource.struct_rusage(range(i, i + 16)) for i in range(4)],
    # Of these there is one each, and a call of the type raises.
    "one_of_each": [
        lambda name=name: getattr(sys, name)
        for name in (
            "version_info",
            "flags",
            "float_info",
            "hash_info",
            "thread_info",
            "int_info",
        )
    ],
}


def fields(value: Any) -> list[Any]:
    named = vars(type(value))
    names = [n for n in named if type(named[n]).__name__ == "member_descriptor"]
    return [(n, getattr(value, n)) for n in names]


PROGRAMS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "returned": lambda t, x: (t, x * 2),
    "items": lambda t, x: (t[0], t[-1], len(t), list(t), x * 2),
    "parts": lambda t, x: ([t, t], t[1:], t + (1,), (*t,), x * 2),
    "words": lambda t, x: (str(t), repr(t), x * 2),
    "compared": lambda t, x: (t == t, t == tuple(t), hash(t) == hash(t), x * 2),
    "fields": lambda t, x: (fields(t), t.n_fields, t.n_sequence_fields, x * 2),
    "reduced": lambda t, x: (t.__reduce__(), x * 2),
    "computed": lambda t, x: x * t[0] if isinstance(t[0], int) else x,
}


def seen(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.tolist()
    if type(result) in (tuple, list):
        return [seen(item) for item in result]
    return repr(result), fields(result) if hasattr(result, "n_fields") else None


@pytest.mark.parametrize("kind", MAKERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_struct_sequences(program: str, kind: str) -> None:
    fn = PROGRAMS[program]
    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(2)
    for make in MAKERS[kind]:
        value = make()
        for _ in range(20):
            assert seen(compiled(value, x)) == seen(fn(value, x))
        if program == "returned":
            assert compiled(value, x)[0] is value
