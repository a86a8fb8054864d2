"""What a call was given goes when its results do.

An argument that is only needed for a backward lives as long as the history that
needs it, and not longer: no backward has to run for it to be freed.
"""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import framejit

WEIGHT = nn.Parameter(torch.tensor([0.5]))


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        (x,) = ctx.saved_tensors
        return grad * x * 2


def one(x):
    return x * WEIGHT


def two(x):
    y = x * WEIGHT
    return y, y * 3


def side_by_side(x):
    return x * WEIGHT, x.exp() * WEIGHT


def three_in_a_row(x):
    a = (x * WEIGHT).sin()
    b = a.sin() * WEIGHT
    return a, b, b.sin()


def with_a_view(x):
    y = x * WEIGHT
    return y, y[0], y.t()


def with_the_argument(x):
    return x, x * WEIGHT, 3


def behind_a_break(x):
    y = x * WEIGHT
    z = y * 3
    framejit.graph_break()
    return y + z


def own_function(x):
    y = Square.apply(x * WEIGHT)
    return y, y + 1


def written(x):
    y = x * WEIGHT
    x.mul_(2)
    return y, y.sum()


def spent(x):
    y = x * WEIGHT
    z = y * 2
    z.sum().backward()
    return y.detach(), z


def dropout(x):
    y = nn.functional.dropout(x * WEIGHT, 0.5)
    return y, y.exp()


def gradient_inside(x):
    y = (x * WEIGHT).square()
    (g,) = torch.autograd.grad(y.sum(), WEIGHT, create_graph=True)
    return y, g


PROGRAMS = [one, two, side_by_side, three_in_a_row, with_a_view, with_the_argument]
PROGRAMS += [behind_a_break, own_function, written, spent, dropout, gradient_inside]
Use = Callable[[Any], None]


def total(result: Any) -> torch.Tensor | None:
    parts = result if isinstance(result, tuple) else (result,)
    sums = [t.sum() for t in parts if isinstance(t, torch.Tensor) and t.requires_grad]
    return sum(sums) if sums else None


def nothing(result: Any) -> None:
    pass


def backward(result: Any) -> None:
    loss = total(result)
    if loss is not None:
        loss.backward()
    WEIGHT.grad = None


def backward_of_one(result: Any) -> None:
    last = result[-1] if isinstance(result, tuple) else result
    if isinstance(last, torch.Tensor) and last.requires_grad:
        last.sum().backward()
    WEIGHT.grad = None


def backward_kept(result: Any) -> None:
    loss = total(result)
    if loss is not None:
        loss.backward(retain_graph=True)
    WEIGHT.grad = None


def differentiated_twice(result: Any) -> None:
    loss = total(result)
    if loss is None:
        return
    (g,) = torch.autograd.grad(loss, WEIGHT, create_graph=True)
    if g.requires_grad:
        g.sum().backward()
    WEIGHT.grad = None


USES: list[Use] = [nothing, backward, backward_of_one, backward_kept]
USES += [differentiated_twice]


def alive(f: Callable[..., Any], use: Use) -> list[bool]:
    found = []
    for call in range(5):
        torch.manual_seed(call)
        x = torch.randn(3, 3)
        reference = weakref.ref(x)
        try:
            result = f(x)
            use(result)
            del result
        except RuntimeError:  # eager's own: a second backward
            WEIGHT.grad = None
        del x
        if reference() is not None:
            gc.collect()
        found.append(reference() is not None)
    return found


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("use", USES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_arguments_go(f: Callable[..., Any], use: Use, backend: str) -> None:
    framejit.reset()
    expected = alive(f, use)  # (an error keeps some)
    assert alive(framejit.compile(f, backend=backend), use) == expected


def written_to(x):
    x.add_(torch.relu(x))


def written_to_by_an_exponential(x):
    x.add_(x.exp())


def written_to_and_returned(x):
    x.mul_(2)
    return x, x * 2


def its_value_in_between(x):
    y = x.relu()
    x.add_(y)
    return y


def in_its_own_place(x):
    x.relu_()
    return x[0]


def a_copy_written_to(x):
    y = x.sigmoid()
    y.add_(torch.relu(y))
    return y


WRITERS = [written_to, written_to_by_an_exponential, written_to_and_returned]
WRITERS += [its_value_in_between, in_its_own_place, a_copy_written_to]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("f", WRITERS, ids=lambda f: f.__name__)
def test_arguments_with_a_history_go(f: Callable[..., Any], backend: str) -> None:
    """What a write puts into a tensor's history may need that tensor itself."""
    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    for _ in range(4):
        leaf = torch.randn(3, 3, requires_grad=True)
        x = leaf * 1
        references = weakref.ref(leaf), weakref.ref(x)
        result = compiled(x)
        del leaf, x, result
        gc.collect()
        assert [r() for r in references] == [None, None]


def joins(f: Callable[..., Any], is_leaf: bool) -> bool:
    """Is an argument alive that became part of the history of a result?"""
    leaf = torch.randn(3, 3, requires_grad=not is_leaf)
    x = leaf if is_leaf else leaf * 1
    reference = weakref.ref(x)
    result = f(x)
    last = result[-1] if isinstance(result, tuple) else result
    if isinstance(last, torch.Tensor) and last.requires_grad and last is not x:
        x += last.sum()
    del x, leaf, result, last
    gc.collect()
    return reference() is not None


def a_row(x):
    return x[0] * WEIGHT


def only_of_one(x):
    return x * WEIGHT, WEIGHT.exp()


def what_came_of_it(x):
    return (x.exp() + 1) * WEIGHT


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("is_leaf", [True, False], ids=["leaf", "computed"])
@pytest.mark.parametrize(
    "f", [*PROGRAMS, a_row, only_of_one, what_came_of_it], ids=lambda f: f.__name__
)
def test_arguments_that_join_a_history_go(
    f: Callable[..., Any], is_leaf: bool, backend: str
) -> None:
    """Eager itself keeps what was saved for a node of its own history."""
    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    for _ in range(4):
        try:
            kept = joins(f, is_leaf)
        except RuntimeError:  # the argument is returned, or was freed
            return
        assert not joins(compiled, is_leaf) or kept


def test_histories_of_many_calls_go() -> None:
    """A chain of calls is freed without recursion, however long it is."""
    compiled = framejit.compile(two, backend="native")
    x = torch.randn(3)
    reference = weakref.ref(x)
    for _ in range(50_000):
        x = compiled(x)[1]
    del x
    gc.collect()
    assert reference() is None
