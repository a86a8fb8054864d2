"""Ints that are 0 and 1 are symbols like others once they have changed: data need no
entry for each pattern of them."""

from __future__ import annotations

import random

import pytest
import torch

import framejit
from differential import BACKENDS, _run, compare

DATA = {
    "tensor of a list": lambda x, a: x + torch.tensor(a),
    "sum": lambda x, a: x * sum(a),
    "each times": lambda x, a: sum((x * n for n in a), x),
    "rows": lambda x, a: x + sum(x[n] for n in a),
    "rows of rows": lambda x, a: x[:, a[0]] + x[None, a[1], a[2]] + x[..., a[3]],
    "columns in place": lambda x, a: x.clone().index_fill_(
        0, torch.tensor(a[:1]), a[1]
    ),
    "arithmetic": lambda x, a: x + (a[0] * 3 - a[1]) ** 2 + a[2] / 2 - a[3] // 2,
    "written": lambda x, a: [x.clone().__setitem__(n, float(n)) for n in a][0],
    "returned": lambda x, a: (x * 2, a[0], a[1] + 1, a),
    "full": lambda x, a: x + torch.full((4, 4), a[0]) - torch.scalar_tensor(a[1]),
    "float of": lambda x, a: x * float(a[0]) + bool(a[1] * 0),
}
# Where a number decides something, each side is a program of its own.
DECIDED = {
    "alpha": lambda x, a: torch.add(x, x, alpha=a[0]).sub(x, alpha=a[3]),
    "sizes": lambda x, a: torch.zeros(a[0], 4).sum(0) + x[: a[1]].sum(),
    "expanded": lambda x, a: x[: a[0]].expand(-1, 4) * 1 if a[0] else x,
    "broadcast": lambda x, a: torch.ones(a[0] + 1, 4) * x[: a[1] + 1].sum(0),
    "added sizes": lambda x, a: torch.ones(a[0] + 1, 4) + torch.ones(a[1] + 1, 4),
    "shape": lambda x, a: x.view(2 + 2 * a[0], -1).t().contiguous(),
    "branch": lambda x, a: x * 2 if a[0] == 1 else x - a[1],
    "truth": lambda x, a: [x * n if n else x for n in a],
    "dim": lambda x, a: x.softmax(a[0]).sum(a[1], keepdim=bool(a[2])),
    "power": lambda x, a: x ** a[0] + 2.0 ** a[1],
    "divided": lambda x, a: x + a[0] / (a[1] + 1) + 3 % (a[2] + 1),
    "by nothing": lambda x, a: x * (1 // a[0]),
    "range": lambda x, a: [x * n for n in range(a[0] + a[1])] + [x],
    "repeat": lambda x, a: x.repeat(a[0] + 1, 1) + len([x] * a[1]),
    "strided": lambda x, a: x.as_strided((2, a[0] + 1), (a[1] + 1, 1), a[2]) * 1,
    "view": lambda x, a: x[a[0] :, a[1] : 2],
    "diagonal": lambda x, a: x.tril(a[0]) + x.diagonal(a[1]).sum(),
    "rolled": lambda x, a: x.roll(a[0], a[1]) + x.narrow(0, a[2], 1),
    "text": lambda x, a: (f"{a[0]}", {a[1]: x}, x + 1),
    "arange": lambda x, a: torch.arange(a[0], 4) + torch.arange(4 - a[0])[a[1] :].sum(),
    "min and max": lambda x, a: x[max(a[0], a[1]) : 4 - min(a[2], a[3])] * 1,
}


def patterns(count):
    draw = random.Random(0)
    return [[draw.randint(0, 1) for _ in range(4)] for _ in range(count)]


def run_all(fn, backend, dynamic, calls, limit=64):
    framejit.reset()
    compiled = framejit.compile(
        fn, backend=backend, dynamic=dynamic, recompile_limit=limit
    )
    for number, values in enumerate(calls):
        outcomes = [
            _run(f, (torch.arange(16.0).view(4, 4).requires_grad_(), values), True, 0)
            for f in (fn, compiled)
        ]
        try:
            compare(*outcomes)
        except AssertionError as error:
            raise AssertionError(f"call {number} of {values}: {error}") from error
    return len(framejit.inspect(compiled))


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", DATA)
def test_data_of_zeros_and_ones_have_few_entries(name, backend, dynamic):
    limit = 2 if dynamic else 5
    assert run_all(DATA[name], backend, dynamic, patterns(14)) <= limit


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", [*DECIDED, *DATA])
def test_numbers_that_decide_are_as_in_eager(name, backend, dynamic):
    draw = random.Random(name)
    calls = [[draw.choice((0, 1, 0, 1, 2, 3, -1)) for _ in range(4)] for _ in range(14)]
    run_all((DATA | DECIDED)[name], backend, dynamic, calls)


def test_a_hint_at_the_limit_helps():
    """What it says to do ends the recompilations."""

    def step(x, actions):
        return x + torch.tensor(actions)

    x = torch.zeros(12)
    draw = random.Random(1)
    calls = [[draw.randint(0, 1) for _ in range(12)] for _ in range(20)]
    compiled = framejit.compile(step, dynamic=False)
    for actions in calls:
        compiled(x, actions)
    (told,) = [t for _, t in framejit.events() if t.startswith("recompile_limit (")]
    assert "dynamic=True" in told
    framejit.reset()
    compiled = framejit.compile(step, dynamic=True)
    for actions in calls:
        torch.testing.assert_close(compiled(x, actions), step(x, actions))
    assert len(framejit.inspect(compiled)) == 1
