#!/usr/bin/env python3
"""Fails when an #include points the wrong way between the layers.

The layers and what each may include are the table below (docs/architecture.md
says why). Also checked: headers have ``#pragma once``, nothing includes CUDA,
and the lower half never sees LibTorch.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LAYERS = ("frame_hook", "guards", "bytecode", "graph", "backend", "framejit")
LIBTORCH = ("torch/", "ATen/", "c10/", "caffe2/")

# folder -> (our folders it may include, outside libraries it may include)
ALLOWED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "frame_hook": (("frame_hook",), ()),
    "guards": (("frame_hook", "guards"), ("asmjit/",)),
    "bytecode": (("frame_hook", "guards", "bytecode"), ()),
    "graph": (("frame_hook", "guards", "graph"), LIBTORCH),
    "backend": (("frame_hook", "guards", "graph", "backend"), ("asmjit/", *LIBTORCH)),
    "framejit": (LAYERS, ("asmjit/", *LIBTORCH)),
}
RESTRICTED = ("asmjit/", *LIBTORCH)
CUDA = re.compile(r"^(cuda|cuda_\w+|nvrtc|cublas\w*|cudnn\w*)\.h$")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.MULTILINE)
SUFFIXES = {".h", ".cpp", ".def", ".inc"}


def layer_of(path: Path) -> str | None:
    """The layer a file belongs to; its tests belong to it too."""
    parts = path.parts
    if parts[0] == "tests":
        parts = parts[1:]
    return parts[0] if len(parts) > 1 and parts[0] in ALLOWED else None


def check_file(path: Path, text: str) -> list[str]:
    """Problems of one file, given by its path within the repository."""
    layer = layer_of(path)
    problems = []
    if path.suffix == ".h" and "#pragma once" not in text:
        problems.append(f"{path}: no #pragma once")
    for match in INCLUDE.finditer(text):
        name = match.group(1)
        where = f"{path}:{text.count(chr(10), 0, match.start(1)) + 1}"
        if CUDA.match(name):
            problems.append(f"{where}: includes {name}; CUDA is reached by dlopen only")
        if layer is None:
            continue
        ours, outside = ALLOWED[layer]
        folder = name.split("/")[0]
        if folder in LAYERS and "/" in name and folder not in ours:
            problems.append(f"{where}: {layer} may not include {name}")
        if name.startswith(RESTRICTED) and not name.startswith(outside or ("\0",)):
            problems.append(f"{where}: {layer} may not include {name}")
    return problems


def check_tree(root: Path) -> tuple[list[str], int]:
    """Problems of all sources under `root`, and how many files were read."""
    problems: list[str] = []
    count = 0
    for folder in (*LAYERS, "tests"):
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                count += 1
                text = path.read_text(encoding="utf-8")
                problems += check_file(path.relative_to(root), text)
    return problems, count


def main() -> int:
    """Entry point: prints the problems, or one line that all is well."""
    root = Path(__file__).resolve().parent.parent
    problems, count = check_tree(root)
    for problem in problems:
        print(problem)
    if not problems:
        print(f"layers: {count} files include only what their layer may")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
