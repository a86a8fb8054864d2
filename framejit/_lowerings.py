"""`register_lowering`: what a program's own operator is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch

from framejit import _C

_F = TypeVar("_F", bound=Callable[..., Any])
_OWN = ("aten", "prim", "prims")  # torch's


def _overload_of(op: Any) -> torch._ops.OpOverload:
    if isinstance(op, str):
        namespace, colons, name = op.partition("::")
        name, _, overload = name.partition(".")
        library = getattr(torch.ops, namespace)
        if not colons or not hasattr(library, name):
            raise ValueError(f"framejit.register_lowering: no operator {op!r}")
        op = getattr(getattr(library, name), overload or "default", None)
    op = getattr(op, "_opoverload", op)  # of a torch.library.custom_op
    if isinstance(op, torch._ops.OpOverloadPacket):
        op = op.default
    if not isinstance(op, torch._ops.OpOverload):
        raise TypeError(
            "framejit.register_lowering: expected an operator or its name, "
            f"got {type(op).__name__}"
        )
    return op


def register_lowering(op: Any) -> Callable[[_F], _F]:
    """Says what an operator of yours computes in operators of torch.

    A decorator for a function with the operator's arguments. Where a graph has
    the operator, the native backend compiles what the function calls instead, so
    that it becomes part of kernels. The function is called when a graph is
    compiled, on tensors without data; it works out of place and returns the
    operator's results (a tensor, or a tuple of them) in the same types and sizes.
    That it computes the same numbers is promised, not checked. Register before
    the first call that is compiled; a later registration replaces it.

    An operator whose gradient is a Python function keeps a graph that needs
    gradients as it is: there the operator itself is called.

    Args:
        op: what ``torch.library.custom_op`` gave, ``torch.ops.mylib.op``, an
            overload of it, or a name, ``"mylib::op"``.

    Raises:
        TypeError: not an operator.
        ValueError: there is none of this name; or it is torch's own, writes to an
            argument, or has a result that is no tensor or is part of an argument.
    """
    overload = _overload_of(op)
    schema = overload._schema
    if schema.name.partition("::")[0] in _OWN:
        raise ValueError(f"framejit.register_lowering: {schema.name} is torch's own")
    results = schema.returns
    if schema.is_mutable or any(r.alias_info is not None for r in results):
        raise ValueError(
            f"framejit.register_lowering: {schema.name} writes to its arguments, "
            "or returns parts of them"
        )
    if not results or any(str(r.type) != "Tensor" for r in results):
        raise ValueError(
            f"framejit.register_lowering: a result of {schema.name} is no tensor"
        )

    def register(function: _F) -> _F:
        if not callable(function):
            raise TypeError("framejit.register_lowering: expected a function")
        _C.register_lowering(schema.name, schema.overload_name, function)
        return function

    return register
