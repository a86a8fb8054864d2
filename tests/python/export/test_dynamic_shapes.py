"""What sizes may be: specifications, what a program needs of them, and the fixes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from differential import assert_same
from framejit import export as fe
from framejit.export import Dim


def exported(module: nn.Module, *args: Any, shapes: Any, sizes: Any = ()) -> Any:
    program = fe.export(module, args, dynamic_shapes=shapes)
    for call in sizes:
        inputs = [torch.rand(shape) for shape in call]
        assert_same(module(*inputs), program(*inputs), f"at {call}")
    return program


class Module(nn.Module):
    """A module of a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


class Batch(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x, y):
        return self.linear(x).relu() + y.sum(1, keepdim=True), x.view(-1)


def test_one_dim_in_two_inputs():
    batch = Dim("batch")
    program = exported(
        Batch(),
        *(torch.rand(5, 4), torch.rand(5, 2)),
        shapes={"x": {0: batch}, "y": {0: batch}},
        sizes=[((2, 4), (2, 2)), ((9, 4), (9, 2))],
    )
    assert [str(s) for s in program.range_constraints.values()] == ["[2, inf]"] * 2
    with pytest.raises(
        fe.InputError, match=r"x.shape\[0\] == y.shape\[0\] is not true"
    ):
        program(torch.rand(3, 4), torch.rand(4, 2))
    with pytest.raises(fe.InputError, match=r"x.shape\[0\] is 1: expected 2 or more"):
        program(torch.rand(1, 4), torch.rand(1, 2))
    with pytest.raises(fe.InputError, match=r"x.shape\[1\] is 5: expected 4"):
        program(torch.rand(3, 5), torch.rand(3, 2))


@pytest.mark.parametrize(
    "shapes",
    [
        {"x": {0: Dim("b")}, "y": None},
        {"x": {0: Dim("b"), 1: None}},
        ({0: Dim("b")}, None),
        [[Dim("b"), None], [None, Dim.STATIC]],
        {"x": (Dim.DYNAMIC, 2)},
        {"x": {-2: Dim.AUTO(min=2, max=64)}},
    ],
)
def test_ways_to_write_it(shapes):
    class Two(nn.Module):
        def forward(self, x, y):
            return x * 2, y

    exported(
        Two(),
        *(torch.rand(3, 2), torch.rand(3, 2)),
        shapes=shapes,
        sizes=[((7, 2), (3, 2))],
    )


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"z": None}, "'z' is no input of the module"),
        ({"x": {2: Dim("b")}}, "x has no dim 2"),
        ({"x": [Dim("b")]}, "1 dims are given for x, which has 2"),
        ({"x": {0: 4}}, r"x.shape\[0\] is said to be 4, and is 3"),
        ({"x": {0: "b"}}, "expected a Dim, a hint .*got str"),
        ({"x": {0: Dim("b", min=5)}}, "is 3 in the example, which is not in"),
        ({"x": {0: 2 * Dim("b")}}, "is 3, which is no value of 2\\*b"),
        ([None, None], "2 specifications for 1 inputs"),
    ],
)
def test_wrong_specifications(shapes, message):
    class One(nn.Module):
        def forward(self, x):
            return x + 1

    with pytest.raises(fe.ConstraintViolationError, match=message):
        fe.export(One(), (torch.rand(3, 2),), dynamic_shapes=shapes)


B, C = Dim("b"), Dim("c")
FIXES: dict[str, tuple[Any, tuple[torch.Tensor, ...], Any, str]] = {
    "related": (
        lambda x, y: x + y,
        (torch.rand(4, 2), torch.rand(4, 2)),
        (({0: B}, {0: C}),),
        "c = b",
    ),
    "one less": (
        lambda x, y: x[1:] + y,
        (torch.rand(5, 2), torch.rand(4, 2)),
        (({0: B}, {0: C}),),
        "c = b - 1",
    ),
    "twice": (
        lambda x, y: torch.cat([x, x]) + y,
        (torch.rand(3, 2), torch.rand(6, 2)),
        (({0: B}, {0: C}),),
        "c = 2*b",
    ),
    "constant": (
        lambda x: x + torch.ones(6, 1),
        (torch.rand(6, 2),),
        (({0: B},),),
        "b = 6",
    ),
    "even": (
        lambda x: x.reshape(x.shape[0] // 2, 2, -1) * 1.0,
        (torch.rand(6, 3),),
        (({0: B},),),
        "b = 2*_b",
    ),
    "branch": (
        lambda x: x + 1 if x.shape[0] > 10 else x - 1,
        (torch.rand(6, 3),),
        (({0: B},),),
        "b = Dim('b', max=10)",
    ),
    "other branch": (
        lambda x: x + 1 if x.shape[0] > 10 else x - 1,
        (torch.rand(12, 3),),
        (({0: B},),),
        "b = Dim('b', min=11)",
    ),
}


@pytest.mark.parametrize("name", FIXES)
def test_violations_and_their_fixes(name):
    function, inputs, shapes, fix = FIXES[name]
    module = Module(function)
    with pytest.raises(fe.ConstraintViolationError) as raised:
        fe.export(module, inputs, dynamic_shapes=shapes)
    text = str(raised.value)
    assert "test_dynamic_shapes.py" in text
    assert f"  {fix}\n" in text
    refined = fe.refine_dynamic_shapes_from_suggested_fixes(text, shapes)
    program = fe.export(module, inputs, dynamic_shapes=refined)
    assert_same(module(*inputs), program(*inputs), "result")


def test_refining_needs_a_suggestion():
    with pytest.raises(ValueError, match="no suggested fixes"):
        fe.refine_dynamic_shapes_from_suggested_fixes("something else", {})


def test_derived_dims():
    dim = Dim("dim", min=3)
    program = exported(
        Module(lambda x, y, z: (x[1:] + y, torch.cat([x, x]) + z)),
        *(torch.rand(4, 2), torch.rand(3, 2), torch.rand(8, 2)),
        shapes=(({0: dim}, {0: dim - 1}, {0: 2 * dim}),),
        sizes=[((5, 2), (4, 2), (10, 2)), ((9, 2), (8, 2), (18, 2))],
    )
    with pytest.raises(fe.InputError):
        program(torch.rand(5, 2), torch.rand(5, 2), torch.rand(10, 2))
    assert repr(2 * dim + 1) == "2*dim + 1" and (2 * dim + 1).min == 7
    assert repr(Dim("x", min=2, max=5)) == "Dim('x', min=2, max=5)"
    for wrong in (lambda: dim * -1, lambda: dim + 0.5, lambda: Dim("1")):
        with pytest.raises((TypeError, ValueError)):
            wrong()


def test_auto_finds_what_is_one_number():
    program = exported(
        Module(lambda x: x + torch.ones(4, 1)),
        torch.rand(4, 3),
        shapes=(({0: Dim.AUTO, 1: Dim.AUTO},),),
        sizes=[((4, 7),)],
    )
    (x,) = [n for n in program.graph.nodes if n.op == "placeholder"][-1:]
    assert [str(size) for size in x.meta["val"].shape] == ["4", "s0"]
    with pytest.raises(fe.ConstraintViolationError, match="Dim.DYNAMIC, and must be 4"):
        fe.export(
            Module(lambda x: x + torch.ones(4, 1)),
            (torch.rand(4, 3),),
            dynamic_shapes=(({0: Dim.DYNAMIC},),),
        )


def test_equal_sizes_are_two_sizes():
    program = exported(
        Module(lambda x, y: (x.sum(), y * 2)),
        *(torch.rand(4), torch.rand(4)),
        shapes=(({0: Dim.AUTO}, {0: Dim.AUTO}),),
        sizes=[((3,), (5,)), ((8,), (2,))],
    )
    assert len(program.range_constraints) == 2


@pytest.mark.parametrize("size", [0, 1])
def test_sizes_0_and_1_are_programs_of_their_own(size):
    module = Module(lambda x: x * 2)
    for what in (Dim("b"), Dim.DYNAMIC):
        with pytest.raises(fe.ConstraintViolationError, match="sizes 0 and 1 are"):
            fe.export(module, (torch.rand(size),), dynamic_shapes=(({0: what},),))
    program = fe.export(module, (torch.rand(size),), dynamic_shapes=(({0: Dim.AUTO},),))
    assert program.range_constraints == {}


def test_numbers_as_inputs():
    module = Module(lambda x, n: (x.narrow(0, 0, n), n + 1))
    program = fe.export(
        module, (torch.rand(8), 4), dynamic_shapes=((None, Dim.DYNAMIC),)
    )
    x = torch.rand(8)
    for n in (3, 7):
        assert_same(module(x, n), program(x, n), f"n = {n}")
    with pytest.raises(fe.InputError, match="expected an int"):
        program(x, 2.0)
    with pytest.raises(fe.InputError):
        program(x, 9)


def test_shapes_collection():
    x, y = torch.rand(3, 2), torch.rand(3, 2)
    args = ({"x": x, "others": [y]},)
    shapes = fe.ShapesCollection()
    dim = Dim("dim")
    shapes[x] = {0: dim}
    shapes[y][0] = dim
    module = Module(lambda d: d["x"] + d["others"][0])
    program = fe.export(module, args, dynamic_shapes=shapes)
    inputs = {"x": torch.rand(5, 2), "others": [torch.rand(5, 2)]}
    assert_same(module(inputs), program(inputs), "result")
    with pytest.raises(ValueError, match="is no input"):
        shapes.dynamic_shapes(module, (x,))


def test_additional_inputs():
    module = Module(lambda x, n: x * n)
    more = fe.AdditionalInputs()
    more.add((torch.rand(5, 2), 3))
    args = (torch.rand(3, 2), 2)
    shapes = more.dynamic_shapes(module, args)
    assert repr(shapes) == "[{0: Dim.DYNAMIC}, Dim.DYNAMIC]"
    program = fe.export(module, args, dynamic_shapes=(shapes,))
    more.verify(program)
    x = torch.rand(7, 2)
    assert_same(module(x, 9), program(x, 9), "result")


def test_the_dims_of_torch():
    batch = torch.export.Dim("batch", max=64)
    module = Module(lambda x, y: (x[1:], y * 2))
    program = fe.export(
        module,
        (torch.rand(4, 2), torch.rand(9)),
        dynamic_shapes=(({0: batch, 1: torch.export.Dim.STATIC}, {0: 2 * batch + 1}),),
    )
    assert str(next(iter(program.range_constraints.values()))) == "[2, 64]"


def test_what_the_program_does_not_read_is_checked():
    program = fe.export(Module(lambda x, y: x), (torch.rand(3), torch.rand(2, 3)))
    with pytest.raises(fe.InputError, match=r"shape\[1\] is 4: expected 3"):
        program(torch.rand(3), torch.rand(2, 4))
