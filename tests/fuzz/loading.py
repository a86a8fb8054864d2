"""A program in a namespace of its own, behind the prelude that all share."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import torch

HERE = Path(__file__).parent
_PRELUDE = compile((HERE / "prelude.py").read_text(), str(HERE / "prelude.py"), "exec")


class Mismatch(AssertionError):
    """Compiled and eager differ."""


def load(code: types.CodeType, silent: bool = False) -> dict[str, Any]:
    names: dict[str, Any] = {"__name__": "fuzz_program"}
    exec(_PRELUDE, names)
    names["SILENT"] = silent
    exec(code, names)
    return names


def seed_all(number: int) -> None:
    # torch.manual_seed formats a stack for CUDA each time.
    torch.random.default_generator.manual_seed(number)
