"""The same programs on every device there is: values, gradients, mutations, and
that their loops are kernels of that device. Without a GPU, CUDA is left out."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import framejit

DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU"),
    ),
]
BF16, F16, F64 = torch.bfloat16, torch.float16, torch.float64

Program = tuple[Callable[..., Any], Callable[[], tuple[Any, ...]]]
PROGRAMS: dict[str, Program] = {}


def normal(*sizes: int, dtype: torch.dtype = torch.float32, grad: bool = False) -> Any:
    x = torch.randn(*sizes).to(dtype)
    return x.requires_grad_() if grad else x


def add(name: str, inputs: Callable[[], tuple[Any, ...]]) -> Callable[[Any], Any]:
    def keep(function: Any) -> Any:
        PROGRAMS[name] = (function, inputs)
        return function

    return keep


for dtype in (torch.float32, F64, BF16, F16):
    PROGRAMS[f"chain {dtype}"] = (
        lambda x, y: ((x * y + 1.0).relu() - y * 0.5) * x.sigmoid(),
        lambda dtype=dtype: (
            normal(64, 1000, dtype=dtype, grad=True),
            normal(1000, dtype=dtype),
        ),
    )
    PROGRAMS[f"softmax {dtype}"] = (
        lambda x: (x * 2).softmax(-1),
        lambda dtype=dtype: (normal(33, 1000, dtype=dtype, grad=True),),
    )
    PROGRAMS[f"sums {dtype}"] = (
        lambda x: (x.sum(), x.mean(0), x.amax(-1), x.var(1)),
        lambda dtype=dtype: (normal(70, 333, dtype=dtype, grad=True),),
    )
PROGRAMS["sums of much"] = (
    lambda x: (x.sum(), x.sum(0), x.mean(), x.amax(0)),
    lambda: (normal(5000, 3000),),
)
PROGRAMS["long rows"] = (
    lambda x: (x.softmax(-1), x.logsumexp(-1), x.argmax(-1)),
    lambda: (normal(3, 200_000),),
)
PROGRAMS["columns"] = (
    lambda x: (x.mean(0), x.std(0), x.amax(0), x.argmax(0), x.softmax(0)),
    lambda: (normal(4096, 100, grad=True),),
)
PROGRAMS["scans"] = (
    lambda x: (x.cumsum(-1), x.cumsum(0), x.cummax(1)[0], x.cumprod(-1)),
    lambda: (normal(20, 5000),),
)
PROGRAMS["functions"] = (
    lambda x: (
        *(x.exp(), x.abs().log(), x.sin(), x.cos(), x.tanh(), x.erf(), x.abs().sqrt()),
        *(F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.softplus(x), x.atan()),
        *(x.abs().pow(0.3), x.abs().rsqrt(), x.expm1(), x.abs().log1p(), x.sinh()),
    ),
    lambda: (normal(3000),),
)
PROGRAMS["integers"] = (
    lambda x, y: (
        (x // 7) * 3 + (y % 13) - (x & y),
        x // y,
        x % y,
        (x << 2) ^ y,
        x.sum(),
    ),
    lambda: (torch.randint(-99, 99, (500,)), torch.randint(1, 50, (500,))),
)
PROGRAMS["bytes and bools"] = (
    lambda x: (
        (x > 3) & (x < 100),
        (x > 3).any(),
        x.to(torch.int8),
        ~(x > 7),
        x.bool().all(),
    ),
    lambda: (torch.randint(0, 255, (777,), dtype=torch.uint8),),
)
PROGRAMS["views"] = (
    lambda x: (
        x.t() + 1,
        x[::2, 1:] * 2,
        torch.cat([x, x * 3], 1),
        x.flip(0) + x,
        x.roll(3, 1) * x,
    ),
    lambda: (normal(65, 65, grad=True),),
)
PROGRAMS["layer norm, gelu"] = (
    lambda x, w, b: F.gelu(F.layer_norm(x, (x.shape[-1],), w, b)),
    lambda: (
        normal(50, 768, grad=True),
        normal(768, grad=True),
        normal(768, grad=True),
    ),
)
PROGRAMS["rms norm"] = (
    lambda x, w: x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * w,
    lambda: (
        normal(8, 16, 512, dtype=BF16, grad=True),
        normal(512, dtype=BF16, grad=True),
    ),
)
PROGRAMS["embedding"] = (
    lambda ids, table: F.embedding(ids, table) * 8.0,
    lambda: (torch.randint(50, (4, 33)), normal(50, 64, grad=True)),
)
PROGRAMS["cross entropy"] = (
    lambda x, y: F.cross_entropy(x * 2, y),
    lambda: (normal(64, 1000, grad=True), torch.randint(1000, (64,))),
)
PROGRAMS["gather, scatter"] = (
    lambda x, i: (
        x.gather(1, i) * 2,
        torch.zeros_like(x).scatter_add(1, i, x * 0.5),
        x[i[0]] + 1,
    ),
    lambda: (normal(40, 40, grad=True), torch.randint(40, (40, 40))),
)
PROGRAMS["masks"] = (
    lambda x, m: (
        x.masked_fill(m, -1e9).softmax(-1),
        torch.where(m, x, x * 2),
        x.tril() + x,
    ),
    lambda: (normal(30, 30, grad=True), torch.rand(30, 30) > 0.5),
)
PROGRAMS["products"] = (
    lambda a, b, c: F.relu(a @ b + c).sum(-1),
    lambda: (
        normal(64, 32, grad=True),
        normal(32, 48, grad=True),
        normal(48, grad=True),
    ),
)
for dtype in (torch.float32, BF16):
    PROGRAMS[f"attention {dtype}"] = (
        lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v, is_causal=True) + 1,
        lambda dtype=dtype: tuple(
            normal(2, 4, 32, 64, dtype=dtype, grad=True) for _ in range(3)
        ),
    )
    PROGRAMS[f"attention with a mask {dtype}"] = (
        lambda q, k, v, m: F.scaled_dot_product_attention(q * 2, k, v, attn_mask=m) + 1,
        lambda dtype=dtype: (
            *(normal(2, 4, 32, 64, dtype=dtype, grad=True) for _ in range(3)),
            torch.ones(2, 1, 32, 32, dtype=torch.bool).tril(),
        ),
    )
    PROGRAMS[f"attention without gradients {dtype}"] = (
        lambda q, k, v: F.scaled_dot_product_attention(q * 2, k, v).transpose(1, 2) + 1,
        lambda dtype=dtype: tuple(normal(2, 4, 32, 64, dtype=dtype) for _ in range(3)),
    )
PROGRAMS["batch norm"] = (
    lambda x, w, b, m, v: F.relu(F.batch_norm(x, m, v, w, b, training=True)),
    lambda: (
        *(normal(4, 6, 8, 8, grad=True), normal(6, grad=True), normal(6, grad=True)),
        *(torch.zeros(6), torch.ones(6)),
    ),
)
PROGRAMS["batch norm, inference"] = (
    lambda x, w, b, m, v: F.relu(F.batch_norm(x, m, v, w, b)),
    lambda: (
        *(normal(4, 6, 8, 8, grad=True), normal(6, grad=True), normal(6, grad=True)),
        *(torch.zeros(6), torch.ones(6)),
    ),
)
PROGRAMS["batch norm of bfloat16"] = (
    lambda x, w, b, m, v: F.relu(F.batch_norm(x, m, v, w, b, training=True)),
    lambda: (
        normal(4, 6, 8, 8, dtype=BF16, grad=True),
        *(normal(6, grad=True), normal(6, grad=True), torch.zeros(6), torch.ones(6)),
    ),
)
PROGRAMS["fused rms norm"] = (
    lambda x, w: F.rms_norm(x * 2, (64,), w, 1e-6),
    lambda: (normal(9, 64, grad=True), normal(64, grad=True)),
)
PROGRAMS["dropout"] = (
    lambda x: F.dropout(x * 2, 0.25) + F.dropout(x, 0.5, training=False),
    lambda: (normal(40, 50, grad=True),),
)
PROGRAMS["interpolate"] = (
    lambda x: F.interpolate(x * 2, scale_factor=2, mode="bilinear"),
    lambda: (normal(2, 3, 8, 8, grad=True),),
)
PROGRAMS["pools"] = (
    lambda x: (
        F.max_pool2d(x * 2, 2),
        F.avg_pool2d(x + 1, 3, 1, 1),
        F.adaptive_avg_pool2d(x, 1),
    ),
    lambda: (normal(2, 3, 16, 16, grad=True),),
)
PROGRAMS["one number"] = (
    lambda x: (x * 2 + 1).sin(),
    lambda: (torch.tensor(0.7, requires_grad=True),),
)
PROGRAMS["no elements"] = (
    lambda x: ((x * 2).sum(), x + 1, x.sum(0)),
    lambda: (normal(0, 5, grad=True),),
)
PROGRAMS["a huge one"] = (
    lambda x, y: (x * y + 1).relu(),
    lambda: (normal(300, 70_000), normal(70_000)),
)


@add("random numbers", lambda: (normal(100, 100, grad=True),))
def _random(x: Tensor) -> Any:
    y = F.dropout(x * 2, 0.3)
    return y + torch.rand_like(x), torch.randn_like(x) * x


@add("writes", lambda: (normal(9, 9), normal(9)))
def _writes(x: Tensor, y: Tensor) -> Any:
    x.add_(1).mul_(y)
    x[3] = y
    y.clamp_(min=0)
    return (x * 2).sum(), y + 1


@add("a break", lambda: (normal(30, grad=True),))
def _break(x: Tensor) -> Any:
    y = (x * 2).exp()
    framejit.graph_break()
    return (y + 1).log().sum()


@add("made inside", lambda: (normal(30, 16, grad=True),))
def _made(x: Tensor) -> Any:
    scale = torch.arange(16, device=x.device) / 16
    mask = torch.ones(30, 16, device=x.device).tril()
    return x * scale + mask, x.new_zeros(3) + 1


@add("a number of the CPU", lambda: (normal(30, grad=True),))
def _number(x: Tensor) -> Any:
    return x * torch.tensor(2.5), x + torch.tensor(1), (x * 3).sum().item() + 1


def on(device: str, value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().to(device).requires_grad_(value.requires_grad)
    return value


def flat(value: Any) -> list[Any]:
    if isinstance(value, tuple | list):
        return [each for item in value for each in flat(item)]
    return [value]


def outcome(function: Any, inputs: tuple[Any, ...]) -> list[Any]:
    """What it returns, the gradients of its inputs, the inputs afterwards."""
    results = flat(function(*inputs))
    roots = [r for r in results if isinstance(r, Tensor) and r.requires_grad]
    gradients: list[Any] = []
    if roots:
        leaves = [x for x in inputs if isinstance(x, Tensor) and x.requires_grad]
        gradients = list(
            torch.autograd.grad(
                [(r.float() * 0.5).sum() for r in roots], leaves, allow_unused=True
            )
        )
    return [*results, *gradients, *inputs]


def assert_same(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected)
    # Sums come in other orders. (What comes of small floats is as good as those.)
    loose = {BF16: 2e-2, F16: 5e-3, torch.float32: 2e-4, F64: 1e-9}
    bounds = {
        each.dtype: loose.get(each.dtype, 0)
        for each in expected
        if isinstance(each, Tensor)
    }
    least = max((bounds[small] for small in (BF16, F16) if small in bounds), default=0)
    for a, e in zip(actual, expected, strict=True):
        if not isinstance(e, Tensor):
            assert a == pytest.approx(e, rel=1e-4) if isinstance(e, float) else a == e
            continue
        assert (a.dtype, a.shape, a.stride(), a.device) == (
            e.dtype,
            e.shape,
            e.stride(),
            e.device,
        )
        if e.dtype in loose:
            bound = max(loose[e.dtype], least)
            torch.testing.assert_close(a, e, rtol=bound, atol=bound, equal_nan=True)
        else:
            assert torch.equal(a, e)


# Without any loops: what they do is the operators' own.
CALLS_ALONE: set[str] = set()


@pytest.mark.parametrize("name", list(PROGRAMS))
@pytest.mark.parametrize("device", DEVICES)
def test_program(device: str, name: str) -> None:
    function, make = PROGRAMS[name]
    torch.manual_seed(1)
    inputs = tuple(on(device, value) for value in make())
    copies = [copy.deepcopy(inputs) for _ in range(3)]
    compiled = framejit.compile(function)
    torch.manual_seed(2)
    expected = outcome(function, inputs)
    for given in copies:
        torch.manual_seed(2)
        assert_same(outcome(compiled, given), expected)
    entries = framejit.inspect(compiled)
    assert entries, "nothing was compiled"
    if device == "cuda" and name not in CALLS_ALONE:
        assert any(entry.loop_nodes for entry in entries), entries[0].not_lowered
    for entry in entries:
        assert not entry.fallback_reason, entry.fallback_reason


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = (
            nn.Conv2d(3, 8, 3, padding=1, bias=False),
            nn.BatchNorm2d(8),
        )
        self.up, self.layer = nn.Linear(8, 32), nn.LayerNorm(32)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.out = nn.Linear(32, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.norm(self.conv(x))).flatten(2).transpose(1, 2)
        x = self.layer(F.gelu(self.up(x)))
        x = x + self.attention(x, x, x, need_weights=False)[0]
        return self.out(x.mean(1))


def train(model: nn.Module, optimizer: Any, device: str, amp: bool) -> list[Any]:
    generator = torch.Generator().manual_seed(5)
    losses = []
    for _ in range(4):
        x = torch.randn(4, 3, 8, 8, generator=generator).to(device)
        y = torch.randint(10, (4,), generator=generator).to(device)
        optimizer.zero_grad()
        with torch.autocast(device, dtype=BF16, enabled=amp):
            loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("amp", [False, True])
@pytest.mark.parametrize("kind", ["SGD", "Adam", "AdamW"])
@pytest.mark.parametrize("device", DEVICES)
def test_training(device: str, kind: str, amp: bool) -> None:
    torch.manual_seed(0)
    model = Net().to(device)
    other = copy.deepcopy(model)

    # Gradients that are zero but for rounding (a key's bias) count for nothing.
    def made(parameters: Any, **options: Any) -> Any:
        options |= {} if kind == "SGD" else {"eps": 1e-3}
        return getattr(torch.optim, kind)(parameters, **options)

    expected = train(model, made(model.parameters(), lr=0.01), device, amp)
    compiled = framejit.compile(other)
    losses = train(compiled, made(other.parameters(), lr=0.01), device, amp)
    assert losses == pytest.approx(expected, rel=3e-2 if amp else 2e-3)
    for (name, a), b in zip(
        model.state_dict().items(), other.state_dict().values(), strict=True
    ):
        bound = 5e-2 if amp else 5e-3
        torch.testing.assert_close(b, a, rtol=bound, atol=bound, msg=name)


@pytest.mark.parametrize("device", DEVICES)
def test_sizes_of_their_own(device: str) -> None:
    def function(x: Tensor, y: Tensor) -> Any:
        return (x.softmax(-1) * y).sum(0), x.cumsum(1), F.layer_norm(x, x.shape[1:])

    compiled = framejit.compile(function, dynamic=True)
    for rows, columns in [(5, 7), (64, 300), (1000, 33), (3, 5000), (2, 1)]:
        inputs = (normal(rows, columns).to(device), normal(columns).to(device))
        assert_same(flat(compiled(*inputs)), flat(function(*inputs)))
    assert len(framejit.inspect(compiled)) <= 2


@pytest.mark.parametrize("device", DEVICES)
def test_threads(device: str) -> None:
    def function(x: Tensor) -> Tensor:
        return (x * 2 + 1).softmax(-1).cumsum(-1)

    compiled = framejit.compile(function)
    inputs = [normal(50, 100 * (1 + i % 3)).to(device) for i in range(8)]
    expected = [function(x) for x in inputs]
    failures: list[BaseException] = []

    def work(i: int) -> None:
        try:
            for _ in range(30):
                torch.testing.assert_close(compiled(inputs[i]), expected[i])
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures[0]


@pytest.mark.parametrize("device", DEVICES)
def test_the_variance_of_equal_numbers_is_zero(device: str) -> None:
    def function(x: Tensor) -> Any:
        return x.var(-1), F.layer_norm(x, x.shape[-1:])

    compiled = framejit.compile(function)
    for columns in (3, 12, 1000, 4096):
        values = torch.tensor([0.1, 1 / 3, -7.7, 1e30, 1e-30, 16777217.0])
        x = values[:, None].expand(6, columns).contiguous().to(device)
        variance, normal = compiled(x)
        assert variance.eq(0).all() and normal.eq(0).all()


on_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@on_cuda
def test_a_division_by_zero_is_no_assertion() -> None:
    def function(s: Tensor, n: Tensor) -> Any:
        quotients = (s // n, s % n, s.div(n, rounding_mode="trunc"), s.fmod(n))
        return tuple(torch.where(n > 0, each, 0) for each in quotients)

    compiled = framejit.compile(function)
    s = torch.arange(40, device="cuda")
    n = s % 4
    assert_same(flat(compiled(s, n)), flat(function(s, n)))
    torch.cuda.synchronize()


@on_cuda
def test_streams() -> None:
    def function(x: Tensor) -> Tensor:
        for _ in range(20):
            x = (x * 1.01 + 0.5).sin()
        return x.softmax(-1)

    compiled = framejit.compile(function)
    x = torch.randn(2000, 2000, device="cuda")
    expected = function(x)
    compiled(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    for _ in range(10):
        with torch.cuda.stream(side):
            late = torch.randn(2000, 2000, device="cuda")
            late.copy_(x)
            found = compiled(late)
        side.synchronize()
        torch.testing.assert_close(found, expected)


@on_cuda
def test_within_a_cuda_graph() -> None:
    def function(x: Tensor) -> Tensor:
        return (x * 2 + 1).softmax(-1) @ x

    compiled = framejit.compile(function)
    x = torch.randn(64, 64, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            compiled(x)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        result = compiled(x)
    for _ in range(3):
        x.copy_(torch.randn(64, 64))
        graph.replay()
        torch.testing.assert_close(result, function(x))


@on_cuda
def test_out_of_memory_is_eagers() -> None:
    def function(x: Tensor, y: Tensor) -> Tensor:
        y.add_(1)
        return (x * 2).expand(1 << 20, x.numel()) + 1

    compiled = framejit.compile(function)
    y = torch.zeros(3, device="cuda")
    with pytest.raises(torch.OutOfMemoryError):
        compiled(torch.randn(1 << 20, device="cuda"), y)
    assert y.tolist() == [1, 1, 1]
    assert compiled(torch.randn(8, device="cuda"), y).shape == (1 << 20, 8)


OUT_OF_BOUNDS = """
import torch, framejit
import torch.nn.functional as F
@framejit.compile
def f(ids, table):
    return F.embedding(ids, table) * 2
table = torch.randn(10, 4, device="cuda")
f(torch.tensor([1, 2], device="cuda"), table)
try:
    f(torch.tensor([1, 10], device="cuda"), table)
    torch.cuda.synchronize()
except RuntimeError as error:
    print("raised", "device-side assert" in str(error))
"""


@on_cuda
def test_an_index_out_of_bounds_is_an_assertion() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OUT_OF_BOUNDS],
        capture_output=True,
        text=True,
        timeout=300,
        env=os.environ,
    )
    assert ran.stdout.splitlines()[-1:] == ["raised True"], ran.stderr


@on_cuda
def test_a_device_of_several() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")

    def function(x: Tensor) -> Tensor:
        return (x * 2 + 1).softmax(-1)

    compiled = framejit.compile(function)
    for index in (1, 0, 1):
        x = torch.randn(30, 30, device=f"cuda:{index}")
        found = compiled(x)
        assert found.device == x.device
        torch.testing.assert_close(found, function(x))
