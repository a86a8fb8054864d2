"""Fused steps of optimizers as loops: eager's numbers, on what eager takes."""

import copy

import pytest
import torch

import framejit

pytestmark = pytest.mark.usefixtures("isa")

SIZES = (0, 1, 7, 16, 17, 1000)
NO_SCALE = {"grad_scale": None, "found_inf": None}


class Step:
    """One call of an operator on tensors of these sizes and this type."""

    def __init__(self, name, sizes, dtype, special=False, **options):
        self.name = name
        self.options = options
        torch.manual_seed(3)

        def tensors(make):
            out = [make(size).to(dtype) for size in sizes]
            if special:
                odd = [float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 1e-40]
                for i, tensor in enumerate(out):
                    if tensor.numel() > 12:
                        tensor[i : i + 6] = torch.tensor(odd).to(dtype)
                        tensor[2 * i + 7 : 2 * i + 9] = float("inf")
            return out

        self.params, self.grads = tensors(torch.randn), tensors(torch.randn)
        self.first, self.second, self.third = (tensors(torch.rand) for _ in range(3))
        self.steps = [torch.tensor(float(3 + i)) for i in range(len(sizes))]

    def everything(self):
        lists = self.params, self.grads, self.first, self.second, self.third
        return [tensor for each in lists for tensor in (*each,)] + self.steps

    def run(self):
        lists = [self.params, self.grads, self.first]
        options = {**NO_SCALE, **self.options}
        if self.name.startswith("adam"):
            lists += [self.second, self.third if options["amsgrad"] else []]
        if self.name == "sgd" and options["momentum"] == 0:
            lists[-1] = []
        if self.name != "sgd":
            lists.append(self.steps)
        OPERATORS[self.name](*lists, **options)


OPERATORS = {
    name: getattr(torch, f"_fused_{name}_")
    for name in ("adam", "adamw", "sgd", "adagrad")
}
ADAM = {
    "lr": 0.01,
    "beta1": 0.9,
    "beta2": 0.999,
    "weight_decay": 0.0,
    "eps": 1e-8,
    "amsgrad": False,
    "maximize": False,
}
SGD = {
    "weight_decay": 0.0,
    "momentum": 0.0,
    "lr": 0.1,
    "dampening": 0.0,
    "nesterov": False,
    "maximize": False,
    "is_first_step": False,
}
ADAGRAD = {
    "lr": 0.01,
    "lr_decay": 0.1,
    "weight_decay": 0.0,
    "eps": 1e-8,
    "maximize": False,
}
DEFAULTS = {"adam": ADAM, "adamw": ADAM, "sgd": SGD, "adagrad": ADAGRAD}
SCALED = {"grad_scale": torch.tensor(3.0), "found_inf": torch.tensor(0.0)}
ALL = [
    {},
    {"weight_decay": 0.1},
    {"maximize": True},
    {"weight_decay": 0.1, "maximize": True, **SCALED},
    {"found_inf": torch.tensor([1.0])},
]
RATE = {"lr": torch.tensor(0.03), "weight_decay": 0.1}
ADAMS = [{"amsgrad": True}, {"beta1": 0.3}, RATE, {"amsgrad": True, **SCALED}]
SGDS = [
    {"momentum": 0.9},
    {"momentum": 0.9, "nesterov": True, "weight_decay": 0.1},
    {"momentum": 0.9, "dampening": 0.3, "maximize": True, **SCALED},
    {"momentum": 0.9, "is_first_step": True, "nesterov": True},
    {"lr": torch.tensor(0.03, dtype=torch.float64)},
]
CASES = [
    *((name, options) for name in DEFAULTS for options in ALL),
    *((name, options) for name in ("adam", "adamw") for options in ADAMS),
    *(("sgd", options) for options in SGDS),
    ("adagrad", {"lr": torch.tensor(0.03)}),
]
# Eager's code for the last few elements rounds elsewhere than its vector code.
ROUNDINGS = {
    torch.float32: {"rtol": 1e-6, "atol": 1e-7},
    torch.float64: {"rtol": 1e-13, "atol": 1e-15},
    torch.bfloat16: {"rtol": 2**-7, "atol": 1e-4},
    torch.float16: {"rtol": 2**-9, "atol": 1e-5},
}


def run_both(name, sizes, dtype, special=False, **options):
    """What eager makes of it, and what a compiled call does; and the entry."""
    expected = Step(name, sizes, dtype, special, **{**DEFAULTS[name], **options})
    actual = Step(name, sizes, dtype, special, **{**DEFAULTS[name], **options})
    compiled = framejit.compile(Step.run)
    with torch.no_grad():
        for _ in range(2):
            expected.run()
            compiled(actual)
    (entry,) = framejit.inspect(compiled)
    assert entry.fallback_reason == ""
    return expected, actual, entry


@pytest.mark.parametrize("dtype", ROUNDINGS, ids=str)
@pytest.mark.parametrize("name,options", CASES)
def test_numbers_are_eagers(name, options, dtype):
    is_small = dtype.itemsize == 2
    if is_small and "momentum" in options:
        pytest.skip("eager reads beyond the buffer")
    expected, actual, entry = run_both(name, SIZES, dtype, **options)
    for a, b in zip(actual.everything(), expected.everything(), strict=True):
        torch.testing.assert_close(a, b, **ROUNDINGS[dtype])
    is_call = any("aten._fused_" in text for text in entry.not_lowered)
    assert is_call == (is_small and not name.startswith("adam"))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name,options", CASES)
def test_vector_code_has_the_same_arithmetic(name, options, dtype, isa):
    if isa == "loops" or isinstance(options.get("lr"), torch.Tensor):
        pytest.skip("the same as of machine code, and of numbers")
    expected, actual, _ = run_both(name, (1024,), dtype, **options)
    for a, b in zip(actual.everything(), expected.everything(), strict=True):
        # One rounding where another compiler joined other operations.
        torch.testing.assert_close(a, b, rtol=torch.finfo(dtype).eps * 4, atol=1e-7)


@pytest.mark.parametrize("name,options", CASES)
def test_special_numbers(name, options):
    # All within eager's vector code: its last elements take another maximum.
    expected, actual, _ = run_both(name, (64, 128), torch.float32, True, **options)
    for a, b in zip(actual.everything(), expected.everything(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-7, equal_nan=True)
        if "amsgrad" in options:
            continue  # which of two zeros is the larger?
        zero = (a == 0) & (b == 0)
        assert torch.equal(a[zero].signbit(), b[zero].signbit())


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_tensor_with_the_rate_changes(name):
    rate = torch.tensor(0.01)
    make = {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
    models = [torch.nn.Linear(33, 5)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [
        make(m.parameters(), lr=rate, fused=True, weight_decay=0.1) for m in models
    ]

    def step(model, optimizer, x):
        optimizer.zero_grad()
        model(x).pow(2).mean().backward()
        optimizer.step()

    compiled = framejit.compile(step)
    for n in range(5):
        rate.fill_(0.01 * (n + 1))
        x = torch.randn(4, 33)
        step(models[0], optimizers[0], x)
        compiled(models[1], optimizers[1], x)
        for p, q in zip(*(m.parameters() for m in models), strict=True):
            torch.testing.assert_close(p, q)
    assert framejit.counters()["compiles"] <= 2
    not_lowered = [e.not_lowered for e in framejit.inspect(compiled)]
    assert "aten._fused_" not in str(not_lowered)


@pytest.mark.parametrize("kind", ["Adam", "SGD", "Adagrad"])
def test_a_scaler_skips_infinite_steps(kind):
    make = getattr(torch.optim, kind)
    models = [torch.nn.Linear(19, 3)]
    models.append(copy.deepcopy(models[0]))
    optimizers = [make(m.parameters(), lr=0.01, fused=True) for m in models]
    scalers = [torch.amp.GradScaler("cpu", init_scale=8.0) for _ in models]
    compiled = framejit.compile(lambda optimizer: optimizer.step())
    steps = [lambda optimizer: optimizer.step(), compiled]
    for n in range(6):
        x = torch.randn(4, 19)
        if n == 3:
            x[0, 0] = float("inf")
        for model, optimizer, scaler, step in zip(models, optimizers, scalers, steps):
            optimizer.zero_grad()
            scaler.scale(model(x).pow(2).mean()).backward()
            optimizer.grad_scale = scaler._get_scale_async()
            grads = [p.grad for p in model.parameters()]
            found = torch.zeros(())
            torch._amp_foreach_non_finite_check_and_unscale_(
                [g.clone() for g in grads], found, torch.ones(1)
            )
            optimizer.found_inf = found
            step(optimizer)
        for p, q in zip(*(m.parameters() for m in models), strict=True):
            torch.testing.assert_close(p, q)
            torch.testing.assert_close(p.grad, q.grad, equal_nan=True)
        state, mirror = (o.state_dict()["state"] for o in reversed(optimizers))
        torch.testing.assert_close(state, mirror)


def test_numbers_that_become_zero():
    """Decays and momentum that are symbols, and 0 in some call."""

    def update(p, g, m, decay, momentum):
        torch._fused_sgd_(
            [p],
            [g],
            [m],
            weight_decay=decay,
            momentum=momentum,
            lr=0.1,
            dampening=0.0,
            nesterov=False,
            maximize=False,
            is_first_step=False,
        )

    compiled = framejit.compile(update)
    a = [torch.full((20,), float("inf")), torch.randn(20), torch.randn(20)]
    b = copy.deepcopy(a)
    for decay, momentum in [(0.1, 0.9), (0.2, 0.8), (0.3, 0.7), (0.0, 0.6), (0.1, 0.5)]:
        a[0][1:], b[0][1:] = 1.0, 1.0
        update(*a, decay, momentum)
        compiled(*b, decay, momentum)
        torch.testing.assert_close(a, b, equal_nan=True)
    for f in (update, compiled):
        with pytest.raises(RuntimeError, match="momentum_buffer_list"):
            f(*a, 0.1, 0.0)


def lists_of(*tensors):
    return [[tensor] for tensor in tensors]


def matrices(*transposed):
    torch.manual_seed(1)
    out = [torch.rand(6, 8) for _ in range(4)]
    return [t.t().contiguous().t() if i in transposed else t for i, t in enumerate(out)]


LAYOUTS = {
    "columns": lambda: matrices(0, 1, 2, 3),
    "another gradient": lambda: matrices(1),
    "a row": lambda: [
        t[:1].as_strided((1, 8), (1 + 7 * (i % 2), 1)) for i, t in enumerate(matrices())
    ],
    "another average": lambda: matrices(2),
    "wider gradient": lambda: [
        t.double() if i == 1 else t for i, t in enumerate(matrices())
    ],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_tensors_that_lie_otherwise(layout):
    """Eager's kernel goes along memory, whatever the strides say."""

    def update(p, g, m, v, step):
        torch._fused_adam_(*lists_of(p, g, m, v), [], [step], **ADAM)

    outcomes = []
    compiled = framejit.compile(update)
    for f in (update, compiled):
        tensors = LAYOUTS[layout]()
        error = None
        try:
            f(*tensors, torch.tensor(2.0))
        except RuntimeError as raised:
            error = str(raised)
        outcomes.append((tensors, error))
    (expected, eager), (actual, ours) = outcomes
    assert ours == eager
    torch.testing.assert_close(actual, expected)
    if layout in ("columns", "a row"):
        assert not framejit.inspect(compiled)[0].not_lowered


def test_lists_of_other_lengths():
    def update(p, g, m, v, step):
        torch._fused_adam_([p], [g], [m, m + 1], [v], [], [step], **ADAM)

    given = [torch.rand(5) for _ in range(4)] + [torch.tensor(1.0)]
    compiled = framejit.compile(update)
    for f in (update, compiled):
        with pytest.raises(RuntimeError):
            f(*given)
