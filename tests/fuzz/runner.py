"""Runs one program compiled and plain, and compares all it can see.

Both run in namespaces of their own, call by call: results, exceptions with
their text and cause, arguments and globals afterwards, the order of effects,
aliasing, gradients, random state. `Mismatch` says what differs.
"""

from __future__ import annotations

import collections
import dataclasses
import linecache
import os
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import torch

import framejit

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))

import differential  # noqa: E402
from fuzz.generate import CALLS, Program  # noqa: E402

_PRELUDE = compile((HERE / "prelude.py").read_text(), str(HERE / "prelude.py"), "exec")

GLOBALS = ("LOG", "G_INT", "G_STR", "G_TENSOR", "G_LIST", "G_DICT", "OBJ", "NET")


class Mismatch(AssertionError):
    """Compiled and eager differ."""


Report = collections.namedtuple("Report", ["graphs", "breaks", "raised"])


def load(code: types.CodeType) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "fuzz_program"}
    exec(_PRELUDE, names)
    exec(code, names)
    return names


def _visible(value: Any, names: dict[str, Any]) -> Any:
    """The same, with objects that have __slots__ as dicts."""
    if isinstance(value, names["SlotBox"]):
        slots = [n for n in type(value).__slots__ if hasattr(value, n)]
        return {"class": "SlotBox", **{n: getattr(value, n) for n in slots}}
    if type(value) in (list, tuple):
        if any(isinstance(v, names["SlotBox"]) for v in value):
            return type(value)(_visible(v, names) for v in value)
    if type(value) is dict:
        return {k: _visible(v, names) for k, v in value.items()}
    return value


def _chain(error: BaseException | None) -> list[Any]:
    """The exception with what caused it."""
    found: list[Any] = []
    while error is not None and len(found) < 5:
        found.append((type(error).__name__, str(error), error.__suppress_context__))
        if error.__cause__ is not None:
            found.append("cause")
            error = error.__cause__
        else:
            error = error.__context__
    return found


def _lines(error: BaseException | None) -> list[tuple[str, int]]:
    """Where in the program the traceback goes through."""
    found = []
    trace = error.__traceback__ if error else None
    while trace:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith("<fuzz"):
            found.append((code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    return found


def _gradients(result: Any, inputs: list[torch.Tensor]) -> Any:
    """Gradients of all results with respect to all leaves, or the error."""
    outputs = [
        t
        for t in differential.tensors_of(result)
        if t.requires_grad and t.dtype.is_floating_point
    ]
    leaves = [t for t in inputs if t.requires_grad and t.is_leaf]
    if not outputs or not leaves:
        return []
    try:
        total = sum((t * (i + 1)).sum() for i, t in enumerate(outputs))
        return list(torch.autograd.grad(total, leaves, allow_unused=True))
    except RuntimeError as error:
        return str(error)


@dataclasses.dataclass
class Outcome:
    """Everything one call did."""

    result: Any
    error: BaseException | None
    state: Any
    grads: Any
    rng: torch.Tensor


def _seed(number: int) -> None:
    # torch.manual_seed formats a stack for CUDA each time.
    torch.random.default_generator.manual_seed(number)


def _outcome(names: dict[str, Any], fn: Any, call: int) -> Outcome:
    _seed(50 + call)
    args = names["make_args"](call)
    _seed(80 + call)
    inputs = [*differential.tensors_of(args), names["NET"].weight]
    grad = torch.is_grad_enabled()
    result, error = None, None
    try:
        with names["around"](call):
            result = fn(*args)
    except Exception as raised:
        error = raised
    rng = torch.get_rng_state()
    if torch.is_grad_enabled() != grad:
        torch.set_grad_enabled(grad)
        raise Mismatch("the grad mode is not what it was before")
    try:
        for tensor in differential.tensors_of((result, args)):
            tensor.is_leaf  # noqa: B018
    except RuntimeError as unreadable:
        # Written to across grad modes: autograd says so on every look at it.
        return Outcome(None, error, None, str(unreadable), rng)
    grads = _gradients(result, inputs)
    state = {n: names[n] for n in GLOBALS}
    state["module"] = vars(names["NET"])["n"], names["NET"].history
    state["printed"] = names["OUT"].getvalue()
    state["args"] = args
    state["defaults"] = names["f"].__defaults__
    return Outcome(_visible(result, names), error, _visible(state, names), grads, rng)


def _change(names: dict[str, Any], call: int) -> str:
    """What the caller does between two calls may fail, in both alike."""
    try:
        names["between"](call)
    except Exception as error:
        return repr(error)
    return ""


def _aliases(outcome: Outcome) -> list[tuple[str, str]]:
    """Each place, with the first that holds the same object or storage."""
    first: dict[Any, str] = {}
    found = []
    for path, value in differential.flatten((outcome.state, outcome.result)):
        if isinstance(value, torch.Tensor):
            if value.numel():
                storage = value.untyped_storage().data_ptr()
                found.append((path, first.setdefault(("s", storage), path)))
            found.append((path, first.setdefault(id(value), path)))
        elif isinstance(value, (list, dict)) or hasattr(value, "__dict__"):
            found.append((path, first.setdefault(id(value), path)))
    return found


def _compare(expected: Outcome, actual: Outcome, exact: bool) -> None:
    a, b = _chain(expected.error), _chain(actual.error)
    if a != b:
        raise Mismatch(f"eager raised {a}, compiled raised {b}")
    a, b = _lines(expected.error), _lines(actual.error)
    if a != b:
        raise Mismatch(f"traceback: eager {a}, compiled {b}")
    # Random programs multiply what rounding changes.
    limits = {"rtol": 0.0, "atol": 0.0} if exact else {"rtol": 1e-3, "atol": 1e-4}
    for where in ("result", "state"):
        a, b = getattr(expected, where), getattr(actual, where)
        differential.assert_same(a, b, where, limits)
    if _aliases(expected) != _aliases(actual):
        pairs = set(_aliases(expected)) ^ set(_aliases(actual))
        raise Mismatch(f"aliasing differs: {sorted(pairs)}")
    if not exact and "modified by an inplace" in str(expected.grads)[:200]:
        return  # a functional graph has the gradients that eager lost
    if type(expected.grads) is not type(actual.grads):
        raise Mismatch(f"gradients: {expected.grads} against {actual.grads}")
    if not isinstance(expected.grads, str):
        for i, (x, y) in enumerate(zip(expected.grads, actual.grads, strict=True)):
            # Strides of gradients are the backend's own.
            if (x is None) != (y is None):
                raise Mismatch(f"gradients: number {i}: {x} against {y}")
            if x is not None:
                torch.testing.assert_close(
                    x,
                    y,
                    equal_nan=True,
                    msg=lambda m, i=i: f"gradients: number {i}: {m}",
                    **limits,
                )
    if not torch.equal(expected.rng, actual.rng):
        raise Mismatch("random number state differs")


def run(source: str, backend: str = "eager", calls: int = CALLS, name: str = "") -> Any:
    """Raises Mismatch, or whatever a bug inside FrameJIT raises."""
    filename = f"<fuzz {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        code = compile(source, filename, "exec")
        eager, compiled = load(code), load(code)
        framejit.reset()
        fn = framejit.compile(compiled["f"], backend=backend)
        raised = 0
        for call in range(calls):
            changed = [_change(names, call) for names in (eager, compiled)]
            if changed[0] != changed[1]:
                raise Mismatch(f"{backend}, between: {changed}")
            expected = _outcome(eager, eager["f"], call)
            actual = _outcome(compiled, fn, call)
            raised += expected.error is not None
            try:
                _compare(expected, actual, exact=backend == "eager")
            except Exception as error:
                raise Mismatch(f"{backend}, call {call}: {error}") from error
    entries = [e for entry in framejit.inspect(fn) for e in entry.walk()]
    breaks = [b for e in entries for b in e.breaks]
    return Report(sum(1 for e in entries if e.operations), breaks, raised)


def backends_of(seed: int) -> list[str]:
    """Every program runs on eager, some on the others, too."""
    found = ["eager"]
    if seed % 4 == 1:
        found.append("aot_eager")
    if seed % 4 == 3:
        found.append("native")
    return found


def run_program(program: Program) -> list[Any]:
    return [
        run(program.source, backend, name=str(program.seed))
        for backend in backends_of(program.seed)
    ]


os.environ.setdefault("FRAMEJIT_STRICT", "1")
torch.set_num_threads(1)
