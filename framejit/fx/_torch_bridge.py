"""Graphs of torch.fx, and back: node by node, with names, types and meta."""

from __future__ import annotations

import copy
from typing import Any

import torch

from framejit.fx._codegen import CodeGen, PyTreeCodeGen, PyTreeInfo
from framejit.fx.graph import Graph
from framejit.fx.graph_module import GraphModule
from framejit.fx.node import map_arg

__all__ = ["from_torch", "graph_from_torch", "to_torch"]


def graph_from_torch(graph: torch.fx.Graph) -> Graph:
    """A graph of torch.fx as one of ours."""
    made = Graph()
    nodes: dict[Any, Any] = {}
    for node in graph.nodes:
        args = torch.fx.node.map_arg(node.args, lambda n: nodes[n])
        kwargs = torch.fx.node.map_arg(node.kwargs, lambda n: nodes[n])
        new = made.create_node(node.op, node.target, args, kwargs, node.name, node.type)
        new.name = node.name
        new.meta = copy.copy(node.meta)
        nodes[node] = new
    codegen: Any = graph._codegen
    if info := getattr(codegen, "pytree_info", None):
        made.set_codegen(PyTreeCodeGen(PyTreeInfo(*info)))
    made._codegen._body_transformer = codegen._body_transformer
    made._co_fields = dict(getattr(graph, "_co_fields", {}))
    return made


def from_torch(gm: torch.fx.GraphModule) -> GraphModule:
    """A ``torch.fx.GraphModule`` as one of ours, on the same parameters."""
    made = GraphModule(gm, graph_from_torch(gm.graph), type(gm).__name__)
    made.meta = dict(getattr(gm, "meta", {}))
    return made


def to_torch(gm: GraphModule) -> torch.fx.GraphModule:
    """The other way: what :meth:`GraphModule.to_torch` gives."""
    made = torch.fx.Graph()
    nodes: dict[Any, Any] = {}
    for node in gm.graph.nodes:
        args = map_arg(node.args, lambda n: nodes[n])
        kwargs = map_arg(node.kwargs, lambda n: nodes[n])
        new = made.create_node(
            node.op, node.target, args, dict(kwargs), node.name, node.type
        )
        new.name = node.name
        new.meta = copy.copy(node.meta)
        nodes[node] = new
    codegen = gm.graph._codegen
    if isinstance(codegen, PyTreeCodeGen):
        from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

        made.set_codegen(_PyTreeCodeGen(_PyTreeInfo(*codegen.pytree_info)))
    elif type(codegen) is not CodeGen:
        raise ValueError("torch.fx has no code generator like that of this graph")
    result = torch.fx.GraphModule(gm, made, type(gm).__name__)
    result.meta = dict(gm.meta)
    return result
