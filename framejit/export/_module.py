"""An exported program as a module: parameters and buffers in their places, inputs
checked, writes done."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from framejit.export._checks import InputChecks, Own
from framejit.export.graph_signature import InputKind, OutputKind
from framejit.fx import Graph
from framejit.fx.graph_module import _function_of
from framejit.fx.node import Node

if TYPE_CHECKING:
    from framejit.export.exported_program import ExportedProgram

__all__ = ["ExportedModule", "unlifted"]


def put(module: nn.Module, path: str, value: Any, persistent: bool = True) -> None:
    """Puts a tensor or module where the path says, with modules in between."""
    *prefix, name = path.split(".")
    for part in prefix:
        inner = module._modules.get(part)
        if inner is None:
            inner = nn.Module()
            module.add_module(part, inner)
        module = inner
    if isinstance(value, nn.Parameter):
        module.register_parameter(name, value)
    elif isinstance(value, torch.Tensor):
        module.register_buffer(name, value, persistent=persistent)
    else:
        module.add_module(name, value)


class ExportedModule(nn.Module):
    """What `ExportedProgram.module` gives. ``graph`` is what it runs: its placeholders
    are the leaves of the inputs."""

    def __init__(
        self,
        graph: Graph,
        specs: tuple[pytree.TreeSpec, pytree.TreeSpec],
        checks: InputChecks | None,
    ) -> None:
        super().__init__()
        self.graph = graph
        self._specs = specs
        self._checks = checks
        self._states: list[tuple[str, bool]] = []
        self.recompile()

    def _own(self) -> list[Own]:
        """The tensors that the graph reads or writes, where it writes to any input or
        tensor at all."""
        checks = self._checks
        writes = any(is_written for _, is_written in self._states)
        if checks is None or not (writes or checks.written):
            return []
        return [
            Own(path, operator.attrgetter(path)(self), is_written)
            for path, is_written in self._states
        ]

    @property
    def code(self) -> str:
        """The graph as Python."""
        return self._code

    def recompile(self) -> None:
        """After the graph was edited."""
        made = self.graph.python_code("self")
        self._code = made.src
        self._run = _function_of(made.src, made.globals, {})[0]

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        if self._checks is not None:
            leaves = self._checks.flatten(args, kwargs)
            self._checks.check_own(pytree.tree_leaves((args, kwargs)), self._own())
        else:
            leaves = pytree.tree_leaves((args, kwargs))
        return pytree.tree_unflatten(self._run(self, *leaves), self._specs[1])


def _views(node: Node, known: dict[Node, set[str]]) -> set[str]:
    """The placeholders whose memory the value of a node may lie in."""
    target: Any = node.target
    if node.op != "call_function":
        return known.get(node, set())
    found: set[str] = set()
    if isinstance(target, torch._ops.OpOverload):
        for given, argument in zip(node.args, target._schema.arguments, strict=False):
            if argument.alias_info is not None and isinstance(given, Node):
                found |= known.get(given, set())
    else:  # getitem
        for given in node.all_input_nodes:
            found |= known.get(given, set())
    return found


def _keep_old_values(graph: Graph, written: set[str], values: list[Any]) -> list[Any]:
    """Clones of what lies in memory that is about to be written."""
    known: dict[Node, set[str]] = {}
    for node in graph.nodes:
        if node.op == "placeholder":
            known[node] = {node.name}
        elif node.op == "call_function":
            known[node] = _views(node, known)
    kept = []
    for value in values:
        if isinstance(value, Node) and known.get(value, set()) & written:
            value = graph.call_function(torch.ops.aten.clone.default, (value,))
        kept.append(value)
    return kept


# (operator, its running statistics)
_NORMS = {torch.ops.aten._native_batch_norm_legit_functional.default: (3, 4)}


def _keep_statistics(graph: Graph, written: set[str]) -> None:
    """Autograd keeps the statistics that a norm was given, which are written to when
    the graph has run. (In eager the norm writes to them itself.)"""
    for node in list(graph.nodes):
        for at in _NORMS.get(node.target, ()):
            given = node.args[at]
            if not isinstance(given, Node) or given.name not in written:
                continue
            with graph.inserting_before(node):
                kept = graph.call_function(torch.ops.aten.clone.default, (given,))
            node.update_arg(at, kept)


def unlifted(program: ExportedProgram, checks: InputChecks | None) -> ExportedModule:
    """The program with parameters, buffers and constants as attributes."""
    signature = program.graph_signature
    graph = Graph()
    nodes: dict[Node, Node] = {}
    outputs = graph.graph_copy(program.graph, nodes)
    placeholders = [n for n in program.graph.nodes if n.op == "placeholder"]
    by_name: dict[str, Node] = {n.name: nodes[n] for n in placeholders}
    results = list(outputs)  # type: ignore[call-overload]
    writes: list[tuple[Node, Any, bool]] = []
    written: set[str] = set()
    targets = {
        s.target: s.arg.name
        for s in signature.input_specs
        if s.kind in (InputKind.PARAMETER, InputKind.BUFFER)
    }
    for spec, value in zip(signature.output_specs, results, strict=True):
        kind = spec.kind
        if kind is OutputKind.USER_INPUT_MUTATION:
            writes.append((by_name[spec.target or ""], value, False))
        elif kind in (OutputKind.BUFFER_MUTATION, OutputKind.PARAMETER_MUTATION):
            is_parameter = kind is OutputKind.PARAMETER_MUTATION
            writes.append((by_name[targets[spec.target]], value, is_parameter))
    written = {node.name for node, _, _ in writes}
    returned = results[len(writes) :]
    if writes:
        everything = [value for _, value, _ in writes] + returned
        kept = _keep_old_values(graph, written, everything)
        returned = kept[len(writes) :]
        for (target, _, _), value in zip(writes, kept, strict=False):
            graph.call_function(torch.ops.aten.copy_.default, (target, value))
    graph.output(tuple(returned))
    _keep_statistics(graph, written)
    user = [s.arg.name for s in signature.input_specs if s.kind is InputKind.USER_INPUT]
    module = ExportedModule.__new__(ExportedModule)
    nn.Module.__init__(module)
    states: list[tuple[str, bool]] = []
    for given in signature.input_specs:
        if given.arg.name in user or given.target is None:
            continue
        states.append((given.target, given.arg.name in written))
        node = by_name[given.arg.name]
        with graph.inserting_before(node):
            got = graph.create_node("get_attr", given.target)
        got.meta = dict(node.meta)
        node.replace_all_uses_with(got)
        graph.erase_node(node)
    apart = set(signature.non_persistent_buffers)
    for path, tensor in program.state_dict.items():
        put(module, path, tensor)
    for path, tensor in program.constants.items():
        if path in apart or path in signature.lifted_tensor_constants:
            put(module, path, tensor, persistent=False)
    for name, inner in program.graph_module.named_children():
        put(module, name, inner)
    module.graph = graph
    module._specs = program.call_spec
    module._checks = checks
    module._states = states
    module.recompile()
    return module
