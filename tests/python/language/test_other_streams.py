"""print() to what the program put at sys.stdout: values and order are eager's."""

from __future__ import annotations

import contextlib
import io
import sys

import pytest
import torch

import framejit


class Own:
    """Looks at the program's state when it is written to."""

    def __init__(self, seen):
        self.log = []
        self.seen = seen

    def write(self, text):
        self.log.append((text, len(self.seen)))
        return len(text)

    def flush(self):
        self.log.append(("flush", len(self.seen)))


class Refuses(Own):
    def write(self, text):
        super().write(text)
        if "two" in text:
            raise ValueError("no more")
        return len(text)


def plain(x, seen):
    print("one", x.shape)
    seen.append(1)
    y = x + 1
    print("two", end="|")
    seen.append(2)
    sys.stdout.write("three\n")
    y = y * 2
    print("four", flush=True)
    return y


def handled(x, seen):
    print("one")
    seen.append(1)
    y = x + 1
    try:
        print("two")
    except ValueError as error:
        seen.append(str(error))
        y = y + 10
    print("three")
    return y


def redirected(x, seen):
    inside = io.StringIO()
    print("before")
    with contextlib.redirect_stdout(inside):
        print("inside", x.shape)
        seen.append(1)
        y = x + 1
        print("inside, too")
    print("after")
    return y, inside.getvalue()


def redirected_to(x, seen):
    with contextlib.redirect_stdout(seen.stream):
        print("inside", x.shape)
        seen.append(1)
        y = x * 2
    print("after")
    return y


def put_there(x, seen):
    before = sys.stdout
    sys.stdout = seen.stream
    try:
        print("inside")
        y = x * 2
    finally:
        sys.stdout = before
    print("after", seen.stream is before)
    return y


def named_file(x, seen):
    print("one", file=seen.stream)
    seen.append(1)
    y = x * 3
    print("two", file=seen.stream, flush=True)
    print("three")
    return y


class Seen(list):
    def __init__(self, stream):
        super().__init__()
        self.stream = stream


def text_of(stream):
    return stream.log if isinstance(stream, Own) else stream.getvalue()


def run(function, make):
    results = []
    for _ in range(3):
        inner = make([])
        seen = Seen(inner)
        outer = make(seen)
        before, sys.stdout = sys.stdout, outer
        try:
            result = repr(function(torch.ones(2), seen))
        except ValueError as error:
            result = repr(error)
        finally:
            sys.stdout = before
        results.append((result, list(seen), text_of(outer), text_of(inner)))
    return results


STREAMS = {
    "own": Own,
    "refuses": Refuses,
    "StringIO": lambda seen: io.StringIO(),
}
PROGRAMS = [plain, handled, redirected, redirected_to, put_there, named_file]


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_as_in_eager(program, stream):
    expected = run(program, STREAMS[stream])
    assert run(framejit.compile(program), STREAMS[stream]) == expected
    # An entry made for one stream meets others.
    compiled = framejit.compile(program)
    for other in STREAMS:
        assert run(compiled, STREAMS[other]) == run(program, STREAMS[other])
    with contextlib.redirect_stdout(io.StringIO()) as outside:
        compiled(torch.ones(2), Seen(io.StringIO()))
    with contextlib.redirect_stdout(io.StringIO()) as eager:
        program(torch.ones(2), Seen(io.StringIO()))
    assert outside.getvalue() == eager.getvalue()


def test_no_stream_at_all():
    compiled = framejit.compile(named_file)
    before, sys.stdout = sys.stdout, None
    try:
        seen = Seen(None)
        assert torch.equal(compiled(torch.ones(2), seen), torch.full((2,), 3.0))
    finally:
        sys.stdout = before
    assert seen == [1]
