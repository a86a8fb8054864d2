"""Floats that change from call to call: symbolic after one change.

`sweep` calls a compiled function with many floats and compares each call with
eager: results, exceptions, gradients, exactly. It expects one entry for the first
value and one for all others, unless the number says which values are programs of
their own.
"""

from __future__ import annotations

import math
import struct

import pytest
import torch
from torch import nn

import framejit
from differential import BACKENDS, _run, assert_same, compare

VALUES = (0.5, 0.25, -1.75, 3.0, 1e-3, 7.25, 0.1, 2.5, -0.3, 12.0, 0.7, 5.5)
POSITIVE = tuple(abs(v) for v in VALUES)


def entries(compiled):
    return [e for entry in framejit.inspect(compiled) for e in entry.walk()]


def matrix():
    return torch.randn(3, 4, requires_grad=True)


def sweep(
    fn,
    values=VALUES,
    *,
    make=matrix,
    count=2,
    backends=BACKENDS,
    backward=True,
    fallback="",
    **options,
):
    """fn(x, a) for each a of values."""
    for backend in backends:
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend, **options)
        for number, value in enumerate(values):
            torch.manual_seed(number)
            x = make()
            torch.manual_seed(number)
            y = make()
            try:
                expected = _run(fn, (x, value), backward, number)
                actual = _run(compiled, (y, value), backward, number)
                compare(expected, actual, exact=backend != "native")
            except AssertionError as error:
                raise AssertionError(f"{backend}, {value!r}: {error}") from error
        found = entries(compiled)
        assert len(found) == count, f"{backend}: {[e.guards for e in found]}"
        if count == 2 and backend != "eager":
            reason = found[0].fallback_reason + found[1].fallback_reason
            assert (fallback in reason) if fallback else not reason, reason
    return compiled


# ---- one operation with tensors

TENSOR_PROGRAMS = {
    "mul": lambda x, a: x * a + 1,
    "rmul": lambda x, a: a * x,
    "add": lambda x, a: x + a,
    "sub": lambda x, a: (x - a).cos(),
    "rsub": lambda x, a: a - x,
    "div": lambda x, a: x / a,
    "rdiv": lambda x, a: a / (x.abs() + 1),
    "two": lambda x, a: (x * a).sin() * (a + 1) + a,
    "compare": lambda x, a: torch.where(x > a, x, x * a),
    "masked_fill": lambda x, a: x.masked_fill(x > 0, a),
    "leaky_relu": torch.nn.functional.leaky_relu,
    "full": lambda x, a: x + torch.full((4,), a),
    "threshold": lambda x, a: torch.nn.functional.threshold(x, 0.1, a),
    "softplus": lambda x, a: torch.nn.functional.softplus(x, abs(a) + 1),
    "sum": lambda x, a: (x * a).sum() / a,
    "matmul": lambda x, a: (x * a) @ x.t() * a,
    "keyword": lambda x, a: torch.mul(input=x, other=a),
    "method": lambda x, a: x.mul(a).add(a),
    "fill": lambda x, a: x * torch.empty(4).fill_(a),
    "list": lambda x, a: [x * a, a, x * (a + 1)],
    "elu": lambda x, a: torch.nn.functional.elu(x, a),
}


@pytest.mark.parametrize("name", TENSOR_PROGRAMS)
def test_tensor_program(name):
    values = POSITIVE if name in ("elu",) else VALUES
    sweep(TENSOR_PROGRAMS[name], values)


def test_two_entries_for_a_hundred_floats(kernels):
    def f(x, a):
        return x * a + 1

    compiled = sweep(f, [0.37 * i - 3.3 for i in range(100)])
    last = entries(compiled)[0]  # the most recent
    assert last.kernels, "native runs it in a kernel"
    assert "number n0" in last.kernels[0]


@pytest.mark.parametrize(
    "dtype", [torch.float16, torch.float64, torch.int64, torch.bool]
)
def test_promotion(dtype):
    def f(x, a):
        return x * a, x + a, x > a

    sweep(f, make=lambda: torch.randint(0, 2, (5,)).to(dtype), backward=False)


def test_alpha():
    def f(x, a):
        return x.add(x.sin(), alpha=a)

    sweep(f)


def test_pow():
    def f(x, a):
        return x.abs() ** a

    # The gradient's formula compares the exponent with 0: stays at torch level.
    sweep(f, fallback="value of a float")
    sweep(f, make=lambda: torch.randn(3, 4), backward=False)


def test_base():
    sweep(lambda x, a: a**x, POSITIVE, make=lambda: torch.randn(3, 4))


# ---- arithmetic of numbers

NUMBER_PROGRAMS = {
    "linear": lambda x, a: x * (a * 2 + 1 - a / 4),
    "reflected": lambda x, a: x * (2 - a) + (1 / a) + (3 * a),
    "neg": lambda x, a: x * -a + +a,
    "abs": lambda x, a: x * abs(a),
    "floordiv": lambda x, a: x * (a // 0.3) + 7 // a,
    "mod": lambda x, a: x * (a % 0.3) + (7 % a) + a % -0.3,
    "divmod": lambda x, a: x * divmod(a, 0.3)[1],
    "pow": lambda x, a: x * a**2 + abs(a) ** 0.5 + 0.5**a,
    "int": lambda x, a: x * (a + x.shape[0]),
    "math": lambda x, a: (
        x * math.sqrt(abs(a)) + math.exp(a) + math.log(abs(a)) + math.cos(a * math.pi)
    ),
    "more math": lambda x, a: (
        x * math.tanh(a)
        + math.sin(a) * math.atan(a)
        + math.log1p(abs(a))
        - math.pow(a, 2)
    ),
    "copysign": lambda x, a: x * math.copysign(2.0, a),
    "float": lambda x, a: x * float(a) + float(x.shape[0]) * a,
    "bool": lambda x, a: x * 2 if a else x,
    "comparisons": lambda x, a: x * a if a != 0.0 and not a == -7.0 else x,
    "output": lambda x, a: (x * a, a, a * 2, {"a": -a}),
    "isinstance": lambda x, a: x * a if isinstance(a, float) else x,
    "type": lambda x, a: x * type(a)(1) + a,
}


@pytest.mark.parametrize("name", NUMBER_PROGRAMS)
def test_number_program(name):
    sweep(NUMBER_PROGRAMS[name])


def test_branch_is_a_guard():
    def f(x, a):
        if a > 1.0:
            return x * a
        return x - a

    # 0.5; the other floats up to 1; those above.
    sweep(f, count=3)


def test_min_max_clamp():
    def f(x, a):
        return x * min(a, 1.0) + max(a, 0.0)

    # [..0], (0, 1], (1..]: which of the two it is, not its value. And the first.
    sweep(f, count=4)


def test_int_of_a_float():
    def f(x, a):
        return x * int(a) + math.floor(a) + a

    # Each integral part is a program; all floats with one share it.
    sweep(f, (0.5, 0.25, 0.75, 0.1, 1.5, 1.25, 1.75, -0.5, -0.25), count=4)


def test_number_as_a_size_is_specialised():
    def f(x, a):
        return x.new_zeros(int(a * 4)) + a

    sweep(f, (0.5, 1.0, 1.5, 1.51, 1.0), count=3)


def test_text_is_specialised():
    def f(x, a):
        return x * a, f"{a:.2f}"

    sweep(f, (0.5, 1.0, 1.5, 1.0, 0.5, 1.5), count=3)


def test_key_is_specialised():
    table = {0.5: 2, 1.5: 3}

    def f(x, a):
        return x * table.get(a, 7)

    sweep(f, (0.5, 1.5, 0.5, 1.5, 2.5), count=3)


def test_double_arguments_are_specialised():
    def f(x, a):
        return torch.nn.functional.layer_norm(x, (4,), eps=a)

    sweep(f, (1e-5, 1e-3, 1e-5, 1e-3), count=2)


# ---- special values


def bits(value):
    return struct.pack("d", value)


SPECIAL = (0.5, 0.0, -0.0, math.inf, -math.inf, math.nan, -math.nan, 5e-324, 1e308)


def test_special_values():
    sweep(lambda x, a: (x * a, x + a, a), SPECIAL)


def test_special_values_in_arithmetic():
    def f(x, a):
        return x * (a * 2), a + 1, -a, abs(a)

    compiled = sweep(f, SPECIAL, backward=False)
    for value in SPECIAL:
        for got, expected in zip(
            compiled(torch.ones(3, 4), value)[1:], f(torch.ones(3, 4), value)[1:]
        ):
            assert bits(got) == bits(expected)


@pytest.mark.parametrize("value", SPECIAL)
def test_each_special_value_first(value):
    sweep(lambda x, a: (x * a, a), (value, 0.25, value, 3.5, value))


def test_nan_does_not_compile_for_ever():
    compiled = framejit.compile(lambda x, a: x * a, backend="eager")
    for _ in range(5):
        assert compiled(torch.ones(1), math.nan).isnan().all()
    assert len(entries(compiled)) == 1


def test_nan_in_comparisons():
    def f(x, a):
        if a == a:
            x = x + 1
        if a < 1.0:
            x = x * 2
        if a >= 1.0:
            x = x * 3
        if a != 2.0:
            x = x * 5
        return x

    sweep(f, (math.nan, 0.5, 1.5, math.nan, 2.0, 0.5, math.nan), count=4)


def test_zeros_differ():
    def f(x, a):
        return x * math.copysign(1.0, a), 0.0 if a == 0 else 1.0

    # (One entry for both zeros: the sign is computed at each call.)
    sweep(f, (0.5, 0.0, -0.0, 0.0, -0.0))


def test_zero_division():
    def f(x, a):
        try:
            return x / (1.0 / a)
        except ZeroDivisionError:
            return x - 1

    sweep(f, (0.5, 0.25, 0.0, -0.0, 4.0), count=4)


def test_uncaught_zero_division():
    sweep(lambda x, a: x * (1.0 // a), (0.5, 0.25, 0.0, 4.0, 0.0), count=2)


def test_domain_errors():
    sweep(lambda x, a: x * math.sqrt(a), (0.5, 0.25, -1.0, 4.0, math.nan), count=3)
    sweep(lambda x, a: x * math.exp(a), (0.5, 0.25, 1e4, 4.0), count=2)


def test_complex_power():
    sweep(
        lambda x, a: (x, a**0.5), (0.5, 0.25, -2.0, 4.0, -2.0), count=3, backward=False
    )


# ---- types


def test_other_types_are_other_entries():
    def f(x, a):
        return x * a

    compiled = framejit.compile(f, backend="native")
    for value in (0.5, 0.25, 2, 3, True, 0.75, 5, False, 1.25, torch.tensor(2.0)):
        x = torch.randn(4)
        assert_same(f(x, value), compiled(x, value), exact=True)
    assert len(entries(compiled)) <= 8
    before = len(entries(compiled))
    for value in (9.5, 11, 7.25, 13):
        x = torch.randn(4)
        assert_same(f(x, value), compiled(x, value), exact=True)
    assert len(entries(compiled)) == before


def test_subclass_of_float():
    class Float(float):
        def __mul__(self, other):
            return float(self) * other + 100

    def f(x, a):
        return x * a, a * 2

    compiled = framejit.compile(f, backend="eager")
    for value in (0.5, 0.25, Float(0.25), 0.75, Float(0.75)):
        x = torch.randn(4)
        assert_same(f(x, value), compiled(x, value), exact=True)


# ---- where the float comes from

SCALE = 1.0


class Holder:
    scale = 1.0

    def __init__(self):
        self.value = 1.0


@pytest.mark.parametrize(
    "route",
    [
        "argument",
        "keyword",
        "default",
        "closure",
        "global",
        "attribute",
        "class",
        "module",
    ]
    + ["dict", "list", "tuple", "slot", "nested"],
)
def test_route(route):
    global SCALE
    holder, module, cell = Holder(), nn.Linear(2, 2), 1.0
    module.scale = 1.0
    table, items = {"lr": 1.0}, [1.0, 2]

    class Slotted:
        __slots__ = ("value",)

    slotted = Slotted()
    slotted.value = 1.0

    def f(x, a=None, *, k=None):
        if route in ("argument", "tuple"):
            return x * (a[0] if route == "tuple" else a)
        if route == "keyword":
            return x * k
        if route == "default":
            return inner(x)
        if route == "closure":
            return x * cell
        if route == "global":
            return x * SCALE
        if route == "attribute":
            return x * holder.value
        if route == "class":
            return x * holder.scale
        if route == "module":
            return x * module.scale
        if route == "dict":
            return x * table["lr"]
        if route == "list":
            return x * items[0]
        if route == "slot":
            return x * slotted.value
        return x * a["groups"][0]["lr"]

    def inner(x, a=1.0):
        return x * a

    compiled = framejit.compile(f, backend="native")
    for i in range(12):
        value = 0.25 * i + 0.125
        args, kwargs = (), {}
        if route == "argument":
            args = (value,)
        elif route == "keyword":
            kwargs = {"k": value}
        elif route == "tuple":
            args = ((value, x_of(i)),)
        elif route == "nested":
            args = ({"groups": [{"lr": value}]},)
        inner.__defaults__ = (value,)
        cell = SCALE = holder.value = Holder.scale = module.scale = value
        table["lr"] = items[0] = slotted.value = value
        x = torch.randn(4)
        assert_same(f(x, *args, **kwargs), compiled(x, *args, **kwargs), exact=True)
    assert len(entries(compiled)) == 2


def x_of(i):
    return torch.full((1,), float(i))


def test_written_back():
    class Schedule:
        lr = 1.0

    schedule = Schedule()

    def f(x):
        schedule.lr = schedule.lr * 0.9
        return x * schedule.lr

    compiled = framejit.compile(f, backend="native")
    other, lr = torch.randn(4), schedule.lr
    for _ in range(20):
        lr = lr * 0.9
        assert_same(compiled(other), other * lr, exact=True)
        assert schedule.lr == lr
    assert len(entries(compiled)) <= 3


def test_across_a_break():
    def f(x, a):
        x = x * a
        framejit.graph_break()
        return x + a * 2

    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        for value in VALUES:
            x = torch.randn(4)
            assert_same(f(x, value), compiled(x, value), exact=True)
        assert len(entries(compiled)) == 4


def test_loop_over_floats():
    def f(x, scales):
        for scale in scales:
            x = x * scale
        return x

    compiled = framejit.compile(f, backend="native")
    for i in range(10):
        scales = [0.5 + i, 1.5 * i + 1, 3.25]
        x = torch.randn(4)
        assert_same(f(x, scales), compiled(x, scales), exact=True)
    assert len(entries(compiled)) == 2


# ---- options


def test_static_never_makes_symbols():
    compiled = framejit.compile(lambda x, a: x * a, dynamic=False, backend="eager")
    for value in (0.5, 0.25, 0.75):
        compiled(torch.ones(2), value)
    assert len(entries(compiled)) == 3


def test_dynamic_makes_symbols_at_once():
    compiled = framejit.compile(lambda x, a: x * a, dynamic=True, backend="native")
    for value in VALUES:
        x = torch.randn(5)
        assert_same(x * value, compiled(x, value), exact=True)
    assert len(entries(compiled)) == 1


def test_sizes_and_floats():
    def f(x, a):
        return (x * a).sum(0) / x.shape[0] + a * x.shape[1]

    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        # Kernels add in another order.
        exact = backend != "native" or {"rtol": 1e-6, "atol": 1e-7}
        for i, value in enumerate(VALUES):
            x = torch.randn(3 + i, 4 + i, requires_grad=True)
            y = x.detach().clone().requires_grad_()
            expected, actual = f(x, value), compiled(y, value)
            assert_same(expected.detach(), actual.detach(), exact=exact)
            expected.sum().backward()
            actual.sum().backward()
            assert_same(x.grad, y.grad, exact=exact)
        assert len(entries(compiled)) == 2


def test_a_size_divided():
    """Floats computed from sizes are symbolic, too."""

    def f(x):
        return x / math.sqrt(x.shape[-1]) * (x.shape[0] / 3)

    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        for n in range(2, 12):
            x = torch.randn(n, n + 1)
            assert_same(f(x), compiled(x), exact=True)
        assert len(entries(compiled)) == 2


def test_the_recompile_line():
    compiled = framejit.compile(lambda x, lr: x * lr, backend="eager")
    compiled(torch.ones(2), 0.1)
    with pytest.raises(framejit.RecompileError, match=r"lr: expected 0\.1, got 0\.05"):
        with framejit.set_stance("fail_on_recompile"):
            compiled(torch.ones(2), 0.05)


def test_the_line_of_a_pinned_float():
    compiled = framejit.compile(lambda x, lr: (x, str(lr)), backend="eager")
    compiled(torch.ones(2), 0.1)
    compiled(torch.ones(2), 0.2)
    with pytest.raises(framejit.RecompileError, match=r"lr: expected 0\.2, got 0\.05"):
        with framejit.set_stance("fail_on_recompile"):
            compiled(torch.ones(2), 0.05)


def test_custom_backend_gets_the_value():
    seen = []

    def backend(module, example_inputs):
        seen.append([type(i).__name__ for i in example_inputs])
        return module.forward

    compiled = framejit.compile(lambda x, a: x * a + a, backend=backend)
    for value in (0.5, 0.25, 0.75, 0.25, 0.5):
        x = torch.randn(3)
        assert_same(x * value + value, compiled(x, value), exact=True)
    assert all(set(kinds) == {"Tensor"} for kinds in seen)
    assert len(seen) == 3


def test_autograd_saves_the_forwards_value():
    compiled = framejit.compile(lambda x, a: (x * a).sin() * a, backend="native")
    outputs = []
    for value in VALUES:
        x = torch.ones(3, requires_grad=True)
        outputs.append((value, x, compiled(x, value)))
    for value, x, out in outputs:
        out.sum().backward()
        y = torch.ones(3, requires_grad=True)
        ((y * value).sin() * value).sum().backward()
        assert_same(x.grad, y.grad)


def test_inside_blocks():
    """Functions of torch.func and of autograd get the value, with a guard."""

    def f(x, a):
        return torch.func.grad(lambda t: (t * a).sin().sum())(x) + a

    sweep(f, (0.5, 0.25, 0.75, 0.25), make=lambda: torch.randn(3), count=3)


# ---- training


def optimizer_of(name, parameters):
    if name == "sgd":
        return torch.optim.SGD(parameters, lr=0.1)
    if name == "momentum":
        return torch.optim.SGD(parameters, lr=0.1, momentum=0.9, weight_decay=0.01)
    if name == "adam":
        return torch.optim.Adam(parameters, lr=0.1)
    if name == "rmsprop":
        return torch.optim.RMSprop(parameters, lr=0.01)
    return torch.optim.AdamW(parameters, lr=0.1, weight_decay=0.05)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["sgd", "momentum", "adam", "adamw", "rmsprop"])
def test_training_with_a_schedule(name, backend):
    def run(compile):
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
        optimizer = optimizer_of(name, model.parameters())
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)

        def step(x, y):
            optimizer.zero_grad()
            loss = ((model(x) - y) ** 2).mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        wanted = framejit.compile(step, backend=backend) if compile else step
        losses = []
        for _ in range(12):
            losses.append(wanted(torch.randn(6, 4), torch.randn(6, 1)))
            schedule.step()
        return losses, [p.detach() for p in model.parameters()], wanted

    framejit.reset()
    losses, parameters, compiled = run(True)
    expected_losses, expected_parameters, _ = run(False)
    # (Corrections of Adam are float32 in a compiled step: docs/architecture.md.)
    limits = {"rtol": 1e-4, "atol": 1e-5} if "adam" in name else backend != "native"
    assert_same(losses, expected_losses, exact=limits)
    assert_same(parameters, expected_parameters, exact=limits)
    # The first step (which makes the optimizer's state), and all others.
    assert len(entries(compiled)) == 2
    assert not any(e.breaks or e.fallback_reason for e in entries(compiled))
