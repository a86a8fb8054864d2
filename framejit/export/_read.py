"""A program from the JSON of a ``.pt2`` file.

Nothing in a file is trusted: what it names is looked up in tables and among torch's
operators, sizes are parsed, and what is not known is a `FileError`.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Collection
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from framejit.export._constraints import Fact
from framejit.export._inputs import RESERVED
from framejit.export._safe_operators import check_operator
from framejit.export._schema import (
    DTYPES,
    LAYOUTS,
    MEMORY_FORMATS,
    SCHEMA_VERSION,
    FileError,
    operator_named,
    python_text,
)
from framejit.export._values import Number, TensorValue, ValueRange
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
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
    TensorArgument,
)
from framejit.fx import Graph
from framejit.fx._names import is_name
from framejit.fx.node import Node

__all__ = ["read_program", "tensor_value"]

_FLOATS = {"Infinity": math.inf, "-Infinity": -math.inf, "NaN": math.nan}


def _only(union: Any) -> tuple[str, Any]:
    """The field of a union that is set."""
    if not isinstance(union, dict):
        raise FileError(f"expected one of several fields, found {union!r}")
    found = [(key, value) for key, value in union.items() if value is not None]
    if len(found) != 1:
        raise FileError(f"expected one field of {sorted(union)}")
    return found[0]


def _size(union: Any) -> int | Number:
    kind, value = _only(union)
    if kind == "as_int" and type(value) is int:
        return value
    if kind != "as_expr":
        raise FileError(f"no size: {union!r}")
    hint = value.get("hint")
    number = _only(hint)[1] if hint else None
    text = python_text(value["expr_str"])
    if text.isdigit():
        return int(text)
    return Number(text, number if type(number) is int else None)


def _of_table(table: dict[int, Any], number: Any, what: str) -> Any:
    if number not in table:
        raise FileError(f"the {what} number {number!r} is not known here")
    return table[number]


def _device(row: Any) -> torch.device:
    index = row.get("index")
    kind = str(row["type"])
    return torch.device(kind) if index is None else torch.device(kind, index)


def tensor_value(row: Any) -> TensorValue:
    if _of_table(LAYOUTS, row["layout"], "layout") is not torch.strided:
        raise FileError("a tensor that is not strided")
    return TensorValue(
        _of_table(DTYPES, row["dtype"], "dtype"),
        tuple(_size(size) for size in row["sizes"]),
        tuple(_size(stride) for stride in row["strides"]),
        _size(row["storage_offset"]),
        _device(row["device"]),
        bool(row["requires_grad"]),
    )


def _check_name(name: Any) -> None:
    """Names get into generated code."""
    if not is_name(name):
        raise FileError(f"the name {name!r} of a value is no identifier")


def _check_path(path: Any) -> None:
    """Of a parameter, buffer or constant: names of attributes, with dots between."""
    good = isinstance(path, str) and path.isprintable()
    if not good or any(
        not part or hasattr(nn.Module, part) for part in path.split(".")
    ):
        raise FileError(f"{path!r} is no path of a tensor in a module")


class _GraphReader:
    def __init__(self, row: Any, custom_ops: Collection[str] | None) -> None:
        self.row = row
        self.custom_ops = custom_ops
        self.graph = Graph()
        self.nodes: dict[str, Node] = {}
        self.tensors = row["tensor_values"]
        self.ints = row["sym_int_values"]

    # ---- values

    def node(self, name: Any) -> Node:
        if name not in self.nodes:
            raise FileError(f"the value {name!r} is used and not defined")
        return self.nodes[name]

    def value(self, name: str) -> Any:
        if name in self.tensors:
            return tensor_value(self.tensors[name])
        if name in self.ints:
            return _size(self.ints[name])
        return None

    def define(self, name: str, node: Node) -> None:
        _check_name(name)
        node.meta["val"] = self.value(name)
        self.nodes[name] = node

    def number(self, union: Any) -> Any:
        kind, value = _only(union)
        return self.node(value) if kind == "as_name" else value

    def argument(self, union: Any) -> Any:
        kind, value = _only(union)
        if kind == "as_none":
            return None
        if kind in ("as_int", "as_bool", "as_string"):
            return value
        if kind == "as_float":
            return float(_FLOATS.get(value, value))
        if kind == "as_tensor":
            return self.node(value["name"])
        if kind in ("as_ints", "as_bools", "as_strings"):
            return list(value)
        if kind == "as_floats":
            return [float(_FLOATS.get(item, item)) for item in value]
        if kind == "as_tensors":
            return [self.node(item["name"]) for item in value]
        if kind in ("as_sym_int", "as_sym_float", "as_sym_bool"):
            return self.number(value)
        if kind in ("as_sym_ints", "as_sym_floats", "as_sym_bools"):
            return [self.number(item) for item in value]
        if kind == "as_optional_tensors":
            return [self.argument(item) for item in value]
        if kind == "as_optional_tensor":
            return self.argument(value)
        if kind == "as_scalar_type":
            return _of_table(DTYPES, value, "dtype")
        if kind == "as_layout":
            return _of_table(LAYOUTS, value, "layout")
        if kind == "as_memory_format":
            return _of_table(MEMORY_FORMATS, value, "memory format")
        if kind == "as_device":
            return _device(value)
        if kind == "as_complex":
            return complex(value["real"], value["imag"])
        raise FileError(f"an argument {kind}, which is not read")

    # ---- nodes

    def placeholder(self, union: Any, spec: InputSpec) -> None:
        kind, value = _only(union)
        _check_name(spec.arg.name)
        name = spec.arg.name
        if name in RESERVED:
            name += "_1"
        node = self.graph.create_node("placeholder", name, name=name)
        if kind in ("as_tensor", "as_sym_int"):
            name = value["name"] if kind == "as_tensor" else value["as_name"]
            self.define(name, node)
        else:
            node.meta["val"] = self.argument(union)
        spec.arg.name = node.name

    def call(self, row: Any) -> None:
        target = operator_named(row["target"])
        if self.custom_ops is not None and isinstance(target, torch._ops.OpOverload):
            check_operator(target, self.custom_ops)
        args, kwargs = self.arguments(target, row["inputs"])
        node = self.graph.create_node(
            "call_function", target, tuple(args), kwargs, name=self.name_of(row)
        )
        if text := row["metadata"].get("stack_trace"):
            node.meta["stack_trace"] = text
        if text := row["metadata"].get("nn_module_stack"):
            rows = [item.split(",", 2) for item in text.split(";")]
            node.meta["nn_module_stack"] = {k: (path, kind) for k, path, kind in rows}
        self.outputs(node, row["outputs"])

    @classmethod
    def name_of(cls, row: Any) -> str | None:
        """Named as its value, where it is one."""
        name = cls._name_of(row)
        if name is not None:
            _check_name(name)
        return name

    @staticmethod
    def _name_of(row: Any) -> str | None:
        if row.get("name"):
            return str(row["name"])
        if len(row["outputs"]) == 1:
            kind, value = _only(row["outputs"][0])
            if kind == "as_tensor":
                return str(value["name"])
            if kind == "as_sym_int":
                return str(value["as_name"])
        return None

    def arguments(self, target: Any, rows: Any) -> tuple[list[Any], dict[str, Any]]:
        values = {row["name"]: row for row in rows}
        if not isinstance(target, torch._ops.OpOverload):
            return [self.argument(row["arg"]) for row in rows], {}
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in target._schema.arguments:
            row = values.pop(argument.name, None)
            if row is None:
                continue
            value = self.argument(row["arg"])
            kind = row.get("kind")
            positional = (
                not argument.kwarg_only
                if kind == 1
                else kind != 2
                and not argument.has_default_value()
                and not argument.kwarg_only
            )
            if positional and not kwargs:
                args.append(value)
            else:
                kwargs[argument.name] = value
        if values:
            raise FileError(f"{target} has no argument {sorted(values)[0]!r}")
        return args, kwargs

    def item(self, node: Node, index: int, name: str) -> None:
        if "_unused_" in name:
            return
        made = self.graph.create_node(
            "call_function", operator.getitem, (node, index), {}, name=name
        )
        self.define(name, made)

    def outputs(self, node: Node, unions: Any) -> None:
        rows = [_only(union) for union in unions]
        if not rows:
            node.meta["val"] = None
            return
        if len(rows) == 1 and rows[0][0] in ("as_tensor", "as_sym_int", "as_none"):
            kind, value = rows[0]
            if kind != "as_none":
                name = value["name"] if kind == "as_tensor" else value["as_name"]
                self.define(name, node)
            return
        if len(rows) == 1 and rows[0][0] == "as_tensors":
            names: list[str | None] = [item["name"] for item in rows[0][1]]
        else:
            names = []
            for kind, value in rows:
                if kind not in ("as_tensor", "as_sym_int", "as_none"):
                    raise FileError(f"an operator with the result {kind}")
                found = None if kind == "as_none" else value
                names.append(
                    None if found is None else found.get("name", found.get("as_name"))
                )
        node.meta["val"] = [None if n is None else self.value(n) for n in names]
        for index, name in enumerate(names):
            if name is not None:
                self.item(node, index, name)

    def read(self, specs: list[InputSpec]) -> Graph:
        if len(specs) != len(self.row["inputs"]):
            raise FileError("the graph has other inputs than its signature")
        for union, spec in zip(self.row["inputs"], specs, strict=True):
            self.placeholder(union, spec)
        for row in self.row["nodes"]:
            self.call(row)
        outputs = [self.argument(union) for union in self.row["outputs"]]
        self.graph.output(tuple(outputs))
        # Files name what nobody reads, too.
        for node in reversed(list(self.graph.nodes)):
            if node.target is operator.getitem and not node.users:
                self.graph.erase_node(node)
        return self.graph


# ---- the signature


def _constant(union: Any) -> Any:
    kind, value = _only(union)
    if kind == "as_none":
        return None
    return float(_FLOATS.get(value, value)) if kind == "as_float" else value


def _spec_argument(union: Any) -> ArgumentSpec:
    kind, value = _only(union)
    if kind == "as_tensor":
        return TensorArgument(value["name"])
    for name, made in (
        ("as_sym_int", SymIntArgument),
        ("as_sym_float", SymFloatArgument),
        ("as_sym_bool", SymBoolArgument),
    ):
        if kind == name:
            how, inner = _only(value)
            return made(inner) if how == "as_name" else ConstantArgument("", inner)
    return ConstantArgument("", _constant(union))


def _input_spec(union: Any) -> InputSpec:
    kind, row = _only(union)
    if kind == "user_input":
        return InputSpec(InputKind.USER_INPUT, _spec_argument(row["arg"]), None)
    if kind == "constant_input":
        constant = ConstantArgument(row["name"], _constant(row["value"]))
        return InputSpec(InputKind.USER_INPUT, constant, None)
    if kind == "parameter":
        argument = TensorArgument(row["arg"]["name"])
        return InputSpec(InputKind.PARAMETER, argument, row["parameter_name"])
    if kind == "buffer":
        argument = TensorArgument(row["arg"]["name"])
        persistent = bool(row.get("persistent", True))
        return InputSpec(InputKind.BUFFER, argument, row["buffer_name"], persistent)
    if kind == "tensor_constant":
        argument = TensorArgument(row["arg"]["name"])
        name = row["tensor_constant_name"]
        return InputSpec(InputKind.CONSTANT_TENSOR, argument, name)
    raise FileError(
        f"an input of the kind {kind}, which is not read: custom classes and effects "
        "are not part of exported programs here"
    )


_OUTPUTS = {
    "buffer_mutation": (OutputKind.BUFFER_MUTATION, "buffer_name"),
    "parameter_mutation": (OutputKind.PARAMETER_MUTATION, "parameter_name"),
    "user_input_mutation": (OutputKind.USER_INPUT_MUTATION, "user_input_name"),
}


def _output_spec(union: Any) -> OutputSpec:
    kind, row = _only(union)
    if kind == "user_output":
        return OutputSpec(OutputKind.USER_OUTPUT, _spec_argument(row["arg"]), None)
    if kind not in _OUTPUTS:
        raise FileError(f"an output of the kind {kind}, which is not read")
    made, field = _OUTPUTS[kind]
    return OutputSpec(made, TensorArgument(row["arg"]["name"]), row[field])


def _spec(text: str) -> pytree.TreeSpec:
    try:
        return pytree.treespec_loads(text)
    except Exception as error:
        raise FileError(
            f"the structure of the inputs or outputs is not known here: {error}; "
            "register its classes (register_dataclass, register_pytree_node)"
        ) from error


def _call_signature(row: Any) -> ModuleCallSignature | None:
    if row is None:
        return None
    return ModuleCallSignature(
        [_spec_argument(union) for union in row["inputs"]],
        [_spec_argument(union) for union in row["outputs"]],
        _spec(row["in_spec"]),
        _spec(row["out_spec"]),
        row.get("forward_arg_names"),
    )


# ---- comparisons of sizes


class _Sizes(ast.NodeTransformer):
    """``L['x'].size()[0]`` as the size that the graph has there."""

    def __init__(self, sizes: dict[str, Any]) -> None:
        self.sizes = sizes

    def visit_Subscript(self, node: ast.Subscript) -> ast.AST:
        text = ast.unparse(node)
        if text not in self.sizes:
            raise FileError(f"a comparison of {text}, which is no size of an input")
        return ast.parse(str(self.sizes[text]), mode="eval").body


def _facts(texts: list[str], program: ExportedProgram) -> list[Fact]:
    from framejit.export._write import _paths_of_inputs

    paths = _paths_of_inputs(program)
    sizes: dict[str, Any] = {}
    checks = program.input_checks()
    for path, value in zip(paths, checks.values, strict=True):
        if isinstance(value, TensorValue):
            for dim, size in enumerate(value.shape):
                sizes[f"{path}.size()[{dim}]"] = size
        elif isinstance(value, (Number, int)):
            sizes[path] = value
    facts = []
    for text in texts:
        try:
            tree = _Sizes(sizes).visit(ast.parse(text, mode="eval"))
        except SyntaxError:
            raise FileError(f"no comparison of sizes: {text!r}") from None
        made = python_text(ast.unparse(tree))
        number = Number(made)
        if number.symbols:
            facts.append(Fact(made, None, None))
        elif not number.evaluate({}):
            raise FileError(f"{text} is never true")
    return facts


def read_program(
    row: Any,
    state_dict: dict[str, torch.Tensor],
    constants: dict[str, torch.Tensor],
    example_inputs: Any = None,
    custom_ops: Collection[str] | None = None,
) -> ExportedProgram:
    """The program of a file. FileError: the file has what is not read, or is wrong.

    custom_ops: which operators beside torch's it may call; None: any operator (it is no
        file's, but a program's that is here).
    """
    try:
        version = row["schema_version"]
        if version["major"] != SCHEMA_VERSION[0]:
            raise FileError(
                f"the file is of version {version['major']}.{version['minor']} of the "
                f"format; {SCHEMA_VERSION[0]}.x is read"
            )
        module = row["graph_module"]
        inputs = [_input_spec(union) for union in module["signature"]["input_specs"]]
        for path in (*state_dict, *constants):
            _check_path(path)
        outputs = [_output_spec(union) for union in module["signature"]["output_specs"]]
        graph = _GraphReader(module["graph"], custom_ops).read(inputs)
        calls = [
            ModuleCallEntry(entry["fqn"], _call_signature(entry.get("signature")))
            for entry in module["module_call_graph"]
        ]
        ranges = {
            Number(name): ValueRange(span["min_val"] or 0, span["max_val"])
            for name, span in row["range_constraints"].items()
            if name.isidentifier()
        }
        program = ExportedProgram(
            {},
            graph,
            ExportGraphSignature(inputs, outputs),
            state_dict,
            ranges,
            calls,
            example_inputs,
            constants,
            dialect="TRAINING" if "TRAINING" in row.get("verifiers", ()) else "ATEN",
        )
        program.facts = _facts(row.get("guards_code") or [], program)
    except (KeyError, TypeError, AttributeError, IndexError) as error:
        raise FileError(f"no exported program: {error!r}") from error
    return program
