"""Operators on tensors of two types, in layouts that a type check may forget.

An operator refuses some mixtures of types (lerp of integers and floats) and takes
others, whatever the layout of its arguments.
"""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch
from torch.testing._internal.common_methods_invocations import op_db

LAYOUTS = {
    "dense": lambda t: t,
    "overlapping": lambda t: t.as_strided((3, 3), (1, 1)),
    "expanded": lambda t: t[:1].expand(3, 3),
    "sliced": lambda t: torch.cat((t, t), 1)[:, ::2],
    "transposed": lambda t: t.t(),
}
TYPES = [torch.float32, torch.int64, torch.bool, torch.float64, torch.bfloat16]


@functools.cache
def operators() -> list[tuple[Any, int]]:
    """Of two or three tensors of the same size, and nothing else, with how many.

    Asked by a test and not where tests are collected: each of them is called.
    """
    seen, found = set(), []
    for op in op_db:
        if op.name in seen:
            continue
        seen.add(op.name)
        for tensors in (2, 3):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    result = op.op(*[torch.ones(3, 3) for _ in range(tensors)])
            except Exception:
                continue
            if isinstance(result, torch.Tensor) and result.shape == (3, 3):
                found.append((op, tensors))
    return found


def arguments(tensors: int, layout: str, first: torch.dtype, other: torch.dtype) -> Any:
    made = [torch.arange(1.0, 10.0).view(3, 3) for _ in range(tensors)]
    types = [first, *[other] * (tensors - 1)]
    found = [t.to(dtype) for t, dtype in zip(made, types, strict=True)]
    found[0] = LAYOUTS[layout](found[0])
    return found
