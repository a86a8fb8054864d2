"""Arguments that eager's kernels refuse, or warn of: compiled, too, on kernels.

Of what the arguments are when the graph is captured, and of numbers, sizes and
values that come later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

from differential import check
from sweeps.programs import Program, try_program

aten = torch.ops.aten


pytestmark = pytest.mark.usefixtures("isa")


def square() -> torch.Tensor:
    return torch.linspace(-1, 1, 16).view(4, 4)


def halves(t: torch.Tensor) -> torch.Tensor:
    return t * 0.5 + 0.5


def target(*classes: int) -> torch.Tensor:
    return torch.tensor(classes)


W = torch.ones(4)
REFUSED: dict[str, Callable[[torch.Tensor], Any]] = {
    "layer_norm of other sizes": lambda x: F.layer_norm(x, [3]),
    "layer_norm, weight of other sizes": lambda x: aten.native_layer_norm(
        x, [4], W[:3], None, 1e-5
    ),
    "layer_norm, weight of another type": lambda x: F.layer_norm(x, [4], W.double()),
    "group_norm of other sizes": lambda x: aten.native_group_norm(
        x, None, None, 4, 4, 2, 2, 1e-5
    ),
    "batch_norm, weight of another type": lambda x: F.batch_norm(
        x, None, None, W.double(), training=True
    ),
    "huber_loss": lambda x: F.huber_loss(x, x, delta=0.0),
    "huber_loss NaN": lambda x: F.huber_loss(x, x, delta=float("nan")),
    "smooth_l1_loss": lambda x: F.smooth_l1_loss(x, x + 1, beta=-1.0),
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(halves(x), x + 1),
    "binary_cross_entropy of types": lambda x: F.binary_cross_entropy(
        halves(x), halves(x).double()
    ),
    "masked_fill, mask of ints": lambda x: x.masked_fill(x.int(), 1.0),
    "masked_fill, value of dims": lambda x: x.masked_fill(x > 0, W[:1]),
    "masked_fill, value that overflows": lambda x: x.masked_fill(
        x > 0, torch.tensor(1e39, dtype=torch.float64)
    ),
    "index_fill of int32": lambda x: x.index_fill(0, target(1).int(), 1.0),
    "index_fill, value of dims": lambda x: x.index_fill(0, target(1), W[:1]),
    "index_copy of int32": lambda x: x.index_copy(0, target(1).int(), x[:1]),
    "index_add of types": lambda x: x.index_add(0, target(1), x[:1].double()),
    "index_put of types": lambda x: aten.index_put(x, [target(1)], x[0].double()),
    "index of int16": lambda x: aten.index(x, [target(1).short()]),
    "gather of too many": lambda x: x[:, :2].gather(0, target(1, 1, 1)[None]),
    "scatter of types": lambda x: x.scatter(0, target(1)[None], x.double()),
    "embedding of int16": lambda x: F.embedding(target(1).short(), x),
    "gelu": lambda x: F.gelu(x, approximate="x"),
    "nll_loss, weight of another type": lambda x: F.nll_loss(
        x, target(0, 1, 2, 3), W.double()
    ),
    "nll_loss, target of another type": lambda x: aten.nll_loss_forward(
        x, target(0, 1, 2, 3).int(), None, 1, -100
    ),
    "nll_loss out of range": lambda x: F.nll_loss(x, target(0, 1, 2, 4)),
    "cross_entropy out of range": lambda x: F.cross_entropy(x, target(0, 1, -1, 3)),
    "softmax half_to_float": lambda x: aten._softmax(x.half(), 0, True),
    "softshrink": lambda x: F.softshrink(x, -1.0),
    "celu": lambda x: F.celu(x, 0.0),
    "leaky_relu_backward": lambda x: aten.leaky_relu_backward(x, x, -1.0, True),
    "elu_backward": lambda x: aten.elu_backward(x, -1.0, 1, 1, True, x),
    "hardtanh of unsigned": lambda x: F.hardtanh(x.byte()),
    "argmax of bools": lambda x: (x > 0).argmax(),
    "rsub, alpha of bool": lambda x: torch.rsub(x, x, alpha=True),
    "rsub, alpha of a fraction": lambda x: torch.rsub(x.int(), x.int(), alpha=1.5),
    "pinned memory": lambda x: torch.zeros(2, pin_memory=True) + x[0, :2],
    # What is no error, but is warned of.
    "var": lambda x: x.var(0, correction=5),
    "std": lambda x: x[:1].std(0),
    "var_mean": lambda x: torch.var_mean(x[:1], 0),
    "where of bytes": lambda x: torch.where((x > 0).byte(), x, -x),
    # What eager takes.
    "dropout's mask of ints": lambda x: aten.native_dropout_backward(
        x, torch.full((4, 4), 2), 2.0
    ),
    "masked_fill with infinity": lambda x: x.bfloat16().masked_fill(
        x > 0, torch.tensor(float("-inf"))
    ),
}
SOURCE = """\
def f(x, y):
    y.add_(1)
    return call(x * 1), y + x
"""


@pytest.mark.parametrize("name", REFUSED)
def test_when_captured(name):
    program = Program(
        name, SOURCE, lambda: (square(), torch.ones(4)), {"call": REFUSED[name]}
    )
    verdict = try_program(program, "native")
    assert verdict.status != "WRONG", verdict.why


# Of a number of the call: some fine ones, then those.
NUMBERS: dict[str, tuple[Callable[[torch.Tensor, Any], Any], list[Any]]] = {
    "huber_loss": (lambda x, n: F.huber_loss(x, -x, delta=n), [0.0, -0.5]),
    "smooth_l1_loss": (lambda x, n: F.smooth_l1_loss(x, -x, beta=n), [-0.5]),
    "softshrink": (lambda x, n: F.softshrink(x, n), [-0.5]),
    "celu": (lambda x, n: F.celu(x, n), [0.0, -0.5]),
    "var": (lambda x, n: torch.var(x, 0, correction=n), [4, 5, 5.5]),
    "fill": (lambda x, n: torch.full_like(x.half(), n), [1e6, -1e6, float("inf")]),
    "masked_fill": (lambda x, n: x.half().masked_fill(x > 0, n), [1e6, float("nan")]),
    "of bytes": (lambda x, n: x.char().masked_fill(x > 0, n), [200.5, -200.0]),
    "clamp of doubles": (lambda x, n: x.double().clamp(max=n), [1e39]),
    "sum of halves": (lambda x, n: x.half() + n, [1e6, 7e4, float("inf")]),
    "times": (lambda x, n: x.bfloat16() * n, [3.395e38, 1e39]),
    "select_scatter": (lambda x, n: x.select_scatter(x[0], 0, n), [3, 4, -4, -5]),
    "slice_scatter": (
        lambda x, n: x.slice_scatter(x[:2], 0, n, n + 2),
        [2, 3, -2, -4],
    ),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_come_later(name):
    call, odd = NUMBERS[name]
    whole = isinstance(odd[0], int)
    fine = [1, 2, 0, 1] if whole else [1.5, 2.5, 0.75, 1.25]
    numbers = [*fine, *odd, fine[0]]
    program = Program(
        name,
        "def f(x, n):\n    return call(x * 1, n)\n",
        lambda: (square(), fine[0]),
        {"call": call},
        calls=[lambda n=n: (square(), n) for n in numbers],
    )
    verdict = try_program(program, "native")
    assert verdict.status != "WRONG", verdict.why


SIZES: dict[str, Callable[[torch.Tensor, torch.Tensor], Any]] = {
    "gather": lambda x, i: x.gather(1, i[:, None]),
    "scatter": lambda x, i: x.scatter(1, i[:, None], 7.0),
    "scatter of a source": lambda x, i: x.scatter(1, i[:, None], x[:4] * 2),
    "scatter_add": lambda x, i: x.scatter_add(1, i[:, None], x[:4] * 2),
    "index_copy": lambda x, i: x.index_copy(0, i[:4], x[: i.shape[0]] * 2),
    "index_add": lambda x, i: x.index_add(0, i, x[:4] * 2),
    "nll_loss": lambda x, i: F.nll_loss(x, i),
    "index_put": lambda x, i: aten.index_put(x, [i], x[:4]),
    "var": lambda x, i: x.var(0, correction=6),
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_come_later(name):
    sizes = [(7, 4), (8, 4), (9, 3), (10, 2), (5, 6), (6, 5), (9, 4), (3, 9)]

    def arguments(rows: int, indices: int) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.linspace(-1, 1, rows * 8).view(rows, 8)
        return x, torch.arange(indices) % 3

    program = Program(
        name,
        "def f(x, i):\n    return call(x * 1, i)\n",
        lambda: arguments(7, 4),
        {"call": SIZES[name]},
        calls=[lambda s=s: arguments(*s) for s in sizes],
    )
    verdict = try_program(program, "native")
    assert verdict.status != "WRONG", verdict.why


def test_strides_into_the_storage_of_a_result(isa):
    if isa == "loops":
        pytest.skip("the interpreter gives parts of results memory of their own")

    def whole(x):
        return (x * 2).as_strided((3,), (2,), 1)

    def part(x):
        return (x * 2)[2:].as_strided((3,), (2,), 1) + 1

    def beyond(x):
        y = x * 2
        copy = torch.as_strided_copy(y[2:], (2,), (1,), 3)
        return y[:1].as_strided((4,), (1,), 6) + 1, copy

    def of_the_input(x):
        return x[2:].as_strided((3,), (2,), 1) + 1

    for fn in (whole, part, beyond, of_the_input):
        check(fn, lambda: (square(),))


def test_parts_that_share_memory():
    def given(x):
        a, b = torch.unsafe_chunk(x, 2)
        return a, b * 2

    def inside(x):
        a, b = torch.unsafe_chunk(x * 2, 2)
        return a * b

    for fn in (given, inside):
        check(fn, lambda: (square(),))
