"""A backward() within a compiled function adds to .grad as AccumulateGrad does: where
there was none, what comes there while it runs, from another thread, is not lost."""

from __future__ import annotations

import threading

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same

MEANWHILE: list[object] = []


@torch.library.custom_op("framejit_test::meanwhile", mutates_args=())
def meanwhile(x: torch.Tensor) -> torch.Tensor:
    for act in MEANWHILE:
        act()
    return x.clone()


@meanwhile.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_between_the_guards_and_the_store(backend):
    """A gradient that another thread leaves while the graph runs."""

    def step(w, x):
        (w * meanwhile(x)).sum().backward()
        return w.grad.sum()

    def other(w):
        def act():
            if w.grad is not None:
                return
            thread = threading.Thread(target=lambda: (w * 10).sum().backward())
            thread.start()
            thread.join()

        return act

    def run(function, disturbed):
        w = torch.ones(3, requires_grad=True)
        MEANWHILE[:] = [other(w)] if disturbed else []
        try:
            function(w, torch.full((3,), 2.0))
        finally:
            MEANWHILE.clear()
        return w.grad, w.grad._version, w.grad.requires_grad

    compiled = framejit.compile(step, backend=backend)
    for disturbed in (False, False, True, True):
        assert_same(run(step, disturbed), run(compiled, disturbed))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_the_program_stores_replaces(backend):
    """`w.grad = x` is no gradient that is added."""

    def step(w, x):
        w.grad = meanwhile(x) * 3

    def run(function):
        w = torch.ones(3, requires_grad=True)
        MEANWHILE[:] = [lambda: setattr(w, "grad", torch.ones(3))]
        try:
            function(w, torch.full((3,), 2.0))
        finally:
            MEANWHILE.clear()
        return w.grad

    compiled = framejit.compile(step, backend=backend)
    for _ in range(3):
        assert_same(run(step), run(compiled))
