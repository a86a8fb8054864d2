"""An operation that raises behind a write to an input: what was written is put
back, and the original code runs, which may catch the error."""

import contextlib

import pytest
import torch

import framejit

LOG: list[str] = []


def caught(a, weight):
    with torch.no_grad():
        weight.mul_(2)
    y = a * weight
    try:
        y.masked_fill(a > 0, 1e39)
    except RuntimeError as error:
        LOG.append(str(error)[:40])
    return y.sin()


def not_caught(a, weight):
    with torch.no_grad():
        weight.mul_(2)
    return (a * weight).masked_fill(a > 0, 1e39)


def other(weight):
    return torch.ones(3, 3)


def view(weight):
    return weight.expand(3, 3)


def view_of_other_memory(weight):
    found = weight.expand(3, 3)
    weight.data = torch.full((1,), 0.5)
    return found


def view_with_a_history(weight):
    found = (weight * 1).expand(3, 3)
    weight.data = torch.full((1,), 0.5)
    return found


def detached(weight):
    found = weight.detach().expand(3, 3)
    weight.data = torch.full((1,), 0.5)
    return found


@pytest.mark.parametrize("backend", ["native", "eager"])
@pytest.mark.parametrize("make", [other, view, view_of_other_memory])
@pytest.mark.parametrize("later", [view_with_a_history, detached, other])
@pytest.mark.parametrize("program", [caught, not_caught])
def test_what_was_written_is_put_back(program, make, later, backend):
    compiled = framejit.compile(program, backend=backend)
    for kind in (make, make, later, make):
        found = []
        for run in (program, compiled):
            LOG.clear()
            weight = torch.ones(1, requires_grad=True)
            a = kind(weight)
            result = None
            with contextlib.suppress(RuntimeError):
                result = run(a, weight)
            found.append((result, weight.detach(), a.detach(), a._version, [*LOG]))
        torch.testing.assert_close(found[1][:3], found[0][:3])
        assert found[1][3:] == found[0][3:]
