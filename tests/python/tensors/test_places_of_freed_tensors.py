"""What a capture knows of a tensor is not of the next one that gets its memory: torch
makes tensors of numbers on the way, and captures meet tensors late."""

from __future__ import annotations

import pytest
import torch

import framejit
from child_process import run_python

G = torch.tensor(0.75)
H = torch.tensor([0.5])
LATE = [torch.tensor(float(i)) for i in range(12)]


def indexed(x):
    seen = []
    for _ in range(3):
        y = x * 2
        y[:, -1] = 0.0
        seen.append(G.item())
        y[0] = 3.0
        seen.append(H.item())
    return y, seen


def then_late_tensors(x):
    seen = []
    y = x * 1
    for late in LATE:
        y[0, 0] = 9.0
        y.masked_fill_(y > 100, 4.0)
        y = torch.where(y > 50, 8.0, y)
        seen.append(late.item())
    return y, seen


def made_and_dropped(x):
    seen = []
    for i, late in enumerate(LATE):
        torch.tensor(-1.0 - i)
        x = x + torch.tensor(2.5)
        seen.append(late.item())
    return x, seen


def converted(x):
    seen = []
    for late in LATE:
        x[0] = float(torch.tensor(7.0).item())
        seen += [float(late), int(late), bool(late)]
    return x, seen


def raised_at_the_end(x):
    seen = indexed(x)[1]
    raise NameError(str(seen))


def effect(seen, value, tag="e"):
    seen.append((tag, value if isinstance(value, (int, float, str, bool)) else "?"))
    return value


def beneath_a_handler(x):
    """Of a fuzzer: this one failed."""
    seen = []
    try:
        k = 0
        while k < 3:
            k += 1
            y = x * 2
            y[:, -1 % y.size(1)] = effect(seen, 0.0)
            effect(seen, G.item())
    except Exception:
        effect(seen, 5)
    z = x.detach()
    raise NameError(str((z, seen)))


PROGRAMS = [
    beneath_a_handler,
    indexed,
    then_late_tensors,
    made_and_dropped,
    converted,
    raised_at_the_end,
]


def outcome(function, x):
    try:
        return repr(function(x))
    except NameError as error:
        return repr(error)


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_elements(program, backend):
    torch.manual_seed(0)
    compiled = framejit.compile(program, backend=backend)
    for _ in range(3):
        x = torch.randn(3, 3)
        assert outcome(compiled, x.clone()) == outcome(program, x.clone())


# A process of its own: which memory is given again depends on what was freed before.
PROGRAM = """
import torch, framejit
G = torch.tensor(0.75)
LOG = []
def effect(value, tag="e"):
    LOG.append((tag, value if isinstance(value, (int, float, str, bool)) else "?"))
    return value
def f(a0, a1):
    try:
        k = 0
        while k < 3:
            k += 1
            y = a1 * 2
            y[:, -1 % y.size(1)] = effect(0.0)
            effect(G.item())
    except Exception:
        frozenset([*range(4), effect(5)])
    z = a0.detach()
    return (z, a0, z, missing,)
compiled = framejit.compile(f, backend="eager")
for _ in range(3):
    try:
        compiled(torch.randn(3, 3), torch.randn(3, 3))
    except NameError:
        pass
print([value for _, value in LOG] == [0.0, 0.75] * 9)
"""


def test_in_a_fresh_process():
    assert run_python("-c", PROGRAM).stdout == "True\n"
