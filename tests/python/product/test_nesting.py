"""The grid of `nesting_cases.py`, a process a tool."""

from __future__ import annotations

import types
from pathlib import Path

import pytest
import torch
from nesting_cases import TOOLS

import framejit
from child_process import run_python
from framejit import _C

HERE = Path(__file__).resolve().parent
# Minutes each: half of the grid would be theirs.
SLOW = {"inductor", "compile_dynamic"}


@pytest.mark.parametrize("tool", [name for name in TOOLS if name not in SLOW])
def test_every_nest_gives_what_the_tool_gives(tool):
    done = run_python(
        HERE / "nesting_cases.py",
        tool,
        timeout=1200,
        environment={"NESTING_SHARE": "23"},
    )
    last = done.stdout.strip().splitlines()[-1:] or [done.stderr[-2000:]]
    assert last[0].endswith(" 0 failures"), done.stdout[-4000:]
    assert not last[0].startswith(f"{tool}: 0 cases")


def functions(by):
    def with_closure(x):
        return x * by

    def with_defaults(x, a=2.0):
        return x * a

    def with_keyword_defaults(x, *, a=2.0):
        return x * a

    return [with_closure, with_defaults, with_keyword_defaults]


@pytest.mark.parametrize("function", functions(3.0), ids=lambda f: f.__name__)
def test_dynamo_makes_one_graph_of_a_compiled_callee(function):
    torch._dynamo.reset()
    compiled = framejit.compile(function)
    outer = torch.compile(lambda x: compiled(x) + 1, backend="eager", fullgraph=True)
    x = torch.arange(3.0)
    for value in (x, x + 1):
        torch.testing.assert_close(outer(value), function(value) + 1)


def test_dynamo_is_not_misled_by_wraps():
    """functools.wraps sets __wrapped__, and copies what a function has."""
    import functools

    torch._dynamo.reset()
    inner = framejit.compile(lambda x: x * 2)

    @functools.wraps(inner)
    def wrapper(x):
        return inner(x) + 10

    functools.wraps(torch.sin)(inner)
    outer = torch.compile(lambda x: wrapper(x), backend="eager")
    x = torch.arange(3.0)
    torch.testing.assert_close(outer(x), x * 2 + 10)
    torch.testing.assert_close(framejit.compile(inner)(x), x * 2)
    torch.testing.assert_close(framejit.compile(wrapper)(x), x * 2 + 10)


class Compiled(torch.nn.Module):
    @framejit.compile
    def forward(self, x):
        return x * 2.0

    @framejit.compile
    def helper(self, x):
        return self.forward(x) * 3.0

    @staticmethod
    @framejit.compile
    def fixed(x, k=5.0):
        return x * k


@pytest.mark.parametrize("name", ["__call__", "forward", "helper", "fixed"])
def test_methods_compiled_in_their_class(name):
    torch._dynamo.reset()
    module = Compiled()
    x = torch.arange(3.0)
    expected = getattr(module, name)(x) + 1
    outer = torch.compile(lambda x: getattr(module, name)(x) + 1, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(outer(x), expected)


def test_what_torch_compile_made_is_left_as_it_is():
    for made in (
        torch.compile(lambda x: x + 1, backend="eager"),
        torch.compile(torch.nn.Linear(2, 2), backend="eager"),
    ):
        assert framejit.compile(made) is made


def test_a_compiled_function_looks_like_a_function():
    compiled = framejit.compile(functions(1.0)[1])
    assert isinstance(compiled, types.FunctionType)
    assert type(compiled) is _C.CompiledFunction


DEEP_BESIDE_DYNAMO = """
import sys, threading, torch, framejit
stop, started = threading.Event(), threading.Event()
def waits(x):
    torch._dynamo.graph_break()
    started.set()
    stop.wait()
    return x + 1
thread = threading.Thread(target=torch.compile(waits, backend="eager"), args=(torch.ones(3),))
thread.start()
started.wait()
def f(x, n):
    return x if n == 0 else f(x + 1, n - 1)
sys.setrecursionlimit(100_000)
result = framejit.compile(f)(torch.zeros(2), 30_000)
stop.set()
thread.join()
print(result.tolist())
"""


def test_deep_recursion_while_dynamo_runs_on_another_thread():
    """Its hook nests on the native stack as ours does, and looks at no stack."""
    done = run_python("-c", DEEP_BESIDE_DYNAMO)
    assert done.stdout.strip() == "[30000.0, 30000.0]", done.stderr[-2000:]
