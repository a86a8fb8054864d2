"""A view remembers in which grad mode it was made.

Autograd refuses writes to some views that were made without grad mode. A view that
leaves a graph, to the caller or across a graph break, is made outside of it, and
must have been made in the mode that the program was in, whatever the mode of the
call. So: what the view is of, how it is made, the mode of the call, of the view
and of the write, and who writes.
"""

from __future__ import annotations

import contextlib
import itertools

import pytest
import torch

import framejit

MODES = {
    "as it is": contextlib.nullcontext,
    "grad": torch.enable_grad,
    "no grad": torch.no_grad,
}
VIEWS = {
    "diagonal": lambda t: t.diagonal(),
    "row": lambda t: t[0],
    "flat": lambda t: t.view(-1),
    "expand": lambda t: t.expand(2, *t.shape)[1],
    "as_strided": lambda t: t.as_strided((2,), (1,)),
    "chunk": lambda t: t.chunk(2)[0],
    "detach": lambda t: t.detach()[0],
    "view of a view": lambda t: t.t()[0],
}
BASES = {
    "leaf": lambda weight: weight,
    "computed": lambda weight: weight * 2,
    "plain": lambda weight: weight.detach().clone(),
}


def returned(x, view, made, written):
    with made():
        return view(x)


def of_an_intermediate(x, view, made, written):
    with torch.enable_grad():
        y = x * 2
    with made():
        v = view(y)
    return y, v


def mode_left_behind(x, view, made, written):
    with made():
        v = view(x)
    with written():
        torch._dynamo.graph_break()
        v.mul_(3)
    return v


def break_inside(x, view, made, written):
    with made():
        v = view(x)
        torch._dynamo.graph_break()
        v.fill_(3)
    return v


def inside(x, view, made, written):
    with made():
        v = view(x)
    with written():
        v.mul_(3)
    return v


PROGRAMS = [returned, of_an_intermediate, mode_left_behind, break_inside, inside]


def outcome(fn, base, called, made, written):
    weight = torch.arange(1.0, 5.0).view(2, 2).requires_grad_()
    x = BASES[base](weight)
    try:
        with MODES[called]():
            result = fn(x)
    except RuntimeError as error:
        return [str(error)[:60], x.tolist(), x._version]
    seen = []
    for tensor in result if isinstance(result, tuple) else (result,):
        try:
            with torch.enable_grad():
                tensor.add_(1)
            seen.append([tensor.tolist(), tensor.requires_grad, tensor.is_leaf])
        except RuntimeError as error:
            seen.append(str(error)[:60])
    try:
        seen += [x.tolist(), x._version, x.is_leaf]
        seen += [g.tolist() for g in torch.autograd.grad(x.sum(), [weight])]
    except RuntimeError as error:
        seen.append(str(error)[:60])
    return seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("view", VIEWS)
def test_views_across_modes(view, program, backend):
    bad = []
    for base, called, made, written in itertools.product(BASES, MODES, MODES, MODES):
        if written != "as it is" and program in (returned, of_an_intermediate):
            continue

        def fn(x, made=made, written=written):
            return program(x, VIEWS[view], MODES[made], MODES[written])

        framejit.reset()
        expected = outcome(fn, base, called, made, written)
        compiled = framejit.compile(fn, backend=backend)
        for _ in range(2):
            actual = outcome(compiled, base, called, made, written)
            if actual != expected:
                bad.append((base, called, made, written, expected, actual))
    assert not bad, f"{len(bad)}: {bad[0]}"
