"""Pointwise operators of `native` kernels on infinities, NaN, zeros of both signs,
denormal and the largest numbers: what ATen gives, up to rounding."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

import framejit

inf, nan = math.inf, math.nan
TINY, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
SPECIAL = [inf, -inf, nan, 0.0, -0.0, LARGEST, -LARGEST, TINY, -TINY]
SPECIAL += [1e-45, -1e-45, 1e-40, 1.0, -1.0, 0.5, 2.0, -3.0, 1e20, -1e20, 1e-20]
MORE = [88.7, 89.0, -88.0, -103.9, -104.5, 9.0, -9.0, 13.0, -13.0, 3e9, 1e-8, -0.625]

UNARY = {
    name: getattr(torch, name)
    for name in (
        "neg abs reciprocal sqrt rsqrt round exp log sin cos tanh sigmoid erf relu "
        "square isnan isinf isfinite logical_not sign floor"
    ).split()
}
UNARY |= {
    "silu": F.silu,
    "gelu by tanh": lambda x: F.gelu(x, approximate="tanh"),
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.1),
    "leaky_relu, falling": lambda x: F.leaky_relu(x, -0.1),
    "threshold": lambda x: F.threshold(x, 0.5, 7.0),
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp, empty": lambda x: x.clamp(1, -1),
    "clamp, all": lambda x: x.clamp(-inf, inf),
    "clamp at zero": lambda x: (x.clamp(min=0.0), x.clamp(min=-0.0), x.clamp(max=0)),
    "powers": lambda x: (x**2, x**3, x**-1, x**-2, x**0, x**1),
    "numbers": lambda x: (x + 1, 1 - x, x * 0, x * inf, x / 3, x / 0.0, x / inf),
    "tiny numbers": lambda x: (x * 1e-40, x / 1e-40, x - 1e-45),
    "alpha": lambda x: (torch.add(x, 2, alpha=3), torch.rsub(x, 2, alpha=-3)),
    "compared": lambda x: (x == 0, x != 1, x < 0.0, x <= -0.0, x >= inf, x == nan),
    "masked": lambda x: (x.masked_fill(x > 0, 3.0), torch.where(x > 0, x, -x)),
}
BINARY = {
    name: getattr(torch, name)
    for name in "add sub mul div maximum minimum eq ne lt le gt ge rsub".split()
}
BINARY |= {
    "alpha": lambda x, y: (torch.add(x, y, alpha=2), torch.sub(x, y, alpha=-3)),
    "alpha, nothing": lambda x, y: torch.add(x, y, alpha=0),
    "alpha, tiny": lambda x, y: torch.add(x, y, alpha=1e-30),
    "where": lambda x, y: torch.where(x > y, x, y),
}
TERNARY = {
    "addcmul": lambda x, y, z: torch.addcmul(x, y, z, value=0.5),
    "addcdiv": lambda x, y, z: torch.addcdiv(x, y, z, value=-0.5),
}
# Those whose gradient has a kernel of its own.
DERIVED = (
    "exp log sqrt rsqrt sin cos tanh sigmoid erf relu silu abs reciprocal square "
    "hardtanh leaky_relu threshold clamp powers"
).split() + ["gelu by tanh"]


# ATen's vector and scalar code differ in which of two zeros they take.
SIGN_OF_ZERO_OPEN = ("maximum", "minimum")


def assert_alike(got, want, inputs, zero_has_sign=True):
    """Equal, but for rounding: which are NaN, infinite, zero, and their signs."""
    if isinstance(want, tuple):
        for a, b in zip(got, want, strict=True):
            assert_alike(a, b, inputs)
        return
    if want.dtype == torch.bool:
        wrong = got != want
    else:
        wrong = ~torch.isclose(got, want, rtol=2e-5, atol=1e-44, equal_nan=True)
        wrong |= (got == 0) != (want == 0)
        if zero_has_sign:
            wrong |= (want == 0) & (got.signbit() != want.signbit())
    rows = [
        ([x[i].item() for x in inputs], got[i].item(), want[i].item())
        for i in wrong.nonzero().flatten().tolist()
    ]
    assert not rows, rows


def grids(count):
    numbers = {1: SPECIAL + MORE, 2: SPECIAL, 3: SPECIAL[:12]}[count]
    rows = list(itertools.product(numbers, repeat=count))
    return [torch.tensor(column) for column in zip(*rows)]


def parts(columns, size):
    for start in range(0, len(columns[0]), size):
        yield [
            F.pad(c[start : start + size], (0, max(0, start + size - len(c))))
            for c in columns
        ]


@pytest.mark.parametrize("size", [1, 64, 67])
@pytest.mark.parametrize(
    "arity, name",
    [(1, n) for n in UNARY] + [(2, n) for n in BINARY] + [(3, n) for n in TERNARY],
)
def test_special_numbers(arity, name, size, kernels):
    function = [UNARY, BINARY, TERNARY][arity - 1][name]
    compiled = framejit.compile(function, backend="native")
    columns = grids(arity)
    if size == 1 and arity > 1:
        columns = [c[:: 4 * arity + 1] for c in columns]
    for inputs in parts(columns, size):
        got, want = compiled(*inputs), function(*inputs)
        assert_alike(got, want, inputs, name not in SIGN_OF_ZERO_OPEN)


@pytest.mark.parametrize("incoming", [1.0, 0.0, -2.5, inf, nan, 1e-40])
@pytest.mark.parametrize("name", DERIVED)
def test_gradients_at_special_numbers(name, incoming, kernels):
    function = UNARY[name]
    compiled = framejit.compile(function, backend="native")
    for inputs in parts(grids(1), 67):
        found = []
        for run in (compiled, function):
            x = inputs[0].clone().requires_grad_()
            ys = run(x)
            ys = ys if isinstance(ys, tuple) else (ys,)
            found.append(
                torch.autograd.grad(ys, x, [torch.full_like(y, incoming) for y in ys])
            )
        assert_alike(*found, inputs)


# Functions of a number each; their kernels for vectors and for what is left over
# differ at NaN and at zeros, in the gradient above all: either is eager's.
WITH_NUMBER = {
    "hardtanh from": lambda x, p: F.hardtanh(x, p, 2.0),
    "hardtanh to": lambda x, p: F.hardtanh(x, -2.0, p),
    "hardshrink": F.hardshrink,
    "softshrink": F.softshrink,
    "elu": F.elu,
    "celu": F.celu,
    "leaky_relu": F.leaky_relu,
    "threshold": lambda x, p: F.threshold(x, p, 7.0),
    "softplus, beta": F.softplus,
    "softplus, threshold": lambda x, p: F.softplus(x, 1.0, p),
    "logit": torch.logit,
    "clamp from": lambda x, p: x.clamp(min=p),
    "clamp to": lambda x, p: x.clamp(-1.0, p),
    "xlogy": torch.xlogy,
    "xlogy of a number": lambda x, p: torch.xlogy(p, x),
    "copysign": torch.copysign,
    "power": lambda x, p: x**p,
    "power of a number": lambda x, p: p**x,
    "lerp": lambda x, p: torch.lerp(x, x * 2, p),
    "nan_to_num": lambda x, p: torch.nan_to_num(x, p, p, p),
    "prelu": lambda x, p: F.prelu(x, torch.tensor([p])),
    "hardswish": lambda x, p: F.hardswish(x * p),
    "hardsigmoid": lambda x, p: F.hardsigmoid(x * p),
    "mish": lambda x, p: F.mish(x * p),
    "selu": lambda x, p: F.selu(x * p),
    "logsigmoid": lambda x, p: F.logsigmoid(x * p),
    "smooth_l1": lambda x, p: F.smooth_l1_loss(
        x, torch.ones(()), reduction="none", beta=abs(p)
    ),
}


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", WITH_NUMBER)
def test_a_number_that_is_special(name, kernels):
    """Values and gradients: each is what eager gives alone or in a vector."""
    x = torch.tensor([v for v in SPECIAL + MORE if abs(v) < 1e30 or not v - v == 0])

    def results(function, p, x):
        x = x.clone().requires_grad_()
        try:
            y = function(x, p)
        except (RuntimeError, ValueError) as error:
            return str(error)
        (dx,) = torch.autograd.grad(y, x, torch.full_like(y, 2.0))
        return torch.stack([y.detach(), dx])

    def near(a, b):
        close = torch.isclose(a, b, rtol=2e-5, atol=1e-37, equal_nan=True)
        return close & ((a != 0) | (a.signbit() == b.signbit()))

    function = WITH_NUMBER[name]
    compiled = framejit.compile(function, backend="native", dynamic=True)
    for p in (0.5, 0.0, -0.0, 1.0, -1.0, 2.0, inf, -inf, nan):
        many = F.pad(x, (0, -len(x) % 64))  # nothing is left over
        got = results(compiled, p, many)
        want = results(function, p, many)
        if isinstance(want, str):
            assert got == want
            continue
        alone = [results(function, p, many[i : i + 1]) for i in range(len(many))]
        wrong = ~(near(got, want) | near(got, torch.cat(alone, 1)))
        rows = [
            (p, many[i].item(), got[:, i].tolist(), want[:, i].tolist())
            for i in wrong.any(0).nonzero().flatten().tolist()
        ]
        assert not rows, rows


@pytest.mark.parametrize("order", [2, 1, 3, 0, -1, -2, 0.5, 2.5, inf, -inf, nan])
@pytest.mark.parametrize(
    "shape, dim", [((1,), None), ((), None), ((4, 1), 1), ((1, 3, 1), (0, 2))]
)
def test_norms_of_one_element(shape, dim, order, kernels):
    """Its size, also where a power of it is no number of the type."""

    def norm(x):
        return torch.linalg.vector_norm(x, order, dim)

    compiled = framejit.compile(norm, backend="native")
    for value in SPECIAL:
        found = []
        for run in (compiled, norm):
            x = torch.full(shape, value, requires_grad=True)
            y = run(x)
            (dx,) = torch.autograd.grad(y.sum(), x, materialize_grads=True)
            found += [y.detach(), dx]
        torch.testing.assert_close(
            found[:2], found[2:], rtol=1e-5, atol=0, equal_nan=True
        )


def test_gelu_is_not_one_function_in_eager():
    """Why `gelu` is not above: eager itself gives two answers at infinity, oneDNN's
    and ATen's, by the layout and the number of elements. Native gives ATen's."""
    x = torch.full((67, 2), inf)
    assert F.gelu(x[:, 0]).isinf().all()  # ATen's
    assert F.gelu(x[:1, 0]).isinf().all()
    compiled = framejit.compile(lambda x: F.gelu(x), backend="native")
    assert compiled(x).isinf().all()
    finite = torch.tensor([v for v in SPECIAL + MORE if abs(v) < 1e30 or v != v])
    torch.testing.assert_close(compiled(finite), F.gelu(finite), equal_nan=True)


@pytest.mark.parametrize("flush", [False, True])
@pytest.mark.parametrize("count", [1, 7, 16, 33, 4096])
def test_bfloat16_of_denormals(count: int, flush: bool) -> None:
    """Rounded as eager does, by the bits, whatever the CPU makes of denormals."""
    bits = torch.randint(-(2**31), 2**31 - 1, (count,), dtype=torch.int64)
    bits[::3] &= 0x807FFFFF  # exponent 0
    x = bits.to(torch.int32).view(torch.float32)

    def f(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = x.to(torch.bfloat16)
        return y, (-y).view(torch.int16), y.float(), x[::2].bfloat16()

    compiled = framejit.compile(f)
    compiled(x)
    torch.set_flush_denormal(flush)
    try:
        expected, found = f(x), compiled(x)
    finally:
        torch.set_flush_denormal(False)
    for a, b in zip(expected, found, strict=True):
        nan = a.isnan()
        assert torch.equal(nan, b.isnan())
        kind = {2: torch.int16, 4: torch.int32}[a.element_size()]
        fine = a.view(kind) == b.view(kind)
        assert bool((fine | nan).all())
