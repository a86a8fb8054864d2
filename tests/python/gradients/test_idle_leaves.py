"""A leaf that the used outputs do not depend on has no part in a backward: what is
hooked behind its accumulation does not run, unless a gradient comes from elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

BACKENDS = ("eager", "aot_eager", "native")


def apart(a: Any, b: Any) -> Any:
    return a.tanh(), b.sin()


def one_shared(a: Any, b: Any) -> Any:
    return a.tanh(), (a * b).sin()


def product(a: Any, b: Any) -> Any:
    return a @ a, b @ b


def history(a: Any, b: Any) -> Any:
    h = a.exp()
    return h, h * b


def first(y: Any, z: Any, b: Any) -> None:
    y.sum().backward()


def second(y: Any, z: Any, b: Any) -> None:
    z.sum().backward()


def both(y: Any, z: Any, b: Any) -> None:
    (y.sum() + z.sum()).backward()


def first_and_b_elsewhere(y: Any, z: Any, b: Any) -> None:
    (y.sum() + (b * 3).sum()).backward()


def one_by_one(y: Any, z: Any, b: Any) -> None:
    y.sum().backward(retain_graph=True)
    z.sum().backward()


def again(y: Any, z: Any, b: Any) -> None:
    y.sum().backward(retain_graph=True)
    (y.sum() + z.sum()).backward(retain_graph=True)
    y.sum().backward()


def outcome(body: Any, use: Callable[..., None], before: bool) -> Any:
    a = torch.linspace(0.1, 0.9, 4).view(2, 2).requires_grad_()
    b = torch.linspace(0.4, 1.1, 4).view(2, 2).requires_grad_()
    seen: list[Any] = []

    def register() -> None:
        for name, leaf in (("a", a), ("b", b)):
            leaf.register_post_accumulate_grad_hook(
                lambda p, name=name: seen.append((name, p.grad))
            )

    if before:
        register()
    y, z = body(a, b)
    if not before:
        register()
    use(y, z, b)
    names = sorted(name for name, _ in seen)
    assert all(grad is not None for _, grad in seen)
    return names, a.grad, b.grad


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize(
    "use", [first, second, both, first_and_b_elsewhere, one_by_one, again]
)
@pytest.mark.parametrize("body", [apart, one_shared, product, history])
def test_hooks_of_idle_leaves_do_not_run(
    body: Any, use: Any, before: bool, backend: str
) -> None:
    framejit.reset()
    compiled = framejit.compile(body, backend=backend)
    for _ in range(3):
        expected = outcome(body, use, before)
        found = outcome(compiled, use, before)
        assert expected[0] == found[0]
        torch.testing.assert_close(list(found[1:]), list(expected[1:]))
