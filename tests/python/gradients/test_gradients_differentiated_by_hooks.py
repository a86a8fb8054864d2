"""A hook may differentiate the gradient it gets while the backward still runs, by
inputs and by outputs that the gradient passed; and what nothing was saved for is a
gradient again after its history was freed, also one that keeps its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

BACKENDS = ["native", "aot_eager"]
grad: Any = torch.autograd.grad


def passed(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = x.exp()
    return h.sin(), h


def passed_twice(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    h = x.exp()
    k = h.sin()
    return k * h, k, h


def leaf() -> torch.Tensor:
    return torch.tensor([0.5, 1.0], requires_grad=True)


def in_a_hook_of_the_input(f: Any) -> list[Any]:
    x = leaf()
    outputs = f(x)
    found: list[Any] = []
    for h in outputs[1:]:
        h.register_hook(lambda g: None)

    def hook(g: torch.Tensor) -> None:
        if g.requires_grad:
            wanted = (x, *outputs[1:])
            found.extend(grad(g.sum(), wanted, retain_graph=True, allow_unused=True))

    x.register_hook(hook)
    found += grad(outputs[0].square().sum(), x, create_graph=True)
    return found


def behind_hooks_that_answer(f: Any) -> list[Any]:
    x = leaf()
    outputs = f(x)
    found: list[Any] = []
    outputs[-1].register_hook(lambda g: g * 2)

    def hook(g: torch.Tensor) -> None:
        if g.requires_grad:
            found.extend(grad(g.sum(), x, retain_graph=True))

    x.register_hook(hook)
    found += grad(outputs[0].square().sum(), x, create_graph=True)
    return found


def behind_a_hook_that_raises(f: Any) -> list[Any]:
    x = leaf()
    outputs = f(x)
    outputs[-1].register_hook(lambda g: None)
    found: list[Any] = []

    def hook(g: torch.Tensor) -> None:
        if not found:
            found.append(g)
            raise ValueError("enough")

    x.register_hook(hook)
    with pytest.raises(ValueError, match="enough"):
        grad(outputs[0].square().sum(), x, create_graph=True)
    return list(grad(found[0].sum(), (x, outputs[-1]), allow_unused=True))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", [passed, passed_twice])
@pytest.mark.parametrize(
    "use",
    [in_a_hook_of_the_input, behind_hooks_that_answer, behind_a_hook_that_raises],
)
def test_hooks_of_inputs(use: Callable[[Any], list[Any]], f: Any, backend: str) -> None:
    expected = use(f)
    compiled = framejit.compile(f, backend=backend)
    for _ in range(2):
        for a, b in zip(expected, use(compiled), strict=True):
            torch.testing.assert_close(b, a)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hook_of_an_output_is_refused_once(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between two outputs the history of a gradient is not whole yet."""
    monkeypatch.setenv("FRAMEJIT_STRICT", "0")

    def use(f: Any) -> list[Any]:
        x = leaf()
        y, h = f(x)
        found: list[Any] = []

        def hook(g: torch.Tensor) -> None:
            if g.requires_grad and not found:
                found.append(None)
                found[:] = grad(g.sum(), (x, h), retain_graph=True)

        h.register_hook(hook)
        found += grad(y.square().sum(), x, create_graph=True)
        return found

    compiled = framejit.compile(passed, backend=backend)
    with pytest.raises(RuntimeError, match="a hook differentiated a gradient"):
        use(compiled)
    for a, b in zip(use(passed), use(compiled), strict=True):
        torch.testing.assert_close(b, a)


def sum_and_square(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x + w, w * w


def row_written(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1.0
    y[0] = w[0]
    return y, w * 1.0


def row_added(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1.0
    y[0].add_(w[0])
    return y, w * 1.0


def transposed(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x.view(1, 3) + 1.0
    y.t().add_(w.view(3, 1))
    return y, w * 1.0


def cleared(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
    y = x + 1.0
    y[0].zero_()
    return y, w * 1.0


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("create", [False, True])
@pytest.mark.parametrize("first", [0, 1, None])
@pytest.mark.parametrize(
    "f", [sum_and_square, row_written, row_added, transposed, cleared]
)
def test_again_after_it_was_freed(
    f: Any, first: int | None, create: bool, backend: str
) -> None:
    def use(f: Any) -> list[Any]:
        x, w = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        outputs = f(x, w)
        some = outputs if first is None else outputs[first : first + 1]
        sum(o.sum() for o in some).backward()
        found = [x.grad, w.grad]
        for output in outputs:
            try:
                found += grad(
                    output.sum(), (x, w), create_graph=create, allow_unused=True
                )
            except RuntimeError as error:
                found.append(str(error)[:40])
        return found

    expected = use(f)
    compiled = framejit.compile(f, backend=backend)
    for _ in range(2):
        for a, b in zip(expected, use(compiled), strict=True):
            assert type(a) is type(b), (expected, b)
            if isinstance(a, torch.Tensor):
                assert torch.equal(a, b)
            else:
                assert a == b


@pytest.mark.parametrize("backend", BACKENDS)
def test_behind_a_hook_of_an_output_that_raises(backend: str) -> None:
    """The backward is over: its gradients may be differentiated by anything."""

    def use(f: Any) -> list[Any]:
        x = leaf()
        y, h = f(x)
        found: list[Any] = []

        def hook(g: torch.Tensor) -> None:
            if not found:
                found.append(g)
                raise ValueError("enough")

        h.register_hook(hook)
        with pytest.raises(ValueError, match="enough"):
            grad(y.square().sum(), x, create_graph=True)
        return list(grad(found[0].sum(), (x, h)))

    expected = use(passed)
    compiled = framejit.compile(passed, backend=backend)
    for _ in range(2):
        for a, b in zip(expected, use(compiled), strict=True):
            torch.testing.assert_close(b, a)


class MakesALeaf(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:
        return g * torch.ones_like(g, requires_grad=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_function_that_makes_a_leaf(backend: str) -> None:
    def use(f: Any) -> bool:
        x = torch.ones(2, requires_grad=True)
        return bool(grad(f(x).sum(), x, create_graph=True)[0].requires_grad)

    assert use(MakesALeaf.apply)
    assert use(framejit.compile(lambda x: MakesALeaf.apply(x), backend=backend))
