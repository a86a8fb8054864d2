"""The programs of `signal_cases.py`, a process each."""

from __future__ import annotations

from pathlib import Path

import pytest
from signal_cases import PROGRAMS

from child_process import run_python

HERE = Path(__file__).resolve().parent


@pytest.mark.parametrize("program", PROGRAMS)
def test_signals_during_compilations(program):
    done = run_python(HERE / "signal_cases.py", program, 7, 20, timeout=600)
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-2000:]]
    assert last[0] == f"{program}: 20 tries, 0 wrong", done.stdout + done.stderr[-2000:]
