"""`mark_dynamic` and its kin: what the user knows of the sizes to come.

The marks are kept on the tensor; those of ``torch._dynamo``'s functions of the
same names are respected, too. They matter when a call is compiled: an entry that
fits the call answers it, marks or not.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

_Dims = int | Sequence[int]


def _dims_of(x: torch.Tensor, dims: _Dims | None) -> Sequence[int]:
    if not isinstance(x, torch.Tensor):
        raise TypeError(f"framejit: expected a tensor, got {type(x).__name__}")
    if dims is None:
        return range(x.dim())
    found = (dims,) if isinstance(dims, int) else dims
    if isinstance(found, str) or not all(isinstance(dim, int) for dim in found):
        raise TypeError(f"framejit: expected the number of a dimension, got {dims!r}")
    return found


def _mark(
    x: torch.Tensor,
    dims: _Dims | None,
    kind: str,
    low: int | None = None,
    high: int | None = None,
    stride: bool = False,
) -> None:
    for dim in _dims_of(x, dims):
        if not -x.dim() <= dim < x.dim():
            raise IndexError(
                f"framejit: dim {dim} of a tensor with {x.dim()} dimensions"
            )
        name = "_framejit_strides" if stride else "_framejit_dims"
        marks = x.__dict__.setdefault(name, {})
        at = dim % x.dim()
        # A static mark is weaker than a dynamic one, as in torch.
        if kind != "static" or marks.get(at, ("static",))[0] == "static":
            marks[at] = (kind, low, high)


def mark_dynamic(
    x: torch.Tensor,
    dim: _Dims,
    *,
    min: int | None = None,
    max: int | None = None,
    stride: bool = False,
) -> None:
    """The size of ``dim`` will change: it is symbolic from the first call on.

    Where the program forces it to one number after all (or it is 0 or 1 now,
    which are programs of their own), a call compiled with ``fullgraph=True``
    raises `ConstraintViolationError`; any other is compiled for that number,
    and the ``recompiles`` log says why.

    Args:
        x: a tensor that will be an argument, or is reached from one.
        dim: a dimension, or several.
        min, max: bounds (inclusive) the compiled code may rely on. A size
            beyond them is compiled on its own.
        stride: the mark is of the stride of ``dim``. One that follows from
            sizes is as symbolic as these are.
    """
    if min is not None and max is not None and min > max:
        raise ValueError(f"framejit.mark_dynamic: min {min} is above max {max}")
    _mark(x, dim, "dynamic", min, max, stride)


def maybe_mark_dynamic(x: torch.Tensor, dim: _Dims) -> None:
    """`mark_dynamic`, but without complaint where it cannot be had."""
    _mark(x, dim, "maybe")


def mark_static(
    x: torch.Tensor, dim: _Dims | None = None, *, stride: bool = False
) -> None:
    """The size of ``dim`` (None: of every dimension) is never made symbolic.

    Not by ``dynamic=True``, and not after it changed: each size is compiled.
    With ``stride=True`` its stride, which is no symbol of its own then.
    """
    _mark(x, dim, "static", stride=stride)
