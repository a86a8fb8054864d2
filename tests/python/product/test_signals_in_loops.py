"""A loop that breaks at each turn never comes past CPython's own look for signals:
handlers, pending calls, exceptions of other threads and collections have their turn
between its parts."""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

import framejit

SECONDS = 60  # after which a loop that nothing ends fails


class Stopped(Exception):
    pass


def branch(x: Any, state: dict[str, Any]) -> int:
    turns = 0
    while not state["stop"]:
        x = (x @ x).tanh()
        turns += 1
        if x.sum() > 1e9:
            break
    return turns


def condition(x: Any, state: dict[str, Any]) -> int:
    turns = 0
    while (x @ x).sum() < 1e9:
        turns += 1
        if state["stop"]:
            break
    return turns


def assertion(x: Any, state: dict[str, Any]) -> int:
    turns = 0
    while not state["stop"]:
        x = (x @ x).tanh()
        assert x.sum() < 1e9
        turns += 1
    return turns


def caught(x: Any, state: dict[str, Any]) -> Any:
    turns = 0
    try:
        while not state["stop"]:
            x = (x @ x).tanh()
            turns += 1
            if x.sum() > 1e9:
                break
    except (KeyboardInterrupt, Stopped) as error:
        return "caught", type(error).__name__
    finally:
        state["finally"] = True
    return turns


LOOPS = [branch, condition, assertion, caught]


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {s: signal.getsignal(s) for s in (signal.SIGALRM, signal.SIGINT)}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for number, handler in before.items():
        signal.signal(number, handler)


def run(loop: Any, state: dict[str, Any]) -> Any:
    """What came of it; a watchdog ends what nothing else does."""
    compiled = framejit.compile(loop)
    state["stop"] = True
    compiled(torch.eye(4), state)
    state["stop"] = False
    ended = threading.Event()

    def watch() -> None:
        if not ended.wait(SECONDS):
            state["stop"] = state["late"] = True

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        return compiled(torch.eye(4), state)
    finally:
        ended.set()
        thread.join()
        assert "late" not in state, "nothing was delivered"


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("loop", LOOPS)
def test_a_handler_sets_a_flag(loop: Any) -> None:
    state: dict[str, Any] = {}
    signal.signal(signal.SIGALRM, lambda *_: state.update(stop=True))
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    assert run(loop, state) > 0


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("error", [KeyboardInterrupt, Stopped])
def test_a_handler_raises(loop: Any, error: type[BaseException]) -> None:
    def raises(*_: Any) -> None:
        raise error

    signal.signal(signal.SIGALRM, raises)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    state: dict[str, Any] = {}
    if loop is caught:
        assert run(loop, state) == ("caught", error.__name__)
        assert state["finally"]
    else:
        with pytest.raises(error):
            run(loop, state)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("loop", LOOPS)
def test_an_interrupt_from_the_keyboard(loop: Any) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    state: dict[str, Any] = {}
    if loop is caught:
        assert run(loop, state) == ("caught", "KeyboardInterrupt")
    else:
        with pytest.raises(KeyboardInterrupt):
            run(loop, state)


@pytest.mark.usefixtures("handlers")
def test_many_signals_whose_handlers_do_not_raise() -> None:
    count = 0
    state: dict[str, Any] = {}

    def handler(*_: Any) -> None:
        nonlocal count
        count += 1
        if count == 20:
            state["stop"] = True

    signal.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.02, 0.02)
    assert run(branch, state) > 0
    assert count >= 20


@pytest.mark.parametrize("loop", LOOPS)
def test_an_exception_of_another_thread(loop: Any) -> None:
    """Of whichever thread runs the loop."""
    results: list[Any] = []

    def body() -> None:
        try:
            results.append(run(loop, {}))
        except Stopped:
            results.append("raised")

    thread = threading.Thread(target=body)
    thread.start()
    time.sleep(1)
    assert thread.ident is not None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread.ident), ctypes.py_object(Stopped)
    )
    thread.join(2 * SECONDS)
    assert results == [("caught", "Stopped") if loop is caught else "raised"]


def test_pending_calls_are_made() -> None:
    state: dict[str, Any] = {}
    made: list[int] = []
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)

    @prototype
    def pending(_: Any) -> int:
        made.append(1)
        state["stop"] = True
        return 0

    add: Callable[..., int] = ctypes.pythonapi.Py_AddPendingCall
    threading.Timer(0.5, lambda: add(pending, None)).start()
    assert run(branch, state) > 0
    assert made == [1]


def test_garbage_is_collected() -> None:
    class Cycle:
        alive = 0

        def __init__(self) -> None:
            self.me = self
            Cycle.alive += 1

        def __del__(self) -> None:
            Cycle.alive -= 1

    def loop(x: Any, n: int) -> int:
        most = 0
        for _ in range(n):
            Cycle()
            if (x @ x).sum() > 1e9:
                break
            most = max(most, Cycle.alive)
        return most

    assert gc.isenabled()
    threshold = gc.get_threshold()
    gc.set_threshold(50, 2, 2)
    try:
        assert framejit.compile(loop)(torch.eye(4), 2000) < 1000
    finally:
        gc.set_threshold(*threshold)
