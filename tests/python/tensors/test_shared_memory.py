"""Tensors over one memory that have storages of their own: a write to one is seen
in the other.

Every program writes to one of two inputs. It is compiled with separate tensors
and called with overlapping ones, and the other way round.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

import framejit
from framejit import _C
from framejit.testing import count_graphs


def array():
    return np.arange(6.0, dtype=np.float32)


def both(function):
    memory = array()
    return function(memory), function(memory)


def from_dlpack():
    tensor = torch.arange(6.0)
    return tensor, torch.from_dlpack(tensor)


def from_own_array():
    tensor = torch.arange(6.0)
    return tensor, torch.as_tensor(tensor.numpy())


def parts(begin):
    memory = array()
    return torch.from_numpy(memory[:4]), torch.from_numpy(memory[begin:][:4])


def from_bytes():
    memory = bytearray(array().tobytes())
    return torch.frombuffer(memory, dtype=torch.float32), torch.frombuffer(
        memory, dtype=torch.float32
    )


def one_storage():
    tensor = torch.arange(6.0)
    return tensor, torch.empty(0).set_(tensor.untyped_storage(), 0, (6,))


def from_shared_memory():
    tensor = torch.arange(6.0).share_memory_()
    return tensor, torch.from_numpy(tensor.numpy())


PAIRS = {
    "from_numpy": lambda: both(torch.from_numpy),
    "as_tensor": lambda: both(torch.as_tensor),
    "asarray": lambda: both(torch.asarray),
    "frombuffer": from_bytes,
    "dlpack": from_dlpack,
    "own array": from_own_array,
    "parts": lambda: parts(2),
    "one storage": one_storage,
    "shared memory": from_shared_memory,
}


def adds(a, b):
    a.add_(1)
    return a.sum() + b.sum(), b * 2


def writes_second(a, b):
    b.mul_(3)
    c = a + 1
    a.copy_(c)
    return a, b + 1


def into_out(a, b):
    torch.add(a, 1, out=b)
    return a * 2


def item(a, b):
    a[0] = 5
    return b * 2, a + b


def run(fn, make, shared):
    a, b = make()
    if not shared:
        a, b = a.clone(), b.clone()
    return [t.tolist() for t in (*fn(a, b), a, b)]


@pytest.fixture
def verified():
    """Every call compares its predicate with the reference."""
    _C.set_option("verify", "1")
    yield
    _C.set_option("verify", "0")


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("fn", [adds, writes_second, into_out, item])
def test_memory_shared_or_not(name, fn, verified):
    make = PAIRS[name]

    def listed(a, b):
        result = fn(a, b)
        return result if isinstance(result, tuple) else (result,)

    for order in ((False, True, False), (True, False, True)):
        compiled = framejit.compile(listed)
        assert [run(compiled, make, shared) for shared in order] == [
            run(listed, make, shared) for shared in order
        ]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(6), requires_grad=False)
        self.register_buffer("count", torch.zeros(6))

    def forward(self, x):
        self.count.add_(x)
        return self.weight * x + self.count


@pytest.mark.parametrize("which", ["weight", "count"])
def test_an_input_over_the_memory_of_a_model(which):
    def steps(call, model):
        results = [call(torch.ones(6)).tolist()]
        # The model's own memory, in a storage that is not the model's.
        results.append(call(torch.from_dlpack(getattr(model, which))).tolist())
        memory = array()
        setattr(model, which, getattr(model, which))
        getattr(model, which).data = torch.from_numpy(memory)
        results.append(call(torch.ones(6)).tolist())
        results.append(call(torch.from_numpy(memory)).tolist())
        return results, model.weight.tolist(), model.count.tolist()

    eager, other = Model(), Model()
    assert steps(framejit.compile(other), other) == steps(eager, eager)


def test_neighbours_in_one_memory_are_compiled():
    def f(a, b):
        a.add_(1)
        return a + b

    compiled = framejit.compile(f, fullgraph=True)
    with count_graphs(1):
        for _ in range(3):
            memory = array()
            a, b = torch.from_numpy(memory[:3]), torch.from_numpy(memory[3:])
            assert compiled(a, b).tolist() == [4, 6, 8]


def test_an_array_and_a_tensor_of_its_memory():
    def f(a, b):
        a += 1
        b.mul_(2)
        return b + 1, a * 2

    def run_with(call, shared):
        a = array()
        b = torch.from_numpy(a if shared else a.copy())
        y, z = call(a, b)
        return y.tolist(), z.tolist(), a.tolist(), b.tolist()

    compiled = framejit.compile(f)
    for shared in (False, True, False):
        assert run_with(compiled, shared) == run_with(f, shared)
