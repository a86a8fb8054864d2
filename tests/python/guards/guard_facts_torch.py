"""Facts about tensors, modules and torch's ambient state."""

from __future__ import annotations

import contextlib

import torch
from guard_facts import env, fact, unused
from torch import nn


def X() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0])


# ---- tensors passed in


class Sub(torch.Tensor):
    pass


class Loud(torch.Tensor):
    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out + 1 if func is torch.Tensor.mul else out


def give(make):
    return lambda e: setattr(e, "args", (make(e.args[0]), *e.args[1:]))


def _forward_grad(e):
    return _DualLevel(e)


class _DualLevel:
    def __init__(self, e):
        self.e = e

    def __enter__(self):
        self.level = torch.autograd.forward_ad.dual_level()
        self.level.__enter__()
        self.old = self.e.args
        x = self.e.args[0]
        self.e.args = (torch.autograd.forward_ad.make_dual(x, x * 0 + 5),)

    def __exit__(self, *exc):
        self.e.args = self.old
        self.level.__exit__(*exc)


TENSOR_CHANGES = dict(
    double=give(lambda x: x.double()),
    half=give(lambda x: x.half()),
    int=give(lambda x: x.int()),
    bool=give(lambda x: x > 1),
    complex=give(lambda x: x + 1j),
    conj=give(lambda x: (x + 1j).conj()),
    neg=give(lambda x: (x + 1j).conj().imag),
    requires_grad=give(lambda x: x.clone().requires_grad_()),
    requires_grad_in_place=lambda e: e.args[0].requires_grad_(),
    non_leaf=give(lambda x: x.clone().requires_grad_() * 1),
    parameter=give(lambda x: nn.Parameter(x.clone())),
    frozen_parameter=give(lambda x: nn.Parameter(x.clone(), requires_grad=False)),
    subclass=give(lambda x: x.clone().as_subclass(Sub)),
    loud_subclass=give(lambda x: x.clone().as_subclass(Loud)),
    sparse=give(lambda x: x.to_sparse()),
    sparse_csr=give(lambda x: x.to_sparse_csr()),
    meta=give(lambda x: x.to("meta")),
    transposed=give(lambda x: x.t()),
    transposed_in_place=lambda e: e.args[0].t_(),
    smaller=give(lambda x: x[:2].clone()),
    view=give(lambda x: x[1:]),
    strided=give(lambda x: x[:, ::2]),
    expanded=give(lambda x: x[:1].expand(3, 4)),
    zero_dim=give(lambda x: torch.tensor(2.0)),
    one_dim=give(lambda x: x[0].clone()),
    three_dims=give(lambda x: x.clone().unsqueeze(0)),
    empty=give(lambda x: x[:0]),
    none=give(lambda x: None),
    number=give(lambda x: 2.0),
    data_shape=lambda e: setattr(e.args[0], "data", torch.ones(2, 2)),
    data_dtype=lambda e: setattr(e.args[0], "data", torch.ones(3, 4).double()),
    data_strides=lambda e: setattr(e.args[0], "data", torch.ones(4, 3).t()),
    set_=lambda e: e.args[0].set_(torch.arange(6.0).reshape(2, 3)),
    resize_=lambda e: e.args[0].resize_(2, 2),
    squeeze_=lambda e: e.args[0].unsqueeze_(0),
    as_strided_=lambda e: e.args[0].as_strided_((2, 2), (1, 2)),
    transpose_=lambda e: e.args[0].transpose_(0, 1),
    values=lambda e: e.args[0].mul_(3),
    class_=lambda e: setattr(e.args[0], "__class__", Loud),
    attribute=lambda e: setattr(e.args[0], "tag", 5.0),
    attribute_dict=lambda e: e.args[0].__dict__.update(tag=5.0),
    method_on_instance=lambda e: setattr(e.args[0], "mean", lambda: torch.tensor(70.0)),
    class_attribute=lambda e: _patched_class(torch.Tensor, "tag", 6.0),
    swap=lambda e: torch.utils.swap_tensors(
        e.args[0], torch.ones(2, 5, dtype=torch.double)
    ),
    inference=lambda e: _inference_tensor(e),
    dual=_forward_grad,
)


@contextlib.contextmanager
def _patched_class(cls, name, value):
    setattr(cls, name, value)
    try:
        yield
    finally:
        delattr(cls, name)


def _inference_tensor(e):
    with torch.inference_mode():
        x = torch.ones(3, 4) * 5
    e.args = (x,)


@fact(**TENSOR_CHANGES)
def tensor_argument():
    def f(x):
        y = x * 2
        return (
            y,
            y.mean() if hasattr(y, "mean") else 0,
            x.mean() if hasattr(x, "mean") else 0,
            getattr(x, "tag", None),
            type(x).__name__,
            str(getattr(x, "dtype", None)),
            str(getattr(x, "layout", None)),
            getattr(x, "requires_grad", None),
            x.is_conj() if isinstance(x, torch.Tensor) else None,
            x.is_neg() if isinstance(x, torch.Tensor) else None,
            tuple(getattr(x, "shape", ())),
        )

    return env(f, torch.arange(12.0).reshape(3, 4))


@fact(
    transposed=give(lambda x: x.t().contiguous().t()),
    data=lambda e: setattr(e.args[0], "data", torch.ones(4, 4).t()),
    set_=lambda e: e.args[0].set_(torch.ones(4, 4).t()),
    t_=lambda e: e.args[0].t_(),
    as_strided_=lambda e: e.args[0].as_strided_((4, 4), (0, 1)),
)
def strides_read():
    def f(x):
        flag = x.is_contiguous()
        return x * (2 if flag else 3), x.stride(), x.reshape(-1)[1]

    return env(f, torch.arange(16.0).reshape(4, 4))


@fact(
    view=give(lambda x: torch.arange(20.0)[4:20]),
    data=lambda e: setattr(e.args[0], "data", torch.arange(20.0)[2:18]),
    set_=lambda e: e.args[0].set_(torch.arange(20.0)[1:17]),
)
def storage_offset_read():
    def f(x):
        return x * 2 + x.storage_offset(), torch.as_strided(x, (2, 2), (1, 2))

    return env(f, torch.arange(16.0))


@fact(
    same=lambda e: setattr(e, "args", (e.args[0], e.args[0])),
    view=lambda e: setattr(e, "args", (e.args[0], e.args[0].view(-1))),
    overlap=lambda e: setattr(e, "args", (e.big[:4], e.big[2:6])),
    data=lambda e: setattr(e.args[1], "data", e.args[0].data),
    set_=lambda e: e.args[1].set_(e.args[0]),
    swap=lambda e: setattr(e, "args", (e.args[1], e.args[1].detach())),
)
def aliased_inputs():
    def f(x, y):
        x.add_(1)
        out = y * 2
        y.mul_(3)
        return out, x + y, x is y

    def make():
        return torch.arange(4.0), torch.arange(4.0) + 10

    e = env(f, *make(), big=torch.arange(6.0))
    e.stateful = True
    return e


@fact(
    split=lambda e: setattr(e, "args", (torch.ones(4), torch.zeros(4))),
    set_=lambda e: e.args[1].set_(torch.zeros(4)),
    data=lambda e: setattr(e.args[1], "data", torch.zeros(4)),
)
def aliased_inputs_no_more():
    def f(x, y):
        x.add_(1)
        return y * 2

    x = torch.arange(4.0)
    e = env(f, x, x.view(-1))
    e.stateful = True
    return e


@fact(
    value=lambda e: setattr(e.args[0], "grad", torch.full((3,), 9.0)),
    none=lambda e: setattr(e.args[0], "grad", None),
    dtype=lambda e: setattr(e.args[0].grad, "data", torch.ones(3) * 4),
    zeroed=lambda e: e.args[0].grad.zero_(),
    backward=lambda e: (e.args[0] * 5).sum().backward(),
)
def grad_read():
    def f(x):
        return x.detach() * 2 if x.grad is None else x.detach() + x.grad

    x = X().requires_grad_()
    x.grad = torch.ones(3)
    return env(f, x)


@fact(
    hook=lambda e: e.args[0].register_hook(lambda g: g * 10),
    clear=lambda e: e.args[0].requires_grad_(False),
)
def hooks_of_tensor():
    x = X().requires_grad_()
    return env(lambda x: x * 2, x)


# ---- tensors held by closures, globals, containers


@fact(
    values=lambda e: e.t.mul_(5),
    data=lambda e: setattr(e.t, "data", torch.ones(1, 3)),
    requires_grad=lambda e: e.t.requires_grad_(),
    set_=lambda e: e.t.set_(torch.ones(2, 3)),
    rebind=lambda e: e.rebind(torch.ones(3).double()),
    swap=lambda e: torch.utils.swap_tensors(e.t, torch.ones(2, 3) * 7),
    double=lambda e: setattr(e.t, "data", e.t.data.double()),
)
def tensor_in_closure():
    t = X()

    def rebind(value):
        nonlocal t
        t = value

    return env(lambda x: x * t, X(), t=t, rebind=rebind)


# ---- modules


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
        self.seq = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.register_buffer("scale", torch.tensor([2.0]))
        self.register_buffer("missing", None)
        self.flag = True
        self.eval()

    def forward(self, x):
        x = self.drop(self.norm(self.linear(x)))
        for layer in self.layers:
            x = layer(x)
        x = self.seq(x) * self.scale
        if self.missing is not None:
            x = x + self.missing
        return x if self.flag else -x


def _hook_out(m, args, out):
    return out * 10


def _hook_in(m, args):
    return (args[0] * 10,)


def _transpose(weight):
    with torch.no_grad():
        weight.t_()


def _no_bias(e):
    e.m.linear.bias = None


def _assign(e, assign):
    e.m.linear.load_state_dict(
        {"weight": torch.ones(3, 3), "bias": torch.ones(3)}, assign=assign
    )


class _Double(nn.Module):
    def forward(self, w):
        return w * 2


@contextlib.contextmanager
def _global_hook():
    from torch.nn.modules import module

    handle = module.register_module_forward_hook(_hook_out)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def _global_pre_hook():
    from torch.nn.modules import module

    handle = module.register_module_forward_pre_hook(_hook_in)
    try:
        yield
    finally:
        handle.remove()


def _two_layers(e):
    e.m.layers = nn.ModuleList([nn.Linear(3, 3), nn.Sigmoid()])


def _new_buffer(e):
    e.m.scale = torch.tensor([9.0, 8.0, 7.0])


MODULE_CHANGES = dict(
    train=lambda e: e.m.train(),
    train_one=lambda e: e.m.norm.train(),
    training_attribute=lambda e: setattr(e.m.drop, "training", True),
    training_dict=lambda e: e.m.norm.__dict__.__setitem__("training", True),
    to_double=lambda e: e.m.to(torch.double),
    half=lambda e: e.m.half(),
    double_one=lambda e: e.m.linear.double(),
    requires_grad_=lambda e: e.m.requires_grad_(False),
    requires_grad_one=lambda e: e.m.linear.weight.requires_grad_(False),
    parameter=lambda e: setattr(e.m.linear, "weight", nn.Parameter(torch.ones(3, 3))),
    parameter_dict=lambda e: e.m.linear._parameters.__setitem__(
        "weight", nn.Parameter(torch.ones(3, 3))
    ),
    parameter_none=_no_bias,
    parameter_shape=lambda e: setattr(e.m.linear, "bias", nn.Parameter(torch.ones(1))),
    register_parameter=lambda e: e.m.linear.register_parameter(
        "bias", nn.Parameter(torch.ones(3) * 4)
    ),
    parameter_shadow=lambda e: e.m.linear.__dict__.__setitem__(
        "bias", torch.ones(3) * 8
    ),
    delete_parameter=lambda e: delattr(e.m.linear, "bias"),
    data=lambda e: setattr(e.m.linear.weight, "data", torch.ones(3, 3)),
    data_dtype=lambda e: setattr(e.m.linear.bias, "data", torch.ones(3).double()),
    data_shape=lambda e: setattr(e.m.linear.bias, "data", torch.ones(1)),
    set_=lambda e: e.m.scale.set_(torch.tensor([5.0, 6.0, 7.0])),
    t_=lambda e: _transpose(e.m.linear.weight),
    values=lambda e: e.m.linear.weight.data.mul_(2),
    swap=lambda e: torch.utils.swap_tensors(
        e.m.linear.bias, nn.Parameter(torch.ones(1))
    ),
    buffer=_new_buffer,
    buffer_dict=lambda e: e.m._buffers.__setitem__("scale", torch.tensor([4.0])),
    buffer_set=lambda e: setattr(e.m, "missing", torch.tensor([4.0])),
    buffer_dtype=lambda e: setattr(e.m, "scale", torch.tensor([4.0]).double()),
    delete_buffer=lambda e: delattr(e.m, "scale"),
    submodule=lambda e: setattr(e.m, "linear", nn.Linear(3, 3, bias=False)),
    submodule_dict=lambda e: e.m._modules.__setitem__("linear", nn.Identity()),
    list_append=lambda e: e.m.layers.append(nn.Tanh()),
    list_item=lambda e: e.m.layers.__setitem__(1, nn.Sigmoid()),
    list_delete=lambda e: e.m.layers.__delitem__(1),
    list_new=_two_layers,
    sequential_append=lambda e: e.m.seq.append(nn.Tanh()),
    sequential_item=lambda e: e.m.seq.__setitem__(1, nn.Sigmoid()),
    forward_hook=lambda e: e.m.linear.register_forward_hook(_hook_out),
    forward_pre_hook=lambda e: e.m.linear.register_forward_pre_hook(_hook_in),
    own_hook=lambda e: e.m.register_forward_hook(_hook_out),
    hook_dict=lambda e: e.m.seq[0]._forward_hooks.__setitem__(0, _hook_out),
    backward_hook=lambda e: e.m.linear.register_full_backward_pre_hook(
        lambda m, grads: tuple(g * 10 for g in grads)
    ),
    parameter_hook=lambda e: e.m.linear.weight.register_hook(lambda g: g * 10),
    global_hook=lambda e: _global_hook(),
    global_pre_hook=lambda e: _global_pre_hook(),
    instance_forward=lambda e: setattr(e.m.linear, "forward", lambda x: x * 9),
    instance_forward_dict=lambda e: e.m.seq.__dict__.__setitem__(
        "forward", lambda x: x * 9
    ),
    class_forward=lambda e: setattr(type(e.m), "forward", lambda self, x: x * 9),
    class_call=lambda e: setattr(type(e.m), "__call__", lambda self, x: x * 8),
    new_class=lambda e: setattr(e.m.seq[1], "__class__", nn.Sigmoid),
    attribute=lambda e: setattr(e.m, "flag", False),
    attribute_dict=lambda e: e.m.__dict__.__setitem__("flag", False),
    p=lambda e: setattr(e.m.norm, "eps", 5.0),
    functional=lambda e: _patched_attr(
        torch.nn.functional, "linear", lambda x, w, b: x
    ),
    module_getattr=lambda e: setattr(
        type(e.m), "__getattr__", lambda self, n: nn.Identity()
    ),
    load_assign=lambda e: _assign(e, True),
    load_copy=lambda e: _assign(e, False),
    parametrize=lambda e: nn.utils.parametrize.register_parametrization(
        e.m.linear, "weight", _Double()
    ),
    weight_norm=lambda e: (
        nn.utils.parametrizations.weight_norm(e.m.linear)
        and setattr(e.m.linear.bias, "data", torch.ones(3))
    ),
    other_model=lambda e: e.other(),
    tied=lambda e: setattr(e.m.layers[0], "weight", e.m.linear.weight),
    apply=lambda e: e.m.apply(
        lambda m: nn.init.ones_(m.weight) if isinstance(m, nn.Linear) else None
    ),
)


@contextlib.contextmanager
def _patched_attr(module, name, value):
    old = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, old)


@fact(**MODULE_CHANGES)
def module_called_in_function():
    torch.manual_seed(3)
    Own = type("Own", (Block,), {})
    m = Own()

    def f(x):
        return m(x)

    def other():
        nonlocal m
        m = Own()

    x = torch.arange(6.0).reshape(2, 3)
    e = env(f, x, m=m, other=other)
    e.leaves = lambda: [p for p in e.m.parameters() if p.requires_grad]
    e.stateful = True
    return e


@fact(
    **{
        name: change
        for name, change in MODULE_CHANGES.items()
        if name not in ("class_call", "other_model", "new_class")
    }
)
def compiled_module():
    torch.manual_seed(3)
    m = type("Own", (Block,), {})()
    e = env(m, torch.arange(6.0).reshape(2, 3), m=m)
    e.leaves = lambda: [p for p in m.parameters() if p.requires_grad]
    e.stateful = True
    return e


# ---- ambient state


class _Mode(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 10 if func is torch.Tensor.mul else out


class _Dispatch(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 10 if func is torch.ops.aten.mul.Tensor else out


@contextlib.contextmanager
def _setting(get, put, value):
    old = get()
    put(value)
    try:
        yield
    finally:
        put(old)


def autocast(**kwargs):
    return lambda e: torch.autocast("cpu", **kwargs)


@contextlib.contextmanager
def _both(*contexts):
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context)
        yield


@fact(
    no_grad=lambda e: torch.no_grad(),
    set_grad_enabled=lambda e: torch.set_grad_enabled(False),
    inference=lambda e: torch.inference_mode(),
    bfloat16=autocast(dtype=torch.bfloat16),
    half=autocast(dtype=torch.float16),
    function_mode=lambda e: _Mode(),
    dispatch_mode=lambda e: _Dispatch(),
    default_dtype=lambda e: _setting(
        torch.get_default_dtype, torch.set_default_dtype, torch.float64
    ),
    default_device=lambda e: torch.device("meta"),
    saved_hooks=lambda e: torch.autograd.graph.saved_tensors_hooks(
        lambda t: t * 2, lambda t: t * 3
    ),
    vmap=lambda e: _wrapped(
        e, lambda f: lambda x, w: torch.vmap(f, (0, None))(x.clone(), w)
    ),
    functorch_grad=lambda e: _wrapped(
        e, lambda f: lambda x, w: torch.func.grad(lambda x: f(x, w)[0].sum())(x)
    ),
    jvp=lambda e: _wrapped(
        e, lambda f: lambda x, w: torch.func.jvp(lambda x: f(x, w)[0], (x,), (x,))
    ),
)
def ambient_state():
    def f(x, w):
        return x @ w * 2, torch.ones(2), torch.is_grad_enabled(), torch.tensor(1.5)

    e = env(f, torch.arange(9.0).reshape(3, 3), torch.ones(3, 3, requires_grad=True))
    e.leaves = lambda: [e.args[1]]
    return e


@contextlib.contextmanager
def _wrapped(e, wrap):
    """The change is what the function is called through."""
    e.wrap = wrap
    try:
        yield
    finally:
        del e.wrap


@fact(
    dtype=autocast(dtype=torch.float16),
    disabled=autocast(enabled=False),
    nested_dtype=lambda e: _both(
        torch.autocast("cpu", dtype=torch.bfloat16),
        torch.autocast("cpu", dtype=torch.float16),
    ),
    default_dtype=lambda e: _setting(
        lambda: torch.get_autocast_dtype("cpu"),
        lambda d: torch.set_autocast_dtype("cpu", d),
        torch.float16,
    ),
    switch=lambda e: _setting(
        lambda: torch.is_autocast_enabled("cpu"),
        lambda v: torch.set_autocast_enabled("cpu", v),
        False,
    ),
)
def autocast_state():
    """Captured under autocast."""

    def f(x, w):
        return (x @ w) * 2

    e = env(f, torch.randn(3, 3), torch.randn(3, 3))
    e.context = lambda: torch.autocast("cpu", dtype=torch.bfloat16)
    return e


@fact(
    enable=lambda e: torch.enable_grad(),
    inference=lambda e: torch.inference_mode(),
)
def captured_without_grad():
    def f(x, w):
        return x * w

    e = env(f, X(), X().requires_grad_())
    e.context = lambda: torch.no_grad()
    return e


@fact(
    deterministic=lambda e: _setting(
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
        True,
    ),
)
def deterministic_algorithms():
    def f(x, i):
        return torch.zeros(5).put_(i, x, accumulate=False)  # raises in the mode

    return env(f, X(), torch.tensor([0, 1, 2]))


@unused(
    precision=lambda e: _setting(
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        "medium",
    ),
    threads=lambda e: _setting(
        torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1
    ),
    seed=lambda e: torch.manual_seed(5) and None,
    print_options=lambda e: torch.set_printoptions(precision=4),
    cuda_autocast=lambda e: _setting(
        lambda: torch.get_autocast_dtype("cuda"),
        lambda d: torch.set_autocast_dtype("cuda", d),
        torch.bfloat16,
    ),
    cpu_autocast_dtype=lambda e: _setting(
        lambda: torch.get_autocast_dtype("cpu"),
        lambda d: torch.set_autocast_dtype("cpu", d),
        torch.float16,
    ),
)
def ambient_unused():
    return env(lambda x: torch.relu(x) * 2, X())


# ---- what is not used


def _new_values(e):
    with torch.no_grad():
        for p in e.m.parameters():
            p.mul_(0.5)


def _backward(e):
    e.f(*e.args).sum().backward()


def _optimizer(e):
    _backward(e)
    torch.optim.SGD(e.m.parameters(), lr=0.1).step()


@unused(
    values=_new_values,
    backward=_backward,
    zero_grad=lambda e: e.m.zero_grad(),
    optimizer=_optimizer,
    data_same=lambda e: setattr(e.m.linear.weight, "data", torch.ones(3, 3)),
    load=lambda e: _assign(e, False),
    load_assign=lambda e: _assign(e, True),
    parameter=lambda e: setattr(e.m.linear, "weight", nn.Parameter(torch.ones(3, 3))),
    swap_equal=lambda e: torch.utils.swap_tensors(
        e.m.linear.weight, nn.Parameter(torch.ones(3, 3))
    ),
    attribute=lambda e: setattr(e.m, "unrelated", 5),
    attributes=lambda e: [setattr(e.m, f"a{i}", i) for i in range(40)] and None,
    buffer_value=lambda e: e.m.scale.fill_(4.0) and None,
    buffer_new=lambda e: setattr(e.m, "scale", torch.tensor([4.0])),
    eval_again=lambda e: e.m.eval() and None,
    train_and_back=lambda e: e.m.train().eval() and None,
    to_same=lambda e: e.m.to(torch.float32) and None,
    hook_removed=lambda e: e.m.linear.register_forward_hook(_hook_out).remove(),
    equal_submodule=lambda e: setattr(e.m, "linear", nn.Linear(3, 3)),
    equal_list=lambda e: setattr(
        e.m, "layers", nn.ModuleList([nn.Linear(3, 3), nn.ReLU()])
    ),
    state_dict=lambda e: e.m.state_dict() and None,
    parameters=lambda e: list(e.m.named_parameters()) and None,
)
def module_unused():
    torch.manual_seed(3)
    m = Block()
    m.loss = 0.0
    return env(lambda x: m(x), torch.arange(6.0).reshape(2, 3), m=m)


@unused(
    equal=lambda e: setattr(e, "m", None) or setattr(e, "args", (e.args[0], Block())),
    copy=lambda e: setattr(
        e, "args", (e.args[0], __import__("copy").deepcopy(e.args[1]))
    ),
)
def equal_modules():
    torch.manual_seed(3)
    return env(lambda x, m: m(x), torch.arange(6.0).reshape(2, 3), Block())


@unused(
    values=lambda e: e.args[0].add_(1).tolist() and None,
    other_tensor=lambda e: setattr(e, "args", (torch.ones(3, 4),)),
    view=lambda e: setattr(e, "args", (torch.ones(4, 4)[1:],)),
    version=lambda e: e.args[0].zero_().tolist() and None,
    data=lambda e: setattr(e.args[0], "data", torch.ones(3, 4)),
    attribute=lambda e: setattr(e.args[0], "anything", 1),
    hook_on_other=lambda e: (
        torch.ones(2, requires_grad=True).register_hook(print) and None
    ),
    name=lambda e: e.args[0].retain_grad() if e.args[0].requires_grad else None,
)
def tensor_unused():
    return env(lambda x: torch.relu(x) * 2, torch.arange(12.0).reshape(3, 4))
