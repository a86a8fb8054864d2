"""torch.func inside a compiled function: transforms of captured functions."""

import pytest
import torch
from torch.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    vjp,
    vmap,
)

import framejit
from differential import BACKENDS, check, program


def batch(count=1, grad=False):
    def make():
        return tuple(torch.randn(5, 3, requires_grad=grad) for _ in range(count))

    return make


def scalar_of(x):
    return (x.sin() * x).sum()


# ---- vmap


@program(batch())
def test_vmap(x):
    return torch.vmap(lambda row: row.softmax(0) * row.sum())(x)


@program(batch(grad=True))
def test_vmap_is_differentiated_outside(x):
    return vmap(lambda row: row.sin() @ row)(x * 2)


@program(batch(2, grad=True))
def test_vmap_of_two(x, y):
    return vmap(torch.dot)(x, y) + 1


@program(batch(2))
def test_vmap_in_dims(x, y):
    a = vmap(lambda u, v: (u * v).sum(), in_dims=(0, None))(x, y)
    b = vmap(lambda u, v: u.sum() + v, in_dims=(1, -1))(x, y)
    return a, b


@program(batch())
def test_vmap_out_dims(x):
    def fn(row):
        return row * 2, row.sum(), row

    return vmap(fn, out_dims=(1, 0, -1))(x)


@program(batch(2))
def test_vmap_of_trees(x, y):
    def fn(inputs, scale):
        return {"sum": inputs["a"] + inputs["b"][0] * scale, "pair": (inputs["a"],)}

    return vmap(fn, in_dims=({"a": 0, "b": [0]}, None))({"a": x, "b": [y]}, 3.0)


@program(batch(2))
def test_vmap_with_a_keyword(x, y):
    return vmap(lambda row, weight: row @ weight)(x, weight=y.T)


@program(batch(2))
def test_vmap_closes_over_a_tensor(x, y):
    total = y.sum(0)
    return vmap(lambda row: (row * total).cumsum(0))(x)


@program(batch(2))
def test_vmap_in_vmap(x, y):
    def outer(row):
        return vmap(lambda other: (row - other).pow(2).sum())(y)

    return vmap(outer)(x)


@program(batch())
def test_vmap_looks_at_shapes(x):
    def fn(row):
        assert row.shape == (3,) and row.dim() == 1
        pieces = [row[i] * i for i in range(row.shape[0])]
        return torch.stack(pieces)

    return vmap(fn)(x)


@program(batch())
def test_vmap_chunks(x):
    return vmap(lambda row: row.exp().sum(), chunk_size=2)(x)


@program(batch())
def test_vmap_writes_to_its_own_tensors(x):
    def fn(row):
        total = torch.zeros_like(row)
        total.add_(row).mul_(2)
        return total

    return vmap(fn)(x)


@program(batch())
def test_vmap_random_different(x):
    return vmap(lambda row: row + torch.randn(3), randomness="different")(x)


@program(batch())
def test_vmap_random_same(x):
    return vmap(lambda row: row + torch.randn(3), randomness="same")(x)


@program(batch(), graphs=None, breaks=None)
def test_vmap_random_error(x):
    return vmap(lambda row: row + torch.randn(3))(x)


@program(lambda: (torch.randn(5, 3), torch.randn(4, 3)), graphs=None, breaks=None)
def test_vmap_of_two_sizes(x, y):
    return vmap(torch.add)(x, y)


@program(batch(), graphs=None, breaks=None)
def test_vmap_returns_a_number(x):
    return vmap(lambda row: 3)(x)


@program(batch(), graphs=None, breaks=None)
def test_vmap_of_data_dependent_code(x):
    return vmap(lambda row: row if row.sum() > 0 else -row)(x)


@program(batch(), graphs=None, breaks=None)
def test_vmap_raises(x):
    def fn(row):
        raise ValueError("inside")

    try:
        return vmap(fn)(x)
    except ValueError as error:
        return str(error)


@program(lambda: (torch.randn(5, 3), []))
def test_effects_of_the_function_happen_once(x, seen):
    def fn(row):
        seen.append(tuple(row.shape))
        return row * 2

    return vmap(fn)(x)


@program(lambda: (torch.randn(5, 3), []), graphs=None, breaks=None)
def test_sample_leaks(x, seen):
    def fn(row):
        seen.append(row.sum())
        return row * 2

    out = vmap(fn)(x)
    seen.clear()
    return out


@program(batch(), graphs=None, breaks=None)
def test_vmap_writes_to_its_input(x):
    y = x.clone()
    out = vmap(lambda row: row.mul_(2))(y)
    return out, y


made_outside = vmap(lambda row: row.cos().sum())


@program(batch())
def test_made_outside(x):
    return made_outside(x) * 2


# ---- grad


@program(batch())
def test_grad(x):
    return grad(scalar_of)(x)


@program(batch(grad=True))
def test_grad_is_differentiated_outside(x):
    return grad(scalar_of)(x * 2).pow(2)


@program(batch(2))
def test_grad_argnums(x, y):
    def fn(a, b):
        return (a * b.exp()).sum()

    return grad(fn, argnums=1)(x, y), grad(fn, argnums=(0, 1))(x, y)


@program(batch(2))
def test_grad_has_aux(x, y):
    def fn(a, b):
        z = a * b
        return z.sum(), (z, {"b": b + 1})

    return grad(fn, has_aux=True)(x, y)


@program(batch())
def test_grad_and_value(x):
    return grad_and_value(scalar_of)(x)


@program(batch(2))
def test_grad_of_trees(x, y):
    def fn(params, factor=1.0):
        return (params["w"] * params["b"][0]).sum() * factor

    return grad(fn)({"w": x, "b": [y]}, factor=2.0)


@program(batch())
def test_grad_of_grad(x):
    return vmap(vmap(grad(grad(lambda value: value**3 + value.sin()))))(x)


@program(batch(2))
def test_grad_closes_over_a_tensor(x, y):
    return grad(lambda a: (a * y).sum().exp())(x)


@program(batch())
def test_grad_sees_that_it_is_differentiated(x):
    def fn(a):
        assert torch.is_grad_enabled()
        return (a * (2.0 if a.requires_grad else 3.0)).sum()

    with torch.no_grad():
        return grad(fn)(x)


@program(batch())
def test_no_grad_in_the_function(x):
    def fn(a):
        with torch.no_grad():
            constant = a.sin()
        return (constant * a).sum()

    return grad(fn)(x)


@program(batch())
def test_detach_in_the_function(x):
    return grad(lambda a: (a.detach() * a * a).sum())(x)


@program(batch(2))
def test_grad_of_an_unused_argument(x, y):
    return grad(lambda a, b: a.sum(), argnums=(0, 1))(x, y)


@program(batch(), graphs=None, breaks=None)
def test_grad_of_a_vector(x):
    return grad(lambda a: a * 2)(x)


@program(lambda: (torch.arange(4),), graphs=None, breaks=None)
def test_grad_of_integers(x):
    return grad(lambda a: a.sum())(x)


@program(batch())
def test_grad_is_kept_in_a_variable(x):
    derivative = grad(scalar_of)
    total = x
    for _ in range(3):
        total = total - 0.1 * derivative(total)
    return total


@program(batch(2))
def test_per_sample_gradients(x, y):
    def loss(weight, sample, target):
        return ((sample @ weight).tanh() - target.sum()).pow(2)

    weight = torch.ones(3)
    return vmap(grad(loss), in_dims=(None, 0, 0))(weight, x, y)


# ---- jvp, vjp and Jacobians


@program(batch(2))
def test_jvp(x, y):
    return jvp(lambda a: a.sin() * a, (x,), (y,))


@program(batch(2))
def test_jvp_of_two_has_aux(x, y):
    def fn(a, b):
        return {"product": a * b, "sum": a.exp().sum()}, b * 2

    return jvp(fn, (x, y), (y, x), has_aux=True)


@program(batch(2))
def test_vjp(x, y):
    out, pull = vjp(lambda a: a.sin() * a, x)
    return out, pull(y), pull(y * 2)


@program(batch(2))
def test_vjp_of_two_has_aux(x, y):
    def fn(a, b):
        return (a * b, (a + b).sum()), [a * 3]

    out, pull, aux = vjp(fn, x, y, has_aux=True)
    return out, pull((x, torch.ones(()))), aux


@program(batch(), graphs=None, breaks=None)
def test_pullback_escapes(x):
    return vjp(lambda a: a.sin(), x)


@program(batch())
def test_vmap_of_a_pullback(x):
    out, pull = vjp(lambda a: a.exp().sum(0), x)
    return vmap(pull)(torch.eye(3))


@program(batch())
def test_jacrev(x):
    return jacrev(lambda a: (a * a.sum()).sum(0))(x)


@program(batch(2))
def test_jacrev_argnums_has_aux(x, y):
    def fn(a, b):
        return {"c": (a * b).sum(1)}, a.sum()

    return jacrev(fn, argnums=(0, 1), has_aux=True)(x, y)


@program(batch())
def test_jacfwd(x):
    return jacfwd(lambda a: (a * a.sum()).sum(0))(x)


@program(batch(2))
def test_jacfwd_argnums(x, y):
    return jacfwd(lambda a, b: (a.sin() * b).sum(0), argnums=1)(x, y)


@program(lambda: (torch.randn(3),))
def test_hessian(x):
    return hessian(lambda a: (a.sin() * a.sum()).sum())(x)


@program(lambda: (torch.randn(3),))
def test_jacobian_of_a_jacobian(x):
    return jacrev(jacfwd(lambda a: a**3))(x), jacfwd(jacrev(lambda a: a**3))(x)


@program(lambda: (torch.randn(4, 3),))
def test_vmap_of_a_hessian(x):
    return vmap(hessian(lambda a: (a.exp() * a.sum()).sum()))(x)


@program(lambda: (torch.randn(3, requires_grad=True),))
def test_jacobian_is_differentiated_outside(x):
    return jacrev(lambda a: a.sin() * a.sum())(x)


# ---- modules


def linear():
    return torch.nn.Sequential(
        torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1)
    )


@program(lambda: (linear(), torch.randn(5, 3)))
def test_functional_call(model, x):
    params = {name: p.detach() for name, p in model.named_parameters()}

    def loss(params, sample):
        return functional_call(model, params, (sample,)).pow(2).sum()

    return grad(loss)(params, x), vmap(grad(loss), in_dims=(None, 0))(params, x)


@program(lambda: (linear(), torch.randn(5, 3)))
def test_module_in_vmap(model, x):
    return vmap(model)(x)


@program(lambda: (torch.randn(2, 4, 3), torch.randn(2, 4), torch.randn(5, 3)))
def test_ensemble(weights, biases, x):
    def one(weight, bias, x):
        return torch.nn.functional.linear(x, weight, bias).relu()

    return vmap(one, in_dims=(0, 0, None))(weights, biases, x)


# ---- sizes, state and what is guarded


@pytest.mark.parametrize("backend", BACKENDS)
def test_batch_sizes_become_symbols(backend):
    def fn(x):
        return vmap(lambda row: row * row.sum())(x), vmap(grad(scalar_of))(x)

    framejit.reset()
    compiled = framejit.compile(fn, backend=backend)
    for n in (4, 5, 7, 9, 4):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), fn(x))
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert [str(b) for e in entries for b in e.breaks] == []
    assert len(entries) == 2


@pytest.mark.parametrize("backend", ("eager", "native"))
def test_what_the_function_closes_over_is_guarded(backend):
    scale = [2.0]

    def inner(row):
        return (row * scale[0]).sum()

    def fn(x):
        return vmap(grad(inner))(x)

    compiled = framejit.compile(fn, backend=backend)
    x = torch.randn(4, 3)
    for value in (2.0, 3.0, 2.0):
        scale[0] = value
        torch.testing.assert_close(compiled(x), fn(x))


@pytest.mark.parametrize("backend", ("eager", "native"))
def test_compiled_function_inside_a_transform(backend):
    """The level is guarded: what runs inside a transform is no plain tensor."""

    def fn(row):
        return row.sin() * row.sum()

    compiled = framejit.compile(fn, backend=backend)
    x = torch.randn(4, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), fn(x))
        torch.testing.assert_close(vmap(compiled)(x), vmap(fn)(x))
        torch.testing.assert_close(
            grad(lambda a: compiled(a).sum())(x), grad(lambda a: fn(a).sum())(x)
        )


@pytest.mark.parametrize("backend", BACKENDS)
def test_under_autocast(backend):
    def fn(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return vmap(lambda row: row @ w)(x)

    check(fn, lambda: (torch.randn(5, 3), torch.randn(3, 4)), backends=(backend,))


@program(batch(), graphs=None, breaks=None)
def test_break_inside(x):
    def fn(row):
        framejit.graph_break()
        return row * 2

    return vmap(fn)(x)


class Double(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x):
        return x * 2

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    @staticmethod
    def backward(ctx, g):
        return g * 20


@program(batch(), graphs=None, breaks=None)
def test_custom_function_inside(x):
    return vmap(Double.apply)(x), grad(lambda a: Double.apply(a).sum())(x)


@program(batch(), graphs=None, breaks=None)
def test_backward_inside(x):
    def fn(a):
        y = a.detach().requires_grad_()
        (g,) = torch.autograd.grad((y * y).sum(), y)
        return g * a

    return vmap(fn)(x)


# ---- torch.cond


def branches(x):
    return torch.cond(
        x.sum() > 0, lambda a: (a.sin(), a * 2), lambda a: (a.cos(), a - 1), (x,)
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_cond_on_a_tensor(backend):
    framejit.reset()
    compiled = framejit.compile(branches, backend=backend)
    for value in (1.0, -1.0, 2.0):
        x = torch.full((3,), value, requires_grad=True)
        a, b = compiled(x)
        want = (x.sin(), x * 2) if value > 0 else (x.cos(), x - 1)
        torch.testing.assert_close((a, b), want)
        torch.testing.assert_close(
            torch.autograd.grad((a * b).sum(), x),
            torch.autograd.grad((want[0] * want[1]).sum(), x),
        )
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert [str(b) for e in entries for b in e.breaks] == []
    assert len(entries) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_cond_closes_over_tensors(backend):
    framejit.reset()

    def fn(x, y, z):
        w = y * 2
        return torch.cond(x.sum() > 0, lambda a: a * w, lambda a: a + w * z, [x]) + 1

    compiled = framejit.compile(fn, backend=backend)
    for value in (1.0, -1.0):
        x, y, z = torch.full((3,), value), torch.randn(3), torch.randn(3)
        want = x * (y * 2) if value > 0 else x + y * 2 * z
        torch.testing.assert_close(compiled(x, y, z), want + 1)
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert [str(b) for e in entries for b in e.breaks] == []
    assert len(entries) == 1


@program(lambda: (torch.randn(4, 3),))
def test_cond_on_a_size(x):
    return torch.cond(x.shape[0] > 2, lambda a: a.sin(), lambda a: a.cos(), (x,))


@program(lambda: (torch.randn(4, 3),), graphs=None, breaks=None, backends=("eager",))
def test_cond_of_other_results(x):
    return torch.cond(x.sum() > 0, lambda a: a[0].sin(), lambda a: a.cos(), (x,))


# ---- what a level of functorch hides


@program(lambda: (torch.randn(4, 3, requires_grad=True),))
def test_samples_require_no_gradient(x):
    seen = []

    def fn(row):
        seen.append((row.requires_grad, (row * 2).requires_grad, x.requires_grad))
        return row * 2 + x[0]

    out = vmap(fn)(x)
    return out, seen


@program(lambda: (torch.randn(4, 3), torch.randn(4, 3, requires_grad=True)))
def test_arguments_that_are_not_differentiated(x, y):
    seen = []

    def fn(a, b):
        seen.append((a.requires_grad, b.requires_grad, (b * 1).requires_grad))
        return (a * b).sum()

    return grad(fn)(x, y), jvp(fn, (x, y), (x, y)), seen


@program(
    lambda: (torch.randn(3), torch.randn(3, requires_grad=True)),
    graphs=None,
    breaks=None,
)
def test_history_of_an_outer_level(x, y):
    seen = []

    def fn(a):
        z = y * 2
        seen.append(z.requires_grad)
        return (a * z).sum()

    return grad(fn)(x), seen


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 20


@program(batch(), graphs=None, breaks=None)
def test_old_custom_function_inside_raises(x):
    try:
        return vmap(Plain.apply)(x)
    except RuntimeError as error:
        return str(error)[:40]


# ---- questions about the process


@program(batch())
def test_distributed_is_not_initialized(x):
    alone = not (
        torch.distributed.is_available() and torch.distributed.is_initialized()
    )
    return x * (2 if alone else 3)
