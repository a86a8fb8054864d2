"""Tensor programs that are easy to get silently wrong: writes that bypass
versions, failures after them, shared memory, identity, breaks in between."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import framejit
from differential import BACKENDS, check, program


def grads(*sizes):
    return lambda: tuple(torch.randn(*sizes, requires_grad=True) for _ in range(2))


def plain(*sizes):
    return lambda: tuple(torch.randn(*sizes) for _ in range(2))


@program(grads(3, 4), graphs=None, breaks=None)
def test_data_written_before_raise(x, y):
    x.data.mul_(2)
    raise ValueError("no")


@program(grads(3, 4), graphs=None, breaks=None)
def test_data_written_before_failing_leaf(x, y):
    x.data.mul_(2)
    return torch.cat([x, y[:, :2]])  # raises


@program(plain(3, 4), graphs=None, breaks=None)
def test_requires_grad_before_failing_leaf(x, y):
    x.requires_grad_()
    return torch.mm(x, y)  # raises


@program(plain(3, 4), graphs=None, breaks=None)
def test_unsqueezed_before_failing_leaf(x, y):
    x.unsqueeze_(0)
    return torch.mm(x, y)


@program(grads(3, 4), graphs=None, breaks=None)
def test_data_shared_then_written(x, y):
    x.data = y.data
    y.data.add_(1)
    return x * 2, y


@program(grads(3, 4), graphs=None, breaks=None)
def test_data_replaced_after_use(x, y):
    x.data = y.data.clone()
    z = x * 3
    x.data.zero_()
    return z, x


@program(plain(3, 4), graphs=None, breaks=None)
def test_tensor_hung_on_a_tensor(x, y):
    z = x + 1
    z.tag = y
    z.tag.add_(1)
    return z, z.tag


@program(plain(3, 4), graphs=None, breaks=None)
def test_attribute_across_a_break(x, y):
    z = x + 1
    z.other = z
    framejit.graph_break()
    return z.other * 2, hasattr(z, "other")


@program(grads(3, 4), graphs=None, breaks=None)
def test_parameters_returned(x, y):
    p = nn.Parameter(x.detach() * 2)
    q = nn.Parameter(torch.ones(4), requires_grad=False)
    return p, p * 2 + y, q, q + y


@program(grads(3, 4), graphs=None, breaks=None)
def test_optimizer_made_inside(x, y):
    p = nn.Parameter(torch.ones(3, 4))
    opt = torch.optim.SGD([p], 0.1)
    return (p * x).sum(), p


@program(grads(3, 4), graphs=None, breaks=None)
def test_grad_shared(x, y):
    x.grad = torch.ones_like(x)
    y.grad = x.grad
    return x.grad is y.grad, x * 2


@program(grads(3, 4), graphs=None, breaks=None)
def test_grad_assigned_then_written(x, y):
    x.grad = y.detach()
    x.grad.mul_(2)
    return x * 2


@program(
    lambda: (lambda a: (a, a))(torch.randn(3, requires_grad=True)),
    graphs=None,
    breaks=None,
)
def test_one_tensor_twice_in_a_set(x, y):
    s = {x}
    return y in s, x * 2


@program(plain(3, 4), graphs=None, breaks=None)
def test_data_of_base_replaced(x, y):
    z = x * 2
    v = z.view(-1)
    z.data = y * 3
    return v, z


@program(grads(3, 4), graphs=None, breaks=None)
def test_detached_in_place(x, y):
    z = x * 2
    z.detach_()
    w = z * y
    return z, w


@program(grads(3, 4), graphs=None, breaks=None)
def test_written_then_frozen(x, y):
    with torch.no_grad():
        x.copy_(y)
    x.requires_grad_(False)
    return x * 2, x.requires_grad


@program(
    lambda: (torch.randn(3, 4, requires_grad=True), torch.tensor(1)),
    graphs=None,
    breaks=None,
)
def test_counter_index_of_written(x, i):
    y = x * 2
    r = y[i]
    y[i] = 0
    return r, y, y[i, i]


@program(lambda: (torch.randn(3, 4), torch.tensor(-1)), graphs=None, breaks=None)
def test_negative_counter(x, i):
    return x[i], x[i, 1:], x[..., i]


@program(
    lambda: (torch.randn(3, 4), torch.tensor(1, dtype=torch.uint8)),
    graphs=None,
    breaks=None,
)
def test_byte_index_is_a_mask(x, i):
    return x[i] + 1


@program(plain(3, 4), graphs=None, breaks=None)
def test_mask_on_both_sides(x, y):
    x[x > 0] = y[x > 0]
    return x


@program(plain(3, 4), graphs=None, breaks=None)
def test_mask_in_place_operator(x, y):
    m = x > 0
    x[m] += 1
    y[m,] = 0
    return x * y


@program(grads(3, 4), graphs=None, breaks=None)
def test_mask_with_tensor_value(x, y):
    z = x.clone()
    z[z > 0] = y[0, 0]
    return z


@program(plain(3, 4), graphs=None, breaks=None)
def test_mask_in_tuple(x, y):
    z = torch.zeros(3, 4)
    z[x > 0,] = 1
    z[:, torch.tensor([True, False, True, False])] = 5
    return z


@program(plain(3, 4), graphs=None, breaks=None)
def test_legacy_constructors(x, y):
    v = x.new(3, 4).copy_(y)
    w = torch.Tensor(3, 4).copy_(x)
    return (
        v * w,
        torch.Tensor(),
        torch.Tensor([]),
        torch.Tensor([[True, False]]),
        torch.IntTensor([1.7, 2]),
        torch.DoubleTensor(2).zero_(),
    )


@program(plain(3, 4), graphs=None, breaks=None)
def test_variable_that_requires_grad(x, y):
    return torch.autograd.Variable(x, requires_grad=True) * y


@program(grads(3, 4), graphs=None, breaks=None)
def test_retain_grad(x, y):
    z = x * 2
    z.retain_grad()
    return z, z.sum()


@program(plain(3, 4), graphs=None, breaks=None)
def test_device_context_across_a_break(x, y):
    with torch.device("cpu"):
        z = torch.ones(4)
        framejit.graph_break()
        w = torch.ones(4)
    return x * z + w


@program(plain(3, 4), graphs=None, breaks=None)
def test_metadata_in_place_chain(x, y):
    z = (x + 1).t_()
    z.add_(1)
    z.squeeze_().unsqueeze_(0)
    return z, z.stride()


@program(grads(3, 4), graphs=None, breaks=None)
def test_metadata_in_place_aliases(x, y):
    z = x * 2
    return z.unsqueeze_(0), z


@program(plain(3, 4), graphs=None, breaks=None)
def test_constant_written_through_a_view(x, y):
    c = torch.tensor(2.0)
    d = c.view(1)
    d.mul_(x.sum())
    return x * c.item()


@program(plain(3, 4), graphs=None, breaks=None)
def test_constant_written_through_data(x, y):
    c = torch.tensor([3])
    c.data.fill_(5)
    return x * c.item()


@program(grads(3, 4), graphs=None, breaks=None)
def test_many_views_of_an_output(x, y):
    z = x.sin()
    out = [z, z[0], z.t(), z[:, 1:], z.detach()]
    out[1].detach().zero_()
    return out


@program(grads(4, 4), graphs=None, breaks=None)
def test_views_written_in_place(x, y):
    z = x @ y
    u = z.t()
    u.mul_(2)
    return z, u, u[0]


@program(grads(3, 4), graphs=None, breaks=None)
def test_views_of_inputs(x, y):
    return x.view(-1), x[1].view(2, 2), y.expand(2, 3, 4), x * 1


@program(grads(3, 4), graphs=None, breaks=None)
def test_views_under_no_grad(x, y):
    with torch.no_grad():
        v = x.view(-1)
        w = (x * 2)[0]
    return v, w, x[0]


@program(plain(3, 4), graphs=None, breaks=None)
def test_real_assigned(x, y):
    x.real = y
    return x + 1


@program(grads(3, 4), graphs=None, breaks=None)
def test_grad_deleted(x, y):
    del x.grad
    return x.grad is None, x * 2


def test_an_operation_that_reads_what_it_writes():
    """The order of the elements decides: torch's own loop has to run."""

    def f(x):
        y = x * 1
        y -= y[0].unsqueeze(1).expand(3, 3)
        z = x * 2
        z[:, 1:] += z[:, :1]  # other elements: fused as ever
        return y, z

    check(f, lambda: (torch.randn(3, 3),), breaks=0)


def test_symbolic_strides_that_differ_from_the_meta_function():
    def f(x, w):
        return F.mse_loss(x, torch.einsum("ij,jk->ik", w, w)), x @ w.t()

    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        for n in (3, 4, 5, 2):
            x = torch.randn(n, n).t().requires_grad_()
            w = torch.randn(n, n, requires_grad=True)
            grads = [
                torch.autograd.grad(sum(t.sum() for t in fn(x, w)), (x, w))
                for fn in (f, compiled)
            ]
            for a, b in zip(*grads):
                torch.testing.assert_close(a, b)
