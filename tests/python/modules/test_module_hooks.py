"""Hooks of modules."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import framejit
from differential import BACKENDS, check, program


def x6(n=4):
    return torch.randn(n, 6, requires_grad=True)


def net(make):
    def make_args():
        torch.manual_seed(0)
        return make(), x6()

    return make_args


def linear():
    return nn.Linear(6, 6)


# ---- hooks. Handles are numbered through the process, so each module with hooks
# is an entry of its own; a parametrized module has a class of its own.


def scale_hook(module, args, output):
    return output * 2


def pre_hook(module, args):
    return (args[0] + 1,)


def with_hook(kind, *hooks, **options):
    def make():
        module = linear()
        for hook in hooks:
            getattr(module, kind)(hook, **options)
        return module

    return net(make)


@program(with_hook("register_forward_hook", scale_hook), graphs=None)
def test_forward_hook(m, x):
    return m(x)


@program(
    with_hook("register_forward_hook", scale_hook, lambda m, a, o: None, scale_hook),
    graphs=None,
)
def test_forward_hooks_chain(m, x):
    return m(x) + m(x)


@program(
    with_hook("register_forward_pre_hook", pre_hook, lambda m, a: a[0] * 2), graphs=None
)
def test_pre_hooks(m, x):
    return m(x)


def kwargs_hook(module, args, kwargs, output):
    return output * kwargs.get("scale", 1)


class TakesScale(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = linear()

    def forward(self, x, scale=1.0):
        return self.lin(x) * scale


def takes_scale(kind, hook):
    def make():
        module = TakesScale()
        getattr(module, kind)(hook, with_kwargs=True)
        return module

    return net(make)


@program(takes_scale("register_forward_hook", kwargs_hook), graphs=None)
def test_forward_hook_kwargs(m, x):
    return m(x, scale=3.0)


@program(
    takes_scale(
        "register_forward_pre_hook", lambda m, a, k: (a, {"scale": k["scale"] + 1})
    ),
    graphs=None,
)
def test_pre_hook_kwargs(m, x):
    return m(x, scale=3.0)


@program(with_hook("register_forward_hook", scale_hook, always_call=True), graphs=None)
def test_always_call(m, x):
    return m(x)


class Fails(nn.Module):
    def forward(self, x):
        raise ValueError("no")


def failing():
    module = Fails()
    module.seen = []
    module.register_forward_hook(lambda m, a, o: m.seen.append(o), always_call=True)
    return module


@program(net(failing), graphs=None, breaks=None)
def test_always_call_when_forward_raises(m, x):
    return m(x)


@program(
    with_hook(
        "register_forward_hook",
        lambda m, a, o: m.__dict__.setdefault("outs", []).append(o.shape),
    ),
    graphs=None,
)
def test_hook_with_effect(m, x):
    return m(x)


class Features(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(linear(), nn.ReLU(), linear())
        self.features = {}
        for name, layer in self.net.named_children():
            layer.register_forward_hook(self.keep(name))

    def keep(self, name):
        def hook(module, args, output):
            self.features[name] = output

        return hook

    def forward(self, x):
        y = self.net(x)
        return y + self.features["1"].sum()


@program(net(Features), graphs=None)
def test_feature_extractor(m, x):
    return m(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_are_one_graph(backend):
    m = linear()
    m.register_forward_hook(scale_hook)
    m.register_forward_pre_hook(pre_hook)
    m.register_forward_hook(kwargs_hook, with_kwargs=True)
    x = x6()
    check(lambda x: m(x), lambda: (x,), backends=(backend,), graphs=1, breaks=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_global_forward_hook(backend):
    handle = nn.modules.module.register_module_forward_hook(scale_hook)
    try:
        check(lambda m, x: m(x), net(linear), backends=(backend,), graphs=1, breaks=0)
    finally:
        handle.remove()
    check(lambda m, x: m(x), net(linear), backends=(backend,), graphs=1, breaks=0)


@pytest.mark.parametrize("backend", BACKENDS)
def test_hook_removed(backend):
    m = linear()
    handle = m.register_forward_hook(scale_hook)
    f = framejit.compile(lambda m, x: m(x), backend=backend)
    x = x6()
    torch.testing.assert_close(f(m, x), F.linear(x, m.weight, m.bias) * 2)
    handle.remove()
    torch.testing.assert_close(f(m, x), F.linear(x, m.weight, m.bias))


@program(net(linear), graphs=None, breaks=None)
def test_hook_registered_inside(m, x):
    h = m.register_forward_hook(scale_hook)
    y = m(x)
    h.remove()
    return y + m(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_full_backward_hook(backend):
    seen = []

    def hook(module, grad_input, grad_output):
        seen.append([g.clone() for g in grad_output])
        return tuple(g * 2 for g in grad_input)

    m = nn.Sequential(linear(), nn.ReLU())
    m[1].register_full_backward_hook(hook)
    x = x6()
    expected = torch.autograd.grad(m(x).sum(), x)
    want, seen = seen, []
    got = torch.autograd.grad(framejit.compile(m, backend=backend)(x).sum(), x)
    torch.testing.assert_close(expected, got)


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensor_hook_inside(backend):
    def f(x):
        y = x * 2
        y.register_hook(lambda g: g * 3)
        return y.sum()

    check(f, lambda: (x6(),), backends=(backend,))
