"""Threads that run one compiled function: what it counts in Python is not lost while
a graph of another thread runs."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import framejit

CALLS, THREADS = 400, 4
TOTAL = 0


class Service:
    """Counts in an attribute, a dict, a list, a global and a cell."""

    def __init__(self) -> None:
        self.weight = torch.randn(128, 128)
        self.calls = 0
        self.rows = {"n": 0}
        self.places = [0, 0]
        self.text = ""
        self.log: list[int] = []

    def attribute(self, x: Any) -> Any:
        self.calls += 1
        return (x @ self.weight).relu().sum(1)

    def behind(self, x: Any) -> Any:
        y = (x @ self.weight).relu().sum(1)
        self.calls += 1
        return y

    def item(self, x: Any) -> Any:
        self.rows["n"] += len(x)
        return (x @ self.weight).relu()

    def element(self, x: Any) -> Any:
        self.places[1] += 1
        return (x @ self.weight).relu()

    def of_module(self, x: Any) -> Any:
        global TOTAL
        TOTAL += 1
        return (x @ self.weight).relu()

    def appended(self, x: Any) -> Any:
        self.log.append(len(x))
        return (x @ self.weight).relu()

    def across_a_break(self, x: Any) -> Any:
        self.calls += 1
        y = x @ self.weight
        framejit.graph_break()
        self.rows["n"] += 1
        return y.relu()

    def counts(self) -> Any:
        return self.calls, self.rows, self.places, len(self.log), TOTAL


METHODS = [
    name for name in vars(Service) if not name.startswith("_") and name != "counts"
]


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("gradients", [False, True])
def test_nothing_is_lost(name: str, gradients: bool) -> None:
    def run(wrap: Any, threads: int) -> Any:
        global TOTAL
        TOTAL = 0
        service = Service()
        service.weight.requires_grad_(gradients)
        method = wrap(getattr(service, name))
        for size in (8, 8, 9):
            method(torch.rand(size, 128))
        start = threading.Barrier(threads)

        def one(_: int) -> None:
            start.wait()
            for _ in range(CALLS // threads):
                method(torch.rand(16, 128))

        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(one, range(threads)))
        return service.counts()

    assert run(framejit.compile, THREADS) == run(lambda f: f, 1)
