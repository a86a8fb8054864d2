"""Exported programs of torch.export, and back, in memory and on the same tensors.

Both ways lead over the JSON of ``.pt2`` files (without writing any): what goes through
here goes through a file as well.
"""

from __future__ import annotations

import inspect
import json
from typing import Any

from framejit.export._archive import _floats
from framejit.export._read import read_program
from framejit.export._write import write_program
from framejit.export.exported_program import ExportedProgram

__all__ = ["from_torch", "to_torch", "unflatten"]


def to_torch(program: ExportedProgram) -> Any:
    """A ``torch.export.ExportedProgram``, verified by torch."""
    from torch._export.serde import schema
    from torch._export.serde import serialize as _serialize

    serialize: Any = _serialize  # (untyped)

    row = _floats(write_program(program))
    serialized = serialize._dict_to_dataclass(schema.ExportedProgram, row)
    reader = serialize.ExportedProgramDeserializer()
    example = program.example_inputs
    made: Any = reader.deserialize(
        serialized, dict(program.state_dict), dict(program.constants), example or b""
    )
    if example is None:
        made._example_inputs = None
    return made


def from_torch(program: Any) -> ExportedProgram:
    """Of a ``torch.export.ExportedProgram``.

    Raises:
        FileError: it has what is not read (effects, custom classes, sub-graphs).
    """
    import torch
    from torch._export.serde import serialize as _serialize

    serialize: Any = _serialize

    if not isinstance(program, torch.export.ExportedProgram):
        raise TypeError(
            "framejit.export.from_torch: expected a torch.export.ExportedProgram, got "
            f"{type(program).__name__}"
        )
    writer = serialize.ExportedProgramSerializer()
    # Only the graph is wanted. (Its constants are checked, not written; torch 2.11
    # writes all of it.)
    left_out = ("state_dict", "constants", "example_inputs")
    known = inspect.signature(writer.serialize).parameters
    options = {f"serialize_{what}": False for what in left_out}
    made = writer.serialize(program, **{k: options[k] for k in options if k in known})
    text = json.dumps(
        serialize._dataclass_to_dict(made.exported_program), cls=serialize.EnumEncoder
    )
    return read_program(
        json.loads(text),
        dict(program.state_dict),
        dict(program.constants),
        program.example_inputs,
    )


def unflatten(program: ExportedProgram) -> Any:
    """A module with the modules of the one that was exported: torch.export's
    ``UnflattenedModule``, made by torch of what `to_torch` gives.

    Sizes are not checked in it.
    """
    import torch

    return torch.export.unflatten(to_torch(program))
