"""A view requires grad once its base does, although it says so only when asked.

A write to the base, or through another view of it, gives the base a history. The
view's own fields change when somebody looks at `requires_grad` or `grad_fn`, and a
guard that reads the fields alone takes a graph without gradients.
"""

from __future__ import annotations

import pytest
import torch

import framejit
from differential import BACKENDS

VIEWS = {
    "view": lambda base: base.view(-1),
    "row": lambda base: base[0],
    "transposed": lambda base: base.t(),
    "expanded": lambda base: base.expand(2, 3, 3),
    "as_strided": lambda base: base.as_strided((2, 2), (1, 3)),
    "view of a view": lambda base: base.t()[1:][0],
    "diagonal": lambda base: base.diagonal(),
    "detached": lambda base: base.detach()[0],
}
WRITES = {
    "none": lambda base, source: None,
    "base": lambda base, source: base.add_(source),
    "other view": lambda base, source: base[2].mul_(source),
    "item": lambda base, source: base.__setitem__(0, source),
    "no grad": lambda base, source: torch.no_grad()(base.add_)(source),
    "detached": lambda base, source: base.add_(source.detach()),
}


def alone(view, base, source):
    return view * 2


def with_others(view, base, source):
    return view * 2 + base.sum() * source


def told(view, base, source):
    return view * 2 if view.requires_grad else view * 3


def leaf(view, base, source):
    return view * 2 if view.is_leaf else view * 3


def held(values, base, source):
    return values["views"][0] * source + 1


def outcome(fn, view, write, looked_at):
    source = torch.tensor(3.0, requires_grad=True)
    base = torch.arange(9.0).view(3, 3).clone()
    made = VIEWS[view](base)
    WRITES[write](base, source)
    if looked_at:
        made.requires_grad  # noqa: B018
    y = fn({"views": [made]} if fn.__name__ == "held" else made, base, source)
    gradient = None
    if y.requires_grad:
        (gradient,) = torch.autograd.grad(y.sum(), source, allow_unused=True)
    return y.tolist(), y.requires_grad, gradient, made.requires_grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("fn", [alone, with_others, told, leaf, held])
def test_histories_of_views(fn, view, backend):
    compiled = framejit.compile(fn, backend=backend)
    for write in [*WRITES, *reversed(WRITES)]:
        for looked_at in (False, True, False):
            expected = outcome(fn, view, write, looked_at)
            actual = outcome(compiled, view, write, looked_at)
            assert actual == expected, (write, looked_at)


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_entry_for_views_whose_base_has_a_history(backend):
    compiled = framejit.compile(alone, backend=backend)
    for _ in range(4):
        outcome(compiled, "row", "base", False)
    assert len(framejit.inspect(compiled)) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("view", VIEWS)
def test_a_view_crosses_a_graph_break(view, backend):
    def fn(base, source):
        made = VIEWS[view](base)
        torch._dynamo.graph_break()
        base[0] += source
        torch._dynamo.graph_break()
        return made * 2, made.requires_grad

    compiled = framejit.compile(fn, backend=backend)
    for requires_grad in (False, True, False, True):
        found = []
        for call in (fn, compiled):
            source = torch.tensor(3.0, requires_grad=requires_grad)
            y, told_so = call(torch.arange(9.0).view(3, 3).clone(), source)
            gradient = None
            if y.requires_grad:
                (gradient,) = torch.autograd.grad(y.sum(), source)
            found.append((y.tolist(), told_so, y.requires_grad, gradient))
        assert found[0] == found[1]
