"""What is written late must be seen by nobody: streams that the program looks at
between two writes, streams whose write() is the program's, files that nobody keeps."""

from __future__ import annotations

import gc
import io
import logging
import os
import sys
import warnings

import pytest
import torch

import framejit


class Counts:
    """In Python all of it."""

    def __init__(self):
        self.n = 0
        self.column = 0
        self.text = ""

    def write(self, text):
        self.n += 1
        self.column = 0 if text.endswith("\n") else self.column + len(text)
        self.text += text
        return len(text)

    def flush(self):
        self.n += 100


class CountsLines(io.StringIO):
    n = column = 0

    def write(self, text):
        self.n += 1
        self.column = 0 if text.endswith("\n") else self.column + len(text)
        return super().write(text)


class RawCounts(io.RawIOBase):
    """C code down to here: seen at a flush."""

    n = column = 0

    def writable(self):
        return True

    def write(self, content):
        self.n += 1
        return len(content)


def over_raw():
    raw = RawCounts()
    stream = io.TextIOWrapper(io.BufferedWriter(raw), write_through=True)
    stream.raw = raw
    return stream


def over_bytes():
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8")


def patched():
    stream = io.StringIO()
    stream.n = stream.column = 0

    def write(text):
        stream.n += 1
        return io.StringIO.write(stream, text)

    stream.write = write
    return stream


class Forwards:
    def __init__(self):
        self.inner = io.StringIO()

    def __getattr__(self, name):
        return getattr(self.inner, name)


STREAMS = {
    "own": Counts,
    "derived": CountsLines,
    "raw": over_raw,
    "bytes": over_bytes,
    "patched": patched,
    "forwards": Forwards,
    "StringIO": io.StringIO,
}


def state_of(stream):
    return [
        getattr(stream, "n", None),
        getattr(stream, "column", None),
        stream.raw.n if hasattr(stream, "raw") else None,
        stream.getvalue() if hasattr(stream, "getvalue") else None,
        stream.tell()
        if isinstance(stream, io.TextIOWrapper) and stream.seekable()
        else 0,
    ]


def printed(x, stream, seen):
    print("a")
    seen.append(state_of(stream))
    print("b", end="")
    seen.append(state_of(stream))
    return x + 1


def mixed(x, stream, seen):
    print("a")
    sys.stdout.write("b")
    seen.append(state_of(stream))
    print("c", flush=True)
    return x + 1


def by_column(x, stream, seen):
    print("loss", end="")
    if getattr(sys.stdout, "column", 0) > 0:
        print()
    print("next")
    return x * 2


def to_file(x, stream, seen):
    print("a", file=stream)
    seen.append(state_of(stream))
    stream.write("b")
    stream.flush()
    seen.append(state_of(stream))
    return x * 3


def warned(x, stream, seen):
    warnings.warn("careful", stacklevel=1)
    seen.append(state_of(stream))
    return x + 2


def logged(x, stream, seen):
    logging.getLogger("framejit.test.streams").warning("late %d", 3)
    seen.append(state_of(stream))
    return x + 3


PROGRAMS = [printed, mixed, by_column, to_file, warned, logged]


def run(function, make, calls=3):
    """Each call with another stream, then some with one."""
    logger = logging.getLogger("framejit.test.streams")
    logger.propagate = False
    found = []
    one = make()
    for stream in [make() for _ in range(calls)] + [one] * calls:
        handler = logging.StreamHandler(stream)
        logger.addHandler(handler)
        before = sys.stdout, sys.stderr
        sys.stdout = sys.stderr = stream
        seen = []
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                result = function(torch.ones(2), stream, seen).tolist()
        finally:
            sys.stdout, sys.stderr = before
            logger.removeHandler(handler)
        found.append((result, seen, state_of(stream)))
    return found


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_read_back(program, stream):
    expected = run(program, STREAMS[stream])
    compiled = framejit.compile(program)
    assert run(compiled, STREAMS[stream]) == expected
    for other in STREAMS:  # an entry made for one stream meets others
        assert run(compiled, STREAMS[other], 1) == run(program, STREAMS[other], 1)


def test_write_that_is_patched_later():
    stream = io.StringIO()
    compiled = framejit.compile(printed)
    run(compiled, lambda: stream, 1)
    seen = []

    def write(text):
        seen.append(text)
        return io.StringIO.write(stream, text)

    stream.write = write
    stream.n = stream.column = 0
    before, sys.stdout = sys.stdout, stream
    try:
        compiled(torch.ones(2), stream, [])
    finally:
        sys.stdout = before
    assert seen == ["a", "\n", "b", ""]


# ---- files


def temporary(x, path):
    open(path, "w").write("hello")
    return os.path.getsize(path), x + 1


def read_back(x, path):
    open(path, "w").write("hello")
    with open(path) as file:
        return file.read(), x + 1


def deleted(x, path):
    file = open(path, "w")
    file.write("hello")
    del file
    return os.path.getsize(path), x + 1


def replaced(x, path):
    file = open(path, "w")
    print("loss", 3, file=file)
    file = None
    return os.path.getsize(path), x + 1


def kept_open(x, path):
    with open(path, "w") as file:
        file.write("one\n")
        y = x + 1
        print("two", file=file)
    return os.path.getsize(path), y


def helper(x, path):
    def write(file):
        file.write("hello")
        return x * 2

    y = write(open(path, "w"))
    return os.path.getsize(path), y


FILES = [temporary, read_back, deleted, replaced, kept_open, helper]


def open_files():
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.filterwarnings("ignore::ResourceWarning")
@pytest.mark.parametrize("program", FILES, ids=lambda f: f.__name__)
def test_files_are_closed_when_they_go(program, tmp_path):
    path = str(tmp_path / "file")
    compiled = framejit.compile(program)
    expected = repr(program(torch.ones(2), path))
    before = open_files()
    for _ in range(12):
        assert repr(compiled(torch.ones(2), path)) == expected
    assert open_files() <= before


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_file_that_came_in(tmp_path):
    def save(x, file):
        file.write("hello")
        return x + 1

    compiled = framejit.compile(save)
    before = open_files()
    for i in range(12):
        path = tmp_path / str(i)
        file = open(path, "w")
        compiled(torch.ones(2), file)
        del file
        gc.collect(0)
        assert path.read_text() == "hello"
    assert open_files() <= before


def test_a_log_file_that_is_replaced(tmp_path):
    log = None

    def step(x):
        print("step", file=log)
        return x + 1

    compiled = framejit.compile(step)
    for i in range(12):
        log = open(tmp_path / str(i), "w")
        compiled(torch.ones(2))
        log = None
        assert (tmp_path / str(i)).read_text() == "step\n"
