"""Exceptions of FrameJIT."""

from __future__ import annotations

__all__ = [
    "ConstraintViolationError",
    "FrameJITError",
    "GraphBreakError",
    "RecompileError",
]


class FrameJITError(RuntimeError):
    """Base class of the errors FrameJIT itself raises."""


class GraphBreakError(FrameJITError):
    """A function compiled with ``fullgraph=True`` cannot be captured whole.

    The message names the reason's stable id (explained under ``docs/breaks/``),
    the user's file and line, and one hint.
    """


class RecompileError(FrameJITError):
    """A call that no entry answers must not be compiled.

    That is so under ``set_stance("fail_on_recompile")``, and for functions
    compiled with ``fullgraph=True`` when the recompile limit is reached.

    The message names the function and, for each entry, the guard that failed.
    """


class ConstraintViolationError(FrameJITError):
    """A dimension marked with `mark_dynamic` is one number after all.

    Raised by functions compiled with ``fullgraph=True``.
    """
