"""options={"emulate_precision_casts": False}: halves are not rounded in kernels."""

from __future__ import annotations

import pytest
import torch

import framejit
from framejit import _C

HALVES = [torch.bfloat16, torch.float16]


@pytest.fixture
def machine(isa):
    """Machine code: the interpreter of loops rounds whatever is said."""
    if isa == "loops":
        isa = "auto"
        _C.set_option("isa", isa)
    return isa


def chain(x, y):
    return ((x * y + x) * 1.3 - y).tanh() * x + y.sigmoid()


def steps_back(x, y):
    """What rounds once is the same either way."""
    return x * y


def compiled(function, **options):
    kernel = framejit.compile(lambda *a: function(*a), fullgraph=True, options=options)

    def call(*args):
        result = kernel(*args)
        (entry,) = framejit.inspect(kernel)
        assert entry.kernels and not entry.not_lowered
        return result

    return call


def arguments(dtype, n=4096):
    torch.manual_seed(0)
    return [torch.randn(n).to(dtype) for _ in range(2)]


@pytest.mark.parametrize("dtype", HALVES)
def test_a_chain_is_that_of_float32_rounded_once(dtype, machine):
    args = arguments(dtype)
    exact = chain(*(a.double() for a in args))
    free = compiled(chain, emulate_precision_casts=False)(*args)
    assert free.dtype == dtype
    once = exact.to(dtype)
    # Neighbours where float32 lies beside the middle of two.
    unit = torch.finfo(dtype).eps * once.double().abs().clamp(min=1e-4)
    assert ((free.double() - once.double()).abs() <= unit).all()
    assert (free != once).float().mean() < 0.01
    eager = chain(*args)
    error = (free.double() - exact).abs().mean()
    assert error < 0.7 * (eager.double() - exact).abs().mean()


@pytest.mark.parametrize("dtype", HALVES)
def test_as_eager_unless_asked(dtype, machine):
    args = arguments(dtype)
    eager = chain(*args)
    rounded = compiled(chain)(*args)
    # (Functions may be a unit off, and what follows of them.)
    assert (rounded != eager).float().mean() < 0.01
    free = compiled(chain, emulate_precision_casts=False)(*args)
    assert (free != eager).float().mean() > 0.05


@pytest.mark.parametrize("dtype", HALVES)
def test_one_operation_rounds_as_ever(dtype, machine):
    args = arguments(dtype)
    args[0][:4] = torch.tensor([float("nan"), float("inf"), 0.0, 3e38]).to(dtype)
    free = compiled(steps_back, emulate_precision_casts=False)(*args)
    assert torch.equal(free.nan_to_num(), steps_back(*args).nan_to_num())
    assert torch.equal(free.isnan(), steps_back(*args).isnan())


def test_what_others_see_is_rounded(machine):
    """Of two results the first is what the second was computed from, rounded."""

    def both(x, y):
        a = x * y
        return a, a + 1000

    x, y = arguments(torch.bfloat16)
    a, b = compiled(both, emulate_precision_casts=False)(x, y)
    assert torch.equal(a, x * y)
    assert torch.equal(b, ((x.float() * y.float()) + 1000).bfloat16())


def test_integers_see_rounded_numbers(machine):
    def program(x, y):
        return (x * y).to(torch.int32), (x * y) > 1

    x, y = arguments(torch.bfloat16)
    found = compiled(program, emulate_precision_casts=False)(x * 100, y)
    assert torch.equal(found[0], program(x * 100, y)[0])


def test_gradients(machine):
    def loss(x, y):
        return chain(x, y).float().pow(2).sum()

    leaves = [a.requires_grad_() for a in arguments(torch.bfloat16)]
    exact = torch.autograd.grad(loss(*(a.double() for a in leaves)), leaves)
    free = torch.autograd.grad(
        compiled(loss, emulate_precision_casts=False)(*leaves), leaves
    )
    eager = torch.autograd.grad(loss(*leaves), leaves)
    for e, f, g in zip(eager, free, exact):
        assert f.dtype == e.dtype
        off = (f.double() - g.double()).abs().mean()
        assert off <= (e.double() - g.double()).abs().mean()


def test_the_option_of_the_process():
    args = arguments(torch.bfloat16)
    _C.set_option("emulate_precision_casts", "0")
    try:
        free = compiled(chain)(*args)
        asked = compiled(chain, emulate_precision_casts=True)(*args)
    finally:
        _C.set_option("emulate_precision_casts", "1")
        framejit.reset()  # what was compiled meanwhile
    assert torch.equal(free, compiled(chain, emulate_precision_casts=False)(*args))
    assert torch.equal(asked, compiled(chain)(*args))
    assert not torch.equal(free, asked)
