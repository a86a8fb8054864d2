"""What a tensor is beyond its elements: .data, gradients, metadata, attributes."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import framejit
from differential import BACKENDS, assert_same, program


def matrix():
    return (torch.randn(3, 4),)


def grad_matrix():
    return (torch.randn(3, 4, requires_grad=True),)


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


# ---- integers with a history (eager makes one where a gradient is stored in them)


def with_history(dtype):
    source = torch.tensor(2.0, requires_grad=True)
    numbers = torch.ones(2, 2, dtype=dtype)
    numbers[0] = source
    assert numbers.requires_grad
    return numbers


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool])
def test_integers_that_require_grad(dtype, backend):
    def made_inside(x):
        y = torch.ones(2, 2, dtype=dtype)
        y[0] = x
        torch._dynamo.graph_break()
        return y.detach() + 1, y.requires_grad

    def given(y):
        return y.detach() * 2, y.requires_grad, y.is_leaf

    source = torch.tensor(2.0, requires_grad=True)
    for fn, argument in ((made_inside, source), (given, with_history(dtype))):
        compiled = framejit.compile(fn, backend=backend)
        for _ in range(2):
            assert_same(fn(argument), compiled(argument))
