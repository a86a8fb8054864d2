"""How much memory a model takes, each variant in a process of its own.

Measured is the most that lay in memory during some calls, over what the process
had before the first: with the model, its inputs and a compiler that has been
used once. What compiling itself takes for a while is not counted, what stays of
it is. (Linux only; None elsewhere, and where the process fails.)"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable

CALLS = 5


def kilobytes(field: str) -> int:
    with open("/proc/self/status") as status:
        (line,) = (line for line in status if line.startswith(field + ":"))
    return int(line.split()[1])


def forget_peak() -> None:
    with open("/proc/self/clear_refs", "w") as clear:
        clear.write("5")


def peak_over_idle(first: Callable[[], object], run: Callable[[], object]) -> int:
    """Kilobytes. `first` brings in what has to be imported."""
    first()
    idle = kilobytes("VmRSS")
    run()
    run()
    forget_peak()
    for _ in range(CALLS):
        run()
    return kilobytes("VmHWM") - idle


def print_peak(name: str, variant: str, threads: int) -> None:
    """What a child does: scripts/benchmarks/models.py names the cases."""
    import torch

    from benchmarks.models import CASES, compiler_of, step_of

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    (case,) = (case for case in CASES if case.name == name)
    model, inputs = case.model().train(case.train), case.inputs()
    compiler = compiler_of(variant)
    small = compiler(torch.nn.Linear(2, 2))
    first = step_of(small, (torch.ones(1, 2),), case.train)
    run = step_of(compiler(model), inputs, case.train)
    print(peak_over_idle(first, run))


def megabytes_of(name: str, variant: str, threads: int) -> float | None:
    code = (
        f"from benchmarks.memory import print_peak; print_peak{name, variant, threads}"
    )
    paths = os.pathsep.join(sys.path[:2])
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": str(threads)},
    )
    return int(done.stdout.split()[-1]) / 1024 if done.returncode == 0 else None
