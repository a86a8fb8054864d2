"""``ProfilingInterpreter``: how long each node of a graph takes."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
from torch import nn

from framejit.fx._names import target_text
from framejit.fx.interpreter import Interpreter
from framejit.fx.node import Node

__all__ = ["NodeTime", "ProfilingInterpreter"]


class NodeTime(NamedTuple):
    """How long the runs of a node took, in seconds."""

    node: Node
    runs: int
    total: float

    @property
    def mean(self) -> float:
        """Of one run."""
        return self.total / self.runs


class ProfilingInterpreter(Interpreter):
    """Runs a graph and keeps the time of each node.

    Work on a GPU is waited for after each node, so times add up to more than a
    run without it takes.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.total_times: list[float] = []
        self.node_times: dict[Node, list[float]] = {}
        self._waits = torch.cuda.is_available()

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Run the graph, keeping the time of the whole."""
        start = time.perf_counter()
        result = super().run(*args, **kwargs)
        self.total_times.append(time.perf_counter() - start)
        return result

    def run_node(self, n: Node) -> Any:
        """Its value, keeping the time."""
        start = time.perf_counter()
        result = super().run_node(n)
        if self._waits:
            torch.cuda.synchronize()
        self.node_times.setdefault(n, []).append(time.perf_counter() - start)
        return result

    def times(self) -> list[NodeTime]:
        """All nodes, those that took longest first."""
        rows = [
            NodeTime(n, len(runs), sum(runs)) for n, runs in self.node_times.items()
        ]
        return sorted(rows, key=lambda row: -row.total)

    def summary(self, limit: int = 20) -> str:
        """A table of those that took longest."""
        rows = self.times()
        whole = sum(row.total for row in rows) or 1.0
        lines = [f"{'node':24} {'target':32} {'runs':>5} {'mean':>10} {'share':>6}"]
        lines += [
            f"{row.node.name:24} {target_text(row.node.target):32} {row.runs:5} "
            f"{row.mean * 1e6:8.1f} us {row.total / whole:6.1%}"
            for row in rows[:limit]
        ]
        return "\n".join(lines)
