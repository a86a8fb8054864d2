"""Optimizers' counts of steps are numbers in double precision, as in eager."""

from __future__ import annotations

import pytest
import torch

import framejit

KINDS = {
    "Adam": (torch.optim.Adam, {}),
    "Adam, amsgrad": (torch.optim.Adam, {"amsgrad": True, "weight_decay": 0.1}),
    "AdamW": (torch.optim.AdamW, {}),
    "Adamax": (torch.optim.Adamax, {}),
    "NAdam": (torch.optim.NAdam, {}),
    "RAdam": (torch.optim.RAdam, {}),
    "Adagrad": (torch.optim.Adagrad, {"lr_decay": 0.1}),
    "ASGD": (torch.optim.ASGD, {}),
    "RMSprop": (torch.optim.RMSprop, {"momentum": 0.9}),
}
# Of an update. (NAdam multiplies a float32 by the decay of each step, which is a
# number in eager and a tensor here: it is rounded once less.)
MOST = {"NAdam": 1e-7}


@pytest.mark.parametrize("foreach", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_updates(kind, foreach):
    cls, options = KINDS[kind]
    torch.manual_seed(0)
    begin = [torch.randn(37, dtype=torch.float64) for _ in range(3)]
    gradients = [[torch.randn_like(p) for p in begin] for _ in range(12)]

    def run(compile):
        parameters = [torch.nn.Parameter(p.clone()) for p in begin]
        optimizer = cls(parameters, foreach=foreach, **options)

        def step(given):
            for p, g in zip(parameters, given, strict=True):
                p.grad = g
            optimizer.step()

        call = framejit.compile(step) if compile else step
        out = []
        for given in gradients:
            before = torch.cat([p.detach() for p in parameters])
            call([g.clone() for g in given])
            out.append(torch.cat([p.detach() for p in parameters]) - before)
        return out

    for eager, compiled in zip(run(False), run(True), strict=True):
        off = (compiled - eager).abs().max() / eager.abs().max()
        assert off <= MOST.get(kind, 1e-11)


def test_the_count_itself_is_left_alone():
    p = torch.nn.Parameter(torch.ones(3))
    optimizer = torch.optim.Adam([p])

    @framejit.compile
    def step(g):
        p.grad = g
        optimizer.step()

    for n in range(1, 4):
        step(torch.ones(3))
        count = optimizer.state[p]["step"]
        assert count.dtype == torch.float32 and count.item() == n
