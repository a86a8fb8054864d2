"""Outputs computed behind others that are views of a value (`mu, logvar =
h.chunk(2); return decode(mu), mu, logvar`): their gradients pass through the views,
and what looks there, changes them or runs in some order sees what eager shows."""

from __future__ import annotations

import concurrent.futures
import itertools

import pytest
import torch

import framejit


def vae(x, w):
    mu, logvar = (x @ w).chunk(2, -1)
    z = mu + logvar.mul(0.5).exp() * x[:, :2]
    return torch.sigmoid(z @ w[:2]), mu, logvar


def vae_in_another_order(x, w):
    recon, mu, logvar = vae(x, w)
    return mu, recon, logvar


def slices(x, w):
    h = torch.tanh(x @ w)
    a, b = h[:, :2], h[:, 2:]
    return a, b, a * b


def rows(x, w):
    a, b, c = (x * w[0]).unbind(0)
    return a, b * c, c, (a * c).sum()


def also_the_whole(x, w):
    h = x.exp() @ w
    a = h[:, 1:]
    return h, a, (a * a).sum(), h.sin()


def of_both(x, w):
    h = x @ w
    a = h.t()
    return a * 2 + h.t(), a, h


def one_behind_another(x, w):
    a, b = (x @ w).tanh().chunk(2, -1)
    c = a * 2
    return c, a, c.exp() * b, b


def two_values(x, w):
    a, b = (x @ w).chunk(2, -1)
    c, d = (a * b).split(1, -1)
    return a, b, c, d, c * d


def a_view_of_a_view(x, w):
    a = (x @ w)[:, :3]
    b = a[:, 1:]
    return a, b, b.cos()


def only_one_leads_there(x, w):
    a, b = x.exp().chunk(2, -1)
    return a, b, a * w[0, :2], w.sin()


def all_through_views(x, w):
    a, b = x.exp().chunk(2, -1)
    return a, a * b, w.sin()


def not_all_parts(x, w):
    a, b, c = (x @ w).tanh().unbind(0)
    return a, a * b + c, b.cos()


def reshaped(x, w):
    h = (x @ w).relu()
    flat = h.view(-1)
    return flat, flat.cumsum(0), h[0]


def written_before(x, w):
    h = x @ w
    h.mul_(2)
    a, b = h[:, :2], h[:, 2:]
    return a * b, a, b


def written_through(x, w):
    h = x @ w
    a = h[:, :2]
    a.mul_(x[:, :2])
    return a.sin(), a, h[:, 2:]


def detached(x, w):
    a, b = (x @ w).chunk(2, -1)
    return a.detach() * b, a, b


def random(x, w):
    mu, logvar = (x @ w).chunk(2, -1)
    z = mu + logvar.exp() * torch.randn_like(mu)
    return z.sin(), mu, logvar


def no_views(x, w):
    h = x.sin() * w[0]
    return h * h * h, h, (h * x).cos()


def apart(x, w):
    h, g = x.sin(), w.exp()
    return h * h, h, g * g, g


PROGRAMS = [
    *(no_views, apart),
    *(vae, vae_in_another_order, slices, rows, also_the_whole, of_both),
    *(
        one_behind_another,
        two_values,
        all_through_views,
        not_all_parts,
        a_view_of_a_view,
        only_one_leads_there,
    ),
    *(reshaped, written_before, written_through, detached, random),
]
# Taken as a whole.
WHOLE = [p for p in PROGRAMS if p not in (a_view_of_a_view, reshaped)]
BACKENDS = ["native", "aot_eager"]


def arguments(of_w=True):
    torch.manual_seed(0)
    x = torch.randn(3, 4, dtype=torch.float64, requires_grad=True)
    w = torch.randn(4, 4, dtype=torch.float64, requires_grad=of_w)
    return x, w


def compiled(program, backend):
    fn = framejit.compile(program, backend=backend)
    for _ in range(2):
        sum(o.sum() for o in fn(*arguments())).backward()
    return fn


def note(noted, i, gradient, factor):
    """Of parts of one tensor, those without a gradient get None."""
    noted.append((i, gradient if gradient is None else gradient.clone()))
    return None if gradient is None or factor == 1 else gradient * factor


def hook_all(outputs, noted, factor):
    for i, o in enumerate(outputs):
        o.register_hook(lambda g, i=i: note(noted, i, g, factor))


def hook_bases(outputs, noted):
    bases = {id(o._base): o._base for o in outputs if o._base is not None}
    for i, base in enumerate(bases.values()):
        base.register_hook(lambda g, i=i: note(noted, -1 - i, g, 3))


# What is done with the outputs; `noted` takes what was seen on the way.
LOOKS = {
    "backward": lambda outputs, noted: None,
    "hooks": lambda outputs, noted: hook_all(outputs, noted, 1),
    "hooks_that_change": lambda outputs, noted: hook_all(outputs, noted, 2),
    "hook_of_the_last": lambda outputs, noted: hook_all(outputs[-1:], noted, 2),
    "hook_of_the_first": lambda outputs, noted: hook_all(outputs[:1], noted, 2),
    "hook_of_the_second": lambda outputs, noted: hook_all(outputs[1:2], noted, 2),
    "hooks_of_bases": hook_bases,
    "retain": lambda outputs, noted: [o.retain_grad() for o in outputs],
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("look", LOOKS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_one_backward(program, look, backend):
    fn = compiled(program, backend)
    count = len(program(*arguments()))
    for used in [
        c for n in range(1, count + 1) for c in itertools.combinations(range(count), n)
    ]:
        found = []
        for run in (program, fn):
            args = arguments(of_w=len(used) != 2)
            outputs = run(*args)
            noted = []
            differ = [o for o in outputs if o.requires_grad]
            LOOKS[look](differ, noted)
            total = sum((outputs[i] * outputs[i]).sum() * (i + 1) for i in used)
            if total.requires_grad:
                total.backward()
            noted += [o.grad for o in differ if look == "retain"]
            found.append((outputs, noted, [a.grad for a in args]))
        torch.testing.assert_close(found[1], found[0], msg=lambda m, u=used: f"{u} {m}")


def differentiate(run, of, to, with_input, create):
    """autograd.grad(y, mu), and what that gives, differentiated by all."""
    args = arguments()
    outputs = run(*args)
    wanted = [outputs[to], *args[:with_input]]
    by = [*args, *(o for o in outputs if o.requires_grad)]
    try:
        grads = torch.autograd.grad(
            (outputs[of] ** 2).sum(), wanted, create_graph=create, allow_unused=True
        )
        seen = [*grads]
        for _ in range(2 if create else 0):
            squares = [
                (g * g).sum() for g in grads if g is not None and g.requires_grad
            ]
            if not squares:
                break
            grads = torch.autograd.grad(
                sum(squares), by, create_graph=True, allow_unused=True
            )
            seen += grads
        return seen
    except RuntimeError as error:
        return str(error)[:40]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("with_input", [0, 1])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_gradients_of_outputs(program, with_input, backend):
    fn = compiled(program, backend)
    count = len(program(*arguments()))
    for of, to in itertools.permutations(range(count), 2):
        for create in (False, True):
            case = of, to, create
            expected = differentiate(program, of, to, with_input, create)
            actual = differentiate(fn, of, to, with_input, create)
            if isinstance(expected, str) or isinstance(actual, str):
                assert actual == expected, case
                continue
            torch.testing.assert_close(
                actual, expected, msg=lambda m, case=case: f"{case} {m}"
            )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_aliases_and_writes(program, backend):
    fn = compiled(program, backend)
    count = len(program(*arguments()))
    for place, grad in itertools.product(range(count), (True, False)):
        found = []
        for run in (program, fn):
            args = arguments()
            outputs = run(*args)
            facts = [
                (o._version, o._is_view(), o.stride(), a._base is o._base)
                for o, a in itertools.product(outputs, outputs)
            ]
            try:
                with torch.set_grad_enabled(grad):
                    outputs[place].mul_(3)
                total = sum(o.sum() for o in outputs)
                total.backward()
            except RuntimeError as error:
                found.append((facts, str(error)[:40]))
            else:
                found.append(
                    (facts, [o.detach() for o in outputs], [a.grad for a in args])
                )
        assert found[1][0] == found[0][0]
        if isinstance(found[0][1], str):
            assert found[1][1] == found[0][1], place
        else:
            torch.testing.assert_close(found[1][1:], found[0][1:])


@pytest.mark.parametrize("program", WHOLE, ids=lambda p: p.__name__)
def test_taken_as_a_whole(program):
    fn = compiled(program, "native")
    assert all(not e.fallback_reason for e in framejit.inspect(fn))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("program", WHOLE, ids=lambda p: p.__name__)
def test_steps_that_free(program, backend):
    """Backwards one after the other, of one output each."""
    fn = compiled(program, backend)
    count = len(program(*arguments()))
    for order in itertools.permutations(range(count), 2):
        for keeps in itertools.product((True, False), repeat=2):
            found = []
            for run in (program, fn):
                args = arguments()
                outputs = run(*args)
                seen = []
                for of, keep in zip(order, keeps, strict=True):
                    try:
                        seen.append(
                            torch.autograd.grad(
                                outputs[of].sum(),
                                args,
                                retain_graph=keep,
                                allow_unused=True,
                            )
                        )
                    except RuntimeError as error:
                        seen.append(str(error)[:40])
                found.append(seen)
            for mine, theirs in zip(*found[::-1], strict=True):
                if isinstance(theirs, str) or isinstance(mine, str):
                    assert mine == theirs, (order, keeps)
                else:
                    torch.testing.assert_close(mine, theirs)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("where", ["loss", "backward", "forward"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_parts_made_in_threads(program, where, backend):
    """Each thread numbers its nodes for itself, and the engine goes by the numbers."""
    fn = compiled(program, backend)

    def elsewhere(name, call, *args):
        if where != name:
            return call(*args)
        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            return pool.submit(call, *args).result()

    def gradients(total, args, create):
        grads = torch.autograd.grad(total, args, create_graph=create, allow_unused=True)
        if not create:
            return grads
        squares = [(g * g).sum() for g in grads if g is not None and g.requires_grad]
        return [*grads, *torch.autograd.grad(sum(squares), args, allow_unused=True)]

    def loss(outputs):
        return sum((o * o).sum() * (i + 1) for i, o in enumerate(outputs))

    for hooked, create in itertools.product((False, True), repeat=2):
        found = []
        for run in (program, fn):
            args = arguments()
            outputs = elsewhere("forward", run, *args)
            noted = []
            if hooked:
                hook_all(outputs[1:2], noted, 2)
            total = elsewhere("loss", loss, outputs)
            grads = elsewhere("backward", gradients, total, args, create)
            found.append((grads, noted))
        torch.testing.assert_close(found[1], found[0])
