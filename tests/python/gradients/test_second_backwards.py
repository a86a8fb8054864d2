"""A backward that comes where eager has freed the history is refused, and where
eager has not, it is not: whichever gradient freed it, one of the call itself or
one of a gradient that was differentiated (`create_graph=True`)."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F

import framejit


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * x * x * g


# Of x (3, 4) and w (4,). What they save differs: nothing, inputs, results.
PROGRAMS = {
    "scaled": lambda x, w: (x * 2,),
    "product": lambda x, w: (x * w,),
    "scaled_product": lambda x, w: ((x * 2) * w,),
    "exp": lambda x, w: (x.exp() * 2,),
    "square_of_exp": lambda x, w: (x.exp() ** 2 + w,),
    "matrix": lambda x, w: (torch.tanh(x) @ torch.diag(w).sin(),),
    "two_outputs": lambda x, w: (x.exp() * w, x.sin()),
    "one_behind": lambda x, w: (y := x.exp() * w, (y * y).sum()),
    "apart": lambda x, w: (x.exp(), w.sin()),
    "shared": lambda x, w: (y := x * x, y.sin() * w, y.cos()),
    "softmax": lambda x, w: (F.softmax(x * w, -1),),
    "norm": lambda x, w: (F.layer_norm(x, (4,), w),),
    "view": lambda x, w: ((x * w).view(-1)[2:] ** 2,),
    "written": lambda x, w: (x.clone().mul_(w).sigmoid_(),),
    "detached": lambda x, w: (x * w.detach() + w, (x.detach() * w).sin()),
    "own_function": lambda x, w: (Cube.apply(x) * w,),
    "grad_inside": lambda x, w: (
        torch.autograd.grad((x.exp() * w).sum(), x, create_graph=True)[0] * w,
    ),
}

# What is done with the outputs, step by step. D: a gradient for x and w that is
# to be differentiated, d: likewise, and the history is not kept. G, g: the same
# of the gradients that D and d gave last. B, b: a plain one, of the outputs;
# L, l: of the last output alone; S, s: of outputs and gradients together; O, o: of
# the last output for the others.
STEPS = [
    "".join(steps) for n in (2, 3) for steps in itertools.product("DdGgBblsS", repeat=n)
]
STEPS = [s for s in STEPS if any(a in "Dd" for a in s) and s[-1] not in "D"]
# Where there are several outputs.
OF_OUTPUTS = [
    "".join(steps) for n in (2, 3) for steps in itertools.product("OoBblDG", repeat=n)
]
OF_OUTPUTS = [s for s in OF_OUTPUTS if any(a in "Oo" for a in s) and s[-1] not in "DO"]


def train(fn, times):
    """Where most gradients are differentiated themselves, calls would run at torch
    level."""
    for _ in range(times):
        x = torch.rand(3, 4, dtype=torch.float64, requires_grad=True)
        w = torch.rand(4, dtype=torch.float64, requires_grad=True)
        sum(t.sum() for t in fn(x, w)).backward()


# With the first, gradients depend on the outputs themselves.
LOSSES = {"squares": lambda t: (t * t).sum(), "sum": torch.Tensor.sum}


def arguments(of_x):
    x = torch.linspace(0.2, 1.0, 12, dtype=torch.float64).view(3, 4)
    w = torch.linspace(0.5, 1.5, 4, dtype=torch.float64)
    return x.requires_grad_(of_x), w.requires_grad_()


def play(fn, steps, of_x, loss):
    x = (
        torch.linspace(0.2, 1.0, 12, dtype=torch.float64)
        .view(3, 4)
        .requires_grad_(of_x)
    )
    w = torch.linspace(0.5, 1.5, 4, dtype=torch.float64).requires_grad_()
    leaves = [t for t in (x, w) if t.requires_grad]
    outputs = [t for t in fn(x, w) if t.requires_grad]
    gradients, seen = [], []

    def of(tensors, create, keep):
        total = sum((loss(t) for t in tensors if t.requires_grad), torch.zeros(()))
        found = torch.autograd.grad(
            total, leaves, create_graph=create, retain_graph=keep, allow_unused=True
        )
        return [g for g in found if g is not None]

    for step in steps:
        keep = step.isupper()
        try:
            match step.upper():
                case "D":
                    found = gradients = of(outputs, True, keep)
                case "G":
                    found = of(gradients, False, keep)
                case "B":
                    found = of(outputs, False, keep)
                case "O":
                    total = loss(outputs[-1])
                    grads = torch.autograd.grad(
                        total, outputs[:-1], retain_graph=keep, allow_unused=True
                    )
                    found = [g for g in grads if g is not None]
                case "L":
                    found = of(outputs[-1:], False, keep)
                case "S":
                    found = of(outputs + gradients, False, keep)
        except RuntimeError as error:
            seen.append((step, str(error)[:60]))
        else:
            seen.append((step, [g.detach() for g in found]))
    return seen


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("of_x", [True, False])
@pytest.mark.parametrize("backend", ["native", "aot_eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_steps(name, backend, of_x, loss):
    if not of_x and name == "grad_inside":
        pytest.skip("x has no gradient")
    program = PROGRAMS[name]
    compiled = framejit.compile(program, backend=backend)
    train(compiled, 20)
    wrong = []
    several = of_x and len(program(*arguments(of_x))) > 1
    for steps in STEPS + OF_OUTPUTS * several:
        expected = play(program, steps, of_x, LOSSES[loss])
        train(compiled, 2)
        actual = play(compiled, steps, of_x, LOSSES[loss])
        for (step, a), (_, b) in zip(expected, actual, strict=True):
            same = (
                a == b
                if isinstance(a, str) or isinstance(b, str)
                else len(a) == len(b)
                and all(
                    torch.allclose(p, q, rtol=1e-8, atol=1e-10) for p, q in zip(a, b)
                )
            )
            if not same:
                wrong.append((steps, step, a, b))
                break
    assert not wrong, (len(wrong), len(STEPS), wrong[:3])
