"""How things are compared: variants alternated in one process, medians, ratios."""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

Run = Callable[[], object]


Clock = Callable[[], float]


def clock_of(arguments: argparse.Namespace) -> Clock:
    return time.process_time if arguments.cpu_time else time.perf_counter


def once(run: Run, calls: int, clock: Clock = time.perf_counter) -> float:
    """Seconds a call."""
    start = clock()
    for _ in range(calls):
        run()
    return (clock() - start) / calls


def calls_for(run: Run, seconds: float, clock: Clock = time.perf_counter) -> int:
    """How many calls take about so long; at least one."""
    run()
    took = max(once(run, 1, clock), 1e-7)
    return max(1, int(seconds / took))


def alternate(
    variants: dict[str, Run],
    rounds: int,
    seconds: float,
    clock: Clock = time.perf_counter,
) -> dict[str, list[float]]:
    """Seconds a call of each round, the variants by turns. `seconds`: what a turn
    of one variant takes."""
    calls = {name: calls_for(run, seconds, clock) for name, run in variants.items()}
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            times[name].append(once(run, calls[name], clock))
    return times


def ratio_of(times: dict[str, list[float]], name: str, base: str) -> float | None:
    """Median over the rounds of base's time through name's: above 1, `name` is
    faster."""
    if name not in times or base not in times:
        return None
    pairs = zip(times[base], times[name], strict=True)
    return statistics.median(theirs / ours for theirs, ours in pairs)


def geometric_mean(values: Sequence[float]) -> float:
    return math.exp(sum(math.log(value) for value in values) / len(values))


@dataclass
class Row:
    """One thing measured."""

    name: str
    times: dict[str, list[float]]
    compile_ms: dict[str, float] = field(default_factory=dict)
    bytes_moved: int = 0  # at least, by anyone
    peak_mb: dict[str, float] = field(default_factory=dict)

    def median(self, variant: str) -> float | None:
        return statistics.median(self.times[variant]) if variant in self.times else None


def print_rows(
    title: str, rows: Iterable[Row], ours: str, bases: Sequence[str]
) -> None:
    """A table with our time, the ratio to each base and, where the bytes are known,
    ours through those of a plain copy (`copy` among the variants). A row is printed
    as soon as it is there."""
    print(f"\n{title}: ratio above 1 means that {ours} is faster")
    heads = "".join(f"{base:>14}" for base in bases)
    print(f"  {'':<34}{'us a call':>12}{heads}{'of a copy':>12}{'compile ms':>12}")
    ratios: dict[str, list[float]] = {base: [] for base in bases}
    for row in rows:
        line = f"  {row.name:<34}{(row.median(ours) or math.nan) * 1e6:12.1f}"
        for base in bases:
            ratio = ratio_of(row.times, ours, base)
            line += f"{ratio:13.2f}x" if ratio else f"{'-':>14}"
            if ratio:
                ratios[base].append(ratio)
        copy, mine = row.median("copy"), row.median(ours)
        line += f"{mine / copy:11.2f}x" if copy and mine else f"{'-':>12}"
        if ours in row.compile_ms:
            line += f"{row.compile_ms[ours]:12.1f}"
        if row.peak_mb:
            peaks = [
                f"{name} {row.peak_mb[name]:.0f}"
                for name in (ours, *bases)
                if name in row.peak_mb
            ]
            line += "   peak MB: " + ", ".join(peaks)
        print(line, flush=True)
    for base, found in ratios.items():
        if found:
            mean, worst = geometric_mean(found), min(found)
            print(
                f"  geometric mean over {base}: {mean:.2f}x of {len(found)}, "
                f"worst {worst:.2f}x"
            )
