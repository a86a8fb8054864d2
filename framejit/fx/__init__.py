"""Graphs of PyTorch programs as Python objects: ``torch.fx``'s API on FrameJIT's IR.

>>> import torch
>>> from framejit import fx
>>> gm = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
>>> for node in gm.graph.nodes:
...     if node.target is torch.relu:
...         node.target = torch.sigmoid
>>> _ = gm.recompile()
>>> gm(torch.zeros(1))
tensor([1.5000])

What it shares with torch.fx, and where it differs, is in ``docs/fx.md``.
"""

from framejit.fx import passes
from framejit.fx._symbolic_trace import PH, Tracer, symbolic_trace, wrap
from framejit.fx._torch_bridge import from_torch
from framejit.fx.graph import CodeGen, Graph, PythonCode
from framejit.fx.graph_module import GraphModule
from framejit.fx.immutable_collections import immutable_dict, immutable_list
from framejit.fx.interpreter import Interpreter, Transformer
from framejit.fx.matcher import SubgraphMatcher
from framejit.fx.node import Node, has_side_effect, map_aggregate, map_arg
from framejit.fx.proxy import Attribute, GraphAppendingTracer, Proxy, TraceError
from framejit.fx.subgraph_rewriter import (
    Match,
    replace_pattern,
    replace_pattern_with_filters,
)

__all__ = [
    "PH",
    "Attribute",
    "CodeGen",
    "Graph",
    "GraphAppendingTracer",
    "GraphModule",
    "Interpreter",
    "Match",
    "Node",
    "Proxy",
    "PythonCode",
    "SubgraphMatcher",
    "TraceError",
    "Tracer",
    "Transformer",
    "from_torch",
    "has_side_effect",
    "immutable_dict",
    "immutable_list",
    "map_aggregate",
    "map_arg",
    "passes",
    "replace_pattern",
    "replace_pattern_with_filters",
    "symbolic_trace",
    "wrap",
]
