"""The main job, with a report of what happened (run by scripts/demo)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import framejit
from framejit import EntryInfo

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
THRESHOLD = 0.5
ROUNDS = 100
KERNEL_LINES = 12


def function(inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    x, y = inputs["x"], inputs["y"]
    x = x.cos().cos()
    if x.mean() > THRESHOLD:  # data dependent: a graph break, two resume functions
        x = x / 1.1
    return x * y


def make_inputs(n: int) -> dict[str, torch.Tensor]:
    return {name: torch.randn(n, requires_grad=True) for name in ("x", "y")}


def step(
    call: Callable[..., Any], inputs: dict[str, torch.Tensor]
) -> list[torch.Tensor | None]:
    """One training step without the optimizer: the result and the gradients."""
    for value in inputs.values():
        value.grad = None
    out = call(inputs)
    out.sum().backward()
    return [out, *(value.grad for value in inputs.values())]


def check_rounds(compiled: Callable[..., Any], n: int) -> None:
    for _ in range(ROUNDS):
        inputs = make_inputs(n)
        torch.testing.assert_close(step(compiled, inputs), step(function, inputs))


def microseconds(calls: list[Callable[[], Any]], count: int) -> list[float]:
    """The best of several rounds, the calls taking turns."""
    best = [float("inf")] * len(calls)
    for _ in range(7):
        for index, call in enumerate(calls):
            start = time.perf_counter()
            for _ in range(count):
                call()
            best[index] = min(best[index], (time.perf_counter() - start) / count)
    return [seconds * 1e6 for seconds in best]


class Report:
    def __init__(self) -> None:
        self.console = Console(highlight=False, markup=True)
        if self.console.width < 100:
            self.console = Console(highlight=False, markup=True, width=100)

    def say(self, text: str = "") -> None:
        self.console.print(text, soft_wrap=True)

    def title(self, text: str) -> None:
        self.console.print(f"\n[bold]{text}[/bold]")

    def block(self, text: str) -> None:
        for line in text.rstrip().replace(ROOT, "").splitlines():
            self.console.print("  " + line, markup=False, soft_wrap=True)

    def entries(self, entries: list[EntryInfo]) -> None:
        table = Table()
        for column in ("code", "sizes", "break"):
            table.add_column(column, no_wrap=True)
        for column in ("guards", "ops", "kernels", "saved", "compile", "hits"):
            table.add_column(column, justify="right", no_wrap=True)

        def add(name: str, entry: EntryInfo) -> None:
            table.add_row(
                name,
                ", ".join(f"s{i} = {s}" for i, s in enumerate(entry.symbols))
                or "static",
                " ".join(item.id for item in entry.breaks),
                str(len(entry.guards)),
                str(entry.operations),
                str(len(entry.kernels)),
                str(entry.saved_tensors),
                f"{entry.compile_ms:.2f} ms",
                str(entry.hits),
            )

        resumes: dict[Any, list[EntryInfo]] = {}
        for entry in entries:
            add("function", entry)
            resumes |= entry.resume  # shared by the entries that break there
        for number, found in enumerate(resumes.values()):
            for entry in found:
                add(f"resume {number}", entry)
            if not found:
                table.add_row(f"resume {number}", "(not reached)")
        self.console.print(table)

    def entry(self, entry: EntryInfo) -> None:
        self.title("guards of the newest entry")
        self.block("\n".join(entry.guards))
        for item in entry.breaks:
            self.title("its break")
            self.block(str(item))
        self.title("its forward graph")
        self.block(entry.forward_graph)
        self.title("its backward graph")
        self.block(entry.backward_graph)
        if entry.kernels:
            lines = entry.kernels[0].rstrip().splitlines()
            left = len(lines) - KERNEL_LINES
            self.title("its first kernel")
            self.block("\n".join(lines[:KERNEL_LINES]))
            if left > 0:
                self.block(f"... {left} more lines")
        else:
            self.title("no kernels: this CPU has no AVX2, graphs call ATen")


def main() -> None:
    report = Report()
    # Torch's own first-call costs are not ours.
    step(function, make_inputs(10))
    compiled = framejit.compile(function)

    start = time.perf_counter()
    step(compiled, make_inputs(10))
    first = (time.perf_counter() - start) * 1e3
    report.title("the main job against eager, forward and backward")
    made = framejit.counters()["compiles"]
    report.say(f"size  10: first call {first:.1f} ms, {made} entries compiled")
    for n in (10, 8, 11, 300):
        before = framejit.counters()["compiles"]
        check_rounds(compiled, n)
        made = framejit.counters()["compiles"] - before
        report.say(
            f"size {n:>3}: {ROUNDS} rounds equal eager; {made} more entries compiled"
        )

    entries = framejit.inspect(compiled)
    report.title("cache entries")
    report.entries(entries)
    report.entry(entries[0])

    report.title("microseconds a call")
    table = Table()
    for column in ("size", "what", "eager", "framejit", "times faster"):
        table.add_column(column, justify="left" if column == "what" else "right")
    for n in (10, 300):
        inputs = make_inputs(n)
        forward = [partial(function, inputs), partial(compiled, inputs)]
        both = [partial(step, function, inputs), partial(step, compiled, inputs)]
        work: list[tuple[str, list[Callable[[], Any]], int]] = [
            ("forward", list(forward), 500),
            ("forward and backward", list(both), 200),
        ]
        for name, calls, count in work:
            eager, ours = microseconds(calls, count)
            table.add_row(
                str(n), name, f"{eager:.2f}", f"{ours:.2f}", f"{eager / ours:.2f}"
            )
    report.console.print(table)


if __name__ == "__main__":
    main()
