"""An output is written to between forward and backward, and somebody looks at what
passes through an output (a hook, retain_grad(), autograd.grad()), so that the captured
calls run again: what eager's nodes had saved may not have been written to, whoever
looks, and whose hooks were called by then is eager's, too."""

from __future__ import annotations

import itertools

import pytest
import torch

import framejit

BACKENDS = ["eager", "aot_eager", "native"]


def product(a, c):
    v = a @ c
    return v, v @ a.clone()


def saved_by_itself(a, c):
    v = (a * c).exp()
    return v, v.sin() + a


def saved_behind(a, c):
    h = (a * c).exp()
    v = h * 2
    return h, v, v.sin()


def in_a_row(a, c):
    h = (a * c).sin()
    v = h * h
    return h, v, v * v


def not_saved(a, c):
    v = a * c + 1
    return v, v * 2, (v + a).sin()


def aside(a, c):
    u = a.exp()
    v = c.sin()
    return u, v, u * v


def older_aside(a, c):
    u = a.exp()
    v = c * 2
    return v, (v + u).sin(), u


def view_read(a, c):
    v = (a @ c).tanh()
    return v, v.t() @ v.clone()


BODIES = {
    body.__name__: body
    for body in (
        product,
        saved_by_itself,
        saved_behind,
        in_a_row,
        not_saved,
        aside,
        older_aside,
        view_read,
    )
}
LOOKS = ["nobody", "retain_grad", "hook", "hook that changes"]
WAYS = ["backward", "one output", "grad", "by an output", "create_graph"]


def outcome(fn, written, look, at, way):
    a = (torch.arange(4.0).view(2, 2) / 8 + 0.25).requires_grad_()
    c = (torch.arange(4.0).view(2, 2) / 5 + 0.5).requires_grad_()
    outputs = fn(a, c)
    seen = []
    for k, y in enumerate(outputs):
        if look == "nobody" or not (at >> k) & 1:
            continue
        if look == "retain_grad":
            y.retain_grad()
        else:
            factor = 1 if look == "hook" else 2
            y.register_hook(
                lambda g, k=k, f=factor: (seen.append((k, g.tolist())), g * f)[1]
            )
    with torch.no_grad():
        if written is not None and written < len(outputs):
            outputs[written].add_(0.5)
    total = sum(y.detach().sum() * 0 + (y * 2).sum() for y in outputs)
    try:
        if way == "backward":
            total.backward()
        elif way == "one output":
            outputs[-1].sum().backward()
        elif way == "create_graph":
            torch.autograd.grad(total, (a, c), create_graph=True)
        elif way == "grad":
            seen.append([g.tolist() for g in torch.autograd.grad(total, (a, c))])
        else:
            (g,) = torch.autograd.grad(outputs[-1].sum(), outputs[at & 1])
            seen.append(g.tolist())
        end = "done"
    except RuntimeError as error:
        end = str(error).partition(":")[0]
    # One node fills the leaves at once, or none.
    leaves = (a, c) if end == "done" else ()
    grads = [y.grad for y in (*leaves, *(y for y in outputs if y.retains_grad))]
    return end, seen, [None if g is None else g.tolist() for g in grads]


def close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, rel=1e-5, abs=1e-6)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return a == b


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("body", BODIES)
def test_written_and_watched(body, way, backend):
    wrong = {}
    for case in itertools.product([None, 0, 1, 2], LOOKS, [1, 2, 3, 4, 7]):
        expected = outcome(BODIES[body], *case, way)
        framejit.reset()
        found = outcome(framejit.compile(BODIES[body], backend=backend), *case, way)
        if not close(expected, found):
            wrong[case] = (found, expected)
    assert not wrong


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("look", LOOKS)
def test_a_view_of_a_hidden_value(look, backend):
    """(A write makes the history of such a view anew, but for one that is computed:
    docs/architecture.md, Limits.)"""

    def fn(a, c):
        v = a @ c
        v = v.view_as(v)
        return v, v @ a.clone()

    compiled = framejit.compile(fn, backend=backend)
    for way in ("backward", "one output", "grad", "create_graph"):
        expected = outcome(fn, 0, look, 1, way)
        assert outcome(compiled, 0, look, 1, way)[0] == expected[0] != "done"
