"""Sizes: one function called with many, and how often it is compiled.

The second size makes a dimension symbolic: ``compiles`` is 2 where every size
shares the second entry, however many sizes follow.
"""

import pytest
import torch
import torch.nn.functional as F

import framejit
from differential import BACKENDS, _run, compare

SIZES = (5, 9, 7, 12, 33)


def over_sizes(make, values=SIZES, *, compiles=2, dynamic=None):
    """A test: the function on ``make(value)`` for each value, against eager."""

    def decorate(fn):
        @pytest.mark.parametrize("backend", BACKENDS)
        def test(backend):
            compiled = framejit.compile(fn, backend=backend, dynamic=dynamic)
            for number, value in enumerate(values):
                torch.manual_seed(number)
                args = make(value)
                torch.manual_seed(number)
                expected = _run(fn, make(value), True, number)
                actual = _run(compiled, args, True, number)
                compare(expected, actual)
            if compiles is not None:
                entries = framejit.inspect(compiled)
                assert len(entries) == compiles, "\n".join(
                    str(e.guards) for e in entries
                )

        test.__name__ = fn.__name__
        return test

    return decorate


def vec(n):
    return (torch.randn(n, requires_grad=True),)


def rows(n):
    return torch.randn(n, 4, requires_grad=True), torch.randn(n, 4)


def square(n):
    return (torch.randn(n, n),)


def pair(n):
    return torch.randn(n), torch.randn(n + 3)


@over_sizes(vec)
def test_elementwise(x):
    return (x * 2).sin() + x


@over_sizes(vec, compiles=1, dynamic=True)
def test_dynamic_from_the_start(x):
    return (x * 2).sin() + x


@over_sizes(vec, compiles=5, dynamic=False)
def test_never_dynamic(x):
    return x * 2


@over_sizes(rows)
def test_two_inputs_one_size(x, y):
    return x * y + x.sum(0), (x - y).mean()


@over_sizes(pair)
def test_two_sizes(x, y):
    return x.sum() * y, torch.cat([x, y]), x[:, None] * y


@over_sizes(square)
def test_square(x):
    return x @ x.t() + x, x.sum(1) / x.shape[0]


@over_sizes(square, compiles=None)
def test_diagonal(x):
    return x.diagonal().sum(), x.diag()


@over_sizes(rows)
def test_matmul(x, y):
    return x @ y.t(), x.t() @ y, F.linear(x, y[:2])


@over_sizes(
    lambda n: (torch.randn(n, 4, requires_grad=True), torch.randn(n, 1) + 2),
)
def test_weight_norm(v, g):
    return torch._weight_norm(v, g, 0), torch._weight_norm(v.t(), g.t(), 1)


@over_sizes(
    lambda n: (torch.randn(2, 3, 4 * n), torch.randn(5, 3, n, requires_grad=True)),
)
def test_kernels_of_convolutions(x, w):
    return F.conv1d(x, w, padding=w.size(2) // 2), F.conv_transpose1d(
        x, w.transpose(0, 1)
    )


@over_sizes(lambda n: (torch.randn(1, 1, n, n + 1, requires_grad=True),))
def test_padding_a_single_image(x):
    return F.pad(x, (0, 0, 1, 1)).sin(), F.pad(x, (-1, 0, 0, -1)), F.pad(x, (2, 0))


@over_sizes(lambda n: (torch.eye(n) + 1, torch.randn(n), torch.randn(2, n, n) + 9))
def test_vectors_to_solve(a, b, c):
    return (
        torch.linalg.solve(a, b),
        torch.linalg.solve(c, c[:, 0]),
        (a > 1).count_nonzero(0),
    )


@over_sizes(vec)
def test_size_in_arithmetic(x):
    n = x.shape[0]
    return x * n, x / (n + 1), x.sum() / len(x), x + n // 2, x * (n % 3), x - n**2


@over_sizes(vec)
def test_size_returned(x):
    n = x.shape[0]
    return (
        x + 1,
        n,
        n * 2 + 1,
        x.size(0),
        list(x.shape),
        x.shape,
        x.numel(),
        (n, [n - 1]),
    )


@over_sizes(vec)
def test_constructors_of_size(x):
    n = x.size(0)
    return (
        x + torch.zeros(n),
        torch.ones(n, 2) * x[:, None],
        torch.arange(n) + x,
        torch.full((n + 1,), 2.0),
        x.new_zeros(n),
    )


@over_sizes(rows)
def test_reshape_minus_one(x, y):
    return (
        x.reshape(-1),
        x.view(-1, 2),
        y.reshape(2, -1),
        x.flatten(),
        x.view(x.shape[0], 2, 2).sum(2),
    )


@over_sizes(rows)
def test_reshape_by_sizes(x, y):
    n, d = x.shape
    return (
        x.view(n * d),
        y.reshape(d, n),
        x.view(n, 2, d // 2).transpose(1, 2).reshape(n, -1),
        y.unsqueeze(0).expand(3, n, d),
    )


@over_sizes(vec)
def test_slices(x):
    n = x.shape[0]
    return (
        x[1:],
        x[:-1] + x[1:],
        x[: n // 2],
        x[n - 2 :],
        x[::2],
        x[-3:],
        x.narrow(0, 1, n - 2),
    )


@over_sizes(vec, compiles=None)
def test_chunk_and_split(x):
    return [c * 2 for c in x.split(4)], x.chunk(2)


@over_sizes(vec, compiles=5)
def test_range_over_size(x):
    total = 0
    for i in range(x.shape[0]):
        total = total + x[i] * i
    return total


@over_sizes(vec, (5, 9, 20, 30, 8, 40))
def test_branch_one_way(x):
    if x.shape[0] > 2:
        return x * 2
    return x - 1


@over_sizes(vec, (5, 9, 20, 30, 8, 40), compiles=3)
def test_branch_on_size(x):
    if x.shape[0] > 10:
        return x * 2
    return x - 1


@over_sizes(vec, (4, 8, 9, 12, 7, 100), compiles=None)
def test_branch_on_parity(x):
    n = x.shape[0]
    return x.view(n // 2, 2).sum(1) if n % 2 == 0 else x + 1


@over_sizes(vec, (5, 1, 0, 3, 1, 0, 7), compiles=None)
def test_zero_and_one(x):
    return x * 2, x.sum(), x[None].expand(2, x.shape[0])


@over_sizes(
    lambda n: (torch.randn(n, 1), torch.randn(1, n)), (1, 3, 4, 5, 1), compiles=None
)
def test_outer_product(x, y):
    return x * y, x + 1


@over_sizes(
    lambda k: (torch.randn(k[0]), torch.randn(k[1])),
    ((5, 5), (6, 6), (7, 1), (8, 8), (1, 9), (3, 3)),
    compiles=None,
)
def test_broadcast_between_sizes(x, y):
    return x + y, torch.maximum(x, y), torch.where(x > 0, x, y)


@over_sizes(
    lambda k: (torch.randn(k[0]), torch.randn(k[1])),
    ((5, 6), (5, 5), (6, 5), (7, 7), (7, 8)),
    compiles=None,
)
def test_errors_of_unequal_sizes(x, y):
    return x + y


@over_sizes(
    lambda k: (torch.randn(*k),),
    ((2, 3), (4, 3), (4, 5), (4,), (2, 2, 2), (7, 9)),
    compiles=None,
)
def test_rank_changes(x):
    return x.sum(-1), x * x.shape[0], x.ndim


@over_sizes(lambda n: (torch.randn(3), n), (2, 3, 4, 50, -1), compiles=None)
def test_int_argument(x, n):
    return x * n, n + 1, x.sum() / (n * 2)


@over_sizes(lambda n: (torch.randn(60), n), (2, 3, 4, 5, 6))
def test_int_argument_as_size(x, n):
    return x[:n], torch.zeros(n, 2), x.reshape(n, 60 // n), x.view(n, -1)


@over_sizes(lambda n: (torch.randn(3), n), (2, 3, 4, 5), compiles=4)
def test_int_argument_as_count(x, n):
    for _ in range(n):
        x = x + 1
    return x


@over_sizes(
    lambda n: (torch.randn(3), [10, 20, 30, 40], n), (0, 1, 2, 3, -1), compiles=None
)
def test_int_argument_as_index(x, xs, n):
    return x * xs[n], xs[:n]


@over_sizes(lambda f: (torch.randn(3), f), (0.5, 1.5, 2.5, float("inf")), compiles=None)
def test_float_argument(x, f):
    return x * f, f * 2


@over_sizes(lambda b: (torch.randn(3), b), (True, False, 1, 0, True), compiles=None)
def test_bool_argument(x, b):
    return (x * 2 if b else x - 1), b, type(b).__name__


@over_sizes(
    lambda s: (torch.randn(4, 6), s),
    ((2, 12), (12, 2), (24,), (3, 8), (2, 3, 4)),
    compiles=None,
)
def test_shape_argument(x, shape):
    return x.reshape(shape), x.reshape(*shape), torch.zeros(shape)


@over_sizes(lambda n: ({"a": [torch.randn(n)], "n": n},))
def test_sizes_in_containers(d):
    x = d["a"][0]
    assert x.shape[0] == d["n"]
    return x * d["n"], {"m": d["n"] + x.shape[0]}


@over_sizes(lambda n: (torch.randn(n, 4), torch.randint(0, n, (6,))))
def test_index_by_tensor(x, i):
    return (
        x[i],
        x.index_select(0, i),
        F.embedding(i, x),
        x.gather(0, i[:, None].expand(6, 4)),
    )


@over_sizes(rows)
def test_reductions(x, y):
    return (
        x.softmax(0),
        x.mean(0),
        y.var(0),
        x.amax(),
        F.layer_norm(x, (4,)),
        x.logsumexp(0),
        y.argmax(0),
        x.cumsum(0),
    )


@over_sizes(rows)
def test_join_and_repeat(x, y):
    return (
        torch.cat([x, y, x]),
        torch.stack([x, y]),
        x.repeat(2, 1),
        torch.cat([x, x[:1]]),
        F.pad(x, (1, 2)),
        x.repeat_interleave(2, 0),
    )


@over_sizes(rows)
def test_mutated(x, y):
    y.mul_(2)
    y[0] = 1
    y[1:] += y[:-1]
    return x * y


@over_sizes(lambda n: (torch.randn(n, 4).t(), torch.randn(n, 4)[:, ::2]))
def test_strided(x, y):
    return x * 2, y + 1, x.stride(), y.contiguous(), x.reshape(-1)


@over_sizes(lambda n: (torch.randn(2, 3, n, n),), (8, 10, 12, 9))
def test_convolution(x):
    w = torch.ones(4, 3, 3, 3)
    y = F.conv2d(x, w, padding=1)
    return F.max_pool2d(y, 2), F.avg_pool2d(x, 2)


# torch computes the output size from numbers: each size is an entry.
@over_sizes(lambda n: (torch.randn(2, 3, n, n),), (8, 10, 12, 9), compiles=None)
def test_interpolate(x):
    return F.interpolate(x, scale_factor=2)


@over_sizes(rows, compiles=None)
def test_random_of_size(x, y):
    return torch.rand(x.shape[0]), torch.randn_like(y) * x, F.dropout(x, 0.5)


@over_sizes(vec, compiles=None)
def test_size_as_text(x):
    table = {x.shape[0]: "n"}
    return f"{x.shape[0]} {x.shape}", table, x + 1, str(x.size()), x.shape[0] in (5, 9)


@over_sizes(vec, compiles=None)
def test_python_of_sizes(x):
    n = x.shape[0]
    return (
        x + 1,
        min(n, 7),
        max(n, 7),
        abs(-n),
        divmod(n, 4),
        n & 3,
        n << 1,
        float(n),
        n / 2,
        round(n / 3),
        pow(n, 2),
        bool(n),
        -n,
        n == 9,
        sum([n, 1]),
    )


@over_sizes(vec, compiles=None)
def test_break_with_sizes(x):
    n = x.shape[0]
    y = x * n
    framejit.graph_break()
    return y + n, n


@over_sizes(vec, compiles=None)
def test_branch_on_data_with_sizes(x):
    y = x * 2
    if y.sum() > 0:
        y = y / x.shape[0]
    return y - 1


@over_sizes(lambda n: (torch.randn(n, 4), torch.nn.Linear(4, 3)), compiles=None)
def test_module_over_sizes(x, module):
    return module(x).relu(), module(x[1:])


@over_sizes(
    lambda n: (torch.randn(n, 4).bool(), torch.randn(n, 4).half(), torch.arange(n))
)
def test_dtypes_over_sizes(b, h, i):
    return (
        b.sum(0),
        h + 1,
        i * 2,
        (i[:, None] * h).sum(0, dtype=torch.float32),
        i.float().mean(),
    )


@over_sizes(
    lambda n: (torch.randn(n), torch.randn(2 * n), torch.randn(n + 1)), compiles=None
)
def test_related_sizes(x, y, z):
    return y.view(2, -1) + x, z[1:] * x, torch.cat([x, x]) - y


# ---- arithmetic without an expression takes the value, and guards it


@over_sizes(lambda n: (torch.randn(n), n), compiles=2)
def test_abs_of_an_int_stays_symbolic(x, n):
    return x * abs(n) + abs(-n)


@over_sizes(lambda n: (torch.randn(3), n), (4, -5, -7, 6, -2), compiles=3)
def test_abs_guards_the_sign(x, n):
    return x * abs(n)


@pytest.mark.parametrize("text", ("&", "|", "^", "<<", ">>"))
def test_bits_of_an_int(text):
    import operator

    op = {
        "&": operator.and_,
        "|": operator.or_,
        "^": operator.xor,
        "<<": operator.lshift,
        ">>": operator.rshift,
    }[text]

    def f(x, n):
        y = x * op(n, 2)
        n = op(n, 1)
        return y + op(7, abs(n) % 3), n

    compiled = framejit.compile(f, backend="eager")
    for n in (3, 5, 6, -4, 9):
        x = torch.randn(4)
        (a, b), (c, d) = f(x, n), compiled(x, n)
        assert torch.equal(a, c) and b == d and type(d) is int
    for entry in framejit.inspect(compiled):
        assert not entry.breaks


@over_sizes(lambda n: (torch.randn(n, 3),), compiles=None)
def test_size_as_text_and_product(x):
    return x * x.shape.numel(), str(x.shape), f"{x.size()}"
