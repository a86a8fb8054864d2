"""print() writes each argument before it asks the next one for its text."""

from __future__ import annotations

import io
import os
import sys

import pytest
import torch

import framejit


class Prints:
    def __str__(self):
        print("inner", end=";")
        return "P"


class Writes:
    def __repr__(self):
        sys.stdout.write("written;")
        return "W"


class Raises:
    def __str__(self):
        raise ValueError("no text")


class NoText:
    def __str__(self):
        return 5


class Breaks:
    def __str__(self):
        print("before", end=";")
        return f"B{os.path.exists('/')}"


class Counted:
    count = 0

    def __str__(self):
        Counted.count += 1
        return f"C{Counted.count}"


class Text(str):
    def __str__(self):
        print("text", end=";")
        return "T"


def plain(a, x):
    print("first", a, x.shape[0], a, "last")
    return x + 1


def separated(a, x):
    print("first", a, 2.5, sep="-", end="!")
    return x + 1


def without_separator(a, x):
    print("first", a, a, sep=None, end="", flush=True)
    print(sep="", end="|")
    return x + 1


def refused_end(a, x):
    print("first", a, end=5)
    return x + 1


def refused_separator(a, x):
    print("first", a, sep=5)
    return x + 1


def to_stream(a, x):
    print("first", a, x.shape[0], file=sys.stdout, sep=", ")
    return x + 1


def in_a_list(a, x):
    print("first", [a], (x.shape[0], a))
    return x + 1


def first(a, x):
    print(a, "second", a)
    return x + 1


def caught(a, x):
    try:
        print("first", a)
    except ValueError:
        print("caught")
    return x + 1


def caught_outside(a, x):
    try:
        plain(a, x)
    except (ValueError, TypeError) as error:
        print("caught", error)
    return x + 1


def run(function, arguments):
    """What a file got, and how each call ended."""
    read, write = os.pipe()
    before, sys.stdout = sys.stdout, open(write, "w")  # noqa: SIM115
    ends = []
    try:
        for a, size in arguments:
            try:
                ends.append(function(a, torch.ones(size)).tolist())
            except (ValueError, TypeError) as error:
                ends.append(repr(error))
    finally:
        sys.stdout.close()
        sys.stdout = before
    with open(read) as file:
        return file.read(), ends


CLASSES = (Prints, Writes, Raises, NoText, Breaks, Counted, Text)
PROGRAMS = (
    plain,
    separated,
    without_separator,
    refused_end,
    refused_separator,
    to_stream,
    in_a_list,
    first,
    caught,
    caught_outside,
)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", CLASSES, ids=lambda c: c.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_what_is_written_when(program, kind, dynamic):
    arguments = [(kind(), size) for size in (2, 3, 3, 4)]
    Counted.count = 0
    expected = run(program, arguments)
    Counted.count = 0
    assert run(framejit.compile(program, dynamic=dynamic), arguments) == expected


def test_of_the_program_in_memory():
    """An io.StringIO is written to by C code, and read by the argument."""

    class Reads:
        def __init__(self, stream):
            self.stream = stream

        def __str__(self):
            return f"<{self.stream.getvalue()}>"

    def function(stream, a, x):
        print("first", a, "then", a, file=stream)
        return x + 1

    compiled = framejit.compile(function)
    for _ in range(3):
        texts = []
        for f in (function, compiled):
            stream = io.StringIO()
            f(stream, Reads(stream), torch.ones(2))
            texts.append(stream.getvalue())
        assert texts[0] == texts[1]


def test_of_plain_texts_is_one_call():
    def function(x, n):
        print("loss", 1.5, n, None, True, "text")
        return x + n

    compiled = framejit.compile(function, fullgraph=True)
    arguments = [(3, 2)]
    assert run(lambda n, size: compiled(torch.ones(size), n), arguments) == run(
        lambda n, size: function(torch.ones(size), n), arguments
    )
