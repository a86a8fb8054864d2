"""Models and steps that tests of training share."""

import copy

import torch

import framejit


def mlp():
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    )


def with_optimizer(make_optimizer):
    def make():
        model = mlp()
        return {"model": model, "optimizer": make_optimizer(model.parameters())}

    return make


def step(state, x):
    loss = state["model"](x).pow(2).mean()
    state["optimizer"].zero_grad()
    loss.backward()
    state["optimizer"].step()
    return loss.detach()


def whole_step(state, x):
    loss = state["model"](x).pow(2).mean()
    loss.backward()
    state["optimizer"].step()
    state["optimizer"].zero_grad()
    return loss.detach()


def run_steps(make_optimizer, backend, graphs=2, calls=4, fn=whole_step):
    """Whole steps, the optimizer's state as eager's; the first call makes it."""
    framejit.reset()
    torch.manual_seed(0)
    eager = with_optimizer(make_optimizer)()
    model = copy.deepcopy(eager["model"])
    mirror = {"model": model, "optimizer": make_optimizer(model.parameters())}
    compiled = framejit.compile(fn, backend=backend)
    for number in range(calls):
        torch.manual_seed(number)
        data = torch.randn(5, 4)
        torch.testing.assert_close(compiled(mirror, data), fn(eager, data))
        for a, b in zip(eager["model"].parameters(), model.parameters()):
            torch.testing.assert_close(b, a)
            assert (a.grad is None) == (b.grad is None)
        want = eager["optimizer"].state_dict()
        got = mirror["optimizer"].state_dict()
        torch.testing.assert_close(got, want)
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    breaks = [str(brk) for e in entries for brk in e.breaks]
    if graphs is None:
        return compiled, mirror
    assert breaks == []
    assert sum(1 for e in entries if e.operations) == graphs
    return compiled, mirror


def optim(name, **options):
    kind = getattr(torch.optim, name)
    options.setdefault("lr", 0.01)
    return lambda parameters: kind(parameters, **options)
