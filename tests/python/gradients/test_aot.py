"""The backends that differentiate ahead of time, against eager.

Most of these were wrong numbers or errors once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit
from differential import check

AOT = ("aot_eager", "native")


def entries(compiled: Callable[..., Any]) -> list[Any]:
    return [e for entry in framejit.inspect(compiled) for e in entry.walk()]


def fallbacks(compiled: Callable[..., Any]) -> list[str]:
    return [e.fallback_reason for e in entries(compiled) if e.fallback_reason]


def train(module: nn.Module, x: torch.Tensor, seed: int) -> list[torch.Tensor]:
    """The result, all gradients and all buffers after one step's backward."""
    torch.manual_seed(seed)
    module.zero_grad()
    result = module(x)
    if isinstance(result, tuple):
        result = result[0]
    result.pow(2).sum().backward()
    grads = [p.grad for p in module.parameters() if p.grad is not None]
    return [result.detach(), *grads, *(b.clone() for b in module.buffers())]


def same_training(
    make: Callable[[], nn.Module],
    inputs: Callable[[int], torch.Tensor],
    backend: str,
    sizes: tuple[int, ...] = (5, 5, 7),
) -> Callable[..., Any]:
    framejit.reset()
    torch.manual_seed(0)
    plain = make()
    torch.manual_seed(0)
    compiled = framejit.compile(make(), backend=backend)
    for number, size in enumerate(sizes):
        torch.manual_seed(number)
        x = inputs(size)
        expected = train(plain, x, number)
        actual = train(compiled, x, number)
        assert len(expected) == len(actual)
        for a, b in zip(expected, actual):
            torch.testing.assert_close(b, a, rtol=1e-4, atol=1e-5)
    return compiled


@pytest.mark.parametrize("backend", AOT)
def test_batch_norm_trains_ahead_of_time(backend: str) -> None:
    compiled = same_training(
        lambda: nn.Sequential(
            nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU()
        ),
        lambda n: torch.randn(n, 3, 6, 6),
        backend,
    )
    assert fallbacks(compiled) == []
    assert any(e.backward_graph for e in entries(compiled))


@pytest.mark.parametrize("backend", AOT)
def test_transformer_layer_in_training(backend: str) -> None:
    same_training(
        lambda: nn.TransformerEncoderLayer(16, 4, 32, batch_first=True),
        lambda n: torch.randn(2, n, 16),
        backend,
    )


@pytest.mark.parametrize("backend", AOT)
def test_lstm_keeps_its_workspace(backend: str) -> None:
    same_training(lambda: nn.LSTM(8, 8), lambda n: torch.randn(n, 2, 8), backend)


@pytest.mark.parametrize("layout", [(0, 1, 2), (1, 0, 2), (2, 0, 1), (2, 1, 0)])
def test_dropout_fills_in_the_order_of_memory(layout: tuple[int, ...]) -> None:
    def drop(x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, 0.4) + F.dropout(x * 2, 0.1)

    def permuted() -> tuple[torch.Tensor]:
        return (torch.randn(40, 30, 20).permute(layout).requires_grad_(),)

    check(drop, permuted, breaks=0)


def test_bernoulli_of_a_permuted_tensor() -> None:
    def functional(x: torch.Tensor) -> torch.Tensor:
        return torch.bernoulli(x, 0.5) + torch.bernoulli(torch.sigmoid(x))

    def in_place(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).bernoulli_(0.5)

    def in_place_tensor(x: torch.Tensor) -> torch.Tensor:
        return torch.empty_like(x).bernoulli_(torch.sigmoid(x))

    def gaps(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros_like(x)
        y[:, ::2].bernoulli_(0.5)
        return y

    for fn in (functional, in_place, in_place_tensor, gaps):
        check(fn, lambda: (torch.randn(6, 8).t(),))


@pytest.mark.parametrize(
    "name", ["normal_", "uniform_", "exponential_", "log_normal_", "cauchy_"]
)
def test_random_in_place(name: str) -> None:
    def fill(x: torch.Tensor) -> torch.Tensor:
        return getattr(torch.empty_like(x), name)() * 2

    check(fill, lambda: (torch.randn(6, 8, 3).permute(2, 0, 1),))


def test_an_output_without_a_gradient_still_requires_grad() -> None:
    def count(x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.vector_norm(x, 0)

    check(count, lambda: (torch.randn(5, requires_grad=True),))


@pytest.mark.parametrize("backend", AOT)
def test_unused_outputs_give_no_gradient(backend: str) -> None:
    def two(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.sin() * 2, y.cos() * 3

    framejit.reset()
    compiled = framejit.compile(two, backend=backend)
    for output in (0, 1):
        x = torch.randn(4, requires_grad=True)
        y = torch.randn(4, requires_grad=True)
        compiled(x, y)[output].sum().backward()
        used, unused = (x, y) if output == 0 else (y, x)
        assert used.grad is not None
        assert unused.grad is None
    assert fallbacks(compiled) == []


def test_groups_that_would_need_each_other() -> None:
    check(
        lambda a, b: F.cosine_similarity(a, b, dim=1),
        lambda: (
            torch.randn(5, 5, requires_grad=True),
            torch.randn(5, 5, requires_grad=True),
        ),
        graphs=1,
    )


def test_layouts_of_results() -> None:
    def mixed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        a = x.t() + 1
        b = torch.empty_like(a).copy_(y.t())
        c = torch.zeros(8, 6).t().add_(y)
        return a, b, c, (a * b).clone(), torch.zeros_like(x).t() * 2

    check(mixed, lambda: (torch.randn(8, 6, requires_grad=True), torch.randn(6, 8).t()))


def test_a_layout_that_functionalization_changes() -> None:
    def write(x: torch.Tensor) -> torch.Tensor:
        y = torch.zeros(8, 6).t()
        y.copy_(x)
        y.mul_(2)
        return y.exp_()

    check(write, lambda: (torch.randn(6, 8),))


@pytest.mark.parametrize("backend", AOT)
def test_numbers_asked_of_symbolic_sizes(backend: str) -> None:
    def attend(q: torch.Tensor) -> torch.Tensor:
        return F.scaled_dot_product_attention(q, q, q, dropout_p=0.2)

    framejit.reset()
    compiled = framejit.compile(attend, backend=backend)
    for size in (4, 6, 9, 4):
        q = torch.randn(2, 3, size, 8, requires_grad=True)
        torch.manual_seed(1)
        expected = attend(q)
        torch.manual_seed(1)
        actual = compiled(q)
        torch.testing.assert_close(actual, expected)
    assert fallbacks(compiled) == []


def test_a_leaf_made_in_the_graph_stays_a_leaf() -> None:
    def make(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = torch.ones(4, requires_grad=True)
        return x * y, y

    check(make, lambda: (torch.randn(4, requires_grad=True),))


@pytest.mark.parametrize("name", ["ldexp_", "add_", "addr_"])
def test_in_place_operations_do_not_grow(name: str) -> None:
    def write(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x = x.clone()
        return x.addr_(y, y) if name == "addr_" else getattr(x, name)(y)

    check(write, lambda: (torch.randn(5, 1), torch.randn(5)))


# What eager refuses is refused, too, where nobody uses the result.
@pytest.mark.parametrize("backend", ("eager", "aot_eager", "native"))
@pytest.mark.parametrize(
    "unused",
    (
        lambda x, i: F.softplus(i),
        lambda x, i: torch.lerp(i, i, 0.5),
        lambda x, i: torch.addmv(x[0], x.double(), x[0]),
        lambda x, i: True - x,
        lambda x, i: x.double() @ x,
    ),
)
def test_unused_operations_refuse_types_as_in_eager(unused, backend):
    def f(x, i):
        y = x * 2
        unused(x, i)
        return y + 1

    compiled = framejit.compile(f, backend=backend)
    args = torch.randn(3, 3), torch.arange(3)
    for _ in range(2):
        with pytest.raises(Exception) as expected:
            f(*args)
        with pytest.raises(Exception) as actual:
            compiled(*args)
        assert str(actual.value) == str(expected.value)
        assert type(actual.value) is type(expected.value)


@pytest.mark.parametrize("backend", ("eager", "aot_eager", "native"))
@pytest.mark.parametrize("make", ("unbind", "split", "chunk"))
def test_one_of_several_views_is_not_written_to(make, backend):
    def f(x):
        y = x * 2
        return y, getattr(y, make)(*(() if make == "unbind" else (2,)))

    compiled = framejit.compile(f, backend=backend)
    for _ in range(2):
        found = []
        for call in (f, compiled):
            _, views = call(torch.ones(4, 3, requires_grad=True))
            with pytest.raises(RuntimeError) as error:
                views[0].mul_(2)
            found.append(str(error.value))
        assert found[0].split(" ")[3:] == found[1].split(" ")[3:]


WEIGHT = torch.nn.Parameter(torch.randn(4, 4))

VIEWS_OF_WEIGHT = {
    "slice": lambda w: w[2:],
    "transpose": lambda w: w.T[1:3],
    "row": lambda w: w[0],
    "reshape": lambda w: w.view(-1, 4),
    "expand": lambda w: w.expand(2, 4, 4),
    "chunk": lambda w: w.chunk(2)[1],
    "twice": lambda w: w.T.unsqueeze(1),
}


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("view", VIEWS_OF_WEIGHT.values(), ids=VIEWS_OF_WEIGHT)
@pytest.mark.parametrize("grad", [False, True])
def test_views_of_parameters_without_grad_mode_are_lowered(view, backend, grad):
    """They say that they require grad, and are no leaves a backward could miss."""

    def fn(x):
        with torch.no_grad():
            kept = view(WEIGHT)
        y = kept.sum(0) + x if grad else kept * x[:1]
        return y * WEIGHT.sum()

    compiled = framejit.compile(fn, backend=backend)
    results = []
    for function in (fn, compiled, compiled):
        WEIGHT.grad = None
        x = torch.ones(4, 4, requires_grad=True)
        with torch.set_grad_enabled(grad):
            result = function(x)
        if grad:
            result.sum().backward()
        results.append((result, x.grad, WEIGHT.grad))
    for result in results[1:]:
        torch.testing.assert_close(result, results[0])
    assert framejit.inspect(compiled)[0].fallback_reason == ""


@pytest.mark.parametrize("requires_grad", [False, True])
def test_leaves_made_inside_are_lowered(requires_grad):
    def fn(x):
        basis = torch.eye(4, requires_grad=True)
        kept = torch.zeros(4, 4, requires_grad=True)
        with torch.no_grad():
            kept.add_(x)
        return x @ basis * WEIGHT, kept * x

    check(
        fn,
        lambda: (torch.ones(4, 4, requires_grad=requires_grad),),
        graphs=1,
        breaks=0,
    )
    compiled = framejit.compile(fn, backend="native")
    compiled(torch.ones(4, 4, requires_grad=requires_grad))
    assert fallbacks(compiled) == []


def test_a_leaf_made_inside_is_no_computed_output():
    def fn(x):
        basis = torch.eye(4, requires_grad=True)
        return (x @ basis).sum(), basis

    compiled = framejit.compile(fn, backend="native")
    for function in (fn, compiled, compiled):
        total, basis = function(torch.ones(4, 4))
        total.backward()
        assert basis.is_leaf and torch.equal(basis.grad, torch.full((4, 4), 4.0))


def test_a_view_of_a_parameter_made_without_grad_mode_is_no_computed_output():
    def fn(x):
        with torch.no_grad():
            return WEIGHT[1:], x + 1

    compiled = framejit.compile(fn, backend="native")
    for function in (fn, compiled, compiled):
        view, _ = function(torch.ones(2))
        assert view.requires_grad and view.is_leaf and view._base is WEIGHT


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("write", ["input", "output"])
def test_writes_between_forward_and_backward_are_refused_as_in_eager(backend, write):
    """The forward may save what eager saves of a tensor others can write to, and
    not that tensor in its place."""

    def fn(x, w):
        shown = x + 1
        return (-x * w).sum() + (shown.abs() * w).sum(), shown

    def refused(x, w):
        return (x * w).sum(), x

    compiled = framejit.compile(fn, backend=backend)
    grads = []
    for function in (fn, compiled, compiled):
        x, w = torch.arange(4.0), torch.ones(4, requires_grad=True)
        loss, shown = function(x, w)
        (x if write == "input" else shown).add_(1)
        loss.backward()
        grads.append(w.grad)
    assert torch.equal(grads[0], grads[1]) and torch.equal(grads[0], grads[2])
    compiled = framejit.compile(refused, backend=backend)
    for function in (refused, compiled, compiled):
        x, w = torch.arange(4.0), torch.ones(4, requires_grad=True)
        loss, shown = function(x, w)
        shown.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
