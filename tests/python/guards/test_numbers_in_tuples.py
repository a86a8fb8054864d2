"""Numbers in tuples that came in: symbolic once they change, and never stale."""

import pytest
import torch

import framejit
from differential import assert_same

TUPLES = {
    "items": lambda x, t: x * t[0] + t[-1],
    "unpacked": lambda x, t: x * sum(a * b for a, b in zip(t, (2, 3), strict=True)),
    "returned": lambda x, t: (x * 2, t, [t, t]),
    "sizes": lambda x, t: torch.ones(t) * x.sum(),
    "compared": lambda x, t: x * 2 if t == (3, 4) else x * 3,
    "key": lambda x, t: x * {(3, 4): 2.0}.get(t, 5.0),
    "longer": lambda x, t: (x * 2, t + (1,), t * 2),
    "text": lambda x, t: (x, f"{t}"),
    "itself": lambda x, t: (x + 1, t is t, tuple(t) is t),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", TUPLES)
def test_numbers_in_a_tuple_are_those_of_the_call(name, dynamic):
    framejit.reset()
    compiled = framejit.compile(TUPLES[name], dynamic=dynamic)
    x = torch.ones(3)
    for t in [(3, 4), (5, 6), (7, 8), (3, 4), (4, 4), (1, 0), (3, 4), (7, 8)]:
        actual, expected = compiled(x, t), TUPLES[name](x, t)
        assert_same(actual, expected)
        if name == "returned":
            assert actual[1] is t and actual[2][0] is t


def test_numbers_in_a_tuple_become_symbolic():
    compiled = framejit.compile(lambda x, t: x * t[0] + t[1])
    x = torch.ones(3)
    for i in range(2, 12):
        t = (i + 0.5, i)
        assert_same(compiled(x, t), x * t[0] + t[1])
    assert len(list(framejit.inspect(compiled))) == 2


def test_betas_of_a_schedule_are_compiled_for_once():
    def losses(compile):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=20)

        def step(x):
            optimizer.zero_grad()
            loss = model(x).square().mean()
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = compile(step)
        found = []
        for _ in range(12):
            found.append(run(torch.randn(3, 4)))
            schedule.step()
        return found, run

    expected, _ = losses(lambda f: f)
    actual, run = losses(framejit.compile)
    assert_same(actual, expected, exact={"rtol": 1e-4, "atol": 1e-5})
    assert len(list(framejit.inspect(run))) == 2
