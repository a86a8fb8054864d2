"""Outputs that are views: of inputs, and of each other, as in eager."""

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same, check, program

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


# ---- views of an input that the graph writes to


def step_of_a_cache(cache, k, i):
    cache[:, i] = k
    return cache[:, : i + 1]


CACHES = {
    "the part that is filled": step_of_a_cache,
    "taken before the write": lambda cache, k, i: (
        lambda v: (cache[:, i].copy_(k), v)[1]
    )(cache[:, : i + 1]),
    "all of it": lambda cache, k, i: (cache.mul_(2), cache.view_as(cache), cache)[1:],
    "by index_copy": lambda cache, k, i: (
        cache.index_copy_(1, torch.tensor([i]), k[:, None]),
        cache.transpose(0, 1)[: i + 1],
    )[1],
    "of a view": lambda cache, k, i: (
        cache.view(2, -1).add_(1),
        cache[:, i].fill_(3),
        cache.view(-1)[1:],
    )[2],
    "two of them": lambda cache, k, i: (
        step_of_a_cache(cache, k, i),
        cache[..., 1:],
        cache.sum(),
    ),
    "used as well": lambda cache, k, i: (lambda v: (v, (v * 2).softmax(-1), v.sum()))(
        step_of_a_cache(cache, k, i)
    ),
    "one of several": lambda cache, k, i: (cache.add_(1), cache.unbind(0)[0])[1],
    "in chunks": lambda cache, k, i: (cache.add_(1), *cache.chunk(2, 1))[1:],
    "of another type": lambda cache, k, i: (cache.add_(1), cache.view(torch.int32))[1],
    "diagonal": lambda cache, k, i: (cache.add_(k[:, None]), cache.diagonal(0, 1, 2))[
        1
    ],
    "expanded": lambda cache, k, i: (
        cache.add_(1),
        cache[:, :1].expand(2, 5, 4),
    )[1],
    "a copy after all": lambda cache, k, i: (
        cache.add_(1),
        cache.transpose(0, 2).reshape(-1),
    )[1],
}
LAYOUTS = {
    "plain": lambda: torch.randn(2, 6, 4),
    "turned": lambda: torch.randn(4, 6, 2).permute(2, 1, 0),
    "with gaps": lambda: torch.randn(3, 6, 9)[1:, :, 1::2],
}


def pieces(result):
    return result if isinstance(result, tuple) else (result,)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("mode", ["enable_grad", "no_grad", "inference_mode"])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CACHES)
def test_view_of_an_input_that_is_written_to(name, backend, mode, layout):
    fn = CACHES[name]

    def attempt(run, cache, k, i):
        try:
            with getattr(torch, mode)():
                return pieces(run(cache, k, i))
        except RuntimeError as error:
            return type(error), str(error)

    framejit.reset()
    compiled = framejit.compile(fn, backend=backend)
    for i in (1, 2, 3, 4):
        caches = []
        for _ in range(2):
            torch.manual_seed(i)
            caches.append(LAYOUTS[layout]())
        k = torch.randn(2, 4)
        want = attempt(fn, caches[0], k, i)
        got = attempt(compiled, caches[1], k, i)
        assert torch.equal(caches[0], caches[1])
        assert caches[0]._version == caches[1]._version
        assert len(got) == len(want)
        for a, b in zip(got, want, strict=True):
            if not isinstance(b, torch.Tensor):
                assert a == b
                continue
            assert_same(a, b)
            assert a._is_view() == b._is_view()
            assert a.is_inference() == b.is_inference()
            shared = b.data_ptr() - caches[0].data_ptr()
            if b.untyped_storage()._cdata == caches[0].untyped_storage()._cdata:
                assert a.data_ptr() - caches[1].data_ptr() == shared
                # Autograd takes it for the same kind of view.
                outcomes = []
                for t, cache in ((a, caches[1]), (b, caches[0])):
                    try:
                        with torch.no_grad():
                            t.zero_()
                        outcomes.append((cache.clone(), cache._version, t._version))
                    except RuntimeError as error:
                        outcomes.append(str(error))
                assert str(outcomes[0]) == str(outcomes[1])


@pytest.mark.parametrize("backend", AOT)
@pytest.mark.parametrize("mode", ["enable_grad", "no_grad"])
@pytest.mark.parametrize("name", sorted(set(CACHES) - {"expanded", "a copy after all"}))
def test_a_cache_is_compiled(name, mode, backend):
    with getattr(torch, mode)():
        args = torch.randn(2, 6, 4), torch.randn(2, 4), 2
        assert not fallback(CACHES[name], *args, backend=backend)


class Cache(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("keys", torch.zeros(2, 6, 4))
        self.linear = torch.nn.Linear(4, 4)

    def forward(self, x, i):
        with torch.no_grad():
            self.keys[:, i] = x
        return self.keys[:, : i + 1], self.linear(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_module_that_returns_a_part_of_its_buffer(backend):
    m, other = Cache(), Cache()
    other.load_state_dict(m.state_dict())
    framejit.reset()
    compiled = framejit.compile(m, backend=backend)
    for i in (1, 2, 3, 4):
        x = torch.randn(2, 4)
        (got, y), (want, z) = compiled(x, i), other(x, i)
        assert_same(got, want)
        assert got.data_ptr() == m.keys.data_ptr()
        torch.testing.assert_close(
            torch.autograd.grad(y.sum(), m.linear.weight),
            torch.autograd.grad(z.sum(), other.linear.weight),
        )
        assert torch.equal(m.keys, other.keys)
    assert not any(e.fallback_reason for e in framejit.inspect(compiled))


PARTS = {
    "unbind": lambda x: x.unbind(0)[1],
    "split": lambda x: x.split(2, 1)[1:],
    "split into sizes": lambda x: x.split([1, 2, 3], 1)[::2],
    "chunk": lambda x: x.chunk(2, 1),
    "a part of a part": lambda x: x.chunk(2, 1)[0][1:].t(),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["enable_grad", "no_grad"])
@pytest.mark.parametrize("name", PARTS)
def test_parts_of_inputs_and_outputs(name, mode, backend):
    def f(x):
        y = x * 2
        return PARTS[name](x), y, PARTS[name](y)

    def write(t):
        try:
            t.requires_grad_().mul_(2)
        except RuntimeError as error:
            return str(error)

    check(f, matrix(False), backends=(backend,), graphs=1, breaks=0)
    if backend != "eager":
        assert not fallback(f, *matrix(False)(), backend=backend)
    check(f, matrix(True), backends=(backend,), graphs=1, breaks=0)
    compiled = framejit.compile(f, backend=backend)
    for _ in range(2):
        with getattr(torch, mode)():
            x = torch.randn(4, 6)
            got, want = compiled(x), f(x)
        for a, b in zip(pieces(got[2]), pieces(want[2]), strict=True):
            assert write(a) == write(b)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_part_that_was_written_to_lies_where_eagers_does(backend):
    def f(x):
        y = (x * 2)[1:]
        y.mul_(3)
        return y

    def g(x):
        y = f(x)
        framejit.graph_break()
        return y, y.storage_offset(), y.untyped_storage().nbytes()

    check(g, matrix(False), backends=(backend,), calls=3)
    check(g, matrix(True), backends=(backend,), calls=3)
