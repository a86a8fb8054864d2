"""Gradients of gradients: what eager gives, on the first call and on later ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

BACKENDS = ("eager", "aot_eager", "native")
DOUBLE = {"dtype": torch.double}
Fn = Callable[..., Any]


def close(expected: Any, actual: Any, where: str, **limits: float) -> None:
    if expected is None or actual is None:
        assert expected is actual, where
    elif isinstance(expected, torch.Tensor):
        torch.testing.assert_close(
            actual, expected, equal_nan=True, msg=lambda m: f"{where}: {m}", **limits
        )
    else:
        assert len(expected) == len(actual), where
        for i, (a, b) in enumerate(zip(expected, actual)):
            close(a, b, f"{where}[{i}]", **limits)


def outcome(program: Fn, *args: Any) -> tuple[Any, str]:
    try:
        return program(*args), ""
    except Exception as error:
        return None, f"{type(error).__name__}: {error}"


def same_program(
    program: Callable[[Fn], Any],
    make: Callable[[], Fn],
    calls: int = 7,
    **limits: float,
) -> None:
    """`program(f)` with eager's `make()` and with a compiled one, again and again."""
    for backend in BACKENDS:
        framejit.reset()
        torch.manual_seed(0)
        plain = make()
        torch.manual_seed(0)
        compiled = framejit.compile(make(), backend=backend)
        for number in range(calls):
            torch.manual_seed(number)
            expected, error = outcome(program, plain)
            torch.manual_seed(number)
            actual, other = outcome(program, compiled)
            assert error == other, f"{backend}, call {number}"
            close(expected, actual, f"{backend}, call {number}", **limits)


def grad(output: torch.Tensor, inputs: Any, **options: Any) -> Any:
    return torch.autograd.grad(output.sum(), inputs, create_graph=True, **options)


def mlp(**options: Any) -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 8, **options), nn.Tanh(), nn.Linear(8, 1, **options)
    )


# ---- what people do


@pytest.mark.parametrize(
    "activation", [nn.Tanh, nn.ReLU, nn.LeakyReLU, nn.Softplus, nn.GELU]
)
def test_gradient_penalty(activation: Any) -> None:
    def critic() -> nn.Module:
        return nn.Sequential(
            nn.Conv2d(1, 4, 3), activation(), nn.Flatten(), nn.Linear(16, 1)
        )

    def step(critic: Any) -> Any:
        real, fake = torch.randn(2, 5, 1, 4, 4)
        mix = torch.rand(5, 1, 1, 1)
        between = (real * mix + fake * (1 - mix)).requires_grad_()
        (g,) = grad(critic(between), between)
        penalty = ((g.flatten(1).norm(dim=1) - 1) ** 2).mean()
        loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        critic.zero_grad()
        loss.backward()
        return [loss.detach(), *(p.grad.clone() for p in critic.parameters())]

    same_program(step, critic, rtol=1e-4, atol=1e-5)


def test_hessian_vector_product() -> None:
    def product(model: Any) -> Any:
        x = torch.randn(4, 3, **DOUBLE)
        weights = list(model.parameters())
        gradients = grad(model(x) ** 2, weights)
        v = [torch.randn_like(w) for w in weights]
        inner = sum((g * u).sum() for g, u in zip(gradients, v))
        return torch.autograd.grad(inner, weights)

    same_program(product, lambda: mlp(**DOUBLE))


def test_inner_loop_of_maml() -> None:
    def make() -> Fn:
        def model(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return F.linear(x, w, b).sin()

        return model

    def adapt(model: Fn) -> Any:
        w = torch.randn(2, 3, **DOUBLE).requires_grad_()
        b = torch.zeros(2, **DOUBLE).requires_grad_()
        x, y = torch.randn(5, 3, **DOUBLE), torch.randn(5, 2, **DOUBLE)
        fast = [w, b]
        for _ in range(3):
            gradients = grad((model(x, *fast) - y) ** 2, fast)
            fast = [p - 0.1 * g for p, g in zip(fast, gradients)]
        loss = ((model(x, *fast) - y) ** 2).mean()
        return [loss.detach(), *torch.autograd.grad(loss, [w, b])]

    same_program(adapt, make)


def test_second_and_third_derivatives_of_a_network() -> None:
    def residual(net: Any) -> Any:
        x = torch.rand(6, 3, **DOUBLE).requires_grad_()
        u = net(x)
        (first,) = grad(u, x)
        (second,) = grad(first[:, 0], x)
        (third,) = grad(second[:, 1], x)
        loss = (third[:, 2] + second[:, 0] - u[:, 0] * first[:, 1]).pow(2).mean()
        gradients = torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
        return [first, second, third, loss, *gradients]

    same_program(residual, lambda: mlp(**DOUBLE))


def test_functional_hessian_and_products() -> None:
    def make() -> Fn:
        return lambda x: (x.sin() * x.exp()).prod()

    def program(f: Fn) -> Any:
        functional = torch.autograd.functional
        x = torch.randn(4, **DOUBLE)
        return [
            functional.hessian(f, x),
            functional.hvp(f, x, x)[1],
            functional.vhp(f, x, x * 2)[1],
            functional.jvp(f, x, x)[1],
            functional.jacobian(f, x, create_graph=True),
        ]

    same_program(program, make)


def test_gradgradcheck() -> None:
    def f(x: torch.Tensor, y: torch.Tensor) -> Any:
        z = x.sin() @ y
        return z.tanh(), (z * 2).logsumexp(0)

    for backend in BACKENDS:
        compiled = framejit.compile(f, backend=backend)
        x = torch.randn(3, 2, **DOUBLE).requires_grad_()
        y = torch.randn(2, 3, **DOUBLE).requires_grad_()
        assert torch.autograd.gradcheck(compiled, (x, y))
        assert torch.autograd.gradgradcheck(compiled, (x, y))


def test_transforms_of_compiled_functions() -> None:
    def make() -> Fn:
        return lambda x: (x**3).sum() * x.sin().sum()

    def program(f: Fn) -> Any:
        x = torch.randn(3, **DOUBLE)
        hessian = torch.func.hessian(f)(x)
        return [hessian, torch.func.jacrev(torch.func.grad(f))(x)]

    same_program(program, make)


# ---- kinds of modules and programs

MODULES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "linear": (lambda: nn.Linear(4, 3), (5, 4)),
    "bilinear": (lambda: _Twice(nn.Bilinear(4, 4, 3)), (5, 4)),
    "conv1d": (lambda: nn.Conv1d(2, 3, 2), (3, 2, 5)),
    "conv2d": (lambda: nn.Conv2d(2, 3, 3, padding=1), (2, 2, 4, 4)),
    "conv_transpose": (lambda: nn.ConvTranspose2d(2, 3, 3), (2, 2, 4, 4)),
    "batch_norm": (lambda: nn.BatchNorm1d(4), (5, 4)),
    "batch_norm_eval": (lambda: nn.BatchNorm1d(4).eval(), (5, 4)),
    "batch_norm_2d": (
        lambda: nn.Sequential(nn.Conv2d(2, 3, 2), nn.BatchNorm2d(3)),
        (2, 2, 4, 4),
    ),
    "layer_norm": (lambda: nn.LayerNorm(4), (5, 4)),
    "group_norm": (lambda: nn.GroupNorm(2, 4), (5, 4, 3)),
    "instance_norm": (lambda: nn.InstanceNorm1d(4), (5, 4, 3)),
    "dropout": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.4), nn.Tanh()),
        (5, 4),
    ),
    "max_pool": (lambda: nn.MaxPool2d(2), (2, 2, 4, 4)),
    "avg_pool": (lambda: nn.AvgPool2d(2), (2, 2, 4, 4)),
    "adaptive_pool": (lambda: nn.AdaptiveAvgPool2d(2), (2, 2, 4, 4)),
    "rnn": (lambda: _First(nn.RNN(3, 4)), (2, 2, 3)),
    "lstm": (lambda: _First(nn.LSTM(3, 4)), (2, 2, 3)),
    "gru": (lambda: _First(nn.GRU(3, 4)), (2, 2, 3)),
    "attention": (lambda: _Self(nn.MultiheadAttention(4, 2)), (3, 2, 4)),
    "upsample": (lambda: nn.Upsample(scale_factor=2, mode="bilinear"), (1, 2, 3, 3)),
    "prelu": (lambda: nn.PReLU(), (3, 4)),
    "spectral_norm": (
        lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 3)),
        (5, 4),
    ),
    "weight_norm": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 3)),
        (5, 4),
    ),
    "inplace_relu": (
        lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True)),
        (5, 4),
    ),
    "cosine": (lambda: _Twice(nn.CosineSimilarity()), (5, 4)),
}


class _First(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x)[0]


class _Self(_First):
    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x, x, x)[0]


class _Twice(_First):
    def forward(self, x: torch.Tensor) -> Any:
        return self.inner(x, x * 2)


@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str) -> None:
    make, shape = MODULES[name]

    def program(module: Any) -> Any:
        x = torch.randn(shape, **DOUBLE).requires_grad_()
        inputs = [x, *(p for p in module.parameters() if p.requires_grad)]
        gradients = grad(module(x).pow(2), inputs, allow_unused=True)
        total = sum(
            (g * g).sum() for g in gradients if g is not None and g.requires_grad
        )
        again = torch.autograd.grad(total, inputs, allow_unused=True)
        return [*gradients, *again, *(b.clone() for b in module.buffers())]

    same_program(program, lambda: make().double(), calls=4, rtol=1e-6, atol=1e-7)


PROGRAMS: dict[str, Fn] = {
    "views": lambda x, y: (x * 2).view(-1)[2:],
    "alias_of_input": lambda x, y: (x, x.view(-1), (x * y).t()),
    "outputs_that_share": lambda x, y: ((z := x.exp() * y), z.view(-1), z[0]),
    "in_place": lambda x, y: (x * y).sin_().mul_(y).add_(x),
    "assigned": lambda x, y: _assigned(x * 1, y),
    "no_grad_inside": lambda x, y: x * _detached(y) + y.sin(),
    "detach": lambda x, y: x.detach() * y + x,
    "unused_input": lambda x, y: x.sin(),
    "unused_value": lambda x, y: (x + y, x - y),
    "constants": lambda x, y: x * torch.arange(4.0) + torch.ones(3, 4) * y,
    "random": lambda x, y: F.dropout(x * y, 0.5) * torch.rand(3, 4),
    "bernoulli": lambda x, y: torch.bernoulli(x.sigmoid()) * y.sin() * x,
    "grad_inside": lambda x, y: torch.autograd.grad(
        (x**3 * y).sum(), x, create_graph=True
    )[0],
    "checkpoint": lambda x, y: torch.utils.checkpoint.checkpoint(
        lambda a, b: (a * b).sin(), x, y, use_reentrant=False
    ),
    "hook": lambda x, y: _hooked(x * y).sin(),
    "function": lambda x, y: Cube.apply(x * y),
    "function_once": lambda x, y: OnceCube.apply(x) * y,
    "vmap": lambda x, y: torch.vmap(lambda a, b: (a * b).sin().sum())(x, y),
    "func_grad": lambda x, y: torch.func.grad(lambda a: (a.sin() * y).sum())(x),
    "integers": lambda x, y: x[torch.tensor([2, 0])] * y[:2],
    "where": lambda x, y: torch.where(x > 0, x * y, y.exp()),
    "linalg": lambda x, y: torch.linalg.inv(x @ y.mT + 5 * torch.eye(3)),
    "fft": lambda x, y: torch.fft.rfft(x * y).abs(),
    "cumulative": lambda x, y: (x * y).cumsum(0).logcumsumexp(1),
    "gather": lambda x, y: (x * y).gather(0, torch.tensor([[0, 1, 2, 0]])),
    "norm": lambda x, y: (x * y).norm(dim=1) + torch.cdist(x, y).mean(),
    "loss": lambda x, y: F.mse_loss(x, y.detach()) + F.huber_loss(x, y),
    "cross_entropy": lambda x, y: F.cross_entropy(x * y, torch.tensor([0, 3, 1])),
    "attention": lambda x, y: F.softmax(x @ y.mT, -1) @ y,
}


def _assigned(made: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    made[1:] = y[1:] * 2
    return made.sin()


@torch.no_grad()
def _detached(y: torch.Tensor) -> torch.Tensor:
    return y.exp()


def _hooked(x: torch.Tensor) -> torch.Tensor:
    x.register_hook(lambda g: g * g)
    return x


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grads[0] * 3 * x**2


class OnceCube(Cube):
    backward = staticmethod(torch.autograd.function.once_differentiable(Cube.backward))


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name: str) -> None:
    f = PROGRAMS[name]

    def program(f: Fn) -> Any:
        x, y = torch.randn(2, 3, 4).requires_grad_().unbind(0)
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        result = f(x, y)
        outputs = result if isinstance(result, tuple) else (result,)
        found: list[Any] = []
        # Each output alone, then all.
        for chosen in (*((o,) for o in outputs), outputs):
            total = sum((o * o).sum() for o in chosen)
            gradients = torch.autograd.grad(
                total, [x, y], create_graph=True, allow_unused=True
            )
            found += gradients
            again = sum((g.sin()).sum() for g in gradients if g is not None)
            found += torch.autograd.grad(
                again, [x, y], retain_graph=True, allow_unused=True
            )
        return found

    same_program(program, lambda: f, calls=3, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["non_leaf", "mixed", "no_grad_input"])
def test_inputs_of_any_kind(name: str) -> None:
    def program(f: Fn) -> Any:
        base = torch.randn(3, **DOUBLE).requires_grad_()
        other = torch.randn(3, **DOUBLE).requires_grad_(name != "no_grad_input")
        x = base.sin() if name != "mixed" else base
        seen = []
        if x.grad_fn:
            x.register_hook(lambda g: seen.append(g.detach()))
        (g,) = grad(f(x, other), x)
        h = torch.autograd.grad((g * g).sum(), base)
        return [g, *h, *seen]

    same_program(program, lambda: lambda x, y: (x * y).exp() * x)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_is_restored(dtype: torch.dtype) -> None:
    def program(model: Any) -> Any:
        x = torch.randn(4, 3).requires_grad_()
        with torch.autocast("cpu", dtype=dtype):
            y = model(x)
        (g,) = grad(y.float(), x)
        again = torch.autograd.grad(
            (g * g).sum(), [x, *model.parameters()], allow_unused=True
        )
        return [y, g, *again]

    same_program(program, mlp, rtol=1e-2, atol=1e-2)


def test_backward_under_autocast() -> None:
    def program(model: Any) -> Any:
        x = torch.randn(4, 3).requires_grad_()
        y = model(x)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            (g,) = grad(y, x)
        return [y, g, *torch.autograd.grad((g * g).sum(), list(model.parameters())[:3])]

    same_program(program, mlp, rtol=3e-2, atol=3e-2)


def test_default_dtype_is_restored() -> None:
    def f(x: torch.Tensor) -> Any:
        return x.sin() * torch.ones(3) * torch.arange(3.0)

    def program(f: Fn) -> Any:
        x = torch.randn(3, **DOUBLE).requires_grad_()
        torch.set_default_dtype(torch.double)
        try:
            y = f(x)
        finally:
            torch.set_default_dtype(torch.float)
        (g,) = grad(y, x)
        return [g, *torch.autograd.grad(g.sum(), x)]

    same_program(program, lambda: f)


def test_random_state_is_that_of_the_forward() -> None:
    def f(x: torch.Tensor) -> Any:
        return F.dropout(x.sin(), 0.5) * torch.randn_like(x)

    def program(f: Fn) -> Any:
        x = torch.randn(20).requires_grad_()
        y = f(x)
        drawn = torch.rand(3)
        (g,) = grad(y, x)
        after = torch.rand(3)
        (h,) = torch.autograd.grad((g * x).sum(), x)
        return [y, g, h, drawn, after, torch.rand(3)]

    same_program(program, lambda: f)


# ---- writes


class Counts(nn.Module):
    """A buffer whose old content the result needs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.ones(3, **DOUBLE))
        self.weight = nn.Parameter(torch.ones(3, **DOUBLE) * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = (x * self.seen.sin()) ** 2 * self.weight
        self.seen.add_(1)
        return result


def test_the_graph_writes_what_it_read() -> None:
    def program(model: Any) -> Any:
        x = torch.randn(3, **DOUBLE).requires_grad_()
        y, z = model(x), model(x)
        first = grad(y, [x, model.weight])
        second = grad(z, [x, model.weight])
        total = (first[0] * second[1]).sum()
        return [*first, *second, *torch.autograd.grad(total, x), model.seen.clone()]

    same_program(program, Counts)


@pytest.mark.parametrize("written", ["input", "parameter", "not_needed", "output"])
def test_writes_behind_the_forward_are_refused_as_in_eager(written: str) -> None:
    def make() -> Fn:
        return lambda x, w, b: x * w * w + b

    def program(f: Fn) -> Any:
        x = torch.randn(3, **DOUBLE).requires_grad_()
        w = torch.randn(3, **DOUBLE).requires_grad_()
        b = torch.randn(3, **DOUBLE)
        y = f(x, w, b)
        with torch.no_grad():
            {"input": x, "parameter": w, "not_needed": b, "output": y}[written].add_(1)
        gradients = grad(y, [x, w])
        return [*gradients, *torch.autograd.grad(gradients[1].sum(), [x, w])]

    for backend in ("aot_eager", "native"):
        compiled = framejit.compile(make(), backend=backend)
        for _ in range(3):
            torch.manual_seed(0)
            expected, error = outcome(program, make())
            torch.manual_seed(0)
            actual, other = outcome(program, compiled)
            assert bool(error) == bool(other), (error, other)
            # Eager names the operation, too.
            assert error.split(":")[:2] == other.split(":")[:2]
            close(expected, actual, backend)


# ---- undefined gradients, one after the other


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_a_write_to_what_eager_did_not_save_is_refused_once(backend: str) -> None:
    framejit.reset()
    weight = nn.Parameter(torch.tensor([0.5]))

    def fn(x: torch.Tensor) -> torch.Tensor:  # relu saves its result
        return torch.sigmoid(torch.relu(x) * weight) * weight

    def second(f: Fn) -> tuple[torch.Tensor, torch.Tensor]:
        x = torch.tensor([0.5, -1.0, 2.0])
        y = f(x)
        x.add_(1)
        (first,) = torch.autograd.grad(y.sum(), weight, create_graph=True)
        return first, torch.autograd.grad(first.square().sum(), weight)[0]

    expected = second(fn)
    compiled = framejit.compile(fn, backend=backend)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        second(compiled)
    for _ in range(2):
        close(expected, second(compiled), backend)


def test_undefined_gradients_and_a_second_derivative() -> None:
    def f(x: torch.Tensor) -> Any:
        return x.log(), x**3, x.sqrt()

    def program(f: Fn) -> Any:
        x = torch.zeros(3, **DOUBLE).requires_grad_()
        _, cube, _ = f(x)
        (g,) = grad(cube, x)
        (h,) = grad(g, x)
        return [g, h, *torch.autograd.grad(h.sum(), x)]

    same_program(program, lambda: f)


def test_first_order_and_second_order_of_one_call() -> None:
    def program(model: Any) -> Any:
        x = torch.randn(4, 3, **DOUBLE).requires_grad_()
        y = model(x)
        (plain,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
        (g,) = grad(y, x)
        (again,) = torch.autograd.grad(g.pow(2).sum(), x, retain_graph=True)
        model.zero_grad()
        (y.sum() + g.pow(2).sum()).backward()
        return [plain, g, again, *(p.grad.clone() for p in model.parameters())]

    same_program(program, lambda: mlp(**DOUBLE))


def test_a_graph_that_was_freed() -> None:
    def program(model: Any) -> Any:
        x = torch.randn(4, 3, **DOUBLE).requires_grad_()
        y = model(x)
        torch.autograd.grad(y.sum(), x)
        return grad(y, x)

    same_program(program, lambda: mlp(**DOUBLE))


def test_gradients_of_tangents() -> None:
    def program(f: Fn) -> Any:
        x = torch.randn(3, **DOUBLE).requires_grad_()
        v = torch.randn(3, **DOUBLE).requires_grad_()
        (g,) = torch.autograd.grad(f(x), x, v, create_graph=True)
        return [g, *torch.autograd.grad((g * g).sum(), [x, v])]

    same_program(program, lambda: lambda x: x.sin() * x)


def test_sizes_that_change() -> None:
    def f(x: torch.Tensor) -> Any:
        return (x.unsqueeze(0) * x.unsqueeze(1)).sin().sum(0) * x.shape[0]

    for backend in BACKENDS:
        compiled = framejit.compile(f, backend=backend, dynamic=True)
        for size in (3, 4, 7, 5):
            found = []
            for fn in (f, compiled):
                torch.manual_seed(size)
                x = torch.randn(size, **DOUBLE).requires_grad_()
                (g,) = grad(fn(x), x)
                found.append([g, *torch.autograd.grad((g * g).sum(), x)])
            close(*found, backend)


# ---- what is said and kept


def test_the_first_one_is_logged_once() -> None:
    compiled = framejit.compile(mlp())
    framejit.reset()
    for _ in range(20):
        x = torch.randn(4, 3, requires_grad=True)
        (g,) = grad(compiled(x), x)
        g.sum().backward()
    lines = [text for _, text in framejit.events() if "gradient of" in text]
    assert 1 <= len(lines) <= 2, lines


def test_effects_happen_once() -> None:
    def make() -> Fn:
        calls: list[int] = []

        def f(x: torch.Tensor) -> Any:
            calls.append(x.shape[0])
            return x.sin() * len(calls)

        f.calls = calls  # type: ignore[attr-defined]
        return f

    for backend in BACKENDS:
        f = make()
        compiled = framejit.compile(f, backend=backend)
        for number in range(1, 4):
            x = torch.randn(3, **DOUBLE).requires_grad_()
            (g,) = grad(compiled(x), x)
            close(g, x.cos() * number, backend)
            close(torch.autograd.grad(g.sum(), x)[0], -x.sin() * number, backend)
            assert len(f.calls) == number  # type: ignore[attr-defined]
