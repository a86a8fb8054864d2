"""Threads that compile, each a call or a backward, while another one does.

One compilation runs at a time. What would compile meanwhile does without, and
nothing of that stays: no error, no entry at torch level, no pattern of gradients
that is replayed for ever.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import framejit

inside = threading.Event()
leave = threading.Event()
stops = False


@torch.library.custom_op("framejit_threads::stopping_sin", mutates_args=())
def stopping_sin(x: torch.Tensor) -> torch.Tensor:
    return x.sin()


@stopping_sin.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    """Runs while something is traced, and stops the first trace in the middle."""
    global stops
    if stops:
        stops = False
        inside.set()
        assert leave.wait(60)
    return torch.empty_like(x)


Z = torch.ones(5)


def trained(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return stopping_sin(Z) * x.sin() * y + x


def inputs() -> tuple[torch.Tensor, torch.Tensor]:
    return (
        torch.linspace(0, 1, 5, requires_grad=True),
        torch.linspace(1, 2, 5, requires_grad=True),
    )


def check_gradient(out: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> None:
    (found,) = torch.autograd.grad(out.sum(), [x], retain_graph=True)
    torch.testing.assert_close(found, (Z.sin() * x.cos() * y + 1).detach())


def first_call() -> Callable[[], None]:
    compiled = framejit.compile(lambda x: stopping_sin(x) + 1)
    return lambda: torch.testing.assert_close(compiled(Z), Z.sin() + 1)


def first_backward() -> Callable[[], None]:
    x, y = inputs()
    out = framejit.compile(trained)(x, y)
    return lambda: check_gradient(out, x, y)


@contextlib.contextmanager
def stopped(prepare: Callable[[], Callable[[], None]]) -> Iterator[None]:
    """Another thread is in the middle of what it traces."""
    global stops
    traces = prepare()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            traces()
        except BaseException as error:
            errors.append(error)
            inside.set()

    inside.clear()
    leave.clear()
    stops = True
    thread = threading.Thread(target=run)
    thread.start()
    try:
        assert inside.wait(60)
        yield
    finally:
        leave.set()
        thread.join()
    if errors:
        raise errors[0]
    assert not stops


OTHERS = [first_call, first_backward]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_calls(
    backend: str, fullgraph: bool, other: Callable[[], Callable[[], None]]
) -> None:
    compiled = framejit.compile(
        lambda x: x.cos() * 2, backend=backend, fullgraph=fullgraph, recompile_limit=1
    )
    with stopped(other):
        for _ in range(3):
            torch.testing.assert_close(compiled(Z), Z.cos() * 2)
        assert not framejit.inspect(compiled)
    torch.testing.assert_close(compiled(Z), Z.cos() * 2)
    (entry,) = framejit.inspect(compiled)
    assert not entry.fallback_reason


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_backwards(backend: str, other: Callable[[], Callable[[], None]]) -> None:
    x, y = inputs()
    out = framejit.compile(trained, backend=backend)(x, y)
    with stopped(other):
        for _ in range(3):
            check_gradient(out, x, y)
    check_gradient(out, x, y)
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        check_gradient(out, x, y)
    names = {event.name.split()[0] for event in profiler.events()}
    assert "fj::backward" in names
    assert "fj::torch_level" not in names
