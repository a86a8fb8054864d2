"""Arguments that lie in memory in every way, with a size that changes, and
programs to which the layout matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F


def _memory(*sizes: int) -> torch.Tensor:
    count = 1
    for size in sizes:
        count *= size
    return torch.arange(count, dtype=torch.float32).view(sizes) % 7 / 4 - 0.5


# Of the size that changes: the whole memory, and the part that is the argument.
FAMILIES: dict[str, Callable[[int], tuple[torch.Tensor, torch.Tensor]]] = {}


def _family(name: str, part: Callable[[torch.Tensor, int], torch.Tensor], *sizes: Any):
    def make(n: int) -> tuple[torch.Tensor, torch.Tensor]:
        whole = _memory(*(size(n) if callable(size) else size for size in sizes))
        return whole, part(whole, n)

    FAMILIES[name] = make


_family("contiguous", lambda w, n: w, 4, lambda n: n)
_family("slice", lambda w, n: w[:, :-1], 4, lambda n: n + 1)
_family("slice from one", lambda w, n: w[:, 1:], 4, lambda n: n + 1)
_family("slice of two", lambda w, n: w[:-1, 1:-1], lambda n: n + 1, lambda n: n + 2)
_family("step", lambda w, n: w[:, ::2], 4, lambda n: 2 * n)
_family("odd step", lambda w, n: w[:, : 2 * n : 2], 4, lambda n: 2 * n + 1)
_family("step of rows", lambda w, n: w[::2], lambda n: 2 * n, 4)
_family("transpose", lambda w, n: w.t(), lambda n: n, 4)
_family("transposed slice", lambda w, n: w[:, :n].t(), 4, lambda n: n + 2)
_family("permute", lambda w, n: w.permute(2, 0, 1), 2, 3, lambda n: n)
_family(
    "permuted slice", lambda w, n: w[..., :n].permute(2, 0, 1), 3, 2, lambda n: n + 1
)
_family("select", lambda w, n: w[:, 1], 4, 3, lambda n: n)
_family("select of the last", lambda w, n: w[..., 1], 4, lambda n: n, 3)
_family("column", lambda w, n: w[:, 1], 6, lambda n: n + 1)
_family("expand", lambda w, n: w.expand(4, n), 4, 1)
_family("expanded part", lambda w, n: w[:n].expand(4, n), lambda n: n + 1)
_family("narrow", lambda w, n: w.narrow(1, 2, n), 4, 16)
_family("narrow of more", lambda w, n: w.narrow(1, n, n), 4, lambda n: 3 * n)
_family("cache", lambda w, n: w[:, :, :n], 2, 2, lambda n: n + 3, 4)
_family("part of a row", lambda w, n: w[:, :, 2:4], 2, lambda n: n, 6)
_family("diagonal", lambda w, n: w.diagonal(), lambda n: n, lambda n: n + 1)
_family(
    "diagonals", lambda w, n: w.diagonal(0, 1, 2), 4, lambda n: n + 1, lambda n: n + 1
)
_family("as_strided", lambda w, n: w.as_strided((4, n), (n + 3, 1), n), 200)
_family("overlapping", lambda w, n: w.as_strided((4, n), (2, 1), 1), 200)
_family("overlapping more", lambda w, n: w.as_strided((4, n), (n - 1, 1)), 200)
_family("windows", lambda w, n: w.unfold(0, n, 1)[:4], lambda n: n + 5)
_family(
    "channels_last",
    lambda w, n: w.to(memory_format=torch.channels_last),
    2,
    3,
    lambda n: n,
    4,
)
_family("channels_last slice", lambda w, n: w[:, :, :n], 2, 3, lambda n: n + 1, 4)
FAMILIES["channels_last slice"] = lambda n: (
    w := _memory(2, 3, n + 1, 4).to(memory_format=torch.channels_last),
    w[:, :, :n],
)
FAMILIES["some of the channels"] = lambda n: (
    w := _memory(2, n + 1, 3, 4).to(memory_format=torch.channels_last),
    w[:, :n],
)
_family("batch of one", lambda w, n: w[:, :-1], 1, lambda n: n + 1)
_family("one row of more", lambda w, n: w[1:2, :n], 3, lambda n: n + 2)


def _written(x: torch.Tensor) -> torch.Tensor:
    x.add_(1)
    return x.sum()


def _written_in_part(x: torch.Tensor) -> torch.Tensor:
    x[..., 0] = 5
    x[1:] *= 2
    return x + 1


def _written_and_viewed(x: torch.Tensor) -> Any:
    x.mul_(2)
    return x.transpose(0, -1), x.stride()


def _by_layout(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.is_contiguous() else x.sum(0) + 1


# Of the argument alone. A view of it is a view of the whole memory.
PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "elementwise": lambda x: (x * 2 + 1).relu(),
    "two results": lambda x: (x.sin(), x.exp() + x),
    "reduction": lambda x: (x.sin() + x).sum(-1),
    "softmax": lambda x: x.softmax(-1).amax(0),
    "matmul": lambda x: x.reshape(-1, x.size(-1)).t() @ x.reshape(-1, x.size(-1)),
    "linear": lambda x: F.linear(x, torch.ones(2, x.size(-1))),
    "contiguous": lambda x: x.contiguous() * 1,
    "contiguous as it is": lambda x: x.contiguous(),
    "clone": lambda x: x.clone(),
    "clone contiguous": lambda x: x.clone(memory_format=torch.contiguous_format),
    "zeros_like": lambda x: torch.zeros_like(x) + x,
    "empty_like": lambda x: torch.empty_like(x).copy_(x),
    "strides": lambda x: (x.stride(), x.is_contiguous(), x.shape),
    "by layout": _by_layout,
    "by strides": lambda x: x + 1 if x.stride(0) > x.stride(-1) else x - 1,
    "times a stride": lambda x: x * x.stride(0) + x.stride()[-1],
    "view(-1)": lambda x: x.view(-1) + 1,
    "view of two dims": lambda x: x.view(x.size(0), -1) * 2,
    "reshape(-1)": lambda x: x.reshape(-1) * 2,
    "flatten": lambda x: x.flatten(),
    "unsqueeze": lambda x: x.unsqueeze(1) * 2,
    "transposed": lambda x: x.transpose(0, -1) * 3,
    "transposed view": lambda x: x.transpose(0, -1),
    "view": lambda x: x.view(x.shape),
    "rows": lambda x: (x[1:], x[:1] + 1),
    "last": lambda x: x[..., -1],
    "steps": lambda x: x[..., ::2] * 2,
    "same": lambda x: (x, x + 1),
    "detached": lambda x: x.detach(),
    "as_strided": lambda x: x.as_strided((2,), (x.stride(0),)) + 1,
    "as_strided view": lambda x: x.as_strided(x.shape, x.stride()),
    "cat": lambda x: torch.cat([x, x], -1),
    "stack": lambda x: torch.stack([x, x]),
    "index": lambda x: x[torch.tensor([0, 0])],
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "cumsum": lambda x: x.cumsum(-1),
    "sort": lambda x: x.sort(-1)[0],
    "flip": lambda x: x.flip(0),
    "broadcast": lambda x: x + x[..., :1],
    "expanded": lambda x: x[None].expand(2, *x.shape).sum(0),
    "written": _written,
    "written in part": _written_in_part,
    "written and viewed": _written_and_viewed,
    "dtype": lambda x: x.double() + 1,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
    "unbind others": lambda x: x.unbind(0)[0] * 2,
    "split": lambda x: x.split(1, 0)[0] + 1,
}

# Of images.
IMAGE_PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "channels_last": lambda x: (
        x * 2,
        x.is_contiguous(memory_format=torch.channels_last),
    ),
    "to channels_last": lambda x: x.to(memory_format=torch.channels_last) + 1,
    "conv2d": lambda x: F.conv2d(x, torch.ones(2, x.size(1), 1, 1)),
    "max_pool2d": lambda x: F.max_pool2d(x, (1, 2)),
    "mean": lambda x: x.mean((2, 3)),
    "batch_norm": lambda x: F.batch_norm(
        x, torch.zeros(x.size(1)), torch.ones(x.size(1))
    ),
}
