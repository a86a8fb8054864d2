"""torch.profiler.record_function: its range is there when a profiler runs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity, profile, record_function

import framejit


def plain(x):
    with record_function("mine"):
        return (x @ x).relu()


def nested(x):
    with record_function("mine"):
        y = x @ x
        with torch.autograd.profiler.record_function("inner", "args"):
            y = y + 1
    return y * 2


def in_a_call(x):
    return plain(x) + nested(x)


def raises(x):
    try:
        with record_function("mine"):
            y = x @ x
            raise ValueError
    except ValueError:
        return y


def around_a_break(x):
    with record_function("mine"):
        y = x @ x
        framejit.graph_break()
        y = y + 1
    return y


def break_that_raises(x):
    try:
        with record_function("mine"):
            y = x @ x
            framejit.graph_break()
            int("no number")
    except ValueError:
        return y


@record_function("mine")
def decorated(x):
    return x @ x


made_outside = record_function("mine")


def outside(x):
    with made_outside:
        return x @ x


BODIES = [
    plain,
    nested,
    in_a_call,
    raises,
    around_a_break,
    break_that_raises,
    decorated,
    outside,
]


def ranges(fn: Any, x: torch.Tensor) -> tuple[Any, list[tuple[str, int]]]:
    with profile(activities=[ProfilerActivity.CPU]) as seen:
        result = fn(x)
    names = {"mine", "inner"}
    return result, sorted(
        (e.key, e.count) for e in seen.key_averages() if e.key in names
    )


@pytest.mark.parametrize("fn", BODIES, ids=lambda fn: fn.__name__)
def test_range_in_the_profile(fn):
    framejit.reset()
    compiled = framejit.compile(fn)
    x = torch.randn(3, 3)
    for profiled in (False, True, False, True, True):
        if not profiled:
            torch.testing.assert_close(compiled(x), fn(x))
            continue
        result, seen = ranges(compiled, x)
        expected, wanted = ranges(fn, x)
        torch.testing.assert_close(result, expected)
        assert seen == wanted and wanted


def test_no_break_without_a_profiler():
    framejit.reset()
    compiled = framejit.compile(in_a_call)
    compiled(torch.randn(3, 3))
    assert framejit.counters()["breaks"] == 0


def test_training_step_in_a_profile():
    # Optimizers have a range around each step.
    def run(compile: Any) -> tuple[Any, int]:
        torch.manual_seed(0)
        model = torch.nn.Linear(3, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)

        def step(x):
            optimizer.zero_grad()
            model(x).sum().backward()
            optimizer.step()

        step, x = compile(step), torch.randn(4, 3)
        step(x)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            step(x)
        step(x)
        found = [e.count for e in seen.key_averages() if "SGD.step" in e.key]
        return model.weight.detach(), sum(found)

    framejit.reset()
    expected, actual = run(lambda fn: fn), run(framejit.compile)
    torch.testing.assert_close(actual[0], expected[0])
    assert actual[1] == expected[1] == 1
