"""What torch's own composites do that read elements of what they have made.

ATen makes a tensor of a number (the `q` of a quantile, the degrees of freedom of a
covariance) and reads whether it is in range. The number is known here: the functions
of READERS call the same operators in the same order (ATen's Sorting.cpp and
Correlation.cpp) and read nothing. What they do not do exactly, errors among it, they
leave to the call itself; a number in a tensor of the program is read there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _own(name: str) -> Any:
    return getattr(torch._C._VariableFunctions, name)


_LARGEST_QUANTILE = 2**24  # elements: ATen computes ranks in float


def _quantile(name: str) -> Callable[..., Any]:
    """torch.quantile or nanquantile of a number `q`; ATen makes a tensor of it first
    and reads whether that is in [0, 1]."""

    def quantile(
        input: Any,
        q: Any,
        dim: Any = None,
        keepdim: Any = False,
        *,
        interpolation: Any = "linear",
    ) -> Any:
        rank = input.dim()
        if (
            type(q) not in (float, int)
            or not 0 <= q <= 1
            or not (dim is None or type(dim) is int)
            or (dim is not None and not -max(rank, 1) <= dim < max(rank, 1))
            or type(keepdim) is not bool
            or interpolation not in _ROUNDINGS
            or input.dtype not in (torch.float32, torch.float64)
            or any(size == 0 for size in input.shape)
        ):
            own = _own(name)
            return own(input, q, dim, keepdim, interpolation=interpolation)
        if dim is None:
            rows = input.flatten()
            kept = [1] * rank if keepdim else []
        else:
            dim = dim % max(rank, 1)
            last = dim == rank - 1
            rows = input if last else input.unsqueeze(-1).transpose(dim, -1)
            kept = [*input.shape]
            kept[dim : dim + 1] = [1] if keepdim and rank else []
        count = rows.shape[-1]
        if count > _LARGEST_QUANTILE:
            raise RuntimeError("quantile() input tensor is too large")
        found = rows.sort().values.view([*kept, count])
        wanted = torch.scalar_tensor(q, dtype=input.dtype, device=input.device)
        if name == "nanquantile":
            ranks = wanted * (found.isnan().logical_not_().sum(-1, True) - 1)
            ranks.masked_fill_(ranks < 0, 0)
        else:
            ranks = wanted * (count - 1)
            nan = found.isnan().any(-1, True)
            ranks = ranks.expand(nan.shape).masked_fill(nan, count - 1)
        rounding = _ROUNDINGS[interpolation]
        if rounding:
            ranks = getattr(ranks, rounding)()
        below = ranks.to(torch.int64)
        values = found.gather(-1, below)
        if not rounding:
            midpoint = interpolation == "midpoint"
            weights = torch.full_like(ranks, 0.5) if midpoint else ranks - below
            above = ranks.ceil_().to(torch.int64)
            values.lerp_(found.gather(-1, above), weights)
        return values.squeeze_(-1)

    return quantile


# interpolation= -> how ranks are rounded; None: between two elements.
_ROUNDINGS = {
    "linear": None,
    "midpoint": None,
    "lower": "floor_",
    "higher": "ceil_",
    "nearest": "round_",
}


def cov(
    input: Any, *, correction: Any = 1, fweights: Any = None, aweights: Any = None
) -> Any:
    """Without weights the degrees of freedom are a number: ATen makes a tensor of it
    and reads whether that is positive."""
    known = input.shape[-1] if input.dim() else 1
    if (
        fweights is not None
        or aweights is not None
        or type(correction) is not int
        or input.dim() > 2
        or input.dtype is torch.bool
        or known - correction <= 0
    ):
        own = _own("cov")
        given = {"fweights": fweights, "aweights": aweights}
        return own(input, correction=correction, **given)
    rows = input.view(1, -1) if input.dim() < 2 else input

    def number(value: Any) -> Any:
        return torch.scalar_tensor(value, dtype=torch.int64, device=input.device)

    apart = rows - (rows.sum(1) / number(known)).unsqueeze(1)
    products = apart.mm(apart.t().conj())
    return torch.true_divide(products, number(known - correction)).squeeze()


def corrcoef(input: Any) -> Any:
    known = input.shape[-1] if input.dim() else 1
    if input.dim() > 2 or input.dtype is torch.bool or known <= 1:
        return _own("corrcoef")(input)
    found = cov(input)
    if found.dim() == 0:
        return found / found
    diagonal = found.diagonal()
    deviations = (diagonal.real if found.is_complex() else diagonal).sqrt()
    found = found / deviations.view(-1, 1)
    found = found / deviations.view(1, -1)
    if found.is_complex():
        return torch.complex(found.real.clip(-1, 1), found.imag.clip(-1, 1))
    return found.clip(-1, 1)


READERS: dict[str, Callable[..., Any]] = {
    f"{owner}.{name}": function
    for owner in ("_C._VariableFunctions", "Tensor")
    for name, function in (
        ("quantile", _quantile("quantile")),
        ("nanquantile", _quantile("nanquantile")),
        ("cov", cov),
        ("corrcoef", corrcoef),
    )
}
