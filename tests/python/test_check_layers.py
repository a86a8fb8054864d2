"""The layer check itself: it must be able to fail."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
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
        ("graph/a.cpp", '"bytecode/capture.h"'),
        ("tests/guards/a.cpp", '"graph/ir.h"'),
        ("framejit/csrc/a.cpp", "<cuda_runtime.h>"),
        ("tests/a.cpp", "<nvrtc.h>"),
    ],
)
def test_wrong_include_is_found(path, include):
    text = f"// comment\n#include {include}\n"
    problems = check_layers.check_file(Path(path), text)
    assert len(problems) == 1
    assert problems[0].startswith(f"{path}:2: ")


@pytest.mark.parametrize(
    ("path", "include"),
    [
        ("guards/a.cpp", '"frame_hook/py_ref.h"'),
        ("guards/a.cpp", "<asmjit/x86.h>"),
        ("graph/a.cpp", "<ATen/ops/add.h>"),
        ("backend/a.cpp", '"graph/ir.h"'),
        ("framejit/csrc/a.cpp", '"bytecode/capture.h"'),
        ("tests/frame_hook/a.cpp", '"tests/frame_hook/support.h"'),
        ("frame_hook/a.cpp", "<string>"),
    ],
)
def test_right_include_passes(path, include):
    assert not check_layers.check_file(Path(path), f"#include {include}\n")


def test_header_needs_pragma_once():
    assert check_layers.check_file(Path("graph/a.h"), "int x;\n")
    assert not check_layers.check_file(Path("graph/a.h"), "#pragma once\n")


def test_the_tree_is_clean():
    problems, count = check_layers.check_tree(ROOT)
    assert not problems
    assert count > 50
