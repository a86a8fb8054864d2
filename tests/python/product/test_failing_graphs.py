"""Graphs that fail when they run, call after call."""

import pytest
import torch

import framejit


def test_a_graph_that_goes_on_failing_is_not_run_at_every_call():
    runs, broken = [], True

    def backend(graph, inputs):
        def run(*args):
            runs.append(1)
            if broken:
                raise ValueError("not today")
            return graph(*args)

        return run

    compiled = framejit.compile(lambda x: x * 2, backend=backend)
    x = torch.ones(2)
    for _ in range(1000):
        assert torch.equal(compiled(x), x * 2)
    assert 3 <= len(runs) <= 8
    # It gets another chance, and is taken back when it uses it.
    broken = False
    for _ in range(1500):
        assert torch.equal(compiled(x), x * 2)
    runs.clear()
    compiled(x)
    assert len(runs) == 1


def test_a_graph_that_fails_where_the_original_raises_is_kept():
    runs = []

    def backend(graph, inputs):
        def run(*args):
            runs.append(1)
            return graph(*args)

        return run

    compiled = framejit.compile(lambda x, i: x[i] * 2, backend=backend)
    table, good, bad = torch.ones(4, 2), torch.tensor([1]), torch.tensor([9])
    compiled(table, good)
    runs.clear()
    for _ in range(20):
        with pytest.raises(IndexError):
            compiled(table, bad)
    assert len(runs) == 20
    compiled(table, good)
    assert len(runs) == 21
