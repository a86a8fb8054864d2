"""Outputs that are views: of inputs, and of each other, as in eager."""

import pytest
import torch

import framejit
from differential import BACKENDS, check, program

AOT = ("aot_eager", "native")


def matrix(grad=True):
    return lambda: (torch.randn(4, 6, requires_grad=grad),)


def fallback(fn, *args, backend):
    framejit.reset()
    compiled = framejit.compile(fn, backend=backend)
    compiled(*args)
    return [e.fallback_reason for e in framejit.inspect(compiled) if e.fallback_reason]


VIEWS = {
    "same": lambda y: y.view_as(y),
    "flat": lambda y: y.view(-1),
    "row": lambda y: y[1],
    "last": lambda y: y[:, -1],
    "steps": lambda y: y[::2, 1::3],
    "transposed": lambda y: y.t(),
    "unsqueezed": lambda y: y[None, :, None],
    "expanded": lambda y: y[:, None].expand(4, 3, 6),
    "diagonal": lambda y: y.diagonal(1),
    "detached": lambda y: y.detach(),
    "detached row": lambda y: y.detach()[2:],
    "unfolded": lambda y: y.unfold(1, 3, 2),
    "chain": lambda y: y.view(2, 12).t()[3:].unsqueeze(1),
}
# Their gradient is laid out otherwise than the one that the graph computes, and
# the sum of both like the one that comes first.
TURNED = {"transposed", "expanded", "chain"}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("grad", [True, False])
def test_view_of_output(name, grad, backend):
    def f(x):
        y = (x * 2).sin()
        return y, VIEWS[name](y)

    check(f, matrix(grad), backends=(backend,), graphs=1, breaks=0)
    if backend != "eager":
        assert not fallback(f, *matrix(grad)(), backend=backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", VIEWS)
def test_view_of_output_before_it(name, backend):
    def f(x):
        y = x.exp()
        return VIEWS[name](y), y

    check(f, matrix(), backends=(backend,), graphs=1, breaks=0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", VIEWS)
@pytest.mark.parametrize("grad", [True, False])
def test_view_of_input(name, grad, backend):
    def f(x):
        return VIEWS[name](x), x.cos()

    check(f, matrix(grad), backends=(backend,), graphs=1, breaks=0)
    if backend != "eager":
        found = fallback(f, *matrix(grad)(), backend=backend)
        assert bool(found) == (grad and name in TURNED)


@program(lambda: (torch.randn(4, 9, requires_grad=True),))
def test_chunks(x):
    q, k, v = (x * 2).chunk(3, 1)
    return q, k, v


@program(lambda: (torch.randn(4, 9, requires_grad=True),))
def test_overlapping_parts(x):
    y = x.sin()
    return y[:3], y[1:], y.sum()


@program(matrix())
def test_view_taken_before_a_write(x):
    y = x * 2
    v = y[0]
    y.mul_(3)
    return v, y


@program(matrix())
def test_view_under_no_grad(x):
    y = x * 2
    with torch.no_grad():
        v = y.view(-1)
    return y, v


@program(lambda: (torch.randn(4, 6),))
def test_view_of_written_input(x):
    v = x[0]
    x.add_(1)
    return v, x


@program(lambda: (torch.randn(4, 6, dtype=torch.complex64),))
def test_view_with_another_type(z):
    y = z * 2
    return y, torch.view_as_real(y), y.real, y.conj()


@program(
    lambda: (
        torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_(),
    )
)
def test_view_of_channels_last(x):
    y = x.relu()
    return y, y.flatten(2), y.permute(0, 2, 3, 1)


@program(lambda: (torch.randn(8, 6)[2:].requires_grad_(),))
def test_view_of_input_with_offset(x):
    return x[1:], x.t(), x * 2


@pytest.mark.parametrize("backend", AOT)
def test_writes_through_a_view_reach_the_output(backend):
    f = framejit.compile(lambda x: (lambda y: (y, y[1]))(x * 2), backend=backend)
    x = torch.randn(3, 4, requires_grad=True)
    y, row = f(x)
    with torch.no_grad():
        row.zero_()
    assert not y[1].any()
    y, row = f(x)
    row.mul_(3)
    y.sum().backward()
    expected = torch.full((3, 4), 2.0)
    expected[1] = 6
    torch.testing.assert_close(x.grad, expected)


@pytest.mark.parametrize("backend", AOT)
def test_views_at_many_sizes(backend):
    def f(x):
        y = x * 2
        return y, y.view(-1), y.t(), x.view(-1)

    g = framejit.compile(f, backend=backend)
    for n in (3, 4, 5, 6):
        x = torch.randn(n, 3, requires_grad=True)
        got, want = g(x), f(x)
        for a, b in zip(got, want, strict=True):
            torch.testing.assert_close(a, b)
            assert a.stride() == b.stride()
        assert got[1].data_ptr() == got[0].data_ptr()
        assert got[3].data_ptr() == x.data_ptr()
        a = torch.autograd.grad(sum(t.sin().sum() for t in got), x)
        b = torch.autograd.grad(sum(t.sin().sum() for t in want), x)
        torch.testing.assert_close(a, b)
    assert len(framejit.inspect(g)) <= 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("how", ("unbind", "chunk", "no_grad"))
def test_view_that_refuses_writes(backend, how):
    """Also where it holds all elements of a tensor that is not returned."""

    def fn(x):
        y = x * 2
        if how == "unbind":
            return y.unbind(0)[0]
        if how == "chunk":
            return y.chunk(1)[0]
        with torch.no_grad():
            return y.view(-1)

    compiled = framejit.compile(fn, backend=backend)
    for run in (fn, compiled, compiled):
        x = torch.randn(1, 3, requires_grad=True)
        with pytest.raises(RuntimeError, match="is being modified inplace"):
            run(x).mul_(2)


def test_a_view_older_than_the_history_of_its_base():
    """To autograd it passes for a leaf, until somebody looks at its grad_fn."""

    def f(x, y):
        base = y * 1
        row = base[0]
        base.copy_(x)
        framejit.graph_break()
        row += 1
        return row, base

    check(f, lambda: (torch.randn(2, 2, requires_grad=True), torch.ones(2, 2)))
