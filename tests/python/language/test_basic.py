"""Straight-line programs: operations, dtypes, constructors, what comes out."""

import math

import torch
import torch.nn.functional as F

from differential import leaf, one, program, two


def mixed():
    return torch.randn(4), torch.arange(4), torch.tensor([True, False, True, False])


def halves():
    return torch.randn(4).half(), torch.randn(4).bfloat16(), torch.randn(4).double()


@program(two)
def test_arithmetic(x, y):
    return (x + y) * 2 - y / 3 + (x - 1) ** 2


@program(two)
def test_reflected_operators(x, y):
    return 1 - x, 2 / (y * y + 1), 2**y, 3 + x, 3 * x


@program(one)
def test_floor_and_modulo(x):
    return x // 0.3, x % 0.3, -x, +x, abs(x)


@program(mixed)
def test_type_promotion(x, i, b):
    return x + i, i + b, i / 2, i * 2.5, b * 1.5, i // 2, b & (i > 1), ~b, i << 2, i ^ 3


@program(halves)
def test_low_and_high_precision(h, b, d):
    return h + 1, b * 2, d / 3, h + d, b.float() + h.float(), (h * 1000).exp()


@program(two)
def test_comparison(x, y):
    return x < y, x <= 0, x == y, x != 0, (x > 0) | (y > 0), torch.where(x > y, x, y)


@program(leaf)
def test_elementwise_methods(x):
    y = x.sin().exp().tanh().sigmoid()
    return (
        y,
        x.abs().sqrt(),
        (x * x + 1).log(),
        x.relu(),
        x.clamp(-0.5, 0.5),
        x.neg().floor(),
    )


@program(leaf)
def test_more_elementwise(x):
    return (
        torch.erf(x),
        x.rsqrt().nan_to_num(),
        x.square(),
        x.reciprocal(),
        x.sign(),
        torch.log1p(x * x),
    )


@program(two)
def test_activations(x, y):
    return (
        F.gelu(x),
        F.silu(x),
        F.leaky_relu(x, 0.1),
        F.softplus(y),
        F.elu(y),
        F.hardtanh(x),
    )


@program(two)
def test_reductions(x, y):
    return (
        x.sum(),
        x.mean(0),
        x.sum(dim=1, keepdim=True),
        y.amax(1),
        y.var(0),
        y.std(),
        x.prod(1),
    )


@program(two)
def test_arg_reductions(x, y):
    return (
        y.argmax(),
        y.argmin(dim=1),
        x.max(dim=0),
        x.min(1).values,
        y.any(),
        (y > 0).all(1),
    )


@program(two)
def test_softmax_family(x, y):
    return x.softmax(-1), F.log_softmax(x, dim=0), x.logsumexp(1), y.cumsum(1)


@program(two)
def test_matmul_family(x, y):
    return (
        x @ y.t(),
        torch.mm(y.T, x),
        torch.matmul(x, y[0]),
        x.unsqueeze(0).bmm(y.t().unsqueeze(0)),
    )


@program(two)
def test_shape_changes(x, y):
    return (
        x.view(2, 6),
        x.reshape(-1),
        y.permute(1, 0),
        y.t().contiguous(),
        x.flatten(),
        y[None].squeeze(0),
    )


@program(two)
def test_joining_and_splitting(x, y):
    a, b = x.chunk(2, dim=1)
    return (
        torch.cat([x, y]),
        torch.stack((x, y), 1),
        a * 2,
        b + 1,
        y.split(2, dim=1)[0] + 1,
    )


@program(two)
def test_indexing(x, y):
    return (
        x[0],
        x[:, 1],
        x[..., -1],
        x[1:, ::2],
        y[None, 1],
        x[0, 2],
        y[[0, 2]],
        y[y.shape[0] - 1],
    )


@program(two)
def test_index_by_tensor(x, y):
    index = torch.tensor([2, 0])
    return (
        x[index],
        x.index_select(0, index),
        y.gather(1, torch.zeros(3, 2, dtype=torch.long)),
    )


@program(two)
def test_masked(x, y):
    return x.masked_fill(y > 0, 0.0), torch.where(y > 0, x, 0.0), x.tril(), y.triu(1)


@program(two)
def test_expand_and_repeat(x, y):
    return (
        x[0].expand(3, 4) * y,
        y.repeat(2, 1),
        y[:, :1] + x,
        x.broadcast_to(2, 3, 4).sum(0),
    )


@program(one)
def test_constructors(x):
    a = torch.zeros(4)
    b = torch.ones(4, dtype=torch.float64)
    c = torch.arange(4, dtype=x.dtype)
    d = torch.full((4,), 2.5)
    return (
        x + a,
        x * b,
        x + c,
        x * d,
        torch.eye(4) * x,
        torch.linspace(0, 1, 4) + x,
        torch.tensor([1.0, 2, 3, 4]) * x,
    )


@program(one)
def test_like_constructors(x):
    return (
        torch.zeros_like(x),
        torch.ones_like(x) * x,
        torch.full_like(x, 3),
        x.new_zeros(2),
        x.new_ones(2, 2),
    )


@program(lambda: ())
def test_no_inputs():
    return torch.zeros(3) + 1


@program(one)
def test_tensor_constant(x):
    return (
        x * torch.tensor(2.0),
        torch.tensor([[1, 2]]),
        torch.tensor(3),
        torch.tensor(True),
    )


@program(one)
def test_dtype_conversion(x):
    return (
        x.double(),
        x.to(torch.float16),
        x.int(),
        x.long() + 1,
        x.bool(),
        (x > 0).float(),
        x.type(torch.int8),
    )


@program(one, graphs=0)
def test_to_same_dtype_is_same_object(x):
    return x.to(torch.float32), x.float(), x.contiguous(), x.to("cpu")


@program(leaf)
def test_random(x):
    return (
        x + torch.rand(4),
        torch.randn_like(x) * x,
        F.dropout(x, 0.5),
        torch.randperm(3),
    )


@program(one)
def test_integer_overflow_wraps(x):
    i = torch.tensor([2**31 - 1], dtype=torch.int32)
    return i + 1, i * 2, (x * 0 + 3e9).to(torch.float32)


@program(one)
def test_special_values(x):
    return (
        x / 0,
        (x * 0) / 0,
        x * math.inf,
        torch.tensor(math.nan) + x,
        x.isnan(),
        (x / 0).isinf(),
    )


@program(mixed)
def test_integer_division(x, i, b):
    return (
        i // -3,
        (i - 2) % 3,
        torch.div(i - 2, 3, rounding_mode="trunc"),
        torch.div(i, 2, rounding_mode="floor"),
    )


@program(two)
def test_nested_results(x, y):
    return (
        {"a": [x + 1, (y * 2, None)], "b": {"c": x - y, 3: "text"}},
        [],
        {},
        (),
        2.5,
        x.shape,
    )


@program(one, graphs=0)
def test_constants_out(x):
    return (
        1,
        2.5,
        "text",
        None,
        True,
        b"bytes",
        ...,
        slice(1, 2),
        range(3),
        x.dtype,
        x.device,
        frozenset({1}),
    )


@program(one, graphs=0)
def test_no_operation(x):
    return None


@program(one, graphs=0)
def test_identity(x):
    return x


@program(one)
def test_dead_operations(x):
    x.exp()
    y = x * 2
    x.sin() + y
    return x + 1


@program(two)
def test_same_subexpression(x, y):
    return (x + y).sin() + (x + y).sin(), x + y, x + y


@program(one)
def test_properties(x):
    return (
        x.ndim,
        x.dim(),
        x.numel(),
        x.dtype,
        x.is_floating_point(),
        x.requires_grad,
        x.stride(),
        x[None].T.shape,
        x.sin().shape,
    )


@program(lambda: (torch.tensor(2.5), torch.tensor(3)))
def test_zero_dimensional(x, i):
    return x + 1, x * i, i + 1, i / 2, x[None], x.sum(), x.double() * torch.ones(2)


@program(lambda: (torch.randn(0, 3), torch.randn(2, 0)))
def test_empty_tensors(x, y):
    return x + 1, x.sum(), y.sum(1), x.t().contiguous(), torch.cat([x, x])


@program(lambda: (torch.randn(4, dtype=torch.complex64),))
def test_complex(z):
    return z * 2, z.real, z.abs(), z * 1j, z.conj() * z


@program(lambda: (torch.randn(6, 4).t(), torch.randn(8, 6)[::2]))
def test_strided_inputs(x, y):
    return x + y, x.exp(), y.sum(0), x.reshape(-1), (x * 2).stride()


@program(lambda: (torch.randn(3, 4), 2, 0.5, True, "mean"))
def test_python_arguments(x, n, f, flag, how):
    y = x * n + f
    if flag:
        y = y + 1
    return y.mean() if how == "mean" else y.sum()


@program(two)
def test_operator_functions(x, y):
    import operator

    return (
        operator.add(x, y),
        operator.mul(x, 2),
        operator.getitem(x, 0),
        operator.matmul(x, y.t()),
    )


@program(two)
def test_functions_with_keywords(x, y):
    return (
        torch.add(x, y, alpha=2),
        torch.sum(x, dim=0),
        torch.clamp(y, min=0),
        y.sum(dim=(0, 1)),
        torch.addmm(x[:, :3], y, x.t(), beta=0.5),
    )


@program(two)
def test_interpolated_chain(x, y):
    return (
        torch.lerp(x, y, 0.3),
        torch.addcmul(x, y, y, value=2),
        torch.maximum(x, y),
        torch.hypot(x, y),
        torch.atan2(y, x),
    )


@program(two)
def test_einsum_and_norm(x, y):
    return (
        torch.einsum("ij,kj->ik", x, y),
        torch.linalg.vector_norm(y),
        y.norm(dim=1),
        F.normalize(y, dim=1),
    )


@program(two)
def test_sort_and_topk(x, y):
    return y.sort(dim=1), y.topk(2, dim=1), y.flip(0), y.roll(1, 1)


@program(two)
def test_losses(x, y):
    target = torch.tensor([1, 0, 3])
    return (
        F.cross_entropy(x, target),
        F.mse_loss(x, y),
        F.smooth_l1_loss(x, y),
        F.binary_cross_entropy_with_logits(x, y.sigmoid()),
    )
