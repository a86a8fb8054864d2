"""``symbolic_trace`` by proxies, on both sides."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from fx import programs
from fx.both import SIDES, assert_same, ours, plain, run_modules, theirs
from fx.programs import PROGRAMS, keywords


def traced(program, **kwargs):
    """(A trace may put constants into its root.)"""
    return [side.symbolic_trace(copy.deepcopy(program), **kwargs) for side in SIDES]


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    make, inputs = PROGRAMS[name]
    program = make()
    modules = traced(program)
    assert_same(*(module.graph for module in modules))
    assert plain(modules[0].code) == plain(modules[1].code)
    if name != "operators":
        run_modules(modules, *inputs)
    assert type(modules[0]).__name__ == type(modules[1]).__name__


def test_keyword_only_parameters():
    left, right = traced(keywords)
    x = torch.ones(2)
    assert torch.equal(right(x, scale=3), left(x, 3))
    assert [n.name for n in right.graph.nodes] == [n.name for n in left.graph.nodes]


def test_stars():
    def stars(x, *args, **kwargs):
        return x + args[0] * kwargs["k"]

    modules = traced(stars)
    assert_same(*(module.graph for module in modules))
    for module in modules:
        assert module(1, 2, k=3) == 7


def test_concrete_arguments():
    def program(x, how, y=None):
        return x + 1 if how == "up" else x - 1

    modules = traced(program, concrete_args={"how": "up", "y": None})
    assert_same(*(module.graph for module in modules))
    run_modules(modules, torch.ones(2), "up", None)
    for module in modules:
        with pytest.raises(AssertionError, match="how has been specialized"):
            module(torch.ones(2), "down", None)


def test_concrete_arguments_that_are_nested():
    def program(x, more):
        return {"sum": x + more["a"][0], "difference": more["a"][1] - more["b"]}

    modules = []
    for side in SIDES:
        PH = theirs._symbolic_trace.PH if side is theirs else ours.PH
        more = {"a": [PH, PH], "b": PH}
        modules.append(side.symbolic_trace(program, concrete_args={"more": more}))
    assert plain(modules[0].code) == plain(modules[1].code)
    x = torch.ones(2)
    run_modules(modules, x, {"a": [x, x * 2], "b": x * 3})
    for again in (copy.deepcopy(modules[1]), modules[1].to_torch()):
        run_modules([modules[1], again], x, {"a": [x, x * 2], "b": x * 3})
    flat = modules[1].graph.process_inputs(x, {"a": [x, x * 2], "b": x * 3})
    assert len(flat) == 4
    assert "sum" in ours.Interpreter(modules[1]).run(x, {"a": [x, x], "b": x})


ERRORS = {
    "branch": lambda x: x if x.sum() > 0 else -x,
    "loop": lambda x: [y for y in x],
    "while": lambda x: exec("while x: pass", {"x": x}),
    "index": lambda x: [1, 2, 3][x],
    "key": lambda x: x.view({x: 1}),
    "object": lambda x: x.view(object()),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors(name):
    kinds = []
    for side in SIDES:
        with pytest.raises(Exception) as caught:  # noqa: PT011
            side.symbolic_trace(ERRORS[name])
        kinds.append(caught.type.__name__)
        if side is ours and name != "while":
            assert "test_tracing.py:" in str(caught.value)
            assert f'"{name}": lambda' in str(caught.value)
    assert kinds[0] == kinds[1] or name == "index"


def test_nothing_stays_patched_after_an_error():
    before = nn.Module.__call__, nn.Module.__getattr__
    with pytest.raises(ours.TraceError):
        ours.symbolic_trace(ERRORS["branch"])
    assert before == (nn.Module.__call__, nn.Module.__getattr__)


def test_leaves_and_calls_are_the_tracers_choice():
    def tracer_of(fx):
        seen = []

        class Tracer(fx.Tracer):
            def is_leaf_module(self, m, path):
                seen.append(path)
                return isinstance(m, programs.Block) or super().is_leaf_module(m, path)

            def call_module(self, m, forward, args, kwargs):
                if isinstance(m, nn.ReLU):
                    return args[0].relu()
                return super().call_module(m, forward, args, kwargs)

        tracer = Tracer()
        root = programs.SmallResNet()
        graph = tracer.trace(root)
        return graph, seen

    (left, left_seen), (right, right_seen) = map(tracer_of, SIDES)
    assert_same(left, right)
    assert left_seen == right_seen


def test_places_are_recorded_where_they_are_asked_for():
    class Tracer(ours.Tracer):
        record_stack_traces = True

    graph = Tracer().trace(programs.Transformer())
    node = graph.find_nodes(op="call_method", target="chunk")[0]
    assert "programs.py" in node.stack_trace and ".chunk(3" in node.stack_trace
    dropout = (
        Tracer()
        .trace(programs.functions)
        .find_nodes(op="call_function", target=torch.nn.functional.dropout)
    )
    assert "F.dropout(F.linear(x, weight)" in dropout[0].stack_trace
    stack = node.meta["nn_module_stack"]
    assert list(stack) == ["layers.0", "layers.0.attention"]


def test_shapes_of_parameters():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 3))

        def forward(self, x):
            return x + 1 if self.weight.shape[0] == 2 else x

    for side in SIDES:
        graph = side.Tracer(param_shapes_constant=True).trace(Net())
        assert [n.op for n in graph.nodes][-2:] == ["call_function", "output"]


def test_buffers_are_read_where_the_tracer_says_so():
    def program(fx):
        class Buffers(fx.Tracer):
            proxy_buffer_attributes = True

        return Buffers().trace(programs.Transformer())

    assert_same(*map(program, SIDES))


def wrapped_helper(x, y):
    if x.sum() > 0:
        return x + y
    return x - y


ours.wrap("wrapped_helper")
theirs.wrap("wrapped_helper")


def calls_wrapped(x):
    return wrapped_helper(x, 1) * 2


def test_wrapped_functions_are_nodes():
    before = wrapped_helper
    modules = traced(calls_wrapped)
    for module in modules:
        assert wrapped_helper is before
        node = list(module.graph.nodes)[1]
        assert node.target is before and node.meta["is_wrapped"]
    run_modules(modules, torch.ones(2))
    again = ours.symbolic_trace(calls_wrapped)
    assert "wrapped_helper" in again.code
    with pytest.raises(NotImplementedError, match="top level"):
        ours.wrap("len")


def test_proxies_by_hand():
    def program(fx):
        graph = fx.Graph()
        x = fx.Proxy(graph.placeholder("x"))
        y = torch.relu(x + 1).view(2, -1)[0]
        with pytest.raises(ValueError, match="control flow"):
            bool(y)
        graph.output((y.node, x.shape.node))
        return graph

    left, right = map(program, SIDES)
    assert_same(left, right)


def test_proxies_of_two_tracers_do_not_mix():
    for fx in SIDES:
        x = fx.Proxy(fx.Graph().placeholder("x"))
        y = fx.Proxy(fx.Graph().placeholder("y"))
        with pytest.raises(RuntimeError, match="multiple different tracers"):
            torch.add(x, y)


def test_unpacking_into_many_names():
    names = ", ".join(f"a{i}" for i in range(300))
    space: dict = {}
    exec(f"def program(x):\n    {names} = x\n    return a299, a0", space)
    left, right = traced(space["program"])
    assert_same(left.graph, right.graph)
    assert right(list(range(300))) == (299, 0)


def test_a_graph_module_is_traced_again():
    for fx in SIDES:
        once = fx.symbolic_trace(programs.SmallResNet())
        twice = fx.symbolic_trace(once)
        assert [n.target for n in once.graph.nodes] == [
            n.target for n in twice.graph.nodes
        ]
        assert once.code == twice.code
