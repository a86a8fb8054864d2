"""A class gets `__torch_function__` between two calls, or loses it.

Whoever was asked whether it overrides torch, and does not, is a fact.
"""

from __future__ import annotations

import operator

import pytest
import torch

import framejit

USES = {
    "add": lambda x, o: x + o,
    "added to": lambda x, o: o + x,
    "times": lambda x, o: x * o,
    "matrix": lambda x, o: x @ o,
    "power": lambda x, o: x**o,
    "over": lambda x, o: x // o,
    "less": lambda x, o: x < o,
    "equal": lambda x, o: x == o,
    "in place": lambda x, o: operator.iadd(x, o),
    "function": lambda x, o: torch.add(x, o),
    "method": lambda x, o: x.mul(o),
    "in a list": lambda x, o: torch.stack([x, o]),
    "keyword": lambda x, o: torch.sub(x, other=o),
    "index": lambda x, o: x[o],
    "stored": lambda x, o: operator.setitem(x, 0, o),
}


def plain_class():
    def reflected(self, x):
        return x + 1

    names = ["add", "mul", "matmul", "pow", "floordiv"]
    body = {f"__r{name}__": reflected for name in names}
    body |= {f"__{name}__": reflected for name in names}
    body |= {"__index__": lambda self: 1, "__gt__": reflected, "__eq__": reflected}
    return type("Operand", (), {**body, "__hash__": None})


def answer(cls, function, types, args=(), kwargs=None):
    return 99


def outcome(f, operand):
    try:
        found = f(torch.arange(1.0, 4.0), operand)
    except Exception as error:
        return type(error)
    return found.tolist() if isinstance(found, torch.Tensor) else found


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("use", USES)
def test_added_and_taken(use, backend):
    def f(x, operand):
        return USES[use](x, operand)

    framejit.reset()
    made = plain_class()
    compiled = framejit.compile(f, backend=backend)
    for overrides in (False, False, True, True, False, True):
        if overrides:
            made.__torch_function__ = classmethod(answer)
        elif "__torch_function__" in made.__dict__:
            del made.__torch_function__
        assert outcome(compiled, made()) == outcome(f, made()), overrides


def put(x, o):
    x[o] = 7.0
    return x


SEQUENCES = {
    "index": lambda x, o: x[o],
    "in a tuple": lambda x, o: x[o,],
    "in a list": lambda x, o: x[[o]],
    "put": put,
    "repeat": lambda x, o: x.repeat(o),
    "permute": lambda x, o: x.permute(o),
    "zeros": lambda x, o: torch.zeros(o),
    "tensor": lambda x, o: x[torch.tensor(o)],
    "sum": lambda x, o: x.sum(o),
}


@pytest.mark.filterwarnings("ignore:Using a non-tuple")
@pytest.mark.parametrize("base", [list, tuple])
@pytest.mark.parametrize("use", SEQUENCES)
def test_of_sequences(use, base):
    def f(x, operand):
        return SEQUENCES[use](x.reshape(1, 3)[[0, 0]], operand)

    framejit.reset()
    made = type("Sequence", (base,), {})
    compiled = framejit.compile(f)
    for overrides in (False, False, True, True, False, True):
        if overrides:
            made.__torch_function__ = classmethod(answer)
        elif "__torch_function__" in made.__dict__:
            del made.__torch_function__
        assert outcome(compiled, made([1, 0])) == outcome(f, made([1, 0])), overrides
