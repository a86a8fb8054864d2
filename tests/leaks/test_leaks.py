"""Whole programs, a few turns each; `scripts/leaks` has more of them."""

from __future__ import annotations

import pytest

import framejit
from leaks.measure import measure
from leaks.programs import ROWS, Row


@pytest.fixture(autouse=True)
def fresh():
    framejit.reset()
    yield
    framejit.reset()


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_programs_leave_nothing(row):
    # What the process keeps once shows in the first measurement only.
    held = measure(row, turns=10, warm=12, backend="eager").held()
    if held:
        held = measure(row, turns=10, warm=12, backend="eager").held()
    assert not held


LEAK = """
def f(x):
    return x
import sys
sys.modules.setdefault('leak_keeper', []).append(f)
"""


def test_a_leak_is_found():
    import sys

    try:
        growth = measure(Row("leak", LEAK), turns=10, warm=2)
    finally:
        sys.modules.pop("leak_keeper", None)
    assert "10 functions" in " ".join(growth.held())
