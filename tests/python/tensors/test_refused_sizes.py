"""Sizes that eager refuses: nothing that does not look may run at capture.

Kernels of backwards are rehearsed for what they return; they do not check what
their forward has. In a process of its own: memory would be broken.
"""

from __future__ import annotations

import pytest

from child_process import run_python

PADS = """
import itertools, sys
import torch, torch.nn.functional as F
import framejit

def outcome(fn, x):
    try:
        y = fn(x)
        if y.requires_grad:
            y.sum().backward()
        return y.detach(), x.grad
    except (RuntimeError, ValueError, IndexError) as error:
        return type(error), str(error)

def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and torch.equal(a, b)
    return a == b

mode = sys.argv[1]
backends, grads = ("eager", "aot_eager", "native"), (True, False)
for dims, backend, grad in itertools.product((1, 2, 3), backends, grads):
    for size, pad, lead in itertools.product((0, 1, 3), (-1, 1, 2, 40), ((2,), (1, 2))):
        framejit.reset()
        def fn(x):
            return F.pad(x * 2, (pad,) * (2 * dims), mode=mode)
        given = [torch.ones(*lead, *[size] * dims, requires_grad=grad) for _ in "ab"]
        expected = outcome(fn, given[0])
        actual = outcome(framejit.compile(fn, backend=backend), given[1])
        assert all(map(same, expected, actual)), (dims, backend, size, pad, lead, expected, actual)
print("right")
"""


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_padding(mode):
    done = run_python("-c", PADS, mode)
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr


DISTANCES = """
import itertools, torch, torch.nn.functional as F
import framejit
backends = ("eager", "aot_eager", "native")
for backend, rows in itertools.product(backends, (0, 1, 2, 3)):
    framejit.reset()
    a, b = (torch.arange(3.0 * rows).view(rows, 3).requires_grad_() for _ in "ab")
    expected = F.pdist(a)
    actual = framejit.compile(lambda x: F.pdist(x), backend=backend)(b)
    assert torch.equal(expected, actual), rows
    if rows:  # eager's own kernel dies without
        expected.sum().backward()
        actual.sum().backward()
        assert torch.equal(a.grad, b.grad), rows
print("right")
"""


def test_distances_of_no_rows():
    done = run_python("-c", DISTANCES)
    assert (done.stdout, done.returncode) == ("right\n", 0), done.stderr
