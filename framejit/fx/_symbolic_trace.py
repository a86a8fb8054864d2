"""``symbolic_trace``: a graph of what a program does with proxies.

The program runs in CPython, and the frame hook shows the tracer every frame of it:
calls of modules and reads of their parameters are answered, and frames that call
what cannot take a proxy (``len``, ``torch.zeros``) run from rewritten bytecode
(``_rewriting.py``). What nobody can know is refused with the line of the program.
"""

from __future__ import annotations

import builtins
import functools
import gc
import inspect
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

from framejit._C import _fx
from framejit.fx import _rewriting
from framejit.fx._answers import asked_setattr
from framejit.fx._facts import Examples, answer_isinstance
from framejit.fx._patches import Patches
from framejit.fx._root_arguments import (  # noqa: F401
    PH,
    RootArguments,
    _assert_is_none,
)
from framejit.fx._wrapping import as_node, wrap, wrapped, wrapped_methods
from framejit.fx.graph import Graph
from framejit.fx.graph_module import GraphModule
from framejit.fx.node import Argument, Node
from framejit.fx.proxy import (
    GraphAppendingTracer,
    ParameterProxy,
    Proxy,
    TracerBase,
    is_method_of,
    note_place,
    refused,
)

__all__ = ["PH", "GraphAppendingTracer", "Tracer", "symbolic_trace", "wrap"]


# What a tracer's class may have its own of; C++ does the rest.
METHODS = (
    *("create_proxy", "create_node", "create_arg", "proxy"),
    *("call_module", "is_leaf_module", "path_of_module", "getattr"),
)


class Tracer(RootArguments):
    """Traces modules and functions; derive from it to steer how.

    autowrap_modules: modules whose functions become nodes when they are called.
    autowrap_functions: functions that do.
    param_shapes_constant: shapes of parameters are numbers, not nodes.
    """

    def __init__(
        self,
        autowrap_modules: tuple[types.ModuleType, ...] = (math,),
        autowrap_functions: tuple[Callable[..., Any], ...] = (),
        param_shapes_constant: bool = False,
    ) -> None:
        super().__init__()
        self._autowrap_ids = {id(function) for function in autowrap_functions}
        for module in autowrap_modules:
            self._autowrap_ids |= {
                id(value)
                for name, value in vars(module).items()
                if not name.startswith("_") and callable(value)
            }
        self._autowrap_search = list(autowrap_modules)
        self.param_shapes_constant = param_shapes_constant
        self.root: Any = None
        self.root_module_name = ""
        self.submodule_paths: dict[nn.Module, str] = {}
        self.tensor_attrs: dict[Any, str] = {}
        self.module_stack: dict[str, tuple[str, Any]] = {}
        self.num_calls: dict[str, int] = {}
        self._parameters: dict[str, Proxy] = {}
        self._state_paths = None
        self._patches = Patches()
        self._examples: Examples | None = None
        #: What the graph takes for granted, and checks, in words.
        self.facts: list[str] = []
        self._is_running = False
        self.decided: set[Any] = set()

    # -- what derived tracers change

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        """Is a call of this module a node? Else it is traced into.

        Those of ``torch.nn`` are, but for ``Sequential``.
        """
        return m.__module__.startswith(("torch.nn", "torch.ao.nn")) and not isinstance(
            m, nn.Sequential
        )

    def path_of_module(self, mod: nn.Module) -> str:
        """Where a module is in the root."""
        path = self.submodule_paths.get(mod)
        if path is None:
            raise NameError("module is not installed as a submodule")
        return path

    def call_module(
        self,
        m: nn.Module,
        forward: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """What a call of a module means: a node, or the trace of ``forward``."""
        path = self.path_of_module(m)
        calls = self.num_calls.get(path, 0)
        self.num_calls[path] = calls + 1
        key = f"{path}@{calls}" if calls else path
        self.module_stack[key] = (path, type(m))
        try:
            if self.is_leaf_module(m, path):
                return self.create_proxy("call_module", path, args, kwargs)
            return forward(*args, **kwargs)
        finally:
            self.module_stack.pop(key, None)

    def getattr(
        self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Proxy]
    ) -> Any:
        """What an attribute of a module means: parameters become nodes."""
        is_state = isinstance(attr_val, nn.Parameter) or (
            self.proxy_buffer_attributes and isinstance(attr_val, torch.Tensor)
        )
        path = self._path_of_state(attr_val) if is_state else None
        if path is None:
            return attr_val
        if path not in parameter_proxy_cache:
            factory = None
            if self.param_shapes_constant and isinstance(attr_val, nn.Parameter):

                def factory(node: Node) -> Proxy:
                    return ParameterProxy(self, node, path, attr_val)

            parameter_proxy_cache[path] = self.create_proxy(
                "get_attr", path, (), {}, proxy_factory_fn=factory
            )
        return parameter_proxy_cache[path]

    def create_node(self, *args: Any, **kwargs: Any) -> Node:
        """Insert a node, which knows the modules it is traced in."""
        node = super().create_node(*args, **kwargs)
        if self.module_stack:
            node.meta["nn_module_stack"] = dict(self.module_stack)
        if self._examples is not None:
            self._examples.run(node)
        return node

    def create_arg(self, a: Any) -> Argument:
        """As :meth:`TracerBase.create_arg`; tensors and modules of the root are
        read by ``get_attr``, other tensors become attributes of it."""
        cls = type(a)
        if cls is Proxy:
            return a.node
        if cls in (int, str, float, bool, type(None)):
            return a
        if isinstance(a, (torch.Tensor, nn.Module)):
            path = self._path_of_state(a) or self.tensor_attrs.get(a)
            if path is None and isinstance(a, nn.Parameter):
                raise NameError("parameter is not a member of this module")
            if path is None and isinstance(a, torch.Tensor):
                path = self.get_fresh_qualname("_tensor_constant")
                self.tensor_attrs[a] = path
                setattr(self.root, path, a)
            if path is not None:
                return self.create_node("get_attr", path, (), {})
        elif isinstance(a, tuple) and hasattr(a, "_fields"):
            items = tuple(self.create_arg(item) for item in a)
            return self.create_node("call_function", cls, items, {})
        return super().create_arg(a)

    # -- what a program asks of a value

    def to_bool(self, obj: Proxy) -> bool:
        """A branch: asserts are recorded, shapes are those of the examples."""
        if self._examples is None:
            return super().to_bool(obj)
        return self._examples.truth(obj)

    def iter(self, obj: Proxy) -> Iterator[Any]:
        """The items, as many as the example has."""
        if self._examples is None:
            return super().iter(obj)
        return iter(self._examples.items(obj))

    def unpack(self, obj: Proxy, count: int) -> Iterator[Any]:
        """The items, where the example says that there are so many."""
        items = self.known_items(obj)
        return super().unpack(obj, count) if items is None else iter(items)

    def keys(self, obj: Proxy) -> Any:
        """The keys that the example has."""
        if self._examples is None:
            return super().keys(obj)
        return self._examples.items(obj)

    def number(self, obj: Proxy, kind: type) -> Any:
        """The number that the example is."""
        if self._examples is None:
            return super().number(obj, kind)
        return kind(self._examples.number(obj))

    def text(self, obj: Proxy, spec: str) -> str:
        """The number, dtype, ... of the example as text; without, a proxy's name."""
        if self._examples is None or not self._is_running:
            return super().text(obj, spec)
        return format(self._examples.constant(obj), spec)

    def named(self, obj: Proxy) -> str:
        """As :meth:`text`, by ``repr``."""
        if self._examples is None or not self._is_running:
            return super().named(obj)
        return repr(self._examples.constant(obj))

    def hash(self, obj: Proxy) -> int:
        """That of the example, where it is a number, a dtype or the like.

        A tensor is hashed by what object it is, as in the program.
        """
        if self._examples is None or not self._is_running:
            return super().hash(obj)
        if self._examples.is_tensor(obj):
            return super().hash(obj)
        return builtins.hash(self._examples.constant(obj))

    def length(self, obj: Proxy) -> int:
        """The length of the example."""
        if self._examples is None:
            return super().length(obj)
        return len(self._examples.items(obj))

    def known_items(self, obj: Proxy) -> list[Any] | None:
        """As :meth:`iter`, where there is an example that has a length."""
        if self._examples is None or not self._examples.has_items(obj):
            return None
        return self._examples.items(obj)

    def is_instance(self, obj: Proxy, classes: Any) -> bool:
        """By the example or what the graph says of the value.

        Where that says nothing, an input that may be a tensor is one, which the
        graph checks, and it is of no other class (as for torch.fx).
        """
        return answer_isinstance(self, self._examples, obj, classes)

    def class_of(self, obj: Proxy) -> type:
        """The class of the example."""
        if self._examples is None:
            return super().class_of(obj)
        return self._examples.class_of(obj)

    def has_attribute(self, obj: Proxy, name: str) -> bool:
        """Has the example it?"""
        if self._examples is None:
            return super().has_attribute(obj, name)
        return self._examples.answer(obj, "has", name)

    def is_callable(self, obj: Proxy) -> bool:
        """Can the example be called?"""
        if self._examples is None:
            return super().is_callable(obj)
        return self._examples.answer(obj, "can be called")

    def is_same(self, left: Any, right: Any) -> bool:
        """``left is right``, by the examples."""
        if self._examples is None:
            return super().is_same(left, right)
        return self._examples.is_same(left, right)

    def set_attribute(self, module: nn.Module, name: str, value: Any) -> None:
        """Asked where the program assigns an attribute of a module.

        Raises :class:`TraceError` where a traced value would be left in a module, or
        a tensor in one of the root's: no graph assigns it when it runs.
        """
        is_lost = isinstance(value, Proxy) or (
            isinstance(value, torch.Tensor) and module in self.submodule_paths
        )
        if is_lost and not is_method_of(self):
            raise refused(
                f"{name!r} of a {type(module).__name__} is assigned a value that only "
                "the graph has when it runs, and a graph assigns no attributes",
                "return the value, or write to a buffer in place (`copy_`)",
            )

    def get_fresh_qualname(self, prefix: str) -> str:
        """A name that begins with `prefix` and that the root has no attribute of."""
        number = 0
        while hasattr(self.root, f"{prefix}{number}"):
            number += 1
        return f"{prefix}{number}"

    # -- the trace

    def trace(
        self,
        root: nn.Module | Callable[..., Any],
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
        *,
        example_inputs: tuple[Any, ...] | None = None,
    ) -> Graph:
        """The graph of a module's ``forward``, or of a function.

        concrete_args: values that arguments have, so that they are no inputs
        (the generated function checks them). ``PH`` in them stands for inputs:
        a dict with ``PH`` in it is an argument whose leaves are.
        example_inputs: positional arguments whose shapes decide branches, loops and
        lengths; the graph checks what was decided (:attr:`facts`). Branches on the
        data of tensors are refused still.
        """
        is_module = isinstance(root, nn.Module)
        if is_module:
            self.root = root
            function = getattr(type(root), self.traced_func_name)
            self.root_module_name = type(root).__name__
        else:
            self.root = nn.Module()
            function = root
        self._find_state()
        self.facts, self.decided = [], set()
        self._examples = None
        if example_inputs is not None:
            self._examples = Examples(self, tuple(example_inputs))
            own = [root] if is_module else []
            # (`is None` cannot be asked of a proxy.)
            nothing = self._examples.bind(inspect.unwrap(function), own)
            if not isinstance(concrete_args, tuple):
                concrete_args = {**nothing, **(concrete_args or {})}
        self.graph = Graph(tracer_cls=type(self))
        if code := getattr(function, "__code__", None):
            self.graph._co_fields = {
                "co_name": code.co_name,
                "co_filename": code.co_filename,
                "co_firstlineno": code.co_firstlineno,
            }
        names = getattr(inspect.unwrap(function), "__globals__", {})
        call, args = self.create_args_for_root(function, is_module, concrete_args)
        self.refusal = None
        result = self._run(names, call, tuple(args))
        if self.refusal is not None:  # and the program went on
            raise self.refusal
        result = self.create_arg(result)
        returns = inspect.get_annotations(inspect.unwrap(function)).get("return")
        self.create_node("output", "output", (result,), {}, type_expr=returns)
        return self.graph

    def _find_state(self) -> None:
        self.module_stack, self.num_calls, self._parameters = {}, {}, {}
        self.submodule_paths, self.tensor_attrs = {}, {}
        self._state_paths = None
        if _fx.find_modules(self.root, self.submodule_paths, self.tensor_attrs):
            return
        self.submodule_paths, self.tensor_attrs = {}, {}
        for path, module in self.root.named_modules():
            self.submodule_paths[module] = path
            for name, value in vars(module).items():
                if isinstance(value, torch.Tensor):
                    self.tensor_attrs[value] = f"{path}.{name}" if path else name

    def _path_of_state(self, value: Any) -> str | None:
        """Where in the root a module, parameter or buffer is; None: nowhere."""
        if isinstance(value, nn.Module):
            return self.submodule_paths.get(value) or None
        paths = self._state_paths
        if paths is None:
            root = self.root
            paths = self._state_paths = {}
            for path, state in (*root.named_parameters(), *root.named_buffers()):
                paths.setdefault(id(state), path)
        return paths.get(id(value))

    def _run(self, names: dict[str, Any], call: Any, args: tuple[Any, ...]) -> Any:
        """Run the program: calls of modules and wrapped functions lead here."""
        patches = self._patches = Patches()
        self._by_methods = self._examples is not None or not (
            vars(self).keys().isdisjoint(METHODS)
        )
        _rewriting.begin()
        self._is_running = True
        try:
            for (_, name), owner in wrapped.items():
                function: Any = owner.get(name, vars(builtins).get(name))
                patches.item(owner, name, as_node(function))
            for cls, name in wrapped_methods:
                patches.attribute(cls, name, as_node(getattr(cls, name), "call_method"))
            self._wrap_functions(names)
            for module in self._autowrap_search:
                self._wrap_functions(vars(module))
            twin_of = functools.partial(
                _rewriting.twin_of, self._examples is not None, asked_setattr(self)
            )
            return _fx.follow(self, twin_of, self._autowrap_ids, call, args)
        finally:
            self._is_running = False
            patches.undo()

    def _wrap_functions(self, names: dict[str, Any]) -> None:
        ids = self._autowrap_ids
        found = {
            name: as_node(value)
            for name, value in names.items()
            if id(value) in ids and not name.startswith("_")
        }
        if found:
            self._patches.items(names, found)

    def _call_of_module(
        self, m: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        forward = functools.partial(_fx.call_through, m)
        return self.call_module(m, forward, args, kwargs)


def symbolic_trace(
    root: nn.Module | Callable[..., Any],
    concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    *,
    example_inputs: tuple[Any, ...] | None = None,
) -> GraphModule:
    """A module, with graph and code, that does what `root` does.

    Modules of ``torch.nn`` are called, others traced into. ``concrete_args`` are
    arguments whose values are known, ``example_inputs`` such whose shapes are
    (:meth:`Tracer.trace`); what the graph takes for granted, and checks, is in
    ``meta["facts"]`` of the module. What depends on values of tensors is refused
    with a :class:`TraceError` that names the line.
    """
    tracer = Tracer()
    # Nothing of it is garbage yet: each of many small collections would walk over it.
    collects = gc.isenabled()
    gc.disable()
    try:
        graph = tracer.trace(root, concrete_args, example_inputs=example_inputs)
        name = type(root).__name__ if isinstance(root, nn.Module) else root.__name__
        made = GraphModule(tracer.root, graph, name)
    finally:
        if collects:
            gc.enable()
    if tracer.facts:
        made.meta["facts"] = tracer.facts
    return made


def _say_what_is_ours() -> None:
    ours = {
        name: [vars(cls)[name] for cls in (TracerBase, Tracer) if name in vars(cls)]
        for name in METHODS
    }
    _fx.set_tracing(Proxy, note_place, ours)
    module = nn.modules.module
    _fx.set_module_parts(
        nn.Module,
        nn.Sequential,
        torch.Tensor,
        (
            module._global_backward_pre_hooks,
            module._global_backward_hooks,
            module._global_forward_hooks,
            module._global_forward_pre_hooks,
        ),
        (module._global_module_registration_hooks,),
        torch._C._get_tracing_state,
    )


_say_what_is_ours()
