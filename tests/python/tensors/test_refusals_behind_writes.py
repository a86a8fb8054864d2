"""An operator that refuses behind a write that gave an input a history.

The program catches the error, or has said something before it: the input must
get its content and its history back, so that the original can run from the
start.
"""

from __future__ import annotations

import pytest
import torch

from differential import check

INPUTS = {
    "leaf": lambda w: torch.zeros(2, 4),
    "inner": lambda w: w * torch.ones(2, 4),
    "view": lambda w: torch.zeros(3, 2, 4)[1],
    "view of a view": lambda w: torch.zeros(8, 3).t()[1].view(2, 4),
    "view of an inner": lambda w: (w * torch.ones(3, 2, 4))[2],
    "one of several": lambda w: (w * torch.ones(2, 2, 4)).split(1)[1].squeeze(0) + 0,
}
WRITES = {
    "add_": lambda x, w: x.add_(w),
    "minus": lambda x, w: x.__isub__(w),
    "item": lambda x, w: x.__setitem__(0, w),
    "through a view": lambda x, w: x[1].mul_(w),
    "twice": lambda x, w: x.add_(w).mul_(w),
    "to a list": lambda x, w: torch._foreach_add_([x], [w.expand(2, 4)]),
    "out of a gradient": lambda x, w: x.sub_(
        torch.autograd.grad((w * w * w).sum(), w, create_graph=True)[0]
    ),
}
REFUSALS = {
    "number": lambda x, bad: x.masked_fill(x > 0, 1e39),
    "index": lambda x, bad: x[bad],
    "index_select": lambda x, bad: x.index_select(0, bad),
    "gather": lambda x, bad: x.gather(0, bad.expand(1, 4)),
    "embedding": lambda x, bad: torch.nn.functional.embedding(bad, x),
}


@pytest.mark.parametrize("refusal", REFUSALS)
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("kind", INPUTS)
def test_is_caught(kind, write, refusal):
    def program(x, w, bad, log):
        log.append("start")
        WRITES[write](x, w)
        log.append("written")
        try:
            y = REFUSALS[refusal](x, bad)
        except (RuntimeError, IndexError) as error:
            log.append(type(error).__name__)
            y = x * 3
        log.append("end")
        return y.sum(), x

    def args():
        w = torch.ones(4, requires_grad=True)
        return INPUTS[kind](w), w, torch.tensor([7]), []

    check(program, args, calls=3)


@pytest.mark.parametrize("kind", INPUTS)
def test_passes_by(kind):
    """Nobody catches it: what the program did before it is there, once."""

    def program(x, w, bad, log):
        log.append("start")
        x.add_(w)
        log.append("written")
        y = x[bad]
        log.append("not here")
        return y

    def args():
        w = torch.ones(4, requires_grad=True)
        return INPUTS[kind](w), w, torch.tensor([7]), []

    check(program, args, calls=3)
