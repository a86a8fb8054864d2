"""Gradients taken inside a compiled function, up to a whole training step."""

import copy

import pytest
import torch
import torch.nn.functional as F
from training_steps import mlp, optim, run_steps, with_optimizer

import framejit
from differential import BACKENDS, assert_same, check, program


def leaves(count=2, grad=True):
    def make():
        return tuple(torch.randn(3, 4, requires_grad=grad) for _ in range(count))

    return make


# ---- torch.autograd.grad


@program(leaves())
def test_grad(x, y):
    loss = (x * y).sin().sum()
    gx, gy = torch.autograd.grad(loss, (x, y))
    return gx, gy * 2


@program(leaves())
def test_grad_of_one_tensor(x, y):
    (g,) = torch.autograd.grad((x * x * y).sum(), x)
    return g


@program(leaves())
def test_grad_of_an_intermediate(x, y):
    z = x * y
    (g,) = torch.autograd.grad(z.exp().sum(), z)
    return g, z.detach()


@program(leaves())
def test_grad_with_grad_outputs(x, y):
    z = x * y
    return torch.autograd.grad(z, (x, y), grad_outputs=torch.ones_like(z) * 3)


@program(leaves())
def test_grad_unused(x, y):
    return torch.autograd.grad((x * 2).sum(), (x, y), allow_unused=True)


@program(leaves(), graphs=None, breaks=None)
def test_grad_unused_raises(x, y):
    return torch.autograd.grad((x * 2).sum(), (x, y))


@program(leaves())
def test_grad_create_graph(x, y):
    loss = (x**3 * y).sum()
    (g,) = torch.autograd.grad(loss, x, create_graph=True)
    penalty = (g.norm() - 1) ** 2
    return penalty


@program(leaves())
def test_grad_twice_with_retain_graph(x, y):
    loss = (x * y).exp().sum()
    (a,) = torch.autograd.grad(loss, x, retain_graph=True)
    (b,) = torch.autograd.grad(loss, y)
    return a, b


@program(leaves(), graphs=None, breaks=None)
def test_grad_twice_without_retain_graph(x, y):
    loss = (x * y).exp().sum()
    torch.autograd.grad(loss, x)
    return torch.autograd.grad(loss, y)


@program(leaves(), graphs=None, breaks=None)
def test_grad_where_nothing_requires_it(x, y):
    return torch.autograd.grad((x.detach() * 2).sum(), x)


def non_leaves():
    base = torch.randn(3, 4, requires_grad=True)
    return base, base * 2


@program(non_leaves, graphs=None, breaks=None, backward=False)
def test_grad_through_outside_history(x, y):
    loss = (y * y).sum()
    return torch.autograd.grad(loss, x, retain_graph=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_leafness_is_guarded(backend):
    def fn(x):
        return torch.autograd.grad((x * x).sum(), x)[0]

    compiled = framejit.compile(fn, backend=backend)
    for _ in range(2):
        leaf = torch.randn(3, requires_grad=True)
        torch.testing.assert_close(compiled(leaf), fn(leaf))
        inner = torch.randn(3, requires_grad=True) * 1
        torch.testing.assert_close(compiled(inner), fn(inner))


@pytest.mark.parametrize("backend", BACKENDS)
def test_hooks_on_a_leaf_are_guarded(backend):
    def fn(x):
        return torch.autograd.grad((x * x).sum(), x)[0]

    compiled = framejit.compile(fn, backend=backend)
    x = torch.ones(3, requires_grad=True)
    assert compiled(x).tolist() == [2.0] * 3
    handle = x.register_hook(lambda grad: grad * 5)
    assert compiled(x).tolist() == fn(x).tolist() == [10.0] * 3
    handle.remove()
    assert compiled(x).tolist() == fn(x).tolist()


# ---- backward()


def run_both(fn, make, backend, calls=3, breaks=0, graphs=None):
    """fn(state) on equal states; the states are compared after every call."""
    framejit.reset()
    torch.manual_seed(0)
    eager = make()
    mirror = copy.deepcopy(eager)
    compiled = framejit.compile(fn, backend=backend)
    for number in range(calls):
        torch.manual_seed(number)
        data = torch.randn(5, 4)
        torch.manual_seed(7)
        want = fn(eager, data)
        torch.manual_seed(7)
        got = compiled(mirror, data)
        torch.testing.assert_close(got, want)
        assert got.requires_grad == want.requires_grad
        for (name, a), (_, b) in zip(
            eager["model"].named_parameters(), mirror["model"].named_parameters()
        ):
            where = f"call {number}: {name}"
            torch.testing.assert_close(b, a, msg=lambda m, w=where: f"{w}: {m}")
            assert (a.grad is None) == (b.grad is None), where
            if a.grad is not None:
                torch.testing.assert_close(b.grad, a.grad)
                assert a.grad.stride() == b.grad.stride()
                assert a.grad.requires_grad == b.grad.requires_grad
                assert a.grad.data_ptr() != a.data_ptr()
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    if breaks is not None:
        found = sum(len(e.breaks) for e in entries)
        assert found == breaks, f"{found} breaks: {framejit.events()}"
    if graphs is not None:
        assert sum(1 for e in entries if e.operations) == graphs
    return compiled


def plain():
    return {"model": mlp()}


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_accumulates(backend):
    def fn(state, x):
        loss = state["model"](x).pow(2).mean()
        loss.backward()
        return loss.detach()

    # The first call finds no .grad, the others add to it.
    run_both(fn, plain, backend, graphs=2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_returns_the_loss(backend):
    def fn(state, x):
        loss = state["model"](x).pow(2).mean()
        loss.backward()
        return loss

    run_both(fn, plain, backend)


def spent_mean(model, x):
    loss = model(x).pow(2).mean()
    loss.backward()
    return loss


def spent_with_another(model, x):
    hidden = model(x)
    loss = hidden.pow(2).mean()
    loss.backward()
    return loss, x * 3, loss.detach() * 2


def spent_view(model, x):
    loss = F.mse_loss(model(x), x[:, :1])
    loss.backward()
    return loss.view(1), loss + 1


def retained(model, x):
    loss = model(x).pow(2).mean()
    loss.backward(retain_graph=True)
    return loss


def partly_spent(model, x):
    hidden = model(x)
    hidden.pow(2).mean().backward(inputs=None)
    return hidden


@pytest.mark.parametrize(
    "fn", [spent_mean, spent_with_another, spent_view, retained, partly_spent]
)
@pytest.mark.parametrize("backend", BACKENDS)
def test_outputs_whose_backward_ran(fn, backend):
    """Another backward of them raises, and only of them."""
    framejit.reset()
    torch.manual_seed(0)
    eager = mlp()
    mirror = copy.deepcopy(eager)
    compiled = framejit.compile(fn, backend=backend)
    for _ in range(3):
        data = torch.randn(5, 4)
        seen = []
        for run, model in ((fn, eager), (compiled, mirror)):
            x = data.clone().requires_grad_()
            found = run(model, x)
            outputs = found if isinstance(found, tuple) else (found,)
            outcomes = []
            for output in outputs:
                outcomes.append((output.detach().clone(), output.requires_grad))
                assert (output.grad_fn is None) != output.requires_grad
                if not output.requires_grad:
                    continue
                try:
                    output.sum().backward()
                    outcomes.append("fine")
                except RuntimeError as error:
                    outcomes.append(str(error))
            grads = [p.grad for p in model.parameters()]
            seen.append((outcomes, x.grad, grads))
        assert_same(seen[0], seen[1], "outcome", exact=False)
    entry = framejit.inspect(compiled)[0]
    if backend != "eager" and fn in (spent_mean, spent_with_another, retained):
        assert entry.fallback_reason == ""


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_then_grad_is_read(backend):
    def fn(state, x):
        model = state["model"]
        model.zero_grad()
        model(x).pow(2).mean().backward()
        return sum(p.grad.norm() for p in model.parameters())

    run_both(fn, plain, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_two_backwards(backend):
    def fn(state, x):
        model = state["model"]
        loss = model(x).pow(2).mean()
        loss.backward(retain_graph=True)
        (loss * 2).backward()
        return loss.detach()

    run_both(fn, plain, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_with_gradient(backend):
    def fn(state, x):
        y = state["model"](x)
        y.backward(torch.ones_like(y) * 0.5)
        return y.detach()

    run_both(fn, plain, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_manual_sgd(backend):
    def fn(state, x):
        model = state["model"]
        loss = model(x).pow(2).mean()
        loss.backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(p.grad, alpha=0.1)
                p.grad = None
        return loss.detach()

    run_both(fn, plain, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_in_a_break(backend):
    def fn(state, x):
        loss = state["model"](x).pow(2).mean()
        framejit.graph_break()
        loss.backward()
        return loss.detach()

    run_both(fn, plain, backend, breaks=None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_shared_gradient_memory(backend):
    """Two leaves get one gradient tensor: each must own its .grad."""

    def fn(a, b):
        (a + b).sum().backward()
        a.grad.add_(1)
        return a.grad, b.grad

    compiled = framejit.compile(fn, backend=backend)
    for run in (fn, compiled, compiled):
        a, b = (torch.ones(3, requires_grad=True) for _ in range(2))
        run(a, b)
        assert a.grad.tolist() == [2.0] * 3
        assert b.grad.tolist() == [1.0] * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_hook_on_a_parameter(backend):
    def make():
        model = mlp()
        return {"model": model}

    def fn(state, x):
        loss = state["model"](x).pow(2).mean()
        loss.backward()
        return loss.detach()

    eager, mirror = make(), make()
    mirror["model"].load_state_dict(eager["model"].state_dict())
    for state in (eager, mirror):
        state["model"][0].weight.register_hook(lambda grad: grad * 3)
    compiled = framejit.compile(fn, backend=backend)
    x = torch.randn(5, 4)
    for _ in range(2):
        torch.testing.assert_close(compiled(mirror, x), fn(eager, x))
        for a, b in zip(eager["model"].parameters(), mirror["model"].parameters()):
            torch.testing.assert_close(a.grad, b.grad)


# ---- .grad as state


@program(leaves(1))
def test_grad_is_assigned(x):
    x.grad = torch.ones_like(x) * 2
    return x.grad * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_grad_assigned_survives(backend):
    def fn(x, value):
        x.grad = value * 2
        before = x.grad
        x.grad = None
        missing = x.grad is None
        x.grad = before
        return missing

    compiled = framejit.compile(fn, backend=backend)
    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        assert compiled(x, torch.ones(3)) is True
        assert x.grad.tolist() == [2.0] * 3


# ---- dicts of the program with tensors for keys


@pytest.mark.parametrize("backend", ("eager", "native"))
def test_cache_by_tensor(backend):
    def fn(cache, x, y):
        if x not in cache:
            cache[x] = y * 2
        cache.setdefault(y, x + 1)
        total = cache[x] + cache.get(y) + (0 if cache.get(None) is None else 1)
        z = x * 2
        missing = cache.get(z) is None
        cache[z] = z + 1
        dropped = cache.pop(y) if len(cache) > 100 else None
        return total, missing, dropped, cache[z]

    compiled = framejit.compile(fn, backend=backend)
    for _ in range(2):
        x, y = torch.randn(3), torch.randn(3)
        want_cache, got_cache = {}, {}
        for a, b in ((x, y), (x, y), (y, x), (x, x.clone())):
            want, got = fn(want_cache, a, b), compiled(got_cache, a, b)
            torch.testing.assert_close(got, want)
            assert len(want_cache) == len(got_cache)
            assert [k in want_cache for k in (x, y)] == [k in got_cache for k in (x, y)]


# ---- parameter updates under no_grad


@pytest.mark.parametrize("backend", BACKENDS)
def test_ema_update(backend):
    def fn(teacher, student):
        with torch.no_grad():
            for t, s in zip(teacher.parameters(), student.parameters()):
                t.lerp_(s, 0.1)
                t.mul_(0.99).add_(s.detach(), alpha=0.01)

    compiled = framejit.compile(fn, backend=backend)
    a, b = mlp(), mlp()
    c = copy.deepcopy(a)
    for _ in range(3):
        fn(a, b)
        compiled(c, b)
        for x, y in zip(a.parameters(), c.parameters()):
            torch.testing.assert_close(x, y)


@pytest.mark.parametrize("backend", BACKENDS)
def test_foreach_update(backend):
    def fn(params, grads):
        with torch.no_grad():
            torch._foreach_add_(params, grads, alpha=-0.1)
            torch._foreach_mul_(params, 0.9)
        return torch._foreach_norm(params)

    def make():
        return (
            [torch.randn(3, requires_grad=True) for _ in range(3)],
            [torch.randn(3) for _ in range(3)],
        )

    check(fn, make, graphs=1, breaks=0, backends=(backend,), backward=False)


@program(lambda: (torch.randn(4, requires_grad=True), torch.randn(4)), backward=False)
def test_copy_into_a_parameter(p, value):
    with torch.no_grad():
        p.copy_(value)
    return value * 2


# ---- a saved tensor that is overwritten in the function


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("value", ("output", "input"))
def test_backward_of_an_overwritten_tensor_raises(backend, value):
    def fn(x):
        y = x * 1
        z = y.exp() if value == "output" else y.sin()
        with torch.no_grad():
            (z if value == "output" else y).add_(1)
        return z.sum()

    compiled = framejit.compile(fn, backend=backend)
    for run in (fn, compiled, compiled):
        x = torch.ones(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            run(x).backward()


def cross_entropy_step(state, x):
    target = torch.zeros(x.shape[0], dtype=torch.long)
    loss = F.cross_entropy(state["model"](x), target)
    loss.backward()
    return loss.detach()


@pytest.mark.parametrize("backend", BACKENDS)
def test_cross_entropy_step(backend):
    run_both(
        cross_entropy_step,
        lambda: {"model": torch.nn.Linear(4, 3)},
        backend,
    )


# ---- a tensor for the scale of an update


@program(lambda: (torch.randn(4), torch.randn(4), torch.rand(4) + 1, torch.tensor(0.3)))
def test_scale_is_a_tensor(p, a, b, lr):
    p = p.clone()
    p.add_(a, alpha=-lr)
    p.sub_(b, alpha=lr)
    p.addcdiv_(a, b, value=-lr)
    p.addcmul_(a, b, value=lr)
    return p, p.add(a, alpha=lr), torch.sub(p, 1)


# ---- what models do


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.second = torch.nn.Linear(4, 4)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.second(self.first(x).tanh())


@pytest.mark.parametrize("backend", BACKENDS)
def test_tied_weights(backend):
    def fn(state, x):
        loss = state["model"](x).pow(2).sum()
        loss.backward()
        return loss.detach()

    run_both(fn, lambda: {"model": Tied()}, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_frozen_in_between(backend):
    def fn(model, x):
        loss = model(x).pow(2).sum()
        loss.backward()
        return loss.detach()

    model = Tied()
    mirror = copy.deepcopy(model)
    compiled = framejit.compile(fn, backend=backend)
    for number in range(4):
        for each in (model, mirror):
            each.second.bias.requires_grad_(number % 2 == 0)
            each.zero_grad()
        x = torch.randn(5, 4)
        fn(model, x)
        compiled(mirror, x)
        for a, b in zip(model.parameters(), mirror.parameters()):
            assert (a.grad is None) == (b.grad is None)
            if a.grad is not None:
                torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_exception_behind_the_backward(backend):
    """What was accumulated stays, once."""

    def fn(model, x):
        model(x).pow(2).sum().backward()
        raise ValueError("late")

    model = Tied()
    mirror = copy.deepcopy(model)
    compiled = framejit.compile(fn, backend=backend)
    x = torch.randn(5, 4)
    for run, each in ((fn, model), (compiled, mirror)):
        with pytest.raises(ValueError, match="late"):
            run(each, x)
    for a, b in zip(model.parameters(), mirror.parameters()):
        torch.testing.assert_close(a.grad, b.grad)


@pytest.mark.parametrize("backend", BACKENDS)
def test_step_under_autocast(backend):
    def fn(state, x):
        state["optimizer"].zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = state["model"](x).float().pow(2).mean()
        loss.backward()
        state["optimizer"].step()
        return loss.detach()

    make = with_optimizer(lambda p: torch.optim.SGD(p, lr=0.01))
    run_both(fn, make, backend)


def test_step_after_torch_compile_was_used():
    """It marks functions of the optimizers as none to be compiled."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    run_steps(optim("Adam"), "eager")


@program(lambda: (torch.randn(3, 4, requires_grad=True),))
def module_made_inside(x):
    return torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Softmax(-1))(x)


def test_modules_made_inside_after_torch_compile_was_used():
    """It wraps Module.__init__ from then on."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert torch.nn.Module.__init__.__name__ == "patched_init"
    module_made_inside()
