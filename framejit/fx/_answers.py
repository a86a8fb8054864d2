"""What calls of C functions mean that cannot take a proxy: one row a function.

``len``, ``int`` or ``torch.zeros`` of a proxy is a node that calls the very function
when the graph runs, so it is whatever it is then. Only ``isinstance``, ``type`` and
other questions are answered while the program is traced.
"""

from __future__ import annotations

import builtins
import operator
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from framejit._C import _fx
from framejit.fx.proxy import SETS_ATTRIBUTES, Proxy

__all__ = ["ANSWERS", "Answer", "asked_setattr", "asked_is", "asked_match"]


class Answer(NamedTuple):
    """A function, and what is called in its place."""

    name: str
    asked: Callable[..., Any]
    function: Callable[..., Any]


# Functions of values, which proxies may be; and such that compare what is in a list,
# where a list of proxies is no list to them.
_OF_VALUES = ("len", "int", "float", "complex", "round", "divmod", "sum")
_OF_ITEMS = ("max", "min", "sorted", "any", "all")
# Of the module operator; they ask for a truth.
_OF_TRUTH = ("not_", "truth", "contains")
# They iterate, where the tracer knows how long it is.
_SEQUENCES = ("list", "tuple")
# They take sizes and numbers, but look for no ``__torch_function__`` in them.
_FACTORIES = (
    *("zeros", "ones", "empty", "full", "arange", "range", "linspace", "logspace"),
    *("eye", "rand", "randn", "randint", "randperm", "tensor", "as_tensor", "normal"),
    *("tril_indices", "triu_indices", "hann_window", "hamming_window", "empty_strided"),
    *("bartlett_window", "blackman_window", "kaiser_window", "scalar_tensor", "Size"),
)


def _proxy_in(values: Any) -> Proxy | None:
    """The first proxy in lists, tuples and dicts."""
    for value in values:
        if isinstance(value, Proxy):
            return value
        cls = type(value)
        found = None
        if cls is list or cls is tuple:
            found = _proxy_in(value)
        elif cls is dict:
            found = _proxy_in(value.values())
        if found is not None:
            return found
    return None


def _recorded(function: Callable[..., Any], nested: bool) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        if nested:
            proxy = _proxy_in((*args, *kwargs.values()))
        else:
            proxy = next((arg for arg in args if isinstance(arg, Proxy)), None)
        if proxy is None:
            return function(*args, **kwargs)
        return proxy.tracer.create_proxy("call_function", function, args, kwargs)

    return asked


def _sequence(cls: type) -> Callable[..., Any]:
    def asked(*args: Any) -> Any:
        if len(args) != 1 or not isinstance(args[0], Proxy):
            return cls(*args)
        items = args[0].tracer.ask(args[0].tracer.known_items, args[0])
        if items is not None:
            return cls(items)
        return args[0].tracer.create_proxy("call_function", cls, args, {})

    return asked


def _isinstance(value: Any, classes: Any, /) -> bool:
    if not isinstance(value, Proxy) or isinstance(value, classes):
        return isinstance(value, classes)
    known: bool = value.tracer.ask(value.tracer.is_instance, value, classes)
    return known


def _type(*args: Any, **kwargs: Any) -> Any:
    if len(args) != 1 or kwargs or not isinstance(args[0], Proxy):
        return type(*args, **kwargs)
    return args[0].tracer.ask(args[0].tracer.class_of, args[0])


def _is_tensor(obj: Any) -> bool:
    return _isinstance(obj, torch.Tensor)


def _hasattr(value: Any, name: str, /) -> bool:
    if not isinstance(value, Proxy):
        return hasattr(value, name)
    known: bool = value.tracer.ask(value.tracer.has_attribute, value, name)
    return known


def _getattr(value: Any, name: str, /, *default: Any) -> Any:
    if default and isinstance(value, Proxy):
        if not value.tracer.ask(value.tracer.has_attribute, value, name):
            return default[0]
    return getattr(value, name, *default)


def _callable(value: Any, /) -> bool:
    if not isinstance(value, Proxy):
        return callable(value)
    known: bool = value.tracer.ask(value.tracer.is_callable, value)
    return known


def asked_is(left: Any, right: Any) -> bool:
    """``left is right``"""
    proxy = left if isinstance(left, Proxy) else right
    if left is right or not isinstance(proxy, Proxy):
        return left is right
    known: bool = proxy.tracer.ask(proxy.tracer.is_same, left, right)
    return known


def asked_match(subject: Any) -> None:
    """A pattern of ``match`` asks what class the subject is of."""
    if isinstance(subject, Proxy):
        subject.tracer.ask(subject.tracer.match, subject)


_setattr = torch.nn.Module.__setattr__


def asked_setattr(tracer: Any) -> types.FunctionType:
    """What assigns attributes of modules."""

    def asked(self: torch.nn.Module, name: str, value: Any) -> None:
        tracer.ask(tracer.set_attribute, self, name, value)
        _fx.unfollowed(_setattr, self, name, value)

    if asked.__code__ not in SETS_ATTRIBUTES:
        SETS_ATTRIBUTES.append(asked.__code__)
    return asked  # type: ignore[return-value]


#: They are answered when they are asked, since what follows depends on it.
_QUESTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "isinstance": (_isinstance, isinstance),
    "type": (_type, type),
    "hasattr": (_hasattr, hasattr),
    "getattr": (_getattr, getattr),
    "callable": (_callable, callable),
    "torch.is_tensor": (_is_tensor, torch.is_tensor),
}


def _rows() -> dict[int, Answer]:
    rows = [Answer(name, *asked) for name, asked in _QUESTIONS.items()]
    for names, nested in ((_OF_VALUES, False), (_OF_ITEMS, True)):
        for name in names:
            function = getattr(builtins, name)
            rows.append(Answer(name, _recorded(function, nested), function))
    for name in _SEQUENCES:
        cls = getattr(builtins, name)
        rows.append(Answer(name, _sequence(cls), cls))
    for name in _OF_TRUTH:
        function = getattr(operator, name)
        rows.append(Answer(f"operator.{name}", _recorded(function, False), function))
    for name in _FACTORIES:
        function = getattr(torch, name)
        asked = _recorded(function, nested=True)
        rows.append(Answer(f"torch.{name}", asked, function))
    return {id(row.function): row for row in rows}


#: By the identity of the function, which the row keeps.
ANSWERS = _rows()
