"""GraphModules: code, copies, files, errors, the module tree."""

from __future__ import annotations

import copy
import gc
import io
import linecache
import operator
import pickle
import subprocess
import sys
import traceback
import warnings
import weakref

import pytest
import torch
from torch import nn

from fx import programs
from fx.both import SIDES, assert_same, ours, run_both, run_modules, theirs


def traced(program=programs.SmallResNet):
    torch.manual_seed(1)
    root = program().eval()
    return [side.symbolic_trace(root) for side in SIDES]


def fx_of(module):
    return ours if isinstance(module, ours.GraphModule) else theirs


def test_code_follows_the_graph_when_it_is_recompiled():
    for fx in SIDES:
        module = fx.symbolic_trace(lambda x: torch.relu(x) + 1)
        x = torch.tensor([-1.0, 2.0])
        old = module.code
        relu = list(module.graph.nodes)[1]
        relu.target = torch.neg
        assert module.code == old and torch.equal(module(x), torch.relu(x) + 1)
        made = module.recompile()
        assert made.src == module.code != old and torch.equal(module(x), 1 - x)
        graph = fx.Graph()
        graph.output(graph.placeholder("x"))
        module.graph = graph
        assert module(5) == 5 and graph.owning_module is module
        with pytest.raises(AssertionError):
            module.graph = 3


def test_each_module_has_a_class_of_its_own():
    a, b = (ours.symbolic_trace(lambda x: x) for _ in range(2))
    assert type(a) is not type(b) and isinstance(a, ours.GraphModule)
    assert type(a).__mro__[1] is ours.GraphModule
    assert type(copy.deepcopy(a)).__mro__[1] is ours.GraphModule


def test_roots():
    def from_dict(fx):
        graph = fx.Graph()
        x = graph.placeholder("x")
        made = graph.call_module("a.b", (x,))
        made = graph.call_function(operator.add, (made, graph.get_attr("a.w")))
        graph.output(made)
        torch.manual_seed(0)
        root = {"a.b": nn.Linear(2, 2), "a.w": nn.Parameter(torch.ones(2))}
        return fx.GraphModule(root, graph, "Named")

    modules = run_both(from_dict)
    run_modules(modules, torch.ones(2))
    assert list(modules[0].state_dict()) == list(modules[1].state_dict())
    for fx in SIDES:
        graph = fx.Graph()
        graph.output(graph.get_attr("missing"))
        with pytest.raises(RuntimeError, match="not provided"):
            fx.GraphModule({}, graph)
        with pytest.raises(AttributeError):
            fx.GraphModule(nn.Module(), graph)
        with pytest.raises(RuntimeError, match="Unsupported type"):
            fx.GraphModule(3, graph)


def test_what_stays_alive():
    """A value goes in the statement that used it last."""
    seen = []

    def note(x):
        seen.append([ref() is not None for ref in refs])
        made = x + 1
        refs.append(weakref.ref(made))
        return made

    for fx in SIDES:
        refs: list = []
        seen.clear()
        graph = fx.Graph()
        x = graph.placeholder("x")
        for _ in range(4):
            x = graph.call_function(note, (x,))
        graph.output(x)
        module = fx.GraphModule(nn.Module(), graph)
        module(torch.ones(1))
        assert seen == [[], [True], [False, True], [False, False, True]]
        refs.clear()
        seen.clear()
        fx.Interpreter(module).run(torch.ones(1))
        assert seen == [[], [True], [False, True], [False, False, True]]


@pytest.mark.parametrize("copier", [copy.copy, copy.deepcopy])
def test_copies(copier):
    for module in traced():
        module.meta["note"] = [1]
        other = copier(module)
        assert other.code == module.code and other.meta == {"note": [1]}
        assert fx_of(module) is theirs or type(other).__name__ == "SmallResNet"
        shared = other.head.weight is module.head.weight
        assert shared == (copier is copy.copy)
        run_modules([module, other], torch.rand(1, 3, 8, 8))
        assert other.training is module.training


def test_pickles():
    module = traced()[1]
    list(module.graph.nodes)[1].meta["stack_trace"] = "here"
    buffer = io.BytesIO()
    torch.save(module, buffer)
    buffer.seek(0)
    for other in (
        pickle.loads(pickle.dumps(module)),
        torch.load(buffer, weights_only=False),
    ):
        assert other.code == module.code and not other.training
        assert list(other.graph.nodes)[1].stack_trace == "here"
        assert other.graph.owning_module is other
        assert type(other).__mro__[1] is ours.GraphModule
        run_modules([module, other], torch.rand(1, 3, 8, 8))
    graph = pickle.loads(pickle.dumps(module.graph))
    assert graph.owning_module.graph is graph
    run_modules([module, graph.owning_module], torch.rand(1, 3, 8, 8))
    node = list(module.graph.nodes)[3]
    graph, other = pickle.loads(pickle.dumps((module.graph, node)))
    assert other.graph is graph and other.name == node.name


def test_folders(tmp_path, monkeypatch):
    module = traced(programs.Transformer)[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module.to_folder(tmp_path / "written", module_name="Written")
    program = (
        "import torch\n"
        "from written import Written\n"
        "torch.save(Written()(torch.tensor([[1, 2, 3]])), 'result.pt')\n"
        "import sys\n"
    )
    monkeypatch.chdir(tmp_path)
    subprocess.run([sys.executable, "-c", program], check=True)
    expected = module(torch.tensor([[1, 2, 3]]))
    assert torch.equal(torch.load(tmp_path / "result.pt"), expected)


def test_folders_need_functions_that_can_be_imported(tmp_path):
    def local(x):
        return x

    graph = ours.Graph()
    graph.output(graph.call_function(local, (graph.placeholder("x"),)))
    with pytest.raises(RuntimeError, match="no import leads to"):
        ours.GraphModule(nn.Module(), graph).to_folder(tmp_path / "written")


def test_errors_show_the_line_and_where_it_comes_from():
    class Tracer(ours.Tracer):
        record_stack_traces = True

    def program(x):
        y = x + 1
        return y.view(7, 7)

    graph = Tracer().trace(program)
    module = ours.GraphModule(nn.Module(), graph)
    with pytest.raises(RuntimeError) as caught:
        module(torch.ones(3))
    text = "".join(traceback.format_exception(caught.value))
    assert "view = add.view(7, 7);  add = None" in text
    assert "return y.view(7, 7)" in text and "test_modules.py" in text
    with pytest.raises(RuntimeError) as caught:
        ours.Interpreter(module).run(torch.ones(3))
    assert "While executing %view" in "".join(caught.value.__notes__)


def test_lines_go_with_the_code():
    def generated():
        return [file for file in linecache.cache if file.startswith("<framejit.fx")]

    gc.collect()
    before = len(generated())
    for _ in range(20):
        module = ours.symbolic_trace(lambda x: x + 1)
        for _ in range(3):
            module.recompile()
            assert module(1) == 2
        file = module.forward.__func__.__code__.co_filename
        assert "add = x + 1" in "".join(linecache.getlines(file))
        module.graph._co_fields = {}  # as one that no function was traced for
        module.recompile()
        file = module.forward.__func__.__code__.co_filename
        linecache.checkcache()
        assert "add = x + 1" in "".join(linecache.getlines(file))
    del module
    gc.collect()
    assert len(generated()) <= before


def test_readable():
    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = ours.symbolic_trace(lambda x: x + 1)

        def forward(self, x):
            return self.inner(x) * 2

    class Tracer(ours.Tracer):
        record_stack_traces = True

        def is_leaf_module(self, m, path):
            return True

    root = Outer()
    module = ours.GraphModule(root, Tracer().trace(root), "Outer")
    text = module.print_readable(print_output=False)
    assert "class Outer(torch.nn.Module):" in text and "class inner(" in text
    assert "test_modules.py" in text and "code: return self.inner(x) * 2" in text
    assert module.code in str(module)


def test_submodules():
    for fx in SIDES:
        graph = fx.Graph()
        x = graph.placeholder("x")
        graph.output(graph.call_module("a.b", (x,)))
        module = fx.GraphModule({"a.b": nn.Sequential(nn.Linear(2, 2))}, graph)
        assert module.add_submodule("c.d.e", nn.ReLU())
        assert module.add_submodule("a.f", nn.ReLU())
        module.number = 3
        assert not module.add_submodule("number.x", nn.ReLU())
        assert module.delete_submodule("c.d.e") and not module.delete_submodule("c.x")
        assert not module.delete_submodule("number")
        module.delete_all_unused_submodules()
        names = [name for name, _ in module.named_modules()]
        assert names == ["", "a", "a.b", "a.b.0"]


def test_code_is_changed_on_the_way():
    for fx in SIDES:
        module = fx.symbolic_trace(lambda x: x + 1)

        def first(body):
            return ["x = x * 10\n", *body]

        with module.graph.on_generate_code(lambda old: first):
            module.recompile()
            assert module(1) == 11
            with module.graph.on_generate_code(
                lambda old: lambda body: ["x = x + 1\n", *old(body)]
            ):
                module.recompile()
                assert module(1) == 21
        module.recompile()
        assert module(1) == 2


def test_a_code_generator_of_ones_own():
    def program(fx):
        class ListCodeGen(fx.graph.CodeGen):
            def gen_fn_def(self, free_vars, returns, **kwargs):
                names = ", ".join(free_vars)
                return f"def forward(self, args_list: List){returns}:\n    {names}, = args_list"

            def additional_globals(self):
                return [("List", list)]

            def process_inputs(self, *inputs):
                assert len(inputs) == 1
                return inputs[0]

        module = fx.symbolic_trace(lambda a, b: a - b)
        module.graph.set_codegen(ListCodeGen())
        module.recompile()
        assert module([5, 3]) == 2
        assert fx.Interpreter(module).run([5, 3]) == 2
        return module

    modules = run_both(program)
    assert modules[0].code == modules[1].code


CODE = {
    "operators": lambda g, x: (
        [
            g.call_function(getattr(operator, name), (x, 2))
            for name in (
                "add",
                "matmul",
                "getitem",
                "and_",
                "iadd",
                "imatmul",
                "truediv",
            )
        ]
        + [
            g.call_function(operator.neg, (x,)),
            g.call_function(operator.setitem, (x, 0, 1)),
        ]
    ),
    "attributes": lambda g, x: [
        g.call_function(getattr, (x, "shape")),
        g.call_function(getattr, (x, "1x")),
        g.call_function(getattr, (x, "grad", None)),
        g.call_method("layers.0", (x,)),
        g.call_module("0.weight", (x,)),
        g.get_attr("a.1.b"),
    ],
    "constants": lambda g, x: [
        g.call_function(
            torch.add,
            (x, torch.float16, torch.device("cpu"), float("inf"), float("nan"), None),
            {"k": slice(None, x, 2), "d": {"a": 1}},
        ),
        g.call_function(torch.ops.aten.add.Tensor, (x, torch.ops.aten.mul.Tensor)),
        g.call_function(print, (programs.Pair(x, 1), type(None), ...)),
    ],
    "globals": lambda g, x: [
        g.call_function(programs.methods, (x,)),
        g.call_function(programs.named, (x, x)),
        g.call_function(len, (x,)),
        g.call_function(torch._C._nn.gelu, (x,)),
        g.call_function(torch.nn.functional.gelu, (x,)),
        g.call_function(torch.Tensor.add, (x, x)),
        g.call_method("copy", (x,), type_expr=list[int]),
        g.call_method("copy", (x,), type_expr=torch.Tensor),
        g.call_method("copy", (x,), type_expr=int | None),
        g.call_method("copy", (x,), type_expr=tuple[int, ...]),
        g.call_method("copy", (x,), type_expr=programs.Pair),
    ],
}


@pytest.mark.parametrize("name", CODE)
def test_code(name):
    def program(fx):
        graph = fx.Graph()
        x = graph.placeholder("x", torch.Tensor, None)
        made = CODE[name](graph, x)
        graph.output(tuple(made), type_expr=tuple)
        return graph

    run_both(program)


def test_code_of_nothing():
    run_both(lambda fx: fx.Graph())

    def only_input(fx):
        graph = fx.Graph()
        graph.placeholder("x")
        return graph

    run_both(only_input)


def test_a_module_is_collected():
    module = traced()[1]
    module(torch.rand(1, 3, 8, 8))
    seen = [weakref.ref(module), weakref.ref(module.graph), weakref.ref(type(module))]
    del module
    gc.collect()
    assert [ref() for ref in seen] == [None, None, None]


@pytest.mark.parametrize("name", programs.PROGRAMS)
def test_both_ways_with_torch(name):
    make, inputs = programs.PROGRAMS[name]
    program = make()
    left = theirs.symbolic_trace(program)
    right = ours.from_torch(left)
    assert_same(left.graph, right.graph)
    back = right.to_torch()
    assert isinstance(back, theirs.GraphModule)
    assert_same(back.graph, right.graph)
    if name != "operators":
        run_modules([left, right], *inputs)
        run_modules([left, back], *inputs)


def test_our_code_is_compiled_by_framejit():
    import framejit

    module = traced(programs.Transformer)[1]
    tokens = torch.tensor([[1, 2, 3]])
    assert torch.allclose(framejit.compile(module)(tokens), module(tokens), atol=1e-5)
