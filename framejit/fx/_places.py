"""Places in the user's program, as stack traces name them."""

from __future__ import annotations

import re
from typing import NamedTuple

_FRAME = re.compile(r'File "(.+)", line (\d+), in (.+)')


class Place(NamedTuple):
    """One frame of a stack trace."""

    file: str
    line: str
    name: str
    code: str


def innermost(stack_trace: str | None) -> Place | None:
    """The frame in which a node was made, of ``node.stack_trace``."""
    if not stack_trace:
        return None
    lines = [line.strip() for line in stack_trace.strip().split("\n")]
    for at in range(len(lines) - 2, -1, -1):
        if found := _FRAME.fullmatch(lines[at]):
            return Place(found[1], found[2], found[3], lines[at + 1])
    return None
