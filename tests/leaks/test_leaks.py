"""Whole programs, a few turns each; `scripts/leaks` has more of them.

Each in a process of its own: after thousands of other tests, tables that are
cleaned when they have doubled grow for many turns before they do.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from leaks.measure import measure
from leaks.programs import ROWS, Row

ROOT = Path(__file__).parents[2]
PROGRAM = """
import sys
from leaks.measure import measure
from leaks.programs import ROWS

[row] = [row for row in ROWS if row.name == sys.argv[1]]
# What the process keeps once shows in the first measurement only.
for _ in range(2):
    held = measure(row, turns=10, warm=12, backend="eager").held()
    if not held:
        break
print(held)
"""


@pytest.mark.parametrize("name", [row.name for row in ROWS])
def test_programs_leave_nothing(name):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, name],
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


LEAK = """
def f(x):
    return x
import sys
sys.modules.setdefault('leak_keeper', []).append(f)
"""


def test_a_leak_is_found():
    try:
        growth = measure(Row("leak", LEAK), turns=10, warm=2)
    finally:
        sys.modules.pop("leak_keeper", None)
    assert "10 functions" in " ".join(growth.held())
