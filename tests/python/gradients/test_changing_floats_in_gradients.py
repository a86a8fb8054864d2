"""Floats that change from call to call and that a gradient function computes with."""

import pytest
import torch
from torch.autograd.function import once_differentiable

import framejit
from differential import BACKENDS, assert_same

VALUES = [0.5, 0.25, 1.5, float("nan"), 2.0, -0.0, float("inf"), 0.75]


class Reversal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, a):
        ctx.a = a
        return x.view_as(x)

    @staticmethod
    def backward(ctx, g):
        return -ctx.a * g, None


class Scaled(torch.autograd.Function):
    """With floats and a size of the backward's own, and a saved tensor."""

    @staticmethod
    def forward(ctx, x, a):
        ctx.save_for_backward(x)
        ctx.a, ctx.n = a, x.size(0)
        return x * a

    @staticmethod
    @once_differentiable
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return g * (ctx.a * 2 + 1) / ctx.n + x.clamp(max=ctx.a), None


class WithSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, a):
        return x * 1

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.rates = (inputs[1], (inputs[1] / 2,))

    @staticmethod
    def backward(ctx, g):
        return g.mul(ctx.rates[0]).add(g, alpha=ctx.rates[1][0]), None


def hooked(x, a):
    y = x * 1
    y.register_hook(lambda g, a=a: g * a)
    return y.sin()


def hooked_by_closure(x, a):
    y = x * 2
    y.register_hook(lambda g: torch.where(g > 0, g * a, g + a))
    return y.cos()


PROGRAMS = {
    "reversal": lambda x, a: Reversal.apply(x, a).sin(),
    "scaled": lambda x, a: Scaled.apply(x, a).sin(),
    "setup_context": lambda x, a: WithSetup.apply(x, a).sin(),
    "computed": lambda x, a: Reversal.apply(x, 2 * a + x.size(0)).sin(),
    "twice": lambda x, a: Reversal.apply(Scaled.apply(x, a), a * a).sin(),
    "hook": hooked,
    "hook by closure": hooked_by_closure,
}


def whole(program):
    def step(x, a):
        program(x, a).sum().backward()
        return x.grad

    return step


def differentiated(program):
    return lambda x, a: torch.autograd.grad(program(x, a).sum(), x)[0]


def gradient(fn, x, a):
    x = x.detach().clone().requires_grad_()
    y = fn(x, a)
    if not y.requires_grad:
        return y, x.grad
    return y, torch.autograd.grad(y.sin().sum(), x)


def compare(fn, expected_entries, dynamic, backend, values=VALUES):
    compiled = framejit.compile(fn, dynamic=dynamic, backend=backend)
    for number, a in enumerate(values):
        x = torch.randn(4 if number < 3 else 5 + number % 2)
        assert_same(gradient(compiled, x, a), gradient(fn, x, a))
    counters = framejit.counters()
    assert counters["breaks"] == counters["fallbacks"] == 0
    assert counters["compiles"] <= expected_entries
    framejit.reset()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_number_on_ctx_is_an_argument(name, backend):
    # The size changes, too.
    compare(PROGRAMS[name], 3, None, backend)
    compare(PROGRAMS[name], 1, True, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("form", [whole, differentiated])
def test_where_the_backward_is_in_the_function(form, name, backend):
    compare(form(PROGRAMS[name]), 3, None, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_branch_on_the_number_is_guarded(backend):
    class Clipped(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, a):
            ctx.a = a
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return (g * ctx.a if ctx.a > 0.6 else g - ctx.a), None

    values = [0.5, 0.25, 0.7, 0.9, 0.1, 2.0, 0.55]
    compare(lambda x, a: Clipped.apply(x, a).sin(), 5, None, backend, values)


@pytest.mark.parametrize("backend", BACKENDS)
def test_differentiated_twice(backend):
    def fn(x, a):
        return Reversal.apply(x.sin(), a).exp()

    def second(f, x, a):
        x = x.detach().clone().requires_grad_()
        (g,) = torch.autograd.grad(f(x, a).sum(), x, create_graph=True)
        return g, torch.autograd.grad(g.sin().sum(), x)

    compiled = framejit.compile(fn, backend=backend)
    for a in (0.5, 0.25, 1.5, 0.75):
        x = torch.randn(4)
        assert_same(second(compiled, x, a), second(fn, x, a))
    assert framejit.counters()["compiles"] <= 2


def test_a_custom_backend_has_a_number():
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph

    compiled = framejit.compile(PROGRAMS["scaled"], backend=backend)
    for a in (0.5, 0.25, 1.5):
        x = torch.randn(4)
        assert_same(gradient(compiled, x, a), gradient(PROGRAMS["scaled"], x, a))
    assert len(seen) == 3


def test_a_number_of_another_call_is_not_taken():
    """Two calls under way: each backward has its own."""

    def fn(x, a):
        return Reversal.apply(x, a) * 3

    compiled = framejit.compile(fn)
    x = torch.randn(4, requires_grad=True)
    values = (0.5, 0.25, 1.5, 0.75)
    results = [compiled(x, a) for a in values]
    for y, a in zip(reversed(results), reversed(values), strict=True):
        (g,) = torch.autograd.grad(y.sum(), x)
        torch.testing.assert_close(g, torch.full((4,), -3 * a))
