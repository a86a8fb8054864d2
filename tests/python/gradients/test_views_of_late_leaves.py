"""Results that are views, of something that the caller makes require grad after the
call: autograd asks the base for the history of a view that is older than the last
write to it, and only of such a one.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import framejit

BACKENDS = ["eager", "aot_eager", "native"]


def after(a):
    a.masked_fill_(a < 0, 0.0)
    return a[:]


def before(a):
    r = a[:]
    a.masked_fill_(a < 0, 0.0)
    return r


def through_it(a):
    r = a.t()
    r.mul_(2)
    return r


def between_writes(a):
    first = a[0]
    a.add_(1)
    r = a.t()
    a.mul_(2)
    return r, a.t()[0], r[0], first


def several_after(a):
    a.add_(1)
    return a.unbind(0)


def several_before(a):
    parts = a.unbind(0)
    a.add_(1)
    return parts


def without_grad_after(a):
    a.add_(1)
    with torch.no_grad():
        return a[0]


def without_grad_before(a):
    with torch.no_grad():
        r = a[0]
    a.add_(1)
    return r


def detached_write_before(a):
    a.detach().add_(1)
    return a[0]


def detached_write_after(a):
    r = a[0]
    a.detach().add_(1)
    return r


def detached_view(a):
    a.add_(1)
    return a.detach()[0], a.detach().t()


def one_of_each(a):
    a.add_(1)
    return a[0], a, a.view(-1)


def of_result_after(a):
    y = a * 2
    y.add_(1)
    return y, y[0]


def of_result_before(a):
    y = a * 2
    r = y[0]
    y.add_(1)
    return y, r


def of_result_between(a):
    y = a * 2
    y.add_(1)
    r = y.t()
    y[0].mul_(3)
    return y, r, y[1]


def not_written(a):
    return a[0], a.t(), a.chunk(3)[1]


PROGRAMS = [
    after,
    before,
    through_it,
    between_writes,
    several_after,
    several_before,
    without_grad_after,
    without_grad_before,
    detached_write_before,
    detached_write_after,
    detached_view,
    one_of_each,
    of_result_after,
    of_result_before,
    of_result_between,
    not_written,
]


def history(tensor: torch.Tensor, named: bool) -> Any:
    try:
        fn: Any = type(tensor.grad_fn).__name__ if named else bool(tensor.grad_fn)
        return tensor.is_leaf, tensor.requires_grad, fn, tensor._version
    except RuntimeError as refused:  # such a view refuses every look at it
        return str(refused)


def gradients(result: Any, leaf: torch.Tensor) -> Any:
    try:
        total = sum((r * r * (i + 1)).sum() for i, r in enumerate(result))
        (found,) = torch.autograd.grad(total, leaf, allow_unused=True)
        return None if found is None else found.tolist()
    except RuntimeError as refused:
        return str(refused)


@pytest.mark.parametrize("given", ["whole", "part", "requires grad"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_histories_of_views(program, given):
    """part: the argument is a view, of what becomes the leaf."""

    def once(fn: Any) -> Any:
        torch.manual_seed(1)
        whole = torch.randn(4, 3)
        whole.requires_grad_(given == "requires grad")
        try:
            result = fn(whole[1:] if given == "part" else whole)
        except RuntimeError as refused:  # to write to a leaf
            return str(refused)
        result = result if isinstance(result, tuple) else (result,)
        leaf = whole if program.__name__[:2] != "of" else result[0]
        if leaf.is_leaf:
            leaf.requires_grad_()
        named = given != "requires grad"  # a graph has its own node
        return [history(r, named) for r in result], gradients(result, leaf)

    expected = once(program)
    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(program, backend=backend)
        for call in range(2):
            assert once(compiled) == expected, f"{backend}, call {call}"
