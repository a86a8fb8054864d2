"""Graphs and nodes, edited in the same way on torch.fx and framejit.fx."""

from __future__ import annotations

import collections
import copy
import operator
import warnings

import pytest
import torch

from fx.both import SIDES, assert_same, ours, outcome, rows, run_both, theirs

Pair = collections.namedtuple("Pair", "left right")


def chain(fx):
    graph = fx.Graph()
    x, y = graph.placeholder("x"), graph.placeholder("y", default_value=None)
    total = graph.call_function(operator.add, (x, y))
    relu = graph.call_function(torch.relu, (total,))
    view = graph.call_method("view", (relu, -1), {"dtype": torch.int8})
    linear = graph.call_module("a.linear", (view,))
    weight = graph.get_attr("a.weight")
    product = graph.call_function(torch.matmul, (linear, weight), name="product")
    graph.output((product, [x, {"y": y}]))
    return graph


def nodes_of(graph) -> dict:
    return {node.name: node for node in graph.nodes}


def test_a_graph_has_the_nodes_it_was_given():
    run_both(chain)


def named_after(*candidates):
    def program(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        for candidate in candidates:
            graph.call_function(torch.relu, (x,), name=candidate)
        graph.output(x)
        return graph

    return program


@pytest.mark.parametrize(
    "candidates",
    [
        ("add", "add", "add_1", "add", "add_1", "add_7", "add"),
        ("add_5", "add", "add", "add_05", "add_5"),
        ("sum", "max", "len", "print", "sum_1"),
        ("if", "class", "lambda", "self", "_"),
        ("1x", "a.b.c", "a-b", "", "é", "x y z", "__init__", "*args", "**kw"),
        ("torch", "device", "inf", "nan", "NoneType", "pytree", "fx_pytree"),
        ("_1", "__1", "a__1", "a_1_2", "a_1_2", "a_1"),
        ("camelCase", "ABC", "x" * 40, "x" * 40),
        ("n_999999999999999999", "n"),
    ],
)
def test_names_are_unique_by_the_same_rules(candidates):
    run_both(named_after(*candidates))


def test_names_come_from_targets():
    def program(fx):
        graph = fx.Graph()
        x = graph.placeholder("InputTensor")
        for target in (torch.relu, torch.nn.functional.relu, operator.getitem, len):
            graph.call_function(target, (x, x))
        graph.call_function(torch.ops.aten.add.Tensor, (x, x))
        graph.call_function(torch.Tensor.add_, (x, x))
        graph.call_method("__add__", (x, x))
        graph.call_method("someMethod", (x,))
        graph.call_module("layer1.0.convBlock", (x,))
        graph.get_attr("_private.weight")
        graph.output(x)
        return graph

    run_both(program)


def test_arguments_keep_their_structure():
    def program(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.call_function(
            print,
            (
                [x, [1, (x,)]],
                {"a": x, 3: None},
                slice(x, None, [x]),
                Pair(x, 2),
                torch.Size([1, 2]),
                range(3),
                (True, 1.5, 2j, "text", float("inf"), 2**70, ...),
                (torch.float32, torch.device("cpu"), torch.strided),
                torch.channels_last,
            ),
            {"k": [x, x]},
        )
        graph.output(x)
        return graph

    graphs = run_both(program, code=False)
    args = nodes_of(graphs[1])["print_1"].args
    assert type(args[3]) is Pair and type(args[4]) is tuple
    assert isinstance(args[0], list) and isinstance(args[1], dict)
    for change in (
        lambda: args[0].append(1),
        lambda: args[1].update(a=1),
        lambda: args[0].__setitem__(0, 1),
    ):
        with pytest.raises(TypeError, match="does not support mutation"):
            change()


def test_objects_in_arguments_are_the_very_objects():
    marker, tensor = object(), torch.zeros(2)
    graph = ours.Graph()
    node = graph.call_function(print, (marker, [tensor]), {"k": marker})
    assert node.args[0] is marker and node.args[1][0] is tensor
    assert node.kwargs["k"] is marker
    assert node.args is node.args


def edits(fx):
    """One edit after the other; the graph after each."""
    graph = chain(fx)
    seen = [rows(graph)]
    n = nodes_of(graph)

    def step(*_):
        seen.append(rows(graph))

    step(n["relu"].replace_all_uses_with(n["x"]))
    step(n["x"].replace_all_uses_with(n["y"], lambda user: user.name == "view"))
    step(n["view"].replace_input_with(n["y"], n["relu"]))
    step(n["add"].update_arg(0, n["y"]), n["add"].update_arg(1, 7))
    step(n["view"].update_kwarg("other", [n["x"], n["x"]]))
    n["product"].insert_arg(1, n["x"]), n["product"].insert_arg(0, n["x"])
    # (torch.fx has inputs that were inserted behind the others.)
    n["product"].args = n["product"].args
    step()
    step(setattr(n["product"], "args", (n["relu"], (n["x"],))))
    step(setattr(n["product"], "kwargs", {"out": n["relu"]}))
    step(n["x"].append(n["weight"] if "weight" in n else n["a_weight"]))
    step(n["relu"].prepend(n["a_weight"]))
    step(n["relu"].prepend(n["relu"]))
    with graph.inserting_before(n["relu"]):
        a = graph.call_function(torch.neg, (n["add"],))
        b = graph.call_function(torch.neg, (a,))
    step()
    with graph.inserting_after(n["relu"]):
        graph.call_function(torch.abs, (b,))
        graph.call_function(torch.abs, (b,))
    step()
    with graph.inserting_before():
        graph.call_function(torch.ones, (2,))
        graph.call_function(torch.zeros, (2,))
    step()
    with graph.inserting_after():
        graph.call_function(torch.eye, (2,))
    step()
    graph.inserting_before(n["x"])
    graph.call_function(torch.rand, (2,))
    step()
    n["relu"].target, n["relu"].name, n["relu"].type = torch.tanh, "tanh", torch.Tensor
    step()
    n["relu"].op, n["relu"].target = "call_method", "sigmoid"
    step()
    for node in reversed(graph.nodes):
        if not node.users and node.op not in ("output", "placeholder"):
            graph.erase_node(node)
            step()
    return seen, graph


def test_edits_do_the_same():
    (theirs_seen, theirs_graph), (ours_seen, ours_graph) = (edits(fx) for fx in SIDES)
    for before, after in zip(theirs_seen, ours_seen, strict=True):
        assert before == after
    assert_same(theirs_graph, ours_graph)


def test_what_is_edited_while_it_is_iterated_is_seen():
    def program(fx):
        graph = chain(fx)
        seen = []
        for node in graph.nodes:
            seen.append(node.name)
            if node.op == "call_function":
                with graph.inserting_after(node):
                    new = graph.call_method("clone", (node,))
                node.replace_all_uses_with(new, lambda user: user is not new)
            if node.name == "relu":
                graph.erase_node(new) if not new.users else None
        for node in reversed(graph.nodes):
            if node.name.startswith("clone"):
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
                seen.append(node.name)
        return seen, rows(graph)

    assert program(theirs) == program(ours)


def test_nodes_ahead_may_be_erased_and_moved():
    def program(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        made = [graph.call_function(torch.relu, (x,)) for _ in range(8)]
        seen = []
        for node in graph.nodes:
            seen.append(node.name)
            if node is made[1]:
                for other in (made[2], made[3], made[1]):
                    graph.erase_node(other)
            if node is made[5]:
                x.append(made[6])
        return seen, rows(graph)

    assert program(theirs) == program(ours)


ERRORS = {
    "erase_used": lambda fx, g, n: g.erase_node(n["x"]),
    "erase_of_another_graph": lambda fx, g, n: g.erase_node(
        fx.Graph().placeholder("z")
    ),
    "no_op": lambda fx, g, n: g.create_node("nothing", "x"),
    "function_is_no_callable": lambda fx, g, n: g.call_function("relu"),
    "method_is_no_name": lambda fx, g, n: g.call_method(torch.relu),
    "args_are_a_list": lambda fx, g, n: g.create_node("call_method", "a", [1]),
    "kwargs_are_a_list": lambda fx, g, n: g.create_node("call_method", "a", (), [1]),
    "insert_at_nothing": lambda fx, g, n: g.inserting_before(5),
    "insert_elsewhere": lambda fx, g, n: g.inserting_after(fx.Graph().placeholder("z")),
    "move_elsewhere": lambda fx, g, n: n["x"].append(fx.Graph().placeholder("z")),
    "update_behind": lambda fx, g, n: n["relu"].update_arg(7, 1),
    "insert_behind": lambda fx, g, n: n["relu"].insert_arg(7, 1),
    "compare": lambda fx, g, n: n["x"] < 3,
    "find_without_target": lambda fx, g, n: g.find_nodes(op="call_function"),
    "no_output": lambda fx, g, n: fx.Graph().output_node(),
    "no_meta": lambda fx, g, n: n["x"].meta["nothing"],
    "propagate": lambda fx, g, n: (
        n["y"].meta.update(a=1),
        n["x"].replace_all_uses_with(n["y"], propagate_meta=True),
    ),
    "map_arg": lambda fx, g, n: fx.node.map_arg((1,), 3),
    "impure_module_without_owner": lambda fx, g, n: n["a_linear"].is_impure(),
}


@pytest.mark.parametrize("name", ERRORS)
def test_errors_have_the_same_types(name):
    results = []
    for fx in SIDES:
        graph = chain(fx)
        results.append(outcome(lambda: ERRORS[name](fx, graph, nodes_of(graph))))
    assert results[0] == results[1]
    if not name.startswith("find"):
        assert results[0].endswith(("Error", "StopIteration")), results


def test_erased_nodes():
    for fx in SIDES:
        graph = chain(fx)
        n = nodes_of(graph)
        n["relu"].replace_all_uses_with(n["add"])
        graph.erase_node(n["relu"])
        relu = n["relu"]
        assert (relu.name, relu.op, relu.target) == (
            "relu",
            "call_function",
            torch.relu,
        )
        assert relu.args == (None,) and relu.kwargs == {} and len(relu.users) == 0
        assert relu.graph is graph and relu._erased
        assert relu.next is n["view"] and relu.prev is n["add"]
        assert relu not in list(graph.nodes)
        with pytest.warns(UserWarning, match="already erased"):
            graph.erase_node(relu)
    with pytest.raises(RuntimeError, match="relu was erased"):
        n["x"].append(relu)
    with pytest.raises(RuntimeError, match="relu was erased"):
        relu.args = (n["x"],)


def test_users_are_a_live_ordered_mapping():
    graph = chain(ours)
    n = nodes_of(graph)
    users = n["x"].users
    assert list(users) == [n["add"], n["output"]] == list(users.keys())
    assert users.keys() & {n["add"]} == {n["add"]}
    assert dict(users) == users.copy() == {n["add"]: None, n["output"]: None} == users
    assert n["add"] in users and n["y"] not in users and 3 not in users
    assert users[n["add"]] is None and users.get(n["y"], 5) == 5
    assert list(reversed(users)) == [n["output"], n["add"]]
    with pytest.raises(KeyError):
        users[n["y"]]
    n["add"].update_arg(0, 1)
    assert list(users) == [n["output"]] and len(users) == 1
    with pytest.raises(RuntimeError, match="changed"):
        for _ in n["y"].users:
            n["relu"].update_kwarg("y", n["y"])


def test_places():
    for fx in SIDES:
        graph = chain(fx)
        nodes = list(graph.nodes)
        assert nodes == sorted(reversed(nodes))
        assert nodes[0] < nodes[1] <= nodes[1] and nodes[3] > nodes[2]
        assert nodes[0].prev.op == nodes[-1].next.op == "root"
        assert nodes[0].next is nodes[1] and nodes[1].prev is nodes[0]
        assert nodes[0].prev is graph._root and graph._root.next is nodes[0]
        for _ in range(300):  # where no room is left between two
            with graph.inserting_after(nodes[0]):
                graph.call_function(torch.relu, (nodes[0],))
        nodes = list(graph.nodes)
        assert nodes == sorted(reversed(nodes))
        assert len({hash(node) for node in nodes}) == len(nodes)


def test_find_nodes():
    for fx in SIDES:
        graph = chain(fx)
        n = nodes_of(graph)
        again = graph.call_function(torch.relu, (n["x"],))
        n["x"].append(again)
        assert graph.find_nodes(op="call_function", target=torch.relu) == [
            again,
            n["relu"],
        ]
        assert graph.find_nodes(op="placeholder") == [n["x"], n["y"]]
        assert graph.find_nodes(op="call_module", target="a.linear") == [n["a_linear"]]
        assert not graph.find_nodes(op="call_method", target="nothing")
        assert not graph.find_nodes(op="nothing")
        n["relu"].target = torch.tanh
        assert graph.find_nodes(op="call_function", target=torch.tanh) == [n["relu"]]


def test_lint_names_what_is_wrong():
    def broken(change, match):
        for fx in SIDES:
            graph = chain(fx)
            change(fx, graph, nodes_of(graph))
            with pytest.raises(RuntimeError, match=match):
                graph.lint()

    broken(lambda fx, g, n: n["relu"].append(n["add"]), "'add'.*'relu'.*before it has")
    broken(
        lambda fx, g, n: n["relu"].update_arg(0, fx.Graph().placeholder("z")),
        "'z'.*'relu'.*does not belong to this Graph",
    )
    broken(lambda fx, g, n: setattr(n["relu"], "name", "x"), "redefined name x")


def test_lint_looks_into_the_module():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = torch.nn.Linear(2, 2)
            self.number = 3

    for target, op, match in (
        ("linear.nothing", "get_attr", "nonexistent attribute nothing of linear"),
        ("nothing", "call_module", "nonexistent attribute nothing"),
        ("number", "call_module", "does not reference an nn.Module"),
    ):
        for fx in SIDES:
            graph = fx.Graph()
            graph.output(graph.create_node(op, "linear"))
            module = fx.GraphModule(Net(), graph)
            module.number = 3
            next(iter(graph.nodes)).target = target
            with pytest.raises(RuntimeError, match=match):
                graph.lint()


def test_dead_code():
    def program(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.placeholder("unused")
        a = graph.call_function(torch.relu, (x,))
        graph.call_function(torch.neg, (a,))
        graph.call_function(torch._assert, (x, "text"))
        graph.call_function(torch.rand, (2,))
        graph.call_function(operator.setitem, (x, 0, 1))
        graph.call_function(torch.ops.aten.add_.Tensor, (x, 1))
        graph.call_function(torch.ops.aten.add.Tensor, (x, 1))
        graph.call_method("add_", (x,))
        graph.output(x)
        assert graph.eliminate_dead_code()
        assert not graph.eliminate_dead_code()
        return graph

    run_both(program)

    def by_callback(fx):
        graph = chain(fx)
        graph.call_function(torch.neg, (next(iter(graph.nodes)),))
        graph.eliminate_dead_code(lambda node: node.op in ("output", "call_module"))
        return graph

    run_both(by_callback)


def test_copies():
    def copied(fx):
        source, graph = chain(fx), fx.Graph()
        n = nodes_of(source)
        n["relu"].meta["note"] = "kept"
        x = graph.placeholder("x")
        val_map = {n["x"]: x}
        value, output = graph.graph_copy(source, val_map, return_output_node=True)
        assert output is n["output"]
        assert set(val_map) == set(n.values()) - {output}
        copied = val_map[n["relu"]]
        assert copied.meta == {"note": "kept"} and copied.meta is not n["relu"].meta
        graph.graph_copy(source, {})
        graph.output(value)
        return graph

    run_both(copied)

    def node_by_node(fx):
        source, graph = chain(fx), fx.Graph()
        env = {}
        for node in source.nodes:
            env[node] = graph.node_copy(node, lambda n: env[n])
        return graph

    run_both(node_by_node)
    run_both(lambda fx: copy.deepcopy(chain(fx)))
    with pytest.raises(KeyError):
        ours.Graph().node_copy(list(chain(ours).nodes)[2], {}.__getitem__)


def test_a_deep_copy_has_the_nodes_that_meta_has():
    graph = chain(ours)
    n = nodes_of(graph)
    other = copy.deepcopy({"graph": graph, "node": n["relu"]})
    assert other["node"].graph is other["graph"] is not graph
    assert other["node"].name == "relu"


def test_metadata():
    for fx in SIDES:
        graph = chain(fx)
        n = nodes_of(graph)
        assert n["x"].stack_trace is None
        n["x"].stack_trace = "here"
        assert n["x"].meta == {"stack_trace": "here"}
        n["x"].replace_all_uses_with(n["y"], propagate_meta=True)
        assert n["y"].meta == {"stack_trace": "here"}
        n["y"].meta = {"a": 1}
        assert n["y"].meta["a"] == 1
        n["y"].anything = 5  # programs hang what they like on nodes
        assert n["y"].anything == 5 and vars(n["y"])["anything"] == 5


def test_map_arg():
    for fx in SIDES:
        graph = fx.Graph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        arg = (x, [1, {"k": y}], slice(x, None, 2), Pair(x, "s"))
        mapped = fx.node.map_arg(arg, lambda n: n.name)
        assert mapped == ("x", [1, {"k": "y"}], slice("x", None, 2), Pair("x", "s"))
        assert type(mapped[3]) is Pair
        leaves = []
        fx.node.map_aggregate(arg, lambda leaf: leaves.append(leaf))
        assert leaves == [x, 1, y, x, None, 2, x, "s"]


def test_node_replaced_by_a_constant():
    def program(fx):
        graph = chain(fx)
        n = nodes_of(graph)
        n["x"].replace_all_uses_with([1, n["y"]])
        n["relu"].replace_input_with(n["add"], 3.5)
        return graph

    run_both(program)


def test_normalized_arguments():
    for fx in SIDES:
        graph = fx.Graph()
        x = graph.placeholder("x")
        sums = graph.call_function(torch.nn.functional.softmax, (x, 1))
        linear = graph.call_module("linear", (x,))
        module = torch.nn.Module()
        module.linear = torch.nn.Linear(2, 2)
        found = sums.normalized_arguments(module, normalize_to_only_use_kwargs=True)
        assert found.kwargs == {"input": x, "dim": 1, "_stacklevel": 3, "dtype": None}
        found = linear.normalized_arguments(module, normalize_to_only_use_kwargs=True)
        assert found.kwargs == {"input": x}
        assert x.normalized_arguments(module) is None


def test_warnings_where_the_module_lacks_something():
    for fx in SIDES:
        graph = fx.Graph()
        graph.output(None)
        fx.GraphModule(torch.nn.Module(), graph)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graph.get_attr("nothing")
        assert len(caught) == 1
        with pytest.raises(AttributeError):
            graph.call_module("nothing")


def test_a_derived_graph_sees_its_nodes_made():
    made = []

    class Watched(ours.Graph):
        def create_node(self, *args, **kwargs):
            node = super().create_node(*args, **kwargs)
            made.append(node.name)
            return node

    graph = Watched()
    x = graph.placeholder("x")
    relu = graph.call_function(torch.relu, (x,))
    graph.call_method("neg", (relu,))
    graph.output(relu)
    graph.graph_copy(chain(ours), {})
    assert made[:4] == ["x", "relu", "neg", "output"] and len(made) == 12


def test_nodes_are_made_by_graphs():
    with pytest.raises(TypeError):
        ours.Node(ours.Graph(), "n", "call_function", print, (), {})


def test_tables(capsys):
    chain(ours).print_tabular()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["opcode", "name", "target", "args", "kwargs"]
    assert lines[4].split()[:2] == ["call_function", "add"]
    assert len(lines) == 11
