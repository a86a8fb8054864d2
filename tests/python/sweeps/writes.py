"""Writes through views: every in-place operator, through every kind of view."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from typing import Any

import torch

from sweeps.layouts import users_own
from sweeps.programs import ALL, Part, Program, copies, database

# A view whose result has the shape S (a list of ints) of a base with shape
# base(S), and whether it exists for S.
View = tuple[str, Any, Any]


def _rank(least: int) -> Any:
    return lambda s: len(s) >= least


VIEWS: dict[str, tuple[Any, Any, Any]] = {
    # name: (shape of the base, text of the view, applies to S)
    "itself": (lambda s: s, lambda s: "y", _rank(0)),
    "view": (lambda s: [-1], lambda s: f"y.view({s})", _rank(0)),
    "select": (lambda s: [3, *s], lambda s: "y[1]", _rank(0)),
    "select_select": (lambda s: [2, 2, *s], lambda s: "y[1][-1]", _rank(0)),
    "step": (lambda s: [2 * s[0], *s[1:]], lambda s: "y[::2]", _rank(1)),
    "slice": (lambda s: [s[0] + 3, *s[1:]], lambda s: "y[1:-2]", _rank(1)),
    "narrow": (
        lambda s: [*s[:-1], s[-1] + 2],
        lambda s: f"y.narrow(-1, 1, {s[-1]})",
        _rank(1),
    ),
    "t": (
        lambda s: [*s[:-2], s[-1], s[-2]],
        lambda s: "y.transpose(-1, -2)",
        _rank(2),
    ),
    "movedim": (
        lambda s: [*s[1:], s[0]],
        lambda s: "y.movedim(-1, 0)",
        _rank(2),
    ),
    "permute": (
        lambda s: [s[-1], *s[:-1]],
        lambda s: f"y.permute({[*range(1, len(s)), 0]})",
        _rank(2),
    ),
    "expand": (
        lambda s: [1, *s[1:]],
        lambda s: f"y.expand({s})",
        lambda s: len(s) >= 1 and s[0] > 1,
    ),
    "expand_new": (lambda s: s[1:], lambda s: f"y.expand({s})", _rank(1)),
    "expand_one": (
        lambda s: s,
        lambda s: f"y.expand({[1, *s]})[0]",
        _rank(0),
    ),
    "diagonal": (
        lambda s: [s[-1] + 1, s[-1], *s[:-1]],
        lambda s: "y.diagonal(-1)",
        _rank(1),
    ),
    "unfold": (
        lambda s: [s[0] + s[-1] - 1, *s[1:-1]],
        lambda s: f"y.unfold(0, {s[-1]}, 1)",
        lambda s: len(s) >= 2 and s[0] > 0 and s[-1] > 0,
    ),
    "unfold_apart": (
        lambda s: [s[0] * s[-1], *s[1:-1]],
        lambda s: f"y.unfold(0, {s[-1]}, {s[-1]})",
        lambda s: len(s) >= 2 and s[0] > 0 and s[-1] > 0,
    ),
    "as_strided": (
        lambda s: s,
        lambda s: f"y.as_strided({s}, {_strides(s)})",
        _rank(0),
    ),
    "as_strided_offset": (
        lambda s: [_count(s) + 4],
        lambda s: f"y.as_strided({s}, {_strides(s)}, 3)",
        _rank(0),
    ),
    "as_strided_overlap": (
        lambda s: [_count(s) + 4],
        lambda s: f"y.as_strided({s}, {[1] * len(s)})",
        _rank(2),
    ),
    "unsqueeze": (
        lambda s: s[1:],
        lambda s: "y.unsqueeze(0)",
        _one_first := (lambda s: len(s) >= 1 and s[0] == 1),
    ),
    "squeeze": (lambda s: [1, *s], lambda s: "y.squeeze(0)", _rank(0)),
    "split": (
        lambda s: [2 * s[0] + 1, *s[1:]],
        lambda s: f"y.split({s[0]})[1]",
        lambda s: len(s) >= 1 and s[0] > 0,
    ),
    "chunk": (
        lambda s: [2 * s[0], *s[1:]],
        lambda s: "y.chunk(2)[1]",
        lambda s: len(s) >= 1 and s[0] > 0,
    ),
    "unbind": (lambda s: [2, *s], lambda s: "y.unbind(0)[1]", _rank(0)),
    "detach": (lambda s: s, lambda s: "y.detach()", _rank(0)),
    "contiguous": (lambda s: s, lambda s: "y.contiguous()", _rank(0)),
    "reshape": (lambda s: [-1], lambda s: f"y.reshape({s})", _rank(0)),
    "view_dtype": (
        lambda s: [*s[:-1], 2 * s[-1]],
        lambda s: "y.view(torch.float64).view(torch.float32)[..., ::2]",
        lambda s: len(s) >= 1 and s[-1] > 0,
    ),
    "real": (
        lambda s: [*s, 2],
        lambda s: "torch.view_as_complex(y).real",
        _rank(0),
    ),
    "imag": (
        lambda s: [*s, 2],
        lambda s: "torch.view_as_complex(y).imag",
        _rank(0),
    ),
    "conj_imag": (
        lambda s: [*s, 2],
        lambda s: "torch.view_as_complex(y).conj().imag",
        _rank(0),
    ),
    "view_as_real": (
        lambda s: s,
        lambda s: "torch.view_as_real(torch.view_as_complex(y))",
        lambda s: len(s) >= 1 and s[-1] == 2,
    ),
    "mT_slice_t": (
        lambda s: [*s[:-2], s[-1], 2 * s[-2]],
        lambda s: "y[..., ::2].mT",
        _rank(2),
    ),
}


def _count(shape: list[int]) -> int:
    count = 1
    for n in shape:
        count *= n
    return count


def _strides(shape: list[int]) -> list[int]:
    strides, stride = [], 1
    for n in reversed(shape):
        strides.insert(0, stride)
        stride *= max(n, 1)
    return strides


ORIGINS = {
    # text that makes y of x, how x is made of its shape
    "fresh": ("x * 1", lambda t: t),
    "input": ("x", lambda t: t),
    "input_offset": ("x", lambda t: torch.cat([t.reshape(-1)[:0], *_pad(t)])),
}


def _pad(t: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return (t.new_zeros(2), t.reshape(-1), t.new_zeros(3))


def make_base(
    shape: list[int], origin: str, grad: bool, extreme: bool = False
) -> torch.Tensor:
    base = torch.rand(shape) * 0.5 + 0.25
    if extreme and base.numel() > 2:
        # What is written over must leave no trace.
        base.view(-1)[:3] = torch.tensor([math.inf, math.nan, -1e30])
    if origin == "input_offset":
        memory = torch.zeros(base.numel() + 5)
        place = memory[2 : 2 + base.numel()].view(base.shape)
        place.copy_(base)
        base = place.detach()
    return base.requires_grad_(grad)


def in_place_samples(
    limit: int = 1, part: Part = ALL
) -> Iterator[tuple[str, Any, Any]]:
    """(name, function, sample) of torch's operators that have an in-place form."""
    for op in database(part):
        # What resizing adds is whatever the memory holds.
        if op.name.startswith("resize") or torch.float32 not in op.dtypes:
            continue
        if (fn := op.get_inplace()) is None:
            continue
        fn = users_own(fn)
        found = 0
        for sample in op.sample_inputs("cpu", torch.float32):
            first = sample.input
            if not isinstance(first, torch.Tensor) or first.dtype != torch.float32:
                continue
            if 0 in first.shape or first.dim() == 0 or first.numel() > 200:
                continue
            name = op.name + (
                f".{op.variant_test_name}" if op.variant_test_name else ""
            )
            yield name, fn, sample
            found += 1
            if found >= limit:
                break


def through_views(
    views: list[str] | None = None, limit: int = 1, part: Part = ALL
) -> Iterator[Program]:
    for name, fn, sample in in_place_samples(limit, part):
        shape = list(sample.input.shape)
        for view in views or VIEWS:
            base, text, applies = VIEWS[view]
            if not applies(shape):
                continue
            wanted = base(shape)
            if wanted == [-1]:
                wanted = [_count(shape)]
            for origin, (made, _) in ORIGINS.items():
                for grad in (False, True):
                    yield one_write(
                        f"{name} {view} {origin}{' grad' if grad else ''}",
                        fn,
                        sample,
                        wanted,
                        made,
                        text(shape),
                        origin,
                        grad,
                    )


def one_write(
    name: str,
    fn: Any,
    sample: Any,
    shape: list[int],
    made: str,
    view: str,
    origin: str,
    grad: bool,
) -> Program:
    values = sample.input.detach().reshape(-1)

    def make_args() -> tuple[Any, ...]:
        base = torch.empty(shape)
        flat = base.view(-1)
        for i in range(0, flat.numel(), max(values.numel(), 1)):
            part = flat[i : i + values.numel()]
            part.copy_(values[: part.numel()])
        if origin == "input_offset":
            memory = torch.zeros(base.numel() + 5)
            place = memory[2 : 2 + base.numel()].view(base.shape)
            base = place.copy_(base).detach()
        args, kwargs = copies((sample.args, sample.kwargs))
        return base.requires_grad_(grad), args, kwargs

    source = (
        "def f(x, args, kwargs):\n"
        f"    y = {made}\n"
        f"    v = {view}\n"
        "    write(v, *args, **kwargs)\n"
        "    return y, y * 2, v + 1\n"
    )
    return Program(name, source, make_args, {"write": fn})


# ---- several views of one base, written alternately

WRITES = (
    "{v}.fill_({k})",
    "{v}.add_({k})",
    "{v}.mul_({w})",
    "{v}.copy_({w} * 2)",
    "{v}.zero_()",
    "{v}[...] = {k}",
    "{v} += {k}",
    "{v}[0] = {k}",
    "{v}[..., -1] *= {k}",
    "{v}[1:] = {w}[1:] + {k}",
    "{v}[:-1] = {w}[1:]",
    "{v}.sin_()",
    "{v}.masked_fill_({v} > 0.4, {k})",
    "{v}.index_fill_(0, torch.tensor([0]), {k})",
    "torch.add({w}, {k}, out={v})",
    "{v}.unsqueeze_(0)",
    "{v}.t_()",
    "{v}.relu_()",
    "{v}.data.add_({k})",
    "{v}.index_add_(0, torch.tensor([0, 0]), {w}[:2])",
)
CHAIN_VIEWS = (
    "{v}.view(-1)",
    "{v}[0]",
    "{v}[-1]",
    "{v}[::2]",
    "{v}[1:]",
    "{v}[:-1]",
    "{v}[:, 0]",
    "{v}.t()",
    "{v}.diagonal()",
    "{v}.expand(3, *{v}.shape)",
    "{v}.expand(1, *{v}.shape)",
    "{v}.unsqueeze(0)",
    "{v}.unsqueeze(-1)",
    "{v}.squeeze()",
    "{v}.unfold(0, 2, 1)",
    "{v}.unfold(0, 2, 2)",
    "{v}.split(2)[0]",
    "{v}.chunk(2)[-1]",
    "{v}.unbind(0)[0]",
    "{v}.movedim(0, -1)",
    "{v}.permute(*reversed(range({v}.dim())))",
    "{v}.narrow(0, 1, 1)",
    "{v}.as_strided((2, 2), (2, 1))",
    "{v}.as_strided((2, 2), (1, 1))",
    "{v}.detach()",
    "{v}.contiguous()",
    "{v}.reshape(-1)",
    "{v}.flatten()",
    "{v}.to(torch.float32)",
    "{v}.float()",
    "{v}.flip(0)",
    "{v}.view_as({v})",
    "{v}.expand_as({v})",
    "{v}.T",
    "{v}.real",
    "{v}[None]",
    "{v}[..., None, :]",
    "{v}.view(torch.int32).view(torch.float32)",
    "torch.view_as_complex({v}.view(-1, 2)).imag",
    "{v}.clone()",
)
SHAPES = ([4], [3, 4], [4, 4], [2, 3, 2], [1], [1, 1], [0], [2, 0], [], [2, 1, 3])


def chains(seeds: Iterator[int] | range) -> Iterator[Program]:
    for seed in seeds:
        yield chain(seed)


def chain(seed: int) -> Program:
    """A random program that makes views of views and writes through them.

    A line that eager refuses stays in one of ten programs.
    """
    rng = random.Random(seed)
    shape = rng.choice(SHAPES[:4]) if rng.random() < 0.75 else rng.choice(SHAPES)
    grad = rng.random() < 0.4
    origin = rng.choice(("fresh", "fresh", "input", "input_offset", "input_t"))

    def make_args() -> tuple[Any, ...]:
        if origin == "input_t" and len(shape) > 1:
            turned = torch.rand(list(reversed(shape))) * 0.5 + 0.25
            turned = turned.permute(*reversed(range(len(shape))))
            return (turned.requires_grad_(grad),)
        return (make_base(shape, origin, grad, seed % 3 == 0),)

    lines = [f"y = {'x * 1' if origin == 'fresh' else 'x'}"]
    world = {"torch": torch, "x": make_args()[0]}
    world["y"] = world["x"] * 1 if origin == "fresh" else world["x"]
    names = ["y"]
    keeps_errors = rng.random() < 0.1
    for number in range(rng.randint(4, 14)):
        v, made = rng.choice(names[-3:]), ""
        if rng.random() < 0.5:
            made = f"v{number}"
            line = f"{made} = " + rng.choice(CHAIN_VIEWS).format(v=v)
        elif rng.random() < 0.2:
            made = f"r{number}"
            line = f"{made} = {rng.choice(names)}.sum()"
        else:
            w, k = rng.choice(names), rng.choice((0.5, 2, -1))
            write = rng.choice(WRITES[:5] if rng.random() < 0.4 else WRITES)
            line = write.format(v=v, w=w, k=k)
        try:
            exec(line, world)
        except Exception:
            if keeps_errors:
                lines.append(line)
                break
            continue
        lines.append(line)
        if made:
            names.append(made)
    results = rng.sample(names, min(len(names), rng.randint(1, 4)))
    returned = [rng.choice((n, f"{n} * 2", f"{n}.clone()")) for n in results]
    lines.append(f"return ({', '.join(returned)},)")
    source = "def f(x):\n" + "".join(f"    {line}\n" for line in lines)
    return Program(f"chain {seed}", source, make_args)
