"""Operators of lists, windows, borders and data as loops: eager's values,
gradients and strides, and none of them a call of ATen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit

Tensors = list[torch.Tensor]
Program = Callable[..., Any]
INF, NAN = float("inf"), float("nan")
FLOATS = (torch.float32, torch.float64, torch.bfloat16)


def flattened(result: Any) -> Tensors:
    return [result] if isinstance(result, torch.Tensor) else list(result)


def outcome(program: Program, inputs: Tensors) -> tuple[Tensors, Tensors]:
    results = flattened(program(*inputs))
    used = [t for t in inputs if t.requires_grad]
    ends = [t for t in results if t.requires_grad]
    if not ends:
        return results, []
    weights = [torch.linspace(-1, 2, t.numel(), dtype=t.dtype) for t in ends]
    shaped = [w.view(t.shape) for w, t in zip(weights, ends, strict=True)]
    return results, list(torch.autograd.grad(ends, used, shaped))


def nodes_of(compiled: Any) -> tuple[str, str]:
    """The names of nodes that are loops, and of those that are calls."""
    text = "\n".join(k for entry in framejit.inspect(compiled) for k in entry.kernels)
    loops = re.findall(r"^# loops: (\S+)$", text, re.M)
    calls = re.findall(r"^# extern \d+: (\S+): ", text, re.M)
    return " ".join(loops), " ".join(calls)


def check(
    program: Program,
    inputs: Tensors,
    *operators: str,
    dynamic: bool | None = None,
    compiled: Any = None,
) -> Any:
    compiled = compiled or framejit.compile(program, dynamic=dynamic)
    copies = [[t.detach().clone() for t in inputs] for _ in range(2)]
    for copy in copies:
        for old, new in zip(inputs, copy, strict=True):
            new.as_strided_(old.size(), new.stride())
            new.requires_grad_(old.requires_grad)
    (mine, my_gradients), (theirs, gradients) = (
        outcome(run, copy)
        for run, copy in zip((compiled, program), copies, strict=True)
    )
    for ours, eager in zip(mine + my_gradients, theirs + gradients, strict=True):
        torch.testing.assert_close(ours, eager, equal_nan=True)
        assert ours.stride() == eager.stride()
    loops, calls = nodes_of(compiled)
    for operator in operators:
        assert f"aten.{operator}" in loops, (loops, calls)
        assert f"aten.{operator}" not in calls, (loops, calls)
    return compiled


def images(dtype: torch.dtype, *sizes: int, train: bool = True) -> torch.Tensor:
    torch.manual_seed(0)
    return torch.randn(sizes, dtype=torch.float64).to(dtype).requires_grad_(train)


# ---- lists


UNARY = (
    *("abs", "acos", "asin", "atan", "ceil", "cos", "cosh", "erf", "erfc", "exp"),
    *("expm1", "floor", "frac", "lgamma", "log", "log10", "log1p", "log2", "neg"),
    *("reciprocal", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt"),
    *("tan", "tanh", "trunc", "max", "norm"),
)
# a list, a list of positive numbers, a list from 0 to 1
ON_LISTS: dict[str, Program] = {
    **{
        name: lambda x, y, z, op=getattr(torch, f"_foreach_{name}"): op(x)
        for name in UNARY
    },
    "add.List": lambda x, y, z: torch._foreach_add(x, y, alpha=2),
    "add.Scalar": lambda x, y, z: torch._foreach_add(x, 1.5),
    "add.Tensor": lambda x, y, z: torch._foreach_add(x, y[0][0, 0], alpha=0.5),
    "sub.List": lambda x, y, z: torch._foreach_sub(x, y, alpha=2),
    "sub.Scalar": lambda x, y, z: torch._foreach_sub(x, 1.5),
    "mul.List": lambda x, y, z: torch._foreach_mul(x, y),
    "mul.Scalar": lambda x, y, z: torch._foreach_mul(x, 3),
    "mul.Tensor": lambda x, y, z: torch._foreach_mul(x, y[0][0, 0]),
    "div.List": lambda x, y, z: torch._foreach_div(x, y),
    "div.Scalar": lambda x, y, z: torch._foreach_div(x, 3),
    "pow.List": lambda x, y, z: torch._foreach_pow(y, z),
    "pow.Scalar": lambda x, y, z: torch._foreach_pow(x, 3),
    "pow.ScalarAndTensor": lambda x, y, z: torch._foreach_pow(2.0, x),
    "clamp_min.Scalar": lambda x, y, z: torch._foreach_clamp_min(x, 0.1),
    "clamp_max.List": lambda x, y, z: torch._foreach_clamp_max(x, z),
    "maximum.List": lambda x, y, z: torch._foreach_maximum(x, z),
    "minimum.Scalar": lambda x, y, z: torch._foreach_minimum(x, 0.3),
    "addcmul.Scalar": lambda x, y, z: torch._foreach_addcmul(x, y, z, 0.5),
    "addcdiv.Scalar": lambda x, y, z: torch._foreach_addcdiv(x, z, y, 0.5),
    "addcmul.Tensor": lambda x, y, z: torch._foreach_addcmul(x, y, z, y[0][0, :3]),
    "addcdiv.Tensor": lambda x, y, z: torch._foreach_addcdiv(x, z, y, y[0][0, :3]),
    "lerp.List": lambda x, y, z: torch._foreach_lerp(x, y, z),
    "lerp.Scalar": lambda x, y, z: torch._foreach_lerp(x, y, 0.3),
    "norm.Scalar": lambda x, y, z: torch._foreach_norm(x, 1),
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("name", ON_LISTS)
def test_lists(isa: str, name: str, dtype: torch.dtype) -> None:
    function = ON_LISTS[name]
    special = torch.tensor([[NAN, INF, -INF, -0.0, 0.0, 0.5, 1.0]], dtype=dtype)
    x = [special, *(images(dtype, n, 3, train=False) for n in (17, 1))]
    y = [t.nan_to_num(1, 2, 3).abs() + 0.1 for t in x]
    z = [(t.nan_to_num(1, 2, 3) * 0.2).sigmoid() for t in x]
    check(
        lambda *t: function(list(t[:3]), list(t[3:6]), list(t[6:])),
        x + y + z,
        f"_foreach_{name}",
    )


def test_lists_of_integers(isa: str) -> None:
    x = [torch.arange(-5, 5), torch.arange(17).view(1, 17)]
    y = [t + 1 for t in x]

    def program(*tensors: torch.Tensor) -> Any:
        a, b = list(tensors[:2]), list(tensors[2:])
        results = [*torch._foreach_add(a, b, alpha=3), *torch._foreach_mul(a, 2)]
        return [*results, *torch._foreach_neg(a), *torch._foreach_div(a, 4)]

    check(program, x + y, "_foreach_add.List", "_foreach_neg", "_foreach_div.Scalar")


def test_lists_written_in_place(isa: str) -> None:
    def program(*tensors: torch.Tensor) -> None:
        a, b = list(tensors[:2]), list(tensors[2:])
        torch._foreach_mul_(a, 0.9)
        torch._foreach_addcmul_(a, b, b, 0.1)
        torch._foreach_copy_(b, a)
        torch._foreach_sqrt_(b)

    compiled = framejit.compile(program)
    for _ in range(2):
        mine = [torch.rand(n, 3) for n in (4, 17, 4, 17)]
        eager = [t.clone() for t in mine]
        compiled(*mine)
        program(*eager)
        torch.testing.assert_close(mine, eager)


@pytest.mark.parametrize(
    "refused",
    [
        lambda x, y: torch._foreach_add(x, y[:1]),
        lambda x, y: torch._foreach_addcdiv(x, y, y, torch.ones(3)),
        lambda x, y: torch._foreach_mul(x, [t[:2] for t in y]),
    ],
)
def test_lists_that_eager_refuses(isa: str, refused: Program) -> None:
    def program(a: torch.Tensor, b: torch.Tensor) -> Any:
        return refused([a, b], [a + 1, b + 1])

    inputs = [torch.rand(5), torch.rand(7)]
    with pytest.raises(RuntimeError) as eager:
        program(*inputs)
    with pytest.raises(RuntimeError) as mine:
        framejit.compile(program)(*inputs)
    assert str(mine.value) == str(eager.value)


def test_a_step_of_adam_on_lists(isa: str) -> None:
    def train(compiles: bool) -> tuple[Tensors, Any]:
        torch.manual_seed(0)
        weights = [torch.randn(n, 5, requires_grad=True) for n in (3, 16, 1)]
        optimizer = torch.optim.Adam(weights, lr=0.01, foreach=True)

        def step() -> None:
            optimizer.step()

        run = framejit.compile(step) if compiles else step
        for _ in range(4):
            for weight in weights:
                weight.grad = torch.randn_like(weight)
            run()
        return weights, run

    (mine, run), (eager, _) = train(True), train(False)
    for a, b in zip(mine, eager, strict=True):
        torch.testing.assert_close(a, b)
    loops, calls = nodes_of(run)
    assert "_foreach_addcdiv.Tensor" in loops
    assert not calls


# ---- windows


def odd_numbers(dtype: torch.dtype) -> torch.Tensor:
    """With NaN twice in a window, windows of -inf, equal ones."""
    x = images(dtype, 2, 3, 12, 13, train=False)
    x[0, 0, 2, 3:5] = NAN
    x[0, 1, :5, :5] = -INF
    x[1, 1, 3:6, 3:6] = 7.0
    x[1, 2, 3] = torch.tensor([0.0, -0.0] * 6 + [0.0])
    return x.requires_grad_()


MAX_POOLS = {
    "of 2": (2,),
    "at edges": (3, 2, 1),
    "at edges, more": (3, 2, 1, 1, True),
    "close": ((2, 3), 1, (1, 0)),
    "far": (2, 3, 0, 2),
    "wide": (2, 1, 0, 2),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", MAX_POOLS)
def test_max_pools(isa: str, name: str, dtype: torch.dtype) -> None:
    kernel, stride, pad, dilation, ceil = (
        *MAX_POOLS[name],
        *(None, 0, 1, False)[len(MAX_POOLS[name]) - 1 :],
    )

    def program(x: torch.Tensor) -> Any:
        return F.max_pool2d(x, kernel, stride, pad, dilation, ceil, return_indices=True)

    x = odd_numbers(dtype)
    name = "max_pool2d_with_indices"
    check(program, [x], f"{name}.default", f"{name}_backward")
    check(lambda x: program(x)[0], [x[0].detach()], name)
    channels_last = x.detach().to(memory_format=torch.channels_last)
    check(lambda x: program(x)[0], [channels_last], name)


AVERAGES: dict[str, Program] = {
    "of 2": lambda x: F.avg_pool2d(x, 2),
    "at edges": lambda x: F.avg_pool2d(x, 3, 2, 1),
    "at edges, more": lambda x: F.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
    "what is there": lambda x: F.avg_pool2d(x, 3, 2, 1, True, False),
    "of a sum": lambda x: F.avg_pool2d(x, (3, 2), 1, (1, 0), divisor_override=5),
    "large": lambda x: F.avg_pool2d(x, 7, 3),
    "large, at edges": lambda x: F.avg_pool2d(x, 7, 3, 2, True, False),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", AVERAGES)
def test_averages(isa: str, name: str, dtype: torch.dtype) -> None:
    x = images(dtype, 2, 3, 12, 13)
    check(AVERAGES[name], [x], "avg_pool2d.default", "avg_pool2d_backward")


def test_volumes_and_lines(isa: str) -> None:
    x, y = images(torch.float32, 2, 2, 6, 7, 8), images(torch.float32, 2, 3, 19)
    name = "max_pool3d_with_indices"
    check(lambda x: F.max_pool3d(x, 2, 2), [x], name, f"{name}_backward")
    check(lambda x: F.avg_pool3d(x, 2, 2), [x], "avg_pool3d", "avg_pool3d_backward")
    check(lambda x: F.max_pool1d(x, 3, 2, 1), [y], "max_pool2d_with_indices")
    check(lambda x: F.avg_pool1d(x, 3, 2, 1), [y], "avg_pool2d.default")


def test_adaptive_pools(isa: str) -> None:
    x = images(torch.float32, 2, 3, 12, 10)
    name = "_adaptive_avg_pool2d"
    check(lambda x: F.adaptive_avg_pool2d(x, (4, 5)), [x], name, f"{name}_backward")
    name = "adaptive_max_pool2d"
    check(lambda x: F.adaptive_max_pool2d(x, (4, 5)), [x], name, f"{name}_backward")
    # Windows of different sizes are ATen's.
    compiled = check(lambda x: F.adaptive_avg_pool2d(x, (5, 3)), [x])
    assert name not in nodes_of(compiled)[0]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: F.max_pool2d(x, 3, 1, 1),
        lambda x: F.avg_pool2d(x, 3, 1, 1),
        lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True),
    ],
)
def test_pools_of_symbolic_sizes(isa: str, program: Program) -> None:
    compiled = framejit.compile(program, dynamic=True)
    for size in (2, 7, 16, 17, 33):
        check(program, [images(torch.float32, 2, 3, size, size + 1)], compiled=compiled)


# ---- other sizes, borders


RESIZED: dict[str, tuple[Program, str]] = {
    "twice": (lambda x: F.interpolate(x, scale_factor=2), "upsample_nearest2d"),
    "threefold": (lambda x: F.interpolate(x, scale_factor=3), "upsample_nearest2d"),
    "to a size": (lambda x: F.interpolate(x, (20, 7)), "upsample_nearest2d"),
    "by a factor": (
        lambda x: F.interpolate(x, scale_factor=1.7),
        "upsample_nearest2d",
    ),
    "exactly": (
        lambda x: F.interpolate(x, (20, 7), mode="nearest-exact"),
        "_upsample_nearest_exact2d",
    ),
    "linear": (
        lambda x: F.interpolate(x, (20, 7), mode="bilinear"),
        "upsample_bilinear2d",
    ),
    "linear, aligned": (
        lambda x: F.interpolate(x, (20, 7), mode="bilinear", align_corners=True),
        "upsample_bilinear2d",
    ),
    "linear, by a factor": (
        lambda x: F.interpolate(x, scale_factor=1.7, mode="bilinear"),
        "upsample_bilinear2d",
    ),
}


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
@pytest.mark.parametrize("name", RESIZED)
def test_other_sizes(isa: str, name: str, dtype: torch.dtype) -> None:
    program, operator = RESIZED[name]
    x = images(dtype, 2, 3, 12, 13)
    check(program, [x], f"{operator}.default", f"{operator}_backward")


LAYOUTS = ("as it comes", "channels last")


@pytest.mark.parametrize("dynamic", (None, True))
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("channels", (2, 4))
@pytest.mark.parametrize("dims", (1, 2, 3))
def test_factors_that_are_not_the_ratio(
    isa: str, dims: int, channels: int, layout: str, dynamic: bool | None
) -> None:
    """Some of eager's kernels look at them where sizes are equal, or doubled."""
    for factor in (1.0, 1.02, 1.1, 1.7, 2.0, 2.01, 2.1, 3.0):
        for mode in ("nearest", "nearest-exact"):

            def program(x: torch.Tensor) -> torch.Tensor:
                return F.interpolate(x, scale_factor=factor, mode=mode)  # noqa: B023

            framejit.reset()
            compiled = framejit.compile(program, dynamic=dynamic)
            for size in (5, 8) if dims == 3 else (5, 8, 40):
                x = images(torch.float32, 1, channels, *[size] * dims, train=False)
                if layout == "channels last" and dims > 1:
                    formats = (torch.channels_last, torch.channels_last_3d)
                    x = x.contiguous(memory_format=formats[dims - 2])
                # (Gradients lie as the result does, in eager as what comes in.)
                x.requires_grad_(layout == "as it comes")
                check(program, [x], compiled=compiled)


@pytest.mark.parametrize("size", (7, 49, 98, 147, 300))
def test_the_nearest_of_a_few(isa: str, size: int) -> None:
    """Multiples that floats miss."""
    for inputs in (1, 2, 3, 7, 49):
        check(
            lambda x: F.interpolate(x, size),
            [images(torch.float32, 1, 1, inputs)],
            "upsample_nearest1d",
        )


PADDED: dict[str, tuple[Program, str]] = {
    "reflection_pad1d": (lambda x: F.pad(x[0], (3, 0), "reflect"), "bf"),
    "reflection_pad2d": (lambda x: F.pad(x, (3, 2, 1, 4), "reflect"), "bf"),
    "reflection_pad3d": (lambda x: F.pad(x[None], (3, 2, 1, 4, 1, 2), "reflect"), ""),
    "replication_pad1d": (lambda x: F.pad(x[0], (3, 0), "replicate"), "bf"),
    "replication_pad2d": (lambda x: F.pad(x, (30, 2, 1, 4), "replicate"), "bf"),
    "replication_pad3d": (
        lambda x: F.pad(x[None], (3, 2, 1, 4, 1, 9), "replicate"),
        "",
    ),
}


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("name", PADDED)
def test_borders(isa: str, name: str, dtype: torch.dtype) -> None:
    program, small = PADDED[name]
    if dtype is torch.bfloat16 and not small:
        pytest.skip("eager has none")
    # Eager sums small floats in their type.
    train = dtype is not torch.bfloat16
    x = images(dtype, 2, 3, 12, 13, train=train)
    backward = (f"{name}_backward",) if train else ()
    check(program, [x], f"{name}.default", *backward)


# ---- data decides


@pytest.mark.parametrize("reduction", ("mean", "sum", "none"))
@pytest.mark.parametrize("weighted", (False, True))
def test_a_class_for_each_point(isa: str, reduction: str, weighted: bool) -> None:
    x = images(torch.float32, 2, 5, 4, 6)
    target = torch.randint(0, 5, (2, 4, 6))
    weight = torch.rand(5) if weighted else None

    def program(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(x, target, weight, ignore_index=1, reduction=reduction)

    check(program, [x, target], "nll_loss2d_forward", "nll_loss2d_backward")
    bad = target.clone()
    bad[1, 2, 3] = 5
    for run in (program, framejit.compile(program)):
        with pytest.raises(IndexError, match="Target 5 is out of bounds"):
            run(x, bad)


@pytest.mark.parametrize("dtype", (*FLOATS, torch.int64, torch.bool))
@pytest.mark.parametrize("dim", (0, 1))
def test_extremes_so_far(isa: str, dim: int, dtype: torch.dtype) -> None:
    rows = [[1, 3, 3, -0.0, 0.0, 2, 5, 5], [0.0, -0.0, NAN, 1, NAN, 9, INF, 0]]
    x = torch.tensor(rows).nan_to_num(2) if not dtype.is_floating_point else rows
    x = torch.as_tensor(x).to(dtype)
    x.requires_grad_(dtype.is_floating_point)
    for name in ("cummax", "cummin"):
        function = getattr(torch, name)
        compiled = check(lambda x, f=function: f(x, dim), [x], name)
        values = compiled(x)[0]
        signs = torch.signbit(function(x, dim)[0])
        assert torch.equal(torch.signbit(values), signs)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.int64))
@pytest.mark.parametrize("include_self", (False, True))
@pytest.mark.parametrize("reduce", ("sum", "prod", "mean", "amax", "amin"))
def test_scattered_reductions(
    isa: str, reduce: str, include_self: bool, dtype: torch.dtype
) -> None:
    torch.manual_seed(1)
    x, source = (torch.randn(4, n).mul(5).to(dtype) for n in (6, 9))
    if dtype.is_floating_point:
        source[0, 3] = NAN
        x[1, 2] = NAN
    index = torch.randint(0, 6, (3, 8))

    def program(x: torch.Tensor, index: torch.Tensor, source: torch.Tensor) -> Any:
        return x.scatter_reduce(1, index, source, reduce, include_self=include_self)

    check(program, [x, index, source], "scatter_reduce.two")
    with pytest.raises(RuntimeError, match="out of bounds"):
        framejit.compile(program)(x, index + 3, source)


ROWS_THAT_SCATTER: dict[str, Program] = {
    "scatter": lambda x, places, s: x.scatter(1, places.argsort(1), s),
    "scatter_add": lambda x, places, s: (x * 2).scatter_add(1, places, s) + 1,
    "scatter_reduce": lambda x, places, s: x.scatter_reduce(1, places, s, "amax"),
}


@pytest.mark.parametrize("sizes", [(1, 5), (3, 5), (40, 30), (100, 7), (33, 1)])
@pytest.mark.parametrize("name", ROWS_THAT_SCATTER)
def test_rows_that_scatter(isa: str, name: str, sizes: tuple[int, int]) -> None:
    """Rows side by side in vectors, each of which goes its own way."""
    places = torch.randint(0, sizes[1], sizes)
    inputs = [torch.randn(sizes), places, torch.randn(sizes)]
    check(ROWS_THAT_SCATTER[name], inputs, name)


def points() -> Tensors:
    return [torch.randn(5), torch.tensor(3), torch.tensor(2.0), torch.tensor(0)]


# Of a vector x, an index in it, a number in a tensor z and its only place.
POINTS: dict[str, Program] = {
    "cross_entropy": lambda x, i, z, o: F.cross_entropy(x, i),
    "weighted": lambda x, i, z, o: F.cross_entropy(x, i, x.exp(), label_smoothing=0.1),
    "ignored": lambda x, i, z, o: F.cross_entropy(
        x, i, ignore_index=3, reduction="sum"
    ),
    "nll_loss": lambda x, i, z, o: F.nll_loss(x, i, reduction="none"),
    "linear_cross_entropy": lambda x, i, z, o: F.linear_cross_entropy(
        x, x[:, None] * x, i
    ),
    "multi_margin_loss": lambda x, i, z, o: F.multi_margin_loss(x, i),
    "multilabel_margin_loss": lambda x, i, z, o: F.multilabel_margin_loss(z, o),
    "gather": lambda x, i, z, o: (x.gather(0, i[None]), z.gather(0, o)),
    "scatter": lambda x, i, z, o: (x.scatter(0, i[None], 2.0), z.scatter(0, o, z + 1)),
    "scatter_add": lambda x, i, z, o: z.scatter_add(0, o, z),
    "scatter_reduce": lambda x, i, z, o: z.scatter_reduce(0, o, z + 1, "amax"),
    "index_select": lambda x, i, z, o: (x.index_select(0, i), z.index_select(0, o)),
    "index_add": lambda x, i, z, o: z.index_add(0, o, z),
    "index_copy": lambda x, i, z, o: (x.index_copy(0, i, z), z.index_copy(0, o, z)),
    "index_fill": lambda x, i, z, o: (x.index_fill(0, i, z), z.index_fill(0, o, 2.0)),
    "index_put": lambda x, i, z, o: x.index_put((i,), z, accumulate=True),
    "take": lambda x, i, z, o: (x.take(i), x.put(i, z, accumulate=True)),
    "embedding": lambda x, i, z, o: F.embedding(i, x[:, None]),
    "one_hot": lambda x, i, z, o: F.one_hot(i, 5),
    "searches": lambda x, i, z, o: (
        torch.searchsorted(x.sort()[0], z),
        torch.bucketize(z, x.sort()[0]),
    ),
    "running": lambda x, i, z, o: (z.cumsum(0), *z.cummax(0), *z.max(0), z.argmax()),
    "softmax": lambda x, i, z, o: (z.softmax(0), z.log_softmax(0), z.logsumexp(0)),
}
if not hasattr(F, "linear_cross_entropy"):  # before 2.13
    del POINTS["linear_cross_entropy"]


@pytest.mark.parametrize("name", POINTS)
def test_points_in_place_of_lists(isa: str, name: str) -> None:
    """Indices, targets and numbers without dims."""
    check(POINTS[name], points())


EXTREMES: dict[str, Program] = {
    "amax": lambda x: x.amax(0),
    "amin": lambda x: x.amin((0, 1)),
    "max": lambda x: x.max(),
    "min.dim": lambda x: tuple(x.min(0)),
    "argmax": lambda x: x.argmax(0),
    "argmin": lambda x: x.argmin(),
    "aminmax": lambda x: tuple(x.aminmax(dim=0)),
    "linalg_vector_norm": lambda x: torch.linalg.vector_norm(x, INF, 0),
}


@pytest.mark.parametrize("operator", EXTREMES)
def test_extremes_of_any_size(isa: str, operator: str) -> None:
    program = EXTREMES[operator]
    inputs = [torch.randn(rows, columns) for rows, columns in ((5, 7), (33, 70))]
    compiled = check(program, [inputs[0]], operator, dynamic=True)
    with framejit.testing.no_recompile():
        check(program, [inputs[1]], operator, compiled=compiled)
    with pytest.raises((IndexError, RuntimeError)) as eager:
        program(torch.empty(0, 7))
    with pytest.raises(eager.type, match=re.escape(str(eager.value))):
        compiled(torch.empty(0, 7))


# What has results without elements beside others.
EMPTY_BESIDE: dict[str, tuple[Program, tuple[int, ...]]] = {
    "native_batch_norm": (
        lambda x: F.batch_norm(x, x.mean((0, 2)), x.square().mean((0, 2))),
        (3, 4, 5),
    ),
    "split_with_sizes": (lambda x: [y * 2 for y in x.split((0, 4, 1), 1)], (3, 5)),
}


@pytest.mark.parametrize("operator", EMPTY_BESIDE)
def test_results_without_elements(isa: str, operator: str) -> None:
    program, sizes = EMPTY_BESIDE[operator]
    check(program, [torch.randn(sizes)], operator)


def test_elements_taken(isa: str) -> None:
    x = images(torch.float32, 5, 7)
    places = torch.tensor([[0, 34, -35], [-1, 3, 3]])
    check(lambda x, i: torch.take(x.t(), i), [x, places], "take", "put")
    for run in (torch.take, framejit.compile(lambda x, i: torch.take(x, i))):
        with pytest.raises(IndexError, match="out of range"):
            run(x, places + 1)


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64, torch.int64))
@pytest.mark.parametrize("size", (1, 2, 7, 16, 17, 1000))
def test_places_in_sequences(isa: str, size: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    sequence = (torch.randn(size) * 9).to(dtype)
    wanted = (torch.randn(3, 17) * 9).to(dtype)
    wanted[:, :5] = sequence[torch.randint(0, size, (3, 5))]
    if dtype.is_floating_point:
        wanted[0, 6:] = torch.tensor([NAN, INF, -INF, 0.0, -0.0] + [1.0] * 6)

    def program(x: torch.Tensor, sequence: torch.Tensor) -> Any:
        rows = sequence.expand(3, -1).contiguous()
        return (
            torch.bucketize(x, sequence),
            torch.bucketize(x, sequence, out_int32=True, right=True),
            torch.searchsorted(rows, x, side="right"),
        )

    # Sorted, and not.
    for elements in (sequence.sort()[0], sequence):
        check(program, [wanted, elements], "bucketize.Tensor", "searchsorted.Tensor")
