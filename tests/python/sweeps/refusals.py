"""Calls that eager refuses for the values it is given, their sizes or types.

The result may be unused: the refusal is an effect. The compiled function is
called with what is fine first.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch

from sweeps.layouts import operators, users_own
from sweeps.programs import ALL, Part, Program, copies, database

Change = Callable[[torch.Tensor], torch.Tensor]


def _filled(t: torch.Tensor, number: float, only: str) -> torch.Tensor:
    kind = "float" if t.is_floating_point() or t.is_complex() else "int"
    if t.dtype == torch.bool or (only and kind != only):
        return t
    if kind == "int" and (number != number or abs(number) == float("inf")):
        return t
    with torch.no_grad():
        return t.fill_(number)


CHANGES: dict[str, Change] = {
    "zero": lambda t: _filled(t, 0, ""),
    "zero_float": lambda t: _filled(t, 0, "float"),
    "zero_int": lambda t: _filled(t, 0, "int"),
    "minus_one": lambda t: _filled(t, -1, ""),
    "index_high": lambda t: _filled(t, 100, "int"),
    "index_low": lambda t: _filled(t, -100, "int"),
    "nan": lambda t: _filled(t, float("nan"), "float"),
    "inf": lambda t: _filled(t, float("inf"), "float"),
    "large": lambda t: _filled(t, 1e30, "float"),
}


def changed(value: Any, change: Change) -> Any:
    if isinstance(value, torch.Tensor):
        return change(value)
    if type(value) in (list, tuple):
        return type(value)(changed(item, change) for item in value)
    if type(value) is dict:
        return {key: changed(item, change) for key, item in value.items()}
    return value


def empty(t: torch.Tensor) -> torch.Tensor:
    if t.layout is not torch.strided:
        return t
    made = t.detach()[:0] if t.dim() else t.detach()
    return made.clone().requires_grad_(t.requires_grad)


UNUSED = """\
def f(x, y, args, kwargs):
    y.add_(1)
    call(x, *args, **kwargs)
    return y * 2
"""
USED = """\
def f(x, y, args, kwargs):
    y.add_(1)
    r = call(x, *args, **kwargs)
    return y * 2, r
"""


def programs(limit: int = 1, part: Part = ALL) -> Iterator[Program]:
    for name, fn, sample, number in operators(limit, grad=False, part=part):
        for source in (UNUSED, USED):
            how = "unused" if source is UNUSED else "used"

            def make(
                change: Change | None = None, sample: Any = sample
            ) -> tuple[Any, ...]:
                x, args, kwargs = copies((sample.input, sample.args, sample.kwargs))
                if change is not None:
                    x, args, kwargs = changed((x, args, kwargs), change)
                return x, torch.ones(3), args, kwargs

            calls = [make, *(lambda c=c, m=make: m(c) for c in CHANGES.values())]
            names = {"call": fn}
            yield Program(f"{name} {number} {how}", source, make, names, calls=calls)
            yield Program(
                f"{name} {number} {how} empty",
                source,
                lambda make=make: make(empty),
                names,
            )
    yield from database_errors(part)
    yield from module_errors()


TYPES = (
    torch.bool,
    torch.uint8,
    torch.int64,
    torch.float32,
    torch.bfloat16,
    torch.complex64,
)


def types(limit: int = 1, part: Part = ALL) -> Iterator[Program]:
    """Of every type, unused: the first tensor, or all of them."""
    for name, fn, sample, number in operators(limit, grad=False, part=part):
        for dtype in TYPES:

            def make(all_of_them: bool, sample: Any = sample, dtype: Any = dtype):
                x, args, kwargs = copies((sample.input, sample.args, sample.kwargs))

                def cast(t: torch.Tensor) -> torch.Tensor:
                    return t.detach().to(dtype)

                x = changed(x, cast)
                if all_of_them:
                    args, kwargs = changed((args, kwargs), cast)
                return x, torch.ones(3), args, kwargs

            for which in ("first", "all"):
                yield Program(
                    f"{name} {number} {which} {dtype}",
                    UNUSED,
                    lambda make=make, which=which: make(which == "all"),
                    {"call": fn},
                )


FORMS: dict[str, Change] = {
    "no dims": lambda t: t.flatten()[0] if t.numel() else t.new_zeros(()),
    "another dim": lambda t: t.unsqueeze(0),
    "one dim": lambda t: t.flatten(),
    "one element": lambda t: t.new_ones(1),
    "no elements": lambda t: t.new_zeros(0),
    "wider": lambda t: torch.cat([t, t], -1) if t.dim() else t.new_ones(3),
    "transposed": lambda t: t.mT if t.dim() > 1 else t.new_ones(2),
    "bools": lambda t: t.bool(),
    "integers": lambda t: t.int() if t.dtype == torch.int64 else t.long(),
    "doubles": lambda t: t.double(),  # mixed: refused, or not compared
}
# Eager itself reads beyond what it was given.
UNCHECKED = ("native_group_norm", "native_batch_norm", "batch_norm_with_update")
UNCHECKED += ("_native_batch_norm_legit", "_segment_reduce", "segment_reduce")
UNCHECKED += ("nn.functional.embedding_bag", "lu_unpack", "resize_")
# Known to differ: how often eager's composite kernels write to their result
# (`_version`), how often they warn, words of an error, memory nobody has written.
UNCHECKED += (
    "linalg.matrix_rank",
    "trapezoid",
    "trapz",
    "linear_cross_entropy",
    "resize_as_",
)
UNCHECKED += ("std", "var", "unflatten")


def forms(limit: int = 1, part: Part = ALL) -> Iterator[Program]:
    """Of another number of dims, other sizes, another type: one tensor, or each."""
    for name, fn, sample, number in operators(limit, grad=False, part=part):
        if any(unchecked in name for unchecked in UNCHECKED):
            continue
        for (form, change), which in itertools.product(FORMS.items(), range(3)):

            def make(sample: Any = sample, which: int = which, change: Any = change):
                seen = itertools.count()

                def one(t: torch.Tensor) -> torch.Tensor:
                    fits = next(seen) == which and t.layout is torch.strided
                    return change(t.detach()).clone() if fits else t

                args = copies((sample.input, sample.args, sample.kwargs))
                x, args, kwargs = changed(args, one)
                if next(seen) <= which:
                    raise NoSuchTensor
                return x, torch.ones(3), args, kwargs

            try:
                make()
            except (NoSuchTensor, RuntimeError, NotImplementedError):
                continue
            for how, source in (("unused", UNUSED), ("used", USED)):
                if form == "doubles" and source is USED:
                    continue
                if (name, form) == ("nn.functional.linear", "no dims"):
                    continue  # (its version)
                named = f"{name} {number} {form} of {which} {how}"
                yield Program(named, source, make, {"call": fn})


class NoSuchTensor(Exception):
    """The sample has fewer tensors."""


def database_errors(part: Part = ALL) -> Iterator[Program]:
    """What torch's own tests expect to be refused."""
    for op in database(part):
        if op.error_inputs_func is None:
            continue
        try:
            inputs = list(op.error_inputs("cpu"))
        except Exception:
            continue
        for number, error in enumerate(inputs):
            sample = error.sample_input

            def make(sample: Any = sample) -> tuple[Any, ...]:
                x, args, kwargs = copies((sample.input, sample.args, sample.kwargs))
                return x, torch.ones(3), args, kwargs

            for source in (UNUSED, USED):
                yield Program(
                    f"{op.name} refused {number}",
                    source,
                    make,
                    {"call": users_own(op.get_op())},
                )


def module_errors() -> Iterator[Program]:
    """The same of modules: calls that the tests of their classes expect to fail."""
    from torch.testing._internal.common_modules import ModuleErrorEnum, module_db

    for info in module_db:
        if info.module_error_inputs_func is None:
            continue
        for training in (False, True):
            errors = info.module_error_inputs_func(
                info,
                device="cpu",
                dtype=torch.float32,
                requires_grad=False,
                training=training,
            )
            for number, error in enumerate(errors):
                if error.error_on != ModuleErrorEnum.FORWARD_ERROR:
                    continue
                given = error.module_error_input
                made = given.constructor_input
                module = info.module_cls(*made.args, **made.kwargs).train(training)
                sample = given.forward_input

                def make(sample: Any = sample) -> tuple[Any, ...]:
                    args, kwargs = copies((sample.args, sample.kwargs))
                    return None, torch.ones(3), args, kwargs

                yield Program(
                    f"{info.name} refused {number} {training}",
                    MODULE,
                    make,
                    {"call": module},
                )


MODULE = """\
def f(x, y, args, kwargs):
    y.add_(1)
    return y * 2, call(*args, **kwargs)
"""
