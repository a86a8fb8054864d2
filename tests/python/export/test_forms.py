"""Other forms of programs: decomposed, unflattened, moved, compiled; drafts."""

from __future__ import annotations

import io
import math

import pytest
import torch
from torch import nn

from differential import assert_same
from framejit import export as fe
from framejit.export import Dim


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)

    def forward(self, x):
        return nn.functional.gelu(self.norm(self.linear(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x):
        for block in self.blocks:
            x = block(x) + x
        return self.norm(x).softmax(-1) * torch.ones(4)


def program() -> fe.ExportedProgram:
    torch.manual_seed(0)
    return fe.export(Net(), (torch.rand(3, 4),), dynamic_shapes=({0: Dim("b")},))


def targets(made: fe.ExportedProgram) -> set[str]:
    return {str(n.target) for n in made.graph.nodes if n.op == "call_function"}


def test_modules_on_the_way_to_a_node():
    stacks = [
        list(node.meta["nn_module_stack"].values())
        for node in program().graph.nodes
        if "addmm" in node.name
    ]
    kinds = [("", Net), ("blocks.0", Block), ("blocks.0.linear", nn.Linear)]
    expected = [(path, f"{k.__module__}.{k.__qualname__}") for path, k in kinds]
    assert stacks[0] == expected
    assert [path for path, _ in stacks[1]] == ["", "blocks.1", "blocks.1.linear"]
    theirs = torch.export.export(Net(), (torch.rand(3, 4),))
    (node, *_) = [n for n in theirs.graph.nodes if n.name == "linear"]
    kinds_of_torch = [
        (path, kind if isinstance(kind, str) else f"{kind.__module__}.{kind.__name__}")
        for path, kind in node.meta["nn_module_stack"].values()
    ]
    assert [path for path, _ in kinds_of_torch] == [path for path, _ in expected]


def test_decompositions():
    made = program()
    assert made.run_decompositions({}) is made
    core = made.run_decompositions()
    assert "aten.t.default" in targets(made) and "aten.t.default" not in targets(core)
    gelu = torch.ops.aten.gelu.default
    table = fe.default_decompositions()
    assert gelu not in table
    table[gelu] = lambda x, approximate="none": (
        0.5 * x * (1 + torch.erf(x / math.sqrt(2)))
    )
    own = made.run_decompositions(table)
    assert "aten.gelu.default" not in targets(own) and "aten.erf.default" in targets(
        own
    )
    x = torch.rand(6, 4)
    for other in (core, own):
        other.verify()
        assert_same(program()(x), other(x), "result", False)
        with pytest.raises(fe.InputError, match="2 or more"):
            other(torch.rand(1, 4))


def test_programs_that_are_not_functional_yet():
    theirs = torch.export.export(Net(), (torch.rand(3, 4),))
    made = fe.from_torch(theirs)
    assert made.dialect == "TRAINING" and not made.is_functional
    done = made.run_decompositions({})
    assert done.dialect == "ATEN" and done.is_functional
    assert done.graph_signature.buffers_to_mutate


def test_unflattened():
    made = program()
    module = fe.unflatten(made)
    assert isinstance(module.blocks, nn.Module)
    x = torch.rand(5, 4)
    assert_same(program()(x), module(x), "result")


def test_moved():
    class Makes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2))

        def forward(self, x):
            return x * self.weight + torch.zeros(2, device=x.device)

    made = fe.export(Makes(), (torch.ones(2),))
    moved = fe.passes.move_to_device_pass(made, {"cpu": "meta"})
    assert moved.state_dict["weight"].is_meta
    devices = [n.kwargs["device"] for n in moved.graph.nodes if "device" in n.kwargs]
    assert devices == [torch.device("meta")]
    assert moved(torch.ones(2, device="meta")).is_meta
    with pytest.raises(fe.InputError, match="x.device is cpu: expected meta"):
        moved(torch.ones(2))


def test_operators_of_the_program():
    with torch.library._scoped_library("framejit_export_test", "FRAGMENT") as library:
        library.define("twice(Tensor x) -> Tensor")
        library.impl("twice", lambda x: x * 2, "CPU")
        library.impl("twice", lambda x: torch.empty_like(x), "Meta")

        twice = torch.ops.framejit_export_test.twice

        class Uses(nn.Module):
            def forward(self, x):
                return twice(x) + 1

        made = fe.export(Uses(), (torch.ones(2),))
        assert "framejit_export_test.twice.default" in targets(made)
        file = io.BytesIO()
        fe.save(made, file)
        file.seek(0)
        loaded = fe.load(file, custom_ops=["framejit_export_test::twice"])
        assert_same(torch.full((2,), 3.0), loaded(torch.ones(2)), "result")


class Troubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        if x.sum() > 0:
            x = x + 1
        x = x * x.max().item()
        return x


def test_a_draft_lists_everything():
    draft = fe.draft_export(Troubled(), (torch.ones(3),))
    assert draft.program is None and not draft.success
    text = str(draft)
    assert "FJ101" in text and "FJ102" in text
    assert text.count("test_forms.py") >= 2


def test_a_draft_gives_a_program_where_there_is_one():
    class Writes(nn.Module):
        def forward(self, x):
            self.a = x * 2
            self.b = 3
            return x + torch.ones(4, 1)

    draft = fe.draft_export(
        Writes(),
        (torch.rand(4, 2),),
        dynamic_shapes=({0: Dim("rows"), 1: Dim("cols")},),
    )
    kinds = [problem.kind for problem in draft.problems]
    assert kinds == ["shapes", "write", "write"]
    assert "rows = 4" in str(draft)
    assert draft.program is not None
    assert draft.program(torch.rand(4, 7)).shape == (4, 7)
    assert fe.draft_export(Block(), (torch.rand(2, 4),)).success
