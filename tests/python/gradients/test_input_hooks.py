"""Hooks of what a graph reads run when eager's do, in that order."""

from __future__ import annotations

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same
from framejit import _C


def model():
    torch.manual_seed(0)
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)
    )


PROGRAMS = {
    "layers": lambda m, x: m(x),
    "twice": lambda m, x: m(x) + m(x.sin()),
    "out of order": lambda m, x: m(x) * m[2].bias + m[0].bias.sum(),
    "tied": lambda m, x: torch.tanh(x @ m[0].weight.t()) @ m[0].weight,
    "two outputs": lambda m, x: (m[0](x), m[2](x @ m[0].weight.t())),
    "apart": lambda m, x: (m[0].weight * 2, m[2].weight * 3, x * 4),
}
HOOKS = {
    "gradient": lambda t, say: t.register_hook(lambda g: say(g)),
    "changed": lambda t, say: t.register_hook(lambda g: (say(g), g * 2)[1]),
    "accumulated": lambda t, say: t.register_post_accumulate_grad_hook(
        lambda p: say(p.grad)
    ),
}


def history_of(backend, program, hook, which, use):
    """What the hooks see in some steps, and the gradients in the end."""
    seen = []
    m = model()
    x = torch.linspace(-1, 1, 15).view(5, 3).requires_grad_()
    leaves = {"x": x, **dict(m.named_parameters())}
    for name in which:

        def say(gradient, name=name):
            seen.append((name, None if gradient is None else gradient.clone()))

        HOOKS[hook](leaves[name], say)
    run = lambda m, x: PROGRAMS[program](m, x)  # noqa: E731
    if backend:
        framejit.reset()
        run = framejit.compile(run, backend=backend)
    for _ in range(3):
        results = run(m, x)
        outputs = results if isinstance(results, tuple) else (results,)
        sum(o.sin().sum() for o in outputs[use : use + 1] or outputs).backward()
        seen.append(("step", None))
    return seen, {name: leaf.grad for name, leaf in leaves.items()}


EVERYTHING = ("x", "0.weight", "0.bias", "2.weight", "2.bias")


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("use", [0, 1, 9])
@pytest.mark.parametrize("which", [EVERYTHING, ("0.weight",), ("2.bias", "x")])
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_hooks_run_as_in_eager(program, hook, which, use, backend):
    seen, gradients = history_of(backend, program, hook, which, use)
    expected, wanted = history_of(None, program, hook, which, use)
    assert [name for name, _ in seen] == [name for name, _ in expected]
    torch.testing.assert_close(
        [g for _, g in seen if g is not None],
        [g for _, g in expected if g is not None],
    )
    assert [g is None for _, g in seen] == [g is None for _, g in expected]
    torch.testing.assert_close(gradients, wanted)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_hooks_of_a_tensor_with_a_history(backend):
    def f(a, b):
        return a * 2, b * 3

    def steps(run):
        seen = []
        w = torch.ones(3, requires_grad=True)
        for use in (0, 1, 0):
            a, b = w.sin(), w.cos()
            for name, t in (("a", a), ("b", b)):
                t.register_hook(lambda g, name=name: seen.append((name, g * 2)))
            run(a, b)[use].sum().backward()
        return seen, w.grad

    framejit.reset()
    got, want = steps(framejit.compile(f, backend=backend)), steps(f)
    assert [name for name, _ in got[0]] == [name for name, _ in want[0]]
    torch.testing.assert_close(got[1], want[1])


class Refused(Exception):
    pass


def refuse(_):
    raise Refused


def look_at(leaves):
    """A hook that sees which gradients are there by then."""
    seen = []
    return seen, lambda _: seen.append([leaf.grad is None for leaf in leaves])


REGISTER = {
    "gradient": lambda t, hook: t.register_hook(hook),
    "accumulated": lambda t, hook: t.register_post_accumulate_grad_hook(hook),
}


def gradients_after(backend, program, register, name, use):
    m = model()
    x = torch.linspace(-1, 1, 15).view(5, 3).requires_grad_()
    leaves = {"x": x, **dict(m.named_parameters())}
    looks = {}
    for other in (EVERYTHING[0], name):
        looks[other], hook = look_at(leaves.values())
        REGISTER[register](leaves[other], hook)
    REGISTER[register](leaves[name], refuse)
    run = lambda m, x: PROGRAMS[program](m, x)  # noqa: E731
    if backend:
        framejit.reset()
        run = framejit.compile(run, backend=backend)
    raised = []
    for _ in range(2):
        results = run(m, x)
        outputs = results if isinstance(results, tuple) else (results,)
        try:
            sum(o.sin().sum() for o in outputs[use : use + 1] or outputs).backward()
        except Refused:
            raised.append(True)
    return {name: leaf.grad for name, leaf in leaves.items()}, raised, looks


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("use", [0, 9])
@pytest.mark.parametrize("name", EVERYTHING)
@pytest.mark.parametrize("register", REGISTER)
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_hook_that_raises_leaves_the_gradients_of_eager(
    program, register, name, use, backend
):
    actual = gradients_after(backend, program, register, name, use)
    expected = gradients_after(None, program, register, name, use)
    assert_same(expected, actual)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_only_hooks_that_see_it_cost_the_graph(backend):
    def told():
        return [text for _, text in _C.recent_events() if "have hooks" in text]

    framejit.reset()
    compiled = framejit.compile(lambda m, x: m(x), backend=backend)
    m, x = model(), torch.randn(5, 3)
    _C.clear_events()
    alone = framejit.compile(lambda x: x.sin() * x, backend=backend)
    one = torch.randn(5, requires_grad=True)
    handles = [one.register_hook(lambda g: g * 2)]
    alone(one).sum().backward()
    assert not told()
    handles.append(m[2].weight.register_hook(lambda g: g * 2))
    for _ in range(3):
        compiled(m, x).sum().backward()
    assert len(told()) == 1
