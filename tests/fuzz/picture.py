"""All that can be seen of values, as a flat list of facts.

Two pictures of equal programs are equal: types, contents, the order of sets and
dicts, what exceptions carry, what is left in iterators, and which places hold
one object or one storage (a place seen before is its number). The walk keeps its
own stack, so that values may be deep or contain themselves. Iterators are
drained, last of all.
"""

from __future__ import annotations

import collections
import functools
import itertools
import math
import types
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import torch

import differential

ATOMS = (int, float, complex, str, bytes, type(None), type(...), torch.dtype)
OPAQUE = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
OPAQUE += (types.ModuleType, functools.partial, torch._C.Generator, torch.device)
VIEWS = (type({}.keys()), type({}.values()), type({}.items()))


class Fact(NamedTuple):
    parent: int
    key: Any
    kind: str
    value: Any  # compared with ==; a tensor by what is in it
    place: Any  # number of the first fact about this object, and of its storage


def program_lines(error: BaseException) -> list[tuple[str, int]]:
    """Where in the program its traceback goes through."""
    found = []
    trace = error.__traceback__
    while trace:
        code = trace.tb_frame.f_code
        if code.co_filename.startswith("<fuzz"):
            found.append((code.co_name, trace.tb_lineno))
        trace = trace.tb_next
    if found and isinstance(error, UnboundLocalError):
        # CPython 3.11 joins instructions of code that has run a few times, and
        # then says the line of the first of the two.
        found[-1] = (found[-1][0], 0)
    return found


def _is_iterator(value: Any) -> bool:
    kind = type(value)
    return hasattr(kind, "__next__") and kind.__module__ in ("builtins", "itertools")


def _parts(value: Any) -> tuple[Any, list[tuple[Any, Any]]]:
    """What one object says of itself, and the objects in it by name."""
    if type(value) in (list, tuple):  # deep objects are made of them
        return (len(value), None), [*enumerate(value)]
    if isinstance(value, torch.Tensor):
        said = None
        try:
            inner = [("grad", value.grad)] if value.is_leaf else []
        except RuntimeError as error:  # a view whose history a write made void
            said, inner = str(error), []
        return said, [*inner, *differential._attributes(value).items()]
    if isinstance(value, torch.nn.Module):
        named = [*value.named_parameters(), *value.named_buffers()]
        own = [(n, v) for n, v in vars(value).items() if n[0] != "_"]
        training = [(n, m.training, type(m).__name__) for n, m in value.named_modules()]
        return training, named + own
    if isinstance(value, BaseException):
        inner = [("args", value.args), ("cause", value.__cause__)]
        inner += [("context", value.__context__), *vars(value).items()]
        return (str(value), value.__suppress_context__, program_lines(value)), inner
    inner = list(differential._attributes(value).items())
    if isinstance(value, (list, tuple, collections.deque)):
        head = [*enumerate(value)]
        return (len(value), getattr(value, "maxlen", None)), head + inner
    if isinstance(value, (dict, types.MappingProxyType)):
        # A key that is no plain value is an object in it as well.
        head = [(k if isinstance(k, ATOMS) else "key", v) for k, v in value.items()]
        keys = [("key", k) for k in value if not isinstance(k, ATOMS)]
        return len(value), keys + head + inner
    if isinstance(value, (set, frozenset)):
        ordered = all(isinstance(v, (int, float, str)) for v in value)
        return (len(value), list(value) if ordered else None), inner
    if isinstance(value, slice):
        return None, [(n, getattr(value, n)) for n in ("start", "stop", "step")]
    if isinstance(value, VIEWS):
        return None, [*enumerate(value)]
    if isinstance(value, weakref.ref):
        return None, [("referent", value())]
    if type(value).__name__ == "_lru_cache_wrapper":
        return tuple(value.cache_info()), []
    # An __eq__ of the program reads attributes, which may all be gone.
    equality = type(value).__eq__
    if inner or isinstance(value, OPAQUE) or isinstance(equality, types.FunctionType):
        return None, inner
    if equality is object.__eq__:
        return None, inner
    return value, []


class Picture:
    def __init__(self, value: Any) -> None:
        self.facts: list[Fact] = []
        self.seen: dict[Any, int] = {}
        self.kept: list[Any] = []  # numbers of objects stay theirs
        self.iterators: list[tuple[int, Any]] = []
        self._walk(-1, "", value)
        while self.iterators:
            number, iterator = self.iterators.pop(0)
            left: list[Any] = []
            error = None
            try:
                left.extend(itertools.islice(iterator, 8))
            except Exception as raised:
                error = f"{type(raised).__name__}: {raised}"
            self._walk(number, "left", [left, error])

    def _walk(self, parent: int, key: Any, value: Any) -> None:
        stack = [(parent, key, value)]
        while stack:
            parent, key, value = stack.pop()
            number, kind = len(self.facts), type(value).__name__
            if isinstance(value, ATOMS) and type(value).__eq__ is not object.__eq__:
                self.facts.append(Fact(parent, key, kind, value, None))
                continue
            place: Any = self.seen.setdefault(id(value), number)
            if isinstance(value, (tuple, frozenset)):
                place = number  # a constant may be one object, or two
            self.kept.append(value)
            known = place != number
            if isinstance(value, torch.Tensor):
                storage = None
                lazy = isinstance(value, torch.nn.parameter.UninitializedTensorMixin)
                if not lazy and value.layout == torch.strided and value.numel():
                    start = value.untyped_storage().data_ptr()
                    storage = self.seen.setdefault(("storage", start), number)
                place = place, storage
            if known:
                self.facts.append(Fact(parent, key, kind, None, place))
                continue
            if _is_iterator(value):
                self.facts.append(Fact(parent, key, kind, None, place))
                self.iterators.append((number, value))
                continue
            said, inner = _parts(value)
            if isinstance(value, torch.Tensor) and said is None:
                said = value
            self.facts.append(Fact(parent, key, kind, said, place))
            stack += [(number, k, v) for k, v in reversed(inner)]

    def where(self, number: int) -> str:
        words = []
        while number >= 0 and len(words) < 12:
            fact = self.facts[number]
            words.append(str(fact.key))
            number = fact.parent
        return ".".join(reversed(words)).strip(".")


def tensors_in(value: Any) -> list[torch.Tensor]:
    """All tensors that can be reached, without looking into iterators."""
    found, seen, stack = [], {}, [value]
    while stack:
        item = stack.pop()
        if isinstance(item, ATOMS) or id(item) in seen:
            continue
        if type(item) in (list, tuple):
            seen[id(item)] = item
            stack += reversed(item)
            continue
        if _is_iterator(item):
            continue
        seen[id(item)] = item
        if isinstance(item, torch.Tensor):
            found.append(item)
        else:
            stack += [v for _, v in reversed(_parts(item)[1])]
    return found


class Different(AssertionError):
    """Two pictures differ."""


def limits_of(tensor: torch.Tensor, limits: dict[str, float]) -> dict[str, float]:
    """Half precision rounds more; exact stays exact."""
    if limits["rtol"] and tensor.dtype in (torch.bfloat16, torch.float16):
        return {"rtol": 0.05, "atol": 0.02}
    return limits


def _equal(a: Any, b: Any) -> bool:
    return bool(a == b) or (a != a and b != b) or repr(a) == repr(b)


def _close(a: Any, b: Any, limits: dict[str, float]) -> bool:
    """Numbers that may have been elements of tensors."""
    if not limits["rtol"] or not isinstance(a, float) or not isinstance(b, float):
        return False
    return math.isclose(a, b, rel_tol=1e-5, abs_tol=1e-6)


def compare(expected: Picture, actual: Picture, limits: dict[str, float]) -> None:
    """limits: those of torch.testing.assert_close for tensors."""
    for difference in differences(expected, actual, limits):
        raise Different(difference)


def differences(
    expected: Picture, actual: Picture, limits: dict[str, float]
) -> Iterator[str]:
    """One after the other, as long as the facts are of the same places."""
    for number, (a, b) in enumerate(
        itertools.zip_longest(expected.facts, actual.facts)
    ):
        if a is None or b is None:
            yield f"there is more in one: {a} against {b}"
            return
        if not isinstance(a.value, torch.Tensor) and a == b:
            continue
        where = expected.where(number)
        if (a.parent, a.key, a.kind) != (b.parent, b.key, b.kind):
            yield f"{where}: {a.key} {a.kind} != {b.key} {b.kind}"
            return
        if a.place != b.place and not _is_gradient_apart(a, b, number, limits):
            yield f"{where}: one object with {a.place}, in compiled with {b.place}"
        elif isinstance(a.value, torch.Tensor) and isinstance(b.value, torch.Tensor):
            if difference := _of_tensors(a.value, b.value, where, limits):
                yield difference
        elif isinstance(a.value, torch.Tensor) or isinstance(b.value, torch.Tensor):
            yield f"{where}: {a} != {b}"
        elif not _equal(a.value, b.value) and not _close(a.value, b.value, limits):
            yield f"{where}: {a.value!r} != {b.value!r}"[:600]


def _is_gradient_apart(a: Fact, b: Fact, number: int, limits: dict[str, float]) -> bool:
    """It has memory of its own, where eager's is a part of another gradient: two
    leaves were given to cat().
    """
    shared = isinstance(a.place, tuple) and a.place[0] == number
    apart = b.place == (number, number)
    return bool(limits["rtol"]) and a.key == "grad" and shared and apart


def _of_tensors(
    a: torch.Tensor, b: torch.Tensor, where: str, limits: dict[str, float]
) -> str:
    try:
        with torch._C.DisableTorchFunctionSubclass():
            differential.assert_same_tensor(a, b, where, limits_of(a, limits))
    except AssertionError as different:
        return str(different) or where
    return ""
