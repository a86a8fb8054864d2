"""What torch.fx's documentation does with graphs, by the same code on both."""

from __future__ import annotations

import copy
import operator
import statistics
import time

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

from fx import programs
from fx.both import SIDES, assert_same, ours, run_both, run_modules, theirs


def parent_of(path: str):
    *prefix, name = path.rsplit(".", 1)
    return prefix[0] if prefix else "", name


def fuse(fx, root):
    """Convolution and batch norm as one convolution."""
    module = fx.symbolic_trace(copy.deepcopy(root))
    modules = dict(module.named_modules())
    for node in module.graph.nodes:
        if node.op != "call_module" or not isinstance(node.args[0], fx.Node):
            continue
        before = node.args[0]
        if before.op != "call_module":
            continue
        if (
            type(modules[before.target]) is nn.Conv2d
            and type(modules[node.target]) is nn.BatchNorm2d
        ):
            if len(before.users) > 1:
                continue
            fused = fuse_conv_bn_eval(modules[before.target], modules[node.target])
            parent, name = parent_of(before.target)
            modules[before.target] = fused
            setattr(modules[parent], name, fused)
            node.replace_all_uses_with(before)
            module.graph.erase_node(node)
    module.graph.lint()
    module.delete_all_unused_submodules()
    module.recompile()
    return module


def test_fusion():
    torch.manual_seed(0)
    root = programs.SmallResNet().eval()
    modules = run_both(fuse, root)
    x = torch.rand(2, 3, 8, 8)
    run_modules(modules, x)
    torch.testing.assert_close(modules[1](x), root(x))
    assert not any(isinstance(m, nn.BatchNorm2d) for m in modules[1].modules())


def test_activations():
    def program(fx, root):
        module = fx.symbolic_trace(root)
        for node in module.graph.nodes:
            if any(node.target == target for target in ("relu", F.relu, torch.relu)):
                with module.graph.inserting_after(node):
                    new = module.graph.call_function(F.hardtanh, node.args, node.kwargs)
                    node.replace_all_uses_with(new)
                module.graph.erase_node(node)
            if node.op == "call_module" and isinstance(
                module.get_submodule(node.target), nn.ReLU
            ):
                module.add_submodule("tanh", nn.Tanh())
                node.target = "tanh"
        module.delete_all_unused_submodules()
        module.recompile()
        return module

    modules = run_both(program, programs.SmallResNet().eval())
    run_modules(modules, torch.rand(1, 3, 8, 8))
    run_modules(
        run_both(program, lambda x: F.relu(x).relu() + torch.relu(x)), torch.ones(2)
    )


def profiler(fx):
    class Profiling(fx.Interpreter):
        def __init__(self, module):
            super().__init__(module)
            self.total, self.times = [], {}

        def run(self, *args):
            start = time.time()
            result = super().run(*args)
            self.total.append(time.time() - start)
            return result

        def run_node(self, n):
            start = time.time()
            result = super().run_node(n)
            self.times.setdefault(n, []).append(time.time() - start)
            return result

        def summary(self):
            mean = statistics.mean(self.total)
            return [
                (n.op, str(n), statistics.mean(t) <= mean)
                for n, t in self.times.items()
            ]

    return Profiling


def test_a_profiling_interpreter():
    results = []
    for fx in SIDES:
        run = profiler(fx)(fx.symbolic_trace(programs.SmallResNet().eval()))
        run.run(torch.ones(1, 3, 8, 8))
        run.run(torch.ones(1, 3, 8, 8))
        results.append(run.summary())
    assert results[0] == results[1]


INVERSE = {
    torch.sin: torch.arcsin,
    torch.cos: torch.arccos,
    torch.tan: torch.arctan,
    torch.exp: torch.log,
}


def test_inversion():
    def invert(fx):
        def program(x):
            return torch.exp(torch.tan(x))

        module = fx.symbolic_trace(program)
        graph = fx.Graph()
        nodes = list(reversed(module.graph.nodes))
        value = graph.placeholder("inverted")
        for node in nodes[1:]:
            if node.op == "placeholder":
                graph.output(value)
            else:
                value = graph.call_function(INVERSE[node.target], (value,))
        graph.lint()
        return fx.GraphModule(module, graph)

    modules = run_both(invert)
    x = torch.rand(3)
    torch.testing.assert_close(modules[1](torch.exp(torch.tan(x))), x)


def test_decomposition_with_proxies():
    def decompose(fx):
        rules = {F.relu: lambda x: (x > 0) * x, torch.square: lambda x: x * x}
        module = fx.symbolic_trace(lambda x: F.relu(x) + torch.square(x) * 2)
        graph, env = fx.Graph(), {}
        tracer = fx.proxy.GraphAppendingTracer(graph)
        for node in module.graph.nodes:
            if node.op == "call_function" and node.target in rules:
                args = [
                    fx.Proxy(env[a.name], tracer) if isinstance(a, fx.Node) else a
                    for a in node.args
                ]
                env[node.name] = rules[node.target](*args).node
            else:
                env[node.name] = graph.node_copy(node, lambda n: env[n.name])
        return fx.GraphModule(module, graph)

    modules = run_both(decompose)
    run_modules(modules, torch.rand(3) - 0.5)


def test_decomposition_by_a_transformer():
    def decompose(fx):
        class Decompose(fx.Transformer):
            def call_function(self, target, args, kwargs):
                if target is torch.sigmoid:
                    return 1 / (1 + torch.exp(-args[0]))
                return super().call_function(target, args, kwargs)

            def call_method(self, target, args, kwargs):
                if target == "neg":
                    (x,) = args
                    return x * -1
                return super().call_method(target, args, kwargs)

            def call_module(self, target, args, kwargs):
                if isinstance(self.submodules[target], nn.ReLU):
                    return torch.clamp(args[0], min=0)
                return super().call_module(target, args, kwargs)

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.linear, self.act = nn.Linear(3, 3), nn.ReLU()

            def forward(self, x, y=None):
                return torch.sigmoid(self.act(self.linear(x))).neg() + self.linear.bias

        return Decompose(fx.symbolic_trace(Net())).transform()

    modules = run_both(decompose)
    run_modules(modules, torch.rand(2, 3))


def test_a_transformer_that_changes_nothing():
    for make, inputs in programs.PROGRAMS.values():
        root = make()

        def program(fx):
            traced = fx.symbolic_trace(copy.deepcopy(root))
            return fx.Transformer(traced).transform()

        modules = run_both(program)
        if make is not programs.Operators:
            run_modules(modules, *inputs)


class Quantized(nn.Module):
    """A stand-in: weights on a grid."""

    def __init__(self, linear):
        super().__init__()
        scale = linear.weight.detach().abs().max() / 127
        self.register_buffer("weight", torch.round(linear.weight.detach() / scale))
        self.register_buffer("scale", scale)
        self.bias = linear.bias

    def forward(self, x):
        return F.linear(x, self.weight * self.scale, self.bias)


def test_modules_are_swapped():
    def swap(fx, root):
        module = fx.symbolic_trace(copy.deepcopy(root))
        modules = dict(module.named_modules())
        for node in module.graph.nodes:
            if node.op == "call_module" and type(modules[node.target]) is nn.Linear:
                parent, name = parent_of(node.target)
                setattr(modules[parent], name, Quantized(modules[node.target]))
                with module.graph.inserting_before(node):
                    observed = module.graph.call_function(
                        torch.clamp, (node.args[0], -9, 9)
                    )
                node.replace_input_with(node.args[0], observed)
        module.graph.lint()
        module.recompile()
        return module

    torch.manual_seed(0)
    root = programs.Transformer()
    modules = run_both(swap, root)
    tokens = torch.tensor([[1, 2, 3]])
    run_modules(modules, tokens)
    torch.testing.assert_close(modules[1](tokens), root(tokens), atol=0.2, rtol=0.2)


def test_shapes():
    def program(fx):
        shape_prop = (theirs if fx is theirs else ours).passes.shape_prop
        root = programs.SmallResNet().eval()
        module = fx.symbolic_trace(root)
        shape_prop.ShapeProp(module).propagate(torch.rand(2, 3, 8, 8))
        return [
            (n.name, tuple(n.meta["tensor_meta"]), n.meta["type"])
            for n in module.graph.nodes
        ]

    assert program(theirs) == program(ours)


def test_shapes_without_computing():
    from torch._subclasses import FakeTensorMode

    module = ours.symbolic_trace(programs.SmallResNet().eval())
    ours.passes.shape_prop.ShapeProp(module, FakeTensorMode()).propagate(
        torch.rand(2, 3, 8, 8)
    )
    metas = [node.meta["tensor_meta"].shape for node in module.graph.nodes]
    assert metas[-1] == (2, 3) and metas[0] == (2, 3, 8, 8)


@pytest.mark.parametrize("parts", [1, 2, 3])
def test_splitting(parts):
    def split(fx):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                torch.manual_seed(0)
                self.param = nn.Parameter(torch.rand(3, 4))
                self.linear = nn.Linear(4, 5)

            def forward(self, x, y):
                z = self.linear(x + self.param).clamp(min=0.0, max=1.0)
                return z + self.linear(y).clamp(min=0.0, max=1.0)

        root = Net()
        module = fx.symbolic_trace(root)
        order = {
            n: i * parts // len(module.graph.nodes)
            for i, n in enumerate(module.graph.nodes)
        }
        names: dict = {}
        splitter = __import__(
            f"{fx.__name__}.passes.split_module", fromlist=["split_module"]
        ).split_module
        made = splitter(
            module, root, order.__getitem__, names, keep_original_order=True
        )
        return made, module, names

    (left, _, left_names), (right, whole, right_names) = map(split, SIDES)
    x = torch.rand(3, 4)
    run_modules([left, right], x, x)
    assert torch.equal(right(x, x), whole(x, x))
    assert left_names == right_names
    for name, part in right.named_children():
        assert_same(getattr(left, name).graph, part.graph)
    assert [n.target for n in right.graph.nodes if n.op == "call_module"] == [
        n.target for n in left.graph.nodes if n.op == "call_module"
    ]


def test_splitting_round_robin_and_in_circles():
    def program(x):
        return torch.neg(torch.relu(torch.neg(x))) + 1

    module = ours.symbolic_trace(program)
    nodes = list(module.graph.nodes)
    split = ours.passes.split_module.split_module
    made = split(module, module, lambda n: nodes.index(n))
    assert torch.equal(made(torch.ones(2)), program(torch.ones(2)))
    assert len(list(made.children())) == 4
    with pytest.raises(RuntimeError, match="cycle"):
        split(module, module, lambda n: nodes.index(n) % 2)
    made = split(
        module, module, lambda n: "all", partition_affix="p", tuple_return=True
    )
    assert made.submod_p_all is not None
    assert torch.equal(made(torch.ones(2)), program(torch.ones(2)))


def test_pictures():
    module = ours.symbolic_trace(programs.SmallResNet())
    ours.passes.shape_prop.ShapeProp(module).propagate(torch.rand(2, 3, 8, 8))
    drawer = ours.passes.graph_drawer.FxGraphDrawer(module, 'a "name"')
    dot, svg = drawer.dot(), drawer.svg()
    assert dot.count(" -> ") == sum(len(n.all_input_nodes) for n in module.graph.nodes)
    assert "torch.float32 [2, 4, 6, 6]" in dot and 'digraph "a \\"name\\""' in dot
    from xml.dom import minidom

    document = minidom.parseString(svg)
    assert len(document.getElementsByTagName("rect")) == len(module.graph.nodes)


def test_times():
    module = ours.symbolic_trace(programs.SmallResNet().eval())
    profiling = ours.passes.profiler.ProfilingInterpreter(module)
    for _ in range(3):
        profiling.run(torch.rand(2, 3, 8, 8))
    rows = profiling.times()
    assert {row.runs for row in rows} == {3} and len(rows) == len(module.graph.nodes)
    assert rows[0].total >= rows[-1].total > 0 and rows[0].mean == rows[0].total / 3
    assert "conv" in profiling.summary()


def test_a_pass_of_torch_fx_runs_on_our_graphs():
    """Common subexpressions, as torch.fx.passes.dialect has it, by duck typing."""

    def pass_for_torch_fx(graph):
        seen: dict = {}
        for node in graph.nodes:
            if node.op != "call_function":
                continue
            key = (node.target, node.args, tuple(node.kwargs.items()))
            if key in seen:
                node.replace_all_uses_with(seen[key])
                graph.erase_node(node)
            else:
                seen[key] = node
        graph.lint()
        return graph

    def program(fx):
        module = fx.symbolic_trace(lambda x: (x + 1) * (x + 1) + torch.relu(x + 1))
        pass_for_torch_fx(module.graph)
        module.recompile()
        return module

    run_modules(run_both(program), torch.ones(2))


def test_interpreters():
    for fx in SIDES:
        module = fx.symbolic_trace(lambda x, y=3: (x + y) * 2)
        interpreter = fx.Interpreter(module)
        assert interpreter.run(1) == 8 and interpreter.run(1, 2) == 6
        add = list(module.graph.nodes)[2]
        assert interpreter.run(1, 2, initial_env={add: 10}) == 20
        inputs = [1, 2]
        assert interpreter.boxed_run(inputs) == 6 and inputs == []
        with pytest.raises(RuntimeError, match="Expected positional argument"):
            interpreter.run()
        assert not [v for v in interpreter.env.values() if v == 20]
        graph = fx.Graph()
        graph.output(graph.call_function(operator.add, (graph.placeholder("a"), 1)))
        assert fx.Interpreter(nn.Module(), graph=graph).run(1) == 2
