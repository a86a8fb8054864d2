"""Messages about a function under a decorator name the function and its arguments,
not the decorator's."""

from __future__ import annotations

import functools
import inspect
import logging

import pytest
import torch

import framejit
from framejit import _report


def passing(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def with_a_parameter(function):
    @functools.wraps(function)
    def wrapper(first, *args, **kwargs):
        return function(first, *args, **kwargs)

    return wrapper


def sample(x, steps=5, *rest, scale=1.0, **others):
    return x * len(range(steps)) * scale + len(rest) + len(others)


DECORATORS = [
    torch.no_grad(),
    torch.inference_mode(),
    passing,
    lambda function: passing(torch.no_grad()(function)),
]
PLACE = f"sample ({__file__}:{inspect.getsourcelines(sample)[1]})"


@pytest.fixture
def said(caplog):
    framejit.reset()
    framejit.set_logs("recompiles,guards")
    caplog.set_level(logging.INFO, "framejit")
    yield lambda channel: [
        r.getMessage() for r in caplog.records if r.name == f"framejit.{channel}"
    ]
    framejit.set_logs("")
    framejit.reset()


@pytest.mark.parametrize("decorator", DECORATORS)
def test_a_recompilation(decorator, said):
    compiled = framejit.compile(decorator(sample))
    compiled(torch.ones(2))
    compiled(torch.ones(3))
    (line,) = said("recompiles")
    assert line.startswith(
        f"recompiling {PLACE}, entry 0: x.size(0): expected 2, got 3"
    )
    assert "mark_dynamic(x, 0)" in line


@pytest.mark.parametrize("decorator", DECORATORS)
def test_other_arguments(decorator, said):
    compiled = framejit.compile(decorator(sample), dynamic=False)
    x = torch.ones(2)

    def said_of(*args, **kwargs):
        before = len(said("recompiles"))
        compiled(*args, **kwargs)
        return "".join(said("recompiles")[before:])

    compiled(x, 2)
    assert ": steps: expected 2, got 3" in said_of(x, 3)
    compiled(x, 2, 7)
    assert ": rest[0]: expected 7, got 8" in said_of(x, 2, 8)
    framejit.reset()
    compiled(x, scale=2.0)
    assert ": scale: expected 2.0, got 3.0" in said_of(x, scale=3.0)


@pytest.mark.parametrize("decorator", DECORATORS)
def test_the_limit_guards_and_the_report(decorator, said):
    compiled = framejit.compile(decorator(sample), dynamic=False)
    for size in range(2, 14):
        compiled(torch.ones(size))
    (line,) = [text for text in said("recompiles") if "recompile_limit" in text]
    assert f"reached for {PLACE}" in line and "x.size(0)" in line
    tree = said("guards")[0]
    assert PLACE in tree and "x: Tensor" in tree and "args[0]" not in tree
    guards = framejit.inspect(compiled)[0].guards
    assert any(guard.startswith("x: Tensor") for guard in guards), guards
    place = PLACE.rsplit("/", 1)[1].rstrip(")")
    rows = [row for row in _report.text(200).splitlines() if place in row]
    assert len(rows) == 1 and " sample  " in rows[0]


def test_a_decorator_that_has_parameters_keeps_their_names(said):
    compiled = framejit.compile(with_a_parameter(sample))
    compiled(torch.ones(2))
    compiled(torch.ones(3))
    (line,) = said("recompiles")
    assert f"{PLACE}, entry 0: first.size(0): expected 2, got 3" in line


def test_two_functions_under_one_decorator(said):
    def other(y):
        return y + 1

    both = [framejit.compile(torch.no_grad()(f)) for f in (sample, other)]
    for size in (2, 3):
        for compiled in both:
            compiled(torch.ones(size))
    first, second = said("recompiles")
    assert PLACE in first and " x.size(0)" in first
    assert "<locals>.other (" in second and " y.size(0)" in second


def test_a_graph_that_fails():
    framejit.reset()

    @torch.no_grad()
    def gather(x, index):
        return x[index] * 2

    compiled = framejit.compile(gather)
    x = torch.ones(3)
    compiled(x, torch.tensor([0, 1]))
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([0, 7]))
    (text,) = [text for _, text, *_ in framejit.events() if "as the original" in text]
    assert "<locals>.gather (" in text and "test_decorated_words.py" in text
