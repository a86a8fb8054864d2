"""Who keeps whom: graphs, nodes and modules, collected and held."""

from __future__ import annotations

import copy
import gc
import pickle
import sys
import threading
import weakref

import pytest
import torch

from framejit import fx


def graph_of(count: int = 5):
    graph = fx.Graph()
    x = graph.placeholder("x")
    for _ in range(count):
        x = graph.call_function(torch.relu, (x,))
    graph.output(x)
    return graph


class Marker:
    pass


def test_a_graph_goes_with_its_nodes_and_all_they_hold():
    graph, marker = graph_of(), Marker()
    node = graph.call_function(print, (marker, [marker], slice(marker), {"k": marker}))
    node.meta["marker"] = node.marker = marker
    node.kwargs = {"out": marker}
    assert node.args and node.kwargs and node.users is not None
    # Cycles through all that a node holds.
    marker.graph, marker.node, marker.users = graph, node, node.users
    marker.iterator = iter(graph.nodes)
    next(marker.iterator)
    seen = [weakref.ref(graph), weakref.ref(node), weakref.ref(marker)]
    del graph, node, marker
    gc.collect()
    assert [ref() for ref in seen] == [None, None, None]


def test_a_node_keeps_its_graph():
    node = list(graph_of().nodes)[2]
    gc.collect()
    assert node.name == "relu_1" and node.next.name == "relu_2"
    assert len(node.graph.nodes) == 7
    users = list(graph_of().nodes)[2].users
    gc.collect()
    assert [user.name for user in users] == ["relu_2"]
    iterator = iter(graph_of().nodes)
    gc.collect()
    assert len(list(iterator)) == 7


def test_one_object_a_node():
    graph = graph_of()
    nodes = list(graph.nodes)
    assert all(a is b for a, b in zip(nodes, graph.nodes, strict=True))
    assert nodes[1].args[0] is nodes[0] and list(nodes[0].users)[0] is nodes[1]
    copied = copy.deepcopy(graph)
    assert list(copied.nodes)[1] is list(copied.nodes)[0].next


def test_erased_nodes_live_as_long_as_they_are_held():
    graph = graph_of()
    nodes = list(graph.nodes)
    graph.erase_node(nodes.pop())
    last = nodes.pop()
    seen = weakref.ref(last)
    graph.erase_node(last)
    assert seen() is last and last.name == "relu_4"
    del last
    gc.collect()
    assert seen() is None
    # Held by others that were erased behind it: until those go.
    for node in reversed(nodes[2:]):
        graph.erase_node(node)
    held = nodes[2]
    refs = [weakref.ref(node) for node in nodes[3:]]
    del nodes, node
    gc.collect()
    assert held.next.op == "root" and all(ref() is None for ref in refs)


def test_a_cleared_graph_is_no_crash():
    """What runs while the collector takes a graph apart sees nodes that are gone."""
    seen = []

    class Last:
        def __del__(self):
            for look in (
                lambda: self.node.name,
                lambda: list(self.node.users),
                lambda: self.node.next,
                lambda: len(self.graph.nodes),
                lambda: self.node.args,
                lambda: list(self.iterator),
            ):
                try:
                    seen.append(look())
                except RuntimeError as error:
                    seen.append(error)

    graph = graph_of()
    last = Last()
    last.node, last.graph = list(graph.nodes)[2], graph
    last.iterator = iter(graph.nodes)
    last.node.meta["last"] = last
    del graph, last
    gc.collect()
    assert len(seen) == 6


def test_finalizers_may_edit():
    graph = graph_of()
    nodes = list(graph.nodes)

    class Eraser:
        def __del__(self):
            if not nodes[-1]._erased:
                graph.erase_node(nodes[-1])

    for change in (
        lambda node: setattr(node, "args", (nodes[0],)),
        lambda node: node.replace_all_uses_with(nodes[0]),
        lambda node: node.update_kwarg("k", 1),
    ):
        node = nodes[2]
        node.args = (Eraser(), nodes[1])
        assert node.args
        change(node)
        assert graph._check_uses() == ""


def test_callbacks_may_edit():
    graph = graph_of(0)
    x = next(iter(graph.nodes))
    users = [graph.call_function(torch.relu, (x,)) for _ in range(20)]
    y = graph.placeholder("y")

    def erase_others(user):
        for other in users:
            if other is not user and not other._erased and not other.users:
                graph.erase_node(other)
        return True

    x.replace_all_uses_with(y, erase_others)
    assert graph._check_uses() == ""


def test_references_are_given_back():
    graph, marker = graph_of(), Marker()
    node = list(graph.nodes)[2]
    before = sys.getrefcount(marker), sys.getrefcount(node), sys.getrefcount(graph)
    for _ in range(100):
        made = graph.call_function(print, (marker, [node], node), {"k": marker})
        made.args, made.kwargs, made.users, made.next, made.all_input_nodes
        made.update_arg(0, [marker])
        made.insert_arg(0, marker)
        made.replace_input_with(node, marker)
        list(node.users), repr(node.users), node.users == {}, node in node.users
        list(graph.nodes), graph.find_nodes(op="call_function", target=print)
        fx.map_arg((marker, node), lambda n: n)
        graph.erase_node(made)
        del made
    copy.deepcopy(graph)
    gc.collect()
    after = sys.getrefcount(marker), sys.getrefcount(node), sys.getrefcount(graph)
    assert before == after


def test_errors_give_references_back():
    graph = graph_of()
    node = list(graph.nodes)[2]
    str(graph)  # (arguments are Python objects from now on)
    counts = [sys.getrefcount(node), sys.getrefcount(graph)]
    for _ in range(50):
        for call in (
            lambda: graph.erase_node(node),
            lambda: graph.create_node("nothing", "x"),
            lambda: graph.call_function("x", (node,)),
            lambda: node.update_arg(7, node),
            lambda: node.replace_all_uses_with(),
            lambda: graph.call_function(torch.relu, (node,), {3: node}),
            lambda: fx.map_arg((node, node), lambda n: 1 / 0),
        ):
            with pytest.raises(Exception):  # noqa: B017, PT011
                call()
    gc.collect()
    assert counts == [sys.getrefcount(node), sys.getrefcount(graph)]


def test_nothing_grows():
    def turn():
        graph = graph_of(50)
        module = fx.GraphModule(torch.nn.Module(), graph)
        module(torch.ones(2))
        copy.deepcopy(module)
        pickle.loads(pickle.dumps(graph))
        for node in list(graph.nodes)[2:-2]:
            node.replace_all_uses_with(node.args[0])
            graph.erase_node(node)
        graph.lint()

    for _ in range(3):
        turn()
    gc.collect()
    before = sys.getallocatedblocks(), len(gc.get_objects())
    for _ in range(20):
        turn()
    gc.collect()
    after = sys.getallocatedblocks(), len(gc.get_objects())
    assert after[0] - before[0] < 20 * 20 and after[1] - before[1] < 20


DEEP = 100_000


def test_deep_chains():
    graph = graph_of(DEEP)
    graph.lint()
    assert graph._check_uses() == ""
    again = copy.deepcopy(graph)
    assert len(pickle.loads(pickle.dumps(graph)).nodes) == DEEP + 2
    assert len(fx.Graph.parse(graph.to_text()).nodes) == DEEP + 2
    module = fx.GraphModule(torch.nn.Module(), graph)
    assert fx.Interpreter(module).run(torch.ones(())) == 1
    nodes = list(graph.nodes)
    nodes[-1].args = (nodes[0],)
    for node in reversed(nodes[1:-1]):
        graph.erase_node(node)
    assert len(graph.nodes) == 2
    del nodes, node, graph, module
    gc.collect()
    # Erased from the front: each is held by the one before it.
    nodes = list(again.nodes)
    for node in nodes[1:]:
        node.args = ()
    for node in nodes[1:]:
        again.erase_node(node)
    del nodes, node, again
    gc.collect()


def test_threads_take_turns():
    graph = graph_of(0)
    x = next(iter(graph.nodes))
    errors = []

    def work():
        try:
            for _ in range(300):
                node = graph.call_function(torch.relu, (x,))
                node.args, list(x.users.copy())
                node.replace_all_uses_with(x)
                graph.erase_node(node)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors and len(graph.nodes) == 2 and graph._check_uses() == ""


def test_arguments_nested_too_deep_are_an_error():
    graph = fx.Graph()
    deep = ()
    for _ in range(100_000):
        deep = (deep,)
    with pytest.raises(RecursionError):
        graph.call_function(print, (deep,))
    with pytest.raises(RecursionError):
        fx.map_arg(deep, lambda n: n)
    while deep:
        (deep,) = deep
