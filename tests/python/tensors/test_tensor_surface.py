"""Tensors as users write them: attributes, constructors, indexing, conversions."""

import math

import numpy as np
import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import framejit
from differential import BACKENDS, assert_same, check, program, two


def matrix():
    return (torch.randn(3, 4),)


def grad_matrix():
    return (torch.randn(3, 4, requires_grad=True),)


def cube():
    return (torch.randn(2, 3, 4),)


# ---- constructors


@program(matrix)
def test_parameter_made_inside(x):
    w = nn.Parameter(torch.ones(4))
    return (x * w).sum(), isinstance(w, nn.Parameter)


@program(matrix)
def test_parameter_without_grad(x):
    w = nn.Parameter(torch.ones(4), requires_grad=False)
    return (x * w).sum(), w


@program(matrix)
def test_legacy_tensor_of_list(x):
    return (
        x * torch.Tensor([1, 2, 3, 4]),
        torch.FloatTensor([[1.5]]),
        torch.LongTensor([1, 2]),
    )


@program(matrix)
def test_legacy_tensor_of_sizes(x):
    return (
        x + torch.Tensor(3, 4).zero_(),
        torch.FloatTensor(2).fill_(1.0),
        torch.zeros(1).type(torch.LongTensor),
    )


@program(matrix)
def test_legacy_new(x):
    return (
        x.new(2, 3).zero_(),
        x.new([1, 2]),
        x.new_tensor([3.0]),
        x.new(x.size()).fill_(1),
    )


@program(matrix)
def test_new_family(x):
    return (
        x.new_zeros(2, 3),
        x.new_ones((2,), dtype=torch.int64),
        x.new_full((2,), 3.5),
        x.new_empty(2).zero_(),
        x.new_tensor([1, 2], dtype=torch.float64),
    )


@program(matrix)
def test_tensor_constructor(x):
    return (
        x * torch.tensor(2.0),
        torch.tensor([[1, 2], [3, 4]]),
        torch.tensor(3, dtype=torch.float64),
        torch.as_tensor([1.0, 2.0]),
        torch.tensor(x.shape),
        torch.tensor((True, False)),
    )


@program(matrix)
def test_factories(x):
    n = x.shape[0]
    return (
        torch.arange(n),
        torch.linspace(0, 1, n),
        torch.eye(n),
        torch.logspace(0, 1, 3),
        torch.zeros_like(x, dtype=torch.int32),
        torch.empty_like(x).fill_(1),
        torch.full_like(x, 2),
        torch.tril_indices(n, n),
        torch.meshgrid(torch.arange(2), torch.arange(3), indexing="ij"),
        torch.complex(x, x),
    )


@program(matrix)
def test_variable(x):
    v = torch.autograd.Variable(x * 2)
    return v + 1, isinstance(v, torch.autograd.Variable)


@program(matrix)
def test_variable_requires_grad(x):
    v = torch.autograd.Variable(torch.ones(4), requires_grad=True)
    return (v * x).sum()


@program(matrix)
def test_type_conversions(x):
    return (
        x.type(torch.float64),
        x.type("torch.IntTensor"),
        x.type_as(torch.ones(1)),
        x.type(torch.LongTensor),
    )


@program(matrix)
def test_to_forms(x):
    return (
        x.to("cpu"),
        x.to(torch.float64),
        x.to("cpu", torch.float16),
        x.to(torch.ones(1, dtype=torch.int32)),
        x.to(device=torch.device("cpu"), dtype=torch.bool),
        x.to(x.device, non_blocking=True, copy=True),
        x.to(torch.float32, memory_format=torch.contiguous_format),
        x.double().float().half().bfloat16().int().long().bool().cpu(),
    )


# ---- out=


@program(two)
def test_out(x, y):
    buffer = torch.empty(3, 4)
    torch.add(x.detach(), y, out=buffer)
    r = torch.mul(buffer, 2, out=buffer)
    return buffer + 1, r is buffer


@program(lambda: (torch.randn(3, 4), torch.empty(3, 4)))
def test_out_input(x, out):
    torch.sin(x, out=out)
    return out * 2


@program(lambda: (torch.randn(3, 4), torch.zeros(3), torch.zeros(3, dtype=torch.long)))
def test_out_tuple(x, values, places):
    torch.max(x, 1, out=(values, places))
    return values + places


# ---- indexing


@program(cube)
def test_index_basic(x):
    return (
        x[0],
        x[-1, 1],
        x[:, 1:],
        x[..., 0],
        x[None],
        x[:, None, ::2],
        x[1, ..., 2:],
        x[()],
        x[...],
    )


@program(cube)
def test_index_tensor(x):
    i = torch.tensor([0, 1, 1])
    return (
        x[i],
        x[:, i],
        x[..., i],
        x[i, i],
        x[[0, 1]],
        x[[0, 1], [1, 2]],
        x[:, [0, 2]],
        x[i[:2], :, [0, 1]],
    )


@program(cube)
def test_index_zero_dim(x):
    i = torch.tensor(1)
    y = x + 1
    y[i, 0] = 3
    return y[i] + 1, y[:, i, None] * 2, y[i, i] * 3, y[i]


@program(lambda: (torch.randn(3, 4, requires_grad=True), torch.tensor(2)))
def test_index_by_counter(x, n):
    total = x[n].sum()
    for i in range(2):
        total = total + x[n - i, i]
    return total


@program(lambda: (torch.randn(3, 4), torch.tensor(9)), graphs=None, breaks=None)
def test_index_by_counter_out_of_range(x, n):
    return x[n] + 1


@program(cube)
def test_index_bool_constant(x):
    return x[True], x[False], x[None, True]


@program(matrix, graphs=None, breaks=1)
def test_index_negative_step(x):
    try:
        return x[::-1]
    except ValueError as e:
        return x + len(str(e))


@program(cube)
def test_setitem(x):
    y = x.clone()
    y[0] = 1
    y[:, 1] = x[:, 0]
    y[..., -1] = torch.arange(3.0)
    y[1, 2, 3] = 5.0
    y[torch.tensor([0, 1]), 0] = -1
    y[[0, 1], [1, 2]] += 3
    y[y > 2] = 0
    y[None, 0] = 2 * y[0]
    return y


@program(cube)
def test_setitem_mask(x):
    y = x.clone()
    y[x > 0] = -1.0
    y[y < -0.5] = 2
    y[0][x[0] > 1] = 3.0
    return y


@program(lambda: (torch.randn(3, 4, requires_grad=True),))
def test_setitem_mask_gradient(x):
    y = x * 2
    y[x > 0] = 0.0
    return y.sum()


@program(matrix)
def test_setitem_mask_of_rows(x):
    y = x.clone()
    y[x[:, 0] > 0] = torch.arange(4.0)
    y[y[:, 1] < 0, 0] = 7
    return y


@program(lambda: (torch.randn(3, 4), torch.randn(5)), graphs=None, breaks=None)
def test_setitem_mask_wrong_size(x, v):
    y = x.clone()
    y[x > -100] = v
    return y


@program(cube)
def test_setitem_input(x):
    x[0, 1] = 7
    x[..., 0] = x[..., 1]
    return x.sum()


@program(cube, graphs=1, breaks=1)
def test_mask_read_breaks(x):
    y = x + 1
    return y[y > 0]


@program(lambda: (torch.randn(3, 4), torch.tensor([1, 0, 2])))
def test_gather_family(x, i):
    return (
        x.gather(1, i[:, None]),
        x.index_select(0, i),
        torch.take(x, i),
        x.scatter(1, i[:, None], 1.0),
        x.index_fill(0, i[:1], 2.0),
        x.index_add(0, i, x),
        torch.take_along_dim(x, i[:, None], 1),
        x.masked_fill(x > 0, 0),
    )


@program(matrix)
def test_iterate_and_unpack(x):
    a, b, c = x
    return (
        a + b * c,
        [r.sum() for r in x],
        len(x),
        list(x.unbind(1))[0],
        [*x.split(2)],
        x.chunk(2, 1),
    )


@program(matrix)
def test_slices_by_name(x):
    s = slice(0, 2)
    index = (s, slice(None), None)
    return x[s], x[index], x[(0, Ellipsis)], x[slice(1, None), 1]


@program(matrix)
def test_size_as_index(x):
    return x[: x.size(0) // 2], x[x.shape[0] - 1], x.narrow(0, 1, x.size(0) - 1)


# ---- views and broadcasting


@program(grad_matrix)
def test_views(x):
    return (
        x.view(-1) + 0,
        x.reshape(2, 6) + 0,
        x.flatten() + 0,
        x.unflatten(1, (2, 2)) + 0,
        x.permute(1, 0) + 0,
        x.T + 0,
        x.mT + 0,
        x.expand(2, 3, 4) + 0,
        x.repeat(2, 1),
        x.unfold(1, 2, 1) + 0,
        x.swapaxes(0, 1) + 0,
        x.movedim(0, 1) + 0,
        x.diagonal() + 0,
        x.ravel() + 0,
        x.view_as(x) + 0,
    )


@program(grad_matrix)
def test_views_returned(x):
    y = x * 2
    return y, y.view(-1), y[0], y.t()


@program(matrix)
def test_broadcast_helpers(x):
    a, b = torch.broadcast_tensors(x, torch.ones(4))
    s = torch.broadcast_shapes((3, 1), (1, 4))
    return (
        a + b,
        s,
        x.expand_as(torch.ones(2, 3, 4)) * 1,
        torch.atleast_3d(x) + 0,
        torch.broadcast_to(x, (2, 3, 4)) + 0,
    )


@program(lambda: (torch.randn(5), torch.randn(5)))
def test_contractions(x, y):
    return (
        torch.einsum("i,j->ij", x, y),
        torch.einsum("i,i->", x, y),
        torch.tensordot(x, y, dims=1),
        torch.outer(x, y),
        x @ y,
        torch.inner(x, y),
        torch.kron(x, y),
        torch.cdist(x[None, :, None], y[None, :, None]),
    )


@program(matrix)
def test_symbolic_diagonal(x):
    return x.diagonal().sum() + torch.trace(x[:3, :3])


# ---- device contexts


@program(matrix)
def test_device_context(x):
    with torch.device("cpu"):
        y = torch.ones(4)
    return x * y


@program(matrix)
def test_device_objects(x):
    d = torch.device("cpu", 0) if False else torch.device("cpu")
    return (
        torch.zeros(2, device=d) + 1,
        d.type,
        d.index,
        d == x.device,
        str(d),
        x.get_device(),
    )


@pytest.mark.parametrize("backend", BACKENDS)
def test_default_dtype_changed_later(backend):
    @framejit.compile(backend=backend)
    def f(x):
        return torch.ones(3) + x, torch.get_default_dtype()

    x = torch.randn(3)
    assert f(x)[0].dtype == torch.float32
    torch.set_default_dtype(torch.float64)
    try:
        assert f(x)[0].dtype == torch.float64
        assert f(x)[1] == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert f(x)[1] == torch.float32


@pytest.mark.parametrize("backend", BACKENDS)
def test_set_default_dtype_inside(backend):
    def f(x):
        torch.set_default_dtype(torch.float64)
        y = torch.ones(4)
        torch.set_default_dtype(torch.float32)
        return x + y, torch.ones(2)

    check(f, matrix, backends=(backend,))


@pytest.mark.parametrize("backend", BACKENDS)
def test_default_device_outside(backend):
    def f(x):
        return torch.ones(4) + x.to(torch.get_default_device())

    with torch.device("cpu"):
        check(f, matrix, backends=(backend,), graphs=None)
    torch.set_default_device("meta")
    try:
        assert framejit.compile(f, backend=backend)(torch.ones(4, device="cpu")).is_meta
    finally:
        torch.set_default_device(None)


@pytest.mark.parametrize("backend", BACKENDS)
def test_default_device_of_the_cpu(backend):
    """It changes no call: captured, and guarded against any other mode."""

    def f(x):
        made = torch.ones(3, 4) + torch.tensor(2.0) + torch.arange(4)
        return made * x, torch.zeros_like(x), torch.get_default_device(), made.device

    def empty(x):
        return torch.empty(2), x

    class Mode(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch.ones:
                return func(*args, **(kwargs or {})) * 7
            return func(*args, **(kwargs or {}))

    compiled = framejit.compile(f, backend=backend)
    made = framejit.compile(empty, backend=backend)
    torch.set_default_device("cpu")
    try:
        check(f, matrix, backends=(backend,), graphs=1, breaks=0)
        framejit.reset()
        for _ in range(2):
            x = torch.randn(3, 4)
            assert_same(compiled(x), f(x))
            torch.set_default_device(None)
            assert_same(compiled(x), f(x))
            with torch.device("meta"):
                assert made(x)[0].is_meta
            with Mode():
                assert_same(compiled(x), f(x))
            with torch.device("cpu"):
                assert_same(compiled(x), f(x))
                assert made(x)[0].device.type == "cpu"
                with Mode():
                    assert_same(compiled(x), f(x))
            torch.set_default_device("cpu")
    finally:
        torch.set_default_device(None)
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    assert sum(1 for e in entries if e.operations) == 2


@program(matrix, graphs=None, breaks=None)
def test_set_default_device_inside(x):
    torch.set_default_device("cpu")
    y = torch.ones(4)
    torch.set_default_device(None)
    return x + y


# ---- random numbers


@program(matrix)
def test_random_in_graph(x):
    return (
        x + torch.rand(3, 4),
        torch.randn_like(x),
        torch.randint(0, 5, (3,)),
        torch.randperm(4),
        torch.bernoulli(x.sigmoid()),
        x.clone().normal_(),
    )


@program(matrix, graphs=2, breaks=None)
def test_manual_seed(x):
    x = x + 1
    torch.manual_seed(3)
    return x + torch.rand(4)


@program(matrix, graphs=None, breaks=None)
def test_generator(x):
    g = torch.Generator().manual_seed(3)
    return x + torch.rand(4, generator=g)


def test_dropout_train_and_eval():
    for training in (True, False):
        for backend in BACKENDS:
            check(
                lambda x, training=training: F.dropout(x, 0.3, training),
                grad_matrix,
                backends=(backend,),
                graphs=1 if training else 0,
            )


# ---- NumPy


TABLE = np.arange(4, dtype=np.float32)


@program(matrix, graphs=None, breaks=None)
def test_numpy_constant(x):
    return x * torch.from_numpy(TABLE)


@program(matrix)
def test_numpy_scalars(x):
    return x * np.pi + math.sqrt(2.0) + float(np.e)


@program(matrix, graphs=None, breaks=None)
def test_numpy_of_tensor(x):
    y = (x + 1).numpy()
    return torch.from_numpy(y * 2) + 1


@program(matrix, graphs=None, breaks=None)
def test_numpy_call(x):
    a = np.ones((3, 4), dtype=np.float32)
    return x + torch.as_tensor(np.concatenate([a[:1], a[1:]]))


# ---- sparse and subclasses break cleanly


@program(matrix, graphs=None, breaks=None)
def test_sparse(x):
    return (x + 1).to_sparse().to_dense() * 2


class Logged(torch.Tensor):
    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


@program(lambda: (torch.randn(3).as_subclass(Logged),), graphs=None, breaks=None)
def test_subclass_argument(x):
    return x * 2 + 1


@program(matrix, graphs=None, breaks=None)
def test_subclass_made_inside(x):
    y = (x + 1).as_subclass(Logged)
    return y * 2


class Plain(nn.Parameter):
    pass


@program(lambda: (Plain(torch.randn(3)),), graphs=None, breaks=None)
def test_parameter_subclass(x):
    return x * 2 + 1


# ---- reading values


# The number is another one in the second call: three graphs.
@program(matrix, graphs=3, breaks=1)
def test_item(x):
    y = x + 1
    n = y.sum().item()
    return x * n


@program(matrix, graphs=3, breaks=1)
def test_tolist(x):
    y = x[0] + 1
    n = y.tolist()
    return x * n[0]


@program(matrix, graphs=2, breaks=1)
def test_nonzero(x):
    y = x + 1
    n = y.nonzero()
    return n * 2


@program(matrix, graphs=None, breaks=1)
def test_print_tensor_repr(x):
    y = x + 1
    s = repr(y)
    return y * len(s[:6])


@program(matrix)
def test_len_and_contains(x):
    return x * len(x), x.dim(), x.numel(), x.nelement(), x.ndimension()


@program(matrix)
def test_methods_as_functions(x):
    return (
        torch.Tensor.add(x, 1),
        getattr(x, "mul")(2),
        torch.Tensor.relu(x),
        list(map(torch.sin, [x])),
    )


@program(matrix)
def test_operators_reflected(x):
    return (
        1 + x,
        2 - x,
        2 / (x + 10),
        2**x,
        7 // (x.abs() + 1),
        5 % (x.abs() + 1),
        -x,
        +x,
        abs(x),
        ~(x > 0),
        x @ x.T,
    )


@program(matrix)
def test_in_place_operators(x):
    y = x.clone()
    y += 1
    y -= x
    y *= 2
    y /= 3
    y **= 2
    y //= 1
    y %= 2
    return y


@program(matrix)
def test_comparisons_combined(x):
    m = (x > 0) & (x < 1) | (x == 2) ^ (x != x)
    return torch.where(m, x, -x), m.any(), m.all(), m.sum()


@program(matrix)
def test_reductions(x):
    v, i = x.max(dim=1)
    return (
        v,
        i,
        x.min(0).values,
        x.argmax(),
        x.argmin(1, keepdim=True),
        x.mean((0, 1)),
        x.std(1),
        x.var(0, unbiased=False),
        x.norm(),
        x.norm(p=1, dim=1),
        x.prod(1),
        x.cumsum(0),
        x.logsumexp(1),
        x.amax(1),
        x.sum(1, keepdim=True),
        x.median(1)[0],
        x.sort(1, descending=True)[0],
        x.topk(2)[1],
        x.any(),
        x.all(1),
        x.argsort(1),
        x.kthvalue(2).values,
        x.aminmax(),
        x.count_nonzero(),
    )


@program(matrix)
def test_joining(x):
    return (
        torch.cat([x, x]),
        torch.stack((x, x), 1),
        torch.hstack([x, x]),
        torch.vstack([x, x]),
        torch.dstack([x, x]),
        torch.concat((x, x), dim=-1),
        torch.column_stack([x, x]),
        torch.block_diag(x, x),
        torch.cartesian_prod(x[0], x[1]),
        F.pad(x, (1, 1)),
        F.pad(x[None], (1, 1), mode="reflect"),
        x.roll(1, 0),
        x.flip(0),
        torch.rot90(x),
        torch.tile(x, (2,)),
        x.repeat_interleave(2, 0),
        torch.cat([x[:0], x]),
    )
