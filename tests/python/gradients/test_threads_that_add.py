"""A backward() within a compiled function adds to .grad as AccumulateGrad does: what
comes there while it runs, from another thread, is not lost."""

from __future__ import annotations

import sys
import threading

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same

STARTS = ("none", "zeros")


@pytest.fixture
def quick_switches(lenient):
    """What a capture has seen may have changed when it is over: not an error here."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def model():
    torch.manual_seed(0)
    m = torch.nn.Sequential(
        torch.nn.Linear(32, 48), torch.nn.GELU(), torch.nn.Linear(48, 32)
    )
    return m.double()


@pytest.mark.parametrize("start", STARTS)
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_model_and_many_threads(backend, start, quick_switches):
    m = model()
    batches = [torch.randn(16, 32, dtype=torch.float64) for _ in range(6)]

    def step(x):
        m(x).sum().backward()

    def clear():
        for p in m.parameters():
            p.grad = None if start == "none" else torch.zeros_like(p)

    clear()
    for x in batches:
        step(x)
    expected = [p.grad.clone() for p in m.parameters()]
    compiled = framejit.compile(step, backend=backend)
    for x in batches[:2] * 2:
        clear()
        compiled(x)
    lost = 0
    for _ in range(25):
        clear()
        threads = [threading.Thread(target=compiled, args=(x,)) for x in batches]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for p, gradient in zip(m.parameters(), expected, strict=True):
            lost += not torch.allclose(p.grad, gradient)
    assert lost == 0


@pytest.mark.parametrize("start", STARTS)
def test_with_threads_that_run_in_eager(start, quick_switches):
    m = model()
    x = torch.randn(16, 32, dtype=torch.float64)

    def step():
        m(x).sum().backward()

    compiled = framejit.compile(step)
    step()
    expected = [p.grad * 6 for p in m.parameters()]
    for _ in range(25):
        for p in m.parameters():
            p.grad = None if start == "none" else torch.zeros_like(p)
        threads = [threading.Thread(target=f) for f in (step, compiled) * 3]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert_same([p.grad for p in m.parameters()], expected)


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
