"""`export`: a call of a module, captured, as a program of its own."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from framejit import _C
from framejit.errors import ConstraintViolationError
from framejit.export._dims import DimHint
from framejit.export._inputs import Inputs, flatten_inputs
from framejit.export._trace import Said, Tracer, call
from framejit.export.dynamic_shapes import ShapesCollection, leaf_dims
from framejit.export.exported_program import ExportedProgram

__all__ = ["export"]


class _Marks:
    """While it lasts, the dims of the inputs that are to be symbols are marked so."""

    def __init__(self, inputs: Inputs, said: Said) -> None:
        self.inputs = inputs
        self.said = said
        self.before: list[tuple[torch.Tensor, Any]] = []

    def __enter__(self) -> None:
        marks: dict[int, dict[int, Any]] = {}
        for (leaf, dim), what in self.said.items():
            if dim >= 0:
                high = what.max
                low = max(what.min or 0, 2)
                marks.setdefault(leaf, {})[dim] = ("dynamic", low, high)
        for number, leaf in enumerate(self.inputs.leaves):
            if not isinstance(leaf, torch.Tensor):
                continue
            self.before.append((leaf, leaf.__dict__.pop("_framejit_dims", None)))
            if number in marks:
                leaf.__dict__["_framejit_dims"] = marks[number]

    def __exit__(self, *exc: object) -> None:
        for tensor, marks in self.before:
            tensor.__dict__.pop("_framejit_dims", None)
            if marks is not None:
                tensor.__dict__["_framejit_dims"] = marks


def _check_sizes(inputs: Inputs, said: Said) -> Said:
    """Without the dims of `Dim.AUTO` that cannot change.

    Raises ConstraintViolationError: one of another kind cannot.
    """
    kept: Said = {}
    for (leaf, dim), what in said.items():
        if dim >= 0 and (size := inputs.leaves[leaf].size(dim)) < 2:
            if isinstance(what, DimHint) and what.kind.name == "AUTO":
                continue
            raise ConstraintViolationError(
                f"{inputs.names[leaf]}.shape[{dim}] is {what!r} and {size} in the "
                "example: sizes 0 and 1 are programs of their own (broadcasting, empty "
                "reductions)\n  hint: give an example with a size of 2 or more"
            )
        kept[leaf, dim] = what
    return kept


def export(
    mod: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
    strict: bool = True,
    preserve_module_call_signature: tuple[str, ...] = (),
) -> ExportedProgram:
    """One call of a module as a program of its own.

    The module's code is read, not run: what the program relies on is known from the
    capture's guards. What is read of the module is part of the program; what is read
    of the inputs is checked in every call.

    args, kwargs: the inputs of the call.
    dynamic_shapes: which sizes may differ in other calls: see
        `framejit.export.dynamic_shapes`. None: none may.
    strict: False: what the module writes to objects that are no buffers (attributes,
        counters, caches) is left out, with a warning each: every call of the program
        is one of the module as it was at the export.

    Raises:
        GraphBreakError: the module does what no exported program can; the message has
            the line, the reason and a hint.
        ConstraintViolationError: ``dynamic_shapes`` allows sizes that the module
            cannot have; the message has the line and what to write.
        TypeError: an input is of a type no program takes.
    """
    if not isinstance(mod, nn.Module):
        raise TypeError(
            "framejit.export.export: expected a torch.nn.Module, got "
            f"{type(mod).__name__}; a function becomes one by a forward that calls it"
        )
    if preserve_module_call_signature:
        raise NotImplementedError(
            "framejit.export.export: preserve_module_call_signature is not there"
        )
    if isinstance(dynamic_shapes, ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    inputs = flatten_inputs(mod, args, kwargs)
    found = leaf_dims(
        inspect.signature(mod.forward),
        inputs.args,
        inputs.kwargs,
        dynamic_shapes,
        inputs.names,
    )
    said = {
        (leaf, dim): what for leaf, row in found.items() for dim, what in row.items()
    }
    said = _check_sizes(inputs, said)
    # Each turn finds sizes of Dim.AUTO that are one number, and makes them that.
    while True:
        numbers = [inputs.paths[leaf] for leaf, dim in said if dim < 0]
        with _Marks(inputs, said):
            slots = (mod, inputs.args, inputs.kwargs)
            capture = _C.ExportCapture(call, slots, numbers)
        tracer = Tracer(mod, inputs, said, capture)
        if not tracer.findings.static:
            return tracer.program(strict)
        for at in tracer.findings.static:
            said.pop(at, None)
