"""A function that is compiled where it is called, at each call: once, whether or not
anything else is compiled with these options at that time."""

from __future__ import annotations

import pytest

from child_process import run_python

PROGRAM = """
import torch, framejit

def decorated(x):
    @framejit.compile{decorator}
    def g(x):
        return (x * 2).sum()
    return g(x)

def called(x):
    def g(x):
        return (x * 3).sum()
    return framejit.compile(g, {keywords})(x)

def of_module(x):
    return (x * 4).sum()

class Model:
    def method(self, x):
        return (x * 5).sum()

def called_of_module(x):
    return framejit.compile(of_module, {keywords})(x)

def called_method(x):
    return framejit.compile(Model().method, {keywords})(x)

for number in range(20):
    assert decorated(torch.ones(3)).item() == 6
assert framejit.counters()["compiles"] == 1, framejit.counters()
for number in range(20):
    assert called(torch.ones(3)).item() == 9
assert framejit.counters()["compiles"] == 2, framejit.counters()
for number in range(20):
    assert called_of_module(torch.ones(3)).item() == 12
assert framejit.counters()["compiles"] == 3, framejit.counters()
for number in range(20):
    assert called_method(torch.ones(3)).item() == 15
assert framejit.counters()["compiles"] == 4, framejit.counters()
print("done")
"""


@pytest.mark.parametrize(
    "keywords", ["", "dynamic=True", "backend='aot_eager'", "mode='default'"]
)
def test_it_is_compiled_once(keywords: str) -> None:
    decorator = f"({keywords})" if keywords else ""
    program = PROGRAM.format(decorator=decorator, keywords=keywords)
    done = run_python("-c", program)
    assert done.stdout == "done\n", done.stderr


BOUNDED = """
import gc, torch, framejit
from framejit import _C

kept = framejit.compile(lambda x: x + 1)
kept(torch.ones(3))

SOURCE = '''
def called(x):
    @framejit.compile
    def g(x):
        return (x * NUMBER.5).sin() + NUMBER
    return g(x)
called(torch.ones(3))
'''
sizes = []
for number in range(100, 300):
    names = {"torch": torch, "framejit": framejit}
    exec(SOURCE.replace("NUMBER", str(number)), names)
    if number % 50 == 49:
        del names
        gc.collect()
        sizes.append(_C.code_bytes())
assert sizes[0] == sizes[-1] > 0, sizes
framejit.reset()
del kept
gc.collect()
assert _C.code_bytes() == 0, _C.code_bytes()
print("done")
"""


def test_only_the_last_are_kept() -> None:
    done = run_python("-c", BOUNDED)
    assert done.stdout == "done\n", done.stderr
