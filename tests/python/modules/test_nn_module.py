"""nn.Module in full: hooks, containers, parametrizations, state, functional use."""

import types

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.utils.parametrizations as parametrizations
import torch.nn.utils.parametrize as parametrize
from torch.func import functional_call

from differential import program


def x6(n=4):
    return torch.randn(n, 6, requires_grad=True)


def net(make):
    def make_args():
        torch.manual_seed(0)
        return make(), x6()

    return make_args


def linear():
    return nn.Linear(6, 6)


# ---- containers


class Containers(nn.Module):
    def __init__(self):
        super().__init__()
        self.seq = nn.Sequential(*[linear() for _ in range(4)])
        self.mods = nn.ModuleList([linear(), nn.ReLU(), linear()])
        self.named = nn.ModuleDict({"a": linear(), "b": nn.Tanh()})
        self.plist = nn.ParameterList([torch.randn(6), torch.randn(6)])
        self.pdict = nn.ParameterDict({"w": torch.randn(6), "b": torch.randn(6)})


def containers(fn):
    return program(net(Containers))(fn)


@containers
def test_sequential_slice(m, x):
    return m.seq[1:3](x) + m.seq[:-1](x)


@containers
def test_sequential_index(m, x):
    return m.seq[0](x) + m.seq[-1](x), len(m.seq)


@containers
def test_sequential_iterate(m, x):
    for layer in m.seq:
        x = layer(x)
    for layer in reversed(m.seq):
        x = layer(x)
    return x


@containers
def test_module_list_enumerate(m, x):
    for i, layer in enumerate(m.mods):
        x = layer(x) * (i + 1)
    return x


@containers
def test_module_list_slice(m, x):
    for layer in m.mods[::2]:
        x = layer(x)
    for layer in m.mods[1:]:
        x = layer(x)
    return x


@containers
def test_module_list_zip(m, x):
    for layer, w in zip(m.mods, m.plist):
        x = layer(x) * w
    return x


@containers
def test_module_dict_items(m, x):
    for name, layer in m.named.items():
        x = layer(x) * len(name)
    return x, list(m.named.keys()), "a" in m.named, len(m.named)


@containers
def test_module_dict_values(m, x):
    for layer in m.named.values():
        x = layer(x)
    return m.named["a"](x) + m.named.b(x)


@containers
def test_parameter_list(m, x):
    for w in m.plist:
        x = x * w
    return x + m.plist[0] + m.plist[-1], len(m.plist)


@containers
def test_parameter_list_slice(m, x):
    for i, w in enumerate(m.plist[1:]):
        x = x * w + i
    return x


@containers
def test_parameter_dict(m, x):
    for k in m.pdict:
        x = x * m.pdict[k]
    for k, v in m.pdict.items():
        x = x + v
    return x * m.pdict.w, "w" in m.pdict, list(m.pdict.keys())


@containers
def test_named_children(m, x):
    for name, child in m.named_children():
        if name == "seq":
            x = child(x)
    return x, sum(1 for _ in m.children())


@containers
def test_modules(m, x):
    for child in m.modules():
        if isinstance(child, nn.Linear):
            x = child(x)
    return x, [n for n, _ in m.named_modules()][:3]


@containers
def test_named_parameters(m, x):
    total = x.sum()
    for name, p in m.named_parameters():
        if name.endswith("weight"):
            total = total + p.pow(2).sum()
    return total + sum(p.abs().sum() for p in m.parameters())


@containers
def test_get_submodule(m, x):
    return m.get_submodule("seq.1")(x) + m.get_parameter("seq.0.weight").sum()


@containers
def test_state_dict(m, x):
    s = m.state_dict()
    return x * s["seq.0.bias"], len(s)


@containers
def test_getattr_by_name(m, x):
    for name in ("seq", "mods"):
        part = getattr(m, name)
        x = part[0](x)
    return x if not hasattr(m, "missing") else -x


@program(net(Containers))
def test_missing_attribute(m, x):
    try:
        return m.missing(x)
    except AttributeError as e:
        return x + len(str(e))


@program(net(Containers), graphs=None, breaks=None)
def test_missing_attribute_raises(m, x):
    return m.missing(x)


class MySequential(nn.Sequential):
    def forward(self, x, scale):
        for layer in self:
            x = layer(x) * scale
        return x


@program(net(lambda: MySequential(linear(), nn.ReLU())))
def test_sequential_subclass(m, x):
    return m(x, 2.0)


class MyList(nn.ModuleList):
    def __init__(self):
        super().__init__([linear(), linear()])
        self.gain = nn.Parameter(torch.ones(6))

    def forward(self, x):
        return sum(layer(x) for layer in self) * self.gain


@program(net(MyList))
def test_module_list_subclass(m, x):
    return m(x)


# ---- state


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = linear()
        self.count = 0
        self.cache = {}
        self.log = []
        self.register_buffer("running", torch.zeros(6))
        self.register_buffer("step", torch.tensor(0))
        self.last = None

    def forward(self, x):
        self.count += 1
        self.log.append(self.count)
        y = self.lin(x)
        if "first" not in self.cache:
            self.cache["first"] = y.detach()
        self.running.mul_(0.9).add_(y.detach().mean(0), alpha=0.1)
        self.step += 1
        self.last = y
        return y + self.running * self.cache["first"].sum()


@program(net(Counter))
def test_state_in_forward(m, x):
    return m(x)


@program(net(Counter))
def test_state_twice(m, x):
    return m(x) + m(x), m.count


class ReplacesBuffer(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("h", torch.zeros(4, 6))
        self.w = nn.Parameter(torch.ones(6))

    def forward(self, x):
        self.h = torch.tanh(x.detach() + self.h)
        return self.h * self.w


@program(net(ReplacesBuffer))
def test_buffer_replaced(m, x):
    return m(x) + m(x)


class RegistersInside(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = linear()

    def forward(self, x):
        if not hasattr(self, "mask"):
            self.register_buffer("mask", torch.ones(6))
        return self.lin(x) * self.mask


@program(net(RegistersInside))
def test_register_buffer_inside(m, x):
    return m(x)


class MakesParameter(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = None

    def forward(self, x):
        if self.w is None:
            self.w = nn.Parameter(torch.ones(6))
        return x * self.w


@program(net(MakesParameter), graphs=None)
def test_parameter_registered_inside(m, x):
    return m(x)


class Reassigns(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = linear()
        self.b = linear()

    def forward(self, x):
        y = self.a(x)
        self.b.weight = self.a.weight
        return self.b(y)


@program(net(Reassigns))
def test_parameter_reassigned_inside(m, x):
    return m(x)


class PlainTensorAttribute(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = torch.ones(6)
        self.tensors = [torch.ones(6), torch.zeros(6)]

    def forward(self, x):
        self.scale = self.scale * 2
        self.tensors[1] = self.tensors[0] + x.detach().sum()
        return x * self.scale + self.tensors[1]


@program(net(PlainTensorAttribute))
def test_plain_tensor_attributes(m, x):
    return m(x)


@program(net(Counter))
def test_delete_attribute(m, x):
    y = m(x)
    del m.last
    return y, hasattr(m, "last")


# ---- training mode


class Modal(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = linear()
        self.norm = nn.BatchNorm1d(6)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        y = self.drop(self.norm(self.lin(x)))
        return y * 2 if self.training else y


@program(net(Modal))
def test_train_forward(m, x):
    return m(x)


@program(net(lambda: Modal().eval()))
def test_eval_forward(m, x):
    return m(x)


@program(net(Modal))
def test_eval_inside(m, x):
    m.eval()
    y = m(x)
    m.train()
    return y


@program(net(Modal))
def test_train_flag_of_child(m, x):
    m.norm.training = False
    m.drop.eval()
    return m(x)


@program(net(Modal))
def test_requires_grad_of_module(m, x):
    for p in m.parameters():
        p.requires_grad_(False)
    return m(x)


@program(net(Modal))
def test_module_apply(m, x):
    def initialise(child):
        if isinstance(child, nn.Linear):
            nn.init.zeros_(child.bias)

    m.apply(initialise)
    return m(x)


@program(net(Modal))
def test_module_to(m, x):
    return m.to(torch.float32)(x)


@program(net(linear))
def test_module_zero_grad(m, x):
    m.zero_grad()
    return m(x)


@program(net(linear))
def test_init_inside(m, x):
    with torch.no_grad():
        nn.init.constant_(m.weight, 0.5)
        nn.init.uniform_(m.bias)
        nn.init.xavier_normal_(m.weight)
        nn.init.kaiming_uniform_(m.weight, a=2)
        nn.init.normal_(m.bias, 0, 0.1)
        nn.init.eye_(m.weight)
    return m(x)


@program(net(linear), graphs=None, breaks=None)
def test_init_trunc_normal(m, x):
    """It draws again until the values fit."""
    nn.init.trunc_normal_(m.weight)
    return m(x)


@program(net(linear), graphs=None)
def test_init_orthogonal(m, x):
    nn.init.orthogonal_(m.weight)
    return m(x)


# ---- parametrizations


class Symmetric(nn.Module):
    def forward(self, w):
        return w.triu() + w.triu(1).transpose(-1, -2)


def parametrized():
    module = linear()
    parametrize.register_parametrization(module, "weight", Symmetric())
    return module


@program(net(parametrized), graphs=None)
def test_parametrize(m, x):
    return m(x)


@program(net(parametrized), graphs=None)
def test_parametrize_cached(m, x):
    with parametrize.cached():
        return m(x) + m(x)


@program(net(lambda: parametrizations.weight_norm(linear())), graphs=None)
def test_weight_norm(m, x):
    return m(x)


@program(net(lambda: nn.utils.weight_norm(linear())), graphs=None)
def test_weight_norm_old(m, x):
    return m(x)


@program(net(lambda: parametrizations.spectral_norm(linear())), graphs=None)
def test_spectral_norm(m, x):
    return m(x)


@program(net(lambda: parametrizations.spectral_norm(linear()).eval()), graphs=None)
def test_spectral_norm_eval(m, x):
    return m(x)


@program(net(lambda: nn.utils.spectral_norm(linear())), graphs=None)
def test_spectral_norm_old(m, x):
    return m(x)


@program(net(lambda: parametrizations.orthogonal(linear())), graphs=None, breaks=None)
def test_orthogonal(m, x):
    return m(x)


# ---- functional use


@program(net(Modal))
def test_functional_call(m, x):
    params = {k: v * 2 for k, v in m.named_parameters()}
    return functional_call(m, params, (x,))


@program(net(linear))
def test_functional_call_buffers(m, x):
    return functional_call(m, {"weight": torch.ones(6, 6)}, (x,), {})


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = linear()

    def forward(self, x):
        return self.lin(x)


class Derived(Base):
    def forward(self, x):
        return (
            super().forward(x) + super(Derived, self).forward(x) + Base.forward(self, x)
        )


@program(net(Derived))
def test_super_forward(m, x):
    return m(x) + m.forward(x) + m.__call__(x)


class Dispatches(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(
            [linear(), nn.ReLU(), nn.LayerNorm(6), nn.Identity()]
        )

    def forward(self, x):
        for part in self.parts:
            match part:
                case nn.Linear(out_features=n):
                    x = part(x) * n
                case nn.ReLU() | nn.Identity():
                    x = part(x)
                case _:
                    x = -part(x)
        return x


@program(net(Dispatches))
def test_isinstance_dispatch(m, x):
    return m(x)


class Patched(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = linear()
        self.forward = types.MethodType(lambda self, x: self.lin(x) * 3, self)


@program(net(Patched), graphs=None)
def test_forward_on_instance(m, x):
    return m(x)


class WithProperty(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = linear()

    @property
    def weight(self):
        return self.lin.weight

    @property
    def broken(self):
        return self.nothing

    def __getattr__(self, name):
        if name == "virtual":
            return 3.0
        return super().__getattr__(name)

    def forward(self, x):
        try:
            y = self.broken
        except AttributeError:
            y = self.virtual
        return F.linear(x, self.weight) * y


@program(net(WithProperty))
def test_module_properties(m, x):
    return m(x)


@program(
    net(lambda: nn.Sequential(nn.LazyLinear(6), nn.ReLU())), graphs=None, breaks=None
)
def test_lazy_module(m, x):
    return m(x)


@program(net(linear))
def test_module_made_inside(m, x):
    drop = nn.Dropout(0.0)
    act = nn.Sequential(nn.ReLU(), nn.Softmax(dim=-1))
    return act(drop(m(x)))


@program(net(linear), graphs=None, breaks=None)
def test_linear_made_inside(m, x):
    return nn.Linear(6, 2)(m(x))


@program(net(linear))
def test_module_repr(m, x):
    return m(x) * len(m._get_name()), m.extra_repr()


@program(net(linear))
def test_extra_state(m, x):
    return m(x) * m.in_features + m.weight.size(1), m.bias is not None, m.training


@program(net(lambda: nn.DataParallel(linear()) if False else nn.Sequential(linear())))
def test_unwrap(m, x):
    inner = m.module if hasattr(m, "module") else m
    return inner(x)


@program(net(linear))
def test_buffers_iterated(m, x):
    return m(x) + sum(b.sum() for b in m.buffers()) + len(list(m.named_buffers()))
