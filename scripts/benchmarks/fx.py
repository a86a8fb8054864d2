"""framejit.fx and torch.fx on the same graphs: edits, patterns, tracing.

By the processor time of the process: what the sides wait for is no different, and
what other processes take of the core is left out. The best of the rounds counts,
on a fresh graph each.
"""

from __future__ import annotations

import argparse
import collections
import gc
import operator
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

NODES = 20_000


def chain(fx: ModuleType, count: int = NODES) -> Any:
    """relu, neg, relu, ... of one input."""
    import torch

    graph = fx.Graph()
    x = graph.placeholder("x")
    for at in range(count):
        x = graph.call_function(torch.neg if at % 2 else torch.relu, (x,))
    graph.output(x)
    return graph


def fan(fx: ModuleType) -> Any:
    """Many users of one input."""
    import torch

    graph = fx.Graph()
    x, _ = graph.placeholder("x"), graph.placeholder("y")
    for _ in range(NODES):
        graph.call_function(torch.relu, (x,))
    return graph


def each(function: Callable[[Any], object], items: Iterable[Any]) -> None:
    """Calls it with each, and does as little else as Python can."""
    collections.deque(map(function, items), maxlen=0)


def edits(fx: ModuleType) -> dict[str, float]:
    """Microseconds a node of each edit, once."""
    import copy
    import pickle

    times: dict[str, float] = {}

    def note(name: str, run: Callable[[], Any], count: int = NODES) -> Any:
        gc.collect()
        start = time.process_time()
        made = run()
        times[name] = (time.process_time() - start) / count * 1e6
        return made

    graph = note("insert", lambda: chain(fx))
    note("iterate, op and args", lambda: [(n.op, n.args) for n in graph.nodes])
    note("lint", graph.lint)
    note("deepcopy", lambda: copy.deepcopy(graph))
    if fx.__name__ != "torch.fx":  # torch.fx's own recurses
        note("pickle and back", lambda: pickle.loads(pickle.dumps(graph)))
    note("python_code", lambda: graph.python_code("self"))
    x, *nodes, _ = graph.nodes
    note(
        "replace_all_uses_with, one user",
        lambda: each(operator.methodcaller("replace_all_uses_with", x), nodes),
    )
    erase = graph.erase_node
    note("erase", lambda: each(erase, reversed(nodes)))
    graph = chain(fx)
    note(
        "find_nodes (us a call)",
        lambda: [graph.find_nodes(op="placeholder") for _ in range(100)],
        100,
    )
    wide = fan(fx)
    first, second, *_ = wide.nodes
    note(
        f"replace_all_uses_with, {NODES:,} users",
        lambda: first.replace_all_uses_with(second),
    )
    return times


def patterns(fx: ModuleType, count: int) -> float:
    """Microseconds a node of replacing relu and neg with tanh everywhere."""
    import torch

    module = fx.GraphModule(torch.nn.Module(), chain(fx, count))
    pattern = fx.symbolic_trace(lambda x: torch.neg(torch.relu(x)))
    new = fx.symbolic_trace(lambda x: torch.tanh(x))
    gc.collect()
    start = time.process_time()
    done = fx.replace_pattern(module, pattern, new)
    took = time.process_time() - start
    assert len(done) == count // 2
    return took / count * 1e6


def traces(fx: ModuleType) -> dict[str, float]:
    """Milliseconds of a trace and its module: once after a collection, which leaves
    nothing in the caches of the processor, and one after the other."""
    from fx.programs import SmallResNet, Transformer

    times: dict[str, float] = {}
    for name, model in (
        ("50 residual blocks", SmallResNet(50)),
        ("24-layer transformer", Transformer(24)),
    ):
        gc.collect()
        for turn in range(6):
            start = time.process_time()
            fx.symbolic_trace(model)
            took = (time.process_time() - start) * 1e3
            row = f"{name}, {'again' if turn else 'after a collection'}"
            times[row] = min(took, times.get(row, took))
    return times


def best(run: Callable[[], dict[str, float]], rounds: int) -> dict[str, float]:
    times: dict[str, float] = {}
    for _ in range(rounds):
        for name, took in run().items():
            times[name] = min(took, times.get(name, took))
    return times


def fx_graphs(arguments: argparse.Namespace) -> None:
    """The section `fx`."""
    import torch.fx

    from framejit import fx

    sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "python"))
    sides = {"torch.fx": torch.fx, "framejit.fx": fx}
    made = {
        name: best(lambda side=side: edits(side), 5) for name, side in sides.items()
    }
    # torch.fx's time a node grows with the graph: 20,000 nodes take a minute.
    many = {"framejit.fx": min(patterns(fx, NODES) for _ in range(3))}
    many["torch.fx"] = patterns(torch.fx, NODES)
    for name, side in sides.items():
        made[name][f"replace_pattern, {NODES:,} nodes"] = many[name]
        few = min(patterns(side, 1_000) for _ in range(3))
        made[name]["replace_pattern, 1,000 nodes"] = few
    print_rows(f"a graph of {NODES:,} nodes (us a node)", made)
    made = {
        name: best(lambda side=side: traces(side), 5) for name, side in sides.items()
    }
    print_rows("tracing (ms)", made)


def print_rows(title: str, made: dict[str, dict[str, float]]) -> None:
    print(f"\n{title:<40} {'torch.fx':>10} {'framejit.fx':>12}")
    for name, ours in made["framejit.fx"].items():
        theirs = made["torch.fx"].get(name)
        ratio = f"{theirs:10.3f} {ours:12.3f} {theirs / ours:8.1f}x" if theirs else ""
        print(f"  {name:<38} {ratio or f'{chr(45):>10} {ours:12.3f}'}")
