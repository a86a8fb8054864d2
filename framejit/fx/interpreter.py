"""``Interpreter`` runs a graph node by node, ``Transformer`` makes another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from framejit.fx._places import innermost
from framejit.fx.graph import Graph
from framejit.fx.graph_module import GraphModule
from framejit.fx.node import Argument, Node, Target, map_arg
from framejit.fx.proxy import Proxy, TracerBase

__all__ = ["Interpreter", "Transformer"]


class Interpreter:
    """Runs a graph, one node at a time; derive from it to do more at each.

    Every kind of node has a method (:meth:`call_function` and so on), which
    gets the target and the values of the arguments, and returns the value of
    the node. :meth:`run_node` is called for each.

    module: the module that paths lead into. graph: its graph if not given.
    garbage_collect_values: let go of values after their last use.
    """

    def __init__(
        self,
        module: nn.Module,
        garbage_collect_values: bool = True,
        graph: Graph | None = None,
    ) -> None:
        self.module = module
        self.submodules = dict(module.named_modules())
        self.graph: Any = graph if graph is not None else module.graph
        self.env: dict[Node, Any] = {}
        self.name = type(self).__name__
        self.garbage_collect_values = garbage_collect_values
        self.extra_traceback = True
        self.user_to_last_uses: dict[Node, list[Node]] = {}
        if garbage_collect_values:
            self.user_to_last_uses = _last_uses(self.graph)
        self.args_iter: Iterator[Any] = iter(())

    def run(
        self,
        *args: Any,
        initial_env: dict[Node, Any] | None = None,
        enable_io_processing: bool = True,
    ) -> Any:
        """Run the graph on arguments; what it returns.

        initial_env: values of nodes that are known, so that they are not run.
        enable_io_processing: arguments and result are nested as the generated
        function has them.
        """
        self.env = dict(initial_env or {})
        if enable_io_processing:
            args = self.graph.process_inputs(*args)
        self.args_iter = iter(args)
        for node in self.graph.nodes:
            if node in self.env:
                continue
            try:
                self.env[node] = self.run_node(node)
            except Exception as error:
                if self.extra_traceback:
                    self._note(error, node)
                raise
            for dead in self.user_to_last_uses.get(node, ()):
                self.env.pop(dead, None)
            if node.op == "output":
                value = self.env.pop(node)
                if enable_io_processing:
                    return self.graph.process_outputs(value)
                return value
        return None

    def boxed_run(self, args_list: list[Any]) -> Any:
        """Run on a list of arguments, which is emptied so that they may go."""
        inputs = list(args_list)
        args_list.clear()
        env = {}
        for node in self.graph.nodes:
            if node.op == "placeholder":
                env[node] = inputs.pop(0)
        return self.run(initial_env=env, enable_io_processing=False)

    def _note(self, error: Exception, node: Node) -> None:
        if getattr(error, "__framejit_fx_shown__", False):
            return
        text = f"While executing {node.format_node()}"
        if place := innermost(node.stack_trace):
            text += f"\nwhich is of {place.file}:{place.line}: {place.code}"
        error.__framejit_fx_shown__ = True  # type: ignore[attr-defined]
        error.add_note(text)

    @contextmanager
    def _set_current_node(self, node: Node) -> Iterator[None]:
        yield

    def run_node(self, n: Node) -> Any:
        """The value of a node, by the method for its kind."""
        with self._set_current_node(n):
            args, kwargs = self.fetch_args_kwargs_from_env(n)
            return getattr(self, n.op)(n.target, args, kwargs)

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The next argument, or its default; all that is left for ``*args``."""
        if str(target).startswith("*"):
            return list(self.args_iter)
        for value in self.args_iter:
            return value
        if args:
            return args[0]
        raise RuntimeError(
            f"Expected positional argument for parameter {target}, but one was not "
            "passed in!"
        )

    def get_attr(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What the module has at the path."""
        return self.fetch_attr(str(target))

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of the call."""
        return target(*args, **kwargs)  # type: ignore[operator]

    def call_method(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of the method of args[0]."""
        self_object, *rest = args
        return getattr(self_object, str(target))(*rest, **kwargs)

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """The result of the submodule."""
        return self.fetch_attr(str(target))(*args, **kwargs)

    def output(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """What the graph returns."""
        return args[0]

    def fetch_attr(self, target: str) -> Any:
        """What the module has at a path."""
        value: Any = self.module
        parts = target.split(".")
        for index, part in enumerate(parts):
            if not hasattr(value, part):
                raise RuntimeError(
                    f"Node referenced nonexistent target {'.'.join(parts[: index + 1])}"
                )
            value = getattr(value, part)
        return value

    def fetch_args_kwargs_from_env(
        self, n: Node
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The values of the arguments of a node."""
        return (
            self.map_nodes_to_values(n.args, n),
            self.map_nodes_to_values(n.kwargs, n),
        )

    def map_nodes_to_values(self, args: Argument, n: Node) -> Any:
        """An argument with values in place of nodes."""

        def value(node: Node) -> Any:
            if node not in self.env:
                raise RuntimeError(
                    f"Node {n} referenced nonexistent value {node}! Run Graph.lint() "
                    "to diagnose such issues"
                )
            return self.env[node]

        return map_arg(args, value)


def _last_uses(graph: Any) -> dict[Node, list[Node]]:
    uses: dict[Node, list[Node]] = graph._last_uses()
    return uses


class _TransformerTracer(TracerBase):
    """Adds to the new graph; modules are called, not traced into."""

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.tensor_attrs: dict[torch.Tensor, str] = {}
        self.root = nn.Module()

    def is_leaf_module(self, _: nn.Module, __: str) -> bool:
        return True


class Transformer(Interpreter):
    """An interpreter whose values are proxies: what it runs becomes a graph.

    Methods return proxies; one that does not call its ``super()`` but other
    functions replaces the node by those. :meth:`transform` gives the result.
    """

    def __init__(self, module: GraphModule) -> None:
        super().__init__(module)
        self.new_graph = Graph()
        self.new_graph.set_codegen(module.graph._codegen)
        self.tracer: Any = _TransformerTracer(self.new_graph)
        self.tracer.root = module

    def placeholder(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Proxy:
        """An input of the new graph."""
        default = args[:1]
        node = self.new_graph.create_node("placeholder", target, default)
        return Proxy(node, self.tracer)

    def get_attr(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Proxy:
        """A read in the new graph."""
        proxy: Proxy = self.tracer.create_proxy("get_attr", target, args, kwargs)
        return proxy

    def call_module(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call of the submodule in the new graph."""
        return self.tracer.create_proxy("call_module", target, args, kwargs)

    def call_function(
        self, target: Target, args: tuple[Argument, ...], kwargs: dict[str, Any]
    ) -> Any:
        """A call in the new graph."""
        return self.tracer.create_proxy("call_function", target, args, kwargs)

    def transform(self) -> GraphModule:
        """The module of the new graph, with the attributes of the old one."""
        result = super().run(enable_io_processing=False)
        if result is not None:

            def node_of(value: Any) -> Any:
                return value.node if isinstance(value, Proxy) else value

            from framejit.fx.node import map_aggregate

            made = self.new_graph.output(map_aggregate(result, node_of))
            made.meta = dict(self.graph.output_node().meta)
        return GraphModule(self.module, self.new_graph)
