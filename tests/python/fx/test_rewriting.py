"""``replace_pattern`` and ``SubgraphMatcher``, on both sides."""

from __future__ import annotations

import operator
import random

import pytest
import torch
from torch import nn

from fx.both import SIDES, assert_same, ours, rows, run_modules, theirs


def named_matches(matches):
    return [
        (
            match.anchor.name,
            {pn.name: getattr(gn, "name", gn) for pn, gn in match.nodes_map.items()},
        )
        for match in matches
    ]


def replaced(program, pattern, replacement, *inputs):
    """The rewritten modules of both sides, which must be equal."""
    results = []
    for fx in SIDES:
        module = fx.symbolic_trace(program)
        matches = fx.replace_pattern(
            module,
            pattern(fx) if getattr(pattern, "makes", False) else pattern,
            replacement(fx) if getattr(replacement, "makes", False) else replacement,
        )
        module.graph.lint()
        results.append((module, named_matches(matches)))
    (left, left_matches), (right, right_matches) = results
    assert left_matches == right_matches
    assert_same(left.graph, right.graph)
    assert left.code == right.code
    if inputs:
        run_modules([left, right], *inputs)
    return left, right, left_matches


def test_one_and_several_places():
    def program(x, w1, w2):
        m1 = torch.cat([w1, w2]).sum()
        m2 = torch.cat([w2, w1]).sum()
        return x + torch.max(m1) + torch.max(m2)

    a = torch.rand(2)
    _, _, matches = replaced(
        program,
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.stack([a, b]),
        *(a, a, a),
    )
    assert len(matches) == 2


CASES = {
    "chains": (
        lambda x: torch.neg(torch.relu(torch.neg(torch.relu(x)))),
        lambda x: torch.neg(torch.relu(x)),
        lambda x: torch.sigmoid(torch.tanh(x)),
    ),
    "overlaps": (
        lambda x: torch.relu(torch.relu(torch.relu(x))),
        lambda x: torch.relu(torch.relu(x)),
        lambda x: torch.relu(x),
    ),
    "to_itself": (
        lambda x: torch.relu(x) + 1,
        lambda x: torch.relu(x),
        lambda x: x,
    ),
    "leaks": (
        lambda x: (torch.neg(torch.relu(x)), torch.relu(x) * 2, torch.relu(x).neg()),
        lambda x: torch.neg(torch.relu(x)),
        lambda x: torch.tanh(x),
    ),
    "leaks_inside": (
        lambda x: (lambda y: torch.neg(y) + y)(torch.relu(x)),
        lambda x: torch.neg(torch.relu(x)),
        lambda x: torch.tanh(x),
    ),
    "literals": (
        lambda x: (x + 1) * (x + 2) * (x + 1.0) * (x + True),
        lambda x: x + 1,
        lambda x: x - 1,
    ),
    "placeholder_for_a_literal": (
        lambda x: (x + 1) * (x + 2),
        lambda x, y: x + y,
        lambda x, y: x - y,
    ),
    "same_input_twice": (
        lambda x, y: (x + x) * (x + y),
        lambda a, b: a + b,
        lambda a, b: a - b,
    ),
    "one_pattern_input_twice": (
        lambda x, y: (x + x) * (x + y),
        lambda a: a + a,
        lambda a: a * 2,
    ),
    "kwargs": (
        lambda x: x.sum(dim=1, keepdim=True) + x.sum(dim=1),
        lambda x: x.sum(dim=1),
        lambda x: x.mean(dim=1),
    ),
    "several_outputs": (
        lambda x, y: (lambda a, b: a * b + b)(torch.relu(x), torch.neg(y)),
        lambda x, y: (torch.relu(x), torch.neg(y)),
        lambda x, y: (torch.tanh(x), torch.sigmoid(y)),
    ),
    "output_used_inside": (
        lambda x: (lambda a: torch.neg(a) * a)(torch.relu(x)),
        lambda x: (lambda a: (a, torch.neg(a)))(torch.relu(x)),
        lambda x: (torch.tanh(x), torch.sigmoid(x)),
    ),
    "would_be_a_circle": (
        lambda x: (lambda a: torch.sigmoid(a) + a)(torch.relu(x)),
        lambda x, y: (lambda a: (a, y + a))(torch.relu(x)),
        lambda x, y: (torch.tanh(x), torch.neg(y)),
    ),
    "nothing": (
        lambda x: torch.relu(x),
        lambda x: torch.tanh(x),
        lambda x: torch.neg(x),
    ),
    "order_of_operands": (
        lambda x, y: (x - y) * (y - x),
        lambda a, b: a - b,
        lambda a, b: b - a,
    ),
    "unused_input": (
        lambda x, y: torch.relu(x) + torch.neg(y),
        lambda x, y: torch.relu(x) + torch.neg(y),
        lambda x, y: torch.tanh(x),
    ),
    "lists": (
        lambda x: torch.cat([x, x, x]) + torch.cat([x, x]),
        lambda x: torch.cat([x, x]),
        lambda x: torch.stack([x, x]).view(-1, 3),
    ),
    "methods": (
        lambda x: x.relu().neg().sum(),
        lambda x: x.relu().neg(),
        lambda x: x.tanh(),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_cases(name):
    program, pattern, replacement = CASES[name]
    replaced(program, pattern, replacement)


def test_modules_and_attributes():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear, self.other = nn.Linear(3, 3), nn.Linear(3, 3)
            self.weight = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return torch.relu(self.linear(x)) + torch.relu(self.other(x)) + self.weight

    class Pattern(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(3, 3)

        def forward(self, x):
            return torch.relu(self.linear(x))

    class Replacement(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(1)
            self.linear, self.new = nn.Linear(3, 3), nn.Linear(3, 3)
            self.bias = nn.Parameter(torch.ones(3))

        def forward(self, x):
            return self.new(x) + self.bias

    def traced(module):
        def make(fx):
            return fx.symbolic_trace(module)

        make.makes = True
        return make

    left, right, matches = replaced(
        Net(), traced(Pattern()), traced(Replacement()), torch.ones(3)
    )
    assert len(matches) == 1
    assert [n for n, _ in left.named_modules()] == [n for n, _ in right.named_modules()]

    def weight_plus(fx):
        module = fx.symbolic_trace(Net())
        pattern = fx.Graph()
        x = pattern.placeholder("x")
        w = pattern.get_attr("w")
        pattern.output(pattern.call_function(operator.add, (x, w)))
        owner = fx.GraphModule({"w": nn.Parameter(torch.zeros(1))}, pattern)
        new = fx.Graph()
        new.output(new.call_function(torch.neg, (new.placeholder("x"),)))
        matches = fx.replace_pattern(module, owner, new)
        return rows(module.graph), named_matches(matches)

    assert weight_plus(theirs) == weight_plus(ours)


def test_filters_and_callbacks():
    def program(fx):
        module = fx.symbolic_trace(lambda x: torch.relu(x + 1) * torch.relu(x + 2))
        seen = []

        def wanted(match, graph, pattern):
            seen.append((graph is module.graph, len(pattern.nodes)))
            return match.placeholder_nodes[0].args[1] == 2

        done = fx.subgraph_rewriter.replace_pattern_with_filters(
            module,
            lambda x: torch.relu(x),
            lambda x: torch.tanh(x),
            [wanted],
        )
        assert [n.name for n in done[0].replacements] == ["tanh"]

        def made(match, graph, pattern):
            new = fx.Graph()
            x = new.placeholder("x")
            for _ in range(match.placeholder_nodes[0].args[1]):
                x = new.call_function(torch.neg, (x,))
            new.output(x)
            return new

        fx.subgraph_rewriter.replace_pattern_with_filters(
            module, lambda x: torch.relu(x), replacement_callback=made
        )
        fx.subgraph_rewriter.replace_pattern_with_filters(
            module, lambda x: x + 7, lambda x: x - 7, ignore_literals=True
        )
        return rows(module.graph), seen

    assert program(theirs) == program(ours)


def test_operators_match_by_their_schemas():
    def program(fx):
        aten = torch.ops.aten
        graph, pattern, new = fx.Graph(), fx.Graph(), fx.Graph()
        x = graph.placeholder("x")
        a = graph.call_function(aten.add.Tensor, (x, x), {"alpha": 1})
        b = graph.call_function(aten.sum.dim_IntList, (a, [0]), {"keepdim": False})
        graph.output((a, b))
        p = pattern.placeholder("p")
        pattern.output(pattern.call_function(aten.sum.dim_IntList, (p, [0])))
        n = new.placeholder("n")
        new.output(new.call_function(aten.neg.default, (n,)))
        module = fx.GraphModule(nn.Module(), graph)
        return named_matches(fx.replace_pattern(module, pattern, new)), rows(graph)

    assert program(theirs) == program(ours)


def test_a_pattern_must_be_whole():
    for fx in SIDES:
        matcher = (
            ours.SubgraphMatcher
            if fx is ours
            else (
                __import__(
                    "torch.fx.passes.utils.matcher_utils", fromlist=["x"]
                ).SubgraphMatcher
            )
        )
        with pytest.raises(ValueError, match="empty pattern"):
            matcher(fx.Graph())
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.call_function(torch.relu, (x,))
        graph.output(x)
        with pytest.raises(AssertionError, match="dead code"):
            matcher(graph)


def random_program(fx, seed, count, pattern):
    """Few functions and few inputs, so that patterns are found, and overlap."""
    rng = random.Random(seed)
    graph = fx.Graph()
    values = [graph.placeholder("x"), graph.placeholder("y")]
    used = []
    for at in range(count):
        inputs = values if pattern else values[-6:]
        if rng.random() < 0.6:
            node = graph.call_function(
                rng.choice((torch.relu, torch.neg)), (rng.choice(inputs),)
            )
        else:
            args = (rng.choice(inputs), rng.choice([*inputs, 1]))
            node = graph.call_function(rng.choice((operator.add, operator.mul)), args)
        values.append(node)
    used = [value for value in values if not value.users]
    graph.output(tuple(used) if len(used) > 1 else used[0])
    return fx.GraphModule(nn.Module(), graph)


@pytest.mark.parametrize("seed", range(150))
def test_random_patterns(seed):
    results = []
    for fx in SIDES:
        module = random_program(fx, seed, 25, False)
        pattern = random_program(fx, seed + 1000, 1 + seed % 3, True)
        new = fx.Graph()
        x, y = new.placeholder("x"), new.placeholder("y")
        made = new.call_function(torch.sigmoid, (x,))
        outputs = pattern.graph.output_node().args[0]
        made = tuple(
            new.call_function(torch.maximum, (made, y))
            for _ in (outputs if isinstance(outputs, tuple) else (1,))
        )
        new.output(made if isinstance(outputs, tuple) else made[0])
        try:
            matches = named_matches(fx.replace_pattern(module, pattern, new))
        except Exception as error:
            results.append(type(error).__name__)
            continue
        results.append((matches, rows(module.graph), module.code))
        if fx is ours:
            assert module.graph._check_uses() == ""
    assert results[0] == results[1]


def test_many_places():
    graph = ours.Graph()
    x = graph.placeholder("x")
    for _ in range(10_000):
        x = graph.call_function(torch.relu, (x,))
        x = graph.call_function(torch.neg, (x,))
    graph.output(x)
    module = ours.GraphModule(nn.Module(), graph)
    done = ours.replace_pattern(
        module, lambda x: torch.neg(torch.relu(x)), lambda x: torch.tanh(x)
    )
    assert len(done) == 10_000 and len(graph.nodes) == 10_002
    graph.lint()


def test_long_patterns():
    def chain(count):
        graph = ours.Graph()
        x = graph.placeholder("x")
        for _ in range(count):
            x = graph.call_function(torch.relu, (x,))
        graph.output(x)
        return graph

    module = ours.GraphModule(nn.Module(), chain(5_000))
    new = ours.Graph()
    new.output(new.call_function(torch.neg, (new.placeholder("x"),)))
    done = ours.replace_pattern(module, chain(5_000), new)
    assert len(done) == 1 and len(module.graph.nodes) == 3
