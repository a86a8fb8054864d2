"""``replace_pattern``: every place where a graph does one thing does another."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn

from framejit.fx._symbolic_trace import symbolic_trace
from framejit.fx.graph import Graph
from framejit.fx.graph_module import GraphModule
from framejit.fx.matcher import InternalMatch, SubgraphMatcher
from framejit.fx.node import Node

__all__ = [
    "Match",
    "ReplacedPatterns",
    "replace_pattern",
    "replace_pattern_with_filters",
]

Pattern = Callable[..., Any] | Graph | GraphModule
Filter = Callable[[InternalMatch, Graph, Graph], bool]


class Match(NamedTuple):
    """A place that was replaced."""

    #: The node of the pattern that the search began at.
    anchor: Node
    #: Node of the pattern -> node of the graph (those computed are erased).
    nodes_map: dict[Node, Node]


@dataclass
class ReplacedPatterns:
    """A place that was replaced, and with what."""

    anchor: Node
    nodes_map: dict[Node, Node]
    #: The nodes that were inserted.
    replacements: list[Node]


def replace_pattern(
    gm: GraphModule, pattern: Pattern, replacement: Pattern
) -> list[Match]:
    """Replace each place where `gm` computes `pattern` with `replacement`.

    Both are functions, modules or graphs with the same inputs and outputs. A
    function is traced, so constants in it are matched; modules that it calls are
    matched by their paths. Places do not overlap: the first one counts. Values
    inside of a place that something outside uses, and that the pattern does not
    return, keep it from being one.
    """
    done = replace_pattern_with_filters(gm, pattern, replacement)
    return [Match(anchor=place.anchor, nodes_map=place.nodes_map) for place in done]


def replace_pattern_with_filters(
    gm: GraphModule,
    pattern: Pattern,
    replacement: Pattern | None = None,
    match_filters: list[Filter] | None = None,
    ignore_literals: bool = False,
    replacement_callback: Callable[[InternalMatch, Graph, Graph], Graph] | None = None,
    node_name_match: str = "",
) -> list[ReplacedPatterns]:
    """As :func:`replace_pattern`, and says what was inserted.

    match_filters: each is asked whether a place (match, the graph, the pattern's
    graph) counts. ignore_literals: constants may differ.
    replacement_callback: gives the replacement of a place, in place of one for
    all. node_name_match: see :meth:`SubgraphMatcher.match`.
    """
    graph, pattern_graph = gm.graph, _graph_of(pattern)
    matcher = SubgraphMatcher(pattern_graph, ignore_literals=ignore_literals)
    matches = [
        match
        for match in matcher.match(graph, node_name_match)
        if all(keep(match, graph, pattern_graph) for keep in match_filters or ())
    ]
    common = None if replacement is None else _graph_of(replacement)
    if common is None and replacement_callback is None:
        raise AssertionError(
            "Must provide either a replacement GraphModule or a replacement callback"
        )
    rewriter = _Rewriter(graph, pattern_graph)
    done = []
    for match in matches:
        made = (
            replacement_callback(match, graph, pattern_graph)
            if replacement_callback is not None
            else common
        )
        assert made is not None
        done.append(rewriter.replace(match, made))
    gm.recompile()
    if isinstance(replacement, nn.Module):
        _take_attributes(gm, replacement)
    return done


def _graph_of(program: Any) -> Graph:
    if isinstance(program, GraphModule):
        return program.graph
    if isinstance(program, Graph):
        return program
    return symbolic_trace(program).graph


class _Rewriter:
    """Replaces matches of one pattern in one graph."""

    def __init__(self, graph: Graph, pattern: Graph) -> None:
        self.graph = graph
        self.computed = [
            node
            for node in reversed(pattern.nodes)
            if node.op not in ("placeholder", "output")
        ]
        # What earlier replacements have put in place of nodes: later matches
        # may have those for inputs.
        self.replaced: dict[Node, Any] = {}

    def replace(self, match: InternalMatch, replacement: Graph) -> ReplacedPatterns:
        inputs = replacement.find_nodes(op="placeholder")
        if len(match.placeholder_nodes) != len(inputs):
            raise AssertionError(
                f"Placeholder count mismatch: {len(match.placeholder_nodes)} vs "
                f"{len(inputs)}"
            )
        self._update(match)
        val_map: dict[Node, Any] = dict(
            zip(inputs, match.placeholder_nodes, strict=True)
        )
        with self.graph.inserting_before(self._place(match)):
            made = self.graph.graph_copy(replacement, val_map)
        outputs = (made,) if isinstance(made, Node) else made
        if len(match.returning_nodes) != len(outputs):
            raise AssertionError(
                f"Returning nodes count mismatch: {len(match.returning_nodes)} vs "
                f"{len(outputs)}"
            )
        for old, new in zip(match.returning_nodes, outputs, strict=True):
            old.replace_all_uses_with(new)
            self.replaced[old] = new
        for node in self.computed:
            self.graph.erase_node(match.nodes_map[node])
        given = {node for node in match.placeholder_nodes if isinstance(node, Node)}
        return ReplacedPatterns(
            anchor=match.anchors[0],
            nodes_map=match.nodes_map,
            replacements=[
                node
                for node in val_map.values()
                if not isinstance(node, Node) or node not in given
            ],
        )

    def _update(self, match: InternalMatch) -> None:
        def now(value: Any) -> Any:
            while isinstance(value, Node) and value in self.replaced:
                value = self.replaced[value]
            return value

        if not self.replaced:
            return
        match.placeholder_nodes = [now(value) for value in match.placeholder_nodes]
        for pn, gn in match.nodes_map.items():
            if pn.op == "placeholder":
                match.nodes_map[pn] = now(gn)

    def _place(self, match: InternalMatch) -> Node:
        """Before the first user; where there is none, behind the match."""
        users: set[Node] = {u for node in match.returning_nodes for u in node.users}
        if users:
            return min(users) if len(users) > 1 else users.pop()
        behind: Node = max(match.returning_nodes).next
        return behind


def _take_attributes(gm: GraphModule, replacement: nn.Module) -> None:
    """Let `gm` have what nodes of the replacement read and call."""

    def found(module: nn.Module, path: str) -> Any:
        prefix, _, name = path.rpartition(".")
        try:
            return getattr(module.get_submodule(prefix), name, None)
        except AttributeError:
            return None

    gm.delete_all_unused_submodules()
    if isinstance(replacement, GraphModule):
        replacement.graph.lint()
    for node in gm.graph.nodes:
        if node.op not in ("call_module", "get_attr"):
            continue
        if found(gm, node.target) is not None:
            continue
        theirs = found(replacement, node.target)
        if theirs is None:
            raise RuntimeError(
                f'a "{node.op}" node of the replacement has the target '
                f"{node.target}, which the replacement has no attribute for"
            )
        mine = copy.deepcopy(theirs)
        if isinstance(mine, nn.Module):
            gm.add_submodule(node.target, mine)
        elif isinstance(mine, torch.Tensor) and "." in node.target:
            prefix, _, name = node.target.rpartition(".")
            gm.add_submodule(prefix, nn.Module())
            setattr(gm.get_submodule(prefix), name, mine)
        else:
            setattr(gm, node.target, mine)
    gm.graph.lint()
