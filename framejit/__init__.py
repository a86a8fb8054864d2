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

import importlib
from typing import Any

# First: it finds the extension.
from framejit import _versions  # noqa: F401

# isort: split
from framejit import testing
from framejit._api import (
    allow_in_graph,
    compile,
    compile_inplace,
    counters,
    disable,
    events,
    explain,
    graph_break,
    inspect,
    is_compiling,
    reset,
    set_logs,
)
from framejit._arguments import list_backends
from framejit._dims import mark_dynamic, mark_static, maybe_mark_dynamic
from framejit._explain import BreakInfo, EntryInfo, Explanation
from framejit._kernels import CudaKernel, Kernels, kernels
from framejit._lowerings import register_lowering
from framejit._script import start_from_environment as _start_from_environment
from framejit._stance import get_stance, set_stance
from framejit.errors import (
    ConstraintViolationError,
    FrameJITError,
    GraphBreakError,
    RecompileError,
)

__version__ = "0.1.0"

__all__ = [
    "BreakInfo",
    "ConstraintViolationError",
    "CudaKernel",
    "EntryInfo",
    "Explanation",
    "FrameJITError",
    "GraphBreakError",
    "Kernels",
    "RecompileError",
    "allow_in_graph",
    "compile",
    "compile_inplace",
    "counters",
    "disable",
    "events",
    "explain",
    "get_stance",
    "graph_break",
    "inspect",
    "is_compiling",
    "kernels",
    "list_backends",
    "mark_dynamic",
    "mark_static",
    "maybe_mark_dynamic",
    "register_lowering",
    "reset",
    "set_logs",
    "set_stance",
    "testing",
]


def __getattr__(name: str) -> Any:
    # Loaded when it is asked for: most programs have no use for it.
    if name == "fx":
        return importlib.import_module("framejit.fx")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


_start_from_environment()
