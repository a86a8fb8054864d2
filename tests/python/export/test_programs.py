"""What an exported program is: its graph, its signature, what it writes, what it refuses.

Each program runs in eager and exported; where torch.export exports it too, signatures
are compared.
"""

from __future__ import annotations

import copy
import operator
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import framejit
from differential import assert_same
from framejit import export as fe


def check(module: nn.Module, *calls: Any, **options: Any) -> fe.ExportedProgram:
    """Exports for the first call, and makes all of them in eager and exported."""
    first, *_ = calls
    plain = copy.deepcopy(module)
    program = fe.export(module, copy.deepcopy(first), **options)
    run = program.module()
    for args in calls:
        mine, theirs = copy.deepcopy(args), copy.deepcopy(args)
        assert_same(plain(*theirs), run(*mine), "result")
        assert_same(theirs, mine, "inputs")
        state = run.state_dict()
        expected = dict(plain.state_dict())
        assert_same(expected, {k: state[k] for k in expected}, "state")
    return program


class Linear(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        return torch.relu(self.linear(x))


def test_the_parts_of_a_program():
    module = Linear()
    program = check(module, (torch.rand(3, 4),), (torch.rand(3, 4),))
    signature = program.graph_signature
    assert [str(spec) for spec in signature.input_specs] == [
        "p_linear_weight: PARAMETER target='linear.weight'",
        "p_linear_bias: PARAMETER target='linear.bias'",
        "x: USER_INPUT",
    ]
    assert signature.user_inputs == ("x",)
    assert dict(program.named_parameters()).keys() == {"linear.weight", "linear.bias"}
    assert program.state_dict["linear.weight"] is module.linear.weight
    kinds = {node.op for node in program.graph.nodes}
    assert kinds == {"placeholder", "call_function", "output"}
    for node in program.graph.nodes:
        if node.op == "call_function":
            assert isinstance(node.target, torch._ops.OpOverload)
            assert node.meta["val"].shape[0] in (3, 4)
            assert "forward" in node.meta["stack_trace"]
    assert [entry.fqn for entry in program.module_call_graph] == ["", "linear"]
    args, kwargs = program.example_inputs
    assert args[0].shape == (3, 4) and kwargs == {}


class Buffers(nn.Module):
    """The example of torch.export's documentation."""

    def __init__(self) -> None:
        super().__init__()
        self.my_parameter = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("my_buffer1", torch.tensor(3.0))
        self.register_buffer("my_buffer2", torch.tensor(4.0))
        self.register_buffer("apart", torch.tensor(5.0), persistent=False)

    def forward(self, x1, x2):
        output = (x1 + self.my_parameter) * self.my_buffer1 + x2 * self.my_buffer2
        self.my_buffer2.add_(1.0)
        return output + self.apart, self.my_buffer2


def test_mutated_buffers():
    call = (torch.tensor(1.0), torch.tensor(2.0))
    program = check(Buffers(), call, call, call)
    signature = program.graph_signature
    assert list(signature.buffers_to_mutate.values()) == ["my_buffer2"]
    assert signature.non_persistent_buffers == ("apart",)
    theirs = torch.export.export(Buffers(), call).run_decompositions({})
    assert [str(s) for s in signature.input_specs] == [
        str(s) for s in theirs.graph_signature.input_specs
    ]
    assert [(s.kind.name, s.target) for s in signature.output_specs] == [
        (s.kind.name, s.target) for s in theirs.graph_signature.output_specs
    ]


class Replaces(nn.Module):
    def __init__(self, swaps: bool) -> None:
        super().__init__()
        self.register_buffer("a", torch.tensor([1.0, 2.0]))
        self.register_buffer("b", torch.tensor([3.0, 4.0]))
        self.swaps = swaps

    def forward(self, x):
        old = self.a
        if self.swaps:
            self.a, self.b = self.b, self.a
        else:
            self.a = self.a + x
        return old, old.view(2, 1), x * self.a


@pytest.mark.parametrize("swaps", [False, True])
def test_replaced_buffers_and_their_old_values(swaps):
    call = (torch.tensor([5.0, 6.0]),)
    check(Replaces(swaps), call, call)


class Writes(nn.Module):
    def forward(self, x, y):
        x.mul_(2)
        y[0] = x.sum()
        return x + y, x.t(), x


def test_written_inputs():
    call = (torch.rand(2, 2), torch.rand(2, 2))
    program = check(Writes(), call, call)
    assert sorted(program.graph_signature.user_inputs_to_mutate.values()) == ["x", "y"]
    x = torch.rand(2, 2)
    with pytest.raises(fe.InputError, match="shares its memory with"):
        program(x, x)


class Train(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.tied = nn.Linear(4, 4)
        self.other = nn.Linear(4, 4)
        self.other.weight = self.tied.weight

    def forward(self, x):
        return self.other(self.norm(self.tied(x)))


def test_training_state_and_tied_parameters():
    program = check(Train(), (torch.rand(3, 4),), (torch.rand(3, 4),))
    assert program.graph_signature.parameters.count("tied.weight") == 1
    assert {"tied.weight", "other.weight"} <= program.state_dict.keys()
    run = program.module()
    assert run.other.weight is run.tied.weight
    run(torch.rand(3, 4)).sum().backward()
    assert run.tied.weight.grad is not None


@dataclass
class Pair:
    first: torch.Tensor
    second: torch.Tensor


fe.register_dataclass(Pair, serialized_type_name="tests.export.Pair")


class Nested(nn.Module):
    def forward(self, x, *args, scale, table, **kwargs):
        a = x * scale + args[0]["k"] - args[1].first
        return {"a": a, "pair": Pair(a + 1, table[1]), "k": (kwargs["z"], 7, None, "s")}


def nested_call() -> tuple[tuple[Any, ...], dict[str, Any]]:
    args = (torch.rand(2), {"k": torch.rand(2)}, Pair(torch.rand(2), torch.rand(2)))
    table = [torch.rand(1), torch.rand(2)]
    return args, {"scale": 2.0, "table": table, "z": torch.rand(3)}


def test_structures_of_inputs_and_outputs():
    args, kwargs = nested_call()
    program = fe.export(Nested(), args, kwargs)
    args, kwargs = nested_call()
    assert_same(Nested()(*args, **kwargs), program(*args, **kwargs), "result")
    turned = dict(reversed(kwargs.items()))
    assert_same(Nested()(*args, **turned), program(*args, **turned), "result")
    names = program.graph_signature.user_inputs
    assert names[:3] == ("x", "args_0_k", "args_1_first")
    theirs = torch.export.export(Nested(), args, kwargs)
    assert names == theirs.graph_signature.user_inputs


def test_calls_that_a_program_is_not_for():
    args, kwargs = nested_call()
    program = fe.export(Nested(), args, kwargs)
    for change, message in (
        ({"scale": 3.0}, "scale: the program was exported for 2.0, got 3.0"),
        ({"scale": 2}, "scale: the program was exported for 2.0, got 2"),
        ({"z": torch.rand(4)}, r"z.shape\[0\] is 4: expected 3"),
        ({"z": torch.rand(3).double()}, "z.dtype is torch.float64: expected"),
        ({"z": torch.rand(3, 1)}, "z has 2 dims"),
        ({"z": 1.0}, "z: expected a tensor, got float"),
        ({"table": (kwargs["table"])[:1]}, "another structure"),
        ({"extra": 1}, "another structure"),
    ):
        with pytest.raises(fe.InputError, match=message):
            program(*args, **(kwargs | change))


def test_inputs_laid_out_otherwise():
    class Flat(nn.Module):
        def forward(self, x):
            return x.view(-1) if x.is_contiguous() else x.sum(0)

    program = fe.export(Flat(), (torch.rand(2, 3),))
    x = torch.rand(3, 2)
    assert_same(x.t().contiguous().view(-1), program(x.t()), "result")


class Constants(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = torch.arange(4.0)

    def forward(self, x):
        return x + self.table + torch.tensor([1.0, 2.0, 3.0, 4.0])


def test_constants_are_inputs():
    program = check(Constants(), (torch.rand(4),), (torch.rand(4),))
    assert program.graph_signature.lifted_tensor_constants == (
        "table",
        "lifted_tensor_0",
    )
    assert program.constants.keys() == {"table", "lifted_tensor_0"}


class Sampler(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5) + torch.rand(4)


def test_random_numbers_are_eagers():
    program = fe.export(Sampler(), (torch.rand(4),))
    x = torch.rand(4)
    torch.manual_seed(5)
    expected = Sampler()(x)
    torch.manual_seed(5)
    assert_same(expected, program(x), "result")


class WithoutGrad(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            y = (x * self.weight).exp()
        return y * self.weight + (x * self.weight).detach()


def test_gradients_stop_where_they_stop_in_eager():
    module = WithoutGrad()
    program = fe.export(module, (torch.rand(3),))
    x = torch.rand(3)
    module(x).sum().backward()
    expected, module.weight.grad = module.weight.grad, None
    run = program.module()
    run(x).sum().backward()
    assert_same(expected, run.weight.grad, "gradient")


def test_one_tensor_in_two_places():
    class Same(nn.Module):
        def forward(self, x, y):
            return x + 1 if x is y else x - y

    x = torch.rand(3)
    program = fe.export(Same(), (x, x))
    assert_same(torch.zeros(3), program(x, x.clone()), "result")


def test_dead_code_and_results_that_are_inputs():
    class Returns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(2, 2)

        def forward(self, x, unused):
            self.linear(x)
            return x, self.linear.weight, x[0]

    program = check(Returns(), (torch.rand(2, 2), torch.rand(3)))
    targets = [node.target for node in program.graph.nodes if node.op[:4] == "call"]
    assert targets == [torch.ops.aten.select.int]


# ---- what is refused, with the line


class Branches(nn.Module):
    def forward(self, x):
        if x.sum() > 0:  # here
            return x
        return -x


class Counts(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1  # here
        return x + self.calls


class Keeps(nn.Module):
    def forward(self, x):
        self.seen = x * 2  # here
        return x


class Hidden(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.state = torch.zeros(2)

    def forward(self, x):
        self.state.add_(x)  # here
        return x


def test_what_hangs_on_an_input_is_no_input():
    class Reads(nn.Module):
        def forward(self, x):
            return x * x.factor

    x = torch.ones(2)
    x.factor = 3.0
    with pytest.raises(framejit.GraphBreakError, match=r"args\[0\].*factor"):
        fe.export(Reads(), (x,))


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Branches(), "FJ101 .*branch on the value"),
        (Counts(), "sets the attribute 'calls' of a Counts"),
        (Keeps(), "sets the attribute 'seen' of a Keeps(.|\n)*register_buffer"),
        (Hidden(), "writes to the tensor state, which is neither"),
    ],
)
def test_what_no_program_can_do(module, message):
    with pytest.raises(framejit.GraphBreakError, match=message) as raised:
        fe.export(module, (torch.ones(2),))
    if not isinstance(module, Hidden):
        assert "test_programs.py" in str(raised.value)


def test_without_strict_writes_are_left_out():
    with pytest.warns(UserWarning, match="sets the attribute 'calls'"):
        program = fe.export(Counts(), (torch.ones(2),), strict=False)
    for _ in range(2):
        assert_same(torch.full((2,), 2.0), program(torch.ones(2)), "result")


def test_arguments():
    class Odd:
        pass

    with pytest.raises(TypeError, match="expected a torch.nn.Module, got function"):
        fe.export(lambda x: x, (torch.ones(2),))
    with pytest.raises(TypeError, match="a tuple of the positional ones, got list"):
        fe.export(Linear(), [torch.rand(3, 4)])
    with pytest.raises(TypeError, match="the input x is a .*Odd(.|\n)*register_data"):
        fe.export(Linear(), (Odd(),))


def test_errors_of_the_program_are_its_own():
    class Raises(nn.Module):
        def forward(self, x):
            raise ValueError("of the program")

    with pytest.raises(
        (ValueError, framejit.GraphBreakError), match="of the program|raises Va"
    ):
        fe.export(Raises(), (torch.ones(2),))


def test_verify():
    program = fe.export(Linear(), (torch.rand(3, 4),))
    program.verify()
    for node in program.graph.nodes:
        if node.target is torch.ops.aten.relu.default:
            node.target = torch.ops.aten.relu_.default
    with pytest.raises(ValueError, match="writes to an argument: aten.relu_"):
        program.verify()


def test_a_program_can_be_compiled_and_exported_again():
    program = fe.export(Linear(), (torch.rand(3, 4),))
    x = torch.rand(3, 4)
    expected = program(x)
    assert_same(expected, framejit.compile(program.module())(x), "compiled", True)
    again = fe.export(program.module(), (x,))
    assert_same(expected, again(x), "exported again")


def test_shared_inputs_are_left_as_they_were():
    x = torch.rand(3, 4)
    framejit.mark_dynamic(x, 0)
    before = dict(x.__dict__)
    fe.export(Linear(), (x,))
    assert x.__dict__ == before
    assert not any(isinstance(leaf, int) for leaf in pytree.tree_leaves(x.shape[0:0]))


def test_numbers_that_are_computed():
    class Sizes(nn.Module):
        def forward(self, x):
            return x.shape[0] * 2, x.view(-1).shape[0]

    program = fe.export(
        Sizes(), (torch.rand(3, 4),), dynamic_shapes=({0: fe.Dim("n")},)
    )
    assert program(torch.rand(5, 4)) == (10, 20)
    targets = {node.target for node in program.graph.nodes if node.op[:4] == "call"}
    assert operator.mul in targets
