"""Classes that hold inputs and results: made known to torch's pytrees, which both
exports use."""

from __future__ import annotations

import torch
from torch.utils._pytree import register_pytree_node

__all__ = ["register_dataclass", "register_pytree_node"]


def register_dataclass(
    cls: type[object], *, serialized_type_name: str | None = None
) -> None:
    """Instances of a dataclass may be inputs and results; their fields are parts.

    serialized_type_name: what files call it. None: it goes into no file.
    """
    torch.export.register_dataclass(cls, serialized_type_name=serialized_type_name)
