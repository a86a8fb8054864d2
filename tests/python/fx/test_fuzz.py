"""Random edits, the same on torch.fx and framejit.fx, compared after each few.

What runs is a program of numbers: nodes add and multiply, so both sides compute
the same value whenever the graph is in order.
"""

from __future__ import annotations

import copy
import operator
import pickle
import random

import pytest
import torch

from fx.both import assert_same, ours, outcome, rows, theirs


def nested(parts, cut, kw=None):
    """Takes arguments of all kinds."""
    assert isinstance(parts, (list, float, int))
    return 2.0 if kw is None else 3.0


TARGETS = (operator.add, operator.mul, operator.sub, torch.add, max, min)


class Editor:
    """Does to one side what the random numbers say; both get the same."""

    def __init__(self, fx, seed: int) -> None:
        self.fx = fx
        self.random = random.Random(seed)
        self.graph = fx.Graph()
        for name in ("x", "y", "x"):
            self.graph.placeholder(name)
        self.graph.output(tuple(self.graph.nodes))

    def nodes(self) -> list:
        return list(self.graph.nodes)

    def any_node(self):
        return self.random.choice(self.nodes())

    def before(self, node):
        """Some node that stands before it, or a number."""
        at = self.nodes().index(node)
        return self.nodes()[self.random.randrange(at)] if at else 3

    def argument(self, node):
        choice = self.random.random()
        if choice < 0.1:
            return self.random.randrange(5)
        if choice < 0.2:
            return 1.5
        return self.before(node)

    def insert(self):
        place = self.any_node()
        behind = self.random.random() < 0.3 and place.op != "output"
        point = self.graph.inserting_after if behind else self.graph.inserting_before
        if place.op == "placeholder" and not behind:
            return
        with point(place):
            target = self.random.choice(TARGETS)
            args = (self.argument(place), self.argument(place))
            self.graph.call_function(target, args)

    def insert_nested(self):
        node = self.nodes()[-1]
        with self.graph.inserting_before(node):
            parts = [
                self.argument(node),
                (self.argument(node), {"k": self.argument(node)}),
            ]
            made = self.graph.call_function(
                nested, (parts, slice(self.argument(node), None)), {"kw": parts}
            )
        if self.random.random() < 0.5:
            self.graph.erase_node(made)
        else:
            made.update_kwarg("kw", None)

    def erase(self):
        node = self.any_node()
        if node.op != "output":
            return outcome(lambda: self.graph.erase_node(node))

    def replace(self):
        node = self.any_node()
        if node.op != "output":
            by = self.before(node)
            node.replace_all_uses_with(by, lambda user: self.random.random() < 0.7)

    def replace_input(self):
        node = self.any_node()
        if node.all_input_nodes:
            old = self.random.choice(node.all_input_nodes)
            node.replace_input_with(old, self.before(node))

    def update(self):
        node = self.any_node()
        if node.op == "call_function" and len(node.args) == 2:
            node.update_arg(self.random.randrange(2), self.argument(node))

    def retarget(self):
        node = self.any_node()
        if node.op == "call_function" and node.target is not nested:
            node.target = self.random.choice(TARGETS)

    def move(self):
        node, place = self.any_node(), self.any_node()
        if "output" in (node.op, place.op) or "placeholder" in (node.op, place.op):
            return
        (place.prepend if self.random.random() < 0.5 else place.append)(node)

    def copy(self):
        node = self.any_node()
        if node.op == "call_function":
            with self.graph.inserting_after(node):
                self.graph.node_copy(node)

    def inline(self):
        """The whole graph once more, of nodes that are there."""
        if len(self.graph.nodes) > 60:
            return
        nodes = self.nodes()
        inputs = [n for n in nodes if n.op == "placeholder"]
        fresh = copy.deepcopy(self.graph)
        given = [n for n in fresh.nodes if n.op == "placeholder"]
        with self.graph.inserting_before(nodes[-1]):
            value = self.graph.graph_copy(fresh, dict(zip(given, inputs)))
        nodes[-1].args = ((value[-1], *nodes[-1].args[0]),)

    def clean(self):
        outcome(self.graph.eliminate_dead_code)

    def deep_copy(self):
        self.graph = copy.deepcopy(self.graph)

    def step(self):
        weights = {
            self.insert: 30,
            self.insert_nested: 5,
            self.erase: 8,
            self.replace: 8,
            self.replace_input: 8,
            self.update: 8,
            self.retarget: 4,
            self.move: 6,
            self.copy: 4,
            self.inline: 1,
            self.clean: 1,
            self.deep_copy: 1,
        }
        (chosen,) = self.random.choices(list(weights), list(weights.values()))
        return outcome(chosen)

    def run(self):
        """The graph's function, on numbers."""

        def value():
            self.graph.lint()
            module = self.fx.GraphModule(torch.nn.Module(), self.graph)
            inputs = [
                float(at + 2)
                for at, n in enumerate(self.graph.nodes)
                if n.op == "placeholder"
            ]
            return module(*inputs)

        result = outcome(value)
        self.graph.owning_module = None
        return result


def found(graph) -> list:
    """What find_nodes gives."""
    out = [
        [n.name for n in graph.find_nodes(op="call_function", target=target)]
        for target in TARGETS
    ]
    for op, target in (("placeholder", None), ("output", None), ("placeholder", "x")):
        out.append([n.name for n in graph.find_nodes(op=op, target=target)])
    return out


def edit_both(seed: int, steps: int):
    left, right = Editor(theirs, seed), Editor(ours, seed)
    for step in range(steps):
        assert left.step() == right.step(), (seed, step)
        if step % 5 == 0:
            assert rows(left.graph) == rows(right.graph), (seed, step)
            assert right.graph._check_uses() == ""
            assert found(left.graph) == found(right.graph)
    assert_same(left.graph, right.graph)
    assert left.run() == right.run(), seed
    return left, right


@pytest.mark.parametrize("seed", range(60))
def test_random_edits(seed):
    left, right = edit_both(seed, 120)
    copies = [pickle.loads(pickle.dumps(right.graph))]
    if outcome(right.graph.lint) == "None":
        copies += [
            ours.Graph.parse(right.graph.to_text()),
            copy.deepcopy(right.graph),
            ours._torch_bridge.graph_from_torch(left.graph),
        ]
    for again in copies:
        fresh = rows(again)
        if [row[1] for row in fresh] == [row[1] for row in rows(right.graph)]:
            # (The order of users is that of the last edits there, and that of the
            # nodes in a copy.)
            order = [(*row[:5], sorted(row[5]), *row[6:]) for row in fresh]
            assert order == [
                (*row[:5], sorted(row[5]), *row[6:]) for row in rows(right.graph)
            ]
        assert again._check_uses() == ""
        assert len(again.nodes) == len(right.graph.nodes)
        right_again = Editor(ours, seed)
        right_again.graph = again
        assert right_again.run() == right.run()
