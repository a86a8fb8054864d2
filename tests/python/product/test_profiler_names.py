"""Graphs and kernels have names in torch.profiler, and lines of the program."""

from __future__ import annotations

import linecache
import re

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


def kernels_of(run) -> list[str]:
    """Names of the kernels of a call, in the order in which they run."""
    return [e.name for e in recorded(run) if e.name.startswith("fj::kernel")]


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


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, x):
        x = self.first(x)
        return self.second(x.relu())


def step(net, x):
    x = net(x)
    return x.sum()


def test_graphs_are_named_after_lines_of_the_program():
    # Not after torch's, where the operations of a Linear are.
    x = torch.randn(2, 4)
    for run, text in [
        (framejit.compile(Net()), "x = self.first(x)"),
        (lambda x, f=framejit.compile(step), net=Net(): f(net, x), "x = net(x)"),
        (framejit.compile(torch.nn.Linear(4, 4)), ""),
    ]:
        run(x).sum().backward()
        names = {event.name for event in recorded(lambda: run(x).sum().backward())}
        place = line_of(text) if text else "linear.py"
        for level in ("forward", "backward"):
            (name,) = [n for n in names if n.startswith(f"fj::{level} ")]
            assert name.startswith(f"fj::{level} {place}"), name


def test_a_graph_behind_a_break_has_its_own_line():
    def breaks(x):
        y = x.cos()
        framejit.graph_break()
        return y.exp() * 2

    compiled = framejit.compile(breaks)
    x = torch.randn(4)
    compiled(x)
    names = [event.name for event in recorded(lambda: compiled(x))]
    assert [name for name in names if name.startswith("fj::forward")] == [
        f"fj::forward {line_of('y = x.cos()')}",
        f"fj::forward {line_of('return y.exp() * 2')}",
    ]


def test_kernels_are_named_within_their_graph(machine_kernels):
    compiled = framejit.compile(function)
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    compiled(x, w)
    events = recorded(lambda: compiled(x, w))
    seen = [event for event in events if event.name.startswith("fj::kernel")]
    assert [kernel.name for kernel in seen] == [
        "fj::kernel cos_sin_add_relu_mul_0",
        "fj::kernel exp_add_1",
    ]
    for kernel in seen:
        assert kernel.cpu_parent.name == f"fj::forward {line_of('x.cos()')}"


def test_steps_that_share_a_kernel_have_names_of_their_own(machine_kernels):
    @framejit.compile
    def twice(x, w):
        return ((x.sin() @ w).sin() @ w).sin()

    x, w = torch.randn(8, 8), torch.randn(8, 8)
    twice(x, w)
    (entry,) = framejit.inspect(twice)
    assert len(re.findall(r"^kernel", entry.kernels[0], re.M)) < 3
    assert kernels_of(lambda: twice(x, w)) == [
        f"fj::kernel sin_{number}" for number in range(3)
    ]


def test_parts_of_an_operator_have_its_name(machine_kernels):
    @framejit.compile
    def attention(x):
        return torch.softmax(x * 2, dim=0).sum()

    x = torch.randn(300, 70)
    attention(x)
    names = kernels_of(lambda: attention(x))
    assert names and len(set(names)) == len(names)
    assert all(re.fullmatch(r"fj::kernel [a-z0-9_]+_\d+", name) for name in names)
    assert any("softmax" in name for name in names)
    assert all("map" not in name and "reduce" not in name for name in names)


def test_views_are_no_part_of_a_name_and_names_are_short(machine_kernels):
    @framejit.compile
    def views(x):
        return x.t().reshape(-1)[1:].cos() + 1

    @framejit.compile
    def many(x):
        for name in "sin cos tanh sigmoid exp relu erf sqrt log1p expm1 atan".split():
            x = getattr(x.abs(), name)()
        return x

    x = torch.rand(4, 5)
    views(x)
    many(x)
    assert [n for n in kernels_of(lambda: views(x)) if "cos" in n] == [
        kernels_of(lambda: views(x))[-1]
    ]
    assert kernels_of(lambda: views(x))[-1].startswith("fj::kernel cos_add_")
    names = kernels_of(lambda: many(x))
    assert names[0].startswith("fj::kernel abs_sin_cos_tanh_")
    assert all(len(name) <= len("fj::kernel ") + 40 + len("_0") for name in names)


def test_torch_level_graphs_are_named():
    def program(x):
        return x.cos() + 1

    compiled = framejit.compile(program, backend="eager")
    x = torch.randn(4)
    compiled(x)
    names = [event.name for event in recorded(lambda: compiled(x))]
    assert f"fj::torch_level {line_of('return x.cos() + 1')}" in names
    assert "aten::cos" in names
