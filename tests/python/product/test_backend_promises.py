"""Backends that return something else than was captured: eager's answer counts."""

from __future__ import annotations

import logging

import pytest
import torch

import framejit
from differential import assert_same, check


class Marked(torch.Tensor):
    pass


def inference(tensor):
    with torch.inference_mode():
        return tensor.clone()


def in_a_buffer(tensor):
    pad = tensor.new_zeros(7)
    return torch.cat([pad, tensor.reshape(-1)])[7:].view(tensor.shape)


# (outputs, inputs) -> what is returned. The graph has two outputs of one size,
# which is that of the first input.
WRONG = {
    "dtype": lambda o, i: (o[0].double(), o[1]),
    "sizes": lambda o, i: (o[0][:1], o[1]),
    "rank": lambda o, i: (o[0], o[1].sum()),
    "one more dim": lambda o, i: (o[0][None], o[1]),
    "too few": lambda o, i: o[:1],
    "too many": lambda o, i: (*o, o[0]),
    "one alone": lambda o, i: o[0],
    "None": lambda o, i: None,
    "None as one": lambda o, i: (o[0], None),
    "a number": lambda o, i: (3.5, o[1]),
    "one twice": lambda o, i: (o[0], o[0]),
    "a view of the other": lambda o, i: (o[0], o[0].view_as(o[0])),
    "an input": lambda o, i: (i[0], o[1]),
    "an input's memory": lambda o, i: (o[0], i[0].view_as(i[0])),
    "an input's memory unseen": lambda o, i: (
        torch.from_numpy(i[0].detach().numpy()),
        o[1],
    ),
    "a class": lambda o, i: (o[0].as_subclass(Marked), o[1]),
    "a parameter": lambda o, i: (torch.nn.Parameter(o[0].detach()), o[1]),
    "an inference tensor": lambda o, i: (inference(o[0].detach()), o[1]),
    "the negative": lambda o, i: (torch._neg_view(-o[0]), o[1]),
    "parts of one": lambda o, i: tuple(torch.stack(o).unbind()),
    "sparse": lambda o, i: (o[0].to_sparse(), o[1]),
    "meta": lambda o, i: (o[0].to("meta"), o[1]),
}
HISTORIES = {
    "no history": lambda o, i: (o[0].detach(), o[1]),
    "a leaf": lambda o, i: (o[0].detach().requires_grad_(), o[1]),
}


class Backend:
    """Runs the graph, and returns what `change` makes of its outputs."""

    def __init__(self, change):
        self.change = change
        self.calls = 0
        self.__name__ = "changer"

    def __call__(self, graph, examples):
        def run(*inputs):
            self.calls += 1
            outputs = graph(*inputs)
            return self.change(outputs, inputs)

        return run


@pytest.fixture
def warnings_of(caplog):
    framejit.reset()
    caplog.set_level(logging.WARNING, "framejit")
    yield lambda: [
        r.getMessage() for r in caplog.records if r.name.startswith("framejit")
    ]
    framejit.reset()


def pair(x, w):
    a = (x @ w).relu()
    b = x.exp()
    # Decided by what is known of them.
    c = a.dtype is torch.float32, a.is_contiguous(), b.stride(), b.is_inference()
    return a, b, c, a is b, a is x, len({a, b}), a.requires_grad, b.is_neg()


def square(grad):
    return lambda: (torch.randn(3, 3, requires_grad=grad), torch.randn(3, 3))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("wrong", WRONG)
def test_another_result_is_not_used(wrong, grad, dynamic, warnings_of):
    backend = Backend(WRONG[wrong])
    check(pair, square(grad), backends=(backend,), calls=3, graphs=1, dynamic=dynamic)
    assert backend.calls == 1, "it is not asked again"
    [text] = warnings_of()
    assert "changer" in text and "returned" in text and "pair" in text


@pytest.mark.parametrize("wrong", HISTORIES)
def test_another_history_is_not_used(wrong, warnings_of):
    backend = Backend(HISTORIES[wrong])
    check(pair, square(True), backends=(backend,), calls=3, graphs=1)
    assert backend.calls == 1
    [text] = warnings_of()
    assert "changer" in text and "output 0" in text


def test_a_gradient_where_eager_has_none(warnings_of):
    backend = Backend(lambda o, i: (o[0].requires_grad_(), o[1]))
    check(pair, square(False), backends=(backend,), calls=3, graphs=1)
    assert backend.calls == 1
    assert "output 0" in warnings_of()[0]


LAID_OUT = {
    "transposed": lambda t: t.t().contiguous().t(),
    "stepped": lambda t: t.repeat(1, 2)[:, :3].contiguous().repeat(1, 2)[:, :3],
    "in a buffer": in_a_buffer,
    "in a part of one": lambda t: torch.cat([t, t], 1)[:, :3],
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("layout", LAID_OUT)
def test_another_layout_is_copied_to_the_captured_one(layout, grad, warnings_of):
    backend = Backend(lambda o, i: (LAID_OUT[layout](o[0]), *o[1:]))

    def f(x, w):
        a, b = x @ w, x.exp()
        return a, b, a.stride(), a.is_contiguous(), a.view(-1).sum()

    check(f, square(grad), backends=(backend,), calls=3, graphs=1)
    assert backend.calls == 3, "it stays in use"
    compiled = framejit.compile(lambda x, w: (x @ w, x.exp()), backend=backend)
    for _ in range(2):
        a, b = compiled(*square(grad)())
        assert a.stride() == (3, 1) and not a.storage_offset()
        assert a._version == 0
    assert not warnings_of()


@pytest.mark.parametrize("keeps", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_strides_of_single_elements(grad, keeps, warnings_of):
    """They say nothing of the memory, but programs see them."""
    kept = []

    def change(o, i):
        a = o[0].as_strided((1, 3), (77, 1))
        if keeps:
            kept.append(a)
        return a, o[1].as_strided((3, 1), (1, 55))

    def f(x, w):
        a, b = x @ w, w.exp().mv(x[0])[:, None]
        return a, b

    backend = Backend(change)
    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    for _ in range(3):
        x = torch.randn(1, 3, requires_grad=grad)
        w = torch.randn(3, 3)
        for got, want in zip(compiled(x, w), f(x, w), strict=True):
            assert_same(got, want)
            assert got.stride() == want.stride()
            assert got.requires_grad == grad
    assert all(a.stride() == (77, 1) for a in kept), "the backend's own is as it was"
    assert backend.calls == 3
    assert not warnings_of()


def views(x):
    y = x * 2
    return x[1:], y, y.t()


# The outputs are x[1:], y and y.t().
APART = {
    "a copy of a view of an input": lambda o, i: (o[0].clone(), o[1], o[2]),
    "a copy of a view of an output": lambda o, i: (o[0], o[1], o[2].clone()),
    "views with another layout": lambda o, i: (
        o[0],
        o[1].t().contiguous().t(),
        o[1].t().contiguous(),
    ),
    "another part": lambda o, i: (i[0][:-1], o[1], o[2]),
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("apart", APART)
def test_views_that_are_none_are_not_used(apart, grad, warnings_of):
    backend = Backend(APART[apart])

    def make():
        return (torch.randn(3, 3, requires_grad=grad),)

    check(views, make, backends=(backend,), calls=3, graphs=1)
    assert backend.calls == 1
    assert len(warnings_of()) == 1


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_a_backend_that_is_right_stays_in_use(grad, dynamic, warnings_of):
    backend = Backend(lambda o, i: o)

    def make():
        base = torch.randn(8, 3)[2:5]
        return (base.requires_grad_(grad),)

    for fn in (views, lambda x: (x.exp(), x.exp()), lambda x: x.expand(2, 3, 3)):
        backend.calls = 0
        check(fn, make, backends=(backend,), calls=3, graphs=1, dynamic=dynamic)
        assert backend.calls == 3
    assert not warnings_of()


@pytest.mark.parametrize("mode", ["no_grad", "inference_mode"])
def test_a_backend_that_is_right_in_other_modes(mode, warnings_of):
    backend = Backend(lambda o, i: o)

    def inside(x):
        with getattr(torch, mode)():
            y = x * 2
        return y, x.sin()

    def f(x):
        return x[1:], x * 2

    def outside(x):
        with getattr(torch, mode)():
            return compiled(x), f(x)

    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    for _ in range(3):
        for got, want in zip(*outside(torch.ones(3, requires_grad=True)), strict=True):
            assert_same(got, want)
            assert got.is_inference() == want.is_inference()
    assert backend.calls == 3
    compiled = framejit.compile(inside, backend=backend)
    for _ in range(3):
        x = torch.ones(3, requires_grad=True)
        for got, want in zip(compiled(x), inside(x), strict=True):
            assert_same(got, want)
            assert got.is_inference() == want.is_inference()
    assert backend.calls == 6
    assert not warnings_of()


def test_an_input_that_was_written_to_is_put_back(warnings_of):
    def f(x, y):
        y.add_(x)
        return y * 2, y

    def make():
        return torch.randn(3, 3), torch.randn(3, 3)

    backend = Backend(lambda o, i: (o[0].double(), *o[1:]))
    check(f, make, backends=(backend,), calls=3, graphs=1)
    assert backend.calls == 1


def test_the_inputs_among_the_outputs_are_the_programs_own(warnings_of):
    """Whatever the backend returns in their place."""

    def f(x, y):
        y.add_(x)
        return y * 2, y, x

    def make():
        return torch.randn(3, 3), torch.randn(3, 3)

    backend = Backend(lambda o, i: tuple(t.clone() for t in o))
    check(f, make, backends=(backend,), calls=3, graphs=1)
    assert backend.calls == 3


def test_numbers_are_the_programs_own(warnings_of):
    backend = Backend(lambda o, i: tuple(v + 1 if type(v) is int else v for v in o))

    def f(x):
        return x * 2, x.shape[0] * 3 + 1

    compiled = framejit.compile(f, backend=backend, dynamic=True)
    for n in (3, 4, 5):
        x = torch.ones(n)
        assert compiled(x)[1] == f(x)[1]
    assert not warnings_of()


def test_complex_bits(warnings_of):
    def f(x):
        y = x * 2
        return y.conj(), y.is_conj(), y.imag, (x + 1).conj().resolve_conj()

    def make():
        return (torch.randn(3, 3, dtype=torch.complex64),)

    right, wrong = (
        Backend(lambda o, i: o),
        Backend(lambda o, i: tuple(t.resolve_conj() for t in o)),
    )
    check(f, make, backends=(right,), calls=3, graphs=1, backward=False)
    assert right.calls == 3 and not warnings_of()
    check(f, make, backends=(wrong,), calls=3, graphs=1, backward=False)
    assert wrong.calls == 1


@pytest.mark.parametrize("name", ["eager", "aot_eager"])
def test_torchs_own_backends_keep_their_promises(name, warnings_of):
    from torch._dynamo.backends.registry import lookup_backend

    found = lookup_backend(name)
    calls = []

    def backend(graph, inputs):
        made = found(graph, inputs)

        def run(*args):
            calls.append(1)
            return made(*args)

        return run

    def layers(x):
        q, k, v = (x * 2).chunk(3, 1)
        y = torch.nn.functional.layer_norm(q @ k.t(), (4,))
        return y, v, v.t(), x[1:], y.softmax(0).detach()

    def make():
        return (torch.randn(4, 9, requires_grad=True),)

    check(layers, make, backends=(backend,), calls=3, graphs=1)
    assert len(calls) == 3
    assert not warnings_of()
