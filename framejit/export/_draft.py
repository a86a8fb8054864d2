"""`draft_export`: all that stands in the way of an export, at once."""

from __future__ import annotations

import copy
import dataclasses
import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from framejit._api import explain
from framejit.errors import ConstraintViolationError, FrameJITError
from framejit.export._dims import Dim, DimHint
from framejit.export._export import export
from framejit.export.dynamic_shapes import ShapesCollection
from framejit.export.exported_program import ExportedProgram

__all__ = ["Draft", "Problem", "draft_export"]


@dataclasses.dataclass(frozen=True)
class Problem:
    """What `export` would stop at, or leave out.

    kind: "break" (the capture ends there), "write" (to an object that is no buffer),
        "shapes" (``dynamic_shapes`` allows more than the program), or "error".
    text: what exactly, with the line and the hint.
    """

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


@dataclasses.dataclass(frozen=True)
class Draft:
    """What `draft_export` found.

    problems: in the order of the program.
    program: without what the problems are about: writes left out, named dims that are
        too wide as `Dim.AUTO`. None: the module breaks, so there is none.
    """

    problems: list[Problem]
    program: ExportedProgram | None

    @property
    def success(self) -> bool:
        """Would `export` give the program?"""
        return not self.problems

    def __str__(self) -> str:
        if not self.problems:
            return "nothing stands in the way of an export"
        return "\n".join(f"{i}. {p}" for i, p in enumerate(self.problems, 1))


def _hints(shapes: Any) -> Any:
    """Each named dim as `Dim.AUTO`, with its bounds."""
    if isinstance(shapes, Dim) or type(shapes).__module__.startswith("torch.export"):
        return Dim.AUTO
    if isinstance(shapes, DimHint):
        return Dim.AUTO if shapes.kind.name == "DYNAMIC" else shapes
    if isinstance(shapes, Mapping):
        return {key: _hints(part) for key, part in shapes.items()}
    if isinstance(shapes, (list, tuple)):
        return type(shapes)(_hints(part) for part in shapes)
    return shapes


def _breaks(
    mod: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[Problem]:
    """Runs a copy of the module, compiled piece by piece."""
    try:
        module = copy.deepcopy(mod)
    except Exception:  # a module that cannot be copied runs itself
        module = mod
    leaves, spec = pytree.tree_flatten((args, dict(kwargs)))
    copies = [
        leaf.detach().clone().requires_grad_(leaf.requires_grad)
        if isinstance(leaf, torch.Tensor)
        else leaf
        for leaf in leaves
    ]
    args, kwargs = pytree.tree_unflatten(copies, spec)
    found = explain(module)(*args, **kwargs)
    texts = dict.fromkeys(str(item) for item in found.breaks)
    return [Problem("break", text) for text in texts]


def draft_export(
    mod: nn.Module,
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    dynamic_shapes: Any = None,
) -> Draft:
    """All that `export` would stop at for these arguments, with lines and hints.

    The module is run once (a copy of it, where it can be copied), so that what lies
    behind a break is found, too.
    """
    if isinstance(dynamic_shapes, ShapesCollection):
        dynamic_shapes = dynamic_shapes.dynamic_shapes(mod, args, kwargs)
    problems: list[Problem] = []
    with warnings.catch_warnings(record=True) as written:
        warnings.simplefilter("always")
        try:
            program: ExportedProgram | None = export(
                mod, args, kwargs, dynamic_shapes=dynamic_shapes, strict=False
            )
        except ConstraintViolationError as error:
            problems.append(Problem("shapes", str(error)))
            written.clear()
            try:
                program = export(
                    mod,
                    args,
                    kwargs,
                    dynamic_shapes=_hints(dynamic_shapes),
                    strict=False,
                )
            except FrameJITError as again:
                problems.append(Problem("error", str(again)))
                program = None
        except (FrameJITError, TypeError) as error:
            program = None
            try:
                problems = _breaks(mod, args, kwargs or {})
            except Exception as raised:
                problems = [Problem("error", f"{type(raised).__name__}: {raised}")]
            if not any(str(error) in problem.text for problem in problems):
                first = str(error).splitlines()[0]
                if not any(problem.text.startswith(first) for problem in problems):
                    problems.append(Problem("error", str(error)))
    prefix, suffix = "framejit.export: ", "; the exported program does not"
    problems += [
        Problem("write", text.removeprefix(prefix).removesuffix(suffix))
        for text in (str(item.message) for item in written)
        if text.startswith(prefix)
    ]
    return Draft(problems, program)
