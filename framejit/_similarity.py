"""`torch.cosine_similarity` without a write that autograd does not see.

ATen bounds the norms from below by a write in place under no_grad: their gradient is
passed on as if they had not been bounded. A graph without writes has no such thing, so
here is one with the same values (native/Distance.cpp) and the same gradients.
"""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["cosine_similarity"]


def _bounded(norm: Any, eps: Any) -> Any:
    """At least eps; the gradient goes through as it is."""
    return torch.where(norm < eps, norm - norm.detach() + eps, norm)


def cosine_similarity(x1: Any, x2: Any, dim: Any = 1, eps: Any = 1e-8) -> Any:
    plain = x1.dtype == x2.dtype and x1.is_floating_point() and type(eps) is float
    if not plain or type(dim) is not int or eps < 0:
        return torch._C._VariableFunctions.cosine_similarity(x1, x2, dim, eps)  # type: ignore[attr-defined]
    x1, x2 = torch.broadcast_tensors(x1, x2)  # type: ignore[no-untyped-call]
    first = torch.linalg.vector_norm(x1, 2, [dim], True)
    second = torch.linalg.vector_norm(x2, 2, [dim], True)
    return (x1 / _bounded(first, eps)).mul(x2 / _bounded(second, eps)).sum(dim)
