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


# The handler's exception comes while the part behind a break is compiled: what is
# open is closed, then it is raised.
CLOSES = """
import cProfile, contextlib, signal, sys
import torch, framejit

class Sig(Exception): pass
def handler(s, f): raise Sig
signal.signal(signal.SIGALRM, handler)
log, number = [], 0

class Open:
    def __enter__(self): log.append("enter")
    def __exit__(self, *a):
        for step in range(3): self.close(step)
        log.append("exit")
    def close(self, step): return step + 1

def backend(gm, inputs):
    global number
    number += 1
    if number == WHICH: signal.raise_signal(signal.SIGALRM)
    return gm.forward

@framejit.compile(backend=backend)
def f(x):
    with Open():
        y = x.sin()
        framejit.graph_break()
        with Open():
            y = y * 2
            framejit.graph_break()
            y = y + 1
    return y

with WATCHER:
    del log[:]
    try:
        f(torch.ones(3))
    except Sig:
        log.append("Sig")
    entered = log[:]
print(entered.count("enter") - entered.count("exit"), entered[-1])
"""
WATCHERS = {
    "nobody": "contextlib.nullcontext()",
    "cProfile": "cProfile.Profile()",
    "profiler": "torch.profiler.profile(with_stack=True)",
}


@pytest.mark.parametrize("which", [1, 2, 3])
@pytest.mark.parametrize("watcher", WATCHERS)
def test_what_is_open_is_closed(watcher, which, tmp_path):
    program = CLOSES.replace("WATCHER", WATCHERS[watcher])
    (tmp_path / "closes.py").write_text(program.replace("WHICH", str(which)))
    done = run_python(tmp_path / "closes.py", timeout=600)
    assert done.stdout.strip() == "0 Sig", done.stdout + done.stderr[-2000:]
