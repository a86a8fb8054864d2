"""Calls of operators and modules, in many layouts and types, and what they return.

A case is a call with its arguments. `difference_of` runs it plain and compiled;
the program it runs describes the results as it goes (dtype, sizes, strides,
offset, contiguity, bits, which argument it is), so that what the trace says is
compared with eager, and then the results themselves are. `scripts/sweep_metadata`
runs all cases, tests a fixed part of them.
"""

from __future__ import annotations

import itertools
import random
import re
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

import framejit

# Their values are whatever the memory holds; their metadata counts all the same.
DTYPES = (
    torch.float32,
    torch.bfloat16,
    torch.float64,
    torch.int64,
    torch.bool,
    torch.complex64,
)
MIXES = (torch.bfloat16, torch.float32, torch.float64)
LAYOUTS = (
    "given",
    "permuted",
    "channels_last",
    "expanded",
    "stepped",
    "negative",
    "conjugate",
    "empty",
    "one",
)

# Where eager's kernels crash or write to memory that is not theirs.
DEADLY = (
    ("lu_unpack.out|linalg.lu.out", "out"),
    (
        "_?native_batch_norm|_batch_norm_with",
        r"#\d+ .",
    ),
    ("nn.functional.ctc_loss", r"one\["),
    ("nn.functional.pdist", r"empty\["),
    ("_segment_reduce", r"empty\["),
)


def map_tensors(value: Any, fn: Callable[[torch.Tensor], Any]) -> Any:
    if isinstance(value, torch.Tensor):
        return fn(value)
    if type(value) in (list, tuple):
        return type(value)(map_tensors(item, fn) for item in value)
    if type(value) is dict:
        return {key: map_tensors(item, fn) for key, item in value.items()}
    return value


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


# ---- layouts


def copy_of(tensor: torch.Tensor) -> torch.Tensor:
    """Equal, laid out the same way, with memory of its own."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        raise NotImplementedError("not a strided tensor")
    source = tensor.detach()
    spans = zip(source.shape, source.stride(), strict=True)
    size = source.storage_offset() + 1 + sum((n - 1) * s for n, s in spans)
    if not source.numel():
        copy = torch.empty_strided(source.shape, source.stride(), dtype=source.dtype)
    else:
        plain = source
        if source.is_neg():
            plain = torch._neg_view(source)
        elif source.is_conj():
            plain = torch._conj(source)
        memory = plain.as_strided((size,), (1,), 0).clone()
        copy = memory.as_strided(source.shape, source.stride(), source.storage_offset())
        if source.is_neg():
            copy = torch._neg_view(copy)
        elif source.is_conj():
            copy = torch._conj(copy)
    return copy.requires_grad_(tensor.requires_grad)


def channels_inside(tensor: torch.Tensor) -> torch.Tensor | None:
    if tensor.dim() < 3:
        return None
    order = (0, *range(2, tensor.dim()), 1)
    back = (0, tensor.dim() - 1, *range(1, tensor.dim() - 1))
    return tensor.permute(order).contiguous().permute(back)


def odd_ones(tensor: torch.Tensor) -> torch.Tensor | None:
    """Sizes of 1 with strides that no rule would give them."""
    if 1 not in tensor.shape or not tensor.numel():
        return None
    strides = [
        77 + i if n == 1 else s
        for i, (n, s) in enumerate(zip(tensor.shape, tensor.stride(), strict=True))
    ]
    return tensor.contiguous().as_strided(
        tensor.shape,
        [
            s if n > 1 else odd
            for n, s, odd in zip(
                tensor.shape, tensor.contiguous().stride(), strides, strict=True
            )
        ],
    )


def stepped(tensor: torch.Tensor) -> torch.Tensor | None:
    if not tensor.dim():
        return None
    shape = [*tensor.shape[:-1], tensor.shape[-1] * 2 + 1]
    wide = torch.zeros(shape, dtype=tensor.dtype)
    view = wide[..., 1::2]
    view.copy_(tensor)
    return view


def laid_out(tensor: torch.Tensor, layout: str) -> torch.Tensor | None:
    """The tensor in another layout, values kept but for "expanded"; None: as it is."""
    if tensor.layout is not torch.strided or tensor.is_quantized:
        return None
    plain = tensor.detach()
    if layout == "permuted" and plain.dim() > 1:
        order = tuple(reversed(range(plain.dim())))
        return plain.permute(order).contiguous().permute(order)
    if layout == "channels_last":
        return channels_inside(plain)
    if layout == "expanded" and plain.dim() and plain.numel():
        dim = next((d for d, n in enumerate(plain.shape) if n > 1), None)
        if dim is None:
            return None
        return plain.narrow(dim, 0, 1).expand(plain.shape)
    if layout == "stepped":
        return stepped(plain)
    if layout == "negative" and plain.dtype.is_floating_point:
        return torch._neg_view(-plain)
    if layout == "conjugate" and plain.dtype.is_complex:
        return torch._conj(plain.conj().resolve_conj())
    if layout == "odd":
        return odd_ones(plain)
    return None


# ---- cases


@dataclass
class Case:
    """One call. `args` are never changed: each run gets copies."""

    name: str
    label: str
    call: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def with_tensors(case: Case, label: str, tensors: list[torch.Tensor]) -> Case:
    remaining = iter(tensors)
    args, kwargs = map_tensors((case.args, case.kwargs), lambda _: next(remaining))
    return Case(case.name, f"{case.label} {label}".strip(), case.call, args, kwargs)


def changed(
    case: Case, label: str, change: Callable[[torch.Tensor], torch.Tensor | None]
) -> Iterator[Case]:
    """All tensors changed, then each alone."""
    tensors = list(tensors_in((case.args, case.kwargs)))
    new = [change(t) for t in tensors]

    def keeping(which: list[int]) -> Case:
        result = []
        for i, (old, made) in enumerate(zip(tensors, new, strict=True)):
            kept = old if made is None or i not in which else made
            result.append(
                kept.detach().requires_grad_(old.requires_grad and fits(kept))
            )
        text = label if len(which) == len(tensors) else f"{label}@{which[0]}"
        return with_tensors(case, text, result)

    found = [i for i, made in enumerate(new) if made is not None]
    if not found:
        return
    yield keeping(list(range(len(tensors))))
    if len(tensors) > 1:
        for i in found:
            yield keeping([i])


def fits(tensor: torch.Tensor) -> bool:
    return tensor.dtype.is_floating_point or tensor.dtype.is_complex


def narrowed(case: Case, size: int) -> Iterator[Case]:
    """The sizes of the first tensor cut to 0 or 1, alike in the others."""
    tensors = list(tensors_in((case.args, case.kwargs)))
    if not tensors or not tensors[0].dim():
        return
    for dim in {0, tensors[0].dim() - 1}:
        wanted = tensors[0].shape[dim]
        if wanted <= size:
            continue
        new = []
        for tensor in tensors:
            place = dim if dim == 0 else tensor.dim() - 1
            fit = tensor.dim() > place >= 0 and tensor.shape[place] == wanted
            new.append(
                tensor.detach().narrow(place, 0, size).clone() if fit else tensor
            )
        yield with_tensors(
            case,
            f"{'empty' if size == 0 else 'one'}[{dim}]",
            [
                n.detach().requires_grad_(o.requires_grad)
                for n, o in zip(new, tensors, strict=True)
            ],
        )


def variants_of(case: Case, dtype: torch.dtype) -> Iterator[Case]:
    yield case
    for layout in LAYOUTS:
        if layout == "given":
            continue
        if layout in ("empty", "one"):
            for narrow in narrowed(case, 0 if layout == "empty" else 1):
                yield narrow
                if layout == "one":
                    yield from changed(narrow, "odd", lambda t: laid_out(t, "odd"))
            continue
        yield from changed(case, layout, lambda t, name=layout: laid_out(t, name))
    if not dtype.is_floating_point:
        return
    for mix in MIXES:
        if mix is dtype:
            continue
        cases = changed(
            case,
            str(mix)[6:],
            lambda t, to=mix: t.detach().to(to) if t.dtype is dtype else None,
        )
        yield from cases


def users_own(fn: Any) -> Any:
    """A lambda of the database as if it were the user's, not torch's own."""
    if not isinstance(fn, types.FunctionType) or "<lambda>" not in fn.__qualname__:
        return fn
    names = {**fn.__globals__, "__name__": "samples"}
    # Seeds are set around each call here.
    names["wrapper_set_seed"] = lambda op, *args, **kwargs: op(*args, **kwargs)
    copy = types.FunctionType(
        fn.__code__, names, fn.__name__, fn.__defaults__, fn.__closure__
    )
    copy.__kwdefaults__ = fn.__kwdefaults__
    copy.__module__ = "samples"
    return copy


def signature_of(case: Case) -> Any:
    tensors = tensors_in((case.args, case.kwargs))
    shapes = tuple((t.dtype, t.shape, t.stride()) for t in tensors)
    others = map_tensors((case.args, case.kwargs), lambda t: "tensor")
    return shapes, repr(others)


def base_cases(
    op: Any, dtype: torch.dtype, limit: int, grad: bool
) -> list[tuple[Case, Any]]:
    """Some samples of the operator, as different as they come."""
    name = op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")
    grad = (
        grad and op.supports_autograd and (dtype.is_floating_point or dtype.is_complex)
    )
    fn = users_own(op.get_op())
    found, seen = [], set()
    text = f"{str(dtype)[6:]}{' grad' if grad else ''}"
    for sample in op.sample_inputs("cpu", dtype, requires_grad=grad):
        case = Case(name, text, fn, (sample.input, *sample.args), dict(sample.kwargs))
        key = signature_of(case)
        if key in seen:
            continue
        seen.add(key)
        found.append((case, sample))
        if len(found) >= 40:
            break
    if len(found) > limit:  # from all over the list
        step = len(found) / limit
        found = [found[int(i * step)] for i in range(limit)]
    for i, (case, _) in enumerate(found):
        case.label += f" #{i}"
    return found


def in_place_of(op: Any, case: Case) -> Case | None:
    fn = op.get_inplace()
    if fn is None or not isinstance(case.args[0], torch.Tensor):
        return None
    fn = users_own(fn)

    def call(first: Any, *args: Any, **kwargs: Any) -> Any:
        if first.requires_grad:
            first = first * 1
        return fn(first, *args, **kwargs)

    return Case(case.name + "_", case.label, call, case.args, case.kwargs)


def out_of(op: Any, case: Case) -> Iterator[Case]:
    """out= of the right size and layout, of another layout, and of another size."""
    if not op.supports_out:
        return
    fn = case.call
    tensors = list(tensors_in((case.args, case.kwargs)))
    if any(t.requires_grad for t in tensors):
        return
    try:
        result = fn(
            *map_tensors(case.args, copy_of), **map_tensors(case.kwargs, copy_of)
        )
    except Exception:
        return
    single = isinstance(result, torch.Tensor)
    results = [result] if single else list(tensors_in(result))
    if not results or any(t.layout is not torch.strided for t in results):
        return
    forms: list[tuple[str, Callable[[torch.Tensor], torch.Tensor]]] = [
        ("out", lambda t: torch.empty_like(t)),
        ("out permuted", lambda t: laid_out(torch.zeros_like(t), "permuted")),
        ("out stepped", lambda t: laid_out(torch.zeros_like(t), "stepped")),
        ("out empty", lambda t: t.new_empty(0)),
        ("out wide", lambda t: torch.empty_like(t, dtype=torch.float64)),
    ]
    for text, form in forms:
        outs = [form(t.detach().contiguous()) for t in results]
        if any(o is None for o in outs):
            continue
        out: Any = outs[0] if single else tuple(outs)

        def call(*args: Any, out: Any, **kwargs: Any) -> Any:
            return fn(*args, out=out, **kwargs), out

        yield Case(
            case.name + ".out",
            f"{case.label} {text}",
            call,
            case.args,
            {**case.kwargs, "out": out},
        )


def is_deadly(case: Case) -> bool:
    return any(re.match(a, case.name) and re.search(b, case.label) for a, b in DEADLY)


def cases_of(op: Any, limit: int, thorough: bool = True) -> Iterator[Case]:
    """All cases of an entry of the operator database."""
    for dtype, grad in itertools.product(DTYPES, (False, True)):
        if dtype not in op.dtypes:
            continue
        if grad and dtype not in (torch.float32, torch.bfloat16):
            continue
        few = limit if dtype is torch.float32 else max(1, limit // 2)
        torch.manual_seed(0)
        random.seed(0)
        for case, _ in base_cases(op, dtype, few, grad):
            for variant in variants_of(case, dtype):
                if is_deadly(variant):
                    continue
                yield variant
                if dtype is not torch.float32 or grad:
                    continue
                if in_place := in_place_of(op, variant):
                    yield in_place
                outs = out_of(op, variant)
                yield from (case for case in outs if not is_deadly(case))


def module_cases(info: Any, limit: int) -> Iterator[Case]:
    for dtype, training in itertools.product(
        (torch.float32, torch.bfloat16), (True, False)
    ):
        if dtype not in info.dtypes:
            continue
        torch.manual_seed(0)
        random.seed(0)
        found = [
            item
            for item in info.module_inputs_func(
                info, device="cpu", dtype=dtype, requires_grad=True, training=training
            )
            if item.forward_input is not None
        ]
        if len(found) > limit:
            step = len(found) / limit
            found = [found[int(i * step)] for i in range(limit)]
        for i, item in enumerate(found):
            made = item.constructor_input
            module = info.module_cls(*made.args, **made.kwargs).to(dtype)
            module.train(training)
            given = item.forward_input
            case = Case(
                info.module_cls.__name__,
                f"{str(dtype)[6:]} {'train' if training else 'eval'} #{i}",
                module,
                tuple(given.args),
                dict(given.kwargs),
            )
            yield from variants_of(case, dtype)


# ---- running one


def describe(tensor: Any, inputs: list[Any], traced: bool) -> tuple[Any, ...]:
    """What a program can see of a tensor without its elements: while it is traced
    also whether a result is a view, and behind the graph where it begins."""
    if tensor.layout is not torch.strided:
        return (str(tensor.layout), tensor.dtype, tuple(tensor.shape))
    same = [i for i in range(len(inputs)) if tensor is inputs[i]]
    own = traced and inputs and not same and not tensor.is_inference()
    return (
        tensor.dtype,
        tuple(tensor.shape),
        tensor.stride(),
        tensor.is_contiguous(),
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.requires_grad,
        same,
        tensor._is_view() if own else None,
        None if traced else tensor.storage_offset(),
    )


def described(result: Any, inputs: list[Any], traced: bool) -> list[Any]:
    found = []
    if isinstance(result, torch.Tensor):
        found.append(describe(result, inputs, traced))
    elif isinstance(result, (tuple, list)):
        for item in result:
            found.extend(described(item, inputs, traced))
    elif isinstance(result, dict):
        for item in result.values():
            found.extend(described(item, inputs, traced))
    return found


def program_of(call: Callable[..., Any]) -> Callable[..., Any]:
    def program(args: Any, kwargs: Any, inputs: Any) -> Any:
        result = call(*args, **kwargs)
        return result, described(result, inputs, True), described(inputs, [], True)

    return program


FIELDS = "dtype shape stride contiguous conj neg requires_grad is view offset".split()


@dataclass
class Run:
    error: Exception | None
    traced: Any
    actual: Any
    shared: Any
    gradients: Any


def run(program: Callable[..., Any], case: Case) -> Run:
    memo: dict[int, torch.Tensor] = {}

    def copied(tensor: torch.Tensor) -> torch.Tensor:
        if id(tensor) not in memo:
            memo[id(tensor)] = copy_of(tensor)
        return memo[id(tensor)]

    args, kwargs = map_tensors((case.args, case.kwargs), copied)
    inputs = list(tensors_in((args, kwargs)))
    torch.manual_seed(7)
    random.seed(7)
    try:
        result, traced, after = program(args, kwargs, inputs)
    except Exception as error:
        return Run(error, None, None, None, None)
    outputs = list(tensors_in(result))
    actual = described(outputs, inputs, False), described(inputs, [], False)
    places = sharing(outputs, inputs)
    return Run(None, (traced, after), actual, places, gradients_of(outputs, inputs))


def gradients_of(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> Any:
    roots = [t for t in outputs if t.requires_grad and t.layout is torch.strided]
    leaves = [t for t in inputs if t.requires_grad and t.is_leaf]
    if not roots or not leaves:
        return None
    torch.manual_seed(8)
    try:
        tangents = [torch.ones_like(t) for t in roots]
        found = torch.autograd.grad(roots, leaves, tangents, allow_unused=True)
    except Exception as error:
        return type(error)
    return [t if t is None else describe_gradient(t) for t in found]


def describe_gradient(tensor: torch.Tensor) -> tuple[Any, ...]:
    """But for where it begins and for strides of dims of one element, which say
    nothing of the memory: eager's may be a part of what came in, and may have what
    an input has there (docs/architecture.md, Limits)."""
    strides = [
        s if n > 1 else 0 for n, s in zip(tensor.shape, tensor.stride(), strict=True)
    ]
    return (
        tensor.dtype,
        tuple(tensor.shape),
        strides if tensor.numel() else [],
        tensor.is_contiguous(),
        tensor.is_conj(),
        tensor.is_neg(),
        tensor.requires_grad,
    )


def memory_of(tensor: torch.Tensor) -> int:
    if tensor.layout is not torch.strided:
        return -id(tensor)
    return tensor.untyped_storage()._cdata


def sharing(outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[list[int]]:
    """Which inputs, then which earlier outputs, each output shares memory with."""
    everything = inputs + outputs
    found = []
    for i, tensor in enumerate(outputs):
        before = everything[: len(inputs) + i]
        found.append(
            [j for j, t in enumerate(before) if memory_of(t) == memory_of(tensor)]
        )
    return found


def first_difference(expected: Any, actual: Any) -> str:
    for kind, ours, theirs in zip(("result", "input"), expected, actual, strict=True):
        if len(ours) != len(theirs):
            return f"number of {kind}s {len(ours)} != {len(theirs)}"
        for i, (a, b) in enumerate(zip(ours, theirs, strict=True)):
            if a == b:
                continue
            if len(a) != len(b):
                return f"{kind} {i} {a} != {b}"
            return f"{kind} {i} " + ", ".join(
                f"{name} {x} != {y}"
                for name, x, y in zip(FIELDS, a, b, strict=False)
                if x != y
            )
    return ""


def difference_of(case: Case, backend: str = "aot_eager") -> tuple[str, str]:
    """A kind of difference and a text. Kind "": none, and the text says why there is
    no graph of ATen operators; "skip": eager does not run it."""
    program = program_of(case.call)
    try:
        expected = run(program, case)
    except NotImplementedError:
        return "skip", ""
    if expected.error is not None:
        return "skip", ""
    framejit.reset()
    framejit._C.clear_events()
    compiled = framejit.compile(program, backend=backend)
    try:
        actual = run(compiled, case)
    except Exception as error:  # not the program's
        return "crash", repr(error)[:900]
    if actual.error is not None:
        return "raises", repr(actual.error)[:900]
    if found := first_difference(expected.traced, actual.traced):
        return "traced", found
    if found := first_difference(expected.actual, actual.actual):
        return "actual", found
    if expected.shared != actual.shared:
        return "shared", f"{expected.shared} != {actual.shared}"
    if expected.gradients != actual.gradients:
        return "gradient", f"{expected.gradients} != {actual.gradients}"
    return "", status_of(compiled)


def status_of(compiled: Any) -> str:
    """The first break of a program, the reason of a fallback, or ""."""
    entries = [one for entry in framejit.inspect(compiled) for one in entry.walk()]
    for entry in entries:
        for found in entry.breaks:
            return f"{found.id} {found.detail}"
    for entry in entries:
        if entry.fallback_reason:
            return f"fell back: {entry.fallback_reason}"
    return "" if entries else "no graph"
