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

from framejit.export._errors import FileError
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
            f"the program calls {name}, which is not among the operators and "
            "functions of numbers that a file may name"
        )
    namespace, packet, overload = found.groups()
    try:
        target = getattr(getattr(getattr(torch.ops, namespace), packet), overload)
    except AttributeError:
        target = None
    if not isinstance(target, torch._ops.OpOverload):
        raise FileError(
            f"the program calls the operator {namespace}::{packet}.{overload}, which "
            "is not registered here: import the package that has it"
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


_DIVISIONS: dict[str, ast.operator] = {
    "FloorDiv": ast.FloorDiv(),
    "CleanDiv": ast.FloorDiv(),
    "Mod": ast.Mod(),
    "PythonMod": ast.Mod(),
}
_SERIES: dict[str, ast.operator] = {"Add": ast.Add(), "Mul": ast.Mult()}


def _is_float(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, float)


class _ToPython:
    """What torch, or `Number`, has for a size; both ways in which torch writes it
    (``s0*4``, ``Mul(Symbol('s0'), Integer(4))``). Nothing else gets through."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self) -> FileError:
        return FileError(f"no size: {self.text!r}")

    def convert(self, node: ast.AST) -> ast.expr:
        if isinstance(node, ast.Call):
            return self.call(node)
        if isinstance(node, ast.Name):
            return node
        if isinstance(node, ast.Constant) and type(node.value) in (int, float, bool):
            return node
        if isinstance(node, ast.BinOp):
            self.check_operator(node)
            return ast.BinOp(self.convert(node.left), node.op, self.convert(node.right))
        if isinstance(node, ast.UnaryOp):
            return ast.UnaryOp(node.op, self.convert(node.operand))
        if isinstance(node, ast.BoolOp):
            return ast.BoolOp(node.op, [self.convert(item) for item in node.values])
        if isinstance(node, ast.Compare):
            rest = [self.convert(item) for item in node.comparators]
            return ast.Compare(self.convert(node.left), node.ops, rest)
        raise self.fail()

    def check_operator(self, node: ast.BinOp) -> None:
        """Numbers stay small, whatever a file says: powers are squares and the like."""
        if isinstance(node.op, ast.LShift):
            raise self.fail()
        if isinstance(node.op, ast.Pow):
            power = node.right
            small = isinstance(power, ast.Constant) and type(power.value) is int
            nested = any(
                isinstance(n, ast.Pow) or isinstance(n, ast.Name) and n.id == "pow"
                for n in ast.walk(node.left)
            )
            if nested or not small or not 0 <= power.value <= 8:  # type: ignore[attr-defined]
                raise self.fail()

    def call(self, node: ast.Call) -> ast.expr:
        if not isinstance(node.func, ast.Name):
            raise self.fail()
        name = node.func.id
        if name == "Symbol" and node.args and isinstance(node.args[0], ast.Constant):
            symbol = node.args[0].value
            if isinstance(symbol, str) and symbol.isidentifier():
                return ast.Name(symbol, ast.Load())
        args = [self.convert(item) for item in node.args]
        if node.keywords:
            raise self.fail()
        if name in ("Integer", "Float") and len(args) == 1:
            return args[0]
        if name in _DIVISIONS and len(args) == 2:
            return ast.BinOp(args[0], _DIVISIONS[name], args[1])
        if name in _SERIES and args:
            made = args[0]
            for item in args[1:]:
                made = ast.BinOp(made, _SERIES[name], item)
            return made
        if name in ("Min", "Max"):
            return ast.Call(ast.Name(name.lower(), ast.Load()), args, [])
        if name in FUNCTIONS:
            if name == "pow" and not any(_is_float(n) for n in args[1:]):
                if len(args) != 2:
                    raise self.fail()
                self.check_operator(ast.BinOp(args[0], ast.Pow(), args[1]))
            return ast.Call(node.func, args, [])
        raise FileError(f"no size: the function {name!r} in {self.text!r}")


def python_text(text: str) -> str:
    """What torch wrote of a size in Python's syntax. FileError: it is no such text."""
    try:
        tree = ast.parse(without_hex_floats(text), mode="eval")
    except SyntaxError:
        raise FileError(f"no size: {text!r}") from None
    made = _ToPython(text).convert(tree.body)
    plain = ast.unparse(made)
    # What is not printed without blanks.
    words = (ast.BoolOp, ast.UnaryOp, ast.Compare)
    return plain if isinstance(made, words) else plain.replace(" ", "")
