"""What a process does first may be done under an exception.

Types and markers of ours are made when they are first needed. Each program here
is the first of its process, and has an exception on its way by then.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

BODIES = {
    "a dropped generator raises": """
        def gen():
            try:
                yield 1
            finally:
                {}["k"]
        y = x + next(gen())
    """,
    "a dropped generator raises in a handler": """
        def gen():
            try:
                yield 1
            finally:
                {}["k"]
        try:
            {}["other"]
        except KeyError:
            y = x + next(gen())
    """,
    "a generator is closed": """
        def gen():
            try:
                yield 1
            except GeneratorExit:
                raise ValueError("closed")
        g = gen()
        y = x + next(g)
        try:
            g.close()
        except ValueError as error:
            y = y + len(error.args)
    """,
    "a generator is dropped while one raises": """
        def gen():
            try:
                yield 1
            finally:
                framejit.graph_break()
        def inner():
            g = gen()
            next(g)
            raise KeyError("inner")
        try:
            inner()
        except KeyError as error:
            y = x + len(error.args)
    """,
    "a key function raises": """
        try:
            sorted([3, 1, 2], key=lambda v: 1 // (v - 1))
        except ZeroDivisionError:
            y = x + 2
    """,
    "a break in a key function": """
        try:
            y = x + max([1, 2], key=lambda v: framejit.graph_break() or v)
        finally:
            y = x * 2
    """,
    "a class is made in a handler": """
        try:
            {}["k"]
        except KeyError as error:
            class Local(KeyError):
                pass
            try:
                raise Local("k") from error
            except Local as other:
                y = x + len(other.args)
    """,
    "a gradient in a handler": """
        try:
            {}["k"]
        except KeyError:
            y = (x * 2).requires_grad_().sum()
            y = torch.autograd.grad(y * y, y)[0]
    """,
    "an iterator ends": """
        it = iter("ab")
        try:
            while True:
                next(it)
        except StopIteration:
            y = x + 1
    """,
    "a manager's exit raises": """
        class Manager:
            def __enter__(self):
                return self
            def __exit__(self, *args):
                raise RuntimeError("exit")
        try:
            with Manager():
                {}["k"]
        except RuntimeError as error:
            y = x + (error.__context__ is not None)
    """,
}

PROGRAM = """
import sys
import torch
import framejit

sys.unraisablehook = lambda *_: print("ignored")

def f(x):
{body}
    return y

compiled = framejit.compile(f, backend={backend!r})
for _ in range(3):
    print(compiled(torch.ones(2)), f(torch.ones(2)))
"""


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("body", BODIES)
def test_under_an_exception(body: str, backend: str) -> None:
    text = textwrap.indent(textwrap.dedent(BODIES[body]), "    ")
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(body=text, backend=backend)],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr
    lines = ran.stdout.splitlines()
    ignored = lines.count("ignored")
    assert ignored == (6 if "dropped generator raises" in body else 0)
    results = [line for line in lines if line != "ignored"]
    assert len(results) == 3
    for line in results:
        assert line[: len(line) // 2] == line[len(line) // 2 + 1 :]
