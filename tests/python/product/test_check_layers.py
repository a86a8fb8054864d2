"""The layer check itself: it must be able to fail."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
_spec = importlib.util.spec_from_file_location(
    "check_layers", ROOT / "scripts" / "check_layers.py"
)
check_layers = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(check_layers)


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("frame_hook/a.cpp", '"guards/result.h"'),
        ("guards/a.cpp", "<ATen/ATen.h>"),
        ("bytecode/a.cpp", "<torch/torch.h>"),
        ("bytecode/a.cpp", "<asmjit/asmjit.h>"),
        ("graph/a.cpp", '"backend/backend.h"'),
        ("graph/a.cpp", '"bytecode/capture/capture.h"'),
        ("tests/guards/a.cpp", '"graph/ir/ir.h"'),
        ("framejit/csrc/a.cpp", "<cuda_runtime.h>"),
        ("tests/a.cpp", "<nvrtc.h>"),
        ("guards/expr/a.cpp", '"guards/set/source.h"'),
        ("guards/set/a.h", '"guards/foreign.h"'),
        ("guards/result.h", '"guards/expr/expr.h"'),
        ("bytecode/code/a.cpp", '"bytecode/residual/residual.h"'),
        ("bytecode/objects/a.h", '"bytecode/builtins/builtins.h"'),
        ("bytecode/builtins/a.def", '"bytecode/interpreter/frame.h"'),
        ("graph/tensors/a.cpp", '"graph/tracing/tracer.h"'),
        ("graph/newroom/a.cpp", '"graph/ir/ir.h"'),
        ("bytecode/a.cpp", '"bytecode/code/decoder.h"'),
    ],
)
def test_wrong_include_is_found(path, include):
    text = f"// #pragma once\n#include {include}\n"
    problems = check_layers.check_file(Path(path), text)
    assert len(problems) == 1
    assert problems[0].startswith(f"{path}:2: ")


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("guards/a.cpp", '"frame_hook/py_ref.h"'),
        ("guards/a.cpp", "<asmjit/x86.h>"),
        ("graph/a.cpp", "<ATen/ops/add.h>"),
        ("backend/a.cpp", '"graph/ir/ir.h"'),
        ("framejit/csrc/a.cpp", '"bytecode/capture/capture.h"'),
        ("tests/frame_hook/a.cpp", '"tests/frame_hook/support.h"'),
        ("frame_hook/a.cpp", "<string>"),
        ("guards/emit/a.cpp", '"guards/set/source.h"'),
        ("guards/foreign.h", '"guards/set/guard_set.h"'),
        ("guards/set/a.cpp", '"guards/result.h"'),
        ("bytecode/capture/a.cpp", '"bytecode/code/decoder.h"'),
        ("bytecode/objects/a.cpp", '"bytecode/objects/b.h"'),
        ("graph/joint/a.cpp", '"graph/ir/ir.h"'),
        ("tests/bytecode/code/a.cpp", '"bytecode/capture/capture.h"'),
    ],
)
def test_right_include_passes(path, include):
    assert not check_layers.check_file(
        Path(path), f"// #pragma once\n#include {include}\n"
    )


@pytest.mark.parametrize("line", ['"torch.nn"', "is_numpy()", "_torchdynamo_disable"])
def test_names_of_libraries_are_found(line):
    text = f"int x;\nauto y = {line};\n"
    for folder in ("frame_hook", "guards", "bytecode"):
        (problem,) = check_layers.check_file(Path(folder, "a.cpp"), text)
        assert problem.startswith(f"{folder}/a.cpp:2: ")
    for path in ("libraries/a.cpp", "graph/a.cpp", "tests/bytecode/a.cpp"):
        assert not check_layers.check_file(Path(path), text)
    assert not check_layers.check_file(Path("bytecode/a.cpp"), f"// as {line}\n")


def test_header_needs_pragma_once():
    assert check_layers.check_file(Path("graph/a.h"), "int x;\n")
    assert not check_layers.check_file(Path("graph/a.h"), "#pragma once\n")


def test_every_folder_is_a_room():
    for layer, rooms in check_layers.ROOMS.items():
        folders = {path.name for path in (ROOT / layer).iterdir() if path.is_dir()}
        assert folders <= set(rooms)


def test_the_tree_is_clean():
    problems, count = check_layers.check_tree(ROOT)
    assert not problems
    assert count > 50
