"""Whole programs, as their authors write them: those of examples/."""

from __future__ import annotations

import argparse
import importlib
import os
import statistics
import sys
import time
from collections.abc import Callable
from typing import Any

EXAMPLES = os.path.join(os.path.dirname(__file__), "..", "..", "examples")
PROGRAMS = ("train_gpt", "finetune_bert", "generate_llama", "train_resnet")
WARM_UP = 4


def variants(arguments: argparse.Namespace) -> dict[str, Callable[[Any], Any]]:
    import torch

    import framejit

    found: dict[str, Callable[[Any], Any]] = {
        "eager": lambda model: model,
        "framejit": framejit.compile,
    }
    if arguments.torch_compile:
        found["torch.compile"] = torch.compile
    return found


def users(arguments: argparse.Namespace) -> None:
    """Seconds until it is warm, then milliseconds a step, alternated."""
    sys.path.insert(0, EXAMPLES)
    for name in PROGRAMS:
        if arguments.filter not in name:
            continue
        program = importlib.import_module(name)
        steps, warm, times = {}, {}, {}
        for variant, wrap in variants(arguments).items():
            start = time.perf_counter()
            steps[variant] = program.make("medium", wrap)
            for _ in range(WARM_UP):
                steps[variant]()
            warm[variant] = time.perf_counter() - start
            times[variant] = []
        for _ in range(arguments.rounds):
            for variant, step in steps.items():
                start = time.perf_counter()
                step()
                times[variant].append(time.perf_counter() - start)
        print(f"\n{name} (ms a step; seconds of the first {WARM_UP})")
        eager = statistics.median(times["eager"])
        for variant, seconds in times.items():
            median = statistics.median(seconds)
            print(
                f"  {variant:<16} {median * 1e3:10.2f} {eager / median:6.2f}x eager"
                f" {warm[variant]:10.2f} s"
            )
