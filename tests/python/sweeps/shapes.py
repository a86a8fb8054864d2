"""torch's own samples with every size above 1 symbolic: what is pinned, what fits.

A sample is compiled once with ``dynamic=True`` and called again with other sizes,
made by writing another number for a size wherever it stands (`other_sizes`); what
eager refuses is left out. A call is *equal* where the entry answered it, and
*rejected* where a guard sent it to another; it differs from eager in neither case.
What is no tensor stays as it is, so that where it says a size only some can change.

`visit(case)` is one row of the table in ``docs/shapes.md``, which
``scripts/sweep_shapes`` makes.
"""

from __future__ import annotations

import dataclasses
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import framejit
from differential import assert_same
from sweeps.sizes import NOT_COMPARED, NOT_MADE, tensors_in

# How many other sizes each sample is called with.
CALLS = 2
# The gradient of a norm is rounding and nothing else in some samples.
CLOSE = {"rtol": 2e-4, "atol": 5e-5}
# Samples with values that say sizes ("lengths"), and types that nothing compares.
NOT_VARIED = ("_segment_reduce", "nn.functional.ctc_loss", "torch._scaled_mm")
# Eager's results of these are memory that nobody wrote.
UNWRITTEN = (*NOT_COMPARED, "empty_strided", "empty_permuted", "new_empty_strided")


@dataclasses.dataclass
class Sample:
    """A function and the values its call gets: tensors are arguments."""

    call: Callable[[list[torch.Tensor]], Any]
    tensors: list[torch.Tensor]


@dataclasses.dataclass
class Case:
    """An operator or a module of torch's databases."""

    name: str
    samples: Callable[[], list[Sample]]


@dataclasses.dataclass
class Row:
    name: str
    samples: int = 0
    tried: int = 0
    equal: int = 0
    rejected: int = 0
    not_captured: int = 0
    # "aten.topk": in how many samples it has pinned a size.
    pinned: dict[str, int] = dataclasses.field(default_factory=dict)
    wrong: list[str] = dataclasses.field(default_factory=list)


# ---- arguments


def _replace(value: Any, tensors: list[torch.Tensor]) -> Any:
    """The value with places in `tensors` for the tensors in it."""
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return _Place(len(tensors) - 1)
    if type(value) in (list, tuple):
        return type(value)(_replace(item, tensors) for item in value)
    if type(value) is dict:
        return {key: _replace(item, tensors) for key, item in value.items()}
    return value


@dataclasses.dataclass(frozen=True)
class _Place:
    index: int


def _fill(value: Any, tensors: list[torch.Tensor]) -> Any:
    if isinstance(value, _Place):
        return tensors[value.index]
    if type(value) in (list, tuple):
        return type(value)([_fill(item, tensors) for item in value])
    if type(value) is dict:
        return {key: _fill(item, tensors) for key, item in value.items()}
    return value


def _sample(fn: Callable[..., Any], args: Any, kwargs: Any) -> Sample:
    tensors: list[torch.Tensor] = []
    args = _replace(args, tensors)
    kwargs = _replace(kwargs, tensors)

    def call(tensors: list[torch.Tensor]) -> Any:
        return fn(*_fill(args, tensors), **_fill(kwargs, tensors))

    return Sample(call, tensors)


def _is_plain(tensor: torch.Tensor) -> bool:
    return (
        type(tensor) in (torch.Tensor, torch.nn.Parameter)
        and tensor.layout is torch.strided
        and not tensor.is_quantized
        and not tensor.is_conj()
        and not tensor.is_neg()
        and not tensor.is_nested
    )


# A new size for dim `dim` of tensor `index`, of this size.
Sizing = Callable[[int, int, int], int]


def resized(tensor: torch.Tensor, index: int, sizing: Sizing) -> torch.Tensor:
    """The same values over again, in a tensor of other sizes that lies alike."""
    source = tensor.detach()
    shape = [sizing(index, dim, n) for dim, n in enumerate(source.shape)]
    strides = source.stride()
    # A dim that repeats one element still does.
    kept = [1 if s == 0 else n for n, s in zip(shape, strides, strict=True)]
    order = sorted(range(len(kept)), key=lambda d: (-strides[d], d))
    count = 1
    for n in kept:
        count *= n
    if source.numel() and count:
        values = source.contiguous().flatten()
        values = values.repeat(-(-count // values.numel()))[:count].clone()
    else:
        values = source.new_empty(count)
    made = values.view([kept[d] for d in order])
    back = [order.index(d) for d in range(len(order))]
    made = made.permute(back).expand(shape)
    return made.requires_grad_(tensor.requires_grad)


def _same(index: int, dim: int, size: int) -> int:
    return size


def other_sizes(tensors: list[torch.Tensor]) -> Iterator[Sizing]:
    """Ways to write other numbers for the sizes above 1, the boldest first."""
    sizes = sorted({n for t in tensors for n in t.shape if n > 1})
    for more in (1, 2, 6):
        yield lambda index, dim, size, more=more: size + more * (size > 1)
    yield lambda index, dim, size: size * 2 if size > 1 else size
    for value in reversed(sizes):
        for more in (1, 2, 4):
            yield (
                lambda index, dim, size, value=value, more=more: (
                    size + more * (size == value)
                )
            )
        yield lambda index, dim, size, value=value: size * (1 + (size == value))
    # One dim of the first tensor, then what all of one rank have in one place.
    for dim in range(max((t.dim() for t in tensors), default=0)):
        for more in (1, 2):
            yield (
                lambda index, at, size, dim=dim, more=more: (
                    size + more * (at == dim and size > 1)
                )
            )
            yield (
                lambda index, at, size, dim=dim, more=more: (
                    size + more * (at == dim and index == 0 and size > 1)
                )
            )


# ---- runs


def _run(fn: Callable[..., Any], tensors: list[torch.Tensor]) -> tuple[Any, Any]:
    torch.manual_seed(1)
    result = fn(*tensors)
    outputs = [t for t in tensors_in(result) if t.requires_grad]
    leaves = [t for t in tensors if t.requires_grad and t.is_leaf]
    if not outputs or not leaves:
        return result, None
    tangents = [torch.ones_like(t) for t in outputs]
    return result, torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)


def _copies(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    return [resized(t, i, _same) for i, t in enumerate(tensors)]


def _eager(
    fn: Callable[..., Any], tensors: list[torch.Tensor]
) -> tuple[Any, Any] | None:
    """None: eager refuses it."""
    try:
        return _run(fn, _copies(tensors))
    except Exception:
        return None


def calls_of(sample: Sample) -> list[list[torch.Tensor]]:
    """The sample itself first, then with other sizes; without what eager refuses."""

    def fn(*tensors: torch.Tensor) -> Any:
        return sample.call(list(tensors))

    calls = [_copies(sample.tensors)]
    shapes = [[t.shape for t in calls[0]]]
    for sizing in other_sizes(sample.tensors):
        if len(calls) > CALLS:
            break
        made = [resized(t, i, sizing) for i, t in enumerate(sample.tensors)]
        shape = [t.shape for t in made]
        if shape in shapes or sum(t.numel() for t in made) > 200_000:
            continue
        shapes.append(shape)
        if _eager(fn, made) is not None:
            calls.append(made)
    return calls


PINNED = re.compile(r" by (\S+)")


def visit_sample(sample: Sample, row: Row, backend: str, number: int) -> None:
    def fn(*tensors: torch.Tensor) -> Any:
        return sample.call(list(tensors))

    if not sample.tensors or not all(map(_is_plain, sample.tensors)):
        return
    if _eager(fn, sample.tensors) is None:
        return
    framejit.reset()
    compiled = framejit.compile(fn, dynamic=True, backend=backend)
    entries = 0
    for call, tensors in enumerate(calls_of(sample)):
        expected = _eager(fn, tensors)
        try:
            actual = _run(compiled, _copies(tensors))
            assert_same(actual, expected, exact=CLOSE)
        except Exception as error:
            text = " ".join(str(error).split())[:160]
            sizes = [list(t.shape) for t in tensors]
            row.wrong.append(f"{number} with {sizes}: {type(error).__name__} {text}")
            return
        found = framejit.inspect(compiled)
        if call == 0:
            row.samples += 1
            if not found or any(entry.breaks for entry in found):
                row.not_captured += 1
                return
            for entry in found:
                for name in {m[1] for p in entry.pins if (m := PINNED.search(p))}:
                    row.pinned[name] = row.pinned.get(name, 0) + 1
        else:
            row.tried += 1
            row.equal += len(found) == entries
            row.rejected += len(found) > entries
        entries = len(found)


def visit(case: Case, most: int, backend: str = "aot_eager") -> Row:
    """most: of its samples so many, from all over them."""
    row = Row(case.name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            samples = case.samples()
        except Exception:  # the database has none on this machine
            samples = []
        step = max(1, -(-len(samples) // most))
        # The middle one is in every choice.
        chosen = {*range(step // 2, len(samples), step), len(samples) // 2}
        for number in sorted(chosen & {*range(len(samples))}):
            visit_sample(samples[number], row, backend, number)
    return row


# ---- torch's databases


def _samples_of_operator(op: Any) -> list[Sample]:
    dtype = next(
        dtype
        for dtype in (torch.float32, torch.int64, torch.bool, *op.dtypes)
        if dtype in op.dtypes
    )
    torch.manual_seed(0)
    grad = op.supports_autograd and dtype is torch.float32
    return [
        _sample(op.get_op(), (s.input, *s.args), s.kwargs)
        for s in op.sample_inputs("cpu", dtype, requires_grad=grad)
    ]


def operators() -> list[Case]:
    from torch.testing._internal.common_methods_invocations import op_db

    found = []
    for op in op_db:
        if op.name in UNWRITTEN or op.name in NOT_VARIED:
            continue
        if (op.name, op.variant_test_name) in NOT_MADE or not op.dtypes:
            continue
        name = ".".join(filter(None, (op.name, op.variant_test_name)))
        found.append(Case(name, lambda op=op: _samples_of_operator(op)))
    return found


def _samples_of_module(info: Any) -> list[Sample]:
    torch.manual_seed(0)
    found = []
    inputs = info.module_inputs_func(
        info, device="cpu", dtype=torch.float32, requires_grad=True, training=False
    )
    for given in inputs:
        made, called = given.constructor_input, given.forward_input
        if called is None:
            continue
        module = info.module_cls(*made.args, **made.kwargs).eval()
        found.append(_sample(module, called.args, called.kwargs))
    return found


def modules() -> list[Case]:
    from torch.testing._internal.common_modules import module_db

    return [
        Case(info.formatted_name, lambda info=info: _samples_of_module(info))
        for info in module_db
        if torch.float32 in info.dtypes
    ]


def cases() -> list[Case]:
    """Names are unique: some operators have two rows in the database."""
    found: dict[str, Case] = {}
    for case in (*operators(), *modules()):
        found.setdefault(case.name, case)
    return list(found.values())
