"""Arguments that do not go together: torch's samples with one thing changed.

Each argument in turn, also within lists, gets another type, other sizes, another
value, or goes. Most of it eager refuses, with a text of its own; what it takes
must be taken in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch

from sweeps.layouts import users_own
from sweeps.programs import ALL, Part, Program, copies, database

TYPES = (
    torch.bool,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.float32,
    torch.float64,
    torch.complex64,
)
SIZES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "first of dim 0": lambda t: t[0],
    "a dim in front": lambda t: t[None],
    "a dim behind": lambda t: t[..., None],
    "shorter at the front": lambda t: t[:-1],
    "shorter at the end": lambda t: t[..., :-1],
    "longer at the front": lambda t: torch.cat([t, t[:1]]),
    "longer at the end": lambda t: torch.cat([t, t[..., :1]], -1),
    "one at the front": lambda t: t[:1],
    "one at the end": lambda t: t[..., :1],
    "nothing": lambda t: t[:0],
    "flat": lambda t: t.reshape(-1),
    "scalar": lambda t: t.reshape(-1)[0],
}
VALUES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "all 2": lambda t: torch.full_like(t, 2),
    "all -1": lambda t: torch.full_like(t, -1),
    "all 100": lambda t: torch.full_like(t, 100),
    "all 0": lambda t: torch.zeros_like(t),
}
NUMBERS = (-100, -1, 0, 1, 2, 3, 100, -0.5, 0.0, 0.5, 1.0, math.nan, math.inf, True)
TEXTS = ("", "x", "none", "tanh", "sum", "floor")
# What takes long, or may be anything, for extreme numbers; and what crashes.
LEFT_OUT = (
    "empty|resize|matrix_power|multigammaln|polygamma|_foreach|_with_update|lu_unpack"
    "|grid_sampler_|pad.circular|embedding_bag|_segment_reduce"
)

Slot = tuple[str, Any]  # as text of Python over (x, args, kwargs); what is there


def slots_of(value: Any, path: str) -> Iterator[Slot]:
    if isinstance(value, (list, tuple)) and not isinstance(value, torch.Size):
        yield path, value
        for i, item in enumerate(value):
            yield from slots_of(item, f"{path}[{i}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from slots_of(item, f"{path}[{key!r}]")
    else:
        yield path, value


def changes_of(value: Any) -> Iterator[tuple[str, Any]]:
    """(what it is, what comes in its place)"""
    if isinstance(value, torch.Tensor):
        t = value.detach()
        for dtype in TYPES:
            if dtype != t.dtype:
                yield str(dtype)[6:], t.to(dtype)
        for changes in (SIZES, VALUES):
            for name, change in changes.items():
                try:
                    yield name, change(t)
                except Exception:
                    continue
        yield "None", None
        yield "a number", 1.5
        return
    if isinstance(value, (list, tuple)):
        yield "empty", value[:0]
        yield "shorter", value[:-1]
        yield "longer", (*value, *value[-1:])
        if all(isinstance(item, int) for item in value):
            yield "a number", 1
    if isinstance(value, (bool, int, float)) or value is None:
        for number in NUMBERS:
            if number is not value:
                yield repr(number), number
        yield "text", "x"
    if isinstance(value, str):
        for text in TEXTS:
            yield repr(text), text
    if value is not None:
        yield "None", None


def replaced(value: Any, path: list[Any], by: Any) -> Any:
    if not path:
        return by
    key, *rest = path
    if isinstance(value, dict):
        return {**value, key: replaced(value[key], rest, by)}
    items = list(value)
    items[key] = replaced(items[key], rest, by)
    return type(value)(items)


def keys_of(slot: str) -> list[Any]:
    return [eval(part) for part in slot.replace("]", "").split("[")[1:]]


SOURCE = """\
def f(x, args, kwargs):
    return call(x, *args, **kwargs)
"""


def programs(limit: int = 1, part: Part = ALL) -> Iterator[Program]:
    import re

    for op in database(part):
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if torch.float32 not in op.dtypes or re.search(LEFT_OUT, name):
            continue
        torch.manual_seed(0)
        try:
            samples = list(op.sample_inputs("cpu", torch.float32, requires_grad=False))
        except Exception:
            continue
        small = [s for s in samples if is_small((s.input, s.args, s.kwargs))]
        step = max(1, len(small) // limit)
        # The last ones have the most arguments.
        for number, sample in enumerate([*reversed(small)][::step][:limit]):
            given = [sample.input, tuple(sample.args), dict(sample.kwargs)]
            yield from changed(f"{name} {number}", users_own(op.get_op()), given)


def is_small(value: Any) -> bool:
    if isinstance(value, torch.Tensor):
        return value.layout is torch.strided and value.numel() <= 2000
    if isinstance(value, (list, tuple)):
        return all(map(is_small, value))
    return not isinstance(value, dict) or all(map(is_small, value.values()))


def changed(name: str, fn: Any, given: list[Any]) -> Iterator[Program]:
    for slot, value in slots_of(given, ""):
        if slot == "":
            continue
        for what, by in changes_of(value):
            if slot in ("[1]", "[2]"):
                continue

            def make(slot: str = slot, by: Any = by) -> tuple[Any, ...]:
                return tuple(copies(replaced(given, keys_of(slot), by)))

            yield Program(
                f"{name} {slot} {what}",
                SOURCE,
                make,
                {"call": fn},
                backward=False,
                calls=[make],
            )
