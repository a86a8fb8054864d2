"""What torch.fx's tracer refuses or gets wrong and ours decides, or records.

Each program is traced, and what comes out computes what the program does, also on
other inputs for which the facts that the graph checks hold; where they do not, it
raises.
"""

from __future__ import annotations

import copy
import pickle
import types

import pytest
import torch
from torch import nn

from fx import refused_programs as programs
from fx.both import ours, theirs, values_equal

TraceError = ours.TraceError


x23 = torch.arange(6.0).view(2, 3) + 1

RECORDED = {
    "len": (programs.length_of, (x23,)),
    "factories": (programs.factories, (x23,)),
    "numbers": (programs.numbers, (x23,)),
    "assigned": (programs.assigned, (x23,)),
    "asserts": (programs.asserts, (x23, x23)),
    "raising": (programs.raising, (x23,)),
    "annotated": (programs.annotated, (x23,)),
    "checked": (programs.checked, (x23,)),
    "module": (programs.InModule(), (x23,)),
}


def programs_graph(program, *args, **kwargs):
    return ours.symbolic_trace(copy.deepcopy(program), *args, **kwargs)


@pytest.mark.parametrize("name", RECORDED)
def test_recorded(name):
    program, inputs = RECORDED[name]
    traced = programs_graph(program)
    traced.graph.lint()
    expected = program(*copy.deepcopy(inputs))
    assert values_equal(traced(*copy.deepcopy(inputs)), expected)
    # Nothing about the example is in it: other sizes work, too.
    wider = [torch.cat([v, v + 1]) for v in inputs]
    assert values_equal(traced(*copy.deepcopy(wider)), program(*copy.deepcopy(wider)))
    if name not in ("annotated", "checked"):
        with pytest.raises(Exception):  # noqa: B017, PT011
            theirs.symbolic_trace(copy.deepcopy(program))


@pytest.mark.parametrize("name", RECORDED)
def test_a_graph_module_is_traced_again(name):
    program, inputs = RECORDED[name]
    once = programs_graph(program)
    twice = ours.symbolic_trace(once)
    assert once.code == twice.code
    assert str(once.graph) == str(twice.graph)
    again = pickle.loads(pickle.dumps(twice))
    expected = program(*copy.deepcopy(inputs))
    assert values_equal(again(*copy.deepcopy(inputs)), expected)


def test_what_is_asserted_is_in_the_graph():
    traced = programs_graph(programs.asserts)
    with pytest.raises(AssertionError, match="assert x.shape\\[0\\] == y.shape"):
        traced(x23, x23[:1])
    with pytest.raises(AssertionError, match="assert x.dim"):
        traced(x23[0], x23[0])
    assert traced.graph.eliminate_dead_code() is False


def test_what_raises_unless_it_holds_is_in_the_graph():
    traced = programs_graph(programs.raising)
    for inputs in (x23[0], x23[:, :2], torch.ones(11, 3), torch.ones(0, 3)):
        with pytest.raises((ValueError, RuntimeError)):
            programs.raising(inputs)
        with pytest.raises(AssertionError, match="refused_programs.py:.* in raising"):
            traced(inputs)
    for program in (programs.handled, programs.both_raise):
        with pytest.raises(TraceError, match="hint: .*example_inputs"):
            programs_graph(program)
    handled = programs_graph(programs.handled, example_inputs=(x23,))
    assert torch.equal(handled(x23), x23 + 1)


def test_a_class_that_was_taken_for_granted_is_checked():
    traced = programs_graph(programs.checked)
    (fact,) = traced.meta["facts"]
    assert fact.startswith("x is a Tensor") and "isinstance(x, torch.Tensor)" in fact
    with pytest.raises(TypeError, match="x is a Tensor .* but it is of class list"):
        traced([1.0])
    assert programs_graph(programs.annotated).meta["facts"][0].startswith("x is no ")


DECIDED = {
    "branch": (programs.by_rows, (x23,), (x23[:1],), (torch.ones(3, 3),)),
    "loops": (programs.loops, (x23, x23), (x23 + 1, x23), (torch.ones(3, 3), x23)),
    "counted": (programs.counted, (2, x23, x23), (3, x23, x23 + 1), (2, x23)),
    "optional": (programs.optional, (x23,), (x23 + 1,), (x23[:1],)),
    "unpacked": (programs.first_and_rest, (x23,), (x23 * 2,), (torch.ones(3, 3),)),
    "dict": (
        programs.nested,
        ({"a": x23, "b": x23},),
        ({"a": x23 + 1, "b": x23},),
        ({"a": x23, "b": x23, "c": x23},),
    ),
    "module": (programs.Branches().eval(), (x23,), (x23 + 1,), (torch.ones(5, 3),)),
}


@pytest.mark.parametrize("name", DECIDED)
def test_decided_by_examples(name):
    program, example, others, against = DECIDED[name]
    with pytest.raises(Exception):  # noqa: B017, PT011
        theirs.symbolic_trace(copy.deepcopy(program))
    with pytest.raises(
        (TraceError, RuntimeError, TypeError), match="refused_programs.py:"
    ):
        programs_graph(program)
    traced = programs_graph(program, example_inputs=example)
    traced.graph.lint()
    for inputs in (example, others):
        assert values_equal(traced(*inputs), program(*inputs))
    if name != "counted":
        assert traced.meta["facts"]
        for fact in traced.meta["facts"]:
            assert "refused_programs.py:" in fact
    if against is not None:
        with pytest.raises(AssertionError, match=r"is .*refused_programs.py:\d+ in "):
            traced(*against)
    # (Nothing of the examples is left in the module.)
    again = pickle.loads(pickle.dumps(traced))
    assert values_equal(again(*others), program(*others))
    assert again.meta["facts"] == traced.meta.get("facts", [])


DATA = {
    "branch": lambda x: x if x.sum() > 0 else -x,
    "item": lambda x: x if x.sum().item() > 0 else -x,
    "nonzero": lambda x: x[0] if len(x.nonzero()) > 2 else x,
    "index": lambda x: [1, 2, 3][x.argmax()],
    "while": lambda x: [i for i in range(int(x.max()))],
}


@pytest.mark.parametrize("name", DATA)
def test_data_decides_nothing(name):
    with pytest.raises((TraceError, RuntimeError), match=f'"{name}": lambda') as caught:
        programs_graph(DATA[name], example_inputs=(x23,))
    assert "test_decided.py:" in str(caught.value)


def test_an_error_of_an_example_is_said():
    def program(x):
        y = x @ x
        return y if y.shape[0] > 1 else x

    with pytest.raises(TraceError, match="needs data or raises"):
        programs_graph(program, example_inputs=(x23,))


def test_other_functions_of_these_names_are_the_programs():
    def len(x):
        return 7

    space = {"int": lambda x: 3, "torch": types.SimpleNamespace(zeros=lambda n: 5)}
    exec("def program(x):\n    return x + int(x) + torch.zeros(x)", space)
    assert programs_graph(space["program"])(1) == 9
    assert programs_graph(lambda x: x + len(x))(1) == 8


def test_nothing_is_changed_by_a_trace():
    call, read = nn.Module.__call__, nn.Module.__getattr__
    code, names = programs.factories.__code__, dict(vars(programs))
    seen = []

    class Tracer(ours.Tracer):
        def is_leaf_module(self, m, path):
            seen.append((nn.Module.__call__ is call, nn.Module.__getattr__ is read))
            return super().is_leaf_module(m, path)

    Tracer().trace(programs.InModule())
    programs_graph(programs.factories)
    assert seen == [(True, True)]
    assert programs.factories.__code__ is code and names == dict(vars(programs))


def test_modules_hooks_are_traced():
    program = programs.InModule()
    program.linear.register_forward_hook(lambda m, args, out: out * 2)
    inner = nn.Sequential(program)
    inner[0].register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    traced = ours.symbolic_trace(inner)
    assert torch.allclose(traced(x23), inner(x23))


def test_traces_nest():
    class Tracer(ours.Tracer):
        def call_module(self, m, forward, args, kwargs):
            self.inner = ours.symbolic_trace(nn.Sequential(nn.ReLU(), nn.Tanh()))
            return super().call_module(m, forward, args, kwargs)

    tracer = Tracer()
    graph = tracer.trace(programs.InModule())
    assert [n.op for n in graph.nodes].count("call_module") == 1
    assert [n.target for n in tracer.inner.graph.nodes][1:3] == ["0", "1"]


def test_classes_of_what_an_example_holds_are_checked():
    def program(values):
        one = values["a"]
        if isinstance(one, (list, tuple)):
            one = one[0]
        return one + 1 if isinstance(one, torch.Tensor | int) else one

    traced = programs_graph(program, example_inputs=({"a": [x23]},))
    assert torch.equal(traced({"a": (x23,)}), x23 + 1)
    with pytest.raises(TypeError, match=r"is a .*list.* but it is of class Tensor"):
        traced({"a": x23})
    with pytest.raises(TypeError, match="but it is of class str"):
        traced({"a": ["text"]})
    plain = programs_graph(program, example_inputs=({"a": x23},))
    with pytest.raises(TypeError, match="is no .*but it is of class list"):
        plain({"a": [x23]})

    class Here:
        pass

    with pytest.raises(TraceError, match="no import leads to"):
        programs_graph(lambda x: isinstance(x, (Here, torch.Tensor)))
