"""Strides of results and gradients: torch's operators on every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from sweeps.programs import ALL, Part, Program, database

Layout = Callable[[torch.Tensor], torch.Tensor]


def _permuted(t: torch.Tensor) -> torch.Tensor:
    dims = [*reversed(range(t.dim()))]
    return t.permute(dims).contiguous().permute(dims)


def _sliced(t: torch.Tensor) -> torch.Tensor:
    if t.dim() == 0:
        return t.clone()
    wide = torch.stack([t, t], -1).flatten(-2)
    return wide[..., ::2]


def _channels_last(t: torch.Tensor) -> torch.Tensor:
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.contiguous(memory_format=formats.get(t.dim(), torch.contiguous_format))


def _expanded(t: torch.Tensor) -> torch.Tensor:
    if t.dim() == 0 or t.shape[0] == 0:
        return t.clone()
    return t[:1].clone().expand(t.shape)


def _offset(t: torch.Tensor) -> torch.Tensor:
    memory = torch.cat([t.new_zeros(3), t.reshape(-1), t.new_zeros(2)])
    return memory[3 : 3 + t.numel()].view(t.shape)


def _one(t: torch.Tensor) -> torch.Tensor:
    """A dimension of size 1 with a stride of its own."""
    if t.dim() == 0 or t.shape[-1] == 0:
        return t.clone()
    return torch.stack([t, t], -1).narrow(-1, 0, 1).squeeze(-1)


def _rolled(t: torch.Tensor) -> torch.Tensor:
    """Dims nested in another order that is not the reverse."""
    if t.dim() < 2:
        return t.clone()
    return t.movedim(0, -1).contiguous().movedim(-1, 0)


LAYOUTS: dict[str, Layout] = {
    "plain": lambda t: t.clone(),
    "permuted": _permuted,
    "rolled": _rolled,
    "channels_last": _channels_last,
    "sliced": _sliced,
    "expanded": _expanded,
    "offset": _offset,
    "one": _one,
}


def laid_out(value: Any, layout: Layout) -> Any:
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            raise NotImplementedError("not a strided tensor")
        made = layout(value.detach()).detach()
        return made.requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(laid_out(item, layout) for item in value)
    if type(value) is dict:
        return {key: laid_out(item, layout) for key, item in value.items()}
    return value


def users_own(fn: Any) -> Any:
    """A lambda of the database as if it were the program's."""
    import types

    if not isinstance(fn, types.FunctionType) or "<lambda>" not in fn.__qualname__:
        return fn
    names = {**fn.__globals__, "__name__": "samples"}
    names["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)
    made = types.FunctionType(
        fn.__code__, names, fn.__name__, fn.__defaults__, fn.__closure__
    )
    made.__kwdefaults__ = fn.__kwdefaults__
    made.__module__ = "samples"
    return made


def operators(
    limit: int, grad: bool = True, part: Part = ALL
) -> Iterator[tuple[str, Any, Any, int]]:
    for op in database(part):
        if torch.float32 not in op.dtypes or "empty" in op.name:
            continue
        name = op.name
        if op.variant_test_name:
            name += f".{op.variant_test_name}"
        wants = grad and op.supports_autograd
        samples = op.sample_inputs("cpu", torch.float32, requires_grad=wants)
        for number, sample in enumerate(samples):
            if number >= limit:
                break
            yield name, users_own(op.get_op()), sample, number


SOURCE = """\
def f(x, args, kwargs):
    return call(x, *args, **kwargs)
"""
AROUND = """\
def f(x, args, kwargs):
    x = x * 1 if x.is_floating_point() else x
    r = call(x, *args, **kwargs)
    return r, after(r)
"""


def after(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value * 2 if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return [after(item) for item in value]
    return value


def programs(
    limit: int = 1,
    tangents: str = "like",
    layouts: list[str] | None = None,
    part: Part = ALL,
) -> Iterator[Program]:
    for name, fn, sample, number in operators(limit, part=part):
        for layout in layouts or LAYOUTS:
            for source in (SOURCE, AROUND):

                def make_args(sample: Any = sample, layout: str = layout) -> Any:
                    made = (sample.input, sample.args, sample.kwargs)
                    return laid_out(made, LAYOUTS[layout])

                try:
                    make_args()
                except Exception:
                    continue
                if source is AROUND and not isinstance(sample.input, torch.Tensor):
                    continue
                where = " inside" if source is AROUND else ""
                yield Program(
                    f"{name} {number} {layout}{where}",
                    source,
                    make_args,
                    {"call": fn, "after": after},
                    tangents=tangents,
                )
