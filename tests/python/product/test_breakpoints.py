"""Breakpoints: the debugger stops in the program's own frames (FJ209)."""

from __future__ import annotations

import sys
import textwrap

import pytest
import torch

import framejit
from child_process import run_python

HEAD = """
import torch
import framejit

@framejit.disable
def opaque():
    pass
"""

# A program, what is typed, and what the debugger must answer, in order.
FUNCTION = """
@framejit.compile
def f(x, k=3):
    y = x * k
    breakpoint()
    z = y + 1
    return z

caller = 5
print("result", f(torch.ones(2)))
"""

METHOD = """
class Net(torch.nn.Module):
    def forward(self, x):
        y = x * 3
        breakpoint()
        return y + 1

print("result", framejit.compile(Net())(torch.ones(2)))
"""

IN_PLACE = """
class Net(torch.nn.Module):
    def forward(self, x):
        y = x * 3
        breakpoint()
        return y + 1

net = Net()
framejit.compile_inplace(net)
print("result", net(torch.ones(2)))
"""

CALLEE = """
def inner(x):
    y = x * 3
    import pdb; pdb.set_trace()
    return y + 1

def middle(x):
    w = x + 0
    return inner(w)

@framejit.compile
def f(x):
    caller = x + 4
    return middle(x)

print("result", f(torch.ones(2)))
"""

BEHIND = """
@framejit.compile
def f(x):
    y = x * 3
    opaque()
    z = y + 1
    breakpoint()
    return z

caller = 5
print("result", f(torch.ones(2)))
"""

LOOP = """
@framejit.compile
def f(x):
    y = x * 3
    for i in range(2):
        if i == 1:
            breakpoint()
        y = y + 0.5
    return y

caller = 5
print("result", f(torch.ones(2)))
"""

BY_HAND = """
import pdb

@framejit.compile
def f(x):
    y = x * 3
    debugger = pdb.Pdb()
    debugger.set_trace()
    return y + 1

caller = 5
print("result", f(torch.ones(2)))
"""

UP = ["up", "p 'caller', caller"]
PROGRAMS = {
    "function": (FUNCTION, ["p 'y', y", "p 'k', k", *UP]),
    "method": (METHOD, ["p 'y', y", "p 'self', type(self).__name__"]),
    "in_place": (IN_PLACE, ["p 'y', y", "p 'self', type(self).__name__"]),
    "callee": (CALLEE, ["p 'y', y", "up", "p 'w', w", *UP]),
    "behind": (BEHIND, ["p 'y', y", "p 'z', z", *UP]),
    "loop": (LOOP, ["p 'y', y", "p 'i', i", *UP]),
    "by_hand": (BY_HAND, ["p 'y', y", *UP]),
}
ANSWERS = {
    "p 'y', y": "('y', tensor([3., 3.]))",
    "p 'k', k": "('k', 3)",
    "p 'i', i": "('i', 1)",
    "p 'w', w": "('w', tensor([1., 1.]))",
    "p 'self', type(self).__name__": "('self', 'Net')",
}
OF = {
    ("callee", "p 'caller', caller"): "('caller', tensor([5., 5.]))",
    ("loop", "p 'y', y"): "('y', tensor([3.5000, 3.5000]))",
    ("behind", "p 'z', z"): "('z', tensor([4., 4.]))",
}


def debug(source: str, commands: list[str], tmp_path, **environment: str) -> str:
    path = tmp_path / "program.py"
    path.write_text(HEAD + textwrap.dedent(source))
    typed = "\n".join(commands) + "\n"
    done = run_python(path, input=typed, environment=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_debugger_stops_in_the_programs_frame(name, tmp_path):
    source, commands = PROGRAMS[name]
    said = debug(source, [*commands, "c"], tmp_path)
    assert "--Return--" not in said and "***" not in said, said
    for command in commands:
        if command != "up":
            answer = OF.get((name, command)) or ANSWERS.get(command)
            assert (answer or "('caller', 5)") in said, (command, said)
    assert "result tensor([4., 4.])" in said


def test_stepping_goes_through_the_lines(tmp_path):
    said = debug(FUNCTION, ["n", "n", "p 'z', z", "c"], tmp_path)
    assert "-> z = y + 1" in said and "-> return z" in said
    assert "('z', tensor([4., 4.]))" in said


def test_a_breakpoint_that_is_off_costs_no_more_than_some_captures(tmp_path):
    source = """
    @framejit.compile
    def f(x):
        breakpoint()
        return x + 1

    for _ in range(40):
        assert f(torch.ones(2)).tolist() == [2, 2]
    print(len([t for _, t in framejit.events() if "FJ209" in t]))
    """
    said = debug(source, [], tmp_path, PYTHONBREAKPOINT="0")
    assert int(said) <= 9


def test_other_ways_and_other_functions_are_compiled(monkeypatch):
    stops = []
    monkeypatch.setattr(sys, "breakpointhook", lambda: stops.append(1))

    def work(x):
        return (x * 2).relu()

    @framejit.compile
    def f(x, stop):
        y = work(x)
        if stop:
            breakpoint()
        return work(y) + 1

    framejit.reset()
    x = torch.rand(3)
    torch.testing.assert_close(f(x, True), work(work(x)) + 1)
    assert stops == [1]
    (told,) = [t for _, t in framejit.events() if "FJ209" in t]
    assert "breakpoint" in told
    compiled = framejit.counters()["compiles"]
    assert compiled >= 1  # work, that f's own frame called
    torch.testing.assert_close(f(x, False), work(work(x)) + 1)
    assert framejit.counters()["compiles"] == compiled + 1
    torch.testing.assert_close(f(x, True), work(work(x)) + 1)
    torch.testing.assert_close(f(x, False), work(work(x)) + 1)
    assert framejit.counters()["compiles"] == compiled + 1 and stops == [1, 1]


def test_effects_before_the_breakpoint_happen_once(monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", lambda: None)
    seen = []

    @framejit.compile
    def f(x):
        seen.append(len(seen))
        x.add_(1)
        breakpoint()
        return x * 2

    x = torch.zeros(2)
    assert f(x).tolist() == [2, 2] and x.tolist() == [1, 1] and seen == [0]


def test_fullgraph_raises(monkeypatch):
    monkeypatch.setattr(sys, "breakpointhook", lambda: None)

    @framejit.compile(fullgraph=True)
    def f(x):
        breakpoint()
        return x * 2

    with pytest.raises(framejit.GraphBreakError, match="FJ209"):
        f(torch.ones(2))


def test_other_debuggers_have_rows(monkeypatch):
    """By the names they go by; here one that only looks."""
    import types

    found = []

    def set_trace():
        found.append(sorted(sys._getframe(1).f_locals))

    module = types.ModuleType("ipdb")
    module.set_trace = set_trace
    monkeypatch.setitem(sys.modules, "ipdb", module)

    @framejit.compile
    def f(x):
        import ipdb

        y = x * 2
        ipdb.set_trace()
        return y

    framejit.reset()
    f(torch.ones(2))
    assert found == [["ipdb", "x", "y"]]
    assert any("FJ209" in text for _, text in framejit.events())
