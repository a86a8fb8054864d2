"""Ranges, memory that is not read, masked softmax, traces, scatters with an
operation, decimals, as loops: eager's values, and none of them a call of ATen."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from test_rows_in_loops import FLOATS, INF, NAN, check, images, nodes_of

import framejit

SIZES = (1, 7, 16, 17, 1000)
EXACT = {"rtol": 0, "atol": 0}


# ---- ranges


@pytest.mark.parametrize("dtype", (*FLOATS, torch.float16))
@pytest.mark.parametrize("size", SIZES)
def test_ranges_of_floats(isa: str, size: int, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.arange(size, dtype=dtype) * x

    check(program, [torch.tensor(1.0, dtype=dtype)], "arange")


RANGES = [(0, 1000, 1), (0, 64, 2), (3, -40, -1), (-1.5, 20, 0.25), (7, 900.5, 3)]


@pytest.mark.parametrize("dtype", (*FLOATS, torch.float16))
@pytest.mark.parametrize("start,end,step", RANGES)
def test_ranges_with_steps(isa: str, start, end, step, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.arange(start, end, step, dtype=dtype) + x

    compiled = check(program, [torch.zeros((), dtype=dtype)], "arange")
    x = torch.zeros((), dtype=dtype)
    if dtype != torch.bfloat16 and dtype != torch.float16:
        torch.testing.assert_close(compiled(x), program(x), **EXACT)


def test_ranges_with_steps_that_are_rounded(isa: str) -> None:
    """Eager's vectors begin at rounded numbers; an element is as near to the exact
    one as eager's, at least."""

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.arange(0.1, 300.0, 0.1) + x

    x = torch.zeros(())
    compiled = check(program, [x], "arange")
    exact = torch.arange(3000, dtype=torch.float64)[: len(program(x))] * 0.1 + 0.1
    mine, eager = compiled(x).double() - exact, program(x).double() - exact
    assert mine.abs().max() <= eager.abs().max()


def test_ranges_of_numbers_that_change(isa: str) -> None:
    def program(x: torch.Tensor, start: float, step: float) -> torch.Tensor:
        return x + torch.arange(start, start + 8 * step, step, dtype=x.dtype)

    compiled = framejit.compile(program)
    for n in range(5):
        args = torch.ones(8), 0.5 * n, 0.25
        torch.testing.assert_close(compiled(*args), program(*args))


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("steps", (2, 3, 7, 16, 17, 1000))
def test_steps_between_ends(isa: str, steps: int, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.linspace(-1.3, 2.7, steps, dtype=dtype) + x

    x = torch.zeros((), dtype=dtype)
    compiled = check(program, [x], "linspace")
    eps = torch.finfo(dtype).eps
    torch.testing.assert_close(compiled(x), program(x), rtol=eps, atol=eps)
    assert compiled(x)[-1] == torch.tensor(2.7, dtype=dtype)


@pytest.mark.parametrize("steps", (0, 1))
def test_no_step_between_ends(isa: str, steps: int) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.linspace(-1.3, 2.7, steps) + x

    check(program, [torch.zeros(())])


# ---- memory that is not read


def test_dropout_draws_what_eager_draws(isa: str) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(F.gelu(x), 0.3) + x

    compiled = framejit.compile(program)
    for size in ((1,), (7,), (16, 17), (4, 3, 5, 6), (1000,)):
        x = torch.randn(size)
        for _ in range(2):
            torch.manual_seed(5)
            expected = [program(x), program(x)]
            torch.manual_seed(5)
            actual = [compiled(x), compiled(x)]
            torch.testing.assert_close(actual, expected)
    loops, calls = nodes_of(compiled)
    assert "aten.empty_like" in loops
    assert "aten.empty_like" not in calls
    assert "aten.bernoulli.p" in calls


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int64, torch.bool))
def test_memory_that_is_filled(isa: str, dtype: torch.dtype) -> None:
    def program(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = torch.empty_like(x).fill_(1)
        b = x.new_empty(17, 3).zero_()
        c = torch.empty(5, dtype=dtype)
        c.copy_(x[:5])
        d = x.new_empty_strided((3, 5), (5, 1)).copy_(x[:5])
        e = torch.empty_strided((5,), (1,), dtype=dtype).copy_(x[:5])
        return a, b, c, d, e

    x = torch.ones(16, dtype=dtype)
    names = "empty_like", "new_empty", "empty.memory_format", "new_empty_strided"
    check(program, [x], *names, "empty_strided")


def test_memory_that_is_read_is_eagers(isa: str) -> None:
    """Under deterministic algorithms eager fills it."""

    def program(x: torch.Tensor) -> torch.Tensor:
        y = torch.empty_like(x)
        y[1:] = 2
        return y

    torch.use_deterministic_algorithms(True)
    try:
        compiled = check(program, [torch.rand(9)])
    finally:
        torch.use_deterministic_algorithms(False)
    assert "aten.empty_like" in nodes_of(compiled)[1]


# ---- masked softmax

SAFE_SOFTMAX = torch.ops.aten._safe_softmax
ATTENTION = torch.ops.aten._scaled_dot_product_attention_math


@pytest.mark.parametrize("dtype", (*FLOATS, torch.float16))
@pytest.mark.parametrize("dim", (0, 1, -1))
def test_softmax_of_what_is_masked(isa: str, dim: int, dtype: torch.dtype) -> None:
    x = images(dtype, 5, 17, 16, train=False) * 3
    x[1] = -INF
    x[:, 2] = -INF
    x[2, 3] = -INF
    x[3, 4, 5], x[3, 5, 6], x[4, 7, 3:] = NAN, INF, -INF

    def program(x: torch.Tensor) -> torch.Tensor:
        return SAFE_SOFTMAX(x, dim)

    check(program, [x.requires_grad_(dtype.itemsize > 2)], "_safe_softmax")


def test_attention_of_masked_rows(isa: str) -> None:
    def program(q, k, v, mask):  # type: ignore[no-untyped-def]
        return ATTENTION(q, k, v, mask)[0]

    q, k, v = (torch.randn(2, 3, 7, 8, dtype=torch.float64) for _ in range(3))
    mask = torch.rand(2, 1, 7, 7) > 0.4
    mask[:, :, 2] = False
    check(program, [q, k, v, mask], "_safe_softmax")


# ---- the others


@pytest.mark.parametrize("shift", (0, 1, -3, 50))
@pytest.mark.parametrize("dtype", (*FLOATS, torch.int64, torch.bool))
def test_flat_rolls(isa: str, dtype: torch.dtype, shift: int) -> None:
    for size in (1, 2, 17, 1000):
        x = torch.arange(size).to(dtype)
        # (Of a symbolic size it is a call.)
        check(lambda x: torch.roll(x, shift), [x], "roll", dynamic=False)
        check(lambda x: torch.roll(x, shift) * 2, [x[::2]], "roll", dynamic=False)


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int32))
@pytest.mark.parametrize("size", ((1, 1), (7, 7), (16, 17), (40, 9)))
def test_traces(isa: str, size: tuple[int, int], dtype: torch.dtype) -> None:
    x = (images(torch.float64, *size, train=False) * 4).to(dtype)
    try:
        torch.trace(x)
    except NotImplementedError:
        pytest.skip("eager has none of this type")
    check(torch.trace, [x], "trace")
    check(torch.trace, [x.t()], "trace", dynamic=True)


@pytest.mark.parametrize("dim", (None, 0, 1))
def test_products_of_booleans(isa: str, dim: int | None) -> None:
    x = torch.rand(17, 7) > 0.1
    x[3] = True

    def program(x: torch.Tensor) -> torch.Tensor:
        if dim is None:
            return torch.prod(x, dtype=torch.bool)
        return torch.prod(x, dim, dtype=torch.bool)

    check(program, [x], "prod")
    check(program, [x.float()], "prod")
    check(program, [torch.ones(17, 7, dtype=torch.bool)], "prod")


@pytest.mark.parametrize("reduce", ("add", "multiply"))
@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.int64))
def test_scatters_with_an_operation(isa: str, dtype: torch.dtype, reduce: str) -> None:
    x = (images(torch.float64, 6, 5, train=False) * 5).to(dtype)
    source = (images(torch.float64, 7, 5, train=False) * 3).to(dtype)
    places = torch.randint(0, 6, (7, 5))

    def program(x, places, source):  # type: ignore[no-untyped-def]
        of_number = x.scatter(0, places, 3, reduce=reduce)
        return x.scatter(0, places, source, reduce=reduce), of_number

    check(program, [x, places, source], "scatter.reduce", "scatter.value_reduce")
    compiled = framejit.compile(program)
    compiled(x, places, source)
    places[3, 2] = 6
    for run in (program, compiled):
        with pytest.raises(RuntimeError, match="index 6 is out of bounds"):
            run(x, places, source)


@pytest.mark.parametrize("dtype", (*FLOATS, torch.float16))
@pytest.mark.parametrize("decimals", (-3, -1, 0, 1, 3, 20, 60))
def test_decimals(isa: str, decimals: int, dtype: torch.dtype) -> None:
    special = [NAN, INF, -INF, -0.0, 0.05, 0.15, 2.5, -1234.5678, 1e30]
    x = torch.cat([torch.tensor(special), torch.randn(1000) * 100]).to(dtype)

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.round(x, decimals=decimals)

    compiled = check(program, [x], "round.decimals")
    actual, expected = compiled(x), program(x)
    torch.testing.assert_close(actual, expected, equal_nan=True, **EXACT)
    numbers = ~expected.isnan()
    assert torch.equal(actual.signbit()[numbers], expected.signbit()[numbers])
