"""Calls that torch makes of others by sizes as numbers: one graph for all sizes.

The operators are the same (COMPOSITES in framejit/_substitutes.py).
"""

import math

import pytest
import torch

import framejit
from differential import BACKENDS

NAN = torch.tensor([1.0, math.nan, math.inf, 2.0, math.nan])
NEAR = torch.tensor([1.0, math.nan, math.inf, 2.0000002, 3.0])


def rows(*shape):
    return torch.linspace(-1, 1, math.prod(shape)).view(shape).sin()


def places(top, *shape):
    return torch.arange(math.prod(shape)).view(shape) * 7 % top


CALLS = {
    "kron": (torch.kron, lambda n: (rows(n, 3), rows(2, n))),
    "kron of ranks": (lambda a, b: a.kron(b), lambda n: (rows(n, 3, 2), rows(2, n))),
    "take_along_dim": (
        lambda a, at: torch.take_along_dim(a, at, 1),
        lambda n: (rows(n, 3), places(3, n, 2) - 3),
    ),
    "take_along_dim broadcast": (
        lambda a, at: a.take_along_dim(at, dim=-1),
        lambda n: (rows(1, n), places(n, 3, 4)),
    ),
    "take_along_dim of all": (
        torch.take_along_dim,
        lambda n: (rows(n, 3), places(3 * n, 3, 4)),
    ),
    "unsafe_chunk": (lambda a: a.unsafe_chunk(2), lambda n: (rows(n + 20, 3),)),
    "gradient": (torch.gradient, lambda n: (rows(n, 4),)),
    "gradient of order 2": (
        lambda a: torch.gradient(a, spacing=0.3, dim=-1, edge_order=2),
        lambda n: (rows(n, n + 1),),
    ),
    "gradient of ints": (
        lambda a: torch.gradient(a, spacing=2, dim=[1, 0]),
        lambda n: (places(9, n, n + 1),),
    ),
    "multi_dot from the left": (
        lambda *all: torch.linalg.multi_dot(all),
        lambda n: (rows(n, 4), rows(4, n), rows(n, 4)),
    ),
    "multi_dot from the right": (
        lambda *all: torch.linalg.multi_dot(all),
        lambda n: (rows(n + 40, n), rows(n, 40), rows(40, 2)),
    ),
    "isclose": (
        lambda a, b: torch.isclose(a, b, equal_nan=True),
        lambda n: (NAN.repeat(n, 2), NEAR.repeat(n, 2)),
    ),
    "isclose exactly": (
        lambda a, b: a.isclose(b, rtol=0.0, atol=0.0, equal_nan=True),
        lambda n: (NAN.repeat(n), NEAR.repeat(n)),
    ),
}
NORMS = {
    "norm": (lambda a, ord: torch.linalg.norm(a, ord), (0, 1)),
    "norm kept": (
        lambda a, ord: torch.linalg.norm(a, ord, dim=(1, 0), keepdim=True),
        (0, 1),
    ),
    "matrix_norm": (
        lambda a, ord: torch.linalg.matrix_norm(a, ord, dim=(2, 0), keepdim=True),
        (0, 1, 2),
    ),
    "matrix_norm of outer dims": (
        lambda a, ord: torch.linalg.matrix_norm(a, ord, dim=(0, 2)),
        (0, 1, 2),
    ),
}


def tuple_of(result):
    return result if isinstance(result, tuple) else (result,)


def check(fn, make, backend):
    framejit.reset()
    compiled = framejit.compile(fn, dynamic=True, fullgraph=True, backend=backend)
    for n in (5, 6, 7, 8, 11):
        args = make(n)
        leaves = [a.requires_grad_() for a in args if a.is_floating_point()]
        expected, actual = fn(*args), compiled(*args)
        assert type(expected) is type(actual)
        found = [list(tuple_of(expected)), list(tuple_of(actual))]
        if found[0][0].requires_grad:
            for results in found:
                tangents = [torch.cos(r.detach() * 3) for r in found[0]]
                results += torch.autograd.grad(results, leaves, tangents)
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(b, a, equal_nan=True, check_stride=True)
    assert len(list(framejit.inspect(compiled))) == 1


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CALLS)
def test_a_composite_call_is_one_graph_for_all_sizes(name, backend):
    check(*CALLS[name], backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ord", [1, -1, 2, -2, math.inf, -math.inf])
@pytest.mark.parametrize("name", NORMS)
def test_a_matrix_norm_is_one_graph_for_all_sizes(name, ord, backend):
    fn, dims = NORMS[name]
    shape = {2: lambda n: (n, n + 1), 3: lambda n: (n, n + 1, 3)}[len(dims)]
    check(lambda a: fn(a, ord), lambda n: (torch.randn(shape(n)),), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_indices_that_are_refused_are_refused(backend):
    compiled = framejit.compile(
        lambda a, at: a.take_along_dim(at, 0), dynamic=True, backend=backend
    )
    for at in (places(3, 2, 4).int(), places(3, 2, 3), places(3, 2)):
        with pytest.raises(Exception) as expected:
            rows(3, 4).take_along_dim(at, 0)
        with pytest.raises(expected.type) as actual:
            compiled(rows(3, 4), at)
        assert str(actual.value) == str(expected.value)
