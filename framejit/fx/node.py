"""``Node``: one operation of a graph."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import torch

from framejit._C import _fx
from framejit.fx._names import target_text, type_repr

if TYPE_CHECKING:
    from framejit.fx.graph import Graph

__all__ = ["Argument", "Node", "Target", "has_side_effect", "map_aggregate", "map_arg"]

#: What a node may have for an argument: nodes, constants, and tuples, lists,
#: dicts and slices of those.
Argument: TypeAlias = Any
#: What a node calls: a callable, or a name.
Target: TypeAlias = Callable[..., Any] | str

_F = TypeVar("_F", bound=Callable[..., Any])

map_arg = _fx.map_arg
map_aggregate = _fx.map_aggregate

_aten = torch.ops.aten
_side_effects: set[Any] = {
    torch._assert,
    torch._assert_async,
    torch._C._set_grad_enabled,
    torch.amp.autocast_mode._enter_autocast,
    torch.amp.autocast_mode._exit_autocast,
    operator.setitem,
    _aten._assert_async.msg,
    _aten._assert_scalar.default,
    _aten._assert_tensor_metadata.default,
    _aten.sym_constrain_range.default,
    _aten.sym_constrain_range_for_size.default,
    torch.ops.profiler._record_function_enter,
    torch.ops.profiler._record_function_enter.default,
    torch.ops.profiler._record_function_enter_new,
    torch.ops.profiler._record_function_enter_new.default,
    torch.ops.profiler._record_function_exit,
    torch.ops.profiler._record_function_exit._RecordFunction,
}
# They draw numbers, so dropping a call changes those that come after it.
_RANDOM = {
    getattr(torch, name)
    for name in (
        *("rand", "randn", "randint", "randperm", "rand_like", "randn_like"),
        *("randint_like", "normal", "poisson", "bernoulli", "multinomial"),
    )
}


def has_side_effect(function: _F) -> _F:
    """Say that calls of a function are no dead code, used or not."""
    _side_effects.add(function)
    return function


def _is_impure_call(target: Any, impure_random: bool) -> bool:
    if isinstance(target, torch._ops.OpOverloadPacket) and target not in _side_effects:
        default = getattr(target, "default", None)
        if default is not None:
            target = default
    if isinstance(target, torch._ops.OpOverload):
        if target._schema.is_mutable:
            return True
        if impure_random and torch.Tag.nondeterministic_seeded in target.tags:
            return True
    return target in _side_effects or target in _RANDOM


def format_arg(arg: Any) -> str:
    """An argument as listings show it: nodes have a ``%`` before their names."""
    if isinstance(arg, Node):
        return f"%{arg}"
    if isinstance(arg, list):
        return f"[{', '.join(map(format_arg, arg))}]"
    if isinstance(arg, tuple):
        return f"({', '.join(map(format_arg, arg))}{',' if len(arg) == 1 else ''})"
    if isinstance(arg, dict):
        return f"{{{', '.join(f'{k}: {format_arg(v)}' for k, v in arg.items())}}}"
    return str(arg)


class Node(_fx.NodeBase):
    """One operation of a :class:`Graph`, and the value it computes.

    ``op`` says what kind it is:

    - ``placeholder``: an input. ``target`` is the name of the parameter, ``args``
      holds its default, if it has one.
    - ``get_attr``: what the module has at the path ``target``.
    - ``call_function``: ``target(*args, **kwargs)``.
    - ``call_module``: the submodule at the path ``target`` is called.
    - ``call_method``: the method ``target`` of ``args[0]`` is called with the rest.
    - ``output``: ``args[0]`` is what the graph returns.

    Nodes are made by a graph (:meth:`Graph.create_node` and the others). They
    compare by their places: ``a < b`` where ``a`` stands before ``b``.
    """

    __slots__ = ()
    graph: Graph

    def format_node(
        self,
        placeholder_names: list[str] | None = None,
        maybe_return_typename: list[str] | None = None,
        *,
        include_tensor_metadata: bool = False,
    ) -> str | None:
        """The node in words, as ``str(graph)`` lists it.

        With lists, it is ``str(graph)`` that asks: a placeholder adds its
        parameter to the first and has no line, the output puts its type in the
        second.
        """
        typed = f"{type_repr(self.type)} " if self.type is not None else ""
        if include_tensor_metadata:
            typed = self._tensor_text() or typed
        head = f"%{self.name} : {typed}[num_users={len(self.users)}] = {self.op}"
        if self.op == "placeholder":
            if placeholder_names:
                placeholder_names.append(
                    f"{self.target}: {type_repr(self.type)}"
                    if self.type
                    else str(self.target)
                )
                return None
            default = f"(default={self.args[0]})" if self.args else ""
            return f"{head}[target={self.target}]{default}"
        if self.op == "output":
            if self.type and maybe_return_typename:
                maybe_return_typename[0] = f" -> {type_repr(self.type)}"
            return f"return {self.args[0]}"
        head += f"[target={target_text(self.target)}]"
        if self.op == "get_attr":
            return head
        return (
            f"{head}(args = {format_arg(self.args)}, kwargs = "
            f"{format_arg(self.kwargs)})"
        )

    def _tensor_text(self) -> str:
        from torch.utils._dtype_abbrs import dtype_abbrs

        for key in ("val", "tensor_meta", "example_value"):
            if key in self.meta:
                value = self.meta[key]
                break
        else:
            return ""
        if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
            return ""
        size, stride = list(value.shape), list(value.stride())
        return f'Tensor "{dtype_abbrs[value.dtype]}{size}{stride}{value.device}"'

    def is_impure(self, impure_random: bool = True) -> bool:
        """Must it stay though nobody uses its value?

        Inputs and outputs must, calls of functions that write, draw random
        numbers (unless ``impure_random`` is False) or are marked by
        :func:`has_side_effect`, and modules that have ``_is_impure``.
        """
        if self.op in ("placeholder", "output"):
            return True
        if self.op == "call_module":
            owner = self.graph.owning_module
            if owner is None:
                raise AssertionError(
                    "self.graph.owning_module not set for purity check"
                )
            return bool(
                getattr(owner.get_submodule(str(self.target)), "_is_impure", False)
            )
        return self.op == "call_function" and _is_impure_call(
            self.target, impure_random
        )

    def normalized_arguments(
        self,
        root: torch.nn.Module,
        arg_types: tuple[Any, ...] | None = None,
        kwarg_types: dict[str, Any] | None = None,
        normalize_to_only_use_kwargs: bool = False,
    ) -> Any:
        """The arguments by the signature of what is called, with its defaults.

        A pair ``(args, kwargs)``, or None where the signature is not known.
        """
        from torch.fx.operator_schemas import normalize_function, normalize_module

        if self.op == "call_function":
            return normalize_function(
                self.target,  # type: ignore[arg-type]
                self.args,
                self.kwargs,
                arg_types,
                kwarg_types,
                normalize_to_only_use_kwargs=normalize_to_only_use_kwargs,
            )
        if self.op == "call_module":
            return normalize_module(
                root,
                str(self.target),
                self.args,
                self.kwargs,
                normalize_to_only_use_kwargs=normalize_to_only_use_kwargs,
            )
        return None

    @property
    def stack_trace(self) -> str | None:
        """Where in the user's program it comes from, innermost last, or None."""
        trace: str | None = self.meta.get("stack_trace")
        return trace

    @stack_trace.setter
    def stack_trace(self, trace: str | None) -> None:
        self.meta["stack_trace"] = trace

    @staticmethod
    def _pretty_print_target(target: Any) -> str:
        return target_text(target)

    def __deepcopy__(self, memo: dict[Any, Any]) -> Node:
        copy.deepcopy(self.graph, memo)
        found: Node = memo[self]
        return found

    def __reduce__(self) -> Any:
        index = next(i for i, node in enumerate(self.graph.nodes) if node is self)
        return _node_at, (self.graph, index)


def _node_at(graph: Graph, index: int) -> Node:
    found: Node = next(node for i, node in enumerate(graph.nodes) if i == index)
    return found
