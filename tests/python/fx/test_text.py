"""``to_text`` and ``parse``."""

from __future__ import annotations

import operator

import pytest
import torch

from fx.both import assert_same, ours, rows, theirs
from fx.programs import PROGRAMS, Pair


def round_trip(graph):
    again = ours.Graph.parse(graph.to_text())
    assert rows(again) == rows(graph)
    assert again.to_text() == graph.to_text()
    return again


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    graph = ours.symbolic_trace(PROGRAMS[name][0]()).graph
    again = round_trip(graph)
    assert again.python_code("self").src == graph.python_code("self").src


def test_all_kinds_of_arguments():
    graph = ours.Graph()
    x = graph.placeholder("x", torch.Tensor, 1.5)
    graph.placeholder("*rest")
    graph.call_module("layers.0.weight", (x,))
    graph.get_attr("_0")
    node = graph.call_function(
        operator.add,
        (
            *(x, None, True, 2**80, -3, 0.1, float("inf"), float("-inf"), 1 - 2j),
            *("a 'quoted' # \"text\"\n", ..., torch.float16, torch.device("cuda:1")),
            *(torch.strided, torch.channels_last, slice(x, None, 2), range(1, 5, 2)),
            *([x, [], ()], (x,), {"k": [x], 3: None}, Pair(x, 1), torch.nn.Linear),
        ),
        {"other": x},
    )
    node.meta.update(
        stack_trace='File "a.py", line 1\n  x = "#"', number=3, other=object()
    )
    graph.output((node, x))
    again = round_trip(graph)
    made = list(again.nodes)[4]
    assert made.meta == {"stack_trace": node.stack_trace, "number": 3}
    assert str(made.args) == str(node.args)
    assert list(again.nodes)[0].type is torch.Tensor
    nan = ours.Graph()
    nan.call_function(print, (float("nan"),))
    assert list(ours.Graph.parse(nan.to_text()).nodes)[0].args[0] != 0


def test_names_stay():
    graph = ours.Graph()
    x = graph.placeholder("x")
    node = graph.call_function(torch.relu, (x,), name="add_7")
    node.name = "whatever"
    graph.output(node)
    assert [n.name for n in round_trip(graph).nodes] == ["x", "whatever", "output"]


@pytest.mark.parametrize(
    "text",
    [
        "x = 3",
        "call(x)",
        "x = nothing.x()",
        "y = call_function.torch.relu(x)",
        "f(",
        "x.y = placeholder.x()",
    ],
)
def test_what_is_no_graph_is_refused(text):
    with pytest.raises((ValueError, SyntaxError, AssertionError)):
        ours.Graph.parse(text)


def test_what_has_no_text_is_refused():
    graph = ours.Graph()
    graph.call_function(print, (torch.zeros(2),))
    with pytest.raises(ValueError, match="an argument of print_1"):
        graph.to_text()
    graph = ours.Graph()
    graph.call_function(lambda: 3)
    with pytest.raises(ValueError, match="no import path"):
        graph.to_text()


def test_the_ir_has_the_graph_that_the_python_objects_show():
    graph = theirs.symbolic_trace(lambda x: torch.relu(x) + 1)
    ours_graph = ours.from_torch(graph).graph
    assert_same(graph.graph, ours_graph)
    text = ours_graph._ir_text()
    assert "%1 = torch.relu(%0)" in text and "return (%2)" in text
