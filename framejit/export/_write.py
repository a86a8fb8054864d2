"""A program as the dicts and lists that a ``.pt2`` file has as JSON."""

from __future__ import annotations

import operator
import re
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from framejit.export._constraints import Fact
from framejit.export._schema import (
    DTYPES,
    LAYOUTS,
    MEMORY_FORMATS,
    SCHEMA_VERSION,
    FileError,
    operator_name,
    sympy_text,
)
from framejit.export._values import Number, TensorValue, ValueRange
from framejit.export.graph_signature import (
    ConstantArgument,
    InputKind,
    InputSpec,
    OutputKind,
    OutputSpec,
    SymBoolArgument,
    SymFloatArgument,
    SymIntArgument,
)
from framejit.fx.node import Node

if TYPE_CHECKING:
    from framejit.export.exported_program import (
        ExportedProgram,
        ModuleCallSignature,
    )

__all__ = ["guard_texts", "tensor_meta", "write_program"]

_NUMBER_OF_DTYPE = {dtype: number for number, dtype in DTYPES.items()}
_NUMBER_OF_LAYOUT = {layout: number for number, layout in LAYOUTS.items()}
_NUMBER_OF_FORMAT = {item: number for number, item in MEMORY_FORMATS.items()}


def _size(size: int | Number) -> dict[str, Any]:
    if isinstance(size, Number):
        hint = None if size.hint is None else {"as_int": int(size.hint)}
        return {"as_expr": {"expr_str": sympy_text(size.text), "hint": hint}}
    return {"as_int": size}


def _device(device: torch.device) -> dict[str, Any]:
    return {"type": device.type, "index": device.index}


def tensor_meta(value: TensorValue, layout: torch.layout = torch.strided) -> Any:
    return {
        "dtype": _NUMBER_OF_DTYPE[value.dtype],
        "sizes": [_size(size) for size in value.shape],
        "requires_grad": value.requires_grad,
        "device": _device(value.device),
        "strides": [_size(stride) for stride in value.strides],
        "storage_offset": _size(value.storage_offset),
        "layout": _NUMBER_OF_LAYOUT[layout],
    }


class _GraphWriter:
    def __init__(self) -> None:
        self.inputs: list[Any] = []
        self.nodes: list[Any] = []
        self.tensors: dict[str, Any] = {}
        self.ints: dict[str, Any] = {}
        self.bools: dict[str, Any] = {}

    # ---- values

    def defined(self, name: str, value: Any) -> dict[str, Any]:
        """The argument that stands for a node; notes what it is."""
        if isinstance(value, TensorValue):
            self.tensors[name] = tensor_meta(value)
            return {"as_tensor": {"name": name}}
        if isinstance(value, (Number, int)):
            self.ints[name] = _size(value)
            return {"as_sym_int": {"as_name": name}}
        if value is None:
            return {"as_none": True}
        raise FileError(f"{name} is a {type(value).__name__}, which is not written")

    def of_node(self, node: Node) -> dict[str, Any]:
        if node.name in self.ints:
            return {"as_sym_int": {"as_name": node.name}}
        return {"as_tensor": {"name": node.name}}

    def argument(self, value: Any, kind: Any = None) -> dict[str, Any]:
        if isinstance(value, Node):
            return self.of_node(value)
        if written := _plain(value):
            return written
        if isinstance(value, complex):
            return {"as_complex": {"real": value.real, "imag": value.imag}}
        if isinstance(value, torch.dtype):
            return {"as_scalar_type": _NUMBER_OF_DTYPE[value]}
        if isinstance(value, torch.device):
            return {"as_device": _device(value)}
        if isinstance(value, torch.layout):
            return {"as_layout": _NUMBER_OF_LAYOUT[value]}
        if isinstance(value, torch.memory_format):
            return {"as_memory_format": _NUMBER_OF_FORMAT[value]}
        if isinstance(value, (list, tuple)):
            return self.list_argument(list(value), kind)
        raise FileError(f"an argument of type {type(value).__name__} is not written")

    def list_argument(self, items: list[Any], kind: Any) -> dict[str, Any]:
        for python, name in (
            (bool, "as_bools"),
            (int, "as_ints"),
            (float, "as_floats"),
            (str, "as_strings"),
        ):
            if items and all(type(item) is python for item in items):
                return {name: items}
        if not items:
            return {_name_of_empty(kind): []}
        nodes = [item for item in items if isinstance(item, Node)]
        if all(type(item) is int or isinstance(item, Node) for item in items) and any(
            node.name in self.ints for node in nodes
        ):
            return {
                "as_sym_ints": [
                    {"as_name": item.name}
                    if isinstance(item, Node)
                    else {"as_int": item}
                    for item in items
                ]
            }
        if len(nodes) == len(items):
            return {"as_tensors": [{"name": node.name} for node in nodes]}
        if all(item is None or isinstance(item, Node) for item in items):
            return {
                "as_optional_tensors": [
                    {"as_none": True}
                    if item is None
                    else {"as_tensor": {"name": item.name}}
                    for item in items
                ]
            }
        raise FileError(f"a list of {items} is not written")

    # ---- nodes

    def placeholder(self, node: Node) -> None:
        value = node.meta["val"]
        if isinstance(value, (TensorValue, Number)):
            self.inputs.append(self.defined(node.name, value))
        else:
            self.inputs.append(self.argument(value))

    def call(self, node: Node) -> None:
        target: Any = node.target
        if target is operator.getitem:
            return
        if isinstance(target, torch._ops.OpOverload):
            inputs = self.arguments(node, target)
            outputs = self.outputs(node, target)
        elif isinstance(node.meta.get("val"), (Number, int)):
            inputs = [
                {"name": name, "arg": self.argument(value), "kind": 1}
                for name, value in zip("ab", node.args, strict=False)
            ]
            outputs = [self.defined(node.name, node.meta["val"])]
        else:
            raise FileError(f"a call of {target} is not written")
        self.nodes.append(
            {
                "target": operator_name(target),
                "inputs": inputs,
                "outputs": outputs,
                "metadata": _metadata(node),
                "is_hop_single_tensor_return": None,
                "name": node.name,
            }
        )

    def arguments(self, node: Node, target: torch._ops.OpOverload) -> list[Any]:
        rows = []
        for i, argument in enumerate(target._schema.arguments):
            if argument.name in node.kwargs:
                value, kind = node.kwargs[argument.name], 2
            elif not argument.kwarg_only and i < len(node.args):
                value, kind = node.args[i], 1
            else:
                continue
            arg = self.argument(value, argument.type)
            rows.append({"name": argument.name, "arg": arg, "kind": kind})
        return rows

    def outputs(self, node: Node, target: torch._ops.OpOverload) -> list[Any]:
        returns = target._schema.returns
        value = node.meta.get("val")
        if not returns:
            return []
        if len(returns) == 1 and not isinstance(value, list):
            return [self.defined(node.name, value)]
        names = {
            int(user.args[1]): user.name  # type: ignore[call-overload]
            for user in node.users
            if user.target is operator.getitem
        }
        rows = [
            self.defined(names.get(i, f"{node.name}_unused_{i}"), item)
            for i, item in enumerate(value or [])
        ]
        if len(returns) == 1:
            return [{"as_tensors": [row["as_tensor"] for row in rows]}]
        return rows

    def graph(self, nodes: list[Node]) -> dict[str, Any]:
        outputs: list[Any] = []
        for node in nodes:
            if node.op == "placeholder":
                self.placeholder(node)
            elif node.op == "call_function":
                self.call(node)
            elif node.op == "output":
                results: Any = node.args[0]
                outputs = [self.argument(value) for value in results]
            else:
                raise FileError(f"a {node.op} node is not written: {node}")
        return {
            "inputs": self.inputs,
            "outputs": outputs,
            "nodes": self.nodes,
            "tensor_values": self.tensors,
            "sym_int_values": self.ints,
            "sym_bool_values": self.bools,
            "is_single_tensor_return": False,
            "custom_obj_values": {},
            "sym_float_values": {},
        }


def _name_of_empty(kind: Any) -> str:
    text = str(kind)
    for word, name in (
        ("Tensor", "as_tensors"),
        ("bool", "as_bools"),
        ("float", "as_floats"),
        ("str", "as_strings"),
    ):
        if word in text:
            return name
    return "as_ints"


def _metadata(node: Node) -> dict[str, str]:
    found = {}
    if trace := node.meta.get("stack_trace"):
        found["stack_trace"] = trace
    if stack := node.meta.get("nn_module_stack"):
        rows = []
        for key, (path, kind) in stack.items():
            name = (
                kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}"
            )
            rows.append(f"{key},{path},{name}")
        found["nn_module_stack"] = ";".join(rows)
    return found


# ---- the signature


def _spec_argument(argument: Any) -> dict[str, Any]:
    if isinstance(argument, ConstantArgument):
        return _constant(argument.value)
    if isinstance(argument, SymIntArgument):
        return {"as_sym_int": {"as_name": argument.name}}
    if isinstance(argument, SymFloatArgument):
        return {"as_sym_float": {"as_name": argument.name}}
    if isinstance(argument, SymBoolArgument):
        return {"as_sym_bool": {"as_name": argument.name}}
    return {"as_tensor": {"name": argument.name}}


def _plain(value: Any) -> dict[str, Any] | None:
    """None, a number or a string as files have it; None: it is none of these."""
    if value is None:
        return {"as_none": True}
    for python, name in (
        (bool, "as_bool"),
        (int, "as_int"),
        (float, "as_float"),
        (str, "as_string"),
    ):
        if type(value) is python:
            return {name: value}
    return None


def _constant(value: Any) -> dict[str, Any]:
    if written := _plain(value):
        return written
    raise FileError(f"the constant {value!r} is not written")


def _input_spec(spec: InputSpec) -> dict[str, Any]:
    tensor = {"name": spec.arg.name}
    if spec.kind is InputKind.USER_INPUT:
        if isinstance(spec.arg, ConstantArgument):
            value = _constant(spec.arg.value)
            return {"constant_input": {"name": spec.arg.name, "value": value}}
        return {"user_input": {"arg": _spec_argument(spec.arg)}}
    if spec.kind is InputKind.PARAMETER:
        return {"parameter": {"arg": tensor, "parameter_name": spec.target}}
    if spec.kind is InputKind.BUFFER:
        return {
            "buffer": {
                "arg": tensor,
                "buffer_name": spec.target,
                "persistent": bool(spec.persistent),
            }
        }
    if spec.kind is InputKind.CONSTANT_TENSOR:
        return {"tensor_constant": {"arg": tensor, "tensor_constant_name": spec.target}}
    raise FileError(f"an input of kind {spec.kind.name} is not written")


def _output_spec(spec: OutputSpec) -> dict[str, Any]:
    tensor = {"name": spec.arg.name}
    if spec.kind is OutputKind.USER_OUTPUT:
        return {"user_output": {"arg": _spec_argument(spec.arg)}}
    fields = {
        OutputKind.BUFFER_MUTATION: ("buffer_mutation", "buffer_name"),
        OutputKind.PARAMETER_MUTATION: ("parameter_mutation", "parameter_name"),
        OutputKind.USER_INPUT_MUTATION: ("user_input_mutation", "user_input_name"),
    }
    if spec.kind not in fields:
        raise FileError(f"an output of kind {spec.kind.name} is not written")
    kind, field = fields[spec.kind]
    return {kind: {"arg": tensor, field: spec.target}}


def _call_signature(signature: ModuleCallSignature | None) -> Any:
    if signature is None:
        return None
    return {
        "inputs": [_spec_argument(argument) for argument in signature.inputs],
        "outputs": [_spec_argument(argument) for argument in signature.outputs],
        "in_spec": _spec_text(signature.in_spec),
        "out_spec": _spec_text(signature.out_spec),
        "forward_arg_names": signature.forward_arg_names,
    }


def _spec_text(spec: pytree.TreeSpec) -> str:
    try:
        return pytree.treespec_dumps(spec, 1)
    except NotImplementedError as error:
        raise FileError(
            f"the inputs or results have a class that files have no name for: {error}"
            "\n  hint: register it with a serialized_type_name, or return a tuple"
        ) from None


def guard_texts(program: ExportedProgram) -> list[str]:
    """The comparisons of sizes as torch.export has them: ``L['x'].size()[0] ...``."""
    checks = program.input_checks()
    paths = _paths_of_inputs(program)
    sources = {}
    for symbol in checks.symbols:
        if symbol.kind == "size":
            sources[symbol.name] = f"{paths[symbol.leaf]}.size()[{symbol.dim}]"
        elif symbol.kind == "value":
            sources[symbol.name] = paths[symbol.leaf]
    texts = []
    for fact in checks.facts:
        if _is_range(fact, program.range_constraints):
            continue
        number = Number(fact.text)
        if not number.symbols <= sources.keys() or not number.is_of_ints:
            continue  # torch.export has no words for it: see `facts_text`
        texts.append(
            re.sub(r"\bs\d+\b", lambda found: sources[found.group()], fact.text)
        )
    return texts


def _is_range(fact: Fact, ranges: dict[Number, ValueRange]) -> bool:
    """Is it said by the range of a symbol?"""
    found = re.fullmatch(r"(?:(\d+) <= (\w+)|(\w+) <= (\d+))", fact.text)
    return found is not None and any(
        s.text in (found.group(2), found.group(3)) for s in ranges
    )


def _paths_of_inputs(program: ExportedProgram) -> list[str]:
    signature = program.module_call_graph[0].signature
    assert signature is not None
    names = signature.forward_arg_names or []
    spec = signature.in_spec
    tree = pytree.tree_unflatten(list(range(spec.num_leaves)), spec)
    named: dict[str, Any] = {}
    for i, value in enumerate(tree[0]):
        named[names[i] if i < len(names) else f"args_{i}"] = value
    named.update(tree[1])
    rows = pytree.tree_flatten_with_path(named)[0]
    found = {number: "L" + pytree.keystr(path) for path, number in rows}
    return [found[i] for i in range(spec.num_leaves)]


def write_program(program: ExportedProgram) -> dict[str, Any]:
    """The JSON of a program. FileError: it has something that a file cannot have."""
    signature = program.graph_signature
    graph = _GraphWriter().graph(list(program.graph.nodes))
    return {
        "graph_module": {
            "graph": graph,
            "signature": {
                "input_specs": [_input_spec(spec) for spec in signature.input_specs],
                "output_specs": [_output_spec(spec) for spec in signature.output_specs],
            },
            "module_call_graph": [
                {"fqn": entry.fqn, "signature": _call_signature(entry.signature)}
                for entry in program.module_call_graph
            ],
            "metadata": {},
            "treespec_namedtuple_fields": {},
        },
        "opset_version": {"aten": 10},
        "range_constraints": {
            symbol.text: {"min_val": span.lower, "max_val": span.upper}
            for symbol, span in program.range_constraints.items()
        },
        "schema_version": {"major": SCHEMA_VERSION[0], "minor": SCHEMA_VERSION[1]},
        "verifiers": [program.dialect],
        "torch_version": torch.__version__,
        "guards_code": guard_texts(program),
    }
