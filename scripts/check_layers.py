#!/usr/bin/env python3
"""Fails when an #include points the wrong way between layers, or rooms of one.

The layers and what each may include, and the order of the rooms within a layer,
are the tables below (docs/architecture.md says why). Also checked: headers have
``#pragma once``, nothing includes CUDA, the lower half never sees LibTorch, and
what interprets programs names no library that programs use: those register rows
(bytecode/library/library.h).
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

LAYERS = (
    "frame_hook",
    "guards",
    "bytecode",
    "libraries",
    "codegen",
    "graph",
    "backend",
    "framejit",
)
LIBTORCH = ("torch/", "ATen/", "c10/", "caffe2/")

# folder -> (our folders it may include, outside libraries it may include)
ALLOWED: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "frame_hook": (("frame_hook",), ()),
    "guards": (("frame_hook", "guards"), ("asmjit/",)),
    "bytecode": (("frame_hook", "guards", "bytecode"), ()),
    "libraries": (("frame_hook", "guards", "bytecode", "libraries"), ()),
    "codegen": (("frame_hook", "guards", "codegen"), ("asmjit/",)),
    "graph": (("frame_hook", "guards", "graph"), LIBTORCH),
    "backend": (
        ("frame_hook", "guards", "codegen", "graph", "backend"),
        ("asmjit/", *LIBTORCH),
    ),
    "framejit": (LAYERS, ("asmjit/", *LIBTORCH)),
}
# folder -> its rooms in order: each may include those before it. A room is a
# folder or, directly in the layer, a file by its name without the suffix.
ROOMS: dict[str, tuple[str, ...]] = {
    "guards": (
        *("result", "break", "known_objects"),
        *("expr", "set", "emit", "foreign"),
    ),
    "bytecode": (
        *("code", "library", "residual", "objects"),
        *("builtins", "interpreter", "capture"),
    ),
    "codegen": ("scalar", "loops", "kernels", "schedule", "legalise", "x86", "cuda"),
    "graph": (*("tensors", "ir", "fx", "ops", "passes", "tracing", "joint", "export"),),
}
# Folders whose code names none of these.
NAMELESS = ("frame_hook", "guards", "bytecode", "codegen")
LIBRARY_NAMES = re.compile(r"torch|dynamo|numpy", re.IGNORECASE)
NO_CODE = re.compile(r"//.*|^\s*#\s*include.*")
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


def room_of(path: Path) -> tuple[str, str] | None:
    """Layer and room of a source; tests may use every room of their layer."""
    if len(path.parts) < 2 or path.parts[0] not in ROOMS:
        return None
    room = path.parts[1] if len(path.parts) > 2 else path.stem
    return path.parts[0], room


def check_rooms(path: Path, name: str) -> str | None:
    """What is wrong with including `name`, a path of ours, in `path`."""
    here, there = room_of(path), room_of(Path(name))
    if not here or not there or here[0] != there[0]:
        return None
    rooms = ROOMS[here[0]]
    for room in (here[1], there[1]):
        if room not in rooms:
            return f"{here[0]}/{room} is no room of {here[0]}"
    if rooms.index(there[1]) <= rooms.index(here[1]):
        return None
    return f"the room {here[0]}/{here[1]} may not include {name}"


def check_names(path: Path, text: str) -> list[str]:
    """Names of libraries in code (comments may say why a thing is there)."""
    if path.parts[0] not in NAMELESS:
        return []
    return [
        f"{path}:{number}: {path.parts[0]} may not name {found.group()}"
        for number, line in enumerate(text.splitlines(), 1)
        if (found := LIBRARY_NAMES.search(NO_CODE.sub("", line)))
    ]


def check_file(path: Path, text: str) -> list[str]:
    """Problems of one file, given by its path within the repository."""
    layer = layer_of(path)
    problems = check_names(path, text)
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
        if wrong := check_rooms(path, name):
            problems.append(f"{where}: {wrong}")
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
        print(f"layers: {count} files include only what their layer and room may")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
