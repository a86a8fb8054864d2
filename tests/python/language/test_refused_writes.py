"""Writes that are refused: the program's own `except` sees the error, at its place,
and what came behind it has not happened.

One function is called with objects that take the write and with such that do not.
"""

from __future__ import annotations

import array
import collections
import dataclasses
import io
import threading
import types

import numpy as np
import pytest
import torch

import framejit


@dataclasses.dataclass
class Open:
    a: int = 1


@dataclasses.dataclass(frozen=True)
class Frozen:
    a: int = 1


class Settable:
    def __init__(self, refuses):
        self.refuses = refuses

    @property
    def a(self):
        return self.refuses

    @a.setter
    def a(self, value):
        if self.refuses:
            raise ValueError(value)


class Meta(type):
    def __setattr__(cls, name, value):
        raise AttributeError(name)


def exported(make):
    """An object, whose memory is exported: it cannot change its size."""

    def pair(refuses):
        made = make()
        return made, memoryview(made) if refuses else None

    return pair


def read_only_array(refuses):
    made = np.ones(2)
    made.setflags(write=not refuses)
    return made, None


def inference(refuses):
    with torch.inference_mode(refuses):
        return torch.ones(2), None


def stream(refuses):
    made = io.StringIO()
    if refuses:
        made.close()
    return made, None


def file_stream(refuses, tmp_path="/dev/null"):
    return open(tmp_path, "r" if refuses else "w", encoding="utf-8"), None


def encoded(refuses):
    encoding = "ascii" if refuses else "utf-8"
    return io.TextIOWrapper(io.BytesIO(), encoding=encoding), None


def released(refuses):
    view = memoryview(bytearray(b"abc"))
    if refuses:
        view.release()
    return view, None


def lock(refuses):
    made = threading.Lock()
    if not refuses:
        made.acquire()
    return made, None


CASES = {
    "bytearray": (
        exported(lambda: bytearray(b"abc")),
        (
            *("a.append(1)", "a.extend(b'xy')", "a += b'xy'", "a.clear()", "a.pop()"),
            *("a[0:1] = b'xyz'", "del a[0]", "a.insert(0, 1)", "a *= 2"),
        ),
    ),
    "array": (
        exported(lambda: array.array("i", [1, 2])),
        ("a.append(1)", "a.extend([3])", "a.pop()"),
    ),
    "bytes in memory": (
        lambda refuses: (lambda b: (b, b.getbuffer() if refuses else None))(
            io.BytesIO(b"abc")
        ),
        ("a.write(b'xyzw')", "a.truncate(1)"),
    ),
    "frozen": (lambda refuses: (Frozen() if refuses else Open(), 0), ("a.a = 5",)),
    "setter": (lambda refuses: (Settable(refuses), 0), ("a.a = 5",)),
    "class": (
        lambda refuses: (Meta("K", (), {}) if refuses else type("K", (), {}), 0),
        ("a.x = 1",),
    ),
    "deque": (
        lambda refuses: (collections.deque([1], maxlen=1 if refuses else 5), 0),
        ("a.insert(0, 2)",),
    ),
    "mapping": (
        lambda refuses: (types.MappingProxyType({}) if refuses else {}, 0),
        ("a['x'] = 5",),
    ),
    "leaf": (
        lambda refuses: (torch.ones(2, requires_grad=bool(refuses)), 0),
        ("a.add_(1)",),
    ),
    "expanded": (
        lambda refuses: (torch.ones(1).expand(2) if refuses else torch.ones(2), 0),
        ("a.add_(1)",),
    ),
    "inference": (inference, ("a.add_(1)",)),
    "gradient": (
        lambda refuses: (torch.ones(3 if refuses else 2), 0),
        ("a.grad = torch.ones(2)",),
    ),
    "read-only array": (read_only_array, ("a[0] = 5", "a += 1")),
    "memoryview": (released, ("a[0] = 5",)),
    "closed stream": (stream, ("a.write('x')", "print('x', file=a)", "a.flush()")),
    "stream to read": (file_stream, ("a.write('x')", "print('x', file=a)")),
    "encoding": (encoded, ("a.write('\\xe4')", "print('\\xe4', file=a)")),
    "surrogate": (encoded, ("a.write('\\ud800')", "print('\\ud800', file=a)")),
    "lock": (lock, ("a.release()",)),
}

CAUGHT = """
def f(x, a, b, log):
    y = x + 1
    log.append(1)
    try:
        log.append(2)
        {write}
        log.append(3)
        x.mul_(3)
    except Exception as error:
        log.append(repr(error))
        return y - 1, type(error).__name__
    finally:
        log.append(4)
    return y * 2
"""
NOT_CAUGHT = """
def f(x, a, b, log):
    y = x + 1
    log.append(1)
    {write}
    log.append(3)
    x.mul_(3)
    return y * 2
"""


def seen(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [seen(item) for item in value]
    return repr(value).split(" at ")[0].split(".K'")[0]


def outcome(fn, make, refuses):
    a, b = make(refuses)
    x, log = torch.ones(2), []
    try:
        result = seen(fn(x, a, b, log))
    except Exception as error:
        result = repr(error)
    return result, log, x.tolist(), seen(a)


@pytest.mark.parametrize("text", [CAUGHT, NOT_CAUGHT], ids=["caught", "not caught"])
@pytest.mark.parametrize("name", CASES)
def test_refused(name, text):
    make, writes = CASES[name]
    for write in writes:
        made: dict = {"torch": torch}
        exec(text.format(write=write), made)
        fn = made["f"]
        for order in ((False, True, False, True), (True, False, True)):
            framejit.reset()
            compiled = framejit.compile(fn)
            expected = [outcome(fn, make, refuses) for refuses in order]
            actual = [outcome(compiled, make, refuses) for refuses in order]
            assert actual == expected, (write, order)
