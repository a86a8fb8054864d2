"""Gradients for leaves that the function makes itself: adversarial steps, penalties,
forces, physics-informed residuals; and arguments that it makes require grad.

Values, gradients, flags and what is left on the argument are eager's on every backend.
Most programs are one graph below autograd (WHOLE).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

torch.manual_seed(0)
NET = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))
BACKENDS = ["eager", "aot_eager", "native"]

# ---- leaves made inside


def projected_gradient(x):
    delta = torch.zeros_like(x, requires_grad=True)
    for _ in range(3):
        loss = F.mse_loss(NET(x + delta), torch.ones(2, 1))
        (g,) = torch.autograd.grad(loss, delta)
        stepped = (delta + 0.1 * g.sign()).clamp(-0.2, 0.2)
        delta = stepped.detach().requires_grad_(True)
    return delta.detach()


def penalty(x):
    h = (x * 0.5 + 0.1).requires_grad_(True)
    (g,) = torch.autograd.grad(NET(h).sum(), h, create_graph=True)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


def forces(x):
    position = x.detach().requires_grad_()
    energy = NET(position).sum()
    (f,) = torch.autograd.grad(energy, position)
    return energy.detach(), -f


def saliency(x):
    x = x.clone().requires_grad_(True)
    NET(x).sum().backward()
    return x.grad.abs()


def two_backwards(x):
    d = torch.zeros_like(x, requires_grad=True)
    (x * d).sum().backward()
    (x * x * d).sum().backward()
    return d.grad


def descent(x):
    w = torch.zeros(4, 1, requires_grad=True)
    for _ in range(3):
        ((x @ w - 1) ** 2).mean().backward()
        with torch.no_grad():
            w -= 0.1 * w.grad
            w.grad = None
    return w.detach()


def descent_zeroed(x):
    w = torch.zeros(4, 1, requires_grad=True)
    for _ in range(3):
        if w.grad is not None:
            w.grad.zero_()
        ((x @ w - 1) ** 2).mean().backward()
        with torch.no_grad():
            w.sub_(0.1 * w.grad)
    return w.detach(), w.is_leaf, w.grad


def second_derivative(x):
    v = x.detach().requires_grad_(True)
    (g,) = torch.autograd.grad((v**3).sum(), v, create_graph=True)
    (h,) = torch.autograd.grad(g.sum(), v)
    return h


def unused(x):
    d = torch.zeros(3, requires_grad=True)
    e = torch.zeros(3, requires_grad=True)
    found = torch.autograd.grad((d * 2).sum(), [d, e], allow_unused=True)
    return found[0] + x.sum(), found[1]


def view_of_argument(x):
    v = x.view(-1)
    v.requires_grad_(True)
    (g,) = torch.autograd.grad((v * v).sum(), v)
    return g + 1, x.requires_grad, v.detach()


def by_attribute(x):
    y = x * 2
    y.requires_grad = True
    (y * y).sum().backward()
    return y.grad


def switched_off(x):
    y = (x * 2).requires_grad_(True)
    z = (y * 3).detach()
    y.requires_grad_(False)
    return y + z


def returned(x):
    x = x.clone().requires_grad_(True)
    NET(x).sum().backward()
    return x


def parameter(x):
    p = nn.Parameter(torch.ones(4))
    (x * p).sum().backward()
    return p.grad


def optimizer(x):
    w = torch.zeros(4, 1, requires_grad=True)
    steps = torch.optim.SGD([w], lr=0.1)
    for _ in range(3):
        steps.zero_grad()
        ((x @ w - 1) ** 2).mean().backward()
        steps.step()
    return w.detach()


def hooked(x):
    y = (x * 2).requires_grad_(True)
    y.register_hook(lambda g: g * 2)
    (y * y).sum().backward()
    return y.grad


def retained(x):
    y = (x * 2).requires_grad_(True)
    z = y * y
    z.retain_grad()
    z.sum().backward()
    return y.grad, z.grad


def no_history(x):
    d = torch.zeros(3, requires_grad=True)
    return torch.autograd.grad((d * 2).sum().detach(), d), x


# ---- arguments


def residual(x):
    x.requires_grad_(True)
    u = NET(x)
    (du,) = torch.autograd.grad(u.sum(), x, create_graph=True)
    return ((du - u) ** 2).mean()


def step(x):
    loss = residual(x)
    loss.backward()
    return loss.detach()


def computed_before(x):
    y = x * 2
    x.requires_grad_()
    return y, (x * 3).sum()


def viewed_before(x):
    v = x.view(-1)
    x.requires_grad_()
    return v, (x * 3).sum()


def viewed_after(x):
    x.requires_grad_()
    return x.view(-1), x.sum()


def itself(x):
    x.requires_grad = True
    return x, x * 2


def on_and_off(x):
    x.requires_grad_(True)
    x.requires_grad_(False)
    return x * 2


def without_grad(x):
    with torch.no_grad():
        x.requires_grad_()
        y = x * 2
    return y, x * 3


def written_before(x):
    x.add_(1)
    x.requires_grad_()
    return x * x


def written_after(x):
    x.requires_grad_()
    with torch.no_grad():
        x.add_(1)
    return x * x


def gradient_of_argument(x):
    x.requires_grad_()
    loss = (x * x).sum()
    loss.backward()
    return x.grad, loss


def detached(x):
    x.requires_grad_()
    return x.detach() * 2


def kept(x):
    x.requires_grad_()
    x.retain_grad()
    return x * 2


def broken(x):
    x.requires_grad_()
    y = x * 2
    framejit.graph_break()
    return y * x


def out_of_range(x):
    x.requires_grad_()
    return x.index_select(1, torch.tensor([7]))


def whole_numbers(x):
    x.requires_grad_()
    return x.int()


WHOLE = [
    projected_gradient,
    penalty,
    forces,
    saliency,
    two_backwards,
    descent,
    descent_zeroed,
    second_derivative,
    unused,
    view_of_argument,
    by_attribute,
    switched_off,
    residual,
    step,
    computed_before,
    gradient_of_argument,
    detached,
]
OTHERS = [
    returned,
    parameter,
    optimizer,
    hooked,
    retained,
    no_history,
    viewed_before,
    viewed_after,
    itself,
    on_and_off,
    without_grad,
    written_before,
    written_after,
    kept,
    broken,
    out_of_range,
    whole_numbers,
]


def was_hooked(x):
    x.requires_grad_().register_hook(lambda g: g * 10)
    return x.requires_grad_(False)


ARGUMENTS: dict[str, Callable[[Any], Any]] = {
    "plain": lambda x: x,
    "view": lambda x: x.expand(2, 2, 4)[0],
    "whole": lambda x: x.int(),
    "leaf": lambda x: x.requires_grad_(),
    "computed": lambda x: x.requires_grad_() * 2,
    "was_hooked": was_hooked,
}


def picture(value: Any, argument: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    grad = value.grad if value.is_leaf else None
    grad = None if grad is None else grad.tolist()
    flags = (value.requires_grad, value.is_leaf, value is argument)
    return value.dtype, value.detach().tolist(), flags, grad


def outcome(fn: Any, kind: str) -> Any:
    NET.zero_grad(set_to_none=True)
    x = ARGUMENTS[kind](torch.arange(8.0).reshape(2, 4) / 8)
    try:
        found = fn(x)
        parts = found if isinstance(found, tuple) else (found,)
        for part in parts:
            tensor = isinstance(part, torch.Tensor)
            if tensor and part.requires_grad and not part.is_leaf:
                part.sum().backward()
                break
        pictures = [picture(part, x) for part in parts]
    except Exception as error:
        pictures = [type(error), str(error).partition("\n")[0]]
    return pictures, picture(x, x), [picture(p.grad, None) for p in NET.parameters()]


def close(a: Any, b: Any) -> bool:
    if isinstance(a, float) and isinstance(b, float):
        return abs(a - b) <= 1e-5 + 1e-4 * abs(a)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return bool(a == b)


@pytest.mark.parametrize("kind", ARGUMENTS)
@pytest.mark.parametrize("program", WHOLE + OTHERS, ids=lambda p: p.__name__)
def test_as_eager(program, kind):
    expected = outcome(program, kind)
    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(program, backend=backend)
        for _ in range(2):
            actual = outcome(compiled, kind)
            assert close(actual, expected), (backend, expected, actual)


@pytest.mark.parametrize("program", WHOLE, ids=lambda p: p.__name__)
def test_is_one_graph_below_autograd(program):
    framejit.reset()
    compiled = framejit.compile(program)
    outcome(compiled, "plain")
    counts = framejit.counters()
    told = framejit.events()
    assert (counts["compiles"], counts["breaks"], counts["fallbacks"]) == (1, 0, 0), (
        told
    )


def test_a_leaf_that_escapes_has_its_gradient():
    def keeps(x, box):
        d = torch.zeros_like(x, requires_grad=True)
        ((x + d) ** 2).sum().backward()
        box.append(d)
        return d.grad * 2

    for backend in BACKENDS:
        framejit.reset()
        box: list[Any] = []
        found = framejit.compile(keeps, backend=backend)(torch.ones(3), box)
        (leaf,) = box
        assert leaf.is_leaf and leaf.requires_grad
        assert leaf.grad.tolist() == [2.0] * 3 and found.tolist() == [4.0] * 3


# ---- gradients that are differentiated, or looked at on their way: the captured calls
# run again, on leaves


def before_and_after(a, b):
    x = a * b
    a.requires_grad_(True)
    return x + a * a


def only_before(a, b):
    x = a * b
    a.requires_grad_(True)
    return x


def selected_before(a, b):
    x = torch.where(a > 0, a, b)
    a.requires_grad_(True)
    return x * b, a.sin()


def by_attribute_between(a, b):
    x = (a.exp() * b).tanh()
    a.requires_grad = True
    return x * a


def again_and_again(a, b):
    a.requires_grad_(True)
    x = a * a
    a.requires_grad_(False)
    y = a * a * b
    a.requires_grad_(True)
    return x + y + a.sin()


def twice_said(a, b):
    x = a * b
    a.requires_grad_(True)
    y = a * x
    a.requires_grad_(True)
    return y * a


def both_made(a, b):
    x = a * b
    a.requires_grad_(True)
    y = a * b
    b.requires_grad_(True)
    return x + y * y * b, y


def gradient_inside(a, b):
    x = a * 3
    a.requires_grad_(True)
    (g,) = torch.autograd.grad((a**3 * b).sum(), a, create_graph=True)
    return g * x + b


def without_grad_inside(a, b):
    a.requires_grad_(True)
    with torch.no_grad():
        x = a * b
    return x * a * b


def several_outputs(a, b):
    h = (a * b).sin()
    a.requires_grad_(True)
    z = h * a
    return z, h, z.exp() * a, a * 2


def several_outputs_behind(a, b):
    x = a * b
    a.requires_grad_(True)
    h = (x + a).sin()
    return h * a, h


def random_between(a, b):
    x = F.dropout(a, 0.5)
    a.requires_grad_(True)
    return x * b + F.dropout(a * b, 0.5)


def made_of_both(a, b):
    d = (a * b).detach().requires_grad_(True)
    x = a * d
    a.requires_grad_(True)
    (g,) = torch.autograd.grad((x * d).sum() + (a * d).sum(), d, create_graph=True)
    return g * a + b


def off_and_on(a, b):
    x = torch.tanh(a)
    y = x * b + a.requires_grad_(False)
    a.requires_grad_(True)
    return y * a + b


def off_and_on_by_attribute(a, b):
    x = a.exp() * b
    a.requires_grad = False
    y = a * a
    a.requires_grad = True
    return x * y, x + a


def off_by_another_name(a, b):
    x = a * a * b
    c = a.contiguous().requires_grad_(False)
    y = c * b
    c.requires_grad_(True)
    return x + y, c.sin() * y


def hooked_leaf(a, b):
    x = a * b
    a.requires_grad_(True)
    a.register_hook(lambda g: g * 2)
    return x + a * a * b


def made_after(a, b):  # by the caller
    return (a * b).sin() * b


def made_after_several(a, b):
    x = a * b
    return x.sin(), x * a


def made_after_view(a, b):
    return a.t() * b, a[0] * b


LEAVES = [
    before_and_after,
    only_before,
    selected_before,
    by_attribute_between,
    again_and_again,
    twice_said,
    both_made,
    gradient_inside,
    without_grad_inside,
    several_outputs,
    several_outputs_behind,
    random_between,
    made_of_both,
    off_and_on,
    off_and_on_by_attribute,
    off_by_another_name,
    hooked_leaf,
    made_after,
    made_after_several,
    made_after_view,
]


def total_of(result: Any) -> Any:
    parts = result if isinstance(result, tuple) else (result,)
    return sum((p * p * (i + 1)).sum() for i, p in enumerate(parts) if p.requires_grad)


def grads(total: Any, leaves: Any, **options: Any) -> Any:
    if not (isinstance(total, torch.Tensor) and total.requires_grad):
        return ["none"]
    return list(torch.autograd.grad(total, leaves, allow_unused=True, **options))


def doubly(result: Any, leaves: Any) -> Any:
    first = grads(total_of(result), leaves, create_graph=True)
    again = sum((g * g).sum() for g in first if isinstance(g, torch.Tensor))
    return first, grads(again, leaves)


def triply(result: Any, leaves: Any) -> Any:
    found = [grads(total_of(result), leaves, create_graph=True)]
    for _ in range(2):
        total = sum((g * g).sum() for g in found[-1] if isinstance(g, torch.Tensor))
        found.append(grads(total, leaves, create_graph=True))
    return found


def penalised(result: Any, leaves: Any) -> Any:
    total = total_of(result)
    first = grads(total, leaves, create_graph=True)
    (
        total + sum((g * g).sum() for g in first if isinstance(g, torch.Tensor))
    ).backward()
    return [leaf.grad for leaf in leaves]


def separately(result: Any, leaves: Any) -> Any:
    parts = result if isinstance(result, tuple) else (result,)
    found = []
    for part in parts:
        if part.requires_grad:
            (g, *_) = grads((part * part).sum(), leaves, create_graph=True)
            found.append(g)
            if isinstance(g, torch.Tensor):
                found += grads(g.sin().sum(), leaves, retain_graph=True)
    return found


def of_some(result: Any, leaves: Any) -> Any:
    first = grads(total_of(result), leaves[:1], create_graph=True)
    total = sum((g * g).sum() for g in first if isinstance(g, torch.Tensor))
    return first, grads(total, leaves[1:])


def accumulated(result: Any, leaves: Any) -> Any:
    total = total_of(result)
    total.backward(create_graph=True)
    return [leaf.grad for leaf in leaves]


def retained_on_the_way(result: Any, leaves: Any) -> Any:
    parts = result if isinstance(result, tuple) else (result,)
    for part in parts:
        if part.requires_grad and not part.is_leaf:
            part.retain_grad()
    total_of(result).backward()
    return [p.grad for p in parts if not p.is_leaf], [leaf.grad for leaf in leaves]


def turned_off(result: Any, leaves: Any) -> Any:
    leaves[0].requires_grad_(False)
    total = total_of(result)
    if isinstance(total, torch.Tensor):
        total.backward(create_graph=True)
    first = leaves[1].grad
    if first is None or not first.requires_grad:
        return first, leaves[0].grad
    again = grads((first * first).sum(), leaves[1:], retain_graph=True)
    leaves[0].requires_grad_(True)
    return first, again, grads((first * first).sum(), leaves)


def batched(result: Any, leaves: Any) -> Any:
    part = result[0] if isinstance(result, tuple) else result
    if not part.requires_grad:
        return []
    rows = torch.stack([torch.ones_like(part), part.detach() * 2])
    return torch.autograd.grad(
        part, leaves, rows, is_grads_batched=True, allow_unused=True
    )


WAYS = [
    doubly,
    triply,
    penalised,
    separately,
    of_some,
    accumulated,
    retained_on_the_way,
    turned_off,
    batched,
]


@pytest.mark.parametrize("given", ["leaf", "computed", "leaves"])
@pytest.mark.parametrize("way", WAYS, ids=lambda p: p.__name__)
@pytest.mark.parametrize("program", LEAVES, ids=lambda p: p.__name__)
def test_gradients_of_calls_that_run_again(program, way, given):
    def once(fn: Any) -> Any:
        torch.manual_seed(1)
        a = torch.randn(3, 3, dtype=torch.double)
        a.requires_grad_(given == "leaves")
        leaf = torch.randn(3, 3, dtype=torch.double)
        makes_it = program is not both_made
        b = leaf.requires_grad_(makes_it)
        b = b * 2 if given == "computed" and makes_it else b
        result = fn(a, b)
        a.requires_grad_(True)
        try:
            return way(result, [a, leaf])
        except RuntimeError as error:
            return str(error)

    expected = once(program)
    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(program, backend=backend)
        for call in range(2):
            same(expected, once(compiled), f"{backend}, call {call}")


def same(expected: Any, actual: Any, where: str) -> None:
    if isinstance(expected, (list, tuple)) and isinstance(actual, (list, tuple)):
        assert len(expected) == len(actual), where
        for i, (a, b) in enumerate(zip(expected, actual)):
            same(a, b, f"{where}[{i}]")
    elif isinstance(expected, torch.Tensor) and isinstance(actual, torch.Tensor):
        assert expected.requires_grad == actual.requires_grad, where
        torch.testing.assert_close(actual, expected, msg=lambda m: f"{where}: {m}")
    else:
        assert type(expected) is type(actual) and expected == actual, where
