"""What gradient functions read of the thread's state, they read in the backward.

Every kind of gradient function, depending on the state in every way, where the
backward runs in another state than the forward.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch.amp import custom_bwd, custom_fwd
from torch.autograd.function import once_differentiable

import framejit

BACKENDS = ("eager", "aot_eager", "native")


# ---- what is done with a gradient


def grad_mode(g: Any) -> Any:
    return g * (3.0 if torch.is_grad_enabled() else 5.0)


def autocast(g: Any) -> Any:
    return g * (3.0 if torch.is_autocast_enabled("cpu") else 5.0)


def autocast_dtype(g: Any) -> Any:
    return g * (3.0 if torch.get_autocast_dtype("cpu") == torch.float16 else 5.0)


def default_dtype(g: Any) -> Any:
    return g * (3.0 if torch.get_default_dtype() == torch.float64 else 5.0)


def deterministic(g: Any) -> Any:
    return g * (3.0 if torch.are_deterministic_algorithms_enabled() else 5.0)


def inference(g: Any) -> Any:
    return g * (3.0 if torch.is_inference_mode_enabled() else 5.0)


def autocast_cache(g: Any) -> Any:
    return g * (3.0 if torch.is_autocast_cache_enabled() else 5.0)


def made_in_inference(g: Any) -> Any:
    return g * (3.0 if (g * 2).is_inference() else 5.0)


def recursion_limit(g: Any) -> Any:
    return g * (sys.getrecursionlimit() / 1000)


def factory(g: Any) -> Any:
    return g * torch.zeros(1).dtype.itemsize


def factory_with_dtype(g: Any) -> Any:
    return g * torch.full((1,), 1 / 3, dtype=torch.float32)


def of_integers(g: Any) -> Any:
    return g * (torch.arange(2) / 3).dtype.itemsize


def constant(g: Any) -> Any:
    return g + torch.tensor(1 / 3)


def product(g: Any) -> Any:
    return (g @ torch.full((2, 2), 1 / 3, dtype=torch.float32)).float()


def bare_product(g: Any) -> Any:
    third = torch.full((2, 2), 1 / 3, dtype=torch.float32)
    return (g @ third) * torch.ones(2, dtype=torch.float32)


def converted_product(g: Any) -> Any:
    third = torch.full((2, 2), 1 / 3, dtype=torch.float32)
    h = (g @ third).to(torch.bfloat16)
    return (h * h.dtype.itemsize).to(torch.float32)


def dtype_of_product(g: Any) -> Any:
    third = torch.full((2, 2), 1 / 3, dtype=torch.float32)
    return g * (g @ third).dtype.itemsize


def size_of_product(g: Any) -> Any:
    third = torch.full((2, 2), 1 / 3, dtype=torch.float32)
    return g * (g @ third).element_size()


def requires_grad(g: Any) -> Any:
    return g * (3.0 if (g * 2).requires_grad else 5.0)


def gradient_requires_grad(g: Any) -> Any:
    return g * (3.0 if g.requires_grad else 5.0)


def own_region(g: Any) -> Any:
    third = torch.full((2, 2), 1 / 3, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = g @ third
    return h.float()


def own_region_of_any_dtype(g: Any) -> Any:
    third = torch.full((2, 2), 1 / 3, dtype=torch.float32)
    with torch.autocast("cpu"):
        h = g @ third
    return h.float()


def behind_own_region(g: Any) -> Any:
    third = torch.full((2, 2), 1 / 3, dtype=torch.float32)
    with torch.autocast("cpu", enabled=False):
        h = g * 2
    return (h @ third) * torch.ones(2, dtype=torch.float32)


def no_grad_inside(g: Any) -> Any:
    with torch.no_grad():
        h = g * 2
    return h + g


WAYS = (
    grad_mode,
    autocast,
    autocast_dtype,
    default_dtype,
    deterministic,
    inference,
    autocast_cache,
    made_in_inference,
    recursion_limit,
    factory,
    factory_with_dtype,
    of_integers,
    constant,
    product,
    bare_product,
    converted_product,
    dtype_of_product,
    size_of_product,
    requires_grad,
    gradient_requires_grad,
    own_region,
    own_region_of_any_dtype,
    behind_own_region,
    no_grad_inside,
)

# ---- who does it


def hook(way: Any) -> Any:
    def body(x: Any) -> Any:
        y = x * 2
        y.register_hook(way)
        return y

    return body


def function(way: Any) -> Any:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return way(g)

    return lambda x: Scaled.apply(x)


def once(way: Any) -> Any:
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            return way(g)

    return lambda x: Scaled.apply(x)


def custom(way: Any) -> Any:
    class Scaled(torch.autograd.Function):
        @staticmethod
        @custom_fwd(device_type="cpu")
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        @custom_bwd(device_type="cpu")
        def backward(ctx: Any, g: Any) -> Any:
            return way(g)

    return lambda x: Scaled.apply(x)


# ---- in which states


@contextmanager
def double_default() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@contextmanager
def deterministic_algorithms() -> Iterator[None]:
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


@contextmanager
def deep() -> Iterator[None]:
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(before + 100)
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def bf16() -> Any:
    return torch.autocast("cpu", dtype=torch.bfloat16)


def fp16() -> Any:
    return torch.autocast("cpu", dtype=torch.float16)


def uncached() -> Any:
    return torch.autocast("cpu", cache_enabled=False)


STATES: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
    "none": (nullcontext, nullcontext),
    "double": (nullcontext, double_default),
    "deterministic": (nullcontext, deterministic_algorithms),
    "inference": (nullcontext, torch.inference_mode),
    "bf16": (nullcontext, bf16),
    "fp16": (nullcontext, fp16),
    "uncached": (nullcontext, uncached),
    "forward bf16": (bf16, nullcontext),
    "both bf16": (bf16, bf16),
    "deep": (nullcontext, deep),
    "forward double": (double_default, nullcontext),
}


def outcome(body: Any, states: Any, create_graph: bool) -> Any:
    x = torch.ones(1, 2, dtype=torch.float32, requires_grad=True)
    forward, backward = states
    with forward():
        y = body(x)
    try:
        with backward():
            found = torch.autograd.grad(
                y, x, torch.ones_like(y), create_graph=create_graph
            )[0]
        return found.tolist(), found.dtype, found.requires_grad
    except RuntimeError as error:
        return type(error).__name__


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("who", [hook, function, once, custom])
@pytest.mark.parametrize("way", WAYS)
def test_gradient_functions_see_the_state_of_the_backward(
    way: Any, who: Any, backend: str
) -> None:
    framejit.reset()
    body = who(way)
    compiled = framejit.compile(body, backend=backend)
    for name, states in STATES.items():
        for create_graph in (False, True):
            expected = outcome(body, states, create_graph)
            for _ in range(2):
                assert outcome(compiled, states, create_graph) == expected, name


@pytest.mark.parametrize("who", [hook, function, once])
@pytest.mark.parametrize("way", [factory_with_dtype, bare_product, converted_product])
def test_what_depends_on_no_state_is_captured(way: Any, who: Any) -> None:
    framejit.reset()
    compiled = framejit.compile(who(way), fullgraph=True)
    assert outcome(compiled, STATES["none"], False) == outcome(
        who(way), STATES["none"], False
    )
