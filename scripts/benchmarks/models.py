"""scripts/bench models: inference and training steps of small models of the kinds
people have, against eager and Inductor. Weights are random; sizes fit a laptop."""

from __future__ import annotations

import argparse
import copy
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.kernels import Tensors, normal
from benchmarks.measure import Row, Run, alternate, clock_of, print_rows
from benchmarks.memory import megabytes_of


class Attention(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.heads, self.causal = heads, causal

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        shape = (batch, length, self.heads, width // self.heads)
        q, k, v = (
            part.view(shape).transpose(1, 2) for part in self.qkv(x).chunk(3, -1)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    def __init__(self, width: int, heads: int, causal: bool) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, causal)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.down(F.gelu(self.up(self.second(x))))


class GPT(nn.Module):
    def __init__(self, layers: int, width: int, heads: int, vocabulary: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.places = nn.Embedding(1024, width)
        self.blocks = nn.Sequential(*(Block(width, heads, True) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


class RMSNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        y = x.float()
        y = y * torch.rsqrt(y.square().mean(-1, keepdim=True) + 1e-6)
        return y.to(x.dtype) * self.weight


class LlamaBlock(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(width, heads, True)
        self.gate = nn.Linear(width, 3 * width, bias=False)
        self.up = nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        y = self.second(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Residual(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.second = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(channels) for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norms[0](self.first(x)).relu()
        return (self.norms[1](self.second(y)) + x).relu()


def resnet(channels: int = 32, blocks: int = 4) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, channels, 3, padding=1),
        *(Residual(channels) for _ in range(blocks)),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(channels, 10),
    )


class UNet(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.enter = nn.Conv2d(3, channels, 3, padding=1)
        self.down = nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1)
        self.middle = Residual(2 * channels)
        self.up = nn.Conv2d(2 * channels, channels, 3, padding=1)
        self.leave = nn.Conv2d(2 * channels, 3, 3, padding=1)
        self.norm = nn.GroupNorm(4, channels)

    def forward(self, x: Tensor) -> Tensor:
        x = F.silu(self.norm(self.enter(x)))
        y = self.middle(F.silu(self.down(x)))
        y = self.up(F.interpolate(y, scale_factor=2.0))
        return self.leave(torch.cat((x, F.silu(y)), 1))


class ViT(nn.Module):
    def __init__(self, width: int, layers: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, width, 8, stride=8)
        self.blocks = nn.Sequential(*(Block(width, 4, False) for _ in range(layers)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2)
        return self.head(self.blocks(x).mean(1))


class LSTM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(64, 128, batch_first=True)
        self.head = nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.lstm(x)[0][:, -1])


class DLRM(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(1000, 32) for _ in range(8))
        self.dense = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 32))
        self.top = nn.Sequential(nn.Linear(32 + 36, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, x: Tensor, ids: Tensor) -> Tensor:
        dense = self.dense(x)
        parts = [dense] + [table(ids[:, i]) for i, table in enumerate(self.tables)]
        stacked = torch.stack(parts, 1)
        products = stacked @ stacked.transpose(1, 2)
        row, column = torch.tril_indices(9, 9, -1)
        return self.top(torch.cat((dense, products[:, row, column]), 1)).sigmoid()


class Experts(nn.Module):
    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, experts)
        self.up = nn.Parameter(normal(experts, width, 2 * width) * 0.05)
        self.down = nn.Parameter(normal(experts, 2 * width, width) * 0.05)

    def forward(self, x: Tensor) -> Tensor:
        weights = self.gate(x).softmax(-1)
        hidden = F.gelu(torch.einsum("nd,edh->enh", x, self.up))
        out = torch.einsum("enh,ehd->end", hidden, self.down)
        return torch.einsum("ne,end->nd", weights, out)


class Diffusion(nn.Module):
    """One denoising step: the net, then the arithmetic of the sampler."""

    def __init__(self) -> None:
        super().__init__()
        self.net = UNet(16)

    def forward(self, x: Tensor, alpha: Tensor) -> Tensor:
        noise = self.net(x)
        clean = ((x - (1 - alpha).sqrt() * noise) / alpha.sqrt()).clamp(-1, 1)
        return alpha.sqrt() * clean + (1 - alpha).sqrt() * noise


@dataclass(frozen=True)
class Case:
    name: str
    model: Callable[[], nn.Module]
    inputs: Callable[[], Tensors]
    train: bool = False


def ids(*sizes: int, below: int = 512) -> Tensor:
    return torch.randint(0, below, sizes)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(64, 256), nn.GELU(), nn.LayerNorm(256), nn.Linear(256, 64)
    )


BF16 = torch.bfloat16
CASES = (
    Case("MLP, batch 32", mlp, lambda: (normal(32, 64),)),
    Case("MLP training", mlp, lambda: (normal(32, 64),), True),
    Case("ResNet-like", resnet, lambda: (normal(4, 3, 32, 32),)),
    Case("ResNet-like training", resnet, lambda: (normal(4, 3, 32, 32),), True),
    Case("U-Net", lambda: UNet(16), lambda: (normal(2, 3, 64, 64),)),
    Case("U-Net training", lambda: UNet(16), lambda: (normal(2, 3, 64, 64),), True),
    Case("ViT", lambda: ViT(128, 4), lambda: (normal(4, 3, 64, 64),)),
    Case("ViT training", lambda: ViT(128, 4), lambda: (normal(4, 3, 64, 64),), True),
    Case("GPT-like", lambda: GPT(4, 256, 4, 512), lambda: (ids(2, 128),)),
    Case(
        "GPT-like training", lambda: GPT(4, 256, 4, 512), lambda: (ids(2, 128),), True
    ),
    Case("GPT-2-small prefill", lambda: GPT(12, 768, 12, 512), lambda: (ids(1, 64),)),
    Case("GPT-2-small one token", lambda: GPT(12, 768, 12, 512), lambda: (ids(1, 1),)),
    Case(
        "Llama-like bf16",
        lambda: nn.Sequential(*(LlamaBlock(256, 4) for _ in range(4))).to(BF16),
        lambda: (normal(2, 64, 256, dtype=BF16),),
    ),
    Case("LSTM", LSTM, lambda: (normal(8, 32, 64),)),
    Case("DLRM", DLRM, lambda: (normal(128, 16), ids(128, 8, below=1000))),
    Case(
        "DLRM training", DLRM, lambda: (normal(128, 16), ids(128, 8, below=1000)), True
    ),
    Case("mixture of experts", lambda: Experts(128, 4), lambda: (normal(256, 128),)),
    Case(
        "diffusion step",
        Diffusion,
        lambda: (normal(2, 3, 64, 64), torch.full((1,), 0.5)),
    ),
)


def step_of(forward: Callable[..., Tensor], inputs: Tensors, train: bool) -> Run:
    def infer() -> object:
        with torch.no_grad():
            return forward(*inputs)

    def step() -> object:
        loss = forward(*inputs).float().square().mean()
        loss.backward()
        return loss

    return step if train else infer


def compiler_of(variant: str) -> Callable[[nn.Module], Callable[..., Tensor]]:
    import framejit

    compilers = {"framejit": framejit.compile, "inductor": torch.compile}
    return compilers.get(variant, lambda model: model)


def measure(case: Case, arguments: argparse.Namespace) -> Row:
    torch.manual_seed(0)
    model, inputs = case.model().train(case.train), case.inputs()
    variants: dict[str, Run] = {"eager": step_of(model, inputs, case.train)}
    compile_ms: dict[str, float] = {}
    names = ["framejit"] + ["inductor"] * arguments.torch_compile
    expected = copy.deepcopy(model)(*inputs)
    for name in names:
        compiled = compiler_of(name)(copy.deepcopy(model))
        run = step_of(compiled, inputs, case.train)
        start = time.perf_counter()
        got = run()
        compile_ms[name] = (time.perf_counter() - start) * 1e3
        if isinstance(got, Tensor) and not case.train:
            torch.testing.assert_close(got, expected, rtol=5e-2, atol=5e-2)
        variants[name] = run
    times = alternate(variants, arguments.rounds, arguments.turn, clock_of(arguments))
    row = Row(case.name, times, compile_ms)
    if arguments.memory:
        for name in variants:
            peak = megabytes_of(case.name, name, torch.get_num_threads())
            if peak is not None:
                row.peak_mb[name] = peak
    return row


def models(arguments: argparse.Namespace) -> None:
    wanted = [case for case in CASES if arguments.filter in case.name]
    rows = (measure(case, arguments) for case in wanted)
    threads = torch.get_num_threads()
    print_rows(f"models, {threads} threads", rows, "framejit", ("inductor", "eager"))
