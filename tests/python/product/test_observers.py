"""Profilers see compiled code and the frames that exist; debuggers the original."""

from __future__ import annotations

import cProfile
import os
import pstats
import sys
import threading

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import framejit
from framejit import _C, _script


@framejit.disable
def helper(x):
    return x.tolist()


def straight(x):
    return (x.sin() @ x).relu() + 1


def broken(x):
    y = x.cos() * 2
    helper(y)
    return inner(y) @ x


def inner(x):
    if x.sum() > 1e9:
        return x
    return x.exp()


def trained(x):
    w = x.clone().requires_grad_()
    (straight(w) ** 2).sum().backward()
    return w.grad


def raising(x):
    y = x.sin()
    helper(y)
    return y.view(17)


PROGRAMS = [straight, broken, trained, raising]


class CProfile:
    def __enter__(self):
        self.profile = cProfile.Profile()
        self.profile.enable()
        return self

    def __exit__(self, *_):
        self.profile.disable()

    def calls(self) -> dict[str, int]:
        rows = pstats.Stats(self.profile).stats
        found: dict[str, int] = {}
        for (file, _, name), (_, calls, *_) in rows.items():
            base = os.path.basename(file)
            found[f"{base}:{name}"] = found.get(f"{base}:{name}", 0) + calls
        return found


class TorchProfile:
    def __enter__(self):
        activities = [ProfilerActivity.CPU]
        self.profile = profile(activities=activities, with_stack=True)
        self.profile.__enter__()
        return self

    def __exit__(self, *error):
        self.profile.__exit__(*error)

    def calls(self) -> dict[str, int]:
        """Python frames are events of the trace, not of events()."""
        found: dict[str, int] = {}

        def walk(events):
            for event in events:
                place, _, name = event.name.partition(": ")
                file = os.path.basename(place.partition("(")[0])
                key = f"{file}:{name}" if name else event.name
                found[key] = found.get(key, 0) + 1
                walk(event.children)

        walk(self.profile.profiler.kineto_results.experimental_event_tree())
        return found


OBSERVERS = [CProfile, TorchProfile]
HERE = os.path.basename(__file__)


def outcome(fn, x):
    try:
        return fn(x)
    except RuntimeError as error:
        return str(error)


def assert_like(actual, expected):
    if isinstance(expected, str):
        assert actual == expected
    else:
        torch.testing.assert_close(actual, expected)


def each_program_and_observer(test):
    test = pytest.mark.parametrize("observer", OBSERVERS)(test)
    return pytest.mark.parametrize("program", PROGRAMS, ids=lambda fn: fn.__name__)(
        test
    )


def hits(compiled) -> int:
    return sum(entry.hits for entry in framejit.inspect(compiled))


@each_program_and_observer
def test_compiled_code_is_what_is_profiled(program, observer):
    compiled = framejit.compile(program)
    x = torch.randn(4, 4)
    for _ in range(2):
        assert_like(outcome(compiled, x), outcome(program, x))
    before = framejit.counters()
    answered = hits(compiled)
    with observer() as seen:
        for _ in range(3):
            actual = outcome(compiled, x)
    assert_like(actual, outcome(program, x))
    assert framejit.counters() == before
    assert hits(compiled) == answered + 3
    calls = seen.calls()
    assert f"{HERE}:straight" not in calls
    if program is broken:
        assert calls[f"{HERE}:helper"] == 3


@each_program_and_observer
def test_a_compilation_is_not_in_the_profile(program, observer):
    compiled = framejit.compile(program)
    x = torch.randn(4, 4)
    with observer() as seen:
        actual = [outcome(compiled, x) for _ in range(2)]
    for one in actual:
        assert_like(one, outcome(program, x))
    assert framejit.counters()["compiles"] > 0
    assert not [name for name in seen.calls() if name.startswith("_regions.py")]


def test_graphs_are_in_the_profile_with_frames():
    compiled = framejit.compile(broken)
    x = torch.randn(4, 4)
    compiled(x)
    with TorchProfile() as seen:
        compiled(x)
    graphs = [name for name in seen.calls() if name.startswith("fj::forward")]
    assert len(graphs) >= 2


@pytest.mark.parametrize("observer", OBSERVERS)
def test_whole_script_mode(observer):
    x = torch.randn(4, 4)
    _script.start(backend="native")
    try:
        for _ in range(3):
            straight(x)
        compiles = framejit.counters()["compiles"]
        assert compiles
        with observer() as seen:
            actual = straight(x)
        assert framejit.counters()["compiles"] == compiles
    finally:
        _script.stop()
    torch.testing.assert_close(actual, straight(x))
    assert f"{HERE}:straight" not in seen.calls()


@pytest.mark.parametrize("observer", OBSERVERS)
def test_the_original_can_be_asked_for(observer):
    compiled = framejit.compile(straight)
    x = torch.randn(4, 4)
    compiled(x)
    _C.set_option("profile", "original")
    try:
        with observer() as seen:
            compiled(x)
    finally:
        _C.set_option("profile", "compiled")
    assert seen.calls()[f"{HERE}:straight"] == 1


@pytest.mark.parametrize("observer", OBSERVERS)
def test_a_debugger_beside_an_observer_gets_the_original(observer):
    compiled = framejit.compile(straight)
    x = torch.randn(4, 4)
    compiled(x)
    lines = []

    def tracer(frame, event, arg):
        if frame.f_code is straight.__code__:
            lines.append(event)
        return tracer

    with observer():
        sys.settrace(tracer)
        compiled(x)
        sys.settrace(None)
    assert lines == ["call", "line", "return"]


@pytest.mark.parametrize("observer", OBSERVERS)
def test_an_observer_that_begins_or_ends_inside(observer):
    """Between two graphs of one call."""
    tool = observer()

    @framejit.disable
    def begin():
        tool.__enter__()

    @framejit.disable
    def end():
        tool.__exit__(None, None, None)

    def program(x):
        y = x.sin()
        begin()
        y = inner(y.cos())
        end()
        return y * 2

    x = torch.randn(4, 4)
    compiled = framejit.compile(program)
    for _ in range(3):
        tool = observer()
        torch.testing.assert_close(compiled(x), x.sin().cos().exp() * 2)
    assert tool.calls()


def test_threads_under_cprofile():
    compiled = framejit.compile(straight)
    x = torch.randn(4, 4)
    expected = straight(x)
    results = []
    with CProfile():
        threads = [
            threading.Thread(target=lambda: results.append(compiled(x)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 3
    for result in results:
        torch.testing.assert_close(result, expected)
