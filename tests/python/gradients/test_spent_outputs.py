"""Results whose history a backward inside the compiled function has freed.

A training step that returns its loss is one graph with kernels; who asks for a
gradient of the loss again is told what eager tells.
"""

import logging

import pytest
import torch

import framejit


def inputs():
    torch.manual_seed(0)
    x = torch.randn(5, 3)
    w = torch.randn(3, 2, requires_grad=True)
    return x, w


def returns_loss(x, w):
    loss = (x @ w).tanh().pow(2).mean()
    loss.backward()
    return (loss,)


def returns_what_the_loss_is_made_of(x, w):
    y = (x @ w).tanh()
    z = y * 3
    z.pow(2).sum().backward()
    return y, z


def one_spent_one_not(x, w):
    y = (x @ w).sin()
    loss = y.pow(2).mean()
    loss.backward()
    return loss, (x * 2) @ w


def history_kept(x, w):
    loss = (x @ w).exp().mean()
    loss.backward(retain_graph=True)
    return (loss,)


def by_autograd_grad(x, w):
    loss = (x @ w).exp().mean()
    (g,) = torch.autograd.grad(loss, [w])
    return loss, g


def nothing_was_saved(x, w):
    loss = (w + 1).sum()
    loss.backward()
    return (loss,)


def view_of_spent(x, w):
    y = (x @ w).tanh()
    y.pow(2).sum().backward()
    return y.t(), y[0]


def second_use(results, x, w):
    """What each result gives or raises when differentiated (again)."""
    seen = []
    for result in results:
        seen.append((result.requires_grad, result.is_leaf))
        if not result.requires_grad:
            continue
        try:
            seen.append(torch.autograd.grad(result.sum(), [w])[0].tolist())
        except RuntimeError as error:
            seen.append(str(error))
    return seen


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize(
    "function",
    [
        returns_loss,
        returns_what_the_loss_is_made_of,
        one_spent_one_not,
        history_kept,
        by_autograd_grad,
        nothing_was_saved,
        view_of_spent,
    ],
    ids=lambda f: f.__name__,
)
def test_a_second_backward_is_what_eager_makes_of_it(function, backend):
    framejit.reset()
    compiled = framejit.compile(function, backend=backend)
    for _ in range(3):
        sides = []
        for run in (function, compiled):
            x, w = inputs()
            results = run(x, w)
            values = [result.detach().clone() for result in results]
            grad = None if w.grad is None else w.grad.clone()
            sides.append((values, grad, second_use(results, x, w)))
        expected, actual = sides
        torch.testing.assert_close(actual[0], expected[0])
        torch.testing.assert_close(actual[1], expected[1])
        assert len(actual[2]) == len(expected[2])
        for a, b in zip(actual[2], expected[2], strict=True):
            if isinstance(b, list):
                torch.testing.assert_close(torch.tensor(a), torch.tensor(b))
            else:
                assert a == b


def test_a_training_step_that_returns_its_loss_gets_kernels(caplog):
    framejit.reset()
    caplog.set_level(logging.WARNING, logger="framejit")
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1)
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    @framejit.compile(backend="native", fullgraph=True)
    def step(x, y):
        optimizer.zero_grad()
        loss = ((model(x) - y) ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss

    losses = [step(torch.ones(3, 4), torch.ones(3, 1)) for _ in range(4)]
    assert losses[-1] < losses[0]
    assert not [r for r in caplog.records if "torch level" in r.getMessage()]
