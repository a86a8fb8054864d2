"""A trace follows its program by the frame hook: what else uses it, and threads."""

from __future__ import annotations

import gc
import threading
import weakref

import pytest
import torch
from torch import nn

import framejit
from framejit import fx
from fx import programs
from fx.both import ours, theirs


def code_of(program):
    return ours.symbolic_trace(program).code


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = programs.Block(2)

    def forward(self, x):
        return self.inner(x) + len(x)


EXPECTED = code_of(Net())


def test_the_expected_is_right():
    assert EXPECTED.count("self.inner.") == 3 and "len(x)" in EXPECTED


def test_while_nothing_is_compiled():
    assert framejit.disable(lambda: code_of(Net()))() == EXPECTED
    framejit.set_stance("force_eager")
    try:
        assert code_of(Net()) == EXPECTED
    finally:
        framejit.set_stance("default")


def test_within_a_compiled_function():
    seen = []

    @framejit.compile
    def outer(x):
        seen.append(code_of(Net()))
        return x + 1

    assert torch.equal(outer(torch.ones(2)), torch.ones(2) + 1)
    assert set(seen) == {EXPECTED}


def test_compiled_functions_in_the_program():
    helper = framejit.compile(lambda x: torch.relu(x) * 2)
    x = torch.arange(4.0) - 2
    helper(x)

    def program(x):
        return helper(x + 1)

    traced = ours.symbolic_trace(program)
    assert torch.equal(traced(x), program(x))
    assert torch.equal(helper(x), torch.relu(x) * 2)


def test_compiled_modules_go_on_as_they_are():
    module = Net().eval()
    compiled = framejit.compile(module)
    x = torch.rand(1, 2, 4, 4)
    expected = compiled(x)
    with framejit.testing.no_recompile():
        for _ in range(3):
            code_of(module)
            assert torch.equal(compiled(x), expected)


def test_threads_trace_and_run_at_once():
    module, errors = Net().eval(), []
    x = torch.rand(1, 2, 4, 4)
    expected = module(x)

    def traces():
        try:
            for _ in range(20):
                assert code_of(module) == EXPECTED
        except BaseException as error:
            errors.append(error)

    def runs():
        try:
            for _ in range(100):
                assert torch.equal(module(x), expected)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=t) for t in (traces, runs, traces, runs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_generators_and_closures_of_the_program():
    def program(x):
        n = 3

        def scaled(values):
            for v in values:
                yield v * n + len(x)

        return sum(scaled([x, x + 1])), [float(x.shape[0] + i) for i in range(2)]

    traced = ours.symbolic_trace(program)
    x = torch.ones(2)
    got, expected = traced(x), program(x)
    assert torch.equal(got[0], expected[0]) and got[1] == expected[1]


def test_code_that_was_rewritten_goes():
    def trace():
        module = ours.symbolic_trace(Net())
        ours.symbolic_trace(module)
        return weakref.ref(type(module).forward.__code__)

    code = trace()
    gc.collect()
    assert code() is None


def test_methods_of_classes_and_super():
    class Base(nn.Module):
        def forward(self, x):
            return x + len(x)

    class Derived(Base):
        def forward(self, x, *more, scale=1, **named):
            return super().forward(x) * scale + int(x.shape[0]) + len(more) + len(named)

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.derived = Derived()

        def forward(self, x):
            return self.derived(x, 1, 2, scale=3, extra=4)

    x = torch.ones(2)
    assert torch.equal(ours.symbolic_trace(Outer())(x), Outer()(x))


def test_errors_of_the_program_pass_and_name_its_lines():
    def fails(x):
        n = len(x)
        raise KeyError(n is None)

    with pytest.raises(KeyError) as caught:
        ours.symbolic_trace(fails)
    lines = [entry.lineno for entry in caught.traceback]
    assert lines[-1] == fails.__code__.co_firstlineno + 1 or (
        caught.traceback[-1].name == "fails"
    )


def test_a_module_that_is_no_part_of_the_root():
    lonely = nn.ReLU()
    for side in (theirs, ours):
        with pytest.raises(NameError, match="not installed as a submodule"):
            side.symbolic_trace(lambda x: lonely(x))


def test_proxies_are_copied_and_kept():
    import copy

    graph = fx.Graph()
    x = fx.Proxy(graph.placeholder("x"))
    again = copy.copy(x)
    assert again.node is x.node and again.tracer is x.tracer
    y = x.shape
    assert isinstance(y, fx.Attribute) and (y.root is x, y.attr) == (True, "shape")
    assert [n.op for n in graph.nodes] == ["placeholder"]
    assert y.node.target is getattr


def test_a_proxy_class_of_the_program():
    class Named(fx.Proxy):
        def __getattr__(self, name):
            if name == "answer":
                return 42
            return super().__getattr__(name)

    class Tracer(fx.Tracer):
        def proxy(self, node):
            return Named(node, self)

    graph = Tracer().trace(lambda x: x.view(x.answer) + x.shape[0])
    assert [n.args[1:] for n in graph.nodes if n.target == "view"] == [(42,)]
