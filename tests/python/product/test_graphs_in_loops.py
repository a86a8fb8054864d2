"""Whole graphs as loops: machine code of both instruction sets, and the
interpreter, give what eager gives."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import differential
import framejit

SIZES = (0, 1, 2, 7, 16, 17, 33)


def numbers(*sizes: int, dtype: torch.dtype, train: bool) -> torch.Tensor:
    values = torch.randn(*sizes, dtype=torch.float64).to(dtype)
    return values.requires_grad_(train)


def chain(x, y):
    return ((x * y + 1.0).relu() - y * 0.5) * x


def activations(x, y):
    return F.gelu(x) + F.silu(y) * x.tanh() - y.sigmoid().exp().clamp(max=3.0)


def branches(x, y):
    return torch.where(x > y, x.abs().sqrt(), y.clamp(-1, 1)) + (x == y).to(x.dtype)


def softmax(x, y):
    return x.softmax(-1) * y, (x + y).log_softmax(0)


def norms(x, y):
    normal = F.layer_norm(x, (x.shape[-1],), y[0], y[0])
    return normal, x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6)


def columns(x, y):
    return x.sum(0), y.mean(0), (x * y).sum(), x.square().sum(-1)


def transposed(x, y):
    return x.t() + y, (x.t() * 2).contiguous() - y.flip(0)


def parts(x, y):
    a, b = x.chunk(2, 0)
    return torch.cat((b * 2, a), 0), torch.stack((x, y), 1)[:, 0] + y


def products(x, y):
    return F.gelu(x @ y) + x, (x @ y.t()).relu().sum(-1)


def products_in_other_shapes(x, y):
    z = (x @ y.t()).reshape(-1).relu()
    return z.sort()[0], z + 1


def written(x, y):
    z = x * 1
    z[0] = y[0]
    z[:, :1] += 1
    return z, z.cumsum(-1)


TWO_TENSORS = (
    *(chain, activations, branches, softmax, norms),
    *(columns, transposed, parts, products, written),
)


@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("program", TWO_TENSORS)
def test_programs(
    isa: str, program: Callable[..., object], dtype: torch.dtype, train: bool
) -> None:
    for size in (8, 17):
        differential.check(
            program,
            lambda size=size: tuple(
                numbers(size, size, dtype=dtype, train=train) for _ in range(2)
            ),
            backends=("native",),
        )


def outcome(run: Callable[..., object], tensors: list[torch.Tensor]) -> list:
    result = run(*tensors)
    results = [result] if isinstance(result, torch.Tensor) else list(result)
    total = sum(tensor.float().square().sum() for tensor in results)
    return [*results, *torch.autograd.grad(total, tensors)]


@pytest.mark.parametrize("program", TWO_TENSORS)
def test_errors_in_bfloat16(isa: str, program: Callable[..., object]) -> None:
    """At most twice eager's, by a run in float64."""
    torch.manual_seed(0)
    tensors = [numbers(17, 17, dtype=torch.bfloat16, train=True) for _ in range(2)]
    exact = [t.detach().double().requires_grad_() for t in tensors]
    mine = outcome(framejit.compile(program), tensors)
    found = zip(mine, outcome(program, tensors), outcome(program, exact), strict=True)
    for ours, eager, truth in found:
        assert ours.dtype == eager.dtype
        error = (ours.double() - truth).abs().max()
        rounding = truth.abs().max() * 2.0**-8
        assert error <= 2 * (eager.double() - truth).abs().max() + rounding


@pytest.mark.parametrize("program", [chain, softmax, columns, transposed])
def test_symbolic_sizes(isa: str, program: Callable[..., object]) -> None:
    compiled = framejit.compile(program, dynamic=True)
    for size in SIZES:
        x, y = (torch.randn(size, size) for _ in range(2))
        expected = program(x, y)
        torch.testing.assert_close(compiled(x, y), expected)


def test_it_is_loops_that_run(isa: str) -> None:
    compiled = framejit.compile(lambda x, y: chain(x, y) @ y)
    compiled(torch.randn(8, 8), torch.randn(8, 8))
    (entry,) = framejit.inspect(compiled)
    text = "\n".join(entry.kernels)
    assert "# loops: aten.mul.Tensor" in text
    assert "aten.mm" in text


def test_an_index_out_of_range_raises_what_eager_raises(isa: str) -> None:
    def program(table, index):
        return table * 2 + 1, F.embedding(index, table) * 3

    compiled = framejit.compile(program)
    table = torch.randn(5, 3)
    good, bad = torch.tensor([0, 4, 2]), torch.tensor([0, 5])
    for _ in range(2):
        torch.testing.assert_close(compiled(table, good), program(table, good))
        with pytest.raises(IndexError) as eager:
            program(table, bad)
        with pytest.raises(IndexError) as mine:
            compiled(table, bad)
        assert str(mine.value) == str(eager.value)


KEPT = torch.zeros(4)


@torch.library.custom_op("framejit_tests::kept", mutates_args=())
def kept(x: torch.Tensor) -> torch.Tensor:
    return KEPT


@kept.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_what_an_operator_keeps_is_not_written_over(isa: str) -> None:
    KEPT.fill_(1.0)
    compiled = framejit.compile(lambda x: (kept(x) * 2 + x) * 3)
    x = torch.ones(4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), torch.full((4,), 9.0))
        assert KEPT.tolist() == [1.0] * 4


LOGGED: list[float] = []


@torch.library.custom_op("framejit_tests::logged", mutates_args=())
def logged(x: torch.Tensor) -> torch.Tensor:
    LOGGED.append(float(x.sum()))
    return x.clone()


@logged.register_fake
def _(x: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(x)


def test_calls_run_for_their_effect(isa: str) -> None:
    def random_numbers(x):
        torch.rand(1)
        F.dropout(x, 0.5)
        return x + torch.rand(1)

    differential.check(random_numbers, lambda: (torch.ones(3),), backends=("native",))

    def calls(x):
        logged(x)
        return logged(x * 2) + 1

    compiled = framejit.compile(calls)
    LOGGED.clear()
    compiled(torch.ones(2))
    assert LOGGED == [2.0, 4.0]

    def refuses(x):
        torch.linalg.inv(x)
        return x + 1

    compiled = framejit.compile(refuses)
    compiled(torch.eye(2))
    with pytest.raises(torch.linalg.LinAlgError):
        compiled(torch.zeros(2, 2))


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.roll(4, 0),
        lambda x: x.flip([]),
        lambda x: x[:1].flip(0),
        lambda x: x.rot90(0, (0, 1)),
        lambda x: torch.permute_copy(x, (0, 1)),
        lambda x: torch.t_copy(x),
        lambda x: torch.slice_copy(x, 0, 0, 2),
        lambda x: torch.diagonal_copy(x),
        lambda x: torch.expand_copy(x, (4, 4)),
    ],
)
def test_fresh_results_own_their_memory(
    isa: str, function: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    def before_a_write(x):
        y = function(x)
        x.add_(1)
        return y

    def two_results(x):
        y = x * 2
        return y, function(y)

    for program in (function, before_a_write, two_results):
        differential.check(program, lambda: (torch.randn(4, 4),), backends=("native",))


REFUSED = {
    "a dim": lambda x, i: x.flip(2),
    "a dim named twice": lambda x, i: x.flip((0, 0)),
    "a negative row": lambda x, i: F.embedding(i - 1, x),
    "a row of nothing": lambda x, i: x[:, :0][i + 5],
    "a number": lambda x, i: torch.full((2,), 300, dtype=torch.uint8) + i,
    "a float": lambda x, i: torch.full((2,), 1e39) + x.sum(),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_is_refused(isa: str, name: str) -> None:
    program = REFUSED[name]
    differential.check(
        program,
        lambda: (torch.randn(3, 4), torch.zeros(2, dtype=torch.int64)),
        backends=("native",),
    )


REFUSED_CALLS = {
    "an order of complex numbers": lambda x: (x + 1j) > 1e-3,
    "softplus of integers": lambda x: F.softplus(x.long()),
    "a gcd of floats": lambda x: torch.gcd(x, x),
    "two types": lambda x: x.mm(x.double()),
    "cross of complex and long": lambda x: torch.addmm((x + 1j), x.long(), x.long()),
}
READERS = {
    "nothing": lambda y: None,
    "loops": lambda y: y.float() + 1,
    "loops of loops": lambda y: (y.float() + 1).sum(),
    "mixed types": lambda y: F.mse_loss(y.bfloat16(), y.float()),
    "a call": lambda y: y.float().mm(y.float()),
    "its size": lambda y: torch.zeros_like(y),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", REFUSED_CALLS)
def test_calls_that_refuse_are_made(isa: str, name: str, reader: str) -> None:
    """Although nobody needs their results in the end."""
    make, read = REFUSED_CALLS[name], READERS[reader]

    def unread(x):
        read(make(x))
        return x + 1

    def returned(x):
        return x + 1, read(make(x))

    for program in (unread, returned):
        differential.check(program, lambda: (torch.rand(4, 4),), backends=("native",))


# What a type does not hold, each in its own way.
NUMBERS: dict[str, Callable[[torch.Tensor, float], torch.Tensor]] = {
    "a factor of a sum": lambda x, a: torch.add(x, x, alpha=a),
    "a factor of a difference": lambda x, a: torch.sub(x, x, alpha=a),
    "a factor of rows": lambda x, a: x.index_add(0, torch.tensor([1]), x[:1], alpha=a),
    "a factor of lists": lambda x, a: torch._foreach_add([x], [x], alpha=a)[0],
    "a factor of a product": lambda x, a: torch.addcmul(x, x, x, value=a),
    "a bound": lambda x, a: F.hardtanh(x, -1, a),
    "a threshold": lambda x, a: F.threshold(x, a, 1.0),
    "a width": lambda x, a: F.softshrink(x, a),
    "a slope": lambda x, a: F.leaky_relu(x, a),
    "a kink": lambda x, a: F.smooth_l1_loss(x, x.flip(0), beta=a),
    "a bend": lambda x, a: F.huber_loss(x, x.flip(0), delta=a),
    "a filling": lambda x, a: x.masked_fill(x > 0, a),
    "a multiple": lambda x, a: x * a,
    "a share": lambda x, a: x / a,
    "an order": lambda x, a: torch.linalg.vector_norm(x, a),
}


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_that_a_type_does_not_hold(
    isa: str, name: str, dtype: torch.dtype
) -> None:
    program = NUMBERS[name]
    x = torch.linspace(-3, 4, 24).to(dtype).view(4, 6)
    for number in (7e4, 1e30, 1e39, float("inf"), float("nan")):
        differential.check(
            lambda x, number=number: program(x + 0, number),
            lambda: (x.clone(),),
            backends=("native",),
            calls=1,
        )
        framejit.reset()
        compiled = framejit.compile(lambda x, number: program(x + 0, number))
        for given in (0.5, 0.25, number):
            expected = differential._run(
                lambda x: program(x + 0, given),  # noqa: B023
                (x.clone(),),
                False,
                0,
            )
            actual = differential._run(
                lambda x: compiled(x, given),  # noqa: B023
                (x.clone(),),
                False,
                0,
            )
            differential.compare(expected, actual)


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64]
)
def test_exponents(isa: str, dtype: torch.dtype) -> None:
    x = torch.tensor([-float("inf"), -0.0, 0.0, 2.0, float("nan")], dtype=dtype)
    compiled = framejit.compile(lambda x, exponent: (x + 0) ** exponent)
    for exponent in (0.3, 0.7, 0.5, -0.5, 2.0, -1.0, 0.0, 1.5, -2.0, 3.0):
        expected = repr((x + 0) ** exponent)
        assert repr(compiled(x, exponent)) == expected
        framejit.reset()
        known = framejit.compile(lambda x: (x + 0) ** exponent)  # noqa: B023
        assert repr(known(x)) == expected


def test_writes_to_arguments(isa: str) -> None:
    def program(x, y):
        x.add_(y).mul_(2)
        y[1:] = x[:-1].relu()
        return x.sum() + y.sum(0)

    differential.check(
        program,
        lambda: tuple(numbers(6, 5, dtype=torch.float32, train=False) for _ in "xy"),
        backends=("native",),
    )


@pytest.mark.parametrize(
    "layout",
    [
        lambda x: x.to(memory_format=torch.channels_last),
        lambda x: x.transpose(1, 3),
        lambda x: x[:, ::2, 1:],
        lambda x: x[:1].expand(3, -1, -1, -1),
    ],
)
def test_layouts(isa: str, layout: Callable[[torch.Tensor], torch.Tensor]) -> None:
    def program(x):
        y = (x * 2 + 1).relu()
        return y, y.sum(1), y.amax((2, 3))

    x = layout(torch.randn(2, 4, 6, 6))
    compiled = framejit.compile(program)
    for mine, theirs in zip(compiled(x), program(x), strict=True):
        assert mine.stride() == theirs.stride()
        torch.testing.assert_close(mine, theirs)


def test_random_numbers_are_eagers(isa: str) -> None:
    def program(x):
        return F.dropout(x * 2, 0.5) + torch.rand_like(x)

    differential.check(
        program,
        lambda: (numbers(9, 9, dtype=torch.float32, train=True),),
        backends=("native",),
    )


def test_a_training_step(isa: str) -> None:
    def train(compile_step: bool) -> list[torch.Tensor]:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU()]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 4))
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

        def step(x, target):
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            return loss.detach()

        run = framejit.compile(step) if compile_step else step
        losses = []
        for _ in range(4):
            optimizer.zero_grad()
            losses.append(run(torch.randn(5, 8), torch.randint(0, 4, (5,))))
            optimizer.step()
        return losses

    for mine, theirs in zip(train(True), train(False), strict=True):
        torch.testing.assert_close(mine, theirs)


OPTIMIZERS = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01),
    "foreach": lambda parameters: torch.optim.Adam(parameters, lr=0.01, foreach=True),
}


@pytest.mark.parametrize("result", ["loss", "detached", "nothing"])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_a_whole_training_step(isa: str, optimizer: str, result: str) -> None:
    """Forward, backward and optimizer in one function are one graph, of loops
    but for its products."""

    def train(compile_step: bool):
        torch.manual_seed(0)
        layers = [torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU()]
        model = torch.nn.Sequential(*layers, torch.nn.Linear(16, 4))
        updates = OPTIMIZERS[optimizer](model.parameters())

        def step(x, target):
            updates.zero_grad()
            loss = F.cross_entropy(model(x), target)
            loss.backward()
            updates.step()
            if result == "nothing":
                return None
            return loss if result == "loss" else loss.detach()

        run = framejit.compile(step) if compile_step else step
        losses = [run(torch.randn(5, 8), torch.randint(0, 4, (5,))) for _ in range(4)]
        return run, losses, list(model.parameters())

    run, losses, parameters = train(True)
    _, expected_losses, expected = train(False)
    torch.testing.assert_close(losses, expected_losses)
    torch.testing.assert_close(parameters, expected)
    assert [p._version for p in parameters] == [p._version for p in expected]
    for entry in framejit.inspect(run):
        assert not entry.fallback_reason
        text = "\n".join(entry.kernels)
        for name in ("_log_softmax", "gelu_backward", "native_layer_norm_backward"):
            assert f"# loops: aten.{name}" in text, text
        calls = re.findall(r"# extern \d+: aten\.(\w+)", text)
        assert {name for name in calls if "foreach" not in name} == {"addmm", "mm"}


def test_a_backward_of_its_own_is_loops(isa: str) -> None:
    layers = [torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.GELU()]
    compiled = framejit.compile(torch.nn.Sequential(*layers))
    compiled(torch.randn(5, 8)).sum().backward()
    (entry,) = framejit.inspect(compiled)
    forward, backward = entry.kernels
    assert "# loops: aten.native_layer_norm.default" in forward
    assert "# loops: aten.native_layer_norm_backward" in backward
    assert "# loops: aten.gelu_backward" in backward


LONG = {
    "sin": torch.sin,
    "tanh": torch.tanh,
    "lgamma": lambda y: torch.lgamma(y.square() + 1),
    "pow": lambda y: y.abs().pow(1.3) * 0.5,
    "mish": F.mish,
    "remainder": lambda y: y.remainder(3.0) + 0.1,
}


@pytest.mark.parametrize("name", LONG)
def test_long_chains(isa: str, name: str) -> None:
    """However much code an operation becomes, kernels are not too large for it."""

    def program(x, w):
        y = (x * 2) @ w
        for _ in range(40):
            y = LONG[name](y)
        return (y @ w) + 1

    def arguments():
        return torch.rand(6, 4), torch.rand(4, 4)

    differential.check(program, arguments, backends=("native",))
    compiled = framejit.compile(program)
    compiled(*arguments())
    (entry,) = framejit.inspect(compiled)
    assert {line.split(" at ")[0] for line in entry.not_lowered} == {"aten.mm.default"}


@pytest.mark.parametrize("dynamic", [None, True])
def test_states_of_other_symbols(isa: str, dynamic: bool | None) -> None:
    """Sizes that are only equal in each call are no reason for a call of ATen."""

    def train(run):
        torch.manual_seed(0)
        losses = []
        for rows in (50, 30, 40):
            parameter = torch.nn.Parameter(torch.randn(rows, 12))
            adam = torch.optim.Adam([parameter], lr=0.1, foreach=False)
            for _ in range(3):
                losses.append(run(parameter, adam, torch.randn(rows, 12)))
            losses.append(parameter.detach())
        return losses

    def step(parameter, adam, x):
        loss = (parameter[: x.shape[0]] - x).square().sum()
        loss.backward()
        adam.step()
        adam.zero_grad()
        return loss.detach()

    compiled = framejit.compile(step, dynamic=dynamic)
    torch.testing.assert_close(train(compiled), train(step))
    for entry in framejit.inspect(compiled):
        assert entry.loop_nodes and not entry.not_lowered
