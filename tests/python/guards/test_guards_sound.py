"""Every fact a capture may use, changed by every route Python offers.

The rows are in guard_facts_objects.py, _of_values.py, _special.py and _torch.py. A row
of FACTS must change what the program gives (so that a stale answer is seen), and the
compiled function must give the same; a row of UNUSED must not compile again.
The rows run with native predicates read by dict version (as fresh entries do,
here with the walk of large ones that skips dicts while none changes), by slot and
by C look-ups (as entries that were re-armed do).
"""

from __future__ import annotations

import contextlib
from typing import Any

import guard_facts_objects
import guard_facts_of_values
import guard_facts_special
import guard_facts_torch
import pytest
import torch
from guard_facts import FACTS, UNUSED, Row

import framejit
from framejit import _C

# Importing them fills the tables.
_ROWS = (
    guard_facts_objects,
    guard_facts_of_values,
    guard_facts_special,
    guard_facts_torch,
)


def describe(value: Any) -> Any:
    """What can be seen of a result, comparable with ==."""
    if isinstance(value, torch.Tensor):
        if value.layout is not torch.strided:
            values: Any = describe(value.to_dense())
        elif value.is_meta:
            values = "meta"
        else:
            values = Values(_flat(value))
        return (
            type(value).__name__,
            str(value.dtype),
            str(value.layout),
            str(value.device),
            tuple(value.shape),
            value.requires_grad,
            value.is_inference(),
            values,
            _tangent(value),
        )
    if isinstance(value, (list, tuple)):
        return type(value).__name__, [describe(v) for v in value]
    if isinstance(value, dict):
        return type(value).__name__, [(k, describe(v)) for k, v in value.items()]
    return type(value).__name__, repr(value)


class Values(list[float]):
    """Numbers, equal to others up to rounding."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Values) or len(self) != len(other):
            return False
        return all(
            a == b or (a != a and b != b) or abs(a - b) <= 1e-5 + 1e-4 * abs(b)
            for a, b in zip(self, other)
        )

    def __ne__(self, other: object) -> bool:
        return not self == other


def _tangent(tensor: torch.Tensor) -> Any:
    forward = torch.autograd.forward_ad
    if not forward._current_level >= 0 or tensor.is_inference():
        return None
    tangent = forward.unpack_dual(tensor).tangent
    return None if tangent is None else Values(tangent.reshape(-1).tolist())


def _flat(tensor: torch.Tensor) -> list[Any]:
    with torch.no_grad():
        flat = tensor.resolve_conj().resolve_neg().reshape(-1)
        if flat.is_complex():
            flat = torch.view_as_real(flat).reshape(-1)
        return list(flat.double().tolist())


def observe(env: Any, f: Any) -> Any:
    """One call, and what it did: the result or exception, the arguments
    afterwards (if it writes to them), and the gradients."""
    wrap = getattr(env, "wrap", None)
    f = wrap(f) if wrap else f
    if not getattr(env, "stateful", False):
        return _call(env, f)
    # Both runs start from the same values.
    tensors = [t for t in _tensors(env) if not t.is_inference()]
    saved = [t.detach().clone() for t in tensors]
    try:
        return _call(env, f), [describe(t) for t in tensors]
    finally:
        with torch.no_grad():
            for t, old in zip(tensors, saved):
                if t.shape == old.shape:
                    t.copy_(old)


def _tensors(env: Any) -> list[torch.Tensor]:
    module = getattr(env, "m", None)
    held = [*module.parameters(), *module.buffers()] if module is not None else []
    return [a for a in env.args if isinstance(a, torch.Tensor)] + held


def _call(env: Any, f: Any) -> Any:
    torch.manual_seed(0)
    try:
        result = f(*env.args, **getattr(env, "kwargs", {}))
    except Exception as error:
        return type(error).__name__, str(error)
    return describe(result), _gradients(env, result)


def _gradients(env: Any, result: Any) -> Any:
    leaves = [a for a in env.args if isinstance(a, torch.Tensor)]
    leaves += getattr(env, "leaves", list)()
    leaves = [t for t in leaves if t.is_leaf and t.requires_grad]
    results = result if isinstance(result, tuple) else (result,)
    outputs = [
        t
        for t in results
        if isinstance(t, torch.Tensor) and t.requires_grad and not t.is_inference()
    ]
    if not leaves or not outputs:
        return None
    try:
        total = sum((t.double() ** 2).sum() for t in outputs)
        grads = torch.autograd.grad(total, leaves, allow_unused=True)
    except RuntimeError as error:
        return str(error)[:60]
    return [None if g is None else describe(g) for g in grads]


def enter(change: Any) -> Any:
    if hasattr(change, "__enter__"):
        return change
    return contextlib.nullcontext()


_DICTS = _C.dicts_worth_an_epoch()
FORMS = {"version": "native", "slot": "eager", "generic": "aot_eager"}


def compiled_for(row: Row, form: str) -> tuple[Any, Any]:
    _C.set_first_guard_form(form)
    _C.set_dicts_worth_an_epoch(0 if form == "version" else _DICTS)
    env = row.setup()
    return env, framejit.compile(env.f, backend=FORMS[form])


@pytest.fixture(autouse=True)
def checked_guards():
    # Each predicate that holds is compared with the reference evaluator.
    _C.set_option("verify", "1")
    yield
    _C.set_option("verify", "0")
    _C.set_first_guard_form("version")
    _C.set_dicts_worth_an_epoch(_DICTS)


def combinations() -> Any:
    """Each row in the first form; models, which take longest, in one more, others
    in all."""
    for number, row in enumerate(FACTS):
        for form in FORMS:
            whole_model = row.name in ("module_called_in_function", "compiled_module")
            if not whole_model or form in ("version", ("slot", "generic")[number % 2]):
                yield pytest.param(row, form, id=f"{row}-{form}")


@pytest.mark.parametrize(("row", "form"), combinations())
def test_fact_is_guarded(row, form):
    env, compiled = compiled_for(row, form)
    context = getattr(env, "context", contextlib.nullcontext)
    with context():
        before = observe(env, env.f)
        for _ in range(2):
            assert observe(env, compiled) == before
        with enter(row.change(env)):
            after = observe(env, env.f)
            assert after != before, "the row changes nothing that can be seen"
            for _ in range(3):
                assert observe(env, compiled) == after
        again = observe(env, env.f)
        assert observe(env, compiled) == again


@pytest.mark.parametrize("form", ["version", "slot"])
@pytest.mark.parametrize("row", UNUSED, ids=str)
def test_what_is_not_used_costs_nothing(row, form):
    env, compiled = compiled_for(row, form)
    expected = observe(env, env.f)
    for _ in range(2):
        assert observe(env, compiled) == expected
    _C.clear_events()
    with enter(row.change(env)):
        expected = observe(env, env.f)
        for _ in range(3):
            assert observe(env, compiled) == expected
    counts = _C.counters()
    assert counts["compiles"] == counts["fallbacks"] == 0, _C.recent_events()
