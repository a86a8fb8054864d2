"""The words of the ``.pt2`` format: numbers of dtypes, names of operators, expressions.

The format is torch.export's (``torch._export.serde.schema`` has its fields): a zip file
with the program as JSON and the tensors as raw bytes.
"""

from __future__ import annotations

import ast
import operator
import re
from typing import Any

import torch

from framejit.export._values import FUNCTIONS, without_hex_floats

__all__ = [
    "DTYPES",
    "LAYOUTS",
    "MEMORY_FORMATS",
    "SCHEMA_VERSION",
    "FileError",
    "operator_named",
    "operator_name",
    "python_text",
    "sympy_text",
]

# What is written. Read is what has the same major version.
SCHEMA_VERSION = (8, 8)


class FileError(RuntimeError):
    """A file that is no exported program, or has something that is not read."""


_NAMES = {
    **{1: "uint8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16"},
    **{7: "float32", 8: "float64", 9: "complex32", 10: "complex64"},
    **{11: "complex128", 12: "bool", 13: "bfloat16", 28: "uint16"},
    **{29: "float8_e4m3fn", 30: "float8_e5m2", 31: "float8_e4m3fnuz"},
    **{32: "float8_e5m2fnuz", 33: "float8_e8m0fnu", 34: "uint32", 35: "uint64"},
}
DTYPES: dict[int, torch.dtype] = {
    number: getattr(torch, name)
    for number, name in _NAMES.items()
    if hasattr(torch, name)
}
LAYOUTS: dict[int, torch.layout] = {
    1: torch.sparse_coo,
    2: torch.sparse_csr,
    3: torch.sparse_csc,
    4: torch.sparse_bsr,
    5: torch.sparse_bsc,
    7: torch.strided,
}
MEMORY_FORMATS: dict[int, torch.memory_format] = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}

# What a program may call that is no operator of torch's: nothing that a file names
# is imported.
_NUMBERS: dict[str, Any] = {
    f"{function.__module__}.{function.__name__}": function
    for function in (
        *(operator.add, operator.sub, operator.mul, operator.neg, operator.abs),
        *(operator.floordiv, operator.truediv, operator.mod, operator.pow),
        *(operator.eq, operator.ne, operator.lt, operator.le, operator.gt),
        *(operator.ge, operator.and_, operator.or_, operator.not_),
        *(torch.sym_max, torch.sym_min, torch.sym_not, torch.sym_float),
        *(torch.sym_int, torch.sym_ite),
    )
}


def operator_name(target: Any) -> str:
    """What a file calls an operator or a function of numbers."""
    if isinstance(target, torch._ops.OpOverload):
        return f"torch.ops.{target.namespace}.{target.__name__}"
    return f"{target.__module__}.{target.__name__}"


def operator_named(name: str) -> Any:
    """The other way round.

    Raises FileError: there is no such operator here, or it is no operator.
    """
    if name in _NUMBERS:
        return _NUMBERS[name]
    found = re.fullmatch(r"torch\.ops\.(\w+)\.(\w+)\.(\w+)", name)
    if found is None:
        raise FileError(
            f"the program calls {name}, which is not among the operators and functions "
            "of numbers that a file may name"
        )
    namespace, packet, overload = found.groups()
    try:
        target = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        target = None
    if not isinstance(target, torch._ops.OpOverload):
        raise FileError(
            f"the program calls the operator {namespace}::{packet}.{overload}, which is "
            "not registered here: import the package that has it"
        )
    return target


class _ToSympy(ast.NodeTransformer):
    _CALLS = {ast.FloorDiv: "FloorDiv", ast.Mod: "Mod"}

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = self._CALLS.get(type(node.op))
        if name is None:
            return node
        return ast.Call(ast.Name(name, ast.Load()), [node.left, node.right], [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in ("min", "max"):
            node.func.id = node.func.id.capitalize()
        return node


def sympy_text(text: str) -> str:
    """A size in Python's syntax as torch reads it."""
    if text.isidentifier():
        return text
    return ast.unparse(_ToSympy().visit(ast.parse(text, mode="eval")))


class _ToPython(ast.NodeTransformer):
    _OPERATORS: dict[str, type[ast.operator]] = {
        "FloorDiv": ast.FloorDiv,
        "CleanDiv": ast.FloorDiv,
        "Mod": ast.Mod,
        "PythonMod": ast.Mod,
    }

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in self._OPERATORS and len(node.args) == 2:
            return ast.BinOp(node.args[0], self._OPERATORS[name](), node.args[1])
        if name in ("Min", "Max", "min", "max"):
            return ast.Call(ast.Name(name.lower(), ast.Load()), node.args, [])
        if name in FUNCTIONS:
            return node
        raise FileError(f"a size with the function {name}")


# What is not printed without blanks.
_WORDS = (ast.BoolOp, ast.UnaryOp, ast.Compare)
_PLAIN = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.Compare, ast.BoolOp, ast.Call),
    *(ast.Name, ast.Load, ast.Constant, ast.operator, ast.unaryop, ast.cmpop),
    ast.boolop,
)


def python_text(text: str) -> str:
    """What torch wrote of a size in Python's syntax. FileError: it is no such text."""
    try:
        tree = ast.parse(without_hex_floats(text), mode="eval")
    except SyntaxError:
        raise FileError(f"no size: {text!r}") from None
    for node in ast.walk(tree):
        if not isinstance(node, _PLAIN):
            raise FileError(f"no size: {text!r}")
    made = _ToPython().visit(tree)
    text = ast.unparse(made)
    return text.replace(" ", "") if not isinstance(made.body, _WORDS) else text
