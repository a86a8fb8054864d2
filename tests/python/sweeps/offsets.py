"""Parts of a larger tensor that begin elsewhere at each call, of the same sizes and
strides, and how often what reads them is compiled.

Where a part begins is nothing to most operators: the numbers that say so are symbols
from the second call on, and two entries answer all calls.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from sweeps.sizes import UNIT, samples_of

# Where the part begins in each dim: not at 0, where another program begins, nor at
# one place in two dims.
PLACES = ((2, 3), (3, 2), (4, 3), (2, 4), (5, 2))
ROOM = 8


def _is_image(value: Any) -> bool:
    return (
        isinstance(value, torch.Tensor)
        and value.layout == torch.strided
        and value.dim() >= 2
        and min(value.shape) > 1
    )


def _around(part: torch.Tensor) -> torch.Tensor:
    """A tensor with the part in its middle, wherever that is looked for."""
    sizes = [*part.shape[:-2], part.shape[-2] + ROOM, part.shape[-1] + ROOM]
    return part.new_zeros(sizes)


def crops_of_operator(
    op: Any,
) -> Iterator[tuple[Callable[..., Any], list[tuple[Any, ...]]]]:
    """For each sample of images: a function of a larger tensor and two numbers, and
    the arguments of its calls. The part has the elements of the sample each time."""
    fn = op.get_op()
    for sample in samples_of(op, UNIT):
        part = sample.input
        if not _is_image(part):
            continue
        rows, columns = part.shape[-2:]

        def crop(
            whole: torch.Tensor,
            i: int,
            j: int,
            sample: Any = sample,
            rows: int = rows,
            columns: int = columns,
        ) -> Any:
            part = whole[..., i : i + rows, j : j + columns]
            return fn(part, *sample.args, **sample.kwargs)

        calls = []
        for i, j in PLACES:
            whole = _around(part.detach())
            whole[..., i : i + rows, j : j + columns] = part.detach()
            calls.append((whole.requires_grad_(part.requires_grad), i, j))
        yield crop, calls
