"""Matrix products of more than two dims, over sizes: one entry, and eager's results,
strides and gradients. (Before 2.13, torch's own kernel takes the sizes for numbers.)"""

from __future__ import annotations

import itertools

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same
from sweeps.sizes import entries_of

SIZES = (5, 8, 6, 7)
# The shapes of both at size n.
SHAPES = {
    "stack @ matrix": lambda n: ((n, 4, 6), (6, 3)),
    "stack @ vector": lambda n: ((n, 4, 6), (6,)),
    "matrix @ stack": lambda n: ((3, 6), (n, 6, 4)),
    "vector @ stack": lambda n: ((6,), (n, 6, 4)),
    "stack @ stack": lambda n: ((n, 4, 6), (n, 6, 3)),
    "stack of one @ stack": lambda n: ((1, 4, 6), (n, 6, 3)),
    "stack @ stack of one": lambda n: ((n, 4, 6), (1, 6, 3)),
    "heads": lambda n: ((2, 3, n, 4), (2, 3, 4, n)),
    "broadcast stacks": lambda n: ((n, 1, 4, 6), (3, 6, 2)),
    "four dims @ vector": lambda n: ((2, n, 4, 6), (6,)),
    "inner size": lambda n: ((2, 4, n), (n, 3)),
}
VIEWS = {
    "plain": lambda a: a,
    "transposed": lambda a: a.transpose(-1, -2).contiguous().transpose(-1, -2),
    "every other": lambda a: torch.stack([a, a], -1)[..., 0],
    "outer dims swapped": lambda a: a.transpose(0, -2).contiguous().transpose(0, -2),
}


def operands(name, view, n, grads):
    generator = torch.Generator().manual_seed(n)
    for shape, grad in zip(SHAPES[name](n), grads):
        made = torch.randn(shape, generator=generator)
        if made.dim() > 1:
            made = VIEWS[view](made)
        yield made.detach().requires_grad_(grad)


def gradients(result, arguments):
    wanted = [each for each in arguments if each.requires_grad]
    return torch.autograd.grad(result.sin().sum(), wanted) if wanted else ()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("name", SHAPES)
def test_products_over_sizes(name, view, backend):
    for turn, grads in enumerate(itertools.product((False, True), repeat=2), 1):
        compiled = framejit.compile(lambda a, b: a @ b, backend=backend, dynamic=True)
        for n in SIZES:
            a, b = operands(name, view, n, grads)
            result, expected = compiled(a, b), a @ b
            assert_same(result, expected, f"{name}, {n}, {grads}")
            assert_same(gradients(result, (a, b)), gradients(expected, (a, b)))
        assert entries_of(compiled) <= turn, grads


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SHAPES)
def test_autocast_comes_first(name, backend):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def product(a, b):
        return a @ b

    compiled = framejit.compile(product, backend=backend, dynamic=True)
    for n in SIZES:
        a, b = operands(name, "plain", n, (True, False))
        assert_same(compiled(a, b), product(a, b), exact={"rtol": 0.02, "atol": 0.1})


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_does_not_fit_raises_as_in_eager(backend):
    compiled = framejit.compile(torch.matmul, backend=backend, dynamic=True)
    for shapes in (((4, 5, 6), (5, 3)), ((4, 5, 6), (3, 6, 2)), ((4, 5, 6), (5,))):
        a, b = map(torch.ones, shapes)
        with pytest.raises(RuntimeError) as eager:
            torch.matmul(a, b)
        with pytest.raises(RuntimeError) as ours:
            compiled(a, b)
        assert str(ours.value) == str(eager.value)
