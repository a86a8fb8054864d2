"""Calls that a signal handler interrupts: its exception must not be lost."""

from __future__ import annotations

import signal
import sys
import traceback
import types
from typing import Any

import torch

import framejit
from fuzz.loading import Mismatch, load, seed_all

VISITS = 8  # of a line, at which eager is interrupted


class Interrupt(BaseException):
    """What a signal handler raises."""


def _was_interrupted(error: BaseException | None) -> bool:
    """It, or something raised while it was handled."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, Interrupt):
            return True
        seen.add(id(error))
        error = error.__context__
    return False


def _loses_it(code: types.CodeType, raised: Interrupt) -> bool:
    """Does eager lose an exception that comes at this line, too?

    A `finally` that raises, or returns, puts its own in its place. It is raised
    at the first, second ... time that the line is reached.
    """
    at = None
    for frame, line in traceback.walk_tb(raised.__traceback__):
        if frame.f_code.co_filename == code.co_filename:
            at = frame.f_code.co_name, line
    if at is None:
        return False  # no code of the program has seen it
    for visit in range(VISITS):
        left = [visit]
        names = load(code)
        seed_all(50)
        args = names["make_args"](0)

        def trace(frame: types.FrameType, event: str, _: Any, left: Any = left) -> Any:
            # (A function begins at the line of its `def`.)
            if (
                event in ("line", "call")
                and (frame.f_code.co_name, frame.f_lineno) == at
            ):
                left[0] -= 1
                if left[0] < 0:
                    sys.settrace(None)
                    raise Interrupt
            return trace

        error: BaseException | None = None
        try:
            with names["around"](0):
                sys.settrace(trace)
                names["f"](*args)
        except BaseException as found:
            error = found
        finally:
            sys.settrace(None)
        if left[0] >= 0:
            return False  # the line is not reached as often
        if not _was_interrupted(error):
            return True
    return False


def interrupt(code: types.CodeType, backend: str, delay: float) -> None:
    """A call in a namespace of its own, in which a signal handler raises."""
    names = load(code)
    fn = framejit.compile(names["f"], backend=backend)
    state = {"armed": False}
    raised: list[Interrupt] = []

    def handler(*_: Any) -> None:
        if state["armed"]:
            state["armed"] = False
            raised.append(Interrupt())
            raise raised[0]

    unraisable: list[Any] = []
    hook, sys.unraisablehook = sys.unraisablehook, unraisable.append
    before = signal.signal(signal.SIGALRM, handler)
    modes = torch.is_grad_enabled(), torch.overrides._len_torch_function_stack()
    error: BaseException | None = None
    try:
        seed_all(50)
        try:
            args = names["make_args"](0)
        except Exception:  # the program's own; eager's turn says so
            return
        state["armed"] = True
        try:
            signal.setitimer(signal.ITIMER_REAL, delay)
            with names["around"](0):
                fn(*args)
            state["armed"] = False
        except BaseException as found:
            state["armed"] = False
            error = found
        for _ in range(2):  # at whose end signals are looked for
            pass
    except Interrupt as late:  # it came while another error was caught
        error = late
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
        # A signal between `with` and `__enter__`'s end leaves these in eager, too.
        torch.set_grad_enabled(modes[0])
        while torch.overrides._len_torch_function_stack() > modes[1]:
            torch._C._pop_torch_function_stack()
        autograd = torch._C._autograd
        while autograd._top_saved_tensors_default_hooks(True) is not None:
            autograd._pop_saved_tensors_default_hooks()
    if not raised or _was_interrupted(error) or unraisable:
        return
    if not _loses_it(code, raised[0]):
        raise Mismatch(f"the exception of a signal handler is gone: {error!r}")
