"""Programs of their own out of modules: ``torch.export``'s API on FrameJIT's capture.

>>> from framejit.export import Dim, export
>>> batch = Dim("batch")
>>> ep = export(module, (x,), dynamic_shapes={"x": {0: batch}})
>>> ep.module()(other_x)

What it shares with torch.export, and where it differs, is in ``docs/export.md``.
"""

from framejit.errors import ConstraintViolationError
from framejit.export import passes
from framejit.export._archive import load, save
from framejit.export._checks import InputError
from framejit.export._classes import register_dataclass, register_pytree_node
from framejit.export._decompositions import default_decompositions
from framejit.export._draft import Draft, Problem, draft_export
from framejit.export._export import export
from framejit.export._schema import FileError
from framejit.export._torch_bridge import from_torch, unflatten
from framejit.export.dynamic_shapes import (
    AdditionalInputs,
    Dim,
    ShapesCollection,
    dims,
    refine_dynamic_shapes_from_suggested_fixes,
)
from framejit.export.exported_program import (
    ExportedProgram,
    ModuleCallEntry,
    ModuleCallSignature,
)
from framejit.export.graph_signature import ExportGraphSignature

__all__ = [
    "AdditionalInputs",
    "ConstraintViolationError",
    "Dim",
    "Draft",
    "ExportGraphSignature",
    "ExportedProgram",
    "FileError",
    "InputError",
    "ModuleCallEntry",
    "ModuleCallSignature",
    "Problem",
    "ShapesCollection",
    "default_decompositions",
    "dims",
    "draft_export",
    "export",
    "from_torch",
    "load",
    "passes",
    "register_dataclass",
    "register_pytree_node",
    "refine_dynamic_shapes_from_suggested_fixes",
    "save",
    "unflatten",
]
