"""A tensor is written to between forward and backward.

Eager refuses where an autograd node *that runs* had saved it, and has the old
value of everything else. What a compiled graph saves is its own choice: it may
compute a value again from an input only where eager reads that input in the same
backward. So every pair of outputs, every choice of outputs and gradients, and
every tensor that can be written to. (Where eager refuses because a node had saved
what the gradients that were asked for do not depend on, compiled code may give
them.)
"""

from __future__ import annotations

import itertools

import pytest
import torch

import framejit

OUTPUTS = {
    "times": lambda x, y, g: x * g,
    "over": lambda x, y, g: x / (g.abs() + 1),
    "sine of twice": lambda x, y, g: (y * 2 + g).sin() * y,
    "exponential": lambda x, y, g: (x - g).exp(),
    "of an exponential": lambda x, y, g: (x.exp() + 1) * y,
    "square": lambda x, y, g: (g + 1) * y.square(),
    "product": lambda x, y, g: (x * 3) @ (y + g),
    "view": lambda x, y, g: x.view(2, 2).t() * g.expand(2, 2),
    "sigmoid": lambda x, y, g: x * torch.sigmoid(x * g),
    "where": lambda x, y, g: torch.where(y > g, x * y, g * 2),
}
WRITTEN = ("x", "y", "g", "first", "second")


def outcome(fn, taken, wanted, written):
    x = torch.linspace(0.2, 1.5, 4, requires_grad=True)
    y = torch.linspace(0.5, 2.0, 4, requires_grad=True)
    g = torch.tensor(0.75)
    first, second = fn(x, y, g)
    total = sum(
        out.sum() for out, take in zip((first, second), taken, strict=True) if take
    )
    tensors = {"x": x, "y": y, "g": g, "first": first, "second": second}
    with torch.no_grad():
        tensors.get(written, torch.zeros(())).add_(1)
    inputs = [t for t, want in zip((x, y), wanted, strict=True) if want]
    try:
        return torch.autograd.grad(total, inputs, allow_unused=True)
    except RuntimeError as error:
        return str(error).partition(":")[0]


CHOICES = [(True, True), (True, False), (False, True)]


@pytest.mark.parametrize("second", OUTPUTS)
@pytest.mark.parametrize("first", OUTPUTS)
def test_every_choice(first, second):
    def fn(x, y, g):
        return OUTPUTS[first](x, y, g), OUTPUTS[second](x, y, g)

    compiled = framejit.compile(fn)
    for choice in itertools.product(CHOICES, CHOICES, WRITTEN):
        expected, actual = outcome(fn, *choice), outcome(compiled, *choice)
        if isinstance(expected, str) and not isinstance(actual, str):
            expected = outcome(fn, *choice[:2], "")
        if isinstance(expected, str):
            assert actual == expected, choice
            continue
        assert not isinstance(actual, str), (choice, actual)
        for a, b in zip(expected, actual, strict=True):
            assert (a is None) == (b is None), choice
            if a is not None:
                torch.testing.assert_close(a, b, msg=lambda m, c=choice: f"{c}: {m}")


# What the graph itself writes to, eager saves as it is from then on.
WRITES = {
    "all": lambda g: g.add_(1),
    "a part": lambda g: g[:1].mul_(2),
    "turned": lambda g: g.t().sub_(1),
    "a copy": lambda g: g.copy_(g.sin()),
    "twice": lambda g: g.add_(1).mul_(3),
    "nothing new": lambda g: g.add_(0),
}
READS = {
    "itself": lambda g: g,
    "a row": lambda g: g[0],
    "turned": lambda g: g.t(),
    "computed": lambda g: g.exp(),
    "detached": lambda g: g.detach(),
    "one number": lambda g: g[1, 1],
}
LATER = {
    "itself": lambda g: g.add_(1),
    "a part": lambda g: g[1:].add_(1),
    "detached": lambda g: g.detach().add_(1),
    "not": lambda g: None,
}


def written_inside(fn, later, taken):
    x = torch.linspace(0.2, 1.5, 4).view(2, 2).requires_grad_()
    g = torch.linspace(0.5, 2.0, 4).view(2, 2)
    outputs = fn(x, g)
    LATER[later](g)
    try:
        (got,) = torch.autograd.grad(outputs[taken].sum(), x)
    except RuntimeError as error:
        return str(error).partition(":")[0], g._version
    return got.tolist(), g._version


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("write", WRITES)
def test_written_inside(write, read, backend):
    def before(x, g):
        WRITES[write](g)
        return x * READS[read](g), x.sin()

    def behind(x, g):
        y = x * READS[read](g)
        WRITES[write](g)
        return y, x.sin()

    def both(x, g):
        y = x * READS[read](g)
        WRITES[write](g)
        return y, x * READS[read](g)

    for fn in (before, behind, both):
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        for later, taken in itertools.product(LATER, (0, 1)):
            expected = written_inside(fn, later, taken)
            actual = written_inside(compiled, later, taken)
            place = f"{fn.__name__}, {later}, {taken}"
            assert actual[1] == expected[1], place
            if isinstance(expected[0], str) or isinstance(actual[0], str):
                assert actual[0] == expected[0], place
            else:
                assert actual[0] == [pytest.approx(r) for r in expected[0]], place


# What an own function asked `ctx.saved_tensors` for is looked at, used or not.
class UsesOne(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        ctx.save_for_backward(x, g)
        return x * g

    @staticmethod
    def backward(ctx, tangent):
        _, g = ctx.saved_tensors
        return tangent * g, None


class UsesNone(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, g):
        result = x * 2 + g
        ctx.save_for_backward(x, g, result)
        return result

    @staticmethod
    def backward(ctx, tangent):
        assert len(ctx.saved_tensors) == 3
        return tangent * 2, None


class AsksForNothing(UsesNone):
    @staticmethod
    def backward(ctx, tangent):
        return tangent * 2, None


class InSetup(torch.autograd.Function):
    @staticmethod
    def forward(x, g):
        return x * g

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, tangent):
        x, g = ctx.saved_tensors
        return tangent * g, None


FUNCTIONS = [UsesOne, UsesNone, AsksForNothing, InSetup]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("inside", ["nothing", "before", "behind"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_saved_by_an_own_function(function, inside, backend):
    def fn(x, g):
        if inside == "before":
            g.add_(1)
        y = function.apply(x, g)
        if inside == "behind":
            g.add_(1)
        return y, x.sin()

    def run(f, written, taken):
        x = torch.linspace(0.2, 1.5, 4, requires_grad=True)
        g = torch.linspace(0.5, 2.0, 4)
        y, z = f(x, g)
        tensors = {"x": x, "g": g, "part": g[:1], "y": y, "detached": y.detach()}
        with torch.no_grad():
            tensors.get(written, torch.zeros(())).add_(1)
        try:
            (y if taken == 0 else z).sum().backward()
        except RuntimeError as error:
            return str(error).partition(":")[0]
        return x.grad.tolist()

    framejit.reset()
    compiled = framejit.compile(fn, backend=backend)
    written = ["", "x", "g", "part", "y", "detached"]
    for place, taken in itertools.product(written, (0, 1)):
        expected, actual = run(fn, place, taken), run(compiled, place, taken)
        if isinstance(expected, str):
            assert actual == expected, (place, taken)
        else:
            assert actual == pytest.approx(expected), (place, taken)


def test_statistics_of_a_norm():
    norm = torch.nn.BatchNorm1d(3)
    for backend in (None, "aot_eager", "native"):
        f = norm if backend is None else framejit.compile(norm, backend=backend)
        y = f(torch.randn(4, 3))
        norm.running_mean.zero_()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            y.sum().backward()
