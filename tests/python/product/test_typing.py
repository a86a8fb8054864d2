"""Type checkers see through framejit.compile: typed_program.py says what."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).parent
ROOT = HERE.parents[2]
PROGRAM = HERE / "typed_program.py"


def expected() -> set[tuple[int, str]]:
    lines = PROGRAM.read_text().splitlines()
    marks = (re.search(r"# E: ([\w-]+)$", line) for line in lines)
    return {(n, mark[1]) for n, mark in enumerate(marks, 1) if mark}


def test_mypy_agrees_with_the_program():
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", str(PROGRAM)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
    )
    found = re.findall(
        r"typed_program\.py:(\d+): error: .*\[([\w-]+)\]$", done.stdout, re.MULTILINE
    )
    assert {(int(n), code) for n, code in found} == expected(), (
        done.stdout + done.stderr
    )
    assert len(expected()) > 10
