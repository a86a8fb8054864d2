"""Classes derived from torch.Tensor, tensor-like objects and function modes.

torch asks their `__torch_function__` before it runs an operation; a capture
interprets it, so the graph has plain operations only and what leaves it has the
class that eager gives it.
"""

import collections
import functools

import pytest
import torch
import torch.nn.functional as F
from tensor_classes import (
    HANDLED,
    Counts,
    Disabled,
    Doubles,
    Handled,
    Inherits,
    Other,
    Plain,
    Sub,
    WithData,
    implements,
    of,
    operated,
    pair,
)
from torch import nn
from torch.overrides import (
    get_default_nowrap_functions,
    handle_torch_function,
    has_torch_function,
)

import framejit
from differential import BACKENDS, assert_same, check, opaque, program

# ---- every class through the same programs


def operators(x):
    return x + 1, 1 - x, x * x, -x, x > 0, x == x, ~(x > 0), x @ x.T, abs(x), 2**x


def functions(x):
    return torch.relu(x), F.softmax(x, -1), torch.cat([x, x]), x.sum(), x.view(-1)


def python_functions(x):
    return F.relu(x), F.gelu(x), F.layer_norm(x, (4,)), F.dropout(x, 0.0), F.softplus(x)


def attributes(x):
    return (
        x.shape,
        x.dtype,
        x.device,
        x.T,
        x.ndim,
        x.requires_grad,
        x.is_cuda,
        x.numel(),
    )


def items(x):
    y = x.clone()
    y[0] = 1
    y[1, 2:] = x[0, 0]
    return y, x[0], x[:, 1:3], x[x.argmax() * 0], x[..., None], len(x)


def in_place(x):
    y = x * 1
    y += 1
    y.mul_(2)
    y.clamp_(min=0)
    return y


def lists(x):
    a, b = x.split(2, 1)
    values, indices = x.max(1)
    return [a, b], values, indices, torch.stack([r for r in x]), x.unbind(1), x.sort(0)


def kinds(x):
    y = x.sum(0)
    return (
        type(x).__name__,
        type(y).__name__,
        isinstance(y, torch.Tensor),
        isinstance(y, Inherits),
        issubclass(type(y), Inherits),
        type(x + y).__name__,
    )


def plainly(x):
    y = x.as_subclass(torch.Tensor)
    with torch._C.DisableTorchFunctionSubclass():
        z = x + y
    return y, z, z.relu()


def factories(x):
    return torch.zeros_like(x), x.new_ones(2), torch.ones(4) + x, x.to(torch.float64)


def mixed_with_plain(x):
    y = torch.arange(4.0)
    return (
        y + x,
        torch.add(y, x),
        torch.where(x > 0, x, y),
        y.mul(x),
        y / x,
        y[None] - x,
    )


CLASSES = [Inherits, Sub, Doubles, Plain, Disabled, Handled]
PROGRAMS = [
    operators,
    functions,
    python_functions,
    attributes,
    items,
    in_place,
    lists,
    kinds,
    plainly,
    factories,
    mixed_with_plain,
]


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_argument(cls, fn):
    shape = (4, 4) if fn is operators else (3, 4)
    check(fn, of(cls, *shape), breaks=0, graphs=1)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda f: f.__name__)
def test_made_inside(fn):
    def run(x):
        return fn((x * 2).as_subclass(Inherits))

    check(run, lambda: (torch.randn(4, 4),), breaks=0)


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_gradient(cls):
    def f(x):
        y = F.relu(x * 2 + 1)
        return (y @ y.T).sum(), y.as_subclass(torch.Tensor).exp()

    check(f, of(cls, 3, 4, grad=True), breaks=0, graphs=1)


# ---- order of asking

asked: list = []


class First(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked.append(("First", cls.__name__, tuple(t.__name__ for t in types)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Second(First):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked.append(("Second", cls.__name__, tuple(t.__name__ for t in types)))
        return super().__torch_function__(func, types, args, kwargs or {})


class Declines(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.add, torch.Tensor.add, torch.mul, torch.Tensor.sub):
            asked.append(("Declines", tuple(t.__name__ for t in types)))
            return NotImplemented
        return super().__torch_function__(func, types, args, kwargs or {})


class Takes(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        asked.append(("Takes", tuple(t.__name__ for t in types)))
        args = [
            a.as_subclass(torch.Tensor) if isinstance(a, torch.Tensor) else a
            for a in args
        ]
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(
    "classes",
    [
        (First, Second),
        (Second, First),
        (First, torch.Tensor),
        (torch.Tensor, Second),
        (Declines, Takes),
        (Takes, Declines),
        (Takes, First),
    ],
    ids=lambda p: "-".join(c.__name__ for c in p),
)
def test_order(classes):
    def f(x, y):
        asked.clear()
        a = x + y
        b = torch.mul(x, y)
        c = x.sub(y)
        return a, b, c, list(asked)

    check(f, pair(*classes), breaks=0, graphs=1)


def test_all_decline():
    def f(x, y):
        asked.clear()
        z = y * 1
        try:
            return torch.add(x, y)
        except TypeError as error:
            return str(error).split(":")[0], list(asked), z

    check(f, pair(Declines, torch.Tensor))
    check(lambda x, y: x + y, pair(Declines, torch.Tensor), backends=("eager",))


def test_unrelated_classes_fail_as_in_eager():
    """The default __torch_function__ declines for classes it does not know."""
    check(lambda x, y: (x * 2, x + y), pair(Inherits, Other))


@program(of(Counts), breaks=0)
def test_what_was_asked(x):
    Counts.calls.clear()
    y = (x + 1).relu()
    z = F.gelu(y) if y.shape[0] == 3 else y
    z[0] = 1
    return z, list(Counts.calls)


@program(lambda: (torch.randn(3, 4),), breaks=0)
def test_what_was_asked_of_a_fresh_one(x):
    Counts.calls.clear()
    y = (x * 2).as_subclass(Counts)
    total = y.sum(0) + y.T[0][0]
    y.mul_(2)
    return total, list(Counts.calls), [n for n in Counts.calls if n == "__get__"]


def test_calls_go_to_the_program():
    """The list is the program's: what was asked appears there, in order."""
    for backend in BACKENDS:
        compiled = framejit.compile(lambda x: (x + 1) * 2, backend=backend)
        x = torch.randn(3).as_subclass(Counts)
        for _ in range(3):
            Counts.calls.clear()
            compiled(x)
            assert Counts.calls == ["add", "mul"]


# ---- attributes and methods


def with_data():
    return (WithData(torch.randn(3, 4), meta={"tag": "first", "n": 2}),)


@program(with_data, breaks=0)
def test_attributes_of_instances(x):
    y = x * x.meta["n"]
    return y, y.meta, y.tag, x.scaled(), x.scaled(by=2), x.twice, WithData.helper(x)


@program(with_data, breaks=0)
def test_attributes_written(x):
    x.extra = 5
    y = x + x.extra
    y.note = [1, 2]
    y.tag = "new"
    return y, y.tag, y.note, x.extra


@program(lambda: (torch.randn(3, 4),), breaks=0)
def test_constructed(x):
    a = WithData(x * 2, meta={"tag": "a"})
    b = WithData.of(x)
    c = a + b
    return a, b, c, c.tag, a.meta, type(c).__name__


@program(lambda: (torch.randn(3, 4),), breaks=0)
def test_constructed_without_new(x):
    y = Inherits(x)
    z = Inherits([1.0, 2.0])
    return y, y + 1, z, Inherits(2, 3).shape, torch.Tensor(x)


@program(lambda: (torch.randn(3, 4, requires_grad=True),), breaks=0)
def test_as_subclass_keeps_history(x):
    y = x.as_subclass(Inherits)
    return y * 2, y.requires_grad, y.as_subclass(Sub), (x * 2).as_subclass(Sub)


@program(lambda: (torch.randn(3, 4),), breaks=0)
def test_shares_memory(x):
    y = x.as_subclass(Inherits)
    y.add_(1)
    return y, y[0], x


def test_own_operators():
    operated(lambda x: (x + 1, 1 + x, x[0], -x, x == 3, x.missing, 1 if x else 2))
    operated(lambda x: (len(x), x * 2))

    def missing(x):
        try:
            return x.absent
        except AttributeError as error:
            return str(error), x * 2

    operated(missing)


# ---- objects that are no tensors


class Scalar:
    """Tensor-like, as in torch's documentation."""

    def __init__(self, n, value):
        self.n = n
        self.value = value

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func not in LIKE:
            return NotImplemented
        return LIKE[func](*args, **(kwargs or {}))


LIKE: dict = {}


@implements(LIKE, torch.mean)
def like_mean(x):
    return float(x.value) / x.n


@implements(LIKE, torch.add, torch.Tensor.add)
def like_add(a, b):
    if isinstance(a, Scalar) and isinstance(b, Scalar):
        return Scalar(a.n, a.value + b.value)
    if isinstance(a, Scalar):
        return b * a.value
    return a * b.value


@program(lambda: (torch.randn(3), Scalar(4, 2.0)), breaks=0)
def test_tensor_like(x, s):
    return torch.add(x, s), torch.add(s, x), torch.mean(s), torch.add(s, s).value


@program(lambda: (torch.randn(3), Scalar(4, 2.0)), breaks=0)
def test_tensor_like_operator(x, s):
    return x + s


@program(lambda: (torch.randn(3),), breaks=0)
def test_tensor_like_made_inside(x):
    s = Scalar(2, 3.0)
    return torch.add(x, s), s.value


# ---- torch.overrides


def scaled(x, by=2):
    if has_torch_function((x,)):
        return handle_torch_function(scaled, (x,), x, by=by)
    return x * by


HANDLED[scaled] = lambda x, by: x.as_subclass(torch.Tensor) * by + 1000


@pytest.mark.parametrize("cls", CLASSES, ids=lambda c: c.__name__)
def test_own_overridable_function(cls):
    check(lambda x: (scaled(x), scaled(x, by=3)), of(cls), breaks=0, graphs=1)


@program(of(Handled), breaks=0)
def test_table_of_functions(x):
    return torch.mean(x), x.mean(), F.softplus(x), F.relu(x), x.exp()


@program(of(Inherits), breaks=None)
def test_nowrap(x):
    return len(get_default_nowrap_functions()) > 0, x.grad, x * 2


# ---- modules


class Weight(nn.Parameter):
    """A class of parameters; torch does not ask it."""


class AskedWeight(Inherits, nn.Parameter):
    pass


class Holder(nn.Module):
    def __init__(self, make):
        super().__init__()
        self.weight = make(torch.randn(4, 4))
        self.register_buffer("offset", torch.randn(4).as_subclass(Inherits))

    def forward(self, x):
        return F.linear(x, self.weight) + self.offset


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameters(backend):
    module = Holder(Weight)
    check(module, lambda: (torch.randn(2, 4),), backends=(backend,), breaks=0, graphs=1)
    compiled = framejit.compile(module, backend=backend)
    x = torch.randn(2, 4)
    compiled(x).sum().backward()
    grad, module.weight.grad = module.weight.grad, None
    module(x).sum().backward()
    assert type(module.weight.grad) is type(grad)
    torch.testing.assert_close(grad, module.weight.grad)


@program(lambda: (Weight(torch.randn(3, 4)),), breaks=0, graphs=1)
def test_parameter_argument(x):
    return x * 2, type(x).__name__, isinstance(x, nn.Parameter)


def test_modules_on_a_subclass():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 2))
    check(net, of(Inherits, 5, 4), breaks=0, graphs=1)
    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    check(lambda x: attention(x, x, x)[0], of(Inherits, 2, 3, 4), graphs=None)
    conv = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3)).eval()
    check(conv, of(Inherits, 1, 2, 6, 6), breaks=0, graphs=1)


GLOBAL = torch.ones(4).as_subclass(Doubles)


@program(lambda: (torch.randn(4),), breaks=0, graphs=1)
def test_global(x):
    return x + GLOBAL, x * GLOBAL


@program(lambda: ({"a": torch.randn(4).as_subclass(Sub)}, [torch.randn(4)]), breaks=0)
def test_in_containers(d, items):
    d["b"] = d["a"] + items[0]
    items.append(d["a"])
    return d["b"], items


# ---- breaks


@program(of(Doubles), breaks=1, graphs=2)
def test_break_between(x):
    y = x + 1
    opaque()
    return y + x, y


@program(of(Doubles), breaks=1, graphs=2)
def test_break_in_a_loop(x):
    for i in range(3):
        x = x + i
    opaque(x)
    return x * 2


class Breaks(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        opaque()
        return super().__torch_function__(func, types, args, kwargs or {})


def test_break_inside():
    check(lambda x: (x * 2) + 1, of(Breaks))


def test_open_switch():
    def f(x):
        y = x * 2
        with torch._C.DisableTorchFunctionSubclass():
            z = y + 1
            opaque()
            z = z + y
        return z, z + 1, y + x

    check(f, of(Doubles))


def test_plain_method():
    class Old(torch.Tensor):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {})) * 3

    with pytest.warns(UserWarning):
        check(lambda x: x + 1, of(Old), backends=("eager",))


def test_raises():
    class Raises(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            if func is torch.Tensor.exp:
                raise ValueError("no exp")
            if func is torch.Tensor.add:
                raise TypeError("no add")
            return super().__torch_function__(func, types, args, kwargs or {})

    check(lambda x: (x * 2).exp(), of(Raises))
    check(lambda x: x + 1, of(Raises))

    def caught(x):
        try:
            return x.exp()
        except ValueError as error:
            return x * 2, str(error)

    check(caught, of(Raises), breaks=0)


# ---- what stays with eager, and is right


class Slotted(torch.Tensor):
    __slots__ = ("extra",)


def test_own_layout():
    def make():
        x = torch.randn(3).as_subclass(Slotted)
        x.extra = 2
        return (x,)

    check(lambda x: (x * x.extra, type(x * 2).__name__), make, backward=False)


class TwoTensor(torch.Tensor):
    """A wrapper with __torch_dispatch__."""

    @staticmethod
    def __new__(cls, a, b):
        return torch.Tensor._make_wrapper_subclass(
            cls, a.shape, dtype=a.dtype, device=a.device
        )

    def __init__(self, a, b):
        self.a, self.b = a, b

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        def pick(name):
            return [getattr(x, name) if isinstance(x, TwoTensor) else x for x in args]

        return cls(func(*pick("a")), func(*pick("b")))


def test_dispatch_class():
    def f(x, y):
        z = x.sin() + y
        return z.a, z.b, type(z).__name__

    def make():
        return (
            TwoTensor(torch.randn(3), torch.randn(3)),
            TwoTensor(torch.randn(3), torch.randn(3)),
        )

    for backend in BACKENDS:
        compiled = framejit.compile(f, backend=backend)
        args = make()
        for _ in range(2):
            assert_same(compiled(*args), f(*args))


def test_dispatch_class_made_inside():
    def f(x):
        z = TwoTensor(x * 2, x * 3).sin()
        return z.a, z.b

    check(f, lambda: (torch.randn(3),), backward=False)


def test_custom_backend():
    """A backend's callable gets the graph of plain operations."""

    def backend(gm, example_inputs):
        return gm.forward

    compiled = framejit.compile(lambda x: (x + 1) * x, backend=backend)
    x = torch.randn(4).as_subclass(Doubles)
    for _ in range(2):
        assert_same(compiled(x), (x + 1) * x)


def test_warm_calls_do_not_ask():
    class Once(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    compiled = framejit.compile(lambda x: x.relu() + 1, backend="native")
    x = torch.randn(4).as_subclass(Once)
    for _ in range(3):
        assert_same(compiled(x), x.relu() + 1)
    [entry] = framejit.inspect(compiled)
    assert not entry.breaks and entry.operations


Pair = collections.namedtuple("Pair", "left right")


@program(
    lambda: (Pair(torch.randn(2).as_subclass(Sub), torch.randn(2)),), breaks=0, graphs=1
)
def test_namedtuple(p):
    return Pair(p.left + 1, p.right), functools.reduce(torch.add, p)


def test_one_kernel(kernels):
    """Giving results their class costs the graph nothing."""

    def f(x):
        y = (x + 1).relu() * 2
        return (y.sigmoid() + x).tanh()

    framejit.reset()
    compiled = framejit.compile(f, backend="native")
    x = torch.randn(8).as_subclass(Inherits)
    for _ in range(2):
        assert_same(compiled(x), f(x), exact={"rtol": 1e-5, "atol": 1e-6})
    [entry] = framejit.inspect(compiled)
    assert "alias" not in entry.forward_graph and len(entry.kernels) == 1


@program(lambda: (torch.randn(3),), breaks=0)
def test_one_value_under_several_names(x):
    y = x * 2
    a, b = y.as_subclass(Inherits), y.as_subclass(Sub)
    return y, a, b, x.as_subclass(Inherits), a.as_subclass(torch.Tensor)


@pytest.mark.parametrize("backend", BACKENDS)
def test_training_step_with_a_class_of_parameters(backend):
    """Its parameters are keys of the optimizer's state."""

    def train(wrap):
        torch.manual_seed(1)
        module = Holder(Weight)
        optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)

        def step(x):
            optimizer.zero_grad()
            loss = module(x).as_subclass(torch.Tensor).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        step = wrap(step)
        losses = [step(torch.ones(2, 4) * i) for i in range(1, 4)]
        return losses, module.weight.detach().clone(), type(module.weight)

    framejit.reset()
    expected = train(lambda step: step)
    actual = train(lambda step: framejit.compile(step, backend=backend))
    assert_same(actual[:2], expected[:2], exact={"rtol": 1e-5, "atol": 1e-6})
    assert actual[2] is expected[2] is Weight
    assert not [e for e in framejit.events() if e[0] == "graph_breaks"]
