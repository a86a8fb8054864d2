"""out=: every operator that has one, with every kind of `out`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

from sweeps.programs import ALL, Part, Program, copies, database, tensors_in


def _strided(like: torch.Tensor) -> torch.Tensor:
    wide = torch.zeros([*like.shape, 2], dtype=like.dtype)
    return wide[..., 0]


def _bigger(like: torch.Tensor) -> torch.Tensor:
    return torch.zeros([*like.shape, 2], dtype=like.dtype)


def _other(like: torch.Tensor, *types: torch.dtype) -> torch.Tensor:
    dtype = next(t for t in types if t != like.dtype)
    return torch.zeros(like.shape, dtype=dtype)


def _turned(like: torch.Tensor) -> torch.Tensor:
    turned = torch.zeros([*reversed(like.shape)], dtype=like.dtype)
    return turned.permute([*reversed(range(like.dim()))])


def _part(like: torch.Tensor) -> torch.Tensor:
    return torch.zeros(like.numel() + 5, dtype=like.dtype)[3:-2].view(like.shape)


# How an `out` is made, given the result it is for.
KINDS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "fits": lambda t: torch.zeros(t.shape, dtype=t.dtype),
    "empty": lambda t: torch.empty(0, dtype=t.dtype),
    "bigger": _bigger,
    "one": lambda t: torch.zeros(1, dtype=t.dtype),
    "double": lambda t: _other(t, torch.float64, torch.float32),
    "integer": lambda t: _other(t, torch.int32, torch.int64),
    "complex": lambda t: _other(t, torch.complex64, torch.complex128),
    "bool": lambda t: _other(t, torch.bool, torch.uint8),
    "strided": _strided,
    "turned": _turned,
    "part": _part,
    "expanded": lambda t: torch.zeros((), dtype=t.dtype).expand(t.shape),
    "requires_grad": lambda t: torch.zeros(
        t.shape, dtype=t.dtype if t.is_floating_point() else torch.float32
    ).requires_grad_(),
}

PLACES = ("argument", "fresh", "is_input", "twice", "view_of_input")


def operators(part: Part = ALL) -> Iterator[tuple[str, Any, Any, bool]]:
    """(name, function, sample, by elements) of torch's operators that have an out=."""
    from torch.testing._internal.common_methods_invocations import (
        BinaryUfuncInfo,
        UnaryUfuncInfo,
    )

    for op in database(part):
        if not op.supports_out or torch.float32 not in op.dtypes:
            continue
        if op.name.startswith(("empty", "new_empty", "_refs", "_upsample")):
            continue
        for sample in op.sample_inputs("cpu", torch.float32):
            try:
                result = op.get_op()(sample.input, *sample.args, **sample.kwargs)
            except Exception:
                continue
            tensors = list(tensors_in(result))
            given = list(tensors_in((sample.input, sample.args, sample.kwargs)))
            if any(t.layout is not torch.strided for t in given + tensors):
                continue
            if not tensors or any(t.numel() == 0 for t in tensors):
                continue
            name = op.name
            if op.variant_test_name:
                name += f".{op.variant_test_name}"
            elementwise = isinstance(op, (BinaryUfuncInfo, UnaryUfuncInfo))
            yield name, op.get_op(), sample, elementwise
            break


def programs(part: Part = ALL) -> Iterator[Program]:
    for name, fn, sample, elementwise in operators(part):
        for kind in KINDS:
            # Others write past the end of such a tensor.
            if kind == "expanded" and not elementwise:
                continue
            yield one(f"{name} {kind}", fn, sample, KINDS[kind], "argument")
        for place in PLACES[1:]:
            # What others make of it depends on what was in memory.
            if place in ("is_input", "twice", "view_of_input") and not elementwise:
                continue
            yield one(f"{name} {place}", fn, sample, KINDS["fits"], place)
        for kind in ("empty", "bigger", "double"):
            yield one(f"{name} fresh {kind}", fn, sample, KINDS[kind], "fresh")


def one(name: str, fn: Any, sample: Any, kind: Any, place: str) -> Program:
    torch.manual_seed(3)
    result = fn(sample.input, *sample.args, **sample.kwargs)
    single = isinstance(result, torch.Tensor)
    lines = ["def f(out, x, args, kwargs):"]
    if place == "fresh":
        lines.append(
            "    out = [o * 1 for o in out]" if not single else "    out = out * 1"
        )
    if not single:
        lines.append("    out = tuple(out)")
    if place == "is_input":
        lines.append("    out = x" if single else "    out = (x, *out[1:])")
    elif place == "twice":
        lines.append(
            "    args = (out, *args[1:])"
            if single
            else "    out = (out[0], out[0], *out[2:])"
        )
    elif place == "view_of_input":
        lines.append("    out = x.view(-1).view_as(x)" if single else "    pass")
    lines += [
        "    r = call(x, *args, out=out, **kwargs)",
        "    return r, out, r is out, "
        + ("out + 1" if single else "[o + 1 for o in out]"),
    ]

    def make_args() -> tuple[Any, ...]:
        outs = [kind(t) for t in tensors_in(result)]
        x, args, kwargs = copies((sample.input, sample.args, sample.kwargs))
        return (outs[0] if single else outs), x, args, kwargs

    source = "\n".join(lines) + "\n"
    return Program(name, source, make_args, {"call": fn}, backward=False)
