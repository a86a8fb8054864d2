"""Anomaly mode is the program's: traces of ours are not looked at."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch

import framejit


def loss(x, w):
    return torch.tanh(x @ w).sum()


def two_outputs(x, w):
    y = x @ w
    return y.sin().sum(), y.exp()


def written(x, w):
    y = x @ w
    y.mul_(2)
    return y.sum()


def outcome(fn: Any, check_nan: bool) -> tuple[Any, ...]:
    torch.manual_seed(0)
    x, w = torch.randn(2, 3), torch.randn(3, 3, requires_grad=True)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with torch.autograd.set_detect_anomaly(True, check_nan):
            results = fn(x, w)
            outputs = results if isinstance(results, tuple) else (results,)
            sum(o.sum() for o in outputs).backward()
            mode = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    # (The mode itself warns that it is slow, once for each use.)
    texts = [str(s.message) for s in seen if "Error detected" in str(s.message)]
    return [o.detach() for o in outputs], w.grad, mode, texts


@pytest.mark.parametrize("fn", [loss, two_outputs, written])
@pytest.mark.parametrize("check_nan", [True, False])
def test_first_call_under_anomaly_mode(fn, check_nan, capfd):
    framejit.reset()
    expected = outcome(fn, check_nan)
    capfd.readouterr()
    compiled = framejit.compile(fn)
    for _ in range(2):
        actual = outcome(compiled, check_nan)
        torch.testing.assert_close(actual[:2], expected[:2])
        assert actual[2:] == expected[2:] == ((True, check_nan), [])
    assert "Error detected" not in capfd.readouterr().err
    entries = [e for top in framejit.inspect(compiled) for e in top.walk()]
    assert [e.fallback_reason for e in entries] == [""]


def test_nan_in_the_backward_is_found():
    def fn(x):
        return (x * 0).sqrt().sum()

    framejit.reset()
    for run in (fn, framejit.compile(fn)):
        x = torch.zeros(2, requires_grad=True)
        with torch.autograd.set_detect_anomaly(True):
            y = run(x)
            with pytest.raises(RuntimeError, match="returned nan values"):
                y.backward()


def within(x, w):
    y = torch.tanh(x @ w).mean()
    y.backward()
    return y.detach()


def within_by_grad(x, w):
    (gradient,) = torch.autograd.grad((x @ w).square().mean(), [w], create_graph=True)
    return gradient.square().sum()


def within_and_broken(x, w):
    y = torch.tanh(x @ w).mean()
    y.backward()
    framejit.graph_break()
    return y.detach() * 2


@pytest.mark.parametrize("fn", [within, within_by_grad, within_and_broken])
@pytest.mark.parametrize("check_nan", [True, False])
def test_a_backward_within_the_function(fn, check_nan, capfd):
    framejit.reset()

    def run(function):
        torch.manual_seed(0)
        w = torch.randn(3, 3, requires_grad=True)
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            with torch.autograd.set_detect_anomaly(True, check_nan):
                found = [function(torch.randn(2 + i, 3), w).detach() for i in range(3)]
                mode = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
        return found, w.grad, mode, [str(s.message) for s in seen if "Error" in str(s)]

    expected = run(fn)
    actual = run(framejit.compile(fn))
    torch.testing.assert_close(actual[:2], expected[:2])
    assert actual[2:] == expected[2:] == ((True, check_nan), [])
    assert "Error detected" not in capfd.readouterr().err


@pytest.mark.parametrize("under_first", [True, False])
def test_a_nan_in_a_backward_within_the_function_is_found(under_first):
    """By the name of its operator, also where it was compiled without the mode."""

    def fn(x):
        (x * 0).sqrt().sum().backward()
        return x * 2

    framejit.reset()
    compiled = framejit.compile(fn)
    if not under_first:
        x = torch.zeros(2, requires_grad=True)
        torch.testing.assert_close(compiled(x), x * 2)
        assert x.grad.isnan().all()
    for run in (fn, compiled, compiled):
        x = torch.zeros(2, requires_grad=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with torch.autograd.set_detect_anomaly(True):
                with pytest.raises(RuntimeError, match="'MulBackward0' returned nan"):
                    run(x)
        assert x.grad is None
    # The mode is over: it is one graph again.
    x = torch.ones(2, requires_grad=True)
    torch.testing.assert_close(compiled(x), x * 2)
