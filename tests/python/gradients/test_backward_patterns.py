"""Gradients flow only through outputs that were used, to inputs that were asked for.

Each program is differentiated for every set of its outputs and several sets of
its inputs, at points where branches that were not used have infinite or undefined
derivatives: values and None-ness are eager's.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from differential import tensors_of

AOT = ("aot_eager", "native")
Fn = Callable[..., Any]
Make = Callable[[], tuple[torch.Tensor, ...]]


def subsets(count: int) -> Iterator[tuple[int, ...]]:
    for size in range(1, count + 1):
        yield from itertools.combinations(range(count), size)


def some_inputs(count: int) -> list[tuple[int, ...]]:
    """All of them, each alone, all but one."""
    everything = tuple(range(count))
    found = [everything] + [(i,) for i in everything]
    found += [tuple(i for i in everything if i != left) for left in everything]
    return list(dict.fromkeys(inputs for inputs in found if inputs))


def roots(result: Any) -> list[torch.Tensor]:
    return [t for t in tensors_of(result) if t.requires_grad]


def tangent(output: torch.Tensor) -> torch.Tensor:
    return (
        torch.linspace(0.5, 1.5, max(output.numel(), 1), dtype=torch.double)[
            : output.numel()
        ]
        .reshape(output.shape)
        .to(output.dtype)
    )


def gradients(
    fn: Fn, args: tuple[torch.Tensor, ...], used: tuple[int, ...], of: tuple[int, ...]
) -> list[torch.Tensor | None]:
    outputs = roots(fn(*args))
    leaves = [a for a in args if a.requires_grad]
    chosen = [outputs[i] for i in used]
    return list(
        torch.autograd.grad(
            chosen,
            [leaves[i] for i in of],
            [tangent(t) for t in chosen],
            allow_unused=True,
        )
    )


def accumulated(
    fn: Fn, args: tuple[torch.Tensor, ...], used: tuple[int, ...]
) -> list[torch.Tensor | None]:
    outputs = roots(fn(*args))
    chosen = [outputs[i] for i in used]
    torch.autograd.backward(chosen, [tangent(t) for t in chosen])
    return [a.grad for a in args if a.requires_grad]


def same(
    expected: list[torch.Tensor | None],
    actual: list[torch.Tensor | None],
    where: str,
    strides: bool = True,
) -> None:
    assert len(expected) == len(actual)
    for i, (a, b) in enumerate(zip(expected, actual)):
        assert (a is None) == (b is None), f"{where}, input {i}: {a} and {b}"
        if a is not None and b is not None:
            assert not strides or a.stride() == b.stride() or a.numel() < 2, where
            torch.testing.assert_close(
                b, a, equal_nan=True, msg=lambda m, i=i: f"{where}, input {i}: {m}"
            )


def check_patterns(fn: Fn, make: Make, strides: bool = True) -> None:
    for backend in AOT:
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        num_outputs = len(roots(fn(*make())))
        num_inputs = sum(a.requires_grad for a in make())
        for used in subsets(num_outputs):
            where = f"{backend}, outputs {used}"
            for of in some_inputs(num_inputs):
                expected = gradients(fn, make(), used, of)
                actual = gradients(compiled, make(), used, of)
                same(expected, actual, f"{where}, inputs {of}", strides)
            same(
                accumulated(fn, make(), used),
                accumulated(compiled, make(), used),
                where,
                strides,
            )
        # One call, one output after the other.
        args = make()
        outputs, again = roots(fn(*args)), roots(compiled(*args))
        leaves = [a for a in args if a.requires_grad]
        for i in (*range(num_outputs), *reversed(range(num_outputs))):
            expected, actual = (
                list(
                    torch.autograd.grad(
                        found[i],
                        leaves,
                        tangent(found[i]),
                        retain_graph=True,
                        allow_unused=True,
                    )
                )
                for found in (outputs, again)
            )
            same(expected, actual, f"{backend}, retained, output {i}", strides)
        # Each pattern has a program of its own. (What is computed before a break
        # goes to some outputs only: such graphs run at torch level.)
        seen = "in the history of some outputs and not of others"
        events = [text for _, text in framejit.events() if "gradient of" in text]
        assert [text for text in events if seen not in text] == []


def zeros(*shapes: tuple[int, ...]) -> Make:
    return lambda: tuple(torch.zeros(s, requires_grad=True) for s in shapes)


def ordinary(*shapes: tuple[int, ...]) -> Make:
    def make() -> tuple[torch.Tensor, ...]:
        torch.manual_seed(3)
        return tuple(torch.randn(s).requires_grad_() for s in shapes)

    return make


# ---- branches without a finite derivative at zero

SINGULAR: dict[str, Fn] = {
    "log": lambda x: x.log(),
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: x.rsqrt(),
    "reciprocal": lambda x: x.reciprocal(),
    "div": lambda x: 1 / x,
    "div_self": lambda x: x / x,
    "pow": lambda x: x**0.5,
    "pow_minus": lambda x: x**-1.5,
    "pow_self": lambda x: x**x,
    "atan2": lambda x: torch.atan2(x, x),
    "log1p": lambda x: (x - 1).log1p(),
    "acos": lambda x: (x + 1).acos(),
    "asin": lambda x: (x - 1).asin(),
    "atanh": lambda x: (x + 1).atanh(),
    "acosh": lambda x: (x + 1).acosh(),
    "lgamma": lambda x: x.lgamma(),
    "digamma": lambda x: x.digamma(),
    "logit": lambda x: x.logit(),
    "erfinv": lambda x: (x + 1).erfinv(),
    "xlogy": lambda x: torch.special.xlogy(x, x),
    "norm": lambda x: x.norm(),
    "norm_p": lambda x: x.norm(p=0.5),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=0),
    "cdist": lambda x: torch.cdist(x.reshape(2, 2), x.reshape(2, 2), p=0.5),
    "normalize": lambda x: x / x.norm(),
    "cosine": lambda x: F.cosine_similarity(x, x, dim=0, eps=0.0),
    "std": lambda x: x.std(),
    "log_softmax": lambda x: (x / 0).log_softmax(0),
    "where": lambda x: torch.where(x > 0, x.sqrt(), x.log()),
    "masked": lambda x: x.log().masked_fill(x == 0, 0.0),
    "entropy": lambda x: -(x * x.log()).sum(),
    "inverse": lambda x: torch.linalg.inv_ex(x.reshape(2, 2))[0],
    "prod": lambda x: x.sqrt().prod(),
    "cumprod": lambda x: x.log().cumprod(0),
    "logsumexp": lambda x: x.log().logsumexp(0),
}


@pytest.mark.parametrize("name", SINGULAR)
def test_the_unused_branch_is_singular(name: str) -> None:
    branch = SINGULAR[name]

    def before(x: torch.Tensor) -> Any:
        return branch(x), x * 2

    def behind(x: torch.Tensor) -> Any:
        return x * 3, branch(x * 1), x.sin()

    check_patterns(before, zeros((4,)))
    check_patterns(behind, zeros((4,)))


def points_of_products(dtype: torch.dtype) -> Iterator[tuple[torch.Tensor, int]]:
    """Without a zero, with one and more at each place, infinite, and single ones."""
    torch.manual_seed(5)
    x = torch.randn(3, 4, dtype=dtype)
    yield x, 0
    yield x, -1
    for places in itertools.combinations(range(4), 2):
        y = x.clone()
        y[0, places[0]] = y[1, places[1]] = 0
        y[2, list(places)] = 0
        yield y, 1
        yield y, 0
    yield torch.zeros(2, 3, dtype=dtype), 1
    yield x / 0, 1
    yield x[:, :1], 1
    yield x[0, 0], 0
    yield x[:0], 0
    yield x[:, :0], 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bfloat16])
@pytest.mark.parametrize("dynamic", [False, True])
def test_products_with_zeros(dtype: torch.dtype, dynamic: bool) -> None:
    def f(x: torch.Tensor, dim: int) -> torch.Tensor:
        return x.cumprod(dim)

    for backend in AOT:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend, dynamic=dynamic)
        for x, dim in points_of_products(dtype):
            found = []
            for fn in (f, compiled):
                leaf = x.clone().requires_grad_()
                out = fn(leaf, dim)
                found.append(torch.autograd.grad(out, leaf, tangent(out)))
            where = f"{backend}, {x}, {dim}"
            same([found[0][0]], [found[1][0]], where)


def test_branches_share_a_beginning() -> None:
    def f(x: torch.Tensor, w: torch.Tensor) -> Any:
        h = (x @ w).relu()
        return h.sqrt(), h.log(), h.sum(), (h * 2).mean()

    check_patterns(f, zeros((3, 4), (4, 2)))
    check_patterns(f, ordinary((3, 4), (4, 2)))


def test_inputs_that_only_one_output_needs() -> None:
    def f(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> Any:
        return x * 2, (x * y).log(), y + z.exp(), z

    check_patterns(f, zeros((4,), (4,), (4,)))
    check_patterns(f, ordinary((4,), (4,), (4,)))


# ---- where eager's formulas see undefined gradients and where zeros

MERGES: dict[str, Fn] = {
    "cat": lambda x, y: torch.cat([x, y]),
    "stack": lambda x, y: torch.stack([x, y]),
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "where": lambda x, y: torch.where(x > 0, x, y),
    "index_put": lambda x, y: x.clone().index_put((torch.tensor([0]),), y.sum()),
    "scatter": lambda x, y: x.scatter(0, torch.tensor([[1, 0, 1], [0, 1, 0]]), y),
    "setitem": lambda x, y: _assigned(x, y),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "addcmul": lambda x, y: torch.addcmul(x, x, y),
}


def _assigned(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made = x * 1
    made[1:] = y[1:]
    return made


SPLITS: dict[str, Fn] = {
    "unbind": lambda z: z.unbind(0),
    "split": lambda z: [t * 1 for t in z.split(1)],
    "chunk": lambda z: [t + 1 for t in z.chunk(2)],
    "index": lambda z: [z[0] * 1, z[1:] * 1],
    "select": lambda z: [z.select(0, 0).exp(), z.narrow(0, 0, 1).sum()],
    "max": lambda z: list(z.max(0))[:1] + [z.min()],
    "aminmax": lambda z: list(z.aminmax(dim=0)),
    "var_mean": lambda z: list(torch.var_mean(z)),
    "std_mean": lambda z: list(torch.std_mean(z)),
    "sort": lambda z: [z.sort(0)[0], z.topk(1, 0)[0]],
    "frexp": lambda z: [torch.frexp(z)[0], z * 2],
    "meshgrid": lambda z: [
        a * 1 for a in torch.meshgrid(z.sum(0), z.sum(1), indexing="ij")
    ],
}


@pytest.mark.parametrize("name", MERGES)
def test_merges(name: str) -> None:
    merge = MERGES[name]

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        first, second = x * 2, y.exp()
        return (
            first.sin(),
            merge(first, second).cos(),
            second.log(),
            merge(x * y, y) * 1,
        )

    check_patterns(f, ordinary((2, 3), (2, 3)))
    check_patterns(f, zeros((2, 3), (2, 3)))


def refuses(fn: Fn, make: Make) -> bool:
    """A torch may lack a derivative that later ones have (2.11: of aminmax)."""
    errors = []
    for run in (fn, *(framejit.compile(fn, backend=backend) for backend in AOT)):
        framejit.reset()
        outputs = roots(run(*make()))
        try:
            torch.autograd.backward(outputs, [tangent(t) for t in outputs])
        except RuntimeError as error:
            errors.append(str(error).splitlines()[0])
    assert errors in ([], errors[:1] * 3)
    return bool(errors)


@pytest.mark.parametrize("name", SPLITS)
def test_operators_with_several_results(name: str) -> None:
    split = SPLITS[name]

    def f(x: torch.Tensor) -> Any:
        return list(split(x * 2)) + [x.sum()]

    if refuses(f, ordinary((2, 3))):
        return
    check_patterns(f, ordinary((2, 3)))
    check_patterns(f, zeros((2, 3)))


DECOMPOSITIONS: dict[str, Fn] = {
    "svd": lambda a: torch.linalg.svd(a, full_matrices=False),
    "eigh": lambda a: torch.linalg.eigh(a @ a.mT),
    "qr": lambda a: torch.linalg.qr(a),
    "lu": lambda a: torch.linalg.lu(a)[1:],
    "lu_factor": lambda a: torch.linalg.lu_factor(a)[:1],
    "slogdet": lambda a: torch.linalg.slogdet(a),
    "cholesky": lambda a: [torch.linalg.cholesky(a @ a.mT + torch.eye(3)), a.det()],
    "lstsq": lambda a: torch.linalg.lstsq(a, a @ a)[:1],
}


@pytest.mark.parametrize("name", DECOMPOSITIONS)
def test_decompositions(name: str) -> None:
    decompose = DECOMPOSITIONS[name]

    def f(a: torch.Tensor) -> Any:
        return [t.sin() for t in decompose(a)] + [a * 2]

    check_patterns(f, ordinary((3, 3)))


COMPLEX: dict[str, Fn] = {
    "eig": lambda a: torch.linalg.eig(a),
    "eigh": lambda a: torch.linalg.eigh(torch.complex(a @ a.mT, a - a.mT)),
    "svd": lambda a: torch.linalg.svd(torch.complex(a, a.sin()), full_matrices=False),
}


@pytest.mark.parametrize("allowed", [True, False])
@pytest.mark.parametrize("name", COMPLEX)
@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_gradients_that_look_at_values(backend: str, name: str, allowed: bool) -> None:
    """Eager refuses gradients that depend on the phase of complex vectors."""
    decompose = COMPLEX[name]

    def f(a: torch.Tensor) -> Any:
        parts = decompose(a)
        if allowed:
            return sum(t.abs().sin().sum() for t in parts)
        return sum((t.real * torch.arange(1.0, 4.0)).sum() for t in parts)

    def outcome(function: Fn) -> Any:
        torch.manual_seed(4)
        a = torch.randn(3, 3, requires_grad=True)
        try:
            return torch.autograd.grad(function(a), a)[0]
        except RuntimeError as error:
            return str(error)[:60]

    expected = outcome(f)
    assert isinstance(expected, torch.Tensor) == allowed
    found = outcome(framejit.compile(f, backend=backend))
    if allowed:
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


@pytest.mark.parametrize("kind", ["rnn", "lstm", "gru", "attention", "batch_norm"])
def test_modules_with_several_results(kind: str) -> None:
    torch.manual_seed(0)
    module: nn.Module = {
        "rnn": lambda: nn.RNN(3, 3),
        "lstm": lambda: nn.LSTM(3, 3, num_layers=2),
        "gru": lambda: nn.GRU(3, 3),
        "attention": lambda: nn.MultiheadAttention(3, 1),
        "batch_norm": lambda: nn.BatchNorm1d(3, track_running_stats=False),
    }[kind]()
    names = [n for n, _ in module.named_parameters()]

    def f(x: torch.Tensor, *weights: torch.Tensor) -> Any:
        state = dict(zip(names, weights))
        args = (x, x, x) if kind == "attention" else (x,)
        if kind == "batch_norm":
            return torch.func.functional_call(module, state, args), x * 2
        return torch.func.functional_call(module, state, args)

    def make() -> tuple[torch.Tensor, ...]:
        torch.manual_seed(1)
        shape = (4, 3) if kind in ("attention", "batch_norm") else (2, 2, 3)
        weights = [p.detach().clone().requires_grad_() for p in module.parameters()]
        return (torch.randn(shape).requires_grad_(), *weights)

    check_patterns(f, make)


# ---- functions of the program's own, hooks


class Materialized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.save_for_backward(x)
        return x.log(), x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] / x + grads[1] * 2


class NotMaterialized(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(x)
        return x.log(), x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        result = None
        if grads[0] is not None:
            result = grads[0] / x
        if grads[1] is not None:
            result = grads[1] * 2 if result is None else result + grads[1] * 2
        return result


class NeedsInput(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, y: torch.Tensor) -> Any:
        ctx.save_for_backward(x, y)
        return x * y

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        x, y = ctx.saved_tensors
        first = grads[0] * y if ctx.needs_input_grad[0] else None
        second = grads[0] * x if ctx.needs_input_grad[1] else None
        return first, second


def test_function_with_materialized_gradients() -> None:
    def f(x: torch.Tensor) -> Any:
        a, b = Materialized.apply(x * 1)
        return a * 2, b * 3, x + 1

    check_patterns(f, zeros((3,)))
    check_patterns(f, ordinary((3,)))


def test_function_without_materialized_gradients() -> None:
    def f(x: torch.Tensor) -> Any:
        a, b = NotMaterialized.apply(x * 1)
        return a * 2, b * 3, x + 1

    check_patterns(f, zeros((3,)))


def test_function_that_asks_what_is_needed() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        return NeedsInput.apply(x, y), NeedsInput.apply(y, y * 2), x.log()

    check_patterns(f, zeros((3,), (3,)))
    check_patterns(f, ordinary((3,), (3,)))


def test_hooks_see_no_undefined_gradient() -> None:
    def f(x: torch.Tensor) -> Any:
        a, b = x * 2, x * 3
        a.register_hook(lambda g: g + 1)
        b.register_hook(lambda g: g * 5)
        return a.log(), b.sin(), (a * b).sum()

    check_patterns(f, zeros((3,)))


def test_gradients_taken_inside() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        (g,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return g.log(), g * y, x * 2

    check_patterns(f, zeros((3,), (3,)))


def test_checkpoint_inside() -> None:
    def f(x: torch.Tensor) -> Any:
        a = torch.utils.checkpoint.checkpoint(lambda t: t.log(), x, use_reentrant=False)
        return a, x * 2

    check_patterns(f, zeros((3,)))


def test_outputs_that_share_memory() -> None:
    def f(x: torch.Tensor) -> Any:
        y = x * 2
        return y, y.view(-1), y[0], x.log(), x.t()

    # What views give back is laid out as the view, or as its base.
    check_patterns(f, zeros((2, 3)), strides=False)


def test_detached_and_integer_outputs() -> None:
    def f(x: torch.Tensor) -> Any:
        return x.log().detach(), x * 2, x.argmax(), (x.detach() * x).sqrt()

    check_patterns(f, zeros((3,)))


def test_complex_outputs() -> None:
    def f(x: torch.Tensor) -> Any:
        z = torch.complex(x, x * 2)
        return z.abs().log(), z * z, z.real.sqrt(), z.angle()

    check_patterns(f, zeros((3,)))
    check_patterns(f, ordinary((3,)))


def test_sizes_that_change() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        return (x.unsqueeze(-1) * y).log(), x.expand(2, *x.shape).sum(0), y.sqrt()

    for backend in AOT:
        compiled = framejit.compile(f, backend=backend, dynamic=True)
        for size in (3, 5, 8, 4):
            for used in subsets(3):
                make = zeros((size,), (size,))
                expected = gradients(f, make(), used, (0, 1))
                actual = gradients(compiled, make(), used, (0, 1))
                same(expected, actual, f"{backend}, {size}, {used}")


# ---- how often a backward is made


def backwards_made() -> int:
    return sum("backward" in text for _, text in framejit.events())


def test_a_gradient_nobody_asked_for_is_not_computed() -> None:
    calls = []

    @torch.library.custom_op("patterns::counted", mutates_args=())
    def counted(x: torch.Tensor) -> torch.Tensor:
        calls.append(1)
        return x * 1

    @counted.register_fake
    def _(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x)

    class Counts(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return counted(grad)

    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        return Counts.apply(x).sin(), y.cos() * 2

    for backend in AOT:
        compiled = framejit.compile(f, backend=backend)
        x, y = torch.randn(3, requires_grad=True), torch.randn(3, requires_grad=True)
        for used, of, times in (
            ((0, 1), y, 0),
            ((1,), y, 0),
            ((0, 1), x, 1),
            ((0,), x, 1),
        ):
            for _ in range(2):
                outputs = compiled(x, y)
                calls.clear()
                torch.autograd.grad(sum(outputs[i].sum() for i in used), of)
                assert len(calls) == times, (backend, used)


def test_many_patterns_stay_bounded() -> None:
    def f(*xs: torch.Tensor) -> Any:
        return tuple((x * (i + 2)).log() + x.sum() for i, x in enumerate(xs))

    compiled = framejit.compile(f)
    make = ordinary(*[(3,)] * 7)
    for used in subsets(7):
        same(
            gradients(f, make(), used, tuple(range(7))),
            gradients(compiled, make(), used, tuple(range(7))),
            str(used),
        )


@pytest.mark.parametrize("backend", AOT)
def test_parameters_without_a_use_keep_no_gradient(backend: str) -> None:
    class TwoHeads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = nn.Linear(4, 4)
            self.first = nn.Linear(4, 2)
            self.second = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> Any:
            h = self.body(x).tanh()
            return self.first(h), self.second(h)

    torch.manual_seed(0)
    plain = TwoHeads()
    torch.manual_seed(0)
    compiled = framejit.compile(TwoHeads(), backend=backend)
    x = torch.randn(5, 4)
    for head in (0, 1, 0):
        plain.zero_grad()
        compiled.zero_grad()
        plain(x)[head].sum().backward()
        compiled(x)[head].sum().backward()
        same(
            [p.grad for p in plain.parameters()],
            [p.grad for p in compiled.parameters()],
            f"head {head}",
        )


@pytest.mark.parametrize("backend", AOT)
def test_unused_inputs_of_grad(backend: str) -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        return x * 2, y.log()

    compiled = framejit.compile(f, backend=backend)
    x, y = torch.zeros(3, requires_grad=True), torch.zeros(3, requires_grad=True)
    for materialize in (False, True):
        expected, actual = (
            torch.autograd.grad(
                fn(x, y)[0].sum(),
                (x, y),
                allow_unused=True,
                materialize_grads=materialize,
            )
            for fn in (f, compiled)
        )
        same(list(expected), list(actual), f"materialize {materialize}")
    messages = []
    for fn in (f, compiled):
        with pytest.raises(RuntimeError) as error:
            torch.autograd.grad(fn(x, y)[0].sum(), (x, y))
        messages.append(str(error.value))
    assert messages[0] == messages[1]
