"""The same program on torch.fx and on framejit.fx, and what must be equal."""

from __future__ import annotations

import copy
import re
from types import ModuleType

import torch.fx
import torch.fx.passes.shape_prop
import torch.fx.passes.split_module

from framejit import fx as ours

theirs = torch.fx
SIDES: tuple[ModuleType, ...] = (theirs, ours)


class _CountsByBase(dict):
    """How far each base name was counted: torch 2.11 asks by the whole name, and so
    counts from 1 again where later versions, and FrameJIT, go on."""

    def get(self, name, default=None):
        base = re.sub(r"_\d+$", "", name)
        return super().get(base, default)


if torch.__version__.startswith("2.11."):
    _made = torch.fx.graph._Namespace.__init__

    def _init(self):
        _made(self)
        self._base_count = _CountsByBase()

    torch.fx.graph._Namespace.__init__ = _init


def plain(said: str) -> str:
    """Without what names the library or an address."""
    out = re.sub(r"0x[0-9a-f]+", "0x", said).replace("framejit.fx", "torch.fx")
    out = out.replace("framejit_fx__symbolic_trace_", "torch.fx._symbolic_trace.")
    return out.replace("torch.fx._symbolic_trace.wrap(", "wrap(")


def text(value) -> str:
    return plain(repr(value))


def rows(graph) -> list:
    """What a graph is, as plain data."""
    return [
        (
            node.op,
            node.name,
            plain(str(node.target)),
            text(node.args),
            text(node.kwargs),
            [user.name for user in node.users],
            [used.name for used in node.all_input_nodes],
            str(node.type),
            plain(node.format_node()),
        )
        for node in graph.nodes
    ]


def code_of(graph) -> str:
    return plain(graph.python_code("self").src)


def assert_same(torch_graph, our_graph, *, code: bool = True) -> None:
    assert rows(torch_graph) == rows(our_graph)
    assert plain(str(torch_graph)) == plain(str(our_graph))
    assert len(torch_graph.nodes) == len(our_graph.nodes)
    names = [node.name for node in our_graph.nodes]
    assert [n.name for n in reversed(our_graph.nodes)] == names[::-1]
    assert our_graph._check_uses() == ""
    if code:
        theirs_code, ours_code = code_of(torch_graph), code_of(our_graph)
        assert theirs_code == ours_code


def run_both(program, *args, code: bool = True):
    """Runs ``program(fx, *args)``, which returns a graph or a module, on both."""
    results = [program(side, *args) for side in SIDES]
    graphs = [getattr(result, "graph", result) for result in results]
    assert_same(*graphs, code=code)
    return results


def outcome(call):
    """What a call returns, or the type of what it raises."""
    try:
        return text(call())
    except Exception as error:
        return type(error).__name__


def values_equal(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.equal(left, right)
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(values_equal, left, right))
    if isinstance(left, dict):
        return list(left) == list(right) and values_equal(
            list(left.values()), list(right.values())
        )
    return left == right


def run_modules(modules, *inputs) -> None:
    """Both modules give the same."""
    results = [module(*copy.deepcopy(inputs)) for module in modules]
    assert values_equal(*results), results
