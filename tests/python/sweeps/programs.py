"""One program of a sweep: its text, its arguments, what it does.

`differences(program, backend)` runs it plain and compiled, twice, and says what
the compiled one did differently in anything a program can see: results with
their layout, versions and memory, arguments afterwards, exceptions, warnings,
gradients, random numbers.
"""

from __future__ import annotations

import dataclasses
import linecache
import re
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

import framejit

BACKENDS = ("aot_eager", "native")


@dataclasses.dataclass
class Program:
    name: str
    source: str  # defines f
    make_args: Callable[[], tuple[Any, ...]]
    names: dict[str, Any] = dataclasses.field(default_factory=dict)
    # Gradients of what the program returns, to arguments that require them.
    backward: bool = True
    # What the results are multiplied with: laid out as they are ("like"), as
    # torch.randn() would be ("contiguous"), as sum() does ("expanded").
    tangents: str = "like"
    versions: bool = True
    # The arguments of each call; by default twice the same.
    calls: list[Callable[[], tuple[Any, ...]]] | None = None

    def function(self) -> Callable[..., Any]:
        name = f"<sweep {self.name}>"
        lines = self.source.splitlines(keepends=True)
        linecache.cache[name] = (len(self.source), None, lines, name)
        names = {"torch": torch, "__name__": "program", **self.names}
        exec(compile(self.source, name, "exec"), names)
        return names["f"]


# (first, step): every how manieth operator of torch's database.
Part = tuple[int, int]
ALL: Part = (0, 1)


def database(part: Part = ALL) -> list[Any]:
    from torch.testing._internal.common_methods_invocations import op_db

    return op_db[part[0] :: part[1]]


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors_in(item)


def copies(value: Any) -> Any:
    """Equal arguments with tensors of their own, laid out alike."""
    if isinstance(value, torch.Tensor):
        copy = value.detach().clone()
        return copy.requires_grad_(value.requires_grad)
    if type(value) in (list, tuple):
        return type(value)(copies(item) for item in value)
    if type(value) is dict:
        return {key: copies(item) for key, item in value.items()}
    return value


ADDRESS = re.compile(r"0x[0-9a-f]+")


@dataclasses.dataclass
class Outcome:
    args: tuple[Any, ...]
    result: Any = None
    error: Exception | None = None
    warned: list[str] = dataclasses.field(default_factory=list)
    grads: list[torch.Tensor | None] = dataclasses.field(default_factory=list)
    backward_error: Exception | None = None
    rng: Any = None


def run(
    fn: Callable[..., Any], program: Program, make_args: Callable[[], tuple[Any, ...]]
) -> Outcome:
    torch.manual_seed(11)
    outcome = Outcome(make_args())
    torch.manual_seed(12)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome.result = fn(*outcome.args)
        except Exception as error:
            outcome.error = error
        outcome.warned = [
            f"{w.category.__name__}: {str(w.message).split(' (Triggered')[0]}"
            for w in caught
        ]
    outcome.rng = torch.get_rng_state()
    if program.backward and outcome.error is None:
        backward(outcome, program.tangents)
    return outcome


def attempt(call: Callable[[], Any], otherwise: Any = None) -> Any:
    """Of a view that refuses to be looked at, nothing is known."""
    try:
        return call()
    except Exception as error:
        return otherwise if otherwise is not None else text_of(error)


def backward(outcome: Outcome, how: str) -> None:
    outputs = list(tensors_in(outcome.result))
    outputs = [t for t in outputs if attempt(lambda t=t: t.requires_grad) is True]
    leaves = [t for t in tensors_in(outcome.args) if t.requires_grad and t.is_leaf]
    if not outputs or not leaves:
        return
    try:
        tangents = [tangent_of(t, how) for t in outputs]
        outcome.grads = list(
            torch.autograd.grad(outputs, leaves, tangents, allow_unused=True)
        )
    except Exception as error:
        outcome.backward_error = error


def tangent_of(output: torch.Tensor, how: str) -> torch.Tensor:
    if how == "expanded":
        return torch.full((), 1.5).to(output.dtype).expand(output.shape)
    values = torch.linspace(1, 2, output.numel()).view(output.shape)
    if how == "contiguous":
        return values.to(output.dtype)
    return torch.empty_like(output).detach().copy_(values)


# ---- comparison


def text_of(error: Exception | None) -> str:
    return ADDRESS.sub("0x", f"{type(error).__name__}: {error}") if error else ""


def memory_of(tensor: torch.Tensor) -> int:
    try:
        return tensor.untyped_storage().data_ptr()
    except Exception:
        return 0


def layout_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    if tensor.layout is not torch.strided:
        return (tensor.layout,)
    return (
        ("strides", tensor.stride()),
        ("offset", tensor.storage_offset()),
        ("conj", tensor.is_conj()),
        ("neg", tensor.is_neg()),
    )


def history_of(tensor: torch.Tensor) -> tuple[Any, ...]:
    return (
        ("requires_grad", attempt(lambda: tensor.requires_grad)),
        ("is_leaf", attempt(lambda: tensor.is_leaf)),
        ("inference", tensor.is_inference()),
    )


def values_differ(a: torch.Tensor, b: torch.Tensor) -> str:
    with torch.no_grad():
        a, b = a.clone(), b.clone()
    if a.is_quantized or a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    scale = 0.0
    if a.is_floating_point() and a.numel():
        scale = a.double().abs().nan_to_num(0, 0, 0).max().item()
    eps = torch.finfo(a.dtype).eps if a.is_floating_point() or a.is_complex() else 0
    try:
        torch.testing.assert_close(
            b, a, equal_nan=True, rtol=100 * eps, atol=100 * eps + 10 * eps * scale
        )
    except AssertionError as error:
        return "values " + " ".join(str(error).split())[:110]
    return ""


def tensors_differ(a: torch.Tensor, b: torch.Tensor, program: Program) -> str:
    if type(a) is not type(b):
        return f"class {type(a).__name__} != {type(b).__name__}"
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"{a.dtype} {tuple(a.shape)} != {b.dtype} {tuple(b.shape)}"
    for x, y in zip(
        layout_of(a) + history_of(a), layout_of(b) + history_of(b), strict=False
    ):
        if x != y:
            return f"{x} != {y}"
    if found := values_differ(a, b):
        return found
    if program.versions and not a.is_inference() and a._version != b._version:
        return f"version {a._version} != {b._version}"
    return ""


def results_differ(a: Any, b: Any, program: Program) -> str:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return tensors_differ(a, b, program)
    if type(a) is not type(b):
        return f"{type(a).__name__} != {type(b).__name__}"
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return f"length {len(a)} != {len(b)}"
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if found := results_differ(x, y, program):
                return f"[{i}] {found}"
        return ""
    if isinstance(a, dict):
        return results_differ(list(a.items()), list(b.items()), program)
    return "" if a == b or (a != a and b != b) else f"{a!r} != {b!r}"


def sharing(outcome: Outcome) -> list[tuple[int, int, str]]:
    """Which of the tensors a program sees are one, or share memory."""
    tensors = list(tensors_in((outcome.result, outcome.args)))
    found = []
    for i, a in enumerate(tensors):
        for j, b in enumerate(tensors[:i]):
            if a is b:
                found.append((i, j, "is"))
            elif memory_of(a) and memory_of(a) == memory_of(b):
                found.append((i, j, "shares"))
    return found


def grads_differ(a: Outcome, b: Outcome, program: Program) -> str:
    if text_of(a.backward_error) != text_of(b.backward_error):
        return (
            f"backward raises {text_of(b.backward_error)!r:.90}, "
            f"eager {text_of(a.backward_error)!r:.90}"
        )
    for i, (x, y) in enumerate(zip(a.grads, b.grads, strict=False)):
        if (x is None) != (y is None):
            return f"gradient {i}: {x} != {y}"
        if x is None or y is None:
            continue
        if x.stride() != y.stride():
            return f"gradient {i}: strides {x.stride()} != {y.stride()}"
        if found := values_differ(x, y):
            return f"gradient {i}: {found}"
    return ""


def compare(a: Outcome, b: Outcome, program: Program) -> str:
    """What the compiled run (b) did otherwise than eager (a), or ""."""
    if text_of(a.error) != text_of(b.error):
        return f"raises {text_of(b.error)!r:.120}, eager {text_of(a.error)!r:.120}"
    if found := results_differ(a.result, b.result, program):
        return f"result {found}"
    if found := results_differ(a.args, b.args, program):
        return f"argument {found}"
    if sharing(a) != sharing(b):
        return f"sharing {sharing(a)} != {sharing(b)}"
    if a.warned != b.warned:
        return f"warnings {a.warned} != {b.warned}"[:250]
    if not torch.equal(a.rng, b.rng):
        return "random number state"
    return grads_differ(a, b, program)


@dataclasses.dataclass
class Verdict:
    status: str  # captured, "fell back", broke, error (eager raises), WRONG
    why: str = ""


def how_it_ran(compiled: Any) -> Verdict:
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    for entry in entries:
        for found in entry.breaks:
            return Verdict("broke", f"{found.id} {found.reason}: {found.detail}")
    for entry in entries:
        if entry.fallback_reason:
            return Verdict("fell back", entry.fallback_reason)
    return Verdict("captured" if entries else "broke", "" if entries else "no graph")


def try_program(program: Program, backend: str) -> Verdict:
    framejit.reset()
    plain = program.function()
    compiled = framejit.compile(program.function(), backend=backend)
    raised = False
    expected = None
    for number, make_args in enumerate(program.calls or [program.make_args] * 2):
        if program.calls or expected is None:
            expected = run(plain, program, make_args)
        raised |= expected.error is not None
        try:
            actual = run(compiled, program, make_args)
            if expected.warned != actual.warned:  # torch warns once of some things
                expected = run(plain, program, make_args)
            found = compare(expected, actual, program)
        except Exception as error:
            found = f"comparing: {error!r}"
        if found:
            how = how_it_ran(compiled)
            why = f"call {number}: {found} [{how.status} {how.why:.60}]"
            return Verdict("WRONG", " ".join(why.split()))
    how = how_it_ran(compiled)
    return Verdict("raised as eager", how.why) if raised else how
