"""``split_module``: one graph as several, each a submodule."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from framejit.fx.graph import Graph
from framejit.fx.graph_module import GraphModule
from framejit.fx.node import Node, map_arg

__all__ = ["split_module"]


@dataclass
class _Part:
    name: str
    graph: Graph = field(default_factory=Graph)
    #: Values of other parts that it uses, and its own that others do.
    inputs: dict[Node, None] = field(default_factory=dict)
    outputs: dict[Node, None] = field(default_factory=dict)
    needs: dict[Any, None] = field(default_factory=dict)
    copies: dict[Node, Any] = field(default_factory=dict)
    attributes: dict[str, Any] = field(default_factory=dict)


def split_module(
    m: GraphModule,
    root_m: nn.Module,
    split_callback: Callable[[Node], Any],
    qualname_map: dict[str, str] | None = None,
    keep_original_order: bool = False,
    keep_original_node_name: bool = False,
    keep_original_input_name: bool = True,
    *,
    partition_affix: str | None = None,
    tuple_return: bool = False,
) -> GraphModule:
    """A module that calls one submodule for each part of the graph of `m`.

    ``split_callback`` gives the part a node belongs to, anything that can be a
    key: part 0 becomes ``submod_0`` (``submod_<affix>_0``). Inputs, and what the
    module has, stay outside and are passed. Parts must not need each other in a
    circle. What a part returns is the value the others use, or a tuple of several
    (``tuple_return``: always).

    ``qualname_map`` is filled with paths in the result -> paths in `m`.
    ``keep_original_order``: parts are called in the order of their first nodes,
    else in the order in which each has what it needs.
    """
    splitter = _Splitter(m, split_callback, partition_affix)
    splitter.find_inputs()
    order = list(splitter.parts) if keep_original_order else splitter.sorted_parts()
    for part in splitter.parts.values():
        for index, node in enumerate(part.inputs):
            name = node.name if keep_original_input_name else f"arg_{index}"
            made = part.graph.placeholder(name, type_expr=node.type)
            made.meta = dict(node.meta)
            part.copies[node] = made
    splitter.copy_nodes(keep_original_node_name, qualname_map)
    return splitter.join(order, keep_original_node_name, tuple_return)


class _Splitter:
    def __init__(
        self, module: GraphModule, key_of: Callable[[Node], Any], affix: str | None
    ) -> None:
        self.module = module
        self.affix = affix
        self.parts: dict[Any, _Part] = {}
        self.part_of: dict[Node, Any] = {}
        for node in module.graph.nodes:
            if node.op in ("placeholder", "get_attr", "output"):
                continue
            key = key_of(node)
            self.part_of[node] = key
            if key not in self.parts:
                middle = "" if affix is None else f"{affix}_"
                self.parts[key] = _Part(f"submod_{middle}{key}")

    def find_inputs(self) -> None:
        """What crosses the borders of parts."""
        for node in self.module.graph.nodes:
            to = self.part_of.get(node)
            inside = node in self.part_of
            for value in node.all_input_nodes:
                made_in = value in self.part_of
                if inside and made_in and self.part_of[value] == to:
                    continue
                if made_in:
                    self.parts[self.part_of[value]].outputs[value] = None
                if inside:
                    self.parts[to].inputs[value] = None
                    if made_in:
                        self.parts[to].needs[self.part_of[value]] = None

    def sorted_parts(self) -> list[Any]:
        """Each part behind those it needs; else by their first nodes."""
        done: dict[Any, None] = {}
        while len(done) < len(self.parts):
            ready = [
                key
                for key, part in self.parts.items()
                if key not in done and all(need in done for need in part.needs)
            ]
            if not ready:
                raise RuntimeError("cycle exists between partitions!")
            done.update(dict.fromkeys(ready))
        return list(done)

    def attribute(self, path: str) -> Any:
        found: Any = self.module
        for name in path.split("."):
            found = getattr(found, name)
        return found

    def copy_nodes(self, keep_names: bool, paths: dict[str, str] | None) -> None:
        """Each node into its part; modules are the part's own attributes there."""
        for node, key in self.part_of.items():
            part = self.parts[key]
            target = node.target
            if node.op == "call_module":
                path = str(target)
                target = path.replace(".", "_")
                part.attributes[target] = self.attribute(path)
                if paths is not None:
                    paths[f"{part.name}.{target}"] = path
            made = part.graph.create_node(
                node.op,
                target,
                map_arg(node.args, part.copies.__getitem__),
                map_arg(node.kwargs, part.copies.__getitem__),
                node.name if keep_names else None,
                node.type,
            )
            made.meta = dict(node.meta)
            part.copies[node] = made

    def join(self, order: list[Any], keep_names: bool, tuples: bool) -> GraphModule:
        """The graph that calls the parts."""
        graph = Graph()
        values: dict[Node, Any] = {}
        attributes: dict[str, Any] = {}
        for node in self.module.graph.nodes:
            if node.op in ("placeholder", "get_attr"):
                name = node.name if keep_names else None
                args = node.args
                made = graph.create_node(
                    node.op, node.target, args, {}, name, node.type
                )
                made.meta = dict(node.meta)
                values[node] = made
                if node.op == "get_attr":
                    attributes[node.target] = self.attribute(node.target)
        for key in order:
            part = self.parts[key]
            outputs = tuple(part.copies[node] for node in part.outputs)
            single = len(outputs) == 1 and not tuples
            part.graph.output(outputs[0] if single else outputs)
            attributes[part.name] = GraphModule(part.attributes, part.graph)
            try:
                inputs = tuple(values[node] for node in part.inputs)
            except KeyError as error:
                raise RuntimeError(
                    f"{part.name} would be called before {error.args[0]} is there"
                ) from None
            called = graph.call_module(part.name, inputs)
            for index, node in enumerate(part.outputs):
                values[node] = (
                    called
                    if single
                    else graph.call_function(operator.getitem, (called, index))
                )
        output = self.module.graph.output_node()
        graph.output(map_arg(output.args[0], values.__getitem__), output.type)
        result = GraphModule(attributes, graph)
        result.meta["partition_names"] = {part.name for part in self.parts.values()}
        return result
