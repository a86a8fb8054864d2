"""What a trace takes for granted, and how the graph checks it.

A branch on a shape that an example decides, a loop over a length: the graph is right
for inputs of which the same holds. Each such *fact* is a node of the graph that raises
where it does not hold, and a line in ``tracer.facts`` (``gm.meta["facts"]``).
"""

from __future__ import annotations

import inspect
import math
import operator
import types
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from framejit._C import _fx
from framejit.fx._checks import (
    check_answer,
    check_instance,
    check_value,
    path_to,
    paths_of,
)
from framejit.fx._example_modules import Twins
from framejit.fx._known_types import class_of
from framejit.fx._operators import OPERATORS
from framejit.fx.node import Node, map_arg
from framejit.fx.proxy import Proxy, refused, user_place

if TYPE_CHECKING:
    from framejit.fx._symbolic_trace import Tracer

__all__ = ["Examples", "answer_isinstance", "check_instance", "decide", "expression"]


#: What has one value for ever, so that a program may hash, name or compare it.
_CONSTANTS = (
    *(bool, int, float, complex, str, type(None)),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


def is_constant(value: Any) -> bool:
    """Is it a number, a text, a dtype or the like, or a tuple or list of such?"""
    if type(value) in (tuple, list):
        return all(map(is_constant, value))
    return type(value) in (*_CONSTANTS, torch.Size)


def expression(node: Any, depth: int = 4) -> str:
    """A value as the program might write it; names where that gets long."""
    if not isinstance(node, Node):
        return repr(node)
    if depth == 0 or node.op in ("placeholder", "get_attr", "call_module"):
        return str(node.target) if node.op == "placeholder" else node.name
    args = [expression(arg, depth - 1) for arg in node.args]
    if node.op == "call_method":
        return f"{args[0]}.{node.target}({', '.join(args[1:])})"
    name = getattr(node.target, "__name__", node.name)
    if node.target is getattr:
        return f"{args[0]}.{node.args[1]}"
    if getattr(operator, name, None) is node.target and name in OPERATORS:
        return OPERATORS[name].format(*args)
    return f"{name}({', '.join(args)})"


def _where() -> str:
    place = user_place()
    return (
        f"  ({place.file}:{place.line} in {place.name}: {place.code})" if place else ""
    )


def note(tracer: Any, text: str) -> str:
    """Add a line to the facts of a trace; that line."""
    line = text + _where()
    if line not in tracer.facts:
        tracer.facts.append(line)
    return line


def decide(tracer: Any, value: Proxy, known: Any) -> Any:
    """From now on the value is `known`; the graph raises where it is not."""
    key = value.node, type(known), known  # (True is not 1)
    if key in tracer.decided:
        return known
    tracer.decided.add(key)
    said = note(tracer, f"{expression(value.node)} is {known!r}")
    record = tracer.create_proxy
    if known is True:
        holds: Any = value
    elif known is False:
        holds = record("call_function", operator.not_, (value,), {})
    else:
        holds = record("call_function", operator.eq, (value, known), {})
    record("call_function", torch._assert, (holds, said), {})
    return known


_VIEWS = (KeysView, ValuesView, ItemsView)


class _Unknown:
    """Of a node: what it is depends on data, or its example raised."""

    def __init__(self, why: str) -> None:
        self.why = why


class Examples:
    """The values of a trace's nodes for inputs given, without the data of tensors.

    Tensors are torch's fake ones, so what could be known from data alone raises when
    it is asked for, and is unknown.
    """

    def __init__(self, tracer: Tracer, inputs: tuple[Any, ...]) -> None:
        from torch._subclasses.fake_tensor import FakeTensorMode

        self._tracer = tracer
        self._inputs = inputs
        self._mode = FakeTensorMode(allow_non_fake_inputs=True)
        self._twins = Twins(self._mode.from_tensor)
        self._given: dict[str, Any] = {}
        self._values: dict[Node, Any] = {}

    def bind(self, function: Callable[..., Any], own: list[Any]) -> dict[str, None]:
        """The inputs are those of this function. Those that are None."""
        bound = inspect.signature(function).bind(*own, *self._inputs)
        bound.apply_defaults()
        self._given = {
            name: pytree.tree_map_only(torch.Tensor, self._mode.from_tensor, value)
            for name, value in bound.arguments.items()
        }
        return {name: None for name, value in self._given.items() if value is None}

    def run(self, node: Node) -> None:
        """A node was made."""
        self._values[node] = self._value(node)

    def _value(self, node: Node) -> Any:
        if node.op == "placeholder":
            name = str(node.target).lstrip("*")
            known = self._given.get(name, self)
            return _Unknown("no example was given") if known is self else known
        if node.op == "output":
            return None
        unknown: list[_Unknown] = []

        def value_of(arg: Node) -> Any:
            found = self._values.get(arg, _Unknown("it is of another graph"))
            if isinstance(found, _Unknown):
                unknown.append(found)
            return found

        args, kwargs = map_arg(node.args, value_of), map_arg(node.kwargs, value_of)
        if unknown:
            return unknown[0]
        try:
            return _fx.unfollowed(self._run, node, args, dict(kwargs))
        except Exception as error:
            text = f"{type(error).__name__}: {error}".split("\n")[0]
            return _Unknown(f"{expression(node)} needs data or raises ({text})")

    def _run(self, node: Node, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        target: Any = node.target
        with self._mode:
            if node.op == "get_attr":
                return self._twins.of(operator.attrgetter(target)(self._tracer.root))
            if node.op == "call_module":
                leaf = self._tracer.root.get_submodule(target)
                return self._twins.of(leaf)(*args, **kwargs)
            if node.op == "call_method":
                return getattr(args[0], target)(*args[1:], **kwargs)
            return target(*args, **kwargs)

    def of(self, value: Proxy) -> Any:
        """The example of a value. Raises :class:`TraceError` where there is none."""
        found = self._values.get(value.node, _Unknown("it is of another graph"))
        if isinstance(found, _Unknown):
            raise refused(
                f"{expression(value.node)} is not known from the example inputs: "
                f"{found.why}"
            )
        return found

    def _found(self, value: Proxy) -> Any:
        return self._values.get(value.node)

    def has_items(self, value: Proxy) -> bool:
        """Is it a sequence whose length is known?"""
        return isinstance(self._found(value), (torch.Tensor, list, tuple))

    # -- what a program may ask

    def truth(self, value: Proxy) -> bool:
        """Of what is no tensor."""
        found = self.of(value)
        if isinstance(found, torch.Tensor):
            raise refused(
                "symbolically traced variables cannot be used as inputs to control "
                f"flow: a branch depends on the data of {expression(value.node)}"
            )
        known: bool = decide(self._tracer, value, bool(found))
        return known

    def number(self, value: Proxy) -> int | float:
        """An int or a float."""
        found = self.of(value)
        if isinstance(found, torch.Tensor) or not isinstance(found, (int, float)):
            raise refused(f"{expression(value.node)} is no number that is known")
        if isinstance(found, float) and math.isnan(found):
            raise refused(f"{expression(value.node)} is not a number")
        known: int | float = decide(self._tracer, value, found)
        return known

    def constant(self, value: Proxy) -> Any:
        """A number, a text, a dtype or the like, to the very class and sign."""
        found = self.of(value)
        if not is_constant(found):
            raise refused(
                f"{expression(value.node)} has no text or hash that a graph can keep: "
                f"it is a {type(found).__name__}"
            )
        key = value.node, "value"
        if key not in self._tracer.decided:
            self._tracer.decided.add(key)
            if isinstance(found, tuple):  # a size or a tuple
                self.class_of(value)
            said = note(self._tracer, f"{expression(value.node)} is {found!r}")
            check_value(value, found, said)
        return found

    def is_tensor(self, value: Proxy) -> bool:
        """Is it a tensor, for all that is known?"""
        return isinstance(self._found(value), torch.Tensor)

    def answer(self, value: Proxy, question: str, other: Any = None) -> bool:
        """Has it an attribute, can it be called, is it an object?"""
        found = self.of(value)
        name = expression(value.node)
        if question == "has":
            answer, said = hasattr(found, other), f"{name} has {other!r}"
        else:
            answer, said = callable(found), f"{name} can be called"
        return self._answered(value, question, other, answer, said)

    def class_of(self, value: Proxy) -> type:
        """Its class, not one that it is derived from."""
        cls = _class_of(self.of(value))
        (path,) = paths_of(cls)
        said = f"{expression(value.node)} is of class {cls.__name__}"
        self._answered(value, "is of", path, True, said)
        return cls

    def is_same(self, value: Any, other: Any) -> bool:
        """``value is other``; one is a proxy, and they are two objects."""
        if not isinstance(value, Proxy):
            value, other = other, value
        found, known = self._found(value), other
        if isinstance(other, Proxy):
            known = self._found(other)
            shown: Any = expression(other.node)
        else:
            shown = repr(other)
        answer = found is known and not isinstance(found, _Unknown)
        derived = class_of(value.node, self._tracer.root)
        if other is None and derived is not None:
            return answer  # it follows from what the graph does
        question = "is"
        if not isinstance(other, Proxy) and not is_constant(other):
            path = path_to(other)
            if path is None:
                raise refused(f"no import leads to {shown}, so no graph checks it")
            question, other = "is at", path
        said = f"{expression(value.node)} is{' ' if answer else ' not '}{shown}"
        return self._answered(value, question, other, answer, said, whole=True)

    def _answered(
        self,
        value: Proxy,
        question: str,
        other: Any,
        answer: bool,
        said: str,
        whole: bool = False,
    ) -> bool:
        node = other.node if isinstance(other, Proxy) else other
        key = value.node, question, type(node), node
        if key not in self._tracer.decided:
            self._tracer.decided.add(key)
            said = note(self._tracer, said if whole else f"{said}: {answer}")
            check_answer(value, question, other, answer, said)
        return answer

    def items(self, value: Proxy) -> list[Any]:
        """Of a sequence, of a tensor along its first dim; the keys of a dict."""
        found = self.of(value)
        record = self._tracer.create_proxy
        if isinstance(found, dict):
            keys = record("call_function", list, (value,), {})
            return list(decide_list(self._tracer, keys, list(found)))
        if isinstance(found, _VIEWS):  # of a dict
            value, found = record("call_function", list, (value,), {}), list(found)
        if not isinstance(found, (torch.Tensor, list, tuple)):
            raise refused(f"{expression(value.node)} cannot be iterated")
        if isinstance(found, torch.Tensor) and found.dim() == 0:
            raise refused(f"{expression(value.node)} has no dims to iterate over")
        count = decide(
            self._tracer, record("call_function", len, (value,), {}), len(found)
        )
        return [value[at] for at in range(count)]


def _class_of(found: Any) -> type:
    """The class of an example; that of a fake tensor is the one that it stands for."""
    if isinstance(found, torch.nn.Parameter):
        return torch.nn.Parameter
    return torch.Tensor if isinstance(found, torch.Tensor) else type(found)


def decide_list(tracer: Any, value: Proxy, known: list[Any]) -> list[Any]:
    """As :func:`decide`, of what has no hash."""
    said = note(tracer, f"{expression(value.node)} is {known!r}")
    holds = tracer.create_proxy("call_function", operator.eq, (value, known), {})
    tracer.create_proxy("call_function", torch._assert, (holds, said), {})
    return known


def _may_be_tensors(classes: Any) -> bool:
    if isinstance(classes, (tuple, types.UnionType)):
        members = classes if isinstance(classes, tuple) else classes.__args__
        return any(map(_may_be_tensors, members))
    return isinstance(classes, type) and issubclass(classes, torch.Tensor)


def _is_of_a_dtype(classes: Any) -> bool:
    """Is it a class of torch's (FloatTensor) that has no instances of its own?"""
    if isinstance(classes, tuple):
        return any(map(_is_of_a_dtype, classes))
    return type(classes) is type(torch.FloatTensor)


def answer_isinstance(
    tracer: Tracer, examples: Examples | None, value: Proxy, classes: Any
) -> bool:
    """What ``isinstance(value, classes)`` is, and the fact that it is so."""
    node = value.node
    if _is_of_a_dtype(classes):
        raise refused(
            f"isinstance of {expression(node)} and a class such as torch.FloatTensor "
            "asks for a dtype and a device",
            "ask for x.dtype",
        )
    derived = class_of(node, tracer.root)
    known: Any = derived
    if examples is not None:
        known = _class_of(examples.of(value))
    elif known is None:
        # An input may be a tensor, and what follows from that is checked.
        known = class_of(node, tracer.root, torch.Tensor)
    if known is None:
        raise refused(
            f"isinstance is asked of {expression(node)}, whose class is not known",
            "trace with example_inputs, or annotate the parameter",
        )
    answer = issubclass(known, classes)
    if node.op != "placeholder" and derived is not None:
        return answer  # it follows from what the graph does
    names = getattr(classes, "__name__", None) or str(classes)
    said = note(tracer, f"{expression(node)} is {'a' if answer else 'no'} {names}")
    key = node, classes
    # (Without examples the graph is torch.fx's where no tensor is of such a class.)
    is_plain = examples is None and node.op == "placeholder" and not answer
    if not (is_plain and not _may_be_tensors(classes)) and key not in tracer.decided:
        tracer.decided.add(key)
        check_instance(value, paths_of(classes), answer, said)
    return answer
