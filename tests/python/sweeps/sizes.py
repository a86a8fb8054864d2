"""Programs whose sizes change between calls, and how often they are compiled.

An idiom is one way of writing what depends on a size; an operator stands for
itself, with torch's own samples, made for each size in turn. Both are called at
one size after the other: `visit` counts the entries that this makes and compares
each call with eager.
"""

from __future__ import annotations

import dataclasses
import importlib
import math
import pkgutil
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F

import framejit
from differential import assert_same

SIZES = (5, 6, 7, 8)

torch.manual_seed(0)
ATTENTION = torch.nn.MultiheadAttention(4, 2, batch_first=True)
LAYER = torch.nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True)
LSTM = torch.nn.LSTM(4, 3, batch_first=True)
GRU = torch.nn.GRU(4, 3, batch_first=True)
CELL = torch.nn.LSTMCell(4, 3)
MLP = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
NET = torch.nn.Sequential(
    torch.nn.Conv2d(1, 4, 2, padding=1),
    torch.nn.BatchNorm2d(4),
    torch.nn.ReLU(),
    torch.nn.AdaptiveAvgPool2d(1),
    torch.nn.Flatten(),
    torch.nn.Linear(4, 2),
).eval()


def _positions(length: int, width: int) -> torch.Tensor:
    places = torch.arange(length)[:, None]
    rates = torch.exp(torch.arange(0, width, 2) * (-math.log(1e4) / width))
    table = torch.zeros(length, width)
    table[:, 0::2] = torch.sin(places * rates)
    table[:, 1::2] = torch.cos(places * rates)
    return table


def _rotary(x: torch.Tensor) -> torch.Tensor:
    half = x.shape[-1] // 2
    angles = torch.outer(
        torch.arange(x.shape[0]).float(), 1.0 / 100 ** (torch.arange(half) / half)
    )
    a, b = x[..., :half], x[..., half:]
    return torch.cat(
        [a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1
    )


def _with_half_written(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[: x.size(0) // 2] = 0
    y[-1] += 1
    return y


def _unpacked(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.shape
    return x.reshape(1, rows, 2, columns // 2).permute(0, 2, 1, 3).flatten(1)


# Of x, n x 4 (or n x 3 x 4), with n the size that changes.
IDIOMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "view(-1)": lambda x: x.view(-1) * 2,
    "view(n, -1)": lambda x: x.view(x.size(0), -1) + 1,
    "reshape(-1, 2)": lambda x: x.reshape(-1, 2).sum(1),
    "reshape(2 * n, -1)": lambda x: x.reshape(2 * x.shape[0], -1),
    "unflatten": lambda x: x.unflatten(1, (2, 2)).sum(-1),
    "flatten": lambda x: x.flatten() * 2,
    "flatten(0, 1)": lambda x: x[:, None].flatten(0, 1),
    "transpose": lambda x: x.t() @ x,
    "matmul": lambda x: x @ x.t(),
    "bmm": lambda x: torch.bmm(x[None], x.t()[None]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "softmax": lambda x: (x @ x.t()).softmax(-1),
    "attention": lambda x: F.scaled_dot_product_attention(x[None], x[None], x[None]),
    "causal mask": lambda x: (x @ x.t()).masked_fill(
        torch.ones(len(x), len(x)).triu(1).bool(), -1e9
    ),
    "tril": lambda x: torch.tril(torch.ones(x.size(0), x.size(0))) @ x,
    "arange": lambda x: x + torch.arange(x.size(0))[:, None],
    "arange / n": lambda x: torch.arange(x.shape[0]) / x.shape[0],
    "linspace": lambda x: torch.linspace(0, 1, x.size(0)),
    "eye": lambda x: torch.eye(x.size(0)) @ x,
    "zeros": lambda x: torch.zeros(x.size(0), 3) + 1,
    "new_zeros": lambda x: x.new_zeros(x.shape) + x,
    "full": lambda x: torch.full((x.size(0), 2), 3.0),
    "full_like": lambda x: torch.full_like(x, 3.0) + x,
    "ones_like": lambda x: torch.ones_like(x) + x,
    "expand": lambda x: x[:1].expand(x.size(0), -1) + x,
    "expand of a number": lambda x: x.sum().expand(x.size(0), 1) * 2,
    "sum of a column": lambda x: (x[:, :1] * 2).sum(),
    "mean of a column": lambda x: (x @ x[0]).tanh()[:, None].mean(),
    "expand_as": lambda x: x[0].expand_as(x) * 2,
    "repeat": lambda x: x.repeat(2, 3),
    "repeat n": lambda x: x[0].repeat(x.size(0), 1),
    "tile": lambda x: x.tile(2, 1),
    "repeat_interleave": lambda x: x.repeat_interleave(2, 0),
    "cat": lambda x: torch.cat([x, x], 0),
    "cat other": lambda x: torch.cat([x, x], 1),
    "stack": lambda x: torch.stack([x, x]),
    "hstack": lambda x: torch.hstack([x, x]),
    "vstack": lambda x: torch.vstack([x, x]),
    "slice": lambda x: x[1:],
    "slice of the end": lambda x: x[:-1] + x[1:],
    "slice of the half": lambda x: x[: x.size(0) // 2],
    "step": lambda x: x[::2] * 2,
    "last": lambda x: x[-1],
    "None": lambda x: x[:, None] - x[None],
    "index": lambda x: x[torch.tensor([0, 2, 4])],
    "index_select": lambda x: x.index_select(0, torch.tensor([0, 1])),
    "gather": lambda x: x.gather(1, torch.zeros(len(x), 1, dtype=torch.long)),
    "scatter": lambda x: x.scatter(1, torch.zeros(len(x), 1, dtype=torch.long), 1.0),
    "index_add": lambda x: x.index_add(0, torch.tensor([0]), x[:1]),
    "roll": lambda x: x.roll(1, 0),
    "flip": lambda x: x.flip(0),
    "rot90": lambda x: x.rot90(),
    "chunk others": lambda x: sum(x.chunk(2, 1)),
    "split": lambda x: x.split([1, 3], 1)[1],
    "unbind others": lambda x: sum(x.unbind(1)),
    "narrow": lambda x: x.narrow(0, 1, x.size(0) - 1),
    "diagonal": lambda x: (x @ x.t()).diagonal(),
    "diag": lambda x: torch.diag(x[:, 0]),
    "diag_embed": lambda x: torch.diag_embed(x),
    "movedim": lambda x: x.movedim(0, 1).contiguous(),
    "permute": lambda x: x[None].permute(2, 0, 1).contiguous(),
    "swapaxes": lambda x: x.swapaxes(0, 1) * 2,
    "squeeze": lambda x: x[:, None].squeeze(1),
    "unsqueeze": lambda x: x.unsqueeze(1) * 2,
    "broadcast_to": lambda x: x[:, :1].broadcast_to(x.shape),
    "meshgrid": lambda x: torch.meshgrid(x[:, 0], x[:, 1], indexing="ij")[0] * 2,
    "outer": lambda x: torch.outer(x[:, 0], x[:, 1]),
    "kron": lambda x: torch.kron(x, x),
    "cartesian_prod": lambda x: torch.cartesian_prod(x[:, 0], x[:, 1]),
    "cdist": lambda x: torch.cdist(x, x),
    "sum": lambda x: x.sum(),
    "mean": lambda x: x.mean(0),
    "std": lambda x: x.std(0),
    "var_mean": lambda x: torch.var_mean(x, 0)[0],
    "norm": lambda x: x.norm(dim=1),
    "vector_norm": lambda x: torch.linalg.vector_norm(x, dim=0),
    "normalize": lambda x: F.normalize(x, dim=1),
    "amax": lambda x: x.amax(0),
    "max": lambda x: x.max(0)[0],
    "argmax": lambda x: x.argmax(1),
    "topk": lambda x: x.topk(2, 0)[0],
    "sort": lambda x: x.sort(0)[0],
    "argsort": lambda x: x.argsort(0),
    "median": lambda x: x.median(0)[0],
    "quantile": lambda x: x.quantile(0.5, 0),
    "kthvalue": lambda x: x.kthvalue(2, 0)[0],
    "cumsum": lambda x: x.cumsum(0),
    "logcumsumexp": lambda x: x.logcumsumexp(0),
    "cummax": lambda x: x.cummax(0)[0],
    "logsumexp": lambda x: x.logsumexp(0),
    "diff": lambda x: x.diff(dim=0),
    "where": lambda x: torch.where(x > 0, x, 0.0),
    "clamp": lambda x: x.clamp(0, 1),
    "mean by n": lambda x: x.sum(0) / x.size(0),
    "n ** 0.5": lambda x: x / x.size(0) ** 0.5,
    "numel": lambda x: x / x.numel(),
    "len": lambda x: x * len(x),
    "one_hot": lambda x: F.one_hot(x.argmax(1), 4),
    "cross_entropy": lambda x: F.cross_entropy(x, x.argmax(1)),
    "nll_loss": lambda x: F.nll_loss(x.log_softmax(1), x.argmax(1)),
    "mse_loss": lambda x: F.mse_loss(x, x * 2),
    "layer_norm": lambda x: F.layer_norm(x, (4,)),
    "batch_norm": lambda x: F.batch_norm(x, None, None, training=True),
    "group_norm": lambda x: F.group_norm(x, 2),
    "instance_norm": lambda x: F.instance_norm(x[None]),
    "linear": lambda x: F.linear(x, torch.ones(3, 4)),
    "embedding": lambda x: F.embedding(x.argmax(1), torch.ones(4, 3)),
    "embedding_bag": lambda x: F.embedding_bag(x.argmax(1)[:, None], torch.ones(4, 3)),
    "dropout": lambda x: F.dropout(x, 0.5, training=False),
    "gelu": lambda x: F.gelu(x),
    "glu": lambda x: F.glu(x),
    "conv1d": lambda x: F.conv1d(x.t()[None], torch.ones(2, 4, 3)),
    "conv1d padded": lambda x: F.conv1d(x.t()[None], torch.ones(2, 4, 3), padding=1),
    "conv_transpose1d": lambda x: F.conv_transpose1d(x.t()[None], torch.ones(4, 2, 3)),
    "conv2d": lambda x: F.conv2d(x[None, None], torch.ones(2, 1, 2, 2)),
    "max_pool1d": lambda x: F.max_pool1d(x.t()[None], 2),
    "max_pool2d": lambda x: F.max_pool2d(x[None], 2),
    "avg_pool1d": lambda x: F.avg_pool1d(x.t()[None], 2),
    "avg_pool2d": lambda x: F.avg_pool2d(x[None], 2),
    "adaptive_avg_pool1d": lambda x: F.adaptive_avg_pool1d(x.t()[None], 2),
    "adaptive_avg_pool2d": lambda x: F.adaptive_avg_pool2d(x[None], 2),
    "pad": lambda x: F.pad(x, (0, 0, 1, 1)),
    "pad reflect": lambda x: F.pad(x.t()[None], (1, 1), mode="reflect"),
    "pad replicate": lambda x: F.pad(x.t()[None], (1, 1), mode="replicate"),
    "pad to even": lambda x: F.pad(x, (0, 0, 0, 8 - x.size(0))),
    "unfold": lambda x: x.unfold(0, 2, 1),
    "interpolate nearest": lambda x: F.interpolate(x.t()[None], scale_factor=2),
    "interpolate linear": lambda x: F.interpolate(
        x.t()[None], scale_factor=2, mode="linear"
    ),
    "interpolate bilinear": lambda x: F.interpolate(
        x[None, None], scale_factor=2, mode="bilinear"
    ),
    "interpolate to size": lambda x: F.interpolate(x.t()[None], size=12),
    "as_strided": lambda x: x.as_strided((x.size(0), 2), (4, 1)),
    "contiguous": lambda x: x.t().contiguous(),
    "clone": lambda x: x.clone(),
    "to": lambda x: x.to(torch.float64),
    "bincount by scatter": lambda x: torch.zeros(4).scatter_add(
        0, x.argmax(1), torch.ones(len(x))
    ),
    "masked_fill": lambda x: x.masked_fill(x > 0, 0.0),
    "tensordot": lambda x: torch.tensordot(x, x, dims=([0], [0])),
    "addmm": lambda x: torch.addmm(torch.ones(3), x, torch.ones(4, 3)),
    "baddbmm": lambda x: torch.baddbmm(torch.ones(1), x[None], torch.ones(1, 4, 3)),
    "fft": lambda x: torch.fft.fft(x, dim=0).abs(),
    "rfft": lambda x: torch.fft.rfft(x, dim=0).abs(),
    "bucketize": lambda x: torch.bucketize(x, torch.tensor([0.0, 1.0])),
    "searchsorted": lambda x: torch.searchsorted(x.sort(1)[0], x),
    "cov": lambda x: torch.cov(x),
    "corrcoef": lambda x: torch.corrcoef(x),
    "trapezoid": lambda x: torch.trapezoid(x, dim=0),
    "item writes": lambda x: x.clone().index_fill_(0, torch.tensor([0]), 1.0),
    "heads": lambda x: x.view(x.size(0), 2, 2).transpose(0, 1).reshape(2, -1),
    "positions": lambda x: (
        x + torch.outer(torch.arange(x.size(0)), 1 / 10 ** torch.arange(0, 4, 1))
    ),
    "window": lambda x: x[: x.size(0) // 2 * 2].view(-1, 2, 4).mean(1),
    "tril_indices": lambda x: x[torch.tril_indices(4, 4)[0]],
    "n // 2": lambda x: x * (x.size(0) // 2),
    "min(n, 16)": lambda x: x * min(x.size(0), 16),
    "torch.tensor(n)": lambda x: x / torch.tensor(float(x.size(0))),
    "range check": lambda x: x if 3 < x.size(0) < 100 else -x,
    "f-string shape check": lambda x: x * 2 if x.shape[1] == 4 else x,
    "view(-1, n)": lambda x: x.reshape(-1, x.size(0)) * 2,
    "mask of arange": lambda x: x * (torch.arange(x.size(0)) < x.size(0) // 2)[:, None],
    "half of a row": lambda x: x.t()[:, : x.size(0) // 2] + 1,
    "chunk(2)": lambda x: sum(c.sum(0) for c in x.chunk(2)),
    "list of chunks": lambda x: torch.stack([c.mean() for c in x.t().chunk(2, 1)]),
    "split(2)": lambda x: [p * 2 for p in x.split(2)],
    "split of sizes": lambda x: x.split([2, x.size(0) - 2])[1],
    "tensor_split": lambda x: x.tensor_split(2)[0],
    "unbind": lambda x: torch.stack([row * 2 for row in x.unbind(0)]),
    "for in range(n)": lambda x: sum(x[i] * i for i in range(x.size(0))),
    "for row in x": lambda x: sum(row.exp() for row in x),
    "pad to a multiple": lambda x: F.pad(x, (0, 0, 0, -x.size(0) % 9)),
    "pad circular": lambda x: F.pad(x.t()[None], (1, 1), mode="circular"),
    "pad images": lambda x: F.pad(x[None, None], (1, 2, 1, 1), mode="reflect"),
    "einsum of batches": lambda x: torch.einsum("bij,bkj->bik", x[None], x[None]),
    "einsum trace": lambda x: torch.einsum("ij,ij->", x, x),
    "F.unfold": lambda x: F.unfold(x[None, None], 2),
    "F.unfold of a batch": lambda x: F.unfold(x.view(-1, 1, 2, 2), (2, 1)),
    "F.fold": lambda x: F.fold(
        F.unfold(x[None, None], 2, padding=1), x.shape, 2, padding=1
    ),
    "max_pool2d ceil": lambda x: F.max_pool2d(x[None], 2, ceil_mode=True),
    "avg_pool2d ceil": lambda x: F.avg_pool2d(x[None], 3, 2, 1, ceil_mode=True),
    "max_pool3d": lambda x: F.max_pool3d(x[None, :, :, None], (2, 2, 1)),
    "adaptive_max_pool2d": lambda x: F.adaptive_max_pool2d(x[None], 2),
    "adaptive_max_pool1d": lambda x: F.adaptive_max_pool1d(x.t(), 2),
    "lp_pool1d": lambda x: F.lp_pool1d(x.t()[None], 2.0, 2),
    "interpolate to 2 n": lambda x: F.interpolate(
        x[None, None], size=(2 * x.size(0), 8), mode="bilinear"
    ),
    "interpolate by 0.5": lambda x: F.interpolate(x[None, None], scale_factor=0.5),
    "interpolate bicubic": lambda x: F.interpolate(
        x[None, None], size=(6, 6), mode="bicubic", align_corners=True
    ),
    "interpolate area": lambda x: F.interpolate(x.t()[None], size=3, mode="area"),
    "triu of ones": lambda x: torch.ones(x.size(0), x.size(0)).triu(1) @ x,
    "causal mask of booleans": lambda x: (x @ x.t()).masked_fill(
        ~torch.tril(torch.ones(x.size(0), x.size(0), dtype=torch.bool)),
        float("-inf"),
    ),
    "causal mask of arange": lambda x: torch.where(
        torch.arange(x.size(0))[:, None] >= torch.arange(x.size(0)), x @ x.t(), 0.0
    ),
    "padding mask": lambda x: (
        (torch.arange(x.size(0))[None] < torch.tensor([[2], [5]])).float() @ x
    ),
    "positional encoding": lambda x: x + _positions(x.size(0), x.size(1)),
    "rotary": lambda x: _rotary(x),
    "alibi": lambda x: (
        x @ x.t()
        - (torch.arange(x.size(0))[None] - torch.arange(x.size(0))[:, None]).abs()
    ),
    "relative positions": lambda x: F.embedding(
        (torch.arange(len(x))[:, None] - torch.arange(len(x))).clamp(-2, 2) + 2,
        torch.ones(5, 2),
    ),
    "kv cache": lambda x: torch.cat([x.new_zeros(2, x.size(1)), x])[: x.size(0)],
    "repeat_interleave n": lambda x: x[:1].repeat_interleave(x.size(0), 0),
    "topk n // 2": lambda x: x.topk(x.size(0) // 2, 0)[0],
    "sort descending": lambda x: x.sort(0, descending=True)[1],
    "one_hot of arange": lambda x: F.one_hot(torch.arange(x.size(0)) % 3, 3) + 0.5,
    "embedding of arange": lambda x: F.embedding(
        torch.arange(x.size(0)), torch.ones(16, 4)
    ),
    "roll n // 2": lambda x: x.roll(x.size(0) // 2, 0),
    "meshgrid of arange": lambda x: torch.stack(
        torch.meshgrid(torch.arange(x.size(0)), torch.arange(x.size(1)), indexing="ij")
    ),
    "zeros(n, n)": lambda x: torch.zeros(x.size(0), x.size(0)) + x[:, :1],
    "new_zeros(n, n)": lambda x: x.new_zeros(x.size(0), x.size(0)) + 1,
    "empty like and fill": lambda x: torch.empty(x.shape).fill_(2.0) * x,
    "conv2d with a stride": lambda x: F.conv2d(
        x[None, None], torch.ones(2, 1, 3, 3), stride=2, padding=1
    ),
    "conv2d of channels": lambda x: F.conv2d(
        x.view(-1, 4, 1, 1), torch.ones(3, 4, 1, 1), torch.ones(3)
    ),
    "conv2d same": lambda x: F.conv2d(
        x[None, None], torch.ones(1, 1, 3, 3), padding="same"
    ),
    "conv_transpose2d": lambda x: F.conv_transpose2d(
        x[None, None], torch.ones(1, 2, 2, 2), stride=2
    ),
    "conv3d": lambda x: F.conv3d(x[None, None, None], torch.ones(1, 1, 1, 2, 2)),
    "group_norm of images": lambda x: F.group_norm(x.t()[None], 2),
    "layer_norm of the last dims": lambda x: F.layer_norm(x, x.shape[-1:]),
    "layer_norm with a weight": lambda x: F.layer_norm(
        x[None], (4,), torch.ones(4), torch.zeros(4)
    ),
    "rms_norm": lambda x: F.rms_norm(x, (4,)),
    "batch_norm of rows": lambda x: F.batch_norm(
        x, torch.zeros(4), torch.ones(4), torch.ones(4), torch.zeros(4)
    ),
    "batch_norm in training": lambda x: F.batch_norm(
        x.t()[None], torch.zeros(4), torch.ones(4), training=True
    ),
    "local_response_norm": lambda x: F.local_response_norm(x.t()[None], 2),
    "sliding windows": lambda x: x.unfold(0, 3, 2).mean(-1),
    "strided windows": lambda x: x.as_strided((x.size(0) - 1, 2, 4), (4, 4, 1)) * 2,
    "pixel_shuffle": lambda x: F.pixel_shuffle(x.view(1, 4, -1, 1), 2),
    "pixel_unshuffle": lambda x: F.pixel_unshuffle(
        x.repeat_interleave(2, 0)[None, None], 2
    ),
    "grid_sample": lambda x: F.grid_sample(
        x[None, None], x[None, :, None, :2], align_corners=False
    ),
    "affine_grid": lambda x: F.affine_grid(
        torch.eye(2, 3)[None], [1, 1, x.size(0), 4], align_corners=False
    ),
    "stft": lambda x: torch.stft(
        x.reshape(-1), 4, window=torch.ones(4), return_complex=True
    ).abs(),
    "irfft": lambda x: torch.fft.irfft(torch.fft.rfft(x, dim=0), x.size(0), dim=0),
    "fft2": lambda x: torch.fft.fft2(x).abs(),
    "inverse": lambda x: torch.linalg.inv(x @ x.t() + 9 * torch.eye(len(x))),
    "cholesky": lambda x: torch.linalg.cholesky(x @ x.t() + 9 * torch.eye(len(x))),
    "solve": lambda x: torch.linalg.solve(x @ x.t() + 9 * torch.eye(len(x)), x),
    "det": lambda x: torch.linalg.det(x @ x.t() / 9 + torch.eye(len(x))),
    "qr": lambda x: torch.linalg.qr(x.exp())[1].abs(),
    "svdvals": lambda x: torch.linalg.svdvals(x),
    "matrix_exp": lambda x: torch.linalg.matrix_exp(x @ x.t() / 9),
    "batch of matrices": lambda x: torch.linalg.inv(
        x.view(-1, 2, 2) + 4 * torch.eye(2)
    ),
    "trace": lambda x: torch.trace(x @ x.t()),
    "pairwise_distance": lambda x: F.pairwise_distance(x, x * 2),
    "pdist": lambda x: F.pdist(x),
    "cosine_similarity": lambda x: F.cosine_similarity(x[:, None], x[None], dim=-1),
    "bilinear": lambda x: F.bilinear(x, x, torch.ones(3, 4, 4)),
    "addmv": lambda x: torch.addmv(x[:, 0], x, x[0]),
    "addr": lambda x: torch.addr(x, x[:, 0], x[0]),
    "multi_dot": lambda x: torch.linalg.multi_dot([x, x.t(), x]),
    "cross_entropy of images": lambda x: F.cross_entropy(
        x.t()[None], x.argmax(1)[None], label_smoothing=0.1
    ),
    "nll_loss of images": lambda x: F.nll_loss(
        x.t().contiguous()[None, :, :, None], x.argmax(1)[None, :, None]
    ),
    "kl_div": lambda x: F.kl_div(
        x.log_softmax(1), (x * 2).softmax(1), reduction="batchmean"
    ),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, (x > 0).float()),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x * 2),
    "huber": lambda x: F.huber_loss(x, x * 3, reduction="none"),
    "multi_margin": lambda x: F.multi_margin_loss(x, x.argmax(1)),
    "triplet": lambda x: F.triplet_margin_loss(x, x * 2, x * 3),
    "cosine_embedding": lambda x: F.cosine_embedding_loss(x, x * 2, torch.ones(len(x))),
    "cumprod": lambda x: x.cumprod(0),
    "nanmedian": lambda x: x.nanmedian(0)[0],
    "median of all": lambda x: x.median(),
    "histc": lambda x: torch.histc(x.detach(), 4),
    "take_along_dim": lambda x: x.take_along_dim(x.argsort(0), 0),
    "take": lambda x: x.take(torch.arange(x.size(0))),
    "put": lambda x: x.put(torch.tensor([0, 1]), torch.ones(2)),
    "index_copy": lambda x: x.index_copy(0, torch.tensor([1]), x[:1]),
    "index_put": lambda x: x.index_put((torch.tensor([1]),), x[0]),
    "scatter_reduce": lambda x: x.scatter_reduce(
        0, torch.zeros(len(x), 4, dtype=torch.long), x, "amax"
    ),
    "scatter_add of rows": lambda x: torch.zeros(3, 4).index_add(
        0, torch.arange(len(x)) % 3, x
    ),
    "gather n": lambda x: x.gather(0, torch.arange(len(x))[:, None].flip(0)),
    "slice_scatter": lambda x: x.slice_scatter(x[1:] * 2, 0, 1),
    "diagonal_scatter": lambda x: (x @ x.t()).diagonal_scatter(x[:, 0]),
    "write to the half": lambda x: _with_half_written(x),
    "block_diag": lambda x: torch.block_diag(x, x),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(-1, 2, 2)).abs(),
    "searchsorted in rows": lambda x: torch.searchsorted(
        torch.tensor([-0.5, 0.5]), x.contiguous()
    ),
    "cartesian mask": lambda x: (
        torch.cartesian_prod(torch.arange(len(x)), torch.arange(2)).sum(1) * 1.0
    ),
    "attention with heads": lambda x: F.scaled_dot_product_attention(
        *(x.view(1, -1, 2, 2).transpose(1, 2) for _ in range(3))
    ),
    "causal attention": lambda x: F.scaled_dot_product_attention(
        *(x.view(1, -1, 2, 2).transpose(1, 2) for _ in range(3)), is_causal=True
    ),
    "attention with a mask": lambda x: F.scaled_dot_product_attention(
        *(x[None, None] for _ in range(3)),
        attn_mask=torch.ones(len(x), len(x), dtype=torch.bool).tril(),
    ),
    "multi-head attention": lambda x: ATTENTION(x[None], x[None], x[None])[0],
    "transformer layer": lambda x: LAYER(x[None]),
    "lstm": lambda x: LSTM(x[None])[0],
    "gru": lambda x: GRU(x[None])[0],
    "lstm cell": lambda x: CELL(x)[0],
    "mlp": lambda x: MLP(x),
    "convolutional net": lambda x: NET(x.view(-1, 1, 2, 2)),
    "embedding bag of sums": lambda x: F.embedding_bag(
        x.argmax(1), torch.ones(4, 3), torch.arange(0, len(x), 2), mode="sum"
    ),
    "linspace(n)": lambda x: torch.linspace(-1, 1, x.size(0))[:, None] * x,
    "randperm": lambda x: x[torch.randperm(x.size(0))],
    "rand": lambda x: x + torch.rand(x.size(0), 1),
    "multinomial": lambda x: x[x.softmax(0)[:, 0].multinomial(2)],
    "dropout in training": lambda x: F.dropout(x, 0.5),
    "gumbel_softmax": lambda x: F.gumbel_softmax(x, hard=True),
    "rounded up": lambda x: x * ((x.size(0) + 3) // 4 * 4),
    "math.sqrt(n)": lambda x: x / math.sqrt(x.size(0)),
    "torch.Size sum": lambda x: x.new_ones((*x.shape, 2)).sum(-1) * x,
    "shape unpacked": lambda x: _unpacked(x),
}


@dataclasses.dataclass
class Visit:
    """What one function did over all sizes."""

    entries: int
    wrong: str = ""
    # How many programs the calls are, whatever the sizes: `pattern_of`.
    patterns: int = 1

    @property
    def again(self) -> bool:
        return self.entries > self.patterns


def pattern_of(args: Any, results: Any) -> tuple[Any, ...]:
    """What is compiled for on its own: which sizes of the arguments are equal, which
    are 0 or 1, there and in the results, and how many results there are."""
    sizes = [n for t in tensors_in(args) for n in t.shape]
    given = [n if n < 2 else ("as", sizes.index(n)) for n in sizes]
    made = [[min(n, 2) for n in t.shape] for t in tensors_in(results)]
    return given, made


def entries_of(compiled: Any) -> int:
    return len(list(framejit.inspect(compiled)))


def visit(
    fn: Callable[..., Any],
    calls: list[tuple[Any, ...]],
    backend: str = "aot_eager",
    dynamic: bool | None = True,
) -> Visit:
    """`calls`: the arguments of each. Gradients of all that takes one."""
    framejit.reset()
    compiled = framejit.compile(fn, dynamic=dynamic, backend=backend)
    patterns: list[Any] = []
    for number, args in enumerate(calls):
        outcomes = [_run(f, args) for f in (fn, compiled)]
        if (pattern := pattern_of(args, outcomes[0])) not in patterns:
            patterns.append(pattern)
        try:
            # The gradient of a norm is rounding and nothing else here.
            assert_same(outcomes[1], outcomes[0], exact={"rtol": 1e-4, "atol": 3e-5})
        except AssertionError as error:
            text = " ".join(str(error).split())[:200]
            return Visit(entries_of(compiled), f"call {number}: {text}")
    return Visit(entries_of(compiled), patterns=len(patterns))


def _run(fn: Callable[..., Any], args: tuple[Any, ...]) -> tuple[Any, Any]:
    torch.manual_seed(1)
    result = fn(*args)
    outputs = [t for t in tensors_in(result) if t.requires_grad]
    leaves = [t for t in tensors_in(args) if t.requires_grad and t.is_leaf]
    if not outputs or not leaves:
        return result, None
    tangents = [torch.ones_like(t) for t in outputs]
    return result, torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def inputs_of_idiom(grad: bool, sizes: tuple[int, ...] = SIZES) -> list[Any]:
    made = [torch.linspace(-1, 1, n * 4).reshape(n, 4) for n in sizes]
    return [(x.requires_grad_(grad),) for x in made]


# ---- torch's own samples

# The sizes that the samples are made of, as the modules that make them have them.
UNIT = 5


def _sample_modules() -> list[Any]:
    from torch.testing._internal import common_methods_invocations as common
    from torch.testing._internal.opinfo import definitions

    names = [m.name for m in pkgutil.iter_modules(definitions.__path__)]
    return [
        common,
        *(importlib.import_module(f"{definitions.__name__}.{n}") for n in names),
    ]


def samples_of(op: Any, size: int) -> list[Any]:
    """The samples of an operator, with S, M and L in proportion to `size`."""
    sizes = {"S": size, "M": 2 * size, "L": 4 * size}
    normal = {"S": UNIT, "M": 2 * UNIT, "L": 4 * UNIT}
    modules = [m for m in _sample_modules() if getattr(m, "S", None) == UNIT]
    torch.manual_seed(0)
    try:
        for module in modules:
            for name, value in sizes.items():
                setattr(module, name, value)
        return list(
            op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd)
        )
    finally:
        for module in modules:
            for name, value in normal.items():
                setattr(module, name, value)


# Their values are whatever the memory holds, or have no strides.
NOT_COMPARED = ("empty", "new_empty", "to_sparse", "empty_like", "new_empty_strided")
# Samples with offsets that are beyond the data at other sizes, which eager follows.
NOT_MADE = (("_segment_reduce", "offsets"),)


def operators() -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return [
        op
        for op in op_db
        if torch.float32 in op.dtypes
        and op.name not in NOT_COMPARED
        and (op.name, op.variant_test_name) not in NOT_MADE
    ]


def calls_of_operator(
    op: Any, sizes: tuple[int, ...] = SIZES
) -> Iterator[tuple[Callable[..., Any], list[tuple[Any, ...]]]]:
    """For each sample whose tensors have another size each time: the function and
    the arguments of its calls. What is no tensor is the same in all of them."""
    warnings.filterwarnings("ignore")
    found = [samples_of(op, size) for size in sizes]
    fn = op.get_op()
    for row in zip(*found, strict=False):
        shapes = [
            [t.shape for t in tensors_in([s.input, s.args, s.kwargs])] for s in row
        ]
        if any(shapes[0] == other for other in shapes[1:]):
            continue
        if len({tuple(map(len, each)) for each in shapes}) > 1:
            continue
        if len({_signature([s.args, s.kwargs]) for s in row}) > 1:
            continue
        rest, kwargs = row[0].args, row[0].kwargs
        places = [i for i, a in enumerate(rest) if _has_tensor(a)]
        names = [k for k, v in kwargs.items() if _has_tensor(v)]
        calls = [
            (s.input, *(s.args[i] for i in places), *(s.kwargs[k] for k in names))
            for s in row
        ]
        # What comes with each call is not also held by the function.
        rest = tuple(None if i in places else a for i, a in enumerate(rest))
        kwargs = {k: None if k in names else v for k, v in kwargs.items()}
        yield _bound(fn, rest, kwargs, places, names), calls


def _has_tensor(value: Any) -> bool:
    return any(True for _ in tensors_in(value))


def _signature(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        return f"{value.dtype}"
    if isinstance(value, (list, tuple)):
        return f"[{','.join(map(_signature, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{k}:{_signature(v)}' for k, v in value.items())}}}"
    return repr(value)


def _bound(
    fn: Callable[..., Any],
    rest: tuple[Any, ...],
    kwargs: dict[str, Any],
    places: list[int],
    names: list[str],
) -> Callable[..., Any]:
    def call(first: Any, *tensors: Any) -> Any:
        args, given = list(rest), dict(kwargs)
        for place, tensor in zip(places, tensors, strict=False):
            args[place] = tensor
        for name, tensor in zip(names, tensors[len(places) :], strict=True):
            given[name] = tensor
        return fn(first, *args, **given)

    return call
