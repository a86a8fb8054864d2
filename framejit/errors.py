"""Exceptions of FrameJIT."""

from __future__ import annotations

__all__ = ["FrameJITError", "GraphBreakError"]


class FrameJITError(RuntimeError):
    """Base class of the errors FrameJIT itself raises."""


class GraphBreakError(FrameJITError):
    """A function compiled with ``fullgraph=True`` cannot be captured whole.

    The message names the reason's stable id (explained under ``docs/breaks/``),
    the user's file and line, and one hint.
    """
