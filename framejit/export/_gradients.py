"""What the program does to gradients that no graph of operators has."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from framejit.errors import GraphBreakError

__all__ = ["check_gradients"]

# (what a capture has read where the program does it, in words, what to do instead)
_RULES = (
    (
        re.compile(r"FunctionMeta\.apply is unchanged"),
        "has a torch.autograd.Function, whose backward no exported program has",
        "write it with operators, or freeze the parameters (requires_grad_(False))",
    ),
    (
        re.compile(r".*function \w*register_\w*hook\.__globals__.*"),
        "registers a hook of gradients, which no exported program has",
        "register it on the result of the program",
    ),
)


def check_gradients(facts: Iterable[Any]) -> None:
    """For programs that gradients may be asked of.

    facts: `_C.ExportCapture.facts`.
    Raises GraphBreakError: eager's gradients would be others.
    """
    for _, _, text, place, *_ in facts:
        for pattern, what, hint in _RULES:
            if pattern.fullmatch(text):
                at = "\n  at {}:{} in {}".format(*place) if place else ""
                raise GraphBreakError(f"the program {what}{at}\n  hint: {hint}")
