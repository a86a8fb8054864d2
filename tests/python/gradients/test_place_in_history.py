"""`w.data = other` while the history of an earlier call is held: w keeps its place in
it, and gradients that come there are summed to the sizes that w had before.

Eager's operators leave it to the engine to undo a broadcast. A backward of ours has
undone it, for the sizes that w has now: such calls need eager's own history.
"""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

import framejit


def grad(y, w):
    return torch.autograd.grad(y.sum(), w, retain_graph=True)[0]


def step(x, w):
    (x * w).sum().backward()
    return w.grad * 2


def shape(x, w):
    g = grad(x * w, w)
    return torch.ones(g.shape) + g


def leaf_made(x, w):
    w.requires_grad_()
    return x * w


OUTSIDE = {
    "product": lambda x, w: x * w,
    "sine": lambda x, w: (x + w.sin()).exp(),
    "branches": lambda x, w: F.relu(x + w) * w.expand(2, 3),
    "where": lambda x, w: torch.where(x > 0, w, x),
    "made": leaf_made,
}
INSIDE = {
    "gradient of a made": lambda x, w: grad(leaf_made(x, w), w),
    "gradient": lambda x, w: grad(x * w, w),
    "its shape": shape,
    "step": step,
}
FORMULAS = {**OUTSIDE, **INSIDE}
MADE = [fn for formula, fn in FORMULAS.items() if "made" in formula]
# Of what is no leaf, the step would free the place that is held.
WAYS = [(formula, True) for formula in FORMULAS]
WAYS += [(f, False) for f in FORMULAS if f != "step" and "made" not in f]
SIZES = [((), (1,)), ((1,), ()), ((1,), (3,)), ((3,), (1,)), ((2, 3), (3,))]
SIZES += [((3,), (2, 3)), ((2, 3), (1, 1)), ((1, 3), (3,)), ((3,), (1, 3)), ((), ())]
# Nothing, and what no gradient can be summed to.
SIZES += [((0,), (1,)), ((1,), (0, 1)), ((0, 3), (1, 3)), ((4,), (3,)), ((3,), (4,))]


def data(w, new):
    w.data = new


def memory(w, new):
    with torch.no_grad():
        w.set_(new)


def values(w):
    return torch.linspace(1, 2, max(w.numel(), 1))[: w.numel()].reshape(w.shape)


def outcomes(call, fn, before, now, change, leaf, inside):
    """What each call gives; the third is of the first sizes again."""
    w = torch.ones(before, requires_grad=True)
    held = w * 1  # holds the place of w
    w = w if leaf else held
    w.retain_grad()
    found = []
    for size in (before, now, before, now, now):
        change(w, values(torch.empty(size)))
        w.grad = None
        if fn in MADE:
            w.requires_grad_(False)
        rows = 0 if 0 in (*before, *now) else 2
        x = torch.linspace(-1, 1, rows * 3).reshape(rows, 3)
        try:
            y = call(x[:, :1] if 4 in size else x, w)
            found.append(y.detach())
            if not inside:
                found.append(grad(y, w))
        except RuntimeError as error:
            # Of names of nodes eager's differ only.
            found.append(str(error).split(" - ")[-1])
    return found


def check(fn, backend, *how):
    expected = outcomes(fn, fn, *how)
    framejit.reset()
    found = outcomes(framejit.compile(fn, backend=backend), fn, *how)
    assert len(expected) == len(found), (expected, found)
    for a, b in zip(expected, found):
        if isinstance(a, str):
            assert a == b
        else:
            torch.testing.assert_close(b, a)


@pytest.mark.parametrize("before, now", SIZES)
@pytest.mark.parametrize("formula, leaf", WAYS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_sizes(backend, formula, before, now, leaf):
    check(FORMULAS[formula], backend, before, now, data, leaf, formula in INSIDE)


@pytest.mark.parametrize("formula", FORMULAS)
@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_memory_set(backend, formula):
    check(FORMULAS[formula], backend, (3,), (1,), memory, True, formula in INSIDE)


def double(w, new):
    w.data = new.double() if new.dim() == 2 else new


@pytest.mark.parametrize("formula, leaf", WAYS)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_types(backend, formula, leaf):
    """A leaf gets a place of its new type."""
    check(FORMULAS[formula], backend, (3,), (2, 3), double, leaf, formula in INSIDE)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_loss_of_the_step_before(backend):
    """A loop that holds it, and a place that is free again afterwards."""

    def losses(fn):
        w = torch.nn.Parameter(torch.ones(3))
        x = torch.ones(2, 3)
        found = []
        for size in ((3,), (1,), (1,), ()):
            w.data = torch.ones(size)
            loss = fn(x, w).sum()  # while the one before lives
            found.append(torch.autograd.grad(loss, w, retain_graph=True)[0])
        del loss
        loss = fn(x, w).sum()
        return [*found, torch.autograd.grad(loss, w)[0]]

    fn = OUTSIDE["product"]
    expected = losses(fn)
    assert [tuple(g.shape) for g in expected] == [(3,)] * 4 + [()]
    framejit.reset()
    compiled = framejit.compile(fn, backend=backend)
    for a, b in zip(expected, losses(compiled), strict=True):
        torch.testing.assert_close(b, a)
    assert not framejit.inspect(compiled)[0].breaks
