"""What the class of a node's value must be, as far as the graph says it."""

from __future__ import annotations

import builtins
import functools
import operator
from typing import Any

import torch

from framejit._C import _fx
from framejit.fx._operators import OPERATORS
from framejit.fx.node import Node

__all__ = ["class_of"]

_OF_NUMBERS: dict[str, type] = {
    **{cls.__name__: cls for cls in (int, float, complex, list, tuple)},
    **{"len": int, "sorted": list, "any": bool, "all": bool},
}
_TENSOR_NAMES = ("torch.Tensor", "Tensor")
# Attributes and methods of tensors that are something else.
_OF_TENSORS: dict[str, type] = {
    **dict.fromkeys(("dim", "ndim", "numel", "nelement", "element_size"), int),
    **dict.fromkeys(("shape", "stride"), tuple),
    **{"shape": torch.Size, "dtype": torch.dtype, "device": torch.device},
    **dict.fromkeys(("is_cuda", "requires_grad", "is_contiguous"), bool),
    **dict.fromkeys(("T", "mT", "H", "mH", "real", "imag", "data"), torch.Tensor),
}
# Methods that give a pair where they are asked for a dim (or another tensor, of which
# nothing is known then).
_OF_A_DIM = ("sort", "topk", "kthvalue", "mode", "cummax", "cummin", "frexp")
_OF_ALL = ("max", "min", "median", "nanmedian")


@functools.cache
def _makes_a_tensor(name: str) -> bool:
    """Does every operator of this name return one tensor?"""
    try:
        schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    except RuntimeError:
        return False
    return bool(schemas) and all(
        len(schema.returns) == 1 and str(schema.returns[0].type) == "Tensor"
        for schema in schemas
    )


def _annotated(annotation: Any) -> type | None:
    if annotation in _TENSOR_NAMES:
        return torch.Tensor
    return annotation if isinstance(annotation, type) else None


def class_of(
    node: Node, root: torch.nn.Module, inputs: type | None = None
) -> type | None:
    """The class of the value, or one it is derived from; None: not known.

    inputs: that of inputs of which nothing is said.
    """
    # Results of operators and methods depend on what they are of: no recursion, since
    # such chains are as long as programs.
    chain = [node]
    while (first := _decided_by(chain[-1])) is not None:
        chain.append(first)
    known = None
    for node in reversed(chain):
        known = _class_given(node, known, root)
        if known is None and node.op == "placeholder":
            known = inputs
    return known


def _decided_by(node: Node) -> Node | None:
    """The node whose class decides that of this one."""
    is_asked = node.op == "call_method" or (
        node.op == "call_function"
        and (node.target is getattr or _is_from(operator, node.target))
    )
    first = node.args[0] if is_asked and node.args else None
    return first if isinstance(first, Node) else None


def _is_from(module: Any, target: Any) -> bool:
    return getattr(module, getattr(target, "__name__", ""), None) is target


def _class_given(
    node: Node, of_first: type | None, root: torch.nn.Module
) -> type | None:
    target: Any = node.target
    if node.op == "placeholder":
        return _annotated(node.type)
    try:
        if node.op == "get_attr":
            # (The tracer answers such reads of the program with proxies.)
            return type(_fx.unfollowed(operator.attrgetter(target), root))
        if node.op == "call_module":
            module = _fx.unfollowed(root.get_submodule, target)
            forward = type(module).forward
            return _annotated(getattr(forward, "__annotations__", {}).get("return"))
    except AttributeError:
        return None
    of_tensor = of_first is not None and issubclass(of_first, torch.Tensor)
    if target is operator.getitem and of_first is torch.Size:
        return torch.Size if isinstance(node.args[1], slice) else int
    if node.op == "call_method":
        return _of_method(target, node) if of_tensor else None
    if target is getattr:
        return _OF_TENSORS.get(node.args[1]) if of_tensor else None
    name = getattr(target, "__name__", "")
    if _is_from(builtins, target):
        return _OF_NUMBERS.get(name)
    if _is_from(operator, target):
        # (With whatever is on its other side.)
        return torch.Tensor if of_tensor and name in OPERATORS else None
    home = getattr(target, "__module__", None)
    if home is None or home.startswith("torch"):
        returned = getattr(target, "__annotations__", {}).get("return")
        if _annotated(returned) is torch.Tensor or _makes_a_tensor(name):
            return torch.Tensor
    return None


def _of_method(name: str, node: Node) -> type | None:
    if name in ("size", "stride"):
        whole = torch.Size if name == "size" else tuple
        return whole if len(node.args) + len(node.kwargs) == 1 else int
    if name in _OF_A_DIM:
        return tuple
    if name in _OF_ALL:
        given = [*node.args[1:], *node.kwargs.values()]
        if not given:
            return torch.Tensor
        return tuple if isinstance(given[0], (int, str)) else None
    known = _OF_TENSORS.get(name)
    return known or (torch.Tensor if _makes_a_tensor(name) else None)
