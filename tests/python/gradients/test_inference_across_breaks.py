"""Inference mode around a break: the region stays open for the resume function, and
is left by whoever comes to its end, compiled code or torch's own."""

from __future__ import annotations

import contextlib
import operator

import pytest
import torch

import framejit
from differential import BACKENDS


def state():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch._C._is_fwd_grad_enabled(),
        torch.is_autocast_enabled("cpu"),
        str(torch._C._dispatch_tls_local_include_set()),
        str(torch._C._dispatch_tls_local_exclude_set()),
    )


def assert_same(got, want):
    assert len(got) == len(want)
    for a, b in zip(got, want, strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        assert (a.is_inference(), a.requires_grad) == (
            b.is_inference(),
            b.requires_grad,
        )
        torch.testing.assert_close(a, b)


@torch.inference_mode()
def decorated(x):
    y = x.sin()
    if y.sum() > 0:
        y = y + 1
    return y.cos(), torch.is_inference_mode_enabled()


def within(x):
    with torch.inference_mode():
        y = x.sin()
        if y.sum() > 0:
            y = y + 1
        z = y.cos()
    return z, x * 2, torch.is_inference_mode_enabled()


def off_within(x):
    with torch.inference_mode():
        y = x.sin()
        with torch.inference_mode(False):
            inner = x * 2
            if y.sum() > 0:
                inner = inner * 3
        last = y + 1
    return inner, last, x * 2


def nested(x):
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16):
        with torch.inference_mode():
            y = x.sin()
            framejit.graph_break()
            y = y + 1
        y = y @ y
        framejit.graph_break()
        y = y * 2
    return y.float(), x * 2


def under_no_grad(x):
    with torch.no_grad(), torch.inference_mode():
        y = x.sin()
        framejit.graph_break()
        y = y * 2
    return y, x * 2, torch.is_grad_enabled()


def in_a_loop(x):
    with torch.inference_mode():
        y = x
        for _ in range(6):
            y = y * 1.5
            if y.sum() > 20:
                break
    return y, x * 2


def held(x):
    mode = torch.inference_mode()
    with mode:
        y = x.sin()
        framejit.graph_break()
        y = y + 1
    with mode:
        z = y * 2
        framejit.graph_break()
    return y, z, x * 2


def break_raises(x):
    try:
        with torch.inference_mode():
            y = x.sin()
            [][int(y.sum() > 0)]
    except IndexError:
        y = x * 2
    return y, torch.is_inference_mode_enabled()


def stacked(x):
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.inference_mode())
        y = x.sin()
        if y.sum() > 0:
            y = y + 1
    return y, x * 2, torch.is_inference_mode_enabled()


class Derived(torch.inference_mode):
    def __enter__(self):
        super().__enter__()
        return self


def derived(x):
    with Derived() as mode:
        y = x.sin()
        if y.sum() > 0:
            y = y + 1
        z = y.cos()
    return y, z, type(mode).__name__, torch.is_inference_mode_enabled()


def left_by_death(x):
    mode = torch.inference_mode()
    mode.__enter__()
    return (x * 2,)


def dead_at_once(x):
    torch.inference_mode().__enter__()
    return x * 2, torch.is_inference_mode_enabled()


def left_twice(x):
    mode = torch.inference_mode()
    with mode:
        y = x * 2
        framejit.graph_break()
    with torch.inference_mode(False):
        mode.__exit__(None, None, None)
        z = x * 3
        off = torch.is_inference_mode_enabled()
    return y, z, off


PROGRAMS = (
    decorated,
    within,
    off_within,
    nested,
    under_no_grad,
    in_a_loop,
    held,
    break_raises,
    stacked,
    derived,
    left_by_death,
    dead_at_once,
    left_twice,
)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ambient", [None, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("fn", PROGRAMS)
def test_like_eager(fn, ambient, backend):
    compiled = framejit.compile(fn, backend=backend)
    for sign in (1, -1, 1, 1, -1):
        x = (torch.arange(9.0).view(3, 3) * 0.3 * sign).requires_grad_()
        with ambient() if ambient else contextlib.nullcontext():
            before = state()
            want = fn(x)
            assert state() == before
            got = compiled(x)
            assert state() == before
        assert_same(got, want)
    assert framejit.counters()["failures"] == 0


def test_a_break_costs_what_it_costs_without_gradients():
    costs = []
    for mode in (torch.no_grad, torch.inference_mode):

        @framejit.compile
        @mode()
        def f(x):
            y = x.sin()
            if y.sum() > 0:
                y = y + 1
            return y.cos()

        framejit.reset()
        for _ in range(5):
            f(torch.ones(4))
        costs.append(framejit.counters())
    assert costs[0] == costs[1] and costs[0]["breaks"] == 1


@pytest.mark.parametrize("fn", [stacked, derived])
def test_a_region_without_with_is_entered_by_torch(fn):
    """Where a break comes before it is left: what is around is compiled."""
    framejit.reset()
    compiled = framejit.compile(fn)
    for _ in range(3):
        compiled(torch.ones(3, 3))
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert any("sin" in e.torch_graph for e in entries)


def test_a_break_within_another_is_named():
    """An object that cannot live on: the reason says at which break, in words."""

    def f(x):
        pick = operator.itemgetter(0)
        y = x.sin()
        if y.sum() > 0:
            y = y + 1
        return y, pick([1])

    explained = framejit.explain(f)(torch.ones(3))
    lines = str(explained).splitlines()
    assert lines[0] == "nothing was captured"
    assert (
        "FJ405 an object without a rebuild rule outlives the graph: operator.itemgetter"
        " (at the break FJ101 branch on the value of a tensor)"
    ) in lines
