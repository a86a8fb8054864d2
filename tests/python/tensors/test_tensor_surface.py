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


def parameter():
    return (nn.Parameter(torch.randn(3, 4)),)


# ---- .data


@program(grad_matrix)
def test_data_read(x):
    return x.data * 2, x * 3


@program(grad_matrix)
def test_data_of_computed(x):
    y = x * 2
    return y.data + 1, y


@program(grad_matrix)
def test_data_written_in_place(x):
    x.data.mul_(0.5)
    return x * 2


@program(parameter)
def test_data_clamped(p):
    p.data.clamp_(-0.1, 0.1)
    return (p * 2).sum()


@program(grad_matrix)
def test_data_setitem(x):
    x.data[0] = 0.0
    return x + 1


@program(parameter)
def test_data_assigned(p):
    p.data = p.data * 0.5
    return p + 1


@program(parameter, graphs=None, breaks=1)
def test_data_assigned_other_shape(p):
    p.data = torch.ones(2, 2)
    return p + 1, p.shape


@program(matrix, graphs=None, breaks=1)
def test_data_of_fresh_assigned(x):
    y = x + 1
    y.data = x.t().contiguous()
    return y * 2, y.shape


@program(grad_matrix)
def test_data_fill(x):
    x.data.fill_(2.0)
    x.data.zero_()
    return x.cos()


# ---- requires_grad


@program(matrix)
def test_requires_grad_of_input(x):
    x.requires_grad_()
    return (x * 2).sum()


@program(matrix)
def test_requires_grad_assigned(x):
    x.requires_grad = True
    return (x * 2).sum(), x.requires_grad


@program(parameter)
def test_requires_grad_off(p):
    p.requires_grad_(False)
    return p * 2


@program(matrix)
def test_requires_grad_of_fresh(x):
    w = torch.ones(4).requires_grad_()
    return (x * w).sum()


@program(matrix)
def test_requires_grad_same(x):
    x.requires_grad_(False)
    return x * 2


@program(grad_matrix)
def test_requires_grad_read_after_detach(x):
    y = x.detach()
    return y * (2 if y.requires_grad else 3)


@program(matrix)
def test_constructor_requires_grad(x):
    w = torch.full((4,), 2.0, requires_grad=True)
    return (x * w).sum()


# ---- is_leaf, grad_fn, grad


@pytest.mark.parametrize("backend", BACKENDS)
def test_is_leaf_is_guarded(backend):
    @framejit.compile(backend=backend)
    def f(x):
        return x * 2 if x.is_leaf else x * 3

    @framejit.compile(backend=backend)
    def g(x):
        return x * 2 if x.grad_fn is None else x * 3

    leaf = torch.randn(3, requires_grad=True)
    for h in (f, g):
        torch.testing.assert_close(h(leaf), leaf * 2)
        torch.testing.assert_close(h(leaf * 1), leaf * 3)
        torch.testing.assert_close(h(leaf), leaf * 2)
        torch.testing.assert_close(h(leaf.detach()), leaf.detach() * 2)


@pytest.mark.parametrize("backend", BACKENDS)
def test_grad_is_guarded(backend):
    @framejit.compile(backend=backend)
    def f(x):
        if x.grad is None:
            x.grad = torch.ones_like(x)
            return x * 2
        x.grad = x.grad + 1
        return x * x.grad

    x = torch.randn(3, requires_grad=True)
    torch.testing.assert_close(f(x), x * 2)
    torch.testing.assert_close(x.grad, torch.ones(3))
    torch.testing.assert_close(f(x), x * 2)
    torch.testing.assert_close(x.grad, torch.full((3,), 2.0))


@pytest.mark.parametrize("backend", BACKENDS)
def test_attribute_of_tensor_is_guarded(backend):
    @framejit.compile(backend=backend)
    def f(x, y):
        x.tag = 2
        return x * getattr(y, "tag", 7)

    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(f(x, y), x * 7)
    torch.testing.assert_close(f(x, x), x * 2)
    y.tag = 5
    torch.testing.assert_close(f(x, y), x * 5)
    del x.tag
    torch.testing.assert_close(f(x, y), x * 5)
    assert x.tag == 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_tensor_keys_are_guarded(backend):
    @framejit.compile(backend=backend)
    def f(a, b):
        seen = {a}
        counts = {a: 1}
        counts[b] = counts.get(b, 0) + 1
        return (a + b) * (2 if b in seen else 3) + counts[a], len(seen | {b})

    x, y = torch.randn(3), torch.randn(3)
    torch.testing.assert_close(f(x, y)[0], (x + y) * 3 + 1)
    torch.testing.assert_close(f(x, x)[0], x * 4 + 2)
    assert f(x, x)[1] == 1 and f(x, y)[1] == 2
    z = x.view(3)
    torch.testing.assert_close(f(x, z)[0], (x + z) * 3 + 1)


@program(grad_matrix)
def test_is_leaf(x):
    y = x * 2
    return y * (2 if x.is_leaf else 3), x.is_leaf, y.is_leaf


@program(matrix)
def test_grad_fn_none(x):
    return x * (1 if x.grad_fn is None else 2)


@program(grad_matrix)
def test_grad_fn_of_leaf(x):
    return x * (1 if x.grad_fn is None else 2)


def with_grad():
    x = torch.randn(3, 4, requires_grad=True)
    x.grad = torch.randn(3, 4)
    return (x,)


@program(with_grad)
def test_grad_read(x):
    return x * x.grad


@program(grad_matrix)
def test_grad_none(x):
    return x * 2 if x.grad is None else x * 3


@program(with_grad)
def test_grad_set_none(x):
    x.grad = None
    return x * 2, x.grad is None


@program(with_grad)
def test_grad_assigned(x):
    x.grad = x.detach() * 2
    return x * x.grad


@program(with_grad)
def test_grad_in_place(x):
    x.grad.zero_()
    return x * 2


@program(with_grad)
def test_grad_detach_zero(x):
    if x.grad is not None:
        x.grad.detach_()
        x.grad.zero_()
    return x * 2


@program(with_grad)
def test_sgd_by_hand(x):
    with torch.no_grad():
        x -= 0.1 * x.grad
        x.grad = None
    return x * 2


# ---- metadata in place


@program(grad_matrix)
def test_unsqueeze_in_place(x):
    y = x * 2
    y.unsqueeze_(1)
    return y + 1, y.shape


@program(lambda: (torch.randn(1, 3, 1),))
def test_squeeze_in_place(x):
    y = x + 1
    y.squeeze_(0)
    z = y.squeeze_()
    return y * z, y.shape


@program(matrix)
def test_transpose_in_place(x):
    y = x.clone()
    y.t_()
    z = x.clone().transpose_(0, 1)
    return y + z, y.stride()


@program(matrix)
def test_unsqueeze_input(x):
    x.unsqueeze_(0)
    return x * 2


@program(matrix)
def test_transpose_input(x):
    x.t_()
    return x.sum(0)


@program(grad_matrix)
def test_detach_in_place(x):
    y = x * 2
    y.detach_()
    return y + x


@program(grad_matrix)
def test_detach_input_in_place(x):
    y = x * 2
    x.detach_()
    return y + x, x.requires_grad


@program(matrix, graphs=1, breaks=1)
def test_detach_view_in_place(x):
    first, *_ = x
    try:
        first.detach_()
    except RuntimeError as error:
        return x * 2, str(error)[:28]
    return x


def test_detach_input_which_becomes_a_view():
    def fn(x):
        x.detach_()
        return x * 2

    compiled = framejit.compile(fn, backend="eager")
    plain, view = torch.randn(3), torch.randn(2, 3)[0]
    for x in (plain, view, plain):
        outcomes = []
        for function in (fn, compiled):
            try:
                outcomes.append(function(x).tolist())
            except RuntimeError as error:
                outcomes.append(str(error))
        assert outcomes[0] == outcomes[1]


@program(matrix, graphs=2, breaks=1)
def test_resize_breaks(x):
    y = x + 1
    y.resize_(2, 2)
    return y * 2


# ---- attributes


@program(matrix)
def test_plain_attributes(x):
    y = x * x.ndim + x.itemsize + x.element_size() + x.nbytes
    return y, x.is_cuda, x.layout, x.device, x.dtype, x.is_sparse


@program(matrix, graphs=None, breaks=2)
def test_storage_offset(x):
    """Not guarded, so it is not read."""
    return x * (x.storage_offset() + 1), x[1:].storage_offset()


@program(lambda: (torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),))
def test_memory_format(x):
    if x.is_contiguous(memory_format=torch.channels_last):
        x = x * 2
    return x.contiguous(), x.is_contiguous(), x.stride()


@program(matrix)
def test_attribute_set_on_computed(x):
    y = x + 1
    y.tag = "seen"
    y.scale = 3
    return y * y.scale, y.tag, y


@program(matrix)
def test_attribute_set_on_input(x):
    x.tag = 5
    return x * x.tag


@program(matrix)
def test_attribute_absent(x):
    return x * getattr(x, "tag", 2) if not hasattr(x, "other") else x


def tagged():
    x = torch.randn(3)
    x.tag = 3
    x.note = {"k": 2.0}
    return (x,)


@program(tagged)
def test_attribute_of_input(x):
    return x * x.tag * x.note["k"]


@program(tagged)
def test_attribute_deleted(x):
    del x.tag
    return x * 2, hasattr(x, "tag")


@program(matrix)
def test_tensor_in_attribute(x):
    y = x + 1
    y.partner = x * 2
    return y * y.partner, y


@program(matrix)
def test_type_queries(x):
    return (
        x * 2,
        x.type(),
        torch.is_tensor(x),
        torch.is_floating_point(x),
        torch.is_complex(x),
        torch.is_storage(x),
        x.is_floating_point(),
        x.is_signed(),
    )


@program(matrix)
def test_legacy_isinstance(x):
    kinds = [torch.FloatTensor, torch.LongTensor, torch.DoubleTensor, torch.Tensor]
    return (
        [isinstance(x, k) for k in kinds],
        [isinstance((x > 0).long(), k) for k in kinds],
        [isinstance(nn.Parameter(x.double()), k) for k in (*kinds, nn.Parameter)],
        isinstance(x, (torch.IntTensor, torch.FloatTensor)),
    )


@program(matrix)
def test_constant_item(x):
    a = torch.tensor(3).item()
    b = torch.tensor(0.1)
    c = torch.tensor([2.5])
    d = torch.tensor(1.0)
    return x * a + b.item() + c.item() + d.view(1).item()


@program(matrix, graphs=None, breaks=1)
def test_constant_item_after_write(x):
    d = torch.tensor(1.0)
    d.add_(x[0, 0])
    return x * d.item()


@program(lambda: (torch.randint(0, 4, (3,)),))
def test_one_hot(i):
    return F.one_hot(i, 4), F.one_hot(i, num_classes=6).float()


@program(lambda: (torch.tensor([0, 7]),), graphs=None, breaks=None)
def test_one_hot_out_of_range(i):
    return F.one_hot(i, 4)


@program(matrix)
def test_as_strided(x):
    y = x + 1
    return y.as_strided((2, 2), (4, 1)) * 2


@program(matrix)
def test_infos(x):
    low = torch.finfo(x.dtype).min
    return x.clamp(min=low / 2) * torch.finfo(torch.float32).eps, torch.iinfo(
        torch.int32
    ).max


@program(matrix)
def test_default_dtype(x):
    return x.to(torch.get_default_dtype()) + torch.ones(
        4, dtype=torch.get_default_dtype()
    )


@program(matrix)
def test_promotion(x):
    if torch.can_cast(torch.float32, torch.float64):
        x = x.to(torch.promote_types(x.dtype, torch.float16))
    return x + 1, torch.result_type(x, 1.0), torch.result_type(torch.arange(3), x)


@program(lambda: (torch.arange(6), torch.randn(6), torch.tensor(True)))
def test_mixed_dtypes(i, x, b):
    return i + x, i * 2.5, b + i, i / 2, i // 2, x > i, b & (i > 2), i**2


@program(matrix)
def test_size_arithmetic(x):
    s = x.shape + (2,)
    t = torch.Size([2, 3])
    return (
        x.new_ones(s),
        s[-1],
        s.numel(),
        t + x.shape,
        x.shape[:1],
        tuple(x.size()),
        len(x.shape),
    )


@program(matrix)
def test_size_compare(x):
    same = (
        x.shape == (3, 4) and x.size() == torch.Size([3, 4]) and list(x.shape) == [3, 4]
    )
    a, b = x.shape
    return x * (a + b) if same else x


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
