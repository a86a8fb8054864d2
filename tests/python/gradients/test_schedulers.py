"""Optimizers under schedulers: a rate that is another number at every step.

A step is compiled when it makes the state, when it has one, and when the first
number changes; no number after that is worth an entry of its own.
"""

from __future__ import annotations

import copy

import pytest
import torch
from torch.optim import lr_scheduler as schedulers
from training_steps import mlp, optim

import framejit
from differential import BACKENDS

OPTIMIZERS = {
    "sgd": optim("SGD"),
    "sgd_momentum": optim("SGD", momentum=0.9, nesterov=True),
    "sgd_foreach": optim("SGD", momentum=0.9, foreach=True),
    "sgd_fused": optim("SGD", momentum=0.9, fused=True),
    "adam": optim("Adam"),
    "adam_foreach": optim("Adam", foreach=True),
    "adam_fused": optim("Adam", fused=True),
    "adam_fused_amsgrad": optim("Adam", fused=True, amsgrad=True),
    "adamw": optim("AdamW", weight_decay=0.1),
    "adamw_foreach": optim("AdamW", weight_decay=0.1, foreach=True),
    "adamw_fused": optim("AdamW", weight_decay=0.1, fused=True),
    "adagrad": optim("Adagrad", lr_decay=0.1),
    "adagrad_foreach": optim("Adagrad", foreach=True),
    "adagrad_fused": optim("Adagrad", fused=True),
    "rmsprop": optim("RMSprop", momentum=0.9),
    "rmsprop_foreach": optim("RMSprop", momentum=0.9, foreach=True),
    "adadelta": optim("Adadelta"),
    "adamax": optim("Adamax"),
    "nadam": optim("NAdam"),
}


def has_momentum(optimizer):
    return "momentum" in optimizer.defaults or "betas" in optimizer.defaults


SCHEDULERS = {
    "step": lambda o: schedulers.StepLR(o, 2, 0.5),
    "multi_step": lambda o: schedulers.MultiStepLR(o, [2, 5], 0.3),
    "exponential": lambda o: schedulers.ExponentialLR(o, 0.9),
    "cosine": lambda o: schedulers.CosineAnnealingLR(o, 10),
    "restarts": lambda o: schedulers.CosineAnnealingWarmRestarts(o, 4),
    "linear": lambda o: schedulers.LinearLR(o, 0.3, 1.0, 8),
    "constant": lambda o: schedulers.ConstantLR(o, 0.3, 4),
    "polynomial": lambda o: schedulers.PolynomialLR(o, 20, 0.9),
    "lambda": lambda o: schedulers.LambdaLR(o, lambda n: 0.95**n),
    "multiplicative": lambda o: schedulers.MultiplicativeLR(o, lambda n: 0.97),
    "one_cycle": lambda o: schedulers.OneCycleLR(
        o, max_lr=0.1, total_steps=40, cycle_momentum=has_momentum(o)
    ),
    "cyclic": lambda o: schedulers.CyclicLR(
        o, 0.001, 0.1, step_size_up=4, cycle_momentum=has_momentum(o)
    ),
    "plateau": lambda o: schedulers.ReduceLROnPlateau(o, patience=0, factor=0.7),
    "sequential": lambda o: schedulers.SequentialLR(
        o,
        [schedulers.LinearLR(o, 0.1, 1.0, 3), schedulers.ExponentialLR(o, 0.9)],
        milestones=[3],
    ),
    "chained": lambda o: schedulers.ChainedScheduler(
        [schedulers.ConstantLR(o, 0.5, 3), schedulers.ExponentialLR(o, 0.9)]
    ),
}

EACH_ONCE = [
    *((optimizer, s) for optimizer in OPTIMIZERS for s in ("exponential", "one_cycle")),
    *((o, s) for s in SCHEDULERS for o in ("adamw", "adamw_fused", "sgd_fused")),
]


def numbers_of(optimizer):
    keys = ("lr", "momentum", "betas")
    return [[g.get(key) for key in keys] for g in optimizer.param_groups]


# Corrections of a rate by the number of steps are float32 in a capture, where eager
# has doubles. Fused kernels have eager's.
TOLERANCE = {"rtol": 2e-3, "atol": 2e-4}


def run(make_optimizer, make_scheduler, backend, steps=12, **tolerance):
    """Compiled and eager; what was compiled, and how often after each step."""
    framejit.reset()

    def step(optimizer, model, x):
        optimizer.zero_grad()
        loss = model(x).pow(2).mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    compiled = framejit.compile(step, backend=backend)
    torch.manual_seed(0)
    model = mlp()
    both = []
    for each in (model, copy.deepcopy(model)):
        optimizer = make_optimizer(each.parameters())
        both.append((each, optimizer, make_scheduler(optimizer)))
    compiles = []
    seen = set()
    for _ in range(steps):
        x = torch.randn(5, 4)
        losses = []
        for run_step, (each, optimizer, scheduler) in zip((step, compiled), both):
            losses.append(run_step(optimizer, each, x))
            plateau = isinstance(scheduler, schedulers.ReduceLROnPlateau)
            scheduler.step(*([1.0] if plateau else []))
        torch.testing.assert_close(*losses, **tolerance)
        compiles.append(framejit.counters()["compiles"])
        seen.add(str(numbers_of(both[1][1])))
    for of in (0, 1):
        torch.testing.assert_close(
            *(each[of].state_dict() for each in both), **tolerance
        )
    assert len(seen) > 1  # the scheduler did something
    return compiled, compiles


@pytest.mark.parametrize("optimizer,scheduler", sorted(set(EACH_ONCE)))
def test_no_number_is_worth_an_entry(optimizer, scheduler):
    exact = "fused" in optimizer or optimizer.startswith("sgd")
    compiled, compiles = run(
        OPTIMIZERS[optimizer],
        SCHEDULERS[scheduler],
        "native",
        **({} if exact else TOLERANCE),
    )
    assert compiles[-1] <= 4, compiles
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert [str(b) for e in entries for b in e.breaks] == []
    assert [e.fallback_reason for e in entries if e.fallback_reason] == []


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("optimizer", ["sgd_fused", "adam_fused", "adagrad_fused"])
def test_on_every_backend(optimizer, backend):
    _, compiles = run(OPTIMIZERS[optimizer], SCHEDULERS["one_cycle"], backend)
    assert compiles[-1] <= 4, compiles


@pytest.mark.parametrize("optimizer", ["radam", "asgd", "rprop"])
def test_optimizers_that_read_their_state_settle(optimizer):
    names = {"radam": "RAdam", "asgd": "ASGD", "rprop": "Rprop"}
    make = optim(names[optimizer])
    _, compiles = run(make, SCHEDULERS["exponential"], "native", 16, **TOLERANCE)
    assert compiles[10] == compiles[-1], compiles


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_number_of_a_fused_step_by_hand(backend):
    """Several symbolic numbers in one call, each in its own place."""

    def update(p, g, a, b, s, lr, beta1, beta2, decay, eps):
        torch._fused_adamw_(
            [p],
            [g],
            [a],
            [b],
            [],
            [s],
            lr=lr,
            beta1=beta1,
            beta2=beta2,
            weight_decay=decay,
            eps=eps,
            amsgrad=False,
            maximize=False,
        )
        return p * lr

    framejit.reset()
    compiled = framejit.compile(update, backend=backend)
    torch.manual_seed(0)
    given = [torch.rand(4) for _ in range(4)] + [torch.tensor(1.0)]
    mirror = copy.deepcopy(given)
    for n in range(1, 8):
        numbers = (0.1 / n, 0.9 - 0.01 * n, 0.99 - 0.01 * n, 0.02 * n, 1e-8 * n)
        actual, expected = compiled(*given, *numbers), update(*mirror, *numbers)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        torch.testing.assert_close(given, mirror, rtol=0, atol=0)
    assert framejit.counters()["compiles"] <= 2


SCALARS = {
    "add": lambda p, g, h, s: torch._foreach_add_(p, s),
    "add_alpha": lambda p, g, h, s: torch._foreach_add_(p, g, alpha=-s),
    "sub_alpha": lambda p, g, h, s: torch._foreach_sub_(p, g, alpha=s),
    "mul": lambda p, g, h, s: torch._foreach_mul_(p, s),
    "div": lambda p, g, h, s: torch._foreach_div_(p, s),
    "lerp": lambda p, g, h, s: torch._foreach_lerp_(p, g, s),
    "addcmul": lambda p, g, h, s: torch._foreach_addcmul_(p, g, h, value=s),
    "addcdiv": lambda p, g, h, s: torch._foreach_addcdiv_(p, g, h, value=s),
    "addcdiv_list": lambda p, g, h, s: torch._foreach_addcdiv_(p, g, h, [s, s * 2]),
    "mul_list": lambda p, g, h, s: torch._foreach_mul_(p, [s, 2.0]),
    "maximum": lambda p, g, h, s: torch._foreach_maximum_(p, s),
    "pow": lambda p, g, h, s: torch._foreach_pow_(p, s),
    "pow_of_a_number": lambda p, g, h, s: p[0].add_(torch._foreach_pow(s, g)[0]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", SCALARS)
def test_a_number_for_a_list_of_tensors(name, backend):
    """What foreach optimizers are made of; by default on CUDA."""
    framejit.reset()
    compiled = framejit.compile(SCALARS[name], backend=backend)
    torch.manual_seed(0)
    given = [[torch.rand(3) + 0.5, torch.rand(2, 2) + 0.5] for _ in range(3)]
    mirror = copy.deepcopy(given)
    for n in range(1, 7):
        compiled(*given, 0.9 / n)
        SCALARS[name](*mirror, 0.9 / n)
        torch.testing.assert_close(given, mirror)
    assert framejit.counters()["compiles"] <= 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["mul", "pow", "addcdiv", "lerp", "mul_list"])
def test_gradients_of_a_number_for_a_list(name, backend):
    """Formulas compute with the number."""
    framejit.reset()
    calls = {
        "mul": torch._foreach_mul,
        "pow": torch._foreach_pow,
        "addcdiv": lambda p, s: torch._foreach_addcdiv(p, p, [x + 1 for x in p], s),
        "lerp": lambda p, s: torch._foreach_lerp(p, [x * x for x in p], s),
        "mul_list": lambda p, s: torch._foreach_mul(p, [s, s + 1]),
    }

    def f(p, s):
        a, b = calls[name](p, s)
        return (a * a).sum() + b.sum()

    compiled = framejit.compile(f, backend=backend)
    torch.manual_seed(0)
    for n in range(1, 6):
        given = [(torch.rand(3) + 0.5).requires_grad_() for _ in range(2)]
        mirror = [p.detach().clone().requires_grad_() for p in given]
        compiled(given, 0.9 / n).backward()
        f(mirror, 0.9 / n).backward()
        torch.testing.assert_close([p.grad for p in given], [p.grad for p in mirror])
