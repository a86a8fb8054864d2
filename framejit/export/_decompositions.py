"""``run_decompositions``: operators as what they are made of.

The graphs of `export` have no operators that are made of others for every device
(composite ones): the capture has seen through them. Tables beyond that are functions
of torch's that run on its own tensors, so torch applies them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from framejit.export._torch_bridge import from_torch
from framejit.export._values import Number
from framejit.export.exported_program import ExportedProgram

__all__ = ["decomposed", "default_decompositions"]


def default_decompositions() -> Any:
    """The table that `ExportedProgram.run_decompositions` takes by itself: torch's, of
    operators into the core ones. It is a new dict, to be changed at will."""
    return torch.export.default_decompositions()


def decomposed(
    program: ExportedProgram, table: Mapping[Any, Any] | None
) -> ExportedProgram:
    """See `ExportedProgram.run_decompositions`."""
    used = {node.target for node in program.graph.nodes if node.op == "call_function"}
    done = program.dialect == "ATEN" and program.is_functional
    if table is not None and not used & set(table) and done:
        return program
    theirs = program.to_torch()
    made = from_torch(
        theirs.run_decompositions(table if table is None else dict(table))
    )
    known = {symbol.text for symbol in made.range_constraints}
    made.facts = [f for f in program.facts if Number(f.text).symbols <= known]
    made.objects = program.objects
    return made
