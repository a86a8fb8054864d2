"""Signals at random times during compilations; counts what is lost.

``python signal_cases.py NAME SEED TRIES`` runs the program NAME again and
again from empty caches while a signal is on its way, and prints one line
for each try that is not what Python promises:

- what the handler raises comes out of the program, once, or is what the
  program's own ``try`` gets; ``finally`` and ``with`` blocks run;
- a handler that raises nothing runs once, with torch as the program has it;
- afterwards the program gives what it should, compiled.

Logs go to a handler in Python that is slow.

`test_interjections.py` runs all of it.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import random
import signal
import sys
import threading
import time
import traceback

import torch
from torch import nn

import framejit
from framejit import _C, _script


class Late(Exception):
    pass


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(6)])

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(x).relu()
        return x


NET = Net()
X = torch.linspace(-1, 1, 16).reshape(2, 8)


def model(x):
    return NET(x) * 2


def training(x):
    loss = NET(x).pow(2).mean()
    loss.backward()
    grads = [p.grad.clone() for p in NET.parameters()]
    for p in NET.parameters():
        p.grad = None
    return loss.detach(), grads


def looping(x):
    for i in range(300):
        x = x + torch.sin(x) * i * 1e-4
    return x


PLAIN = "plain"  # compiles by itself


def caller_of(program, options):
    return program if options in (None, PLAIN) else framejit.compile(program, **options)


OPEN = []


@contextlib.contextmanager
def opened():
    OPEN.append("open")
    try:
        yield
    finally:
        OPEN.pop()


class Opened:
    def __enter__(self):
        OPEN.append("open")

    def __exit__(self, *exc):
        OPEN.pop()


def resumed(x):
    y = NET(x)
    with Opened():
        framejit.graph_break()
        y = y + NET(y) * 2
        framejit.graph_break()
        y = y + NET(y)
    return y


def breaking_in_a_loop(x):
    for i in range(4):
        with Opened():
            x = NET(x)
            framejit.graph_break()
            x = x * 0.5
    return x


def catching(x):
    try:
        y = NET(x)
        framejit.graph_break()
        for _ in range(20):
            y = y + NET(y) * 0.1
        return y
    except (KeyboardInterrupt, Late) as error:
        return error
    finally:
        CLEANED.append(True)


CLEANED = []
REPORTED = []  # by sys.unraisablehook


def python_backend(gm, inputs):
    """Works in Python for a while, swallows nothing."""
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end:
        sum(range(100))
    return gm.forward


def careless_backend(gm, inputs):
    """Swallows everything."""
    end = time.perf_counter() + 0.01
    while time.perf_counter() < end:
        try:
            sum(i for i in range(100))
        except BaseException:
            pass

    def run(*args):
        end = time.perf_counter() + 0.002
        while time.perf_counter() < end:
            sum(i for i in range(100))
        return gm.forward(*args)

    return run


class Gone:
    """Works for a while when it goes."""

    def __del__(self):
        sum(range(2000))


def helper(x):
    held = Gone()
    y = NET(x)
    held = None
    return y


def finalizing(x):
    """Breaks, behind which other functions are compiled and objects go."""
    held = Gone()
    try:
        y = helper(x)
        framejit.graph_break()
        y = y + helper(y)
        framejit.graph_break()
        return y + helper(y) * 2
    finally:
        held = None


def failing(x):
    """The graph fails in each call, which is logged, and the original runs."""
    y = NET(x)
    try:
        y.masked_fill(y > 0, 1e39)
    except RuntimeError:
        return y * 2
    return y


@framejit.compile(backend="aot_eager")
def two_results(x, weight):
    return (x * weight).sin(), NET(x * weight)


def one_gradient(x):
    """The backward for one of two results is traced when it is first asked for."""
    weight = torch.ones(8, requires_grad=True)
    first, _ = two_results(x, weight)
    return torch.autograd.grad(first.sum(), weight)[0]


PROGRAMS = {
    "finalizing": (finalizing, {"backend": "eager"}),
    "failing": (failing, {"backend": "eager"}),
    "one_gradient": (one_gradient, PLAIN),
    "model": (model, {}),
    "training": (training, {}),
    "aot": (model, {"backend": "aot_eager"}),
    "looping": (looping, {"backend": "aot_eager"}),
    "resumed": (resumed, {}),
    "breaking_in_a_loop": (breaking_in_a_loop, {"backend": "eager"}),
    "catching": (catching, {"backend": "aot_eager"}),
    "python_backend": (model, {"backend": python_backend}),
    "careless_backend": (resumed, {"backend": careless_backend}),
    "script": (resumed, None),
}


class Alarm:
    """A handler that counts, and may raise; the signal comes after `delay`."""

    def __init__(self, kind):
        self.kind = kind
        self.ran = 0
        self.seen = []
        self.in_finalizer = kind == "keyboard"  # nobody knows

    def handle(self, number, frame):
        self.ran += 1
        while frame and not self.in_finalizer:
            self.in_finalizer = frame.f_code.co_name == "__del__"
            frame = frame.f_back
        buffer = torch.zeros(2)
        buffer.add_(torch.ones(2)).mul_(2)
        self.seen.append((buffer.tolist(), torch.is_grad_enabled()))
        if self.kind == "raise":
            raise Late("late")

    def arm(self, delay):
        if self.kind == "keyboard":
            main = threading.main_thread().ident

            def send():
                time.sleep(delay)
                signal.pthread_kill(main, signal.SIGINT)

            self.thread = threading.Thread(target=send, daemon=True)
            self.thread.start()
        else:
            signal.signal(signal.SIGALRM, self.handle)
            signal.setitimer(signal.ITIMER_REAL, max(delay, 1e-6))

    def wait(self):
        """Until the signal has come, in plain Python."""
        if self.kind == "keyboard":
            self.thread.join()
            for _ in range(1000):
                pass
        end = time.perf_counter() + 5
        while self.kind != "keyboard" and not self.ran:
            if time.perf_counter() > end:
                raise AssertionError("no signal came")


def came_before(caught):
    """Out of the call of `catching` itself, before its `try`, or before that."""
    if not caught:
        return False
    code = catching.__code__
    lines = [
        line
        for frame, line in traceback.walk_tb(caught[0].__traceback__)
        if frame.f_code.co_filename == code.co_filename
        and frame.f_code.co_name == code.co_name
    ]
    return not CLEANED and (not lines or lines == [code.co_firstlineno])


def one_try(program, options, kind, delay):
    """What was wrong, or ""."""
    framejit.reset()
    OPEN.clear()
    CLEANED.clear()
    REPORTED.clear()
    expected = program(X)
    CLEANED.clear()
    call = caller_of(program, options)
    alarm = Alarm(kind)
    caught = []
    result = None
    if options is None:
        _script.start(backend="native")
    try:
        alarm.arm(delay)
        result = call(X)
        alarm.wait()
    except (KeyboardInterrupt, Late) as error:
        caught.append(error)
    except BaseException as error:
        return f"another exception: {error!r}"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        if options is None:
            _script.stop()
    if isinstance(result, BaseException):
        caught.append(result)  # the program's own `except` had it
        result = None
    raises = kind != "count"
    if not caught and REPORTED and alarm.in_finalizer:
        return ""  # Python only reports it
    if raises and len(caught) != 1:
        return f"lost: {len(caught)} exceptions, {alarm.ran} runs of the handler"
    if raises and type(caught[0]) is not (
        KeyboardInterrupt if kind == "keyboard" else Late
    ):
        return f"another type: {caught[0]!r}"
    if not raises and caught:
        return f"raised: {caught!r}"
    if kind != "keyboard" and alarm.ran != 1:
        return f"the handler ran {alarm.ran} times"
    if any(seen != ([2.0, 2.0], True) for seen in alarm.seen):
        return f"the handler saw {alarm.seen}"
    if OPEN:
        return "a with block was left open"
    if program is catching and len(CLEANED) != 1 and not came_before(caught):
        return f"finally ran {len(CLEANED)} times"
    if result is not None:
        torch.testing.assert_close(result, expected)
    if _C.hook_installs() or not gc.isenabled():
        return f"left: {_C.hook_installs()} hooks, collector {gc.isenabled()}"
    if kind != "keyboard" and signal.getsignal(signal.SIGALRM) != alarm.handle:
        return "the handler was replaced"
    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        return "the handler of SIGINT was replaced"
    CLEANED.clear()
    for _ in range(2):
        torch.testing.assert_close(call(X), expected)
    if options is not None and not framejit.counters()["compiles"]:
        return "nothing is compiled afterwards"
    if framejit.counters()["failures"]:
        return "an internal error"
    return ""


class SlowLog(logging.Handler):
    def emit(self, record):
        for _ in range(100_000):
            pass


def main():
    logging.getLogger("framejit").addHandler(SlowLog())
    sys.unraisablehook = lambda unraisable: REPORTED.append(repr(unraisable))
    name, seed, tries = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    program, options = PROGRAMS[name]
    # A background job of a shell starts with it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    torch.set_num_threads(1)
    gc.set_threshold(5)
    rng = random.Random(seed)
    # How long a cold call takes, so that signals fall into it.
    longest = 0.0
    for turn in range(4):
        framejit.reset()
        begin = time.perf_counter()
        caller_of(program, options)(X)
        if turn:  # the first imports what it needs
            longest = max(longest, time.perf_counter() - begin)
    wrong = 0
    during = 0
    for turn in range(tries):
        kind = ("keyboard", "raise", "count")[turn % 3]
        delay = rng.uniform(0, longest * 1.1)
        text = one_try(program, options, kind, delay)
        during += 1
        if text:
            wrong += 1
            print(f"WRONG {name} {kind} after {delay * 1e3:.2f} ms: {text}")
    print(f"{name}: {during} tries, {wrong} wrong")


if __name__ == "__main__":
    main()
