"""Modules and functions that both tracers take; names are part of what is tested."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import nn
from torch.nn import functional as F


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)
        self.bn = nn.BatchNorm2d(width)
        self.act = nn.ReLU()

    def forward(self, x):
        return x + self.act(self.bn(self.conv(x)))


class SmallResNet(nn.Module):
    def __init__(self, depth: int = 2, width: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, width, 3), nn.BatchNorm2d(width), nn.ReLU()
        )
        self.blocks = nn.ModuleList(Block(width) for _ in range(depth))
        self.head = nn.Linear(width, 3)

    def forward(self, x):
        x = self.stem(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((2, 3)))


class Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(x).chunk(3, dim=-1)

        def split(y):
            return y.view(b, t, self.heads, c // self.heads).transpose(1, 2)

        y = F.scaled_dot_product_attention(split(q), split(k), split(v))
        return self.out(y.transpose(1, 2).reshape(b, t, c))


class Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Transformer(nn.Module):
    def __init__(self, depth: int = 2, width: int = 8, heads: int = 2) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("shift", torch.ones(width))
        self.layers = nn.ModuleList(Layer(width, heads) for _ in range(depth))

    def forward(self, tokens):
        x = self.embedding(tokens) * self.scale + self.shift
        for layer in self.layers:
            x = layer(x)
        return F.linear(x, self.embedding.weight)


class Operators(nn.Module):
    def forward(self, x, y=2.0, *, z: torch.Tensor = None):
        a = (x + y) - (1 - x) * (2 / (x + 3)) // 1
        b = -a @ (+x).t() % 5
        c = (x > 0) & (x < 2) | ~(x == 1) ^ (x != 0)
        d = abs(x) ** 2 + 2**x
        e = x[0, 1:, None, ...]
        f, g = torch.split(x, 1)
        return {"b": b, "c": (c, d), "e": [e, f.shape, g.T, x.size(0)]}, a


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain = torch.arange(3.0)
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        x = x + self.plain + torch.tensor([1.0, 2.0, 3.0])
        x = self.linear(x) + self.linear.bias
        return self.linear(x).to(torch.float64).view(-1), None, 3


class Pair(NamedTuple):
    left: object
    right: object


def named(x, y):
    return Pair(torch.maximum(x, y), (x * y).sum(dim=0, keepdim=True))


def methods(x):
    return x.sigmoid().clamp(min=0.1).neg_().contiguous().permute(1, 0)


def functions(x, weight):
    y = torch.cat([x, torch.zeros_like(x)], dim=1)
    y = F.dropout(F.linear(x, weight), p=0.5, training=False)
    return torch.stack((y, torch.where(y > 0, y, 0.1)), 0).max(dim=1).values


def floors(x):
    return x * math.pi + math.sqrt(2), math.floor(x.size(0) / 2)


def keywords(x, *, scale, shift=1):
    return x * scale + shift


def annotated(x: torch.Tensor, n: int = 3) -> torch.Tensor:
    return x * n


x23 = torch.arange(6.0).view(2, 3) + 1

PROGRAMS = {
    "resnet": (SmallResNet().eval, (torch.rand(2, 3, 8, 8),)),
    "transformer": (Transformer, (torch.tensor([[1, 2, 3]]),)),
    "operators": (Operators, (x23,)),
    "constants": (Constants, (torch.rand(2, 3),)),
    "named": (lambda: named, (x23, x23 + 1)),
    "methods": (lambda: methods, (x23,)),
    "functions": (lambda: functions, (x23, torch.rand(4, 3))),
    "floors": (lambda: floors, (x23,)),
    "annotated": (lambda: annotated, (x23,)),
}
