"""Where a graph contains another: ``SubgraphMatcher``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from framejit.fx.graph import Graph
from framejit.fx.node import Node

__all__ = ["InternalMatch", "SubgraphMatcher"]


@dataclass
class InternalMatch:
    """One place where the pattern is found."""

    #: The nodes of the pattern that the search began at.
    anchors: list[Node]
    #: Node of the pattern -> what it is in the graph.
    nodes_map: dict[Node, Any] = field(default_factory=dict)
    #: What the inputs of the pattern are, in order.
    placeholder_nodes: list[Any] = field(default_factory=list)
    #: What the outputs of the pattern are, in order.
    returning_nodes: list[Node] = field(default_factory=list)
    #: Node by name, for matchers that know names.
    name_node_map: dict[str, Node] = field(default_factory=dict)


class SubgraphMatcher:
    """Finds a pattern in graphs, by what nodes compute and of what.

    The search begins at the anchors, outputs of the pattern that it does not
    use itself, and goes from users to inputs. Inputs of the pattern stand for
    anything. Values inside of a match have no users outside of it, but for
    those the pattern returns, and no computation leads out of it and in again.

    match_output, match_placeholder: the output, the inputs are matched, too.
    remove_overlapping_matches: of two that share a node the first stays.
    ignore_literals: constants in arguments may differ.
    """

    def __init__(
        self,
        pattern: Graph,
        match_output: bool = False,
        match_placeholder: bool = False,
        remove_overlapping_matches: bool = True,
        ignore_literals: bool = False,
    ) -> None:
        self.pattern = pattern
        self.match_output = match_output
        self.match_placeholder = match_placeholder
        self.remove_overlapping_matches = remove_overlapping_matches
        self.ignore_literals = ignore_literals
        nodes = list(pattern.nodes)
        if not nodes:
            raise ValueError(
                "SubgraphMatcher cannot be initialized with an empty pattern"
            )
        for node in nodes:
            if node.op != "output" and not node.users and not node.is_impure():
                raise AssertionError(
                    "SubgraphMatcher cannot be initialized with an pattern with dead "
                    f"code: {node} has no users"
                )
        output = nodes[-1]
        self.pattern_placeholder_nodes = [n for n in nodes if n.op == "placeholder"]
        self.pattern_returning_nodes: list[Node] = output.all_input_nodes
        self._computed = [n for n in nodes if n.op != "placeholder"]
        returned = set(self.pattern_returning_nodes)
        self._inner = [n for n in self._computed if n not in returned]
        self.pattern_anchors = (
            [output]
            if match_output
            else [n for n in self.pattern_returning_nodes if len(n.users) == 1]
        )

    # -- two nodes

    def _nodes_are_equal(self, pn: Node, gn: Node, node_name_match: str = "") -> bool:
        """Do they do the same, whatever their arguments are?"""
        if pn.op == "placeholder" and not self.match_placeholder:
            return True
        if node_name_match and node_name_match in gn.name:
            return True
        if pn.op != gn.op:
            return False
        if pn.op in ("placeholder", "output"):
            return True
        if pn.op == "get_attr":
            return self._match_attributes(pn, gn)
        return pn.target == gn.target

    def _match_attributes(self, pn: Node, gn: Node) -> bool:
        """Any tensor is like another of its type."""
        values = []
        for node in (pn, gn):
            owner: Any = node.graph.owning_module
            if owner is None:
                raise AssertionError(
                    f"get_attr node {node} is in a graph that no module owns"
                )
            for part in str(node.target).split("."):
                owner = getattr(owner, part)
            values.append(owner)
        if type(values[0]) is not type(values[1]):
            return False
        if not isinstance(values[0], torch.Tensor):
            raise RuntimeError(f"Unsupported type {values[0]} when matching attributes")
        return True

    def _match_literals(self, pn: Any, gn: Any, nodes_map: dict[Node, Any]) -> bool:
        """At most one of the two is a node."""
        if isinstance(pn, Node):
            if pn.op != "placeholder":
                return False
            if pn in nodes_map:
                return bool(nodes_map[pn] == gn)
            nodes_map[pn] = gn
            return True
        return not isinstance(gn, Node) and type(gn) is type(pn) and bool(gn == pn)

    def _arguments(self, pn: Node, gn: Node) -> tuple[list[Any], list[Any]] | None:
        """Their arguments side by side, or None: they are called differently."""
        same = len(pn.args) == len(gn.args) and list(pn.kwargs) == list(gn.kwargs)
        if same:
            return (
                [*pn.args, *pn.kwargs.values()],
                [*gn.args, *gn.kwargs.values()],
            )
        if pn.op == "call_function" and isinstance(pn.target, torch._ops.OpOverload):
            return _by_schema(pn), _by_schema(gn)
        return None

    def _pairs(
        self, ours: Any, theirs: Any, nodes_map: dict[Node, Any]
    ) -> list[tuple[Node, Node]] | None:
        """The pairs of nodes in arguments, or None where constants differ."""
        pairs: list[tuple[Node, Node]] = []
        todo: list[tuple[Any, Any]] = [(ours, theirs)]
        while todo:
            a, b = todo.pop()
            if isinstance(a, Node) and isinstance(b, Node):
                pairs.append((a, b))
            elif isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
                if len(a) != len(b):
                    return None
                todo.extend(reversed(list(zip(a, b, strict=True))))
            elif not self._match_literals(a, b, nodes_map) and not self.ignore_literals:
                return None
        return pairs

    def _match_nodes(
        self, pn: Node, gn: Node, nodes_map: dict[Node, Any], name: str = ""
    ) -> bool:
        """Match two nodes and all they are computed of; fills `nodes_map`."""
        taken = {node for node in nodes_map.values() if isinstance(node, Node)}
        todo = [(pn, gn)]
        while todo:
            a, b = todo.pop()
            if a in nodes_map:
                if nodes_map[a] is not b:
                    return False
                continue
            if b in taken or not self._nodes_are_equal(a, b, name):
                return False
            name = ""
            nodes_map[a] = b
            taken.add(b)
            if a.op == "placeholder":
                continue
            arguments = self._arguments(a, b)
            pairs = self._pairs(*arguments, nodes_map) if arguments else None
            if pairs is None:
                return False
            todo.extend(reversed(pairs))
        return True

    # -- a graph

    def match(self, graph: Graph, node_name_match: str = "") -> list[InternalMatch]:
        """The places where the pattern is, in the order of the graph.

        node_name_match: nodes with this in their names match an anchor.
        """
        candidates = [
            (anchor, self._candidates(anchor, graph, node_name_match))
            for anchor in self.pattern_anchors
        ]
        candidates = [(anchor, nodes) for anchor, nodes in candidates if nodes]
        # What leads out of a match of one output begins at its last node.
        one_output = self.pattern_returning_nodes == self.pattern_anchors
        one_output = one_output and len(self.pattern_anchors) == 1
        found = [
            match
            for match in self._search(candidates, node_name_match)
            if self._is_contained(match.nodes_map)
            and (one_output or not _comes_back(match))
        ]
        return _without_overlaps(found) if self.remove_overlapping_matches else found

    def _candidates(self, anchor: Node, graph: Graph, name: str) -> list[Node]:
        nodes: Any = graph.nodes
        if not name and anchor.op in ("call_function", "call_method", "call_module"):
            nodes = graph.find_nodes(op=anchor.op, target=anchor.target)
        return [node for node in nodes if self._nodes_are_equal(anchor, node, name)]

    def _search(
        self, candidates: list[tuple[Node, list[Node]]], name: str
    ) -> Iterator[InternalMatch]:
        """All ways to find every anchor: those of the first one in turn, and so
        on. (A depth-first search with a stack of iterators.)"""
        if not candidates:
            return
        stack = [(iter(candidates[0][1]), dict[Node, Any]())]
        while stack:
            nodes, base = stack[-1]
            anchor = candidates[len(stack) - 1][0]
            node = next(nodes, None)
            if node is None:
                stack.pop()
                continue
            nodes_map = dict(base)
            if not self._match_nodes(anchor, node, nodes_map, name):
                continue
            if len(stack) < len(candidates):
                stack.append((iter(candidates[len(stack)][1]), nodes_map))
                continue
            yield InternalMatch(
                anchors=self.pattern_anchors,
                nodes_map=nodes_map,
                placeholder_nodes=[
                    nodes_map[node] for node in self.pattern_placeholder_nodes
                ],
                returning_nodes=[
                    nodes_map[node] for node in self.pattern_returning_nodes
                ],
            )

    def _is_contained(self, nodes_map: dict[Node, Any]) -> bool:
        """Is what is not returned used by the match alone?"""
        inside = {nodes_map[pn] for pn in self._computed if pn in nodes_map}
        return all(
            user in inside
            for pn in self._inner
            if pn in nodes_map
            for user in nodes_map[pn].users
        )


def _by_schema(node: Node) -> list[Any]:
    """The arguments of an operator's call in the order of its schema."""
    out = []
    for at, argument in enumerate(node.target._schema.arguments):  # type: ignore[union-attr]
        if argument.name in node.kwargs:
            out.append(node.kwargs[argument.name])
        elif not argument.kwarg_only and at < len(node.args):
            out.append(node.args[at])
        else:
            out.append(argument.default_value)
    return out


def _computed(match: InternalMatch) -> list[Node]:
    return [
        gn
        for pn, gn in match.nodes_map.items()
        if pn.op not in ("placeholder", "output")
    ]


def _comes_back(match: InternalMatch) -> bool:
    """Does what is computed outside of the match, of its values, go into it?

    Whatever does stands before the last node of the match.
    """
    inside = set(_computed(match))
    if not inside:
        return False
    last = max(inside)
    seen: set[Node] = set()
    todo = [
        user
        for node in inside
        if node is not last
        for user in node.users
        if user not in inside and user < last
    ]
    while todo:
        node = todo.pop()
        if node in inside:
            return True
        if node in seen:
            continue
        seen.add(node)
        todo.extend(user for user in node.users if user <= last)
    return False


def _without_overlaps(matches: list[InternalMatch]) -> list[InternalMatch]:
    kept = []
    taken: set[Node] = set()
    for match in matches:
        nodes = _computed(match)
        if taken.isdisjoint(nodes):
            kept.append(match)
            taken.update(nodes)
    return kept
