"""FrameJIT: a bytecode-level JIT for PyTorch that lives inside CPython.

>>> import torch, framejit
>>> @framejit.compile
... def f(x):
...     return x.cos().sin()
>>> f(torch.zeros(2))
tensor([0.8415, 0.8415])

Argument names, the backend contract and words such as *guard*, *graph break*
and *recompile* mean what they mean in ``torch.compile``.
"""

from __future__ import annotations

from framejit._api import (
    compile,
    counters,
    disable,
    events,
    explain,
    graph_break,
    inspect,
    is_compiling,
    list_backends,
    reset,
    set_logs,
)
from framejit._explain import BreakInfo, EntryInfo, Explanation
from framejit.errors import FrameJITError, GraphBreakError

__version__ = "0.1.0"

__all__ = [
    "BreakInfo",
    "EntryInfo",
    "Explanation",
    "FrameJITError",
    "GraphBreakError",
    "compile",
    "counters",
    "disable",
    "events",
    "explain",
    "graph_break",
    "inspect",
    "is_compiling",
    "list_backends",
    "reset",
    "set_logs",
]
