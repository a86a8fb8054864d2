"""Every architecture of tests/python/modules: exported, saved, loaded here and by
torch.export, and run at other sizes, equal to eager."""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import framejit
from framejit import export as fe
from framejit.export import Dim

sys.path.insert(0, str(Path(__file__).parents[1] / "modules"))

from architectures import ARCHITECTURES

# Neither is one for torch.export.
REFUSED = {
    "ctc": "ctc_loss",  # reads the lengths
    "model_output": "ClassifierOutput",  # a class that no pytree knows
}
# Without strict=False: what is written to an object that is no buffer.
WRITES = {
    *("annotated_transformer", "context_managers", "dcgan_spectral_norm"),
    *("dict_batches", "lazy_tables", "neural_ode", "ssim", "stateful_module", "tcn"),
}
# With every size Dim.AUTO: a size decides how an intermediate result lies in memory,
# or which operator is called, and with that has a range that 2 and 5 are not in.
NARROW = {"mamba_block", "nerf", "yolo_head"}
# `0[:, :, -n:]` raises a TypeError, which the program catches: not with a symbol. And
# `int(n / m)` rounds to one number.
STATIC = {"wavenet", "swin"}


def made(name: str) -> tuple[Any, Any]:
    torch.manual_seed(0)
    module, inputs = ARCHITECTURES[name]()
    return module.eval(), inputs


def copied(args: Any) -> Any:
    return pytree.tree_map(
        lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, args
    )


def run(module: Any, args: Any) -> Any:
    torch.manual_seed(1)
    with torch.no_grad():
        return pytree.tree_leaves(module(*copied(args)))


def same(expected: Any, found: Any) -> None:
    assert len(expected) == len(found)
    for one, other in zip(expected, found, strict=True):
        if isinstance(one, torch.Tensor):
            torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5, equal_nan=True)
        else:
            assert one == other


def exported(module: Any, args: Any, shapes: Any, strict: bool = False) -> Any:
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return fe.export(module, copied(args), dynamic_shapes=shapes, strict=strict)


def saved(program: Any) -> io.BytesIO:
    file = io.BytesIO()
    fe.save(program, file)
    file.seek(0)
    return file


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_architecture(name: str) -> None:
    module, inputs = made(name)
    args = inputs(3)
    if name in REFUSED:
        with pytest.raises(framejit.GraphBreakError, match=REFUSED[name]):
            exported(module, args, None)
        return
    if name in WRITES:
        with pytest.raises(framejit.GraphBreakError, match="exported program cannot"):
            exported(module, args, None, strict=True)
    program = exported(module, args, None, strict=name not in WRITES)
    expected = run(made(name)[0], args)
    same(expected, run(program.module(), args))
    same(expected, run(fe.load(saved(program)).module(), args))
    same(expected, run(torch.export.load(saved(program)).module(), args))


@pytest.mark.parametrize("name", [n for n in ARCHITECTURES if n not in REFUSED])
def test_architecture_at_other_sizes(name: str) -> None:
    if name in STATIC:
        pytest.skip("its program depends on the sizes being known")
    module, inputs = made(name)
    args = inputs(3)
    shapes = pytree.tree_map(
        lambda leaf: (
            {dim: Dim.AUTO for dim in range(leaf.dim())}
            if isinstance(leaf, torch.Tensor)
            else None
        ),
        args,
    )
    program = exported(module, args, shapes)
    loaded = fe.load(saved(program))
    for batch in (3, 2, 5):
        other = inputs(batch)
        if name in NARROW and batch != 3:
            continue
        expected = run(made(name)[0], other)
        same(expected, run(program.module(), other))
        same(expected, run(loaded.module(), other))
