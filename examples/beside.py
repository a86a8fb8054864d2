"""Runs a program twice, as it is and compiled, and compares what both give.

Every example has `make(size, wrap)`: it builds the program anew, from the same
seed, gives what should be compiled to `wrap`, and returns a function that takes
one step. `main(make)` takes steps of both side by side.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

try:
    import framejit
except ModuleNotFoundError:  # not installed: that of the source tree
    sys.path.append(str(Path(__file__).parents[1]))
    import framejit

Wrap = Callable[[Any], Any]
Step = Callable[[], Any]
Make = Callable[[str, Wrap], Step]


def report(compiled: list[Any]) -> None:
    """What became of each function or module that was compiled."""
    for each in compiled:
        entries = [e for top in framejit.inspect(each) for e in top.walk()]
        breaks = [b for entry in entries for b in entry.breaks]
        name = getattr(each, "__name__", type(each).__name__)
        print(f"{name}: {len(entries)} entries, {len(breaks)} breaks")
        for one in breaks:
            print("  ", one)


def compare(make: Make, size: str, steps: int, tolerance: float = 1e-4) -> list[Any]:
    """Both programs, step by step; returns what was compiled."""
    compiled: list[Any] = []

    def wrap(model: Any) -> Any:
        compiled.append(framejit.compile(model))
        return compiled[-1]

    plain, ours = make(size, lambda model: model), make(size, wrap)
    seconds = [0.0, 0.0]
    for number in range(steps):
        results = []
        for which, step in enumerate((plain, ours)):
            torch.manual_seed(number)
            start = time.perf_counter()
            results.append(step())
            if number >= steps // 2:  # the first ones compile
                seconds[which] += time.perf_counter() - start
        torch.testing.assert_close(*results, rtol=tolerance, atol=tolerance)
        print(f"step {number}: {results[1]}")
    print(f"eager {seconds[0] * 1e3:.1f} ms, compiled {seconds[1] * 1e3:.1f} ms")
    report(compiled)
    return compiled


def main(make: Make, steps: int = 8, tolerance: float = 1e-4) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--size", choices=("small", "medium"), default="small")
    parser.add_argument("--steps", type=int, default=steps)
    arguments = parser.parse_args()
    compare(make, arguments.size, arguments.steps, tolerance)
