"""Compares a compiled function with the original, in everything a program sees.

`check(fn, make_args)` runs both on equal arguments (made twice by
``make_args()``, under one seed) and compares: the result (types, structure,
values, dtype, strides, requires_grad), the exception (type, message), the
arguments afterwards (mutation), aliasing between results and arguments, the
gradients of everything that requires grad, and the random number state.

`program(make_args, graphs=1, breaks=0)` makes the decorated function a test
that checks itself; the numbered files are a ladder of these.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import torch

import framejit

BACKENDS = ("eager", "aot_eager", "native")


@dataclasses.dataclass
class Outcome:
    result: Any
    error: BaseException | None
    args: tuple[Any, ...]
    grads: list[torch.Tensor | None]
    rng: torch.Tensor


def _attributes(value: Any) -> dict[str, Any]:
    """What an object's dict and slots hold."""
    found: dict[str, Any] = dict(getattr(value, "__dict__", {}))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name not in ("__dict__", "__weakref__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def _walk(value: Any, path: str, found: list[tuple[str, Any]], seen: set[int]) -> None:
    if id(value) in seen and not isinstance(value, (int, float, str, bool, type(None))):
        return
    seen.add(id(value))
    found.append((path, value))
    if isinstance(value, torch.nn.Module):
        for name, item in value.named_parameters():
            _walk(item, f"{path}.{name}", found, seen)
        for name, item in value.named_buffers():
            _walk(item, f"{path}.{name}", found, seen)
    elif isinstance(value, (list, tuple, collections.deque)):
        for i, item in enumerate(value):
            _walk(item, f"{path}[{i}]", found, seen)
    elif isinstance(value, dict):
        for key, item in value.items():
            _walk(item, f"{path}[{key!r}]", found, seen)
    # Instances of subclasses of containers have attributes, too.
    if not isinstance(value, (torch.Tensor, torch.nn.Module, type)):
        for key, item in _attributes(value).items():
            _walk(item, f"{path}.{key}", found, seen)


def flatten(value: Any) -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    _walk(value, "", found, set())
    return found


def tensors_of(value: Any) -> list[torch.Tensor]:
    return [item for _, item in flatten(value) if isinstance(item, torch.Tensor)]


def _run(
    fn: Callable[..., Any], args: tuple[Any, ...], backward: bool, seed: int
) -> Outcome:
    torch.manual_seed(seed)
    inputs = tensors_of(args)
    result, error = None, None
    try:
        result = fn(*args)
    except Exception as exc:
        error = exc
    rng = torch.get_rng_state()
    grads: list[torch.Tensor | None] = []
    if backward and error is None:
        outputs = [
            t
            for t in tensors_of(result)
            if t.requires_grad and t.dtype.is_floating_point
        ]
        if outputs:
            total = sum((t * (i + 1)).sum() for i, t in enumerate(outputs))
            leaves = [t for t in inputs if t.requires_grad and t.is_leaf]
            if leaves:
                grads = list(torch.autograd.grad(total, leaves, allow_unused=True))
    return Outcome(result, error, args, grads, rng)


def assert_same_tensor(
    a: torch.Tensor, b: torch.Tensor, where: str, exact: bool | dict[str, float]
) -> None:
    assert type(a) is type(b), f"{where}: {type(a)} != {type(b)}"
    assert a.dtype == b.dtype, f"{where}: dtype {a.dtype} != {b.dtype}"
    assert a.shape == b.shape, f"{where}: shape {a.shape} != {b.shape}"
    assert a.device == b.device, where
    assert a.requires_grad == b.requires_grad, f"{where}: requires_grad"
    assert a.is_leaf == b.is_leaf, f"{where}: is_leaf"
    if a.numel() > 1:
        strides = [
            (n, s, t) for n, s, t in zip(a.shape, a.stride(), b.stride()) if n > 1
        ]
        assert all(s == t for _, s, t in strides), (
            f"{where}: stride {a.stride()} != {b.stride()}"
        )
    kwargs: dict[str, Any] = {"equal_nan": True, "msg": lambda m: f"{where}: {m}"}
    if exact:
        kwargs.update(exact if isinstance(exact, dict) else {"rtol": 0, "atol": 0})
    torch.testing.assert_close(a.detach(), b.detach(), **kwargs)


def assert_same(
    a: Any,
    b: Any,
    where: str = "result",
    exact: bool | dict[str, float] = False,
) -> None:
    """Types, structure and values; tensors as `assert_same_tensor`.

    exact: True, or the limits of torch.testing.assert_close.
    """
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        assert_same_tensor(a, b, where, exact)
        return
    if isinstance(a, torch.nn.Module):
        assert_same(dict(a.state_dict()), dict(b.state_dict()), where, exact)
        return
    assert type(a).__name__ == type(b).__name__, f"{where}: {type(a)} != {type(b)}"
    if isinstance(a, (list, tuple, collections.deque)):
        assert len(a) == len(b), f"{where}: length {len(a)} != {len(b)}"
        for i, (x, y) in enumerate(zip(a, b)):
            assert_same(x, y, f"{where}[{i}]", exact)
    elif isinstance(a, dict):
        assert list(a) == list(b), f"{where}: keys {list(a)} != {list(b)}"
        for key in a:
            assert_same(a[key], b[key], f"{where}[{key!r}]", exact)
        if hasattr(a, "__dict__"):
            assert_same(vars(a), vars(b), f"vars({where})", exact)
    elif callable(a) or isinstance(a, type):
        pass
    elif _attributes(a) or type(a).__eq__ is object.__eq__:
        assert_same(_attributes(a), _attributes(b), where, exact)
    else:
        assert a == b or (a != a and b != b), f"{where}: {a!r} != {b!r}"


def _aliases(outcome: Outcome) -> set[tuple[str, str]]:
    """Pairs of places that hold one object, or tensors of one storage."""
    places = [(f"arg{p}", v) for p, v in flatten(outcome.args)]
    places += [(f"out{p}", v) for p, v in flatten(outcome.result)]
    pairs = set()
    for i, (p, a) in enumerate(places):
        for q, b in places[i + 1 :]:
            if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
                if (
                    a.numel()
                    and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()
                ):
                    pairs.add((p, q))
                if a is b:
                    pairs.add((p + "!", q))
            elif a is b and isinstance(a, (list, dict)):
                pairs.add((p, q))
    return pairs


def compare(expected: Outcome, actual: Outcome, exact: bool = False) -> None:
    if expected.error is not None or actual.error is not None:
        assert type(expected.error) is type(actual.error), (
            f"eager raised {expected.error!r}, compiled raised {actual.error!r}"
        )
        assert str(expected.error) == str(actual.error)
    assert_same(expected.result, actual.result, "result", exact)
    assert_same(expected.args, actual.args, "arguments afterwards", exact)
    assert _aliases(expected) == _aliases(actual), "aliasing differs"
    assert len(expected.grads) == len(actual.grads)
    for i, (a, b) in enumerate(zip(expected.grads, actual.grads)):
        assert (a is None) == (b is None), f"gradient {i}: {a} against {b}"
        if a is not None and b is not None:
            torch.testing.assert_close(
                a, b, equal_nan=True, msg=lambda m, i=i: f"gradient {i}: {m}"
            )
    assert torch.equal(expected.rng, actual.rng), "random number state differs"


def check(
    fn: Callable[..., Any],
    make_args: Callable[[], tuple[Any, ...]],
    *,
    backends: tuple[str, ...] = BACKENDS,
    calls: int = 2,
    graphs: int | None = None,
    breaks: int | None = None,
    backward: bool = True,
    **options: Any,
) -> None:
    """Compiled equals eager, on every backend, on the first and on warm calls.

    graphs, breaks: expected numbers over all entries of the function and its
    resume functions; None: not checked.
    """
    for backend in backends:
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend, **options)
        for number in range(calls):
            torch.manual_seed(100 + number)
            args = make_args()
            torch.manual_seed(100 + number)
            expected = _run(fn, make_args(), backward, number)
            actual = _run(compiled, args, backward, number)
            try:
                compare(expected, actual)
            except AssertionError as error:
                raise AssertionError(
                    f"backend {backend}, call {number}: {error}"
                ) from error
        entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
        if graphs is not None:
            found = sum(1 for e in entries if e.operations)
            assert found == graphs, (
                f"{backend}: {found} graphs, expected {graphs}: {framejit.events()}"
            )
        if breaks is not None:
            found = sum(len(e.breaks) for e in entries)
            assert found == breaks, (
                f"{backend}: {found} breaks, expected {breaks}: {framejit.events()}"
            )


def program(
    make_args: Callable[[], tuple[Any, ...]],
    *,
    graphs: int | None = 1,
    breaks: int | None = 0,
    **options: Any,
) -> Callable[[Callable[..., Any]], Callable[[], None]]:
    """Makes a test of the decorated function: `check` of it, on `make_args()`."""

    def decorate(fn: Callable[..., Any]) -> Callable[[], None]:
        def test() -> None:
            check(fn, make_args, graphs=graphs, breaks=breaks, **options)

        test.__name__ = test.__qualname__ = fn.__name__
        test.__doc__ = fn.__doc__
        return test

    return decorate


def vector(n: int = 4, **kwargs: Any) -> torch.Tensor:
    return torch.randn(n, **kwargs)


def one() -> tuple[torch.Tensor]:
    """A vector."""
    return (torch.randn(4),)


def leaf() -> tuple[torch.Tensor]:
    """A vector that requires grad."""
    return (torch.randn(4, requires_grad=True),)


def two() -> tuple[torch.Tensor, torch.Tensor]:
    """Two matrices of one size, the first requires grad."""
    return torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)


def positive() -> tuple[torch.Tensor]:
    """A vector of numbers above zero."""
    return (torch.rand(4) + 0.5,)


@framejit.disable
def opaque(value: Any = None) -> Any:
    """Stands for what capture cannot look into."""
    return value


@framejit.disable
def raising(error: BaseException) -> Any:
    raise error
