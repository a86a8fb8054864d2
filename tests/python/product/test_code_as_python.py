"""What the log `bytecode` says in Python of residual and resume code.

Each program breaks at another kind of instruction. The text must be Python, hand
on to each resume function with as many values as that takes, and name the lines
at which the program goes on.
"""

from __future__ import annotations

import ast
import re
from typing import Any

import pytest
import torch

import framejit

programs: dict[str, Any] = {}


def program(function: Any) -> Any:
    programs[function.__name__] = function
    return function


class Odd:
    """Whose operators look at data."""

    def __init__(self, x: Any) -> None:
        object.__setattr__(self, "x", x)

    def __setattr__(self, name: str, value: Any) -> None:
        framejit.graph_break()
        object.__setattr__(self, name, value)


@program
def branch(x, d):
    if x.sum() > 0:
        return x + 1
    return x - 1


@program
def loop(x, d):
    total = 0
    while x.sum() > 1:
        x = x - 1
        total = total + x
    return total


@program
def call(x, d):
    y = x * 2
    n = x.tolist()
    return y + n[0]


@program
def keywords(x, d):
    y = sorted(x.numpy(), key=lambda v: -v, reverse=True)
    return x + len(y)


@program
def spread(x, d):
    y = [[x.tolist(), [1]], {"key": len}]
    z = max(*y[0], **y[1])
    return x + len(z)


@program
def raises(x, d):
    try:
        n = x.item()
    except (RuntimeError, ValueError):
        return x.sin()
    return x + n


@program
def within(x, d):
    with torch.no_grad():
        z = x.tolist()
        x = x + z[0]
    return x


@program
def enters(x, d):
    with open("/dev/null") as file:
        x = x + len(file.name)
    return x


@program
def closure(x, d):
    y = x * 2

    def inner():
        return y + len(d)

    z = int(y[0])
    return inner() + z


@program
def stores(x, d):
    d[x.tolist()[0]] = x
    return x + len(d)


@program
def imports(x, d):
    framejit.graph_break()
    import colorsys

    return x + len(colorsys.__name__)


@program
def formats(x, d):
    text = f"{x.sum().item():.2f}"
    return x + len(text)


@program
def sets(x, d):
    odd = Odd(x)
    odd.y = x + 1
    return odd.y * 2


@program
def both(x, d):
    return (x.sum() > 0) and x.cos()


def logged(records: Any, function: Any) -> list[str]:
    said = records("bytecode")
    framejit.compile(function)(torch.ones(3), {})
    return list(said.texts["bytecode"])


def python_in(text: str) -> str:
    """The part of a record before the disassembly, without its first line."""
    lines = text.split("\n")[1:]
    end = next(
        i for i, line in enumerate(lines) if re.match(r"line -?\d+$|  \d+  [A-Z]", line)
    )
    return "\n".join(lines[:end])


@pytest.mark.parametrize("name", programs)
def test_residual_code_reads_as_python(name: str, records: Any) -> None:
    texts = logged(records, programs[name])
    assert any(text.startswith("residual code") for text in texts)
    resumes: dict[str, int] = {}
    for text in reversed(texts):  # resume codes stand behind their residual code
        python = python_in(text)
        if text.startswith("resume code"):
            number = re.match(r"resume code (\d+) of", text)
            head = re.match(
                r"def resume\((.*)\):\n    # goes on at line \d+ of ", python
            )
            assert head, python
            key = f"resume_{number[1]}" if number else "resume"
            resumes[key] = len([p for p in head[1].split(", ") if p])
            continue
        tree = ast.parse(python)
        calls = {
            node.value.func.id: len(node.value.args)
            for node in ast.walk(tree)
            if isinstance(node, ast.Return)
            and isinstance(node.value, ast.Call)
            and isinstance(node.value.func, ast.Name)
        }
        assert calls == resumes, text
        resumes = {}


def test_the_lines_that_follow_are_the_programs(records: Any) -> None:
    texts = logged(records, programs["branch"])
    residual, first, second = (python_in(text) for text in texts[:3])
    assert "if x.sum() > 0:" in residual
    assert "if value_0:" in residual
    assert first.endswith("return x - 1") and "return x + 1" in first
    assert second.endswith("return x - 1") and "return x + 1" not in second


def test_a_function_without_its_source(records: Any) -> None:
    names: dict[str, Any] = {}
    exec("def f(x, d):\n    n = x.tolist()\n    return x + n[0]", names)
    texts = logged(records, names["f"])
    assert "value_0 = value_0()" in texts[0]
    assert "# goes on at line 2 of f, with value_0 on the stack" in texts[1]
