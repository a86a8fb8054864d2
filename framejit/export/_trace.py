"""What a capture of a call of a module has, as an exported program: placeholders,
outputs, signature, nodes with their meta."""

from __future__ import annotations

import inspect
import itertools
import linecache
import os
import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from framejit import _C
from framejit.errors import ConstraintViolationError, GraphBreakError
from framejit.export._checks import share_memory
from framejit.export._constraints import Fact, Symbol, find_constraints
from framejit.export._dims import Dim, DimHint
from framejit.export._effects import GraphValue, run_steps
from framejit.export._gradients import check_gradients
from framejit.export._inputs import Inputs
from framejit.export._objects import find_objects
from framejit.export._unseen_writes import check_unseen_writes
from framejit.export._values import Number, TensorValue, value_of
from framejit.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
)
from framejit.export.graph_signature import (
    ArgumentSpec,
    ConstantArgument,
    ExportGraphSignature,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymIntArgument,
    TensorArgument,
)
from framejit.fx import Graph
from framejit.fx.node import Node

__all__ = ["Said", "Tracer", "call"]


def call(mod: Any, args: Any, kwargs: Any) -> Any:
    return mod(*args, **kwargs)


_TORCH = os.path.dirname(torch.__file__) + os.sep


# (leaf, dim): what it is said to be.
Said = dict[tuple[int, int], Dim | DimHint]


class Tracer:
    """One capture of a call, as a program."""

    def __init__(
        self, mod: nn.Module, inputs: Inputs, said: Said, capture: _C.ExportCapture
    ) -> None:
        self.mod = mod
        self.inputs = inputs
        self.capture = capture
        self.leaf_of_path = {path: i for i, path in enumerate(inputs.paths)}
        self.symbols = self.find_symbols()
        self.hints = {symbol.name: symbol.hint for symbol in self.symbols}
        self.facts = [
            Fact(text, None if place and place[0] == __file__ else place, cause)
            for _, _, _, place, cause, text, _ in capture.facts()
            if text is not None
        ]
        self.check_facts()
        tensors = [*mod.parameters(), *mod.buffers(), *inputs.leaves]
        self.may_have_gradients = any(
            isinstance(t, torch.Tensor) and t.requires_grad for t in tensors
        )
        if self.may_have_gradients:
            check_gradients(capture.facts())
        self.objects = find_objects(
            inspect.signature(mod.forward),
            inputs.leaves,
            inputs.kwargs,
            self.leaf_of_path,
            capture.facts(),
        )
        self.findings = find_constraints(self.symbols, self.facts, said)

    def check_facts(self) -> None:
        """Raises GraphBreakError: the program depends on something of the inputs that
        is none of their parts, and so would not be checked."""
        known = self.inputs.places
        for _, slot, text, place, _, _, path in self.capture.facts():
            if slot not in (1, 2) or path in known or path.startswith("type("):
                continue
            at = "\n  at {}:{} in {}".format(*place) if place else ""
            raise GraphBreakError(
                f"the program depends on what calls of it cannot be asked for: {text}"
                f"{at}\n  hint: pass {path} as an input of its own"
            )

    def find_symbols(self) -> list[Symbol]:
        symbols = []
        for i, (kind, slot, path, dim, hint) in enumerate(self.capture.symbols()):
            if slot not in (1, 2) or kind == "other" or path not in self.leaf_of_path:
                raise ConstraintViolationError(
                    f"the number {path or kind} is of no input, and changes"
                )
            leaf = self.leaf_of_path[path]
            name = self.inputs.names[leaf]
            what = {
                "size": f"{name}.shape[{dim}]",
                "stride": f"{name}.stride({dim})",
                "offset": f"{name}.storage_offset()",
            }.get(kind, name)
            symbols.append(Symbol(f"s{i}", kind, leaf, dim, hint, what))
        return symbols

    # ---- the program

    def number(self, described: Any) -> Any:
        return value_of(described, self.hints)

    def program(self, strict: bool) -> ExportedProgram:
        left_out: list[str] | None = None if strict else []
        self.outcome = run_steps(self.capture, self.mod, call, self.number, left_out)
        for line in dict.fromkeys(left_out or ()):
            warnings.warn(
                f"framejit.export: {line}; the exported program does not",
                stacklevel=3,
            )
        self.specs: list[InputSpec] = []
        self.rows: list[tuple[str, int, int]] = []
        self.values: list[Any] = []
        self.of_input: dict[int, int] = {}  # placeholder, by graph input
        self.used_names: set[str] = set(self.inputs.names)
        self.constants: dict[str, torch.Tensor] = {}
        self.add_placeholders()
        graph = Graph()
        self.add_outputs()
        nodes = self.capture.write(
            graph, self.rows, self.symbol_places(), [row for row, _ in self.results]
        )
        self.describe(graph, nodes)
        return self.finish(graph)

    def placeholder(self, name: str, given: int, constant: int, value: Any) -> int:
        self.rows.append((name, given, constant))
        self.values.append(value)
        return len(self.rows) - 1

    def own_name(self, prefix: str, path: str) -> str:
        base = prefix + re.sub(r"[^a-zA-Z0-9]", "_", path).lower()
        name, count = base, 0
        while name in self.used_names:
            count += 1
            name = f"{base}_{count}"
        self.used_names.add(name)
        return name

    def add_placeholders(self) -> None:
        rows = self.capture.inputs()
        by_object = {
            id(thing): i for i, (slot, _, thing, _) in enumerate(rows) if slot < 1
        }
        used: set[int] = set()
        parameters = dict(self.mod.named_parameters())
        for path, tensor in parameters.items():
            self.add_state(InputKind.PARAMETER, path, tensor, by_object, used)
        self.persistent = set(self.mod.state_dict(keep_vars=True))
        for path, buffer in self.mod.named_buffers():
            self.add_state(InputKind.BUFFER, path, buffer, by_object, used)
        number = 0
        for i, (slot, text, thing, described) in enumerate(rows):
            if slot in (1, 2) or i in used or not isinstance(thing, torch.Tensor):
                continue
            path = text.removeprefix("mod.") if text.startswith("mod.") else ""
            if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_0-9]\w*)*", path):
                path = f"lifted_tensor_{number}"
                number += 1
            self.add_constant(path, thing, i, -1, self.number(described))
        for k, thing in enumerate(self.capture.constants()):
            path = f"lifted_tensor_{number}"
            number += 1
            self.add_constant(path, thing, -1, k, TensorValue.of(thing))
        self.add_user_inputs(rows)

    def add_state(
        self,
        kind: InputKind,
        path: str,
        tensor: torch.Tensor,
        by_object: Mapping[int, int],
        used: set[int],
    ) -> None:
        given = by_object.get(id(tensor), -1)
        used.add(given)
        prefix = "p_" if kind is InputKind.PARAMETER else "b_"
        name = self.own_name(prefix, path)
        at = self.placeholder(name, given, -1, TensorValue.of(tensor))
        persistent = None
        if kind is InputKind.BUFFER:
            persistent = path in self.persistent
            if not persistent:
                self.constants[path] = tensor
        self.specs.append(InputSpec(kind, TensorArgument(name), path, persistent))
        if given >= 0:
            self.of_input[given] = at

    def add_constant(
        self, path: str, tensor: torch.Tensor, given: int, constant: int, value: Any
    ) -> None:
        name = self.own_name("c_", path)
        at = self.placeholder(name, given, constant, value)
        self.specs.append(
            InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(name), path)
        )
        self.constants[path] = tensor
        if given >= 0:
            self.of_input[given] = at

    def add_user_inputs(self, rows: list[Any]) -> None:
        by_leaf: dict[int, int] = {}
        for i, (slot, text, _, _) in enumerate(rows):
            if slot in (1, 2):
                if text not in self.leaf_of_path:
                    raise GraphBreakError(
                        f"the program reads the tensor {text}, which is in no input"
                    )
                by_leaf[self.leaf_of_path[text]] = i
        ints = {s.leaf: s for s in self.symbols if s.kind == "value"}
        shapes = self.symbolic_shapes(rows)
        self.first_leaf = len(self.rows)
        for leaf, (name, thing) in enumerate(
            zip(self.inputs.names, self.inputs.leaves, strict=True)
        ):
            given = by_leaf.get(leaf, -1)
            argument: ArgumentSpec
            value: Any
            if isinstance(thing, torch.Tensor):
                argument = TensorArgument(name)
                value = shapes.get(leaf, TensorValue.of(thing))
            elif leaf in ints:
                argument = SymIntArgument(name)
                value = Number(ints[leaf].name, ints[leaf].hint)
            else:
                argument = ConstantArgument(name, thing)
                value = thing
            at = self.placeholder(name, given, -1, value)
            self.specs.append(InputSpec(InputKind.USER_INPUT, argument, None))
            if given >= 0:
                self.of_input[given] = at

    def symbolic_shapes(self, rows: list[Any]) -> dict[int, TensorValue]:
        """By leaf: the tensors that the graph reads, and those whose sizes it reads."""
        shapes: dict[int, TensorValue] = {}
        for symbol in self.symbols:
            thing = self.inputs.leaves[symbol.leaf]
            if symbol.kind not in ("size", "stride"):
                continue
            known = shapes.get(symbol.leaf, TensorValue.of(thing))
            is_size = symbol.kind == "size"
            items = list(known.shape if is_size else known.strides)
            items[symbol.dim] = Number(symbol.name, symbol.hint)
            shapes[symbol.leaf] = (
                known._replace(shape=tuple(items))
                if is_size
                else known._replace(strides=tuple(items))
            )
        for slot, text, _, described in rows:
            if slot in (1, 2):
                shapes[self.leaf_of_path[text]] = self.number(described)
        return shapes

    def symbol_places(self) -> list[tuple[str, int, int]]:
        return [(s.kind, self.first_leaf + s.leaf, s.dim) for s in self.symbols]

    # ---- outputs

    def add_outputs(self) -> None:
        """(what `write` takes, (kind, target)) for each output of the graph."""
        self.results: list[tuple[tuple[str, Any], tuple[OutputKind, str | None]]] = []
        written = {}
        for k, given in enumerate(self.capture.mutations()):
            spec = self.specs[self.of_input[given]]
            written[spec.arg.name] = ("mutation", k)
        for path, value in self.outcome.buffers.items():
            (spec,) = [
                s for s in self.specs if s.kind is InputKind.BUFFER and s.target == path
            ]
            written[spec.arg.name] = self.returned(value, path)
            self.check_replaced(spec, path, value)
            self.check_own_memory(path)
        kinds = {
            InputKind.PARAMETER: OutputKind.PARAMETER_MUTATION,
            InputKind.BUFFER: OutputKind.BUFFER_MUTATION,
            InputKind.USER_INPUT: OutputKind.USER_INPUT_MUTATION,
        }
        for spec in self.specs:
            if spec.arg.name not in written:
                continue
            kind = kinds.get(spec.kind)
            if kind is None:
                raise GraphBreakError(
                    f"the program writes to the tensor {spec.target}, which is neither "
                    "an input nor a buffer\n  hint: register a buffer for it in "
                    "__init__ (register_buffer)"
                )
            target = spec.target or spec.arg.name
            self.results.append((written[spec.arg.name], (kind, target)))
        leaves, self.out_spec = pytree.tree_flatten(self.outcome.result)
        for leaf in leaves:
            self.results.append(
                (self.returned(leaf, "the result"), (OutputKind.USER_OUTPUT, None))
            )

    def check_replaced(self, spec: InputSpec, path: str, value: Any) -> None:
        """A buffer keeps its shape and type: a program writes into it."""
        at = [s.arg.name for s in self.specs].index(spec.arg.name)
        old = self.values[at]
        if isinstance(value, GraphValue):
            new = self.number(self.capture.outputs()[value.number])
        else:
            new = TensorValue.of(value)
        if (new.dtype, new.shape, new.device) != (old.dtype, old.shape, old.device):
            raise GraphBreakError(
                f"the buffer {path} is replaced by a tensor of another shape or type: "
                f"{new} for {old}"
            )

    def check_own_memory(self, path: str) -> None:
        """A buffer that is replaced has memory of its own: a program writes into it,
        so that what shares it would change, too."""
        buffer = self.mod.get_buffer(path)
        others = itertools.chain(
            self.mod.named_parameters(remove_duplicate=False),
            self.mod.named_buffers(remove_duplicate=False),
            self.constants.items(),
        )
        for other, tensor in others:
            if other != path and share_memory(buffer, tensor):
                raise GraphBreakError(
                    f"the program replaces the buffer {path}, which shares its memory "
                    f"with {other}: an exported program would write to both\n"
                    f"  hint: write in place (self.{path}.copy_(...)), or give {path} "
                    "memory of its own (clone)"
                )

    def returned(self, leaf: Any, what: str) -> tuple[str, Any]:
        if isinstance(leaf, GraphValue):
            return "output", leaf.number
        if isinstance(leaf, torch.Tensor):
            # What was written to has the value that it has in the end.
            at = self.placeholder_of(leaf, what)
            written = self.capture.mutations()
            for k, given in enumerate(written):
                if self.of_input[given] == at:
                    return "mutation", k
            return "placeholder", at
        if isinstance(leaf, Number):
            return "number", leaf.text
        allowed = (int, float, bool, str, type(None))
        if type(leaf) not in allowed:
            kind = type(leaf)
            raise GraphBreakError(
                f"{what} has a {kind.__module__}.{kind.__qualname__} in it, which no "
                "exported program returns; a class that holds results is made known by "
                "framejit.export.register_dataclass or register_pytree_node"
            )
        return "object", leaf

    def placeholder_of(self, tensor: torch.Tensor, what: str) -> int:
        for leaf, thing in enumerate(self.inputs.leaves):
            if thing is tensor:
                return self.first_leaf + leaf
        for i, (_, _, thing, _) in enumerate(self.capture.inputs()):
            if thing is tensor and i in self.of_input:
                return self.of_input[i]
        for at, spec in enumerate(self.specs):
            path = spec.target
            if spec.kind is InputKind.PARAMETER and path is not None:
                if self.mod.get_parameter(path) is tensor:
                    return at
            elif spec.kind is InputKind.BUFFER and path is not None:
                if self.mod.get_buffer(path) is tensor:
                    return at
        raise GraphBreakError(
            f"{what} has a tensor in it that is neither computed, nor an input, nor of "
            "the module"
        )

    # ---- nodes

    def describe(self, graph: Graph, written: list[Any]) -> None:
        placeholders = [node for node in graph.nodes if node.op == "placeholder"]
        for node, value in zip(placeholders, self.values, strict=True):
            node.meta["val"] = value
        paths = {id(module): path for path, module in self.mod.named_modules()}
        if self.may_have_gradients:
            places = [place for _, _, _, place, *_ in self.capture.facts()]
            places += [place for row in written for place in row[3:5]]
            own = (p for p in places if p is not None and not p[0].startswith(_TORCH))
            check_unseen_writes(own)
        for node, described, is_list, place, caller, modules in written:
            values = [self.number(item) for item in described]
            node.meta["val"] = values if is_list else values[0] if values else None
            if place is not None:
                node.meta["stack_trace"] = _stack_trace(caller, place)
                node.meta["nn_module_stack"] = _module_stack(modules, paths)
        self.names = [node.name for node in placeholders]

    def finish(self, graph: Graph) -> ExportedProgram:
        for spec, name in zip(self.specs, self.names, strict=True):
            spec.arg.name = name
        (output,) = [node for node in graph.nodes if node.op == "output"]
        outputs = [
            OutputSpec(kind, _argument_of(value), target)
            for value, (_, (kind, target)) in zip(
                output.args[0], self.results, strict=True
            )
        ]
        output.meta["val"] = None
        state = self.mod.state_dict(keep_vars=True)
        inner = ModuleCallSignature(
            [s.arg for s in self.specs if s.kind is InputKind.USER_INPUT],
            [s.arg for s in outputs if s.kind is OutputKind.USER_OUTPUT],
            self.inputs.spec,
            self.out_spec,
            self.inputs.parameters,
        )
        calls = [ModuleCallEntry("", inner)]
        calls += [ModuleCallEntry(path) for path, _ in self.mod.named_modules() if path]
        ranges = {
            Number(name, self.hints[name]): span
            for name, span in self.findings.ranges.items()
        }
        return ExportedProgram(
            {},
            graph,
            ExportGraphSignature(self.specs, outputs),
            {k: v for k, v in state.items() if isinstance(v, torch.Tensor)},
            ranges,
            calls,
            (self.inputs.args, self.inputs.kwargs),
            self.constants,
            facts=self.facts,
            objects=self.objects,
        )


def _argument_of(value: Any) -> ArgumentSpec:
    if not isinstance(value, Node):
        return ConstantArgument("", value)
    if isinstance(value.meta["val"], (Number, int)):
        return SymIntArgument(value.name)
    return TensorArgument(value.name)


def _module_stack(modules: list[nn.Module], paths: Mapping[int, str]) -> Any:
    """By a name of the path: the path and the class of each module on the way."""
    stack = {}
    for module in modules:
        if (path := paths.get(id(module))) is not None:
            key = "L__self__" + ("_" + path.replace(".", "_") if path else "")
            kind = type(module)
            stack[key] = (path, f"{kind.__module__}.{kind.__qualname__}")
    return stack


def _stack_trace(*places: Any) -> str:
    lines = []
    for place in dict.fromkeys(p for p in places if p is not None):
        file, line, name = place
        lines.append(f'  File "{file}", line {line}, in {name}')
        if text := linecache.getline(file, line).strip():
            lines.append(f"    {text}")
    return "\n".join(lines) + "\n"
