"""Programs that torch.fx's tracer refuses or gets wrong.

(In a module of their own: pytest changes the asserts of test modules.)
"""

from __future__ import annotations

import torch
from torch import nn
from torch import zeros as make_zeros


def length_of(x):
    return x + len(x)


def factories(x):
    n = x.shape[0]
    rows = torch.arange(n).unsqueeze(1) + make_zeros(n, x.size(1))
    return x + rows + torch.ones((n, 1), dtype=x.dtype) + torch.full([1, 1], n)


def numbers(x):
    half = int(x.shape[0] / 2) + max(x.shape[1], 2) + round(x.shape[0] * 0.3)
    return x * half, divmod(x.shape[0], 2), list(x.shape), min((x.shape[0], 3))


def assigned(x):
    y = x.clone()
    y[0] = 5.0
    y[1:, 0] += 1
    return y * 2


def asserts(x, y):
    assert x.shape[0] == y.shape[0], "different rows"
    assert x.dim() == 2 and y.dim() == 2
    assert not x.shape[0] > 100
    return x + y


def raising(x):
    if x.dim() != 2:
        raise ValueError(f"2 dims are needed, not {x.dim()}")
    if not x.shape[1] == 3:
        raise ValueError
    with torch.no_grad():
        if x.shape[0] > 10 or x.shape[0] < 1:
            raise RuntimeError("from 1 to 10 rows", x.shape)
    return x + 1


def handled(x):
    try:
        assert x.shape[0] == 2
    except AssertionError:
        return x
    return x + 1


def both_raise(x):
    if x.shape[0] == 2:
        raise ValueError("two")
    else:
        raise ValueError("not two")


def annotated(x: torch.Tensor):
    if isinstance(x, (list, tuple)):
        x = torch.stack(x)
    assert isinstance(x.relu() + 1, torch.Tensor)
    return x + 1 if isinstance(x, torch.Tensor) else x


def checked(x):
    if not isinstance(x, torch.Tensor):
        raise TypeError("a tensor is needed")
    return x * 2


class InModule(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.bias = nn.Parameter(torch.ones(3))

    def forward(self, x):
        return self.linear(x) + torch.zeros(len(x), 3) + self.helper(x) * self.bias

    def helper(self, x, *more, scale=2, **rest):
        return [scale * v + len(more) for v in (x.sum(0),)][0] / int(x.numel())


def by_rows(x):
    if x.shape[0] > 2:
        x = x[:2]
    return x.sum(0)


def loops(x, y):
    total = 0
    for at, row in enumerate(x):
        total = total + row * at
    for at in range(len(y)):
        total = total + y[at]
    return total


def counted(scale, *args, **more):
    total = sum(args) * scale
    for value in args[1:]:
        total = total * value
    return total, len(args)


def optional(x, y=None, scale=1):
    if y is None:
        y = torch.zeros(x.shape[1])
    return x * scale + y if x.shape[0] > 1 else x


def first_and_rest(x):
    first, *rest = x
    return first + sum(rest), f"{x.shape[0]} rows, {len(rest):3d}"


def nested(values):
    total = values["b"]
    for key in values:
        total = total + values[key]
    for one, two in values.items():
        total = total + two * len(one)
    return total


class Branches(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.heads = nn.ModuleList(nn.Linear(3, 3) for _ in range(3))

    def forward(self, x):
        if self.training and x.dim() == 2:
            x = self.norm(x)
        n = x.shape[0] if x.shape[0] < len(self.heads) else len(self.heads)
        for at in range(n):
            x = self.heads[at](x)
        if x.is_floating_point() and not x.is_cuda:
            x = x + 1
        return x
