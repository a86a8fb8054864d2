"""A signal handler that raises while FrameJIT reads a line of the program, or says
something: the exception is the program's, and comes once."""

from __future__ import annotations

import linecache
import logging
import signal
from typing import Any

import pytest
import torch

import framejit


class Own(BaseException):
    pass


@pytest.fixture
def raising_handler() -> Any:
    came: list[int] = []

    def handler(number: int, frame: Any) -> None:
        came.append(number)
        raise Own

    before = signal.signal(signal.SIGUSR1, handler)
    yield came
    signal.signal(signal.SIGUSR1, before)
    framejit.set_logs("")


def breaks(x: Any) -> Any:
    x = x + 1
    framejit.graph_break()
    return x * 2


def calls_until_it_came(compiled: Any, came: list[int]) -> int:
    """How often the exception came out of calls, the last of which is quiet."""
    seen = 0
    for _ in range(4):
        try:
            assert compiled(torch.ones(2)).tolist() == [4, 4]
            for _ in range(3):  # at whose end signals are looked for
                pass
        except Own:
            seen += 1
    return seen


def test_while_a_line_is_read(monkeypatch: Any, raising_handler: list[int]) -> None:
    getline = linecache.getline

    def interrupted(*args: Any) -> str:
        if not raising_handler:
            signal.raise_signal(signal.SIGUSR1)
        return getline(*args)

    framejit.set_logs("graph_breaks")
    monkeypatch.setattr(linecache, "getline", interrupted)
    compiled = framejit.compile(breaks)
    assert calls_until_it_came(compiled, raising_handler) == len(raising_handler) == 1


@pytest.mark.parametrize("channel", ["graph_breaks", "graphs", "bytecode", "guards"])
def test_while_something_is_said(raising_handler: list[int], channel: str) -> None:
    class Handler(logging.Handler):
        def emit(self, record: Any) -> None:
            if not raising_handler:
                signal.raise_signal(signal.SIGUSR1)

    log = logging.getLogger("framejit")
    handler, level = Handler(), log.level
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    framejit.set_logs(channel)
    try:
        compiled = framejit.compile(breaks)
        seen = calls_until_it_came(compiled, raising_handler)
    finally:
        log.removeHandler(handler)
        log.setLevel(level)
    assert seen == len(raising_handler) == 1


def test_at_any_time(tmp_path: Any) -> None:
    """By a timer, while a function is compiled, breaks, and its lines are read."""
    source = tmp_path / "program.py"
    source.write_text(
        "import framejit\n"
        "def f(x, seen):\n"
        "    seen.items += [seen]\n"
        "    framejit.graph_break()\n"
        "    return x * 2\n"
    )
    code = compile(source.read_text(), str(source), "exec")

    class Seen:
        def __init__(self) -> None:
            self.items: list[Any] = []

    state = {"armed": False, "raised": 0}

    def handler(number: int, frame: Any) -> None:
        if state["armed"]:
            state["armed"] = False
            state["raised"] += 1
            raise Own

    before = signal.signal(signal.SIGALRM, handler)
    framejit.set_logs("graph_breaks")
    came = 0
    try:
        for number in range(400):
            names: dict[str, Any] = {}
            exec(code, names)
            compiled = framejit.compile(names["f"])
            linecache.clearcache()
            try:
                state["armed"] = True
                signal.setitimer(signal.ITIMER_REAL, 0.00005 + number % 100 * 0.00002)
                compiled(torch.ones(2), Seen())
                state["armed"] = False
            except Own:
                came += 1
            finally:
                state["armed"] = False
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)
        framejit.set_logs("")
    assert came == state["raised"]
