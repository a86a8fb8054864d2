"""Outputs that are views of a value which the caller does not get: of each other
they are no views, and none lies in the history of another one. Nor does a view of a
leaf that the function made of an argument's data lie in that of the argument."""

from __future__ import annotations

import contextlib

import pytest
import torch

import framejit

BACKENDS = ["eager", "aot_eager", "native"]


def through_one(x):
    v = (x * 2)[:]
    return v, v.t()


def one_beside_it(x):
    v = x * 2
    a = v[:]
    return a, a.t(), v.view(-1)


def written_between(x):
    v = x * 2
    a, b = v[:], v.t()
    v.mul_(3)
    return a, b


def written_through_one(x):
    v = x * 2
    a = v.t()
    a.mul_(3)
    return a, v


def written_through_sibling(x):
    v = x * 2
    a, b = v[:], v.view(-1)
    a.mul_(3)
    return b, a


def without_grad(x):
    v = x * 2
    with torch.no_grad():
        return v[:], v.t()


def one_without_grad(x):
    v = x * 2
    with torch.no_grad():
        a = v[:]
    return a, v.t()


def one_read(x):
    v = (x * 2).exp()
    a = v[:]
    return a, v.t(), a.sin()


def hidden_read(x):
    v = (x * 2).exp()
    return v[:], v.t(), v.sin()


def behind_another(x):
    h = x * 2
    v = h.exp()
    return h, v[:], v.t()


def leaf_of_value(x):
    v = x * 2
    w = v.detach().requires_grad_()
    return v, w.t()


def leaf_of_view(x):
    w = x[:].detach()
    w.requires_grad_()
    return w.t(), x.sin()


def leaf_and_views(x):
    w = x.detach().requires_grad_()
    return w[0], w.t(), (w * 2).sum()


def leaf_differentiated(x):
    w = x.detach().requires_grad_()
    v = w[0]
    (w * v).sum().backward()
    return v, x * 2


def detached_views(x):
    d = (x * 2).detach()
    return d[:], d.t()


def detached_and_views(x):
    v = x * 2
    d = v.detach()
    return v, d, d.t()


def detached_views_beside(x):
    v = x * 2
    d = v.detach()
    return v, d[:], d.t()


def detached_input(x):
    d = x.detach()
    return d, d.t()


def detached_input_views(x):
    d = x.detach()
    return d[:], d.t(), x * 2


def detached_parts(x):
    v = x * 2
    a, b = v.detach().chunk(2)
    c, d = x.detach().unbind()
    return v, a, b, c, d


def three_views(x):
    v = (x * 2).tanh()
    return v.t(), v.view(-1), v[:, :1]


def parts_of_a_view(x):
    v = (x * 2)[:]
    return v, v[0], v.view(-1)


def turned_where_it_is(x):
    v = x * 2
    a = v[:]
    a.t_()
    return a, v.view(4, 1)


def twice(view, other=None):
    def f(x):
        v = x * 2
        return view(v), (other or view)(v)

    return f


BODIES = {
    "slices": twice(lambda v: v[:]),
    "flat and turned twice": twice(lambda v: v.flatten(), lambda v: v.t().t()),
    "turned": twice(lambda v: v.t()),
    "same and turned": twice(lambda v: v.view_as(v), lambda v: v.t()),
    "flat and row": twice(lambda v: v.view(-1), lambda v: v[0]),
    "part and flat": twice(lambda v: v[1:], lambda v: v.view(-1)),
    "flat and itself": twice(lambda v: v.view(-1), lambda v: v),
    "detached": twice(lambda v: v[:], lambda v: v.detach()),
    "detached first": twice(lambda v: v.detach(), lambda v: v[:]),
    "of input": lambda x: (x.view(-1), x.t()),
    "of input, one of another": lambda x: (lambda v: (v, v.t()))(x[:]),
}
BODIES |= {
    body.__name__: body
    for body in (
        through_one,
        one_beside_it,
        written_between,
        written_through_one,
        written_through_sibling,
        without_grad,
        one_without_grad,
        one_read,
        hidden_read,
        behind_another,
        leaf_of_value,
        leaf_of_view,
        leaf_and_views,
        leaf_differentiated,
        detached_views,
        detached_and_views,
        detached_views_beside,
        detached_input,
        detached_input_views,
        detached_parts,
        three_views,
        parts_of_a_view,
        turned_where_it_is,
    )
}


def text(value):
    return None if value is None else value.detach().tolist()


def facts(outputs):
    return [(y.requires_grad, y.is_leaf, text(y), y._version) for y in outputs]


def total(outputs):
    return sum((y * (k + 1)).sum() for k, y in enumerate(outputs))


# What a caller does with the outputs, and sees then.


def look(x, outputs, w):
    return None


def differentiate(x, outputs, w):
    total(outputs).backward()


def hook(k):
    def act(x, outputs, w):
        seen = []
        outputs[k].register_hook(lambda g: (seen.append(text(g)), g * 10)[1])
        try:
            total(outputs).backward()
        finally:
            seen.append("end")
        return seen

    return act


def retain(k):
    def act(x, outputs, w):
        outputs[k].retain_grad()
        total(outputs).backward()
        return [text(y.grad) for y in outputs if y.is_leaf or y.retains_grad]

    return act


def between(k, n):
    def act(x, outputs, w):
        return text(torch.autograd.grad(outputs[k].sin().sum(), outputs[n])[0])

    return act


def differentiate_twice(x, outputs, w):
    (g,) = torch.autograd.grad(total([y.sin() for y in outputs]), x, create_graph=True)
    g.sum().backward()


def require(k):
    def act(x, outputs, w):
        outputs[k].requires_grad_()
        after = facts(outputs)
        total(outputs).backward()
        return after, text(outputs[k].grad if outputs[k].is_leaf else None)

    return act


def write(k, hooked):
    def act(x, outputs, w):
        outputs[k].mul_(w)
        after = facts(outputs)
        seen = []
        if outputs[hooked].requires_grad:
            outputs[hooked].register_hook(lambda g: (seen.append(text(g)), g * 10)[1])
        total(outputs).backward()
        return after, seen, text(w.grad)

    return act


ACTS = {"look": look, "differentiate": differentiate, "twice": differentiate_twice}
for _k in range(3):
    ACTS |= {f"hook {_k}": hook(_k), f"retain {_k}": retain(_k)}
    ACTS |= {f"require {_k}": require(_k)}
    for _n in range(3):
        ACTS |= {f"{_k} by {_n}": between(_k, _n)}
        ACTS |= {f"write {_k}, hook {_n}": write(_k, _n)}


def result(fn, grad, act):
    x = (torch.arange(4.0).view(2, 2) / 8 + 0.25).requires_grad_(grad)
    w = torch.tensor(3.0, requires_grad=True)
    outputs = fn(x)
    seen = [facts(outputs)]
    try:
        seen.append(act(x, outputs, w))
    except (RuntimeError, IndexError) as error:
        seen.append((type(error).__name__, str(error)[:30]))
    with contextlib.suppress(RuntimeError):  # asks a view for its history
        seen.append(facts(outputs))
    return *seen, text(x.grad)


def close(a, b):
    if isinstance(a, float) and isinstance(b, float):
        return a == pytest.approx(b, rel=1e-5, abs=1e-6)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(close, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.filterwarnings("ignore:Using backward")
@pytest.mark.filterwarnings("ignore:The .grad attribute")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("body", BODIES)
def test_views(body, grad, backend):
    compiled = framejit.compile(BODIES[body], backend=backend)
    wrong = {}
    for name, act in ACTS.items():
        expected = result(BODIES[body], grad, act)
        for _ in range(2):
            found = result(compiled, grad, act)
            if not close(expected, found):
                wrong[name] = (found, expected)
    assert not wrong


# (Nothing is lost by it.)
COMPILED = [
    "slices",
    "same and turned",
    "flat and row",
    "three_views",
    "detached_parts",
]


@pytest.mark.parametrize("backend", BACKENDS[1:])
@pytest.mark.parametrize("grad", [True, False], ids=["grad", "no grad"])
@pytest.mark.parametrize("body", COMPILED)
def test_they_are_compiled(body, grad, backend):
    compiled = framejit.compile(BODIES[body], backend=backend)
    compiled(torch.ones(2, 2, requires_grad=grad))
    assert [e.fallback_reason for e in framejit.inspect(compiled)] == [""]
