"""Programs that tests start: another Python, which finds this FrameJIT and what
lies beside the tests."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]


def run_python(
    *arguments: object,
    path: Iterable[object] = (),
    environment: dict[str, str | None] | None = None,
    timeout: float = 300,
    **options: Any,
) -> subprocess.CompletedProcess[str]:
    """path: searched besides. environment: changes, None takes a variable out.
    options: of subprocess.run; what is written is captured as text."""
    variables = dict(os.environ)
    variables["PYTHONPATH"] = os.pathsep.join(map(str, (ROOT, HERE, *path)))
    for name, value in (environment or {}).items():
        variables.pop(name, None)
        if value is not None:
            variables[name] = value
    return subprocess.run(
        [sys.executable, *map(str, arguments)],
        env=variables,
        capture_output=True,
        text=True,
        timeout=timeout,
        **options,
    )
