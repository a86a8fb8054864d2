"""Which operators a file may call: those that compute, and do nothing else."""

from __future__ import annotations

import re
from collections.abc import Collection

import torch

from framejit.export._errors import FileError

__all__ = ["check_operator"]

_SAFE_NAMESPACES = ("aten", "prims")
# FrameJIT's own, which programs of `export` have.
_OWN = ("framejit::recurrent",)

# Operators that give a tensor or a number, and do more than that.
_DENIED = {
    "from_file": "maps a file into memory, and creates or writes it",
    "set_": "gives a tensor the memory of another",
    "set": "gives a tensor the memory of another",
    "_resize_output": "changes where a tensor lies",
    "_resize_output_": "changes where a tensor lies",
    "_cufft_get_plan_cache_size": "asks a library for its state",
    "_cufft_get_plan_cache_max_size": "asks a library for its state",
    "_get_tracing_state": "asks torch for its state",
    "_get_cpu_capability": "asks the machine what it is",
    "initial_seed": "asks the generator of random numbers for its seed",
    "seed": "seeds the generator of random numbers",
    "retains_grad": "asks for the history of a tensor",
    "_backward": "runs a backward pass",
    "backward": "runs a backward pass",
    "lift": "is of tracers",
    "set_data": "gives a tensor the memory of another",
    "retain_grad": "changes the history of a tensor",
    "_copy_from": "is of devices that are no part of torch",
    "_copy_from_and_resize": "is of devices that are no part of torch",
}
# Those that give nothing, and only raise.
_CHECKS = {
    *("_assert_async", "_assert_scalar", "_assert_tensor_metadata"),
    *("_linalg_check_errors", "sym_constrain_range", "sym_constrain_range_for_size"),
}
_VALUES = r"(Sym)?(Tensor|int|Int|float|Float|bool|Bool|number|Scalar|complex)"
# What arguments and results of graphs are (texts of torch's types).
_RESULT = re.compile(rf"(List\[)?(Optional\[)?{_VALUES}\]*")
_ARGUMENT = re.compile(
    rf"(Optional\[)?(List\[)?(Optional\[)?({_VALUES}|str|Device|Generator)\]*"
)


def _why_not(target: torch._ops.OpOverload) -> str | None:
    name = target._schema.name.split("::")[1]
    schema = target._schema
    if name in _DENIED:
        return _DENIED[name]
    for argument in schema.arguments:
        if not _ARGUMENT.fullmatch(str(argument.type)):
            return f"takes a {argument.type}, which no graph has"
    results = [str(result.type) for result in schema.returns]
    for kind in results:
        if not _RESULT.fullmatch(kind):
            return f"gives a {kind}, which no graph has"
    if not results and name not in _CHECKS and not schema.is_mutable:
        return "gives nothing, so it is there for what else it does"
    return None


def check_operator(target: torch._ops.OpOverload, custom_ops: Collection[str]) -> None:
    """Raises FileError: the operator does more than to compute, or is of an extension
    and not among the `custom_ops` (``"library::name"``)."""
    name = target._schema.name
    if target.namespace not in _SAFE_NAMESPACES:
        if name in custom_ops or name in _OWN:
            return
        raise FileError(
            f"the program calls {name}, which is none of torch's own operators: if the "
            f"file may run it, load(..., custom_ops=[{name!r}])"
        )
    if (why := _why_not(target)) is not None:
        raise FileError(f"the program calls {name}, which {why}: no file may")
