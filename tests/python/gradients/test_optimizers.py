"""Optimizers: their steps as part of what is compiled."""

import copy
import gc
import weakref

import pytest
import torch
from training_steps import mlp, optim, run_steps, step

import framejit
from differential import BACKENDS

# ---- optimizers


# Graphs: one for the first step, which makes the state, one for all others.
OPTIMIZERS = {
    "sgd": (optim("SGD"), 1),
    "sgd_foreach": (optim("SGD", foreach=True), 1),
    "sgd_momentum": (optim("SGD", momentum=0.9), 2),
    "sgd_momentum_foreach": (optim("SGD", momentum=0.9, foreach=True), 2),
    "sgd_nesterov": (optim("SGD", momentum=0.9, nesterov=True, weight_decay=0.1), 2),
    "sgd_maximize": (optim("SGD", momentum=0.9, dampening=0.1, maximize=True), 2),
    "sgd_fused": (optim("SGD", momentum=0.9, fused=True), 2),
    "adam": (optim("Adam"), 2),
    "adam_foreach": (optim("Adam", foreach=True), 2),
    "adam_fused": (optim("Adam", fused=True), 2),
    "adam_amsgrad": (optim("Adam", amsgrad=True, weight_decay=0.1), 2),
    "adam_tensor_lr": (
        lambda p: torch.optim.Adam(p, lr=torch.tensor(0.01), foreach=False),
        2,
    ),
    "adamw": (optim("AdamW", weight_decay=0.1), 2),
    "adamw_foreach": (optim("AdamW", weight_decay=0.1, foreach=True), 2),
    "rmsprop": (optim("RMSprop"), 2),
    "rmsprop_centered": (optim("RMSprop", momentum=0.9, centered=True), 2),
    "rmsprop_foreach": (optim("RMSprop", momentum=0.9, foreach=True), 2),
    # Its state is made by the constructor.
    "adagrad": (optim("Adagrad", lr_decay=0.1), 1),
    "adagrad_foreach": (optim("Adagrad", foreach=True), 1),
    "adadelta": (optim("Adadelta"), 2),
    "adadelta_foreach": (optim("Adadelta", foreach=True), 2),
    "adamax": (optim("Adamax"), 2),
    "nadam": (optim("NAdam"), 2),
    "nadam_foreach": (optim("NAdam", foreach=True), 2),
    "rprop": (optim("Rprop"), 2),
    # These read tensors.
    "adamax_foreach": (optim("Adamax", foreach=True), None),
    "radam": (optim("RAdam"), None),
    "asgd": (optim("ASGD"), None),
    "adafactor": (optim("Adafactor"), None),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(backend, name):
    make_optimizer, graphs = OPTIMIZERS[name]
    run_steps(make_optimizer, backend, graphs)


def parameter_groups(parameters):
    first, *rest = parameters
    groups = [{"params": [first], "lr": 0.1}, {"params": rest, "weight_decay": 0.5}]
    return torch.optim.AdamW(groups, lr=0.01)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameter_groups(backend):
    run_steps(parameter_groups, backend)


def closure_step(state, x):
    def closure():
        state["optimizer"].zero_grad()
        loss = state["model"](x).pow(2).mean()
        loss.backward()
        return loss

    return state["optimizer"].step(closure).detach()


@pytest.mark.parametrize("backend", BACKENDS)
def test_step_with_a_closure(backend):
    run_steps(optim("Adam"), backend, graphs=2, fn=closure_step)


# What a step assumed about the optimizer's state, changed between the steps.


def clear_state(optimizer):
    optimizer.state.clear()


def drop_momentum(optimizer):
    for state in optimizer.state.values():
        del state["exp_avg"]
        state["exp_avg"] = torch.full_like(state["exp_avg_sq"], 0.5)


def load(optimizer):
    state = copy.deepcopy(optimizer.state_dict())
    for one in state["state"].values():
        one["exp_avg"].mul_(3)
    optimizer.load_state_dict(state)


def replace_state(optimizer):
    (first, *_) = optimizer.state
    optimizer.state[first] = {k: v + 1 for k, v in optimizer.state[first].items()}


def move_state(optimizer):
    """The states of two parameters of one shape change places."""
    a, b = optimizer.param_groups[0]["params"][:2]
    state = optimizer.state
    state[a], state[b] = state[b], state[a]


def reorder(optimizer):
    optimizer.param_groups[0]["params"].reverse()


def other_factor(optimizer):
    optimizer.param_groups[0]["lr"] = 0.05


def fewer_parameters(optimizer):
    del optimizer.state[optimizer.param_groups[0]["params"].pop()]


@pytest.mark.parametrize("backend", ("eager", "native"))
@pytest.mark.parametrize(
    "change",
    (
        clear_state,
        drop_momentum,
        load,
        replace_state,
        move_state,
        reorder,
        other_factor,
        fewer_parameters,
    ),
)
def test_state_changes_between_steps(backend, change):
    framejit.reset()
    compiled = framejit.compile(step, backend=backend)
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(2)))
    states = []
    for each in (model, copy.deepcopy(model)):
        # Biases first: two parameters of one shape.
        parameters = sorted(each.parameters(), key=lambda p: p.dim())
        states.append({"model": each, "optimizer": torch.optim.Adam(parameters)})
    for number in range(6):
        x = torch.randn(5, 4)
        results = [run(s, x) for run, s in zip((step, compiled), states)]
        torch.testing.assert_close(*results)
        torch.testing.assert_close(*(s["optimizer"].state_dict() for s in states))
        torch.testing.assert_close(*(s["model"].state_dict() for s in states))
        if number in (2, 3):
            for state in states:
                change(state["optimizer"])


@pytest.mark.parametrize("backend", ("eager", "native"))
def test_two_models_with_one_step_function(backend):
    framejit.reset()
    compiled = framejit.compile(step, backend=backend)
    torch.manual_seed(0)
    eager, mirror = [], []
    for _ in range(2):
        model = mlp()
        for into, each in ((eager, model), (mirror, copy.deepcopy(model))):
            optimizer = torch.optim.Adam(each.parameters())
            into.append({"model": each, "optimizer": optimizer})
    for number in range(6):
        x = torch.randn(5, 4)
        which = number % 2
        torch.testing.assert_close(compiled(mirror[which], x), step(eager[which], x))
        torch.testing.assert_close(
            mirror[which]["optimizer"].state_dict(),
            eager[which]["optimizer"].state_dict(),
        )


def test_a_step_keeps_no_model_alive():
    framejit.reset()
    compiled = framejit.compile(step, backend="eager")
    model = mlp()
    state = {"model": model, "optimizer": torch.optim.Adam(model.parameters())}
    for _ in range(3):
        compiled(state, torch.randn(5, 4))
    gone = [weakref.ref(p) for p in model.parameters()]
    del state, model
    gc.collect()
    assert [r() for r in gone] == [None] * len(gone)
    # What comes to lie at the same addresses is another model.
    for _ in range(3):
        model = mlp()
        state = {"model": model, "optimizer": torch.optim.Adam(model.parameters())}
        mirror_model = copy.deepcopy(model)
        mirror = {
            "model": mirror_model,
            "optimizer": torch.optim.Adam(mirror_model.parameters()),
        }
        for _ in range(2):
            x = torch.randn(5, 4)
            torch.testing.assert_close(compiled(state, x), step(mirror, x))


@pytest.mark.parametrize("backend", BACKENDS)
def test_scheduler_with_a_tensor_for_the_rate(backend):
    """The rate changes at each step, in place."""
    framejit.reset()
    compiled = framejit.compile(step, backend=backend)
    torch.manual_seed(0)
    model = mlp()
    states = []
    for each in (model, copy.deepcopy(model)):
        rate = torch.tensor(0.1)
        optimizer = torch.optim.SGD(each.parameters(), lr=rate, momentum=0.9)
        scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        states.append({"model": each, "optimizer": optimizer, "scheduler": scheduler})
    for _ in range(5):
        x = torch.randn(5, 4)
        for run, state in zip((step, compiled), states):
            run(state, x)
            state["scheduler"].step()
        torch.testing.assert_close(*(s["model"].state_dict() for s in states))
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert [str(b) for e in entries for b in e.breaks] == []
    assert len(entries) == 2
