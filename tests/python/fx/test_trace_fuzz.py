"""Random programs: traced as torch.fx traces them, decided where it refuses, edited,
and run against eager.

A program is a module's ``forward`` on tensors of 4 by 4. Its *plain* statements are
what torch.fx takes: the graphs must be equal. The others branch, loop and count by
shapes. Edits keep what the program computes.
"""

from __future__ import annotations

import copy
import pickle
import random

import pytest
import torch
from torch import nn

from fx.both import assert_same, ours, plain, theirs

PLAIN = (
    "{a} = torch.relu({b})",
    "{a} = {b}.tanh() + {c}",
    "{a} = -{b} * 0.5",
    "{a} = ({b} @ {c}) / 4",
    "{a} = self.linear({b})",
    "{a} = self.inner({b}, {c})",
    "{a} = {b} + self.scale",
    "{a} = torch.cat([{b}, {c}])[:4]",
    "{a}, {b} = torch.stack(({b}, {c})).chunk(2)[0].expand(2, 4, 4)",
    "{a} = {b}.reshape({c}.shape[0], -1).transpose(0, 1)",
    "{a} = nn.functional.gelu({b}) if self.flag else {c}",
    "{a} = sum([{b}, {c}, 1])",
    "{a} = [{b}, {c}][{k} % 2]",
)
DECIDED = (
    "{a} = {b} + len({c})",
    "{a} = {b} * torch.arange({b}.shape[0])",
    "{a} = torch.zeros({b}.shape[0], {c}.size(1)) + {b}",
    "{a} = {b} / int({c}.shape[0] / 2)",
    "assert {b}.shape[0] == {c}.shape[0]",
    "{a} = {b}.clone(); {a}[{k}] = {c}[0]",
    "{a} = {b} if {b}.shape[0] > {k} else {c}",
    "for row in {b}: {a} = {a} + row",
    "for at in range({b}.dim()): {a} = {a} + at",
    "{a} = {b} if isinstance({c}, torch.Tensor) else None",
    "{a} = {b} + max({c}.shape[0], {k})",
    "{a} = {b} + len(f'{{{c}.shape[0]}}')",
    "first, *rest = {b}; {a} = {a} + first * len(rest)",
    "while {a}.shape[0] < {k}: {a} = torch.cat([{a}, {a}])",
    "{a} = {a}[:4]",
)


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.act = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x, y):
        return self.act(x) - y


class Base(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.inner = nn.Linear(4, 4), Inner()
        self.scale = nn.Parameter(torch.rand(4))
        self.flag = True


def program_of(seed: int, statements, count: int = 12):
    """A module with a random ``forward``."""
    chance = random.Random(seed)
    lines = []
    for _ in range(count):
        names = dict(zip("abc", chance.choices("xyzw", k=3)))
        lines.append(chance.choice(statements).format(**names, k=chance.randrange(4)))
    body = "\n".join(f"    {line}" for line in lines)
    source = (
        f"def forward(self, x, y):\n    z, w = x, y\n{body}\n    return x, [z], w\n"
    )
    space = {"torch": torch, "nn": nn}
    exec(compile(source, f"<program {seed}>", "exec"), space)
    torch.manual_seed(seed)
    return type("Program", (Base,), {"forward": space["forward"]})(), source


def inputs_of(seed: int):
    torch.manual_seed(seed)
    return torch.rand(4, 4), torch.rand(4, 4)


def close(left, right) -> bool:
    if isinstance(left, torch.Tensor):
        return torch.allclose(left, right, atol=1e-5, equal_nan=True)
    return len(left) == len(right) and all(map(close, left, right))


@pytest.mark.parametrize("seed", range(60))
def test_what_torch_traces(seed):
    program, source = program_of(seed, PLAIN)
    left = theirs.symbolic_trace(copy.deepcopy(program))
    right = ours.symbolic_trace(copy.deepcopy(program))
    assert_same(left.graph, right.graph)
    assert plain(left.code) == plain(right.code)
    names = [sorted(name for name, _ in gm.named_modules()) for gm in (left, right)]
    assert names[0] == names[1]
    stacks = [
        [dict(n.meta.get("nn_module_stack", {})) for n in gm.graph.nodes]
        for gm in (left, right)
    ]
    assert stacks[0] == stacks[1]
    # By the tracer's methods in Python, too.
    by_methods = type(
        "Tracer", (ours.Tracer,), {"proxy": lambda s, n: ours.Proxy(n, s)}
    )
    again = by_methods().trace(copy.deepcopy(program))
    assert_same(left.graph, again)
    inputs = inputs_of(seed)
    assert close(right(*inputs), program(*inputs)), source


@pytest.mark.parametrize("seed", range(60))
def test_what_examples_decide(seed):
    program, source = program_of(1000 + seed, PLAIN + DECIDED * 2)
    inputs, others = inputs_of(seed), inputs_of(seed + 1)
    expected = program(*copy.deepcopy(inputs))
    traced = ours.symbolic_trace(program, example_inputs=inputs)
    traced.graph.lint()
    assert close(traced(*copy.deepcopy(inputs)), expected), source
    assert close(traced(*copy.deepcopy(others)), program(*copy.deepcopy(others)))
    again = ours.symbolic_trace(traced)
    assert again.code == traced.code


class Edits:
    """Changes a graph, and not what it computes."""

    def __init__(self, module, seed: int) -> None:
        self.module, self.random = module, random.Random(seed)

    def nodes(self):
        return [
            n
            for n in self.module.graph.nodes
            if n.op not in ("placeholder", "output") and n.users
        ]

    def any_node(self):
        return self.random.choice(self.nodes())

    def insert(self):
        """A value that is the same takes the place of another."""
        node = self.any_node()
        graph = self.module.graph
        if not isinstance(self.value_of(node), torch.Tensor):
            return
        with graph.inserting_after(node):
            new = graph.call_function(torch.clone, (node,))
        node.replace_all_uses_with(new, lambda user: user is not new)

    def value_of(self, node):
        """What the node is, for some inputs."""
        found = []

        class Runs(ours.Interpreter):
            def run_node(self, n):
                value = super().run_node(n)
                if n is node:
                    found.append(value)
                return value

        Runs(self.module).run(*inputs_of(0))
        return found[0]

    def copy(self):
        node = self.any_node()
        if node.is_impure() or node.op == "get_attr":
            return
        with self.module.graph.inserting_after(node):
            new = self.module.graph.node_copy(node)
        node.replace_all_uses_with(new)
        assert not node.users

    def swap(self):
        """Addition commutes."""
        node = self.any_node()
        if node.target is torch.add or str(node.target) == "<built-in function add>":
            node.args = node.args[::-1]

    def move(self):
        """To right behind the last of what it needs, or before its first user."""
        node = self.any_node()
        if node.is_impure() or any(u.target is not torch.relu for u in node.users):
            return
        min(node.users).prepend(node)

    def rewrite(self):
        def before(x):
            return torch.relu(x)

        def after(x):
            return torch.clamp(x, min=0)

        ours.replace_pattern(self.module, before, after)

    def clean(self):
        self.module.graph.eliminate_dead_code()

    def round_trip(self):
        kind = self.random.randrange(3)
        if kind == 0:
            self.module = copy.deepcopy(self.module)
        elif kind == 1:
            self.module = pickle.loads(pickle.dumps(self.module))
        else:
            self.module.graph = ours.Graph.parse(self.module.graph.to_text())

    def step(self):
        weights = {
            self.insert: 5,
            self.copy: 5,
            self.swap: 3,
            self.move: 3,
            self.rewrite: 1,
            self.clean: 2,
            self.round_trip: 2,
        }
        (chosen,) = self.random.choices(list(weights), list(weights.values()))
        chosen()


@pytest.mark.parametrize("seed", range(40))
def test_edits_of_traced_programs(seed):
    program, source = program_of(2000 + seed, PLAIN + DECIDED)
    inputs = inputs_of(seed)
    expected = program(*copy.deepcopy(inputs))
    edits = Edits(ours.symbolic_trace(program, example_inputs=inputs), seed)
    for step in range(25):
        edits.step()
        if step % 5 == 4:
            module = edits.module
            module.graph.lint()
            assert module.graph._check_uses() == ""
            module.recompile()
            assert close(module(*copy.deepcopy(inputs)), expected), (source, step)
