"""Numbers that do not fit: scalar arguments of every operator, on every type.

One compiled function gets ordinary numbers first, so that later they may be
symbols, then the extreme ones; another has the number in its text.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import torch

from sweeps.layouts import users_own
from sweeps.programs import ALL, Part, Program, copies, database

TYPES = (
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
    torch.complex64,
)
ORDINARY = (2, 3, 1.5, 2.5)
EXTREME = (
    1e39,
    -1e39,
    math.inf,
    -math.inf,
    math.nan,
    2**31,
    2**63,
    -(2**63) - 1,
    2**64,
    -1,
    256,
    70000.0,
    True,
    1 + 2j,
    1e39j,
)
# Sizes, counts and places: not operands, and costly when they are extreme.
COUNTS = (
    "arange|linspace|logspace|eye|tri|repeat|tile|rand|full$|zeros|ones|empty|"
    "diff|matrix_power|window|pad|unfold|interpolate|pool|multinomial|bincount|"
    "histc|upsample|kaiser|polygamma|vander|combinations|stft|fft|as_strided|"
    "conv|one_hot|resize|expand|reshape|view|split|chunk|narrow|select|roll|rot90"
)


def slots_of(sample: Any) -> Iterator[tuple[str, Any]]:
    """(where, value) of arguments that are numbers, or could be."""
    for i, value in enumerate(sample.args):
        if isinstance(value, (bool, int, float, complex)) or (
            isinstance(value, torch.Tensor) and value.dtype != torch.bool
        ):
            yield f"args[{i}]", value
    for key, value in sample.kwargs.items():
        if isinstance(value, (int, float, complex)) and not isinstance(value, bool):
            yield f"kwargs[{key!r}]", value


def replaced(sample: Any, slot: str, number: Any) -> tuple[Any, Any, Any]:
    x, args, kwargs = copies((sample.input, list(sample.args), dict(sample.kwargs)))
    exec(f"{slot} = number", {"args": args, "kwargs": kwargs, "number": number})
    return x, args, kwargs


def samples_of(op: Any, dtype: torch.dtype, limit: int) -> Iterator[Any]:
    found = 0
    for sample in op.sample_inputs("cpu", dtype):
        x = sample.input
        if not isinstance(x, torch.Tensor) or x.numel() > 500:
            continue
        yield sample
        found += 1
        if found >= limit:
            return


def operators(part: Part = ALL) -> Iterator[tuple[str, Any, Any]]:
    import re

    for op in database(part):
        name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
        if re.search(COUNTS, name):
            continue
        yield name, op, users_own(op.get_op())
        if op.get_inplace() is not None:
            yield name + "_", op, op.get_inplace()


def programs(limit: int = 3, part: Part = ALL) -> Iterator[Program]:
    for name, op, fn in operators(part):
        for dtype in TYPES:
            if dtype not in op.dtypes:
                continue
            torch.manual_seed(0)
            seen = set()
            try:
                samples = list(samples_of(op, dtype, limit))
            except Exception:
                continue
            for sample in samples:
                for slot, value in slots_of(sample):
                    if (slot, type(value)) in seen:
                        continue
                    seen.add((slot, type(value)))
                    label = f"{name} {str(dtype)[6:]} {slot} {type(value).__name__}"
                    yield from both(label, fn, sample, slot)


def both(label: str, fn: Any, sample: Any, slot: str) -> Iterator[Program]:
    numbers = (*ORDINARY, *EXTREME)
    yield Program(
        f"{label} argument",
        "def f(x, args, kwargs):\n    return call(x, *args, **kwargs), x\n",
        lambda: replaced(sample, slot, 2),
        {"call": fn},
        backward=False,
        calls=[lambda n=n: replaced(sample, slot, n) for n in numbers],
    )
    for number in EXTREME:
        yield Program(
            f"{label} {number}",
            "def f(x, args, kwargs):\n"
            "    args = list(args)\n"
            "    kwargs = dict(kwargs)\n"
            f"    {slot} = {number_text(number)}\n"
            "    return call(x, *args, **kwargs), x\n",
            lambda: replaced(sample, slot, 2),
            {"call": fn, "inf": math.inf, "nan": math.nan},
            backward=False,
            calls=[lambda: replaced(sample, slot, 2)] * 2,
        )


def number_text(number: Any) -> str:
    return repr(number)


WRITES = {
    "item": "    x[1] = n\n    return x + 1",
    "slice": "    x[1:] = n\n    return x",
    "mask": "    x[m] = n\n    return x",
    "fill_": "    x.fill_(n)\n    return x",
    "full": "    return torch.full((2, 2), n, dtype=x.dtype)",
    "full_like": "    return torch.full_like(x, n)",
    "new_full": "    return x.new_full((2,), n)",
    "masked_fill": "    return x.masked_fill(m, n)",
    "where": "    return torch.where(m, x, n), torch.where(m, n, x)",
    "clamp": "    return x.clamp(n), x.clamp(max=n)",
    "clamp_min_max": "    return torch.clamp(x, min=-n, max=n)",
    "tensor": "    return x + torch.tensor(n)",
    "tensor_dtype": "    return torch.tensor(n, dtype=x.dtype)",
    "scalar_tensor": "    return torch.scalar_tensor(n, dtype=x.dtype) + x",
    "radd": "    return n + x, n - x, n * x",
    "rdiv": "    return n / x, x / n",
    "floordiv": "    return x // n, x % n",
    "power": "    return x**n, n**x",
    "compare": "    return x < n, x == n, n >= x",
    "bitand": "    return x & n, x | n, x ^ n",
    "shift": "    return x << n, x >> n",
    "add_alpha": "    return torch.add(x, x, alpha=n)",
    "sub_alpha": "    return torch.sub(x, x, alpha=n)",
    "addcmul": "    return torch.addcmul(x, x, x, value=n)",
    "lerp": "    return torch.lerp(x, x + 1, n)",
    "index_fill": "    return x.index_fill(0, torch.tensor([0]), n)",
    "scatter": "    return x.scatter(0, torch.tensor([0]), n)",
    "pad": "    return torch.nn.functional.pad(x, (1, 1), value=n)",
    "threshold": "    return torch.nn.functional.threshold(x, n, n)",
    "hardtanh": "    return torch.nn.functional.hardtanh(x, -n, n)",
    "leaky": "    return torch.nn.functional.leaky_relu(x, n)",
    "iadd": "    x += n\n    return x",
    "imul": "    x *= n\n    return x",
    "nan_to_num": "    return torch.nan_to_num(x, n)",
    "remainder": "    return torch.remainder(x, n), torch.fmod(x, n)",
    "arange": "    return torch.arange(3, dtype=x.dtype) * n",
    "isclose": "    return torch.isclose(x, x, rtol=n)",
    "cast": "    return (x * n).to(torch.int8), (x * n).to(torch.float16)",
    "sum": "    return (x * n).sum()",
}


def assignments() -> Iterator[Program]:
    """The common forms, with the number as an argument and in the text."""
    for name, body in WRITES.items():
        for dtype in TYPES:

            def make(n: Any = 2, dtype: torch.dtype = dtype) -> tuple[Any, ...]:
                x = torch.tensor([1, 0, 1]).to(dtype)
                return x, torch.tensor([True, False, True]), n

            label = f"{name} {str(dtype)[6:]}"
            numbers = (*ORDINARY, *EXTREME)
            yield Program(
                f"{label} argument",
                f"def f(x, m, n):\n{body}\n",
                make,
                calls=[lambda n=n, make=make: make(n) for n in numbers],
            )
            for number in EXTREME:
                yield Program(
                    f"{label} {number}",
                    f"def f(x, m, n):\n    n = {number_text(number)}\n{body}\n",
                    make,
                    {"inf": math.inf, "nan": math.nan},
                )
