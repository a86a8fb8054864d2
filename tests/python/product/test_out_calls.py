"""Operators that write where the plan of memory wants their result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import framejit

pytestmark = [
    pytest.mark.usefixtures("isa"),
    pytest.mark.parametrize("isa", ["avx512", "avx2"], indirect=True),
]

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64)
SIZES = (0, 1, 7, 16, 17)


def values(*sizes: int, dtype: torch.dtype) -> Tensor:
    if dtype.is_floating_point:
        return torch.randn(*sizes).to(dtype)
    return torch.randint(-5, 5, sizes, dtype=dtype)


def mm(m, n, k, of):
    return (of(m, k), of(k, n)), torch.mm


def mm_transposed(m, n, k, of):
    return (of(k, m).t(), of(n, k).t()), torch.mm


def bmm(m, n, k, of):
    return (of(3, m, k), of(3, k, n)), torch.bmm


def bmm_strided(m, n, k, of):
    return (of(m, 3, k).transpose(0, 1), of(3, n, 2 * k)[:, :, ::2].mT), torch.bmm


def addmm(m, n, k, of):
    return (of(n), of(m, k), of(n, k).t()), torch.addmm


def addmm_whole(m, n, k, of):
    def call(c, a, b):
        return torch.addmm(c, a, b, beta=2, alpha=-3)

    return (of(m, n), of(m, k), of(k, n)), call


def addmm_without(m, n, k, of):
    def call(c, a, b):
        return torch.addmm(c / 0 if c.is_floating_point() else c, a, b, beta=0)

    return (of(1, n), of(m, k), of(k, n)), call


def baddbmm(m, n, k, of):
    return (of(3, 1, n), of(3, m, k), of(3, k, n)), torch.baddbmm


def addbmm(m, n, k, of):
    def call(c, a, b):
        return torch.addbmm(c, a, b, beta=2, alpha=-3)

    return (of(m, n), of(3, m, k), of(3, k, n)), call


def mv(m, n, k, of):
    return (of(m, k), of(k)), torch.mv


def addmv(m, n, k, of):
    def call(c, a, b):
        return torch.addmv(c, a, b, beta=3, alpha=2)

    return (of(m), of(k, m).t(), of(k)), call


CASES = (
    mm,
    mm_transposed,
    bmm,
    bmm_strided,
    addmm,
    addmm_whole,
    addmm_without,
    baddbmm,
    addbmm,
    mv,
    addmv,
)


def same(got: Tensor, expected: Tensor) -> None:
    assert got.stride() == expected.stride()
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES, ids=lambda dtype: str(dtype)[6:])
@pytest.mark.parametrize("case", CASES)
def test_the_result_is_eagers(case, dtype):
    for m, n, k in ((m, n, k) for m in SIZES for n in SIZES[::2] for k in SIZES[1::2]):
        torch.manual_seed(m * 400 + n * 20 + k)

        def of(*sizes: int) -> Tensor:
            return values(*sizes, dtype=dtype)

        operands, call = case(m, n, k, of)

        def between(*operands: Tensor, call=call) -> tuple[Tensor, Tensor]:
            product = call(*(operand + 1 for operand in operands))
            return product, product * 2 - 1

        compiled = framejit.compile(between, dynamic=False)
        for _ in range(2):
            for got, expected in zip(
                compiled(*operands), between(*operands), strict=True
            ):
                same(got, expected)


def test_symbolic_sizes():
    def f(x: Tensor, w: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.addmm(b, x + 1, w)
        return y, torch.mm(y.relu(), w.t()) + 1

    compiled = framejit.compile(f, dynamic=True)
    for n in (3, 5, 2, 17, 64, 0):
        args = torch.randn(n, 8), torch.randn(8, 6), torch.randn(6)
        for got, expected in zip(compiled(*args), f(*args), strict=True):
            same(got, expected)


def test_gradients():
    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return torch.addmm(b, torch.mm(x, w).tanh(), w).exp()

    compiled = framejit.compile(f)
    for _ in range(3):
        args = [torch.randn(s).requires_grad_() for s in ((5, 4), (4, 4), (4,))]
        again = [arg.detach().clone().requires_grad_() for arg in args]
        compiled(*args).sum().backward()
        f(*again).sum().backward()
        for arg, other in zip(args, again, strict=True):
            torch.testing.assert_close(arg.grad, other.grad)


def test_results_that_are_returned_have_memory_of_their_own():
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, ...]:
        first = torch.mm(x, w)
        second = torch.mm(first + 1, w)
        return first, second, second.t(), torch.mm(x, w.t())

    compiled = framejit.compile(f)
    x, w = torch.randn(6, 6), torch.randn(6, 6)
    with torch.no_grad():
        held = [compiled(x + i, w) for i in range(4)]
        for i, got in enumerate(held):
            for result, expected in zip(got, f(x + i, w), strict=True):
                same(result, expected)
    owners = {
        result.untyped_storage().data_ptr()
        for got in held
        for result in (got[0], got[1], got[3])
    }
    assert len(owners) == 12
    assert held[0][2]._base is held[0][1] or held[0][2].data_ptr() in owners
    for got in held:
        for result in (got[0], got[1], got[3]):
            assert result.untyped_storage().nbytes() == 36 * 4


def names_of(run: Callable[[], object]) -> list[str]:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        run()
    return [event.name for event in profile.events()]


def test_nothing_is_allocated_for_them():
    def f(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        y = torch.addmm(b, x, w).relu()
        return torch.mm(torch.bmm(y[None], w[None])[0], w) + 1

    compiled = framejit.compile(f)
    args = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)
    with torch.no_grad():
        compiled(*args)
        names = names_of(lambda: compiled(*args))
        same(compiled(*args), f(*args))
    assert {"aten::addmm", "aten::bmm", "aten::mm"} <= set(names)
    assert not {"aten::empty", "aten::resize_"} & set(names)


def test_a_mode_sees_the_operators_of_the_graph():
    class Seen(TorchDispatchMode):
        def __init__(self) -> None:
            super().__init__()
            self.names: list[str] = []

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.names.append(str(func))
            return func(*args, **(kwargs or {}))

    def f(x: Tensor, w: Tensor) -> Tensor:
        return torch.mm(x, w) + 1

    compiled = framejit.compile(f)
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    with torch.no_grad():
        compiled(x, w)
        with Seen() as seen:
            got = compiled(x, w)
        same(got, f(x, w))
    assert not [name for name in seen.names if "out" in name]


def test_complex_products_and_their_conjugates():
    def f(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        y = torch.mm(x, w.conj())
        return y, torch.mm(y.mH, x)

    compiled = framejit.compile(f)
    x, w = torch.randn(3, 3, dtype=torch.cfloat), torch.randn(3, 3, dtype=torch.cfloat)
    for got, expected in zip(compiled(x, w), f(x, w), strict=True):
        torch.testing.assert_close(got, expected)
