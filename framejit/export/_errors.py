"""What is wrong with a file."""

from __future__ import annotations

__all__ = ["FileError"]


class FileError(RuntimeError):
    """A file that is no exported program, or has something that is not read."""
