"""The programs of `signal_cases.py`, a process each."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from signal_cases import PROGRAMS

HERE = Path(__file__).resolve().parent
ROOT = str(HERE.parents[2])


@pytest.mark.parametrize("program", PROGRAMS)
def test_signals_during_compilations(program):
    done = subprocess.run(
        [sys.executable, str(HERE / "signal_cases.py"), program, "7", "20"],
        capture_output=True,
        text=True,
        timeout=600,
        env={**os.environ, "PYTHONPATH": ROOT},
    )
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-2000:]]
    assert last[0] == f"{program}: 20 tries, 0 wrong", done.stdout + done.stderr[-2000:]
