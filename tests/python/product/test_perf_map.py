"""Machine code has names for perf, in the file where it looks for them."""

from __future__ import annotations

import os
import pathlib
import re
import sys

import pytest

from child_process import run_python

PROGRAM = """
import os, torch, framejit

@framejit.compile
def step(x, w):
    return (x.cos() + 1) @ w

step(torch.randn(8, 8), torch.randn(8, 8))
print(os.getpid())
"""


def lines_of_map(*, option: str, arguments: list[str]) -> list[str]:
    ran = run_python(
        *arguments, "-c", PROGRAM, check=True, environment={"FRAMEJIT_PERF_MAP": option}
    )
    path = pathlib.Path(f"/tmp/perf-{int(ran.stdout.split()[-1])}.map")
    if not path.exists():
        return []
    try:
        assert path.stat().st_mode & 0o077 == 0
        return path.read_text().splitlines()
    finally:
        os.unlink(path)


def test_kernels_and_predicates_are_named(machine_kernels):
    lines = lines_of_map(option="1", arguments=[])
    for line in lines:
        assert re.fullmatch(r"[0-9a-f]+ [0-9a-f]+ .+", line), line
    names = [line.split(" ", 2)[2] for line in lines]
    assert "fj::kernel cos_add_0 of fj::forward <string>:6" in names
    assert "fj::guards step (<string>:4)" in names
    pieces = sorted(
        (int(a, 16), int(n, 16)) for a, n, _ in (x.split(" ", 2) for x in lines)
    )
    for (begin, size), (after, _) in zip(pieces, pieces[1:]):
        assert size > 0 and begin + size <= after


def test_no_file_unless_asked():
    assert lines_of_map(option="0", arguments=[]) == []


@pytest.mark.skipif(sys.version_info < (3, 12), reason="CPython 3.11 has no -X perf")
def test_beside_the_names_of_cpython(machine_kernels):
    lines = lines_of_map(option="1", arguments=["-X", "perf"])
    assert any(" py::" in line for line in lines)
    assert any(" fj::kernel " in line for line in lines)
