"""``Proxy``: a value that records what is done with it as nodes of a graph."""

from __future__ import annotations

import dis
import enum
import linecache
import operator
import os
import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import Any

import torch

from framejit._C import _fx
from framejit.fx._asserts import asserted_truth
from framejit.fx._places import Place
from framejit.fx.graph import Graph
from framejit.fx.node import Argument, Node, Target, map_arg

__all__ = ["Attribute", "GraphAppendingTracer", "Proxy", "TraceError", "TracerBase"]

_PLAIN = (
    *(str, int, float, bool, complex, torch.dtype, torch.Tensor, torch.device),
    *(torch.memory_format, torch.layout, torch._ops.OpOverload),
    *(torch._ops.HigherOrderOperator, torch.SymInt, torch.SymBool, torch.SymFloat),
    *(enum.Enum, type(None), type(...)),
)
# Attributes of tensors that are not the object's alone.
_SET_ON_TENSORS = {*("data", "grad", "requires_grad", "real", "imag", "names")}
# Frames of files in these are not the user's.
_NOT_THE_USERS = (os.path.dirname(__file__), os.path.dirname(torch.__file__))


class TraceError(ValueError):
    """Something that a graph cannot say was asked of a proxy."""


def user_frame() -> types.FrameType | None:
    """The frame of the program that is being traced."""
    frame: types.FrameType | None = sys._getframe(1)
    while frame and frame.f_code.co_filename.startswith(_NOT_THE_USERS):
        frame = frame.f_back
    return frame


def is_method_of(tracer: TracerBase) -> bool:
    """Does the tracer itself ask, in a method of its (or of a class of the user's)?

    It gives the root tensors that the graph has as constants.
    """
    frame: types.FrameType | None = sys._getframe(2)
    asking = (TracerBase.ask.__code__, *SETS_ATTRIBUTES)
    while frame and frame.f_code in asking:
        frame = frame.f_back
    if frame is None or not frame.f_code.co_varnames:
        return False
    return frame.f_locals.get(frame.f_code.co_varnames[0]) is tracer


# Code that stands between the program and the tracer where an attribute is assigned.
SETS_ATTRIBUTES: list[types.CodeType] = []


def user_place() -> Place | None:
    """The line of the program that is being traced."""
    frame = user_frame()
    if frame is None:
        return None
    code = frame.f_code
    line = linecache.getline(code.co_filename, frame.f_lineno).strip()
    return Place(code.co_filename, str(frame.f_lineno), code.co_name, line)


_EXAMPLES = "where a shape decides it, trace with example_inputs"


def refused(what: str, hint: str | None = None) -> TraceError:
    """An error that says in which line of the program it was asked."""
    place = user_place()
    if place:
        what += f"\n  {place.file}:{place.line} in {place.name}: {place.code}"
    return TraceError(f"{what}\n  hint: {hint}" if hint else what)


def note_place(node: Node) -> None:
    """Note in a node's ``stack_trace`` the line that is being traced."""
    if place := user_place():
        node.stack_trace = (
            f'File "{place.file}", line {place.line}, in {place.name}\n    {place.code}'
        )


class TracerBase(_fx.TracerBase):
    """Adds nodes to ``graph`` for what happens to proxies.

    These methods say what an operation means; a class may have others. Where it
    has none of its own, C++ does what they do (``graph/fx/recording.h``).
    """

    graph: Graph
    #: Note in ``node.stack_trace`` where each node comes from.
    record_stack_traces: bool = False
    #: The method that is traced, of modules.
    traced_func_name: str = "forward"
    #: Reads of buffers become nodes, not only those of parameters.
    proxy_buffer_attributes: bool = False
    #: What the program was refused: it may not go on as if that were an answer.
    refusal: Exception | None = None

    def ask(self, question: Callable[..., Any], *args: Any) -> Any:
        """What the program asks the tracer; a trace that refuses it ends so.

        (Also where the program handles the error: no input is known to raise it.)
        """
        try:
            return question(*args)
        except (TraceError, RuntimeError) as error:
            if self.refusal is None:
                self.refusal = error
            raise

    def create_node(
        self,
        kind: str,
        target: Target,
        args: tuple[Argument, ...],
        kwargs: dict[str, Argument],
        name: str | None = None,
        type_expr: Any = None,
    ) -> Node:
        """Insert a node; all that is traced comes through here."""
        node: Node = self.graph.create_node(kind, target, args, kwargs, name, type_expr)
        if self.record_stack_traces:
            note_place(node)
        return node

    def proxy(self, node: Node) -> Proxy:
        """The proxy of a node."""
        return Proxy(node, self)

    def create_proxy(
        self,
        kind: str,
        target: Target,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any = None,
        proxy_factory_fn: Callable[[Node], Proxy] | None = None,
    ) -> Proxy:
        """Insert a node whose arguments may have proxies in them; its proxy."""
        node = self.create_node(
            kind,
            target,
            self.create_arg(args),
            self.create_arg(kwargs),
            name,
            type_expr,
        )
        return proxy_factory_fn(node) if proxy_factory_fn else self.proxy(node)

    def create_arg(self, a: Any) -> Argument:
        """What a graph has for an object of the program: nodes for proxies.

        Derived tracers may take more kinds of objects.
        """
        cls = type(a)
        if cls is Proxy:
            return a.node
        if cls is tuple:
            return tuple(self.create_arg(item) for item in a)
        if cls in _PLAIN:
            return a
        if isinstance(a, Proxy):
            return a.node
        if hasattr(a, "__fx_create_arg__"):
            return a.__fx_create_arg__(self)
        if isinstance(a, tuple):
            items = [self.create_arg(item) for item in a]
            return cls(*items) if hasattr(a, "_fields") else cls(items)
        if isinstance(a, list):
            return [self.create_arg(item) for item in a]
        if isinstance(a, dict):
            return {self._key(k): self.create_arg(v) for k, v in a.items()}
        if isinstance(a, (slice, range)):
            return cls(*map(self.create_arg, (a.start, a.stop, a.step)))
        if is_dataclass(a) and not isinstance(a, type):
            values = {f.name: self.create_arg(getattr(a, f.name)) for f in fields(a)}
            return self.create_node("call_function", cls, (), values)
        if isinstance(a, _PLAIN):
            return a
        raise NotImplementedError(str(refused(f"argument of type: {cls}")))

    def _key(self, key: Any) -> Any:
        if isinstance(key, str):
            return key
        made = self.create_arg(key)

        def refuse(node: Node) -> Any:
            error = refused(
                "Keys for dictionaries used as an argument cannot contain a Node. "
                f"Got key: {made}"
            )
            raise RuntimeError(str(error))

        map_arg(made, refuse)
        return made

    def to_bool(self, obj: Proxy) -> bool:
        """Asked where a branch depends on a proxy.

        Where it is a check (an ``assert``, an ``if`` that does nothing but raise) the
        graph asserts it; other branches raise :class:`TraceError`.
        """
        frame = user_frame()
        holds = None if frame is None else asserted_truth(frame)
        if holds is not None:
            said = "a check of the program"
            if place := user_place():
                said = f"{place.file}:{place.line} in {place.name}: {place.code}"
            record = self.create_proxy
            if not holds:
                obj = record("call_function", operator.not_, (obj,), {})
            record("call_function", torch._assert, (obj, said), {})
            return holds
        raise refused(
            "symbolically traced variables cannot be used as inputs to control flow: "
            f"a branch depends on {obj.node}",
            _EXAMPLES,
        )

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """Asked where a proxy is iterated. Raises :class:`TraceError`."""
        raise refused(
            f"Proxy object cannot be iterated: how long {obj.node} is, is not known. "
            "This can be attempted when the Proxy is used in a loop or as a *args or "
            "**kwargs function argument",
            _EXAMPLES,
        )

    def unpack(self, obj: Proxy, count: int) -> Iterator[Any]:
        """Asked where a proxy is unpacked to so many names."""
        return (obj[at] for at in range(count))

    def keys(self, obj: Proxy) -> Any:
        """Asked where the keys of a proxy are (``f(**proxy)``)."""
        return Attribute(obj, "keys")()

    def number(self, obj: Proxy, kind: type) -> Any:
        """Asked where C code needs an int or a float. Raises :class:`TraceError`."""
        raise refused(
            f"{obj.node} is not known, so it cannot be the {kind.__name__} that is "
            "needed",
            _EXAMPLES,
        )

    def text(self, obj: Proxy, spec: str) -> str:
        """Asked where a proxy becomes text, as in f-strings."""
        return object.__format__(obj, spec) if spec else repr(obj)

    def named(self, obj: Proxy) -> str:
        """Asked by ``repr`` in the program."""
        return f"Proxy({obj.node.name})"

    def hash(self, obj: Proxy) -> int:
        """Asked where a proxy is put in a set or looked for in a dict."""
        return object.__hash__(obj)

    def length(self, obj: Proxy) -> int:
        """Asked where C code needs the length of a proxy."""
        # RuntimeError: what torch.fx raises.
        raise RuntimeError(
            str(
                refused(
                    "'len' is not supported in symbolic tracing by default. If you "
                    "want this call to be recorded, please call framejit.fx.wrap("
                    "'len') at module scope",
                    _EXAMPLES,
                )
            )
        )

    def known_items(self, obj: Proxy) -> list[Any] | None:
        """The items of a sequence, where it is known how long it is."""
        return None

    def is_instance(self, obj: Proxy, classes: Any) -> bool:
        """Asked by ``isinstance`` in the program."""
        return False

    def class_of(self, obj: Proxy) -> type:
        """Asked by ``type`` in the program."""
        return type(obj)

    def has_attribute(self, obj: Proxy, name: str) -> bool:
        """Asked by ``hasattr``, and by ``getattr`` with a default."""
        return hasattr(obj, name)

    def is_callable(self, obj: Proxy) -> bool:
        """Asked by ``callable`` in the program."""
        return callable(obj)

    def set_on_tensor(self, obj: Proxy, name: str) -> None:
        """Asked where ``x.data = ...`` or the like is said of a proxy. Raises."""
        raise refused(
            f"no graph assigns {name!r} of {obj.node}",
            "use a function or a method (`copy_`, `requires_grad_`)",
        )

    def match(self, obj: Proxy) -> None:
        """Asked where a pattern is of a class, a sequence or a mapping. Raises."""
        raise refused(
            f"a pattern asks what {obj.node} is, and a proxy is of no class",
            "ask by isinstance",
        )

    def is_same(self, left: Any, right: Any) -> bool:
        """Asked by ``is`` in the program, of two objects; one is a proxy."""
        return False


class GraphAppendingTracer(TracerBase):
    """Adds to a graph that is there, for proxies made by hand."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph


def names_unpacked_to(frame: types.FrameType) -> int | None:
    """How many names the frame is unpacking a sequence to, if it is."""
    code, at = frame.f_code.co_code, frame.f_lasti
    if code[at] != dis.opmap["UNPACK_SEQUENCE"]:
        return None
    count, shift = code[at + 1], 8
    while at >= 2 and code[at - 2] == dis.EXTENDED_ARG:
        at -= 2
        count |= code[at + 1] << shift
        shift += 8
    return count


class Proxy(_fx.ProxyBase):
    """A value of a graph in the hands of a Python program.

    Operators, methods, attributes, assigned items and calls of torch's functions
    become nodes. Where Python must know what it is, as a branch does, the tracer
    is asked.
    """

    def __init__(self, node: Node, tracer: TracerBase | None = None) -> None:
        self.tracer = tracer if tracer is not None else GraphAppendingTracer(node.graph)
        self.node = node

    def __repr__(self) -> str:
        if sys._getframe(1).f_code.co_filename.startswith(_NOT_THE_USERS):
            return f"Proxy({self.node.name})"
        text: str = self.tracer.ask(self.tracer.named, self)
        return text

    def __iter__(self) -> Iterator[Any]:
        count = names_unpacked_to(sys._getframe(1))
        tracer = self.tracer
        if count is None:
            items: Iterator[Any] = tracer.ask(tracer.iter, self)
        else:
            items = tracer.ask(tracer.unpack, self, count)
        return items

    def __bool__(self) -> bool:
        known: bool = self.tracer.ask(self.tracer.to_bool, self)
        return known

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _SET_ON_TENSORS:
            self.tracer.ask(self.tracer.set_on_tensor, self, name)
        object.__setattr__(self, name, value)

    def __index__(self) -> int:
        known: int = self.tracer.ask(self.tracer.number, self, int)
        return known

    __int__ = __index__

    def __float__(self) -> float:
        known: float = self.tracer.ask(self.tracer.number, self, float)
        return known

    def __format__(self, spec: str) -> str:
        text: str = self.tracer.ask(self.tracer.text, self, spec)
        return text

    def __str__(self) -> str:
        text: str = self.tracer.ask(self.tracer.text, self, "")
        return text

    def __hash__(self) -> int:
        known: int = self.tracer.ask(self.tracer.hash, self)
        return known

    def keys(self) -> Any:
        """The keys, where the tracer knows them."""
        return self.tracer.ask(self.tracer.keys, self)

    def __len__(self) -> int:
        known: int = self.tracer.ask(self.tracer.length, self)
        return known

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _again, (type(self), self.node, self.tracer), self.__dict__ or None


def _again(cls: type[Proxy], node: Node, tracer: TracerBase) -> Proxy:
    made = cls.__new__(cls)
    made.node, made.tracer = node, tracer
    return made


class Attribute(Proxy):
    """An attribute of a proxy: a node once it is used for more than a call."""

    def __init__(self, root: Proxy, attr: str) -> None:
        self.tracer = root.tracer
        self._root, self._attr = root, attr

    @property
    def root(self) -> Proxy:
        """Whose attribute it is."""
        found: Proxy = self._root
        return found

    @property
    def attr(self) -> str:
        """Its name."""
        name: str = self._attr
        return name


class ParameterProxy(Proxy):
    """Of a parameter whose shape the traced program may ask for."""

    def __init__(
        self, tracer: TracerBase, node: Node, name: str, param: torch.nn.Parameter
    ) -> None:
        super().__init__(node, tracer)
        self.param = param
        self.name = name

    def __repr__(self) -> str:
        return f"ParameterProxy({self.name})"

    shape = property(lambda self: self.param.shape)
    ndim = property(lambda self: self.param.ndim)

    def size(self) -> torch.Size:
        """The parameter's."""
        return self.param.size()

    def dim(self) -> int:
        """The parameter's."""
        return self.param.dim()

    def numel(self) -> int:
        """The parameter's."""
        return self.param.numel()

    nelement = numel


def _tensor_methods() -> set[Any]:
    return set(torch.overrides.get_overridable_functions()[torch.Tensor])


_fx.set_proxy_classes(Proxy, Attribute, _tensor_methods)
