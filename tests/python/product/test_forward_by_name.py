"""``compiled.forward``: compiled like calls of the module, without their hooks."""

from __future__ import annotations

import copy
import inspect
import pickle
import types

import torch
from torch import nn

import framejit

X = torch.rand(2, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x):
        """Two layers."""
        return self.second(self.first(x).relu())


def test_forward_is_compiled_like_a_call():
    original = Net()
    compiled = framejit.compile(original)
    framejit.reset()
    x = X.clone().requires_grad_()
    found = compiled.forward(x)
    torch.testing.assert_close(found, original.forward(X))
    found.sum().backward()
    assert x.grad is not None
    assert framejit.counters()["compiles"] == 1
    (entry,) = framejit.inspect(compiled.forward)
    assert entry.operations > 0 and not entry.breaks
    compiled.forward(X.clone().requires_grad_())
    assert framejit.counters()["compiles"] == 1
    framejit.reset()
    original.forward(X)
    assert framejit.counters()["compiles"] == 0, "the module itself stays eager"


def test_forward_has_no_hooks_and_sees_the_module():
    seen = []

    class Looking(Net):
        def forward(self, x):
            seen.append(self)
            return super().forward(x)

    original = Looking()
    compiled = framejit.compile(original)
    compiled.register_forward_hook(lambda module, args, out: out * 100)
    torch.testing.assert_close(compiled.forward(X), original.forward(X))
    assert all(module is original for module in seen) and seen
    torch.testing.assert_close(compiled(X), original(X))


def test_forward_that_is_put_back_leaves_the_module_eager():
    original = Net()
    compiled = framejit.compile(original)
    before = compiled.forward
    compiled.forward = lambda x: before(x) + 1
    torch.testing.assert_close(compiled(X), Net.forward(original, X) + 1)
    torch.testing.assert_close(compiled.forward(X), Net.forward(original, X) + 1)
    compiled.forward = before
    assert original.__dict__["forward"] == types.MethodType(Net.forward, original)
    framejit.reset()
    original(X)
    assert framejit.counters()["compiles"] == 0
    compiled(X)
    assert framejit.counters()["compiles"] == 1
    del compiled.forward
    assert "forward" not in original.__dict__


def test_forward_is_a_method_for_whoever_looks():
    original = Net()
    compiled = framejit.compile(original)
    forward = compiled.forward
    assert inspect.ismethod(forward) and forward.__self__ is original
    assert inspect.signature(forward) == inspect.signature(original.forward)
    assert forward.__name__ == "forward" and forward.__doc__ == Net.forward.__doc__
    assert pickle.loads(pickle.dumps(forward))(X).equal(original(X))
    assert copy.deepcopy(forward)(X).equal(original(X))
    explanation = framejit.explain(forward)(X)
    assert explanation.graph_count == 1


def test_forward_of_no_python_code_is_the_modules():
    scripted = torch.jit.script(Net().first)
    compiled = framejit.compile(scripted)
    torch.testing.assert_close(
        compiled.forward(torch.ones(3, 4)), scripted(torch.ones(3, 4))
    )


class Decorated(torch.nn.Module):
    @framejit.compile
    def forward(self, x):
        return self.double(x) + 1

    @framejit.compile
    def double(self, x, by=2):
        return x * by


class Plain:
    scale = 3

    @framejit.compile
    def scaled(self, x):
        return x * self.scale


def test_methods_compiled_in_their_class_called_by_compiled_code():
    module, plain = Decorated(), Plain()

    def f(x):
        return module(x) + module.double(x, by=4) + plain.scaled(x)

    x = torch.ones(3)
    compiled = framejit.compile(f, fullgraph=True)
    assert torch.equal(compiled(x), f(x))
    plain.scale = 5
    assert torch.equal(compiled(x), f(x))
    assert torch.equal(framejit.compile(module, fullgraph=True)(x), module(x))
    Plain.scaled = lambda self, x: x - 1
    assert torch.equal(compiled(x), f(x))
