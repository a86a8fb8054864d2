"""Graphs and kernels have names in torch.profiler, and lines of the program."""

from __future__ import annotations

import linecache

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import framejit


def function(x, w):
    y = (x.cos() + x.sin()).relu() * w
    return (y @ y).exp() + 1


def recorded(run) -> list:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    return profiler.events()


def line_of(text: str) -> str:
    lines = linecache.getlines(__file__)
    number = next(i for i, line in enumerate(lines, 1) if text in line)
    return f"test_profiler_names.py:{number}"


@pytest.mark.parametrize("backend", ["native", "aot_eager"])
def test_graphs_are_named(backend):
    compiled = framejit.compile(function, backend=backend)
    x, w = torch.randn(8, 8), torch.randn(8, 8, requires_grad=True)
    compiled(x, w).sum().backward()
    events = recorded(lambda: compiled(x, w).sum().backward())
    names = [event.name for event in events]
    place = line_of("x.cos()")
    assert names.count(f"fj::forward {place}") == 1
    assert names.count(f"fj::backward {place}") == 1
    products = [event for event in events if event.name == "aten::mm"]
    parents = {event.cpu_parent.name for event in products}
    assert parents == {f"fj::forward {place}", f"fj::backward {place}"}


def test_kernels_are_named_within_their_graph(kernels):
    compiled = framejit.compile(function)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    compiled(x, w)
    events = recorded(lambda: compiled(x, w))
    seen = [event for event in events if event.name.startswith("fj::kernel ")]
    assert seen
    for kernel in seen:
        assert kernel.cpu_parent.name == f"fj::forward {line_of('x.cos()')}"


def test_torch_level_graphs_are_named():
    def program(x):
        return x.cos() + 1

    compiled = framejit.compile(program, backend="eager")
    x = torch.randn(4)
    compiled(x)
    names = [event.name for event in recorded(lambda: compiled(x))]
    assert f"fj::torch_level {line_of('return x.cos() + 1')}" in names
    assert "aten::cos" in names
