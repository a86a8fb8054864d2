"""Nodes that check what a trace took for granted: they raise where it does not hold.

Called with a proxy, when a graph that has them is traced again, they are recorded.
"""

from __future__ import annotations

import functools
import importlib
import operator
import types
from collections.abc import Callable
from typing import Any

import torch

from framejit.fx.node import has_side_effect
from framejit.fx.proxy import Proxy, refused

__all__ = ["check_answer", "check_instance", "check_value", "paths_of"]


@functools.cache
def _object_at(path: str) -> Any:
    module, _, name = path.partition(":")
    return operator.attrgetter(name)(importlib.import_module(module))


@has_side_effect
def check_instance(value: Any, paths: tuple[str, ...], answer: bool, said: str) -> None:
    """Raises TypeError unless ``isinstance(value, classes)`` is the answer.

    paths: where the classes are, as ``module:name``.
    """
    if isinstance(value, Proxy):
        value.tracer.create_proxy(
            "call_function", check_instance, (value, paths, answer, said), {}
        )
    elif isinstance(value, tuple(map(_object_at, paths))) is not answer:
        raise TypeError(f"{said}, but it is of class {type(value).__name__}")


@has_side_effect
def check_value(value: Any, known: Any, said: str) -> None:
    """Raises AssertionError unless the value is `known`, of its very class.

    (``True == 1 == 1.0`` and ``0.0 == -0.0``, but a program tells them apart. Tensors
    are compared by dtype, shape and data.)
    """
    if isinstance(value, Proxy):
        value.tracer.create_proxy(
            "call_function", check_value, (value, known, said), {}
        )
    elif not _is_same(value, known):
        raise AssertionError(f"{said}, but it is {value!r}")


def _is_same(value: Any, known: Any) -> bool:
    if isinstance(known, torch.Tensor):
        return value is known or (
            isinstance(value, torch.Tensor)
            and (value.dtype, value.shape) == (known.dtype, known.shape)
            and torch.equal(value, known)
        )
    # (A graph has lists and dicts of its own classes, and tuples for sizes.)
    for cls in (list, dict, tuple):
        if isinstance(known, cls):
            if not isinstance(value, cls) or (cls is tuple and _is_named(value)):
                return False
            break
    else:
        if type(value) is not type(known):
            return False
    if isinstance(known, dict):
        return list(value) == list(known) and all(
            _is_same(value[key], item) for key, item in known.items()
        )
    if isinstance(known, (list, tuple)):
        return len(value) == len(known) and all(map(_is_same, value, known))
    if isinstance(known, (float, complex)):
        return repr(value) == repr(known)  # the sign of zero, and not-a-numbers
    return bool(value == known)


def _is_named(value: Any) -> bool:
    return type(value) not in (tuple, torch.Size)


#: What a program may ask of a value and something else, answered by True or False.
_QUESTIONS: dict[str, Callable[[Any, Any], bool]] = {
    "has": hasattr,
    "is": operator.is_,
    "is at": lambda value, path: value is _object_at(path),
    "is of": lambda value, path: type(value) is _object_at(path),
    "can be called": lambda value, _: callable(value),
}


@has_side_effect
def check_answer(
    value: Any, question: str, other: Any, answer: bool, said: str
) -> None:
    """Raises AssertionError unless the answer to a question is this one."""
    for proxy in (value, other):
        if isinstance(proxy, Proxy):
            args = (value, question, other, answer, said)
            proxy.tracer.create_proxy("call_function", check_answer, args, {})
            return
    if _QUESTIONS[question](value, other) is not answer:
        raise AssertionError(f"{said}, but it is of class {type(value).__name__}")


def path_to(value: Any) -> str | None:
    """Where an import finds this very object, as ``module:name``."""
    names = (getattr(value, "__qualname__", ""), getattr(value, "__name__", ""))
    for module in (getattr(value, "__module__", None), "torch", "builtins"):
        for name in names:
            try:
                if module and name and _object_at(f"{module}:{name}") is value:
                    return f"{module}:{name}"
            except (AttributeError, ImportError, TypeError):
                continue
    return None


def paths_of(classes: Any) -> tuple[str, ...]:
    """Where the classes are that ``isinstance`` was asked for."""
    if isinstance(classes, tuple):
        return tuple(path for cls in classes for path in paths_of(cls))
    if isinstance(classes, types.UnionType):
        return paths_of(classes.__args__)
    path = path_to(classes)
    if path is None:
        raise refused(f"no import leads to {classes!r}, so no graph checks it")
    return (path,)
