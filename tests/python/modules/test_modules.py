"""Modules: called as torch calls them, with their parameters, buffers and hooks."""

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

import framejit
from differential import BACKENDS, program


def batch(n=4, d=6):
    return torch.randn(n, d, requires_grad=True)


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 6)
        self.calls = 0
        self.history = []

    def forward(self, x):
        self.calls += 1
        self.history.append(self.calls)
        self.last = x.shape
        return self.lin(x) * self.calls


class Shared(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 6)
        self.b = nn.Linear(6, 6, bias=False)
        self.b.weight = self.a.weight

    def forward(self, x):
        return self.b(self.a(x).relu())


class Buffers(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(6))
        self.register_buffer("seen", torch.tensor(0))
        self.scale = nn.Parameter(torch.ones(6))

    def forward(self, x):
        self.total = self.total + x.detach().sum(0)
        self.seen += 1
        return x * self.scale + self.total


class InPlaceBuffers(Buffers):
    def forward(self, x):
        with torch.no_grad():
            self.total.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        return x * self.scale


class Lists(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(6, 6) for _ in range(3)])
        self.table = nn.ModuleDict({"relu": nn.ReLU(), "gelu": nn.GELU()})
        self.weights = nn.ParameterList([nn.Parameter(torch.rand(6)) for _ in range(2)])
        self.named = nn.ParameterDict({"w": nn.Parameter(torch.rand(6))})

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = layer(x)
            x = self.table["relu" if i % 2 else "gelu"](x)
        for w in self.weights:
            x = x * w
        return x + self.named["w"], len(self.layers), self.layers[-1].bias


class Residual(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x, scale=1.0):
        if self.training:
            return x + self.inner(x) * scale
        return x


class Attention(nn.Module):
    def __init__(self, d=6, heads=2):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(d, 3 * d)
        self.out = nn.Linear(d, d)

    def forward(self, x):
        n, d = x.shape
        q, k, v = (
            self.qkv(x).view(n, 3, self.heads, d // self.heads).permute(1, 2, 0, 3)
        )
        weights = (q @ k.transpose(-2, -1) / (d // self.heads) ** 0.5).softmax(-1)
        return self.out((weights @ v).transpose(0, 1).reshape(n, d))


class Borrowed(nn.Module):
    """Reads parameters of another module through a plain list."""

    def __init__(self):
        super().__init__()
        self.lin = nn.Linear(6, 3)
        self.others = [self.lin]

    def forward(self, x):
        return F.linear(x, self.others[0].weight) + self.lin.bias


def net(make):
    """The module and a batch, as arguments of ``run``."""

    def make_args():
        module = make()
        return module, batch()

    return make_args


def run(module, x):
    return module(x)


def hooked():
    module = nn.Sequential(nn.Linear(6, 6), nn.ReLU())
    module[0].register_forward_hook(lambda m, args, out: out * 2)
    module[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    module.register_forward_hook(
        lambda m, args, kwargs, out: out + len(kwargs), with_kwargs=True
    )
    return module


MODULES = {
    "linear": lambda: nn.Linear(6, 3),
    "sequential": lambda: nn.Sequential(
        nn.Linear(6, 5), nn.ReLU(), nn.Linear(5, 2), nn.Softmax(-1)
    ),
    "lists": Lists,
    "shared": Shared,
    "norms": lambda: nn.Sequential(
        nn.LayerNorm(6), nn.Linear(6, 6), nn.GELU(), nn.RMSNorm(6)
    ),
    "dropout": lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.Linear(6, 6)),
    "dropout eval": lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5)).eval(),
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)),
    "batch norm eval": lambda: nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)).eval(),
    "batch norm cumulative": lambda: nn.BatchNorm1d(6, momentum=None),
    "batch norm no stats": lambda: nn.BatchNorm1d(6, track_running_stats=False),
    "counting": Counting,
    "buffers": Buffers,
    "in-place buffers": InPlaceBuffers,
    "attention": Attention,
    "residual": lambda: Residual(nn.Linear(6, 6)),
    "residual eval": lambda: Residual(nn.Linear(6, 6)).eval(),
    "hooks": hooked,
    "double": lambda: Residual(Residual(nn.Tanh())),
    "borrowed": Borrowed,
    "identity": nn.Identity,
    "frozen": lambda: nn.Linear(6, 3).requires_grad_(False),
    "half": lambda: nn.Sequential(nn.Linear(6, 6)),
    "bilinear": lambda: Residual(
        nn.Sequential(nn.Linear(6, 6), nn.SiLU(), nn.Dropout(0.1))
    ),
}


def outcome(module, make_input, steps, compiled):
    torch.manual_seed(3)
    optimizer = None
    parameters = [p for p in module.parameters() if p.requires_grad]
    if parameters:
        optimizer = torch.optim.SGD(parameters, lr=0.1)
    seen = []
    for _ in range(steps):
        x = make_input()
        out = compiled(x)
        tensors = out if isinstance(out, tuple) else (out,)
        loss = tensors[0].square().mean()
        if loss.requires_grad:
            loss.backward()
        seen += [loss.detach(), x.grad]
        if optimizer is not None:
            optimizer.step()
            optimizer.zero_grad()
    return seen, module.state_dict(), torch.get_rng_state()


def compare_training(make, make_input, backend, steps=4):
    torch.manual_seed(0)
    plain = make()
    torch.manual_seed(0)
    other = make()
    expected = outcome(plain, make_input, steps, plain)
    compiled = framejit.compile(other, backend=backend)
    actual = outcome(other, make_input, steps, compiled)
    torch.testing.assert_close(actual[0], expected[0])
    torch.testing.assert_close(actual[1], expected[1])
    assert torch.equal(actual[2], expected[2])
    return compiled


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", MODULES)
def test_trains_like_eager(name, backend):
    compare_training(MODULES[name], batch, backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_convolutions(backend):
    def make():
        return nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(4, 4, 3, groups=2, bias=False), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(4, 2),
        )  # fmt: skip

    compare_training(make, lambda: torch.randn(2, 3, 8, 8, requires_grad=True), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_embedding(backend):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.emb = nn.Embedding(10, 4, padding_idx=0)
            self.out = nn.Linear(4, 10)
            self.out.weight = self.emb.weight

        def forward(self, ids):
            return self.out(self.emb(ids).sum(1))

    torch.manual_seed(0)
    compare_training(Model, lambda: torch.randint(0, 10, (3, 5)), backend)


@pytest.mark.parametrize("backend", BACKENDS)
def test_train_and_eval_are_two_entries(backend):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.BatchNorm1d(6))
    compiled = framejit.compile(module, backend=backend)
    x = torch.randn(8, 6)
    for mode in (True, False, True, False):
        module.train(mode)
        assert compiled.training == mode
        torch.manual_seed(1)
        expected = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.5), nn.BatchNorm1d(6))
        expected.load_state_dict(module.state_dict())
        expected.train(mode)
        torch.manual_seed(2)
        reference = expected(x)
        torch.manual_seed(2)
        torch.testing.assert_close(compiled(x), reference)
        torch.testing.assert_close(
            dict(module.named_buffers()), dict(expected.named_buffers())
        )
    assert module[2].num_batches_tracked.item() == 2


@program(net(lambda: nn.Sequential(nn.Linear(6, 6), nn.Tanh())))
def test_module_argument(module, x):
    return module(x), module[0].weight.sum()


@program(
    net(lambda: nn.Sequential(nn.Linear(6, 6), nn.Tanh())), graphs=None, breaks=None
)
def test_iterate_children(module, x):
    for layer in module:
        x = layer(x)
    return x, [n for n, _ in module.named_children()], len(list(module.parameters()))


@program(net(Counting))
def test_module_attributes_written(module, x):
    y = module(x)
    module.flag = True
    return y, module.calls


@program(net(lambda: nn.BatchNorm1d(6)))
def test_batch_norm_twice(module, x):
    return module(module(x)), module.num_batches_tracked


@program(net(lambda: nn.Linear(6, 6)))
def test_functional_with_parameters(module, x):
    y = F.linear(x, module.weight, module.bias)
    y = F.layer_norm(y, (6,))
    y = F.dropout(y, 0.3, training=module.training)
    return F.normalize(y.relu(), dim=1, p=2.0) if False else y


@program(net(lambda: nn.Linear(6, 6)), graphs=None, breaks=None)
def test_parameters_read(module, x):
    penalty = sum(p.square().sum() for p in module.parameters())
    return x.sum() + penalty, {n: p.shape for n, p in module.named_parameters()}


@program(net(lambda: nn.Linear(6, 6)), graphs=None, breaks=None)
def test_module_made_inside(module, x):
    return nn.ReLU()(module(x)), nn.Identity()(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_hook_added_later_is_seen(backend):
    module = nn.Linear(3, 3)
    compiled = framejit.compile(module, backend=backend)
    x = torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), module(x))
    handle = module.register_forward_hook(lambda m, a, out: out * 3)
    torch.testing.assert_close(compiled(x), F.linear(x, module.weight, module.bias) * 3)
    handle.remove()
    torch.testing.assert_close(compiled(x), F.linear(x, module.weight, module.bias))


@pytest.mark.parametrize("backend", BACKENDS)
def test_global_hook_added_later_is_seen(backend):
    module = nn.Linear(3, 3)
    compiled = framejit.compile(module, backend=backend)
    x = torch.randn(2, 3)
    plain = F.linear(x, module.weight, module.bias)
    torch.testing.assert_close(compiled(x), plain)
    handle = nn.modules.module.register_module_forward_hook(lambda m, a, out: out + 1)
    try:
        torch.testing.assert_close(compiled(x), plain + 1)
    finally:
        handle.remove()
    torch.testing.assert_close(compiled(x), plain)


@pytest.mark.parametrize("backend", BACKENDS)
def test_parameter_replaced_and_submodule_replaced(backend):
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    compiled = framejit.compile(module, backend=backend)
    x = torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), module[1](module[0](x)))
    module[0].weight = nn.Parameter(torch.ones(3, 3))
    torch.testing.assert_close(compiled(x), module[1](module[0](x)))
    module[1] = nn.Sigmoid()
    torch.testing.assert_close(compiled(x), module[1](module[0](x)))
    module.append(nn.Linear(3, 2))
    torch.testing.assert_close(compiled(x), module[2](module[1](module[0](x))))
    module[0].bias = None
    torch.testing.assert_close(compiled(x), module[2](module[1](module[0](x))))


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_hooks_run(backend):
    seen = []
    module = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    module[0].register_full_backward_hook(lambda m, gi, go: seen.append("full"))
    module[0].weight.register_hook(lambda g: g * 2)
    compiled = framejit.compile(module, backend=backend)
    x = torch.randn(2, 3, requires_grad=True)
    for call in (module, compiled, compiled):
        module.zero_grad()
        call(x).sum().backward()
        if call is module:
            expected = module[0].weight.grad.clone()
        torch.testing.assert_close(module[0].weight.grad, expected)
    assert seen == ["full"] * 3
