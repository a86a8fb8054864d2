"""options={"precise_math": True}: functions are libm's, in kernels and only there."""

from __future__ import annotations

import pytest
import torch

import framejit
from framejit import _C

# The function, and what it is a function of: rounded as eager rounds it.
FUNCTIONS = {
    "acosh": (torch.acosh, lambda x: x.abs() + 1),
    "asin": (torch.asin, lambda x: x / 9),
    "atan": (torch.atan, torch.neg),
    "cosh": (torch.cosh, torch.neg),
    "erf": (torch.erf, torch.neg),
    "erfc": (torch.erfc, torch.neg),
    "exp": (torch.exp, torch.neg),
    "exp2": (torch.exp2, torch.neg),
    "expm1": (torch.expm1, torch.neg),
    "log": (torch.log, torch.abs),
    "log1p": (torch.log1p, torch.abs),
    "log2": (torch.log2, torch.abs),
    "sigmoid": (torch.sigmoid, torch.neg),
    "sin": (torch.sin, lambda x: x * 1000),
    "tan": (torch.tan, torch.neg),
    "tanh": (torch.tanh, torch.neg),
}


def composed(name):
    function, argument = FUNCTIONS[name]
    return lambda x: function(argument(x))


def ulps(found: torch.Tensor, exact: torch.Tensor) -> float:
    """The largest error in units of the last place of float32."""
    unit = torch.finfo(torch.float32).eps * 2.0 ** exact.abs().log2().floor()
    unit = unit.clamp(min=2.0**-149)
    return ((found.double() - exact).abs() / unit).max().item()


def compiled(function, **options):
    kernel = framejit.compile(lambda x: function(x), fullgraph=True, options=options)

    def call(x):
        result = kernel(x)
        (entry,) = framejit.inspect(kernel)
        assert entry.kernels and not entry.fallback_reason
        return result

    return call


@pytest.mark.parametrize("name", FUNCTIONS)
def test_errors_of_float32(name, isa):
    function, argument = FUNCTIONS[name]
    x = torch.cat([torch.linspace(-8, 8, 4001), torch.randn(999) * 0.01])
    exact = function(argument(x).double())
    # A composition rounds more than once.
    most = {"sigmoid": 2.0}.get(name, 0.5001)
    assert ulps(compiled(composed(name), precise_math=True)(x), exact) <= most


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64(name, isa):
    function = composed(name)
    x = torch.linspace(-8, 8, 333, dtype=torch.float64)
    torch.testing.assert_close(
        compiled(function, precise_math=True)(x), function(x), rtol=1e-15, atol=1e-300
    )


def test_calls_with_and_without_have_entries_of_their_own():
    def f(x):
        return torch.erf(x)

    x = torch.linspace(-3, 3, 10_001)
    exact = torch.erf(x.double())
    fast = framejit.compile(f)
    precise = framejit.compile(f, options={"precise_math": True})
    for _ in range(2):
        fast_error, error = ulps(fast(x), exact), ulps(precise(x), exact)
        assert error <= 0.5001 < fast_error


def test_gradients():
    x = torch.randn(100, requires_grad=True)
    y = compiled(torch.nn.functional.gelu, precise_math=True)(x)
    (found,) = torch.autograd.grad(y.sum(), x)
    (expected,) = torch.autograd.grad(torch.nn.functional.gelu(x).sum(), x)
    torch.testing.assert_close(found, expected)


def test_of_the_whole_process():
    _C.set_option("precise_math", "1")
    try:
        x = torch.linspace(-3, 3, 1001)
        found = compiled(torch.tanh)(x)
    finally:
        _C.set_option("precise_math", "0")
    assert ulps(found, torch.tanh(x.double())) <= 0.5001
