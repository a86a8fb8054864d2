"""``symbolic_trace``: a graph of what a program does with proxies.

What this tracer cannot do is what proxies cannot: branches and loops that
depend on values of tensors or on shapes, ``len``, ``*args`` of the root, and
mutation of what is not a tensor. It says so with the line of the program. What
comes out of it, and how it is steered (``Tracer``'s methods), does not depend
on there being proxies.
"""

from __future__ import annotations

import builtins
import contextlib
import functools
import inspect
import math
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from framejit.fx._codegen import PyTreeCodeGen, PyTreeInfo
from framejit.fx.graph import Graph
from framejit.fx.graph_module import GraphModule
from framejit.fx.node import Argument, Node
from framejit.fx.proxy import (
    GraphAppendingTracer,
    ParameterProxy,
    Proxy,
    TracerBase,
)

__all__ = ["PH", "GraphAppendingTracer", "Tracer", "symbolic_trace", "wrap"]


class _Input:
    """In ``concrete_args``: this is an input of the graph."""

    def __repr__(self) -> str:
        return "PH"


PH = _Input()

# (globals of a module, name) of functions that are nodes when they are called.
_wrapped: dict[tuple[int, str], dict[str, Any]] = {}
# (class, name) of methods that are.
_wrapped_methods: list[tuple[type, str]] = []


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Say, at the top level of a module, that a function is not traced into.

    Calls of it become ``call_function`` nodes. Takes the function, as a
    decorator does, or the name it has in the module (a builtin, too).
    """
    if callable(fn_or_name):
        name = fn_or_name.__name__
    elif isinstance(fn_or_name, str):
        name = fn_or_name
    else:
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or "
            "string name"
        )
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    _wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


class _Patches:
    """Attributes and items that are other ones until the trace ends."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: set[tuple[int, str]] = set()

    def item(self, names: dict[str, Any], name: str, value: Any) -> None:
        if (id(names), name) in self._seen:
            return
        self._seen.add((id(names), name))
        if name in names:
            self._undo.append(functools.partial(names.__setitem__, name, names[name]))
        else:
            self._undo.append(functools.partial(names.__delitem__, name))
        names[name] = value

    def attribute(self, owner: type, name: str, value: Any) -> None:
        self._undo.append(functools.partial(setattr, owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


def _first_proxy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy | None:
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, Proxy):
            return leaf
    return None


def _as_node(function: Callable[..., Any], kind: str = "call_function") -> Any:
    """A function that becomes a node where a proxy is among its arguments."""

    @functools.wraps(function)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        target = function if kind == "call_function" else function.__name__
        made = proxy.tracer.create_proxy(kind, target, args, kwargs)
        if kind == "call_function":
            made.node.meta["is_wrapped"] = True
        return made

    return wrapped


class Tracer(TracerBase):
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
        self._known: dict[int, str] = {}
        self._patches = _Patches()

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
        path = self._known.get(id(attr_val)) if is_state else None
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
            path = self._known.get(id(a)) or self.tensor_attrs.get(a)
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
    ) -> Graph:
        """The graph of a module's ``forward``, or of a function.

        concrete_args: values that arguments have, so that they are no inputs
        (the generated function checks them). ``PH`` in them stands for inputs:
        a dict with ``PH`` in it is an argument whose leaves are.
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
        self.graph = Graph(tracer_cls=type(self))
        if code := getattr(function, "__code__", None):
            self.graph._co_fields = {
                "co_name": code.co_name,
                "co_filename": code.co_filename,
                "co_firstlineno": code.co_firstlineno,
            }
        names = getattr(inspect.unwrap(function), "__globals__", {})
        call, args = self.create_args_for_root(function, is_module, concrete_args)
        with self._patched(names):
            result = self.create_arg(call(*args))
        returns = inspect.get_annotations(inspect.unwrap(function)).get("return")
        self.create_node("output", "output", (result,), {}, type_expr=returns)
        return self.graph

    def _find_state(self) -> None:
        root = self.root
        self.submodule_paths = {}
        self.tensor_attrs = {}
        self.module_stack, self.num_calls = {}, {}
        self._parameters = {}
        self._known = {}
        for path, module in root.named_modules():
            self.submodule_paths[module] = path
            if path:
                self._known[id(module)] = path
            for name, value in vars(module).items():
                if isinstance(value, torch.Tensor):
                    self.tensor_attrs[value] = f"{path}.{name}" if path else name
        for path, value in (*root.named_parameters(), *root.named_buffers()):
            self._known.setdefault(id(value), path)

    @contextlib.contextmanager
    def _patched(self, names: dict[str, Any]) -> Iterator[None]:
        """Modules and wrapped functions lead here while the program runs."""
        patches = self._patches = _Patches()
        read, call = nn.Module.__getattr__, nn.Module.__call__

        def module_getattr(module: nn.Module, name: str) -> Any:
            return self.getattr(name, read(module, name), self._parameters)

        def module_call(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                return call(module, *args, **kwargs)

            self._wrap_functions(getattr(type(module).forward, "__globals__", {}))
            return self.call_module(module, forward, args, kwargs)

        try:
            patches.attribute(nn.Module, "__getattr__", module_getattr)
            patches.attribute(nn.Module, "__call__", module_call)
            for (_, name), owner in _wrapped.items():
                function: Any = owner.get(name, vars(builtins).get(name))
                patches.item(owner, name, _as_node(function))
            for cls, name in _wrapped_methods:
                patches.attribute(
                    cls, name, _as_node(getattr(cls, name), "call_method")
                )
            self._wrap_functions(names)
            for module in self._autowrap_search:
                self._wrap_functions(vars(module))
            yield
        finally:
            patches.undo()

    def _wrap_functions(self, names: dict[str, Any]) -> None:
        for name, value in list(names.items()):
            if not name.startswith("_") and id(value) in self._autowrap_ids:
                self._patches.item(names, name, _as_node(value))

    # -- the arguments

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Placeholders for the parameters, and what to call with them."""
        function = inspect.unwrap(root_fn)
        code = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames[:count])
        if is_module and not names:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        own = [self.root] if is_module else []
        taken = names[len(own) :]
        if isinstance(concrete_args, tuple):
            if len(concrete_args) != len(taken):
                raise RuntimeError(
                    f"Tracing expected {len(taken)} arguments but got "
                    f"{len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(taken, concrete_args, strict=True))
        concrete = concrete_args or {}
        parameters = inspect.signature(function).parameters
        inputs = [self._input(name, parameters[name], concrete) for name in taken]
        positional = inputs[: code.co_argcount - len(own)]
        keyword = names[code.co_argcount :]

        rest = iter(code.co_varnames[count:])
        stars: list[Any] = []
        if code.co_flags & inspect.CO_VARARGS:
            stars.append(self._star("*" + next(rest)))
        if code.co_flags & inspect.CO_VARKEYWORDS:
            stars.append(self._star("**" + next(rest)))

        def call(*args: Any) -> Any:
            args, more = args[: len(args) - len(stars)], args[len(args) - len(stars) :]
            plain = args[: len(own) + len(positional)]
            named = dict(zip(keyword, args[len(plain) :], strict=True))
            if more:
                return _call_with_stars(function, plain, named, more)
            return root_fn(*plain, **named)

        args = [*own, *inputs, *stars]
        leaves, spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in spec.children()):
            return call, args
        self.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(names, spec, None)))
        return self._flattened(call, spec), leaves

    def _flattened(self, call: Callable[..., Any], spec: Any) -> Any:
        def flat(*leaves: Any) -> list[Any]:
            result = call(*pytree.tree_unflatten(list(leaves), spec))
            out, out_spec = pytree.tree_flatten(result)
            codegen: Any = self.graph._codegen
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return out

        return flat

    def _star(self, name: str) -> Proxy:
        return self.create_proxy("placeholder", name, (), {})

    def _input(
        self, name: str, parameter: inspect.Parameter, concrete: dict[str, Any]
    ) -> Any:
        """A placeholder; where the value is given, one for each leaf of it."""
        has_default = parameter.default is not inspect.Parameter.empty
        default = (parameter.default,) if has_default else ()
        if name not in concrete:
            typed = parameter.annotation
            return self.create_proxy(
                "placeholder",
                name,
                default,
                {},
                type_expr=None if typed is inspect.Parameter.empty else typed,
            )
        number = 0

        def leaf(value: Any) -> Any:
            nonlocal number
            number += 1
            made = self.create_proxy("placeholder", f"{name}_{number}", default, {})
            if isinstance(value, _Input):
                return made
            self._check_value(made, name, value)
            return value

        return pytree.tree_map(leaf, concrete[name])

    def _check_value(self, made: Proxy, name: str, value: Any) -> None:
        """The generated function checks that an argument is what was given."""
        text = (
            f"{name} has been specialized to have value {value} but got another value"
        )
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (made, text), {})
        elif isinstance(value, (bool, int, float, complex, str)):
            same: Any = made == value  # type: ignore[comparison-overlap]
            self.create_proxy("call_function", torch._assert, (same, text), {})


def _call_with_stars(
    function: Any, args: tuple[Any, ...], named: dict[str, Any], stars: Any
) -> Any:
    """Call a function whose ``*args`` and ``**kwargs`` are the proxies given.

    What it does with them as a whole is recorded; how many there are is unknown.
    """
    code = function.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + len(stars)
    plain = types.FunctionType(
        code.replace(
            co_flags=flags, co_argcount=count, co_kwonlyargcount=0, co_posonlyargcount=0
        ),
        function.__globals__,
        function.__name__,
        None,
        function.__closure__,
    )
    return plain(*args, *named.values(), *stars)


def _assert_is_none(value: Any, message: str) -> None:
    assert value is None, message


def symbolic_trace(
    root: nn.Module | Callable[..., Any],
    concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
) -> GraphModule:
    """A module, with graph and code, that does what `root` does.

    Modules of ``torch.nn`` are called, others traced into. ``concrete_args``
    are arguments whose values are known (:meth:`Tracer.trace`). What depends on
    values of tensors is refused with a :class:`TraceError` that names the line.
    """
    tracer = Tracer()
    graph = tracer.trace(root, concrete_args)
    name = type(root).__name__ if isinstance(root, nn.Module) else root.__name__
    return GraphModule(tracer.root, graph, name)
