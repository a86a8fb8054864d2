"""What an operator saves of its results leads to the output that it is: a gradient
that is differentiated again has eager's derivative by that output, too."""

from __future__ import annotations

import pytest
import torch

import framejit
from differential import assert_same

F = torch.nn.functional
COMPILED = ["aot_eager", "native"]


PROGRAMS = {
    name: lambda x, op=op: (op(x),)
    for name, op in {
        "exp": torch.exp,
        "exp2": torch.exp2,
        "expm1": torch.expm1,
        "sigmoid": torch.sigmoid,
        "tanh": torch.tanh,
        "tan": torch.tan,
        "sqrt": torch.sqrt,
        "rsqrt": torch.rsqrt,
        "reciprocal": torch.reciprocal,
        "softmax": lambda x: x.softmax(0),
        "log_softmax": lambda x: x.log_softmax(0),
        "logsumexp": lambda x: x.logsumexp(0),
        "norm": lambda x: x.norm(),
        "cumprod": lambda x: x.cumprod(0),
        "prod": lambda x: x.prod(),
        "pow": lambda x: 2.0**x,
        "relu": torch.relu,
        "elu in place": lambda x: F.elu_(x * 1.0),
        "inverse": lambda x: torch.linalg.inv(x.diag()),
        "max": lambda x: x.exp().view(1, -1).max(1).values,
        # These save nothing of what they give.
        "sin": torch.sin,
        "square": lambda x: x * x,
    }.items()
}
PROGRAMS |= {
    "both used": lambda x: (lambda y: (y.sin() * y, y))(x.exp()),
    "one in the other": lambda x: (lambda y: (y.sigmoid(), y))(x.exp()),
    "behind an inner one": lambda x: (lambda y: ((y.tanh() * 2).exp(), y))(x.exp()),
    "three": lambda x: (lambda y: (y.tanh(), y, x.sqrt()))(x.exp()),
    "apart": lambda x: (x.exp(), x.tanh()),
    "view": lambda x: (lambda y: (y.view(1, -1).cos(), y, y.view(-1, 1)))(x.exp()),
    "part": lambda x: (x.exp(), x[1:].sigmoid()),
}


def maybe(gradients):
    return [None if g is None else g.detach().clone() for g in gradients]


def by_outputs(x, outputs, first):
    return maybe(
        torch.autograd.grad(first, [x, *outputs], retain_graph=True, allow_unused=True)
    )


def each_alone(x, outputs, first):
    return [
        maybe(torch.autograd.grad(first, to, retain_graph=True, allow_unused=True))
        for to in (x, *outputs)
    ]


def retained(x, outputs, first):
    for output in outputs:
        output.retain_grad()
    first.backward()
    return [x.grad, *(output.grad for output in outputs)]


def hooked(x, outputs, first):
    seen = []
    for i, output in enumerate(outputs):
        output.register_hook(lambda g, i=i: seen.append((i, g.detach().clone())))
        output.register_hook(lambda g: g * 2)
    first.backward()
    return [x.grad, *seen]


def again(x, outputs, first):
    second = torch.autograd.grad(
        first, [x, *outputs], create_graph=True, allow_unused=True
    )
    found = maybe(second)
    third = [g.sin().sum() for g in second if g is not None and g.requires_grad]
    if third:
        found += maybe(
            torch.autograd.grad(sum(third), [x, *outputs], allow_unused=True)
        )
    return found


def freed(x, outputs, first):
    """The second backward frees what is behind the outputs."""
    first.backward()
    try:
        sum(output.sum() for output in outputs).backward()
    except RuntimeError as error:
        return [x.grad, "a second time" in str(error)]
    return [x.grad, None]


WAYS = {f.__name__: f for f in (by_outputs, each_alone, retained, hooked, again, freed)}


def differentiated(fn, way, passing):
    x = torch.tensor([0.3, 0.7, 1.1], dtype=torch.double, requires_grad=True)
    outputs = fn(x)
    if passing == "watched":
        outputs[-1].register_hook(lambda g: None)
    loss = sum((output * (i + 1)).sin().sum() for i, output in enumerate(outputs))
    wanted = [x, *outputs] if passing == "of all" else [x]
    first = torch.autograd.grad(loss, wanted, create_graph=True)
    return WAYS[way](x, outputs, sum(g.square().sum() for g in first))


@pytest.mark.parametrize("passing", ["plain", "watched", "of all"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_gradient_has_derivatives_by_outputs(name, way, passing):
    expected = differentiated(PROGRAMS[name], way, passing)
    for backend in COMPILED:
        framejit.reset()
        compiled = framejit.compile(PROGRAMS[name], backend=backend)
        for _ in range(2):
            actual = differentiated(compiled, way, passing)
            assert_same(expected, actual, backend)


@pytest.mark.parametrize("backend", COMPILED)
def test_a_long_history_of_another_input(backend):
    """By which autograd prunes what cannot lead to an output."""

    def fn(x, w):
        return x.exp(), (w * 2).sum()

    found = []
    for run in (fn, framejit.compile(fn, backend=backend)):
        x = torch.tensor([0.3, 0.7], requires_grad=True)
        w = torch.ones(3, requires_grad=True)
        long = w
        for _ in range(50):
            long = long.sin()
        y, _ = run(x, long)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True)
        found.append(torch.autograd.grad(g.sum(), [y, x]))
    torch.testing.assert_close(found[0], found[1])


@pytest.mark.parametrize("backend", COMPILED)
def test_a_gradient_that_was_freed_is_not_differentiated(backend):
    compiled = framejit.compile(lambda x: x.exp(), backend=backend)
    for run in (torch.exp, compiled):
        x = torch.tensor([0.3, 0.7], requires_grad=True)
        y = run(x)
        (g,) = torch.autograd.grad(y.sum(), x, create_graph=True, retain_graph=False)
        torch.testing.assert_close(torch.autograd.grad(g.sum(), y), (torch.ones(2),))
        with pytest.raises(RuntimeError, match="a second time"):
            g.sum().backward()
