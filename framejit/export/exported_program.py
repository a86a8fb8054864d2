"""`ExportedProgram`: a graph of ATen operators without side effects, what its inputs
and outputs are, and the parameters and buffers that go with it."""

from __future__ import annotations

import dataclasses
import operator
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from framejit.export._checks import InputChecks
from framejit.export._constraints import Fact, Symbol
from framejit.export._module import ExportedModule, unlifted
from framejit.export._objects import Objects
from framejit.export._values import Number, TensorValue, ValueRange
from framejit.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    OutputKind,
)
from framejit.fx import Graph, GraphModule
from framejit.fx.node import Node

__all__ = ["ExportedProgram", "ModuleCallEntry", "ModuleCallSignature"]

_NUMBERS = {
    *(operator.getitem, operator.add, operator.sub, operator.mul, operator.neg),
    *(operator.floordiv, operator.truediv, operator.mod, operator.pow),
    *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt, operator.ge),
    *(torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_float, torch.sym_int),
}


@dataclasses.dataclass
class ModuleCallSignature:
    """How a module is called: its inputs and outputs in the graph, and their
    structures."""

    inputs: list[ArgumentSpec]
    outputs: list[ArgumentSpec]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec
    forward_arg_names: list[str] | None = None


@dataclasses.dataclass
class ModuleCallEntry:
    """A module of the program by its path; "" is the program."""

    fqn: str
    signature: ModuleCallSignature | None = None


class SpecViolationError(ValueError):
    """A program that is none: `ExportedProgram.verify` says what is wrong with it."""


class ExportedProgram:
    """What `export` gives.

    root: a module with what the graph names (sub-graphs), or a dict of it.
    graph: flat: placeholders in, one tuple out.
    range_constraints: by symbol, as a `Number`.
    facts: comparisons of sizes that hold in every call.
    objects: what is asked of the inputs as objects of Python.
    dialect: "ATEN", or "TRAINING", in which operators may write to their arguments
        (``torch.export.export`` makes such programs).

    Raises:
        SpecViolationError: graph and signature do not fit each other.
    """

    def __init__(
        self,
        root: nn.Module | dict[str, Any],
        graph: Graph,
        graph_signature: ExportGraphSignature,
        state_dict: dict[str, torch.Tensor],
        range_constraints: dict[Number, ValueRange],
        module_call_graph: list[ModuleCallEntry],
        example_inputs: tuple[tuple[Any, ...], dict[str, Any]] | None = None,
        constants: dict[str, torch.Tensor] | None = None,
        *,
        facts: list[Fact] | None = None,
        dialect: str = "ATEN",
        objects: Objects | None = None,
    ) -> None:
        self._graph_module = GraphModule(root, graph, "GraphModule")
        self._graph_signature = graph_signature
        self._state_dict = state_dict
        self._range_constraints = range_constraints
        self._module_call_graph = module_call_graph
        self._example_inputs = example_inputs
        self._constants = constants or {}
        self.facts = facts or []
        self.dialect = dialect
        self.objects = objects or Objects()
        self._called: ExportedModule | None = None
        self.verify()

    # ---- what it is made of

    @property
    def graph_module(self) -> GraphModule:
        return self._graph_module

    @property
    def graph(self) -> Graph:
        return self._graph_module.graph

    @property
    def graph_signature(self) -> ExportGraphSignature:
        return self._graph_signature

    @property
    def state_dict(self) -> dict[str, torch.Tensor]:
        """Parameters and persistent buffers, by path: those of the module itself."""
        return self._state_dict

    @property
    def constants(self) -> dict[str, torch.Tensor]:
        """Tensors that are part of the program, and buffers that are not persistent."""
        return self._constants

    tensor_constants = constants

    @property
    def range_constraints(self) -> dict[Number, ValueRange]:
        return self._range_constraints

    @property
    def module_call_graph(self) -> list[ModuleCallEntry]:
        return self._module_call_graph

    @property
    def example_inputs(self) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        return self._example_inputs

    @property
    def call_spec(self) -> tuple[pytree.TreeSpec, pytree.TreeSpec]:
        """The structures of ``(args, kwargs)`` and of the result."""
        signature = self._module_call_graph[0].signature
        assert signature is not None
        return signature.in_spec, signature.out_spec

    def parameters(self) -> Iterator[nn.Parameter]:
        for _, parameter in self.named_parameters():
            yield parameter

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        for name in self._graph_signature.parameters:
            parameter = self._state_dict[name]
            assert isinstance(parameter, nn.Parameter)
            yield name, parameter

    def buffers(self) -> Iterator[torch.Tensor]:
        for _, buffer in self.named_buffers():
            yield buffer

    def named_buffers(self) -> Iterator[tuple[str, torch.Tensor]]:
        apart = set(self._graph_signature.non_persistent_buffers)
        for name in self._graph_signature.buffers:
            yield name, (self._constants if name in apart else self._state_dict)[name]

    # ---- running it

    def input_checks(self) -> InputChecks:
        """What is asked of the inputs of every call."""
        placeholders = {n.name: n for n in self.graph.nodes if n.op == "placeholder"}
        names, values = [], []
        for spec in self._graph_signature.input_specs:
            if spec.kind is not InputKind.USER_INPUT:
                continue
            names.append(spec.arg.name)
            if isinstance(spec.arg, ConstantArgument):
                values.append(spec.arg.value)
            else:
                values.append(placeholders[spec.arg.name].meta["val"])
        symbols = _symbols_of(names, values)
        ranges = {s.text: span for s, span in self._range_constraints.items()}
        for symbol in symbols:
            ranges.setdefault(symbol.name, ValueRange(0, None))
        mutated = set(self._graph_signature.user_inputs_to_mutate.values())
        return InputChecks(
            self.call_spec[0],
            names,
            values,
            symbols,
            [
                f
                for f in self.facts
                if Number(f.text).symbols <= {s.name for s in symbols}
            ],
            ranges,
            [i for i, name in enumerate(names) if name in mutated],
            self.objects,
        )

    def module(self, check_guards: bool = True) -> ExportedModule:
        """A module that runs the program, on its parameters and buffers; what the
        program writes to them is written.

        check_guards: are the inputs of calls checked?
        """
        return unlifted(self, self.input_checks() if check_guards else None)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run it. Raises InputError: the inputs are not those it was exported for."""
        if self._called is None:
            self._called = self.module()
        return self._called(*args, **kwargs)

    @property
    def is_functional(self) -> bool:
        """Does no operator write to its arguments? So it is for programs of `export`;
        those of ``torch.export.export`` may, until they are decomposed."""
        return not any(
            isinstance(node.target, torch._ops.OpOverload)
            and node.target._schema.is_mutable
            for node in self.graph.nodes
        )

    # ---- other forms

    def run_decompositions(
        self, decomp_table: Mapping[Any, Any] | None = None
    ) -> ExportedProgram:
        """The program with operators replaced by what they are made of.

        decomp_table: by operator (`torch._ops.OpOverload`), a function of its
            arguments. None: `default_decompositions`.
        """
        from framejit.export._decompositions import decomposed

        return decomposed(self, decomp_table)

    def to_torch(self) -> Any:
        """The same as a `torch.export.ExportedProgram`, on the same tensors."""
        from framejit.export._torch_bridge import to_torch

        return to_torch(self)

    # ---- is it one?

    def verify(self) -> None:
        """Raises SpecViolationError: what makes it no exported program."""
        _Verifier(self).run()

    def __str__(self) -> str:
        ranges = ", ".join(
            f"{s}: {span}" for s, span in self._range_constraints.items()
        )
        code = self._graph_module.print_readable(print_output=False)
        return (
            "ExportedProgram:\n    "
            + code.replace("\n", "\n    ").rstrip()
            + "\n\nGraph signature:\n"
            + str(self._graph_signature)
            + f"\nRange constraints: {{{ranges}}}\n"
        )


def _symbols_of(names: list[str], values: list[Any]) -> list[Symbol]:
    """Where each symbol can be read off the inputs."""
    found: dict[str, Symbol] = {}

    def note(item: Any, kind: str, leaf: int, dim: int, what: str) -> None:
        if isinstance(item, Number) and item.text.isidentifier():
            made = Symbol(item.text, kind, leaf, dim, item.hint or 0, what)
            found.setdefault(item.text, made)

    tensors = [(i, v) for i, v in enumerate(values) if isinstance(v, TensorValue)]
    for leaf, value in enumerate(values):
        note(value, "value", leaf, -1, names[leaf])
    for leaf, value in tensors:
        for dim, size in enumerate(value.shape):
            note(size, "size", leaf, dim, f"{names[leaf]}.shape[{dim}]")
    for leaf, value in tensors:
        for dim, stride in enumerate(value.strides):
            note(stride, "stride", leaf, dim, f"{names[leaf]}.stride({dim})")
        note(
            value.storage_offset, "offset", leaf, -1, f"{names[leaf]}.storage_offset()"
        )
    return list(found.values())


class _Verifier:
    def __init__(self, program: ExportedProgram) -> None:
        self.program = program
        self.signature = program.graph_signature

    def fail(self, text: str) -> None:
        raise SpecViolationError(f"not an exported program: {text}")

    def run(self) -> None:
        self.program.graph.lint()
        nodes = list(self.program.graph.nodes)
        placeholders = [node for node in nodes if node.op == "placeholder"]
        names = [node.name for node in placeholders]
        said = [spec.arg.name for spec in self.signature.input_specs]
        if names != said:
            self.fail(f"the placeholders are {names}, the signature has {said}")
        for node in nodes:
            self.node(node)
        self.inputs()
        outputs = [node for node in nodes if node.op == "output"]
        if len(outputs) != 1 or not isinstance(outputs[0].args[0], (tuple, list)):
            self.fail("the graph does not end in one output, a tuple")
        self.outputs(list(outputs[0].args[0]))

    def node(self, node: Node) -> None:
        if node.op == "get_attr":
            if not isinstance(
                self.program.graph_module.get_submodule(str(node.target)), nn.Module
            ):
                self.fail(f"{node} reads an attribute: tensors are inputs")
        elif node.op in ("call_method", "call_module"):
            self.fail(f"{node} is a {node.op}")
        elif node.op == "call_function":
            target = node.target
            if isinstance(target, torch._ops.OpOverload):
                if target._schema.is_mutable and self.program.dialect != "TRAINING":
                    self.fail(f"{node} writes to an argument: {target}")
            elif (
                not isinstance(target, torch._ops.HigherOrderOperator)
                and target not in _NUMBERS
            ):
                self.fail(f"{node} calls {target}, which is no operator")

    def inputs(self) -> None:
        program = self.program
        for spec in self.signature.input_specs:
            kept = program.state_dict
            if spec.kind is InputKind.CONSTANT_TENSOR or spec.persistent is False:
                kept = program.constants
            if spec.kind in (
                InputKind.PARAMETER,
                InputKind.BUFFER,
                InputKind.CONSTANT_TENSOR,
            ) and (spec.target is None or spec.target not in kept):
                self.fail(f"{spec.target}, of {spec.arg.name}, is not kept")

    def outputs(self, values: list[Any]) -> None:
        specs = self.signature.output_specs
        if len(values) != len(specs):
            self.fail(f"{len(values)} outputs, the signature has {len(specs)}")
        written = {
            OutputKind.BUFFER_MUTATION: set(self.signature.buffers),
            OutputKind.PARAMETER_MUTATION: set(self.signature.parameters),
            OutputKind.USER_INPUT_MUTATION: {
                str(name) for name in self.signature.user_inputs
            },
        }
        for value, spec in zip(values, specs, strict=True):
            name = value.name if isinstance(value, Node) else None
            if isinstance(spec.arg, ConstantArgument):
                if name is not None:
                    self.fail(f"the output {name} is said to be a constant")
            elif name != spec.arg.name:
                self.fail(f"an output is {value}, the signature has {spec.arg.name}")
            if spec.kind in written and spec.target not in written[spec.kind]:
                self.fail(f"{spec.target}, which is written to, is not its own")
