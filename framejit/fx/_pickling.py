"""Graphs as plain data, for pickle and for text.

A record has no references between nodes but their numbers, so its depth does
not grow with the graph. Functions are named by the path that leads to them
where there is one (pickle cannot name those of torch's own types).
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from framejit.fx._codegen import CodeGen
from framejit.fx._names import qualified_name
from framejit.fx.node import map_aggregate, map_arg

if TYPE_CHECKING:
    from framejit.fx.graph import Graph


class NodeAt:
    """Stands for the node with a number."""

    __slots__ = ("index",)

    def __init__(self, index: int) -> None:
        self.index = index

    def __reduce__(self) -> Any:
        return NodeAt, (self.index,)


class Function:
    """Stands for what a path leads to."""

    __slots__ = ("path",)

    def __init__(self, path: str) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return Function, (self.path,)


def resolve(path: str) -> Any:
    """What a dotted path leads to: modules, then attributes."""
    parts = path.split(".")
    for length in range(len(parts) - 1, 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:length]))
        except ImportError:
            continue
        for part in parts[length:]:
            found = getattr(found, part)
        return found
    return getattr(importlib.import_module("builtins"), path)


def path_of(function: Any) -> str | None:
    """A path that leads to this very object, or None."""
    try:
        path = qualified_name(function)
        return path if resolve(path) is function else None
    except (AttributeError, ImportError, RuntimeError):
        return None


def record_of(graph: Graph) -> dict[str, Any]:
    """What a graph is, as pickle can have it."""
    numbers = {node: index for index, node in enumerate(graph.nodes)}

    def packed(arg: Any) -> Any:
        return map_arg(arg, lambda node: NodeAt(numbers[node]))

    nodes = []
    for node in graph.nodes:
        target: Any = node.target
        if not isinstance(target, str):
            path = path_of(target)
            target = Function(path) if path else target
        nodes.append(
            (
                *(node.op, target, packed(node.args), packed(node.kwargs)),
                *(node.name, node.type, packed(node.meta)),
            )
        )
    return {
        "nodes": nodes,
        "codegen": None if type(graph._codegen) is CodeGen else graph._codegen,
        "tracer_cls": _importable(graph._tracer_cls),
        "owning_module": graph.owning_module,
    }


def _importable(cls: type | None) -> type | None:
    return cls if cls is not None and "<locals>" not in cls.__qualname__ else None


def restore(graph: Graph, record: dict[str, Any]) -> None:
    """Fills an empty graph with what a record is of."""
    graph._tracer_cls = record["tracer_cls"]
    graph.owning_module = record["owning_module"]
    made: list[Any] = []
    # Graphs that are out of order have arguments that are made later.
    early: list[int] = []

    def unpacked(arg: Any) -> Any:
        def leaf(value: Any) -> Any:
            if not isinstance(value, NodeAt):
                return value
            if value.index < len(made):
                return made[value.index]
            early.append(len(made))
            return None

        return map_aggregate(arg, leaf)

    for op, target, args, kwargs, name, type_expr, meta in record["nodes"]:
        if isinstance(target, Function):
            target = resolve(target.path)
        node = graph.create_node(
            op, target, unpacked(args), unpacked(kwargs), name, type_expr
        )
        node.name = name
        node.meta = dict(unpacked(meta)) if meta else {}
        made.append(node)
    for index in dict.fromkeys(early):
        _, _, args, kwargs, _, _, meta = record["nodes"][index]
        made[index].args = unpacked(args)
        made[index].kwargs = unpacked(kwargs)
        made[index].meta = dict(unpacked(meta))
    if record["codegen"] is not None:
        graph.set_codegen(record["codegen"])
