"""framejit.compile and its friends: argument names, wrappers, modules, switches."""

from __future__ import annotations

import copy
import functools
import inspect
import pickle
import weakref

import pytest
import torch
from torch import nn

import framejit
from child_process import run_python


def add(a, b=2, /, c=3, *rest, d=4, **extra):
    """Adds."""
    return a + b + c + d + sum(rest) + sum(extra.values())


def test_looks_like_the_function():
    compiled = framejit.compile(add)
    assert compiled.__name__ == "add"
    assert compiled.__qualname__ == "add"
    assert compiled.__doc__ == "Adds."
    assert compiled.__module__ == __name__
    assert compiled.__wrapped__ is add
    assert inspect.signature(compiled) == inspect.signature(add)
    assert weakref.ref(compiled)() is compiled


CALLS = [
    lambda f, x: f(x),
    lambda f, x: f(x, 5),
    lambda f, x: f(x, 5, 6, 7, 8),
    lambda f, x: f(x, c=1, d=2, e=3),
    lambda f, x: f(),
    lambda f, x: f(a=x),
    lambda f, x: f(x, 1, 2, c=3),
    lambda f, x: f(*[x, 1], **{"d": 9}),
]


@pytest.mark.parametrize("call", CALLS)
def test_binds_like_the_function(call):
    compiled = framejit.compile(add)
    x = torch.ones(3)
    outcomes = []
    for function in (add, compiled, compiled):
        try:
            outcomes.append(call(function, x).tolist())
        except TypeError as error:
            outcomes.append(str(error))
    assert outcomes[0] == outcomes[1] == outcomes[2]


def test_method_static_and_class_method():
    class Scale:
        factor = 3.0

        def __init__(self, by):
            self.by = by

        @framejit.compile
        def method(self, x):
            return x * self.by

        @framejit.compile
        @staticmethod
        def static(x):
            return x + 1

        @classmethod
        @framejit.compile
        def of_class(cls, x):
            return x * cls.factor

    scale = Scale(2.0)
    x = torch.arange(4.0)
    for _ in range(2):
        assert torch.equal(scale.method(x), x * 2)
        assert torch.equal(Scale.method(Scale(5.0), x), x * 5)
        assert torch.equal(scale.static(x), x + 1)
        assert torch.equal(Scale.of_class(x), x * 3)
    assert torch.equal(framejit.compile(scale.method)(x), x * 2)


@pytest.mark.parametrize("metaclass", [type, type("Meta", (type,), {})])
def test_methods_that_making_the_class_treats_specially(metaclass):
    def answers(wrap):
        seen = []

        class Base(metaclass=metaclass):
            @wrap
            def __new__(cls, x):
                seen.append(cls.__name__)
                return object.__new__(cls)

            @wrap
            def __init_subclass__(cls, **words):
                seen.append((cls.__name__, words))

            @wrap
            def __class_getitem__(cls, key):
                return cls.__name__, key

        class Derived(Base, word=1):
            @wrap
            def __class_getitem__(cls, key):
                return super().__class_getitem__(key), "derived"

        x, methods = torch.ones(2), ["__init_subclass__", "__class_getitem__"]
        kinds = [type(vars(Base)[name]) is classmethod for name in methods]
        made = type(Derived(x)).__name__
        return seen, Base[1], Derived[2], Base(x).__class_getitem__(3), kinds, made

    assert answers(framejit.compile) == answers(lambda f: f)


def test_a_method_that_is_set_later_is_as_it_is():
    class Base:
        pass

    Base.__class_getitem__ = framejit.compile(lambda *args: len(args))
    assert Base[1] == 1


def test_arguments_are_checked():
    with pytest.raises(ValueError, match="unknown backend 'nonsense'"):
        framejit.compile(add, backend="nonsense")
    with pytest.raises(ValueError, match="unknown mode"):
        framejit.compile(add, mode="fastest")
    with pytest.raises(TypeError, match="backend must be"):
        framejit.compile(add, backend=3)
    with pytest.raises(TypeError, match="cannot compile"):
        framejit.compile(3)
    with pytest.raises(TypeError, match="got a class"):
        framejit.compile(nn.Linear)
    assert framejit.compile(add, disable=True) is add


def test_custom_backend_gets_graph_module_and_examples():
    seen = []

    def backend(gm, example_inputs):
        assert isinstance(gm, torch.fx.GraphModule)
        seen.append((gm, example_inputs))
        return gm.forward

    @framejit.compile(backend=backend)
    def f(x, y):
        return torch.relu(x) @ y

    x, y = torch.randn(3, 4), torch.randn(4, 5)
    for _ in range(3):
        torch.testing.assert_close(f(x, y), torch.relu(x) @ y)
    assert len(seen) == 1
    gm, examples = seen[0]
    assert [tuple(t.shape) for t in examples] == [(3, 4), (4, 5)]
    assert [n.op for n in gm.graph.nodes].count("placeholder") == 2


@pytest.mark.parametrize("count", [3, 40])
@pytest.mark.parametrize("calls", [1, 2, 5, 70])
def test_backend_that_fails(count, calls):
    """It fails: eager runs, unless it wrote to an input before, as far as known.

    Many tensors that stay are not looked at in each call.
    """
    mode = "works"

    def backend(gm, example_inputs):
        def run(*inputs):
            if mode == "writes":
                inputs[-1].add_(1)
            if mode != "works":
                raise ZeroDivisionError(mode)
            return gm(*inputs)

        return run

    weights = [torch.full((2,), float(i)) for i in range(count)]

    def function(x):
        for weight in weights:
            x = x + weight
        return x

    compiled = framejit.compile(function, backend=backend)
    x = torch.ones(2)
    for _ in range(calls):
        torch.testing.assert_close(compiled(x), function(x))
    mode = "fails"
    torch.testing.assert_close(compiled(x), function(x))
    mode = "writes"
    with pytest.raises(ZeroDivisionError):
        compiled(x)
    mode = "fails"
    torch.testing.assert_close(compiled(x), function(x))
    for _ in range(calls):
        mode = "works"
        torch.testing.assert_close(compiled(x), function(x))
        mode = "writes"
        with pytest.raises(ZeroDivisionError):
            compiled(x)
    # New tensors each time, which may lie where the old ones did.
    for _ in range(calls):
        mode = "works"
        weights[:] = [weight.clone() for weight in weights]
        torch.testing.assert_close(compiled(x), function(x))
        mode = "fails"
        torch.testing.assert_close(compiled(x), function(x))
    mode = "works"
    for _ in range(calls):
        compiled(x)
    # The program's own write looks like one of the backend's, where the tensors
    # are many: then it is the backend's error that the caller gets, once.
    weights[-1].mul_(2)
    mode = "fails"
    try:
        result = compiled(x)
    except ZeroDivisionError:
        assert count > 16
        result = compiled(x)
    torch.testing.assert_close(result, function(x))


def test_backend_registered_with_torch_compile():
    x = torch.randn(5)
    f = framejit.compile(lambda x: (x * 2).sin(), backend="aot_eager_decomp_partition")
    torch.testing.assert_close(f(x), (x * 2).sin())


def test_fullgraph_names_line_reason_and_hint():
    @framejit.compile(fullgraph=True)
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    with pytest.raises(framejit.GraphBreakError) as caught:
        f(torch.ones(3))
    text = str(caught.value)
    assert "FJ101" in text and "hint:" in text
    line = inspect.getsourcelines(f.__wrapped__)[1] + 2
    assert f"{__file__}:{line}" in text


def test_disable_breaks_and_leaves_alone():
    ran = []

    @framejit.disable
    def opaque(x):
        ran.append(1)
        return x * 2

    @framejit.compile
    def f(x):
        y = x + 1
        y = opaque(y)
        return y - 1

    x = torch.randn(4)
    for _ in range(3):
        torch.testing.assert_close(f(x), (x + 1) * 2 - 1)
    assert len(ran) == 3
    assert [b.id for e in framejit.inspect(f) for b in e.breaks] == ["FJ205"]


def test_graph_break_call():
    @framejit.compile
    def f(x):
        y = x.sin()
        framejit.graph_break("here")
        return y.cos()

    x = torch.randn(4)
    for _ in range(2):
        torch.testing.assert_close(f(x), x.sin().cos())
    (found,) = framejit.inspect(f)
    assert found.breaks[0].id == "FJ206"


def test_is_compiling():
    f = framejit.compile(lambda x: x + (1 if framejit.is_compiling() else 0))
    assert f(torch.zeros(1)).item() == 1
    assert not framejit.is_compiling()


def test_torch_is_compiling():
    """True in a capture, as under torch.compile; False in code that CPython runs."""
    seen = []

    def outside():
        return torch.compiler.is_compiling()

    outside = framejit.disable(outside)

    def f(x):
        inside = torch.compiler.is_compiling(), torch.compiler.is_dynamo_compiling()
        seen.append(
            (inside, torch.compiler.is_exporting(), torch._dynamo.is_compiling())
        )
        seen.append(outside())
        return x + 1

    framejit.compile(f, backend="eager")(torch.zeros(1))
    assert seen == [((True, True), False, True), False]
    assert not torch.compiler.is_compiling()


def test_always_called_hooks_while_compiling():
    """nn.Module leaves such hooks out where is_compiling(); a capture does not."""
    calls = []

    class Failing(torch.nn.Module):
        def forward(self, x):
            raise ValueError("no")

    inner = Failing()
    inner.register_forward_hook(lambda *args: calls.append(1), always_call=True)

    def f(x):
        try:
            return inner(x)
        except ValueError:
            return x + 1

    assert framejit.compile(f, backend="eager")(torch.zeros(1)).item() == 1
    assert calls == [1]


def test_explain_and_inspect():
    def f(d):
        x = d["x"].sin()
        if x.sum() > 100:
            return x
        return x.cos()

    framejit.compile(lambda x: x.tolist())(torch.ones(2))
    before, counted = framejit.events(), framejit.counters()["compiles"]
    report = framejit.explain(f)({"x": torch.ones(3)})
    # It adds to what happened so far, and shows its own part.
    assert framejit.events() == before + report.events and before
    assert framejit.counters()["compiles"] > counted
    assert report.graph_count == 2
    assert report.graph_break_count == 1
    assert report.breaks[0].id == "FJ101"
    assert any("x" in guard for guard in report.guards)
    assert "FJ101" in str(report)
    compiled = framejit.compile(f)
    compiled({"x": torch.ones(3)})
    (entry,) = framejit.inspect(compiled)
    assert entry.residual_code is not None
    assert len(entry.resume) == 2
    assert sum(map(len, entry.resume.values())) == 1
    assert entry.compile_ms > 0


def timed(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


@pytest.mark.parametrize("decorator", [torch.no_grad(), torch.inference_mode(), timed])
def test_what_is_under_one_decorator_has_entries_of_its_own(decorator):
    def made(number):
        return lambda x: x * number

    plain = [made(number) for number in range(12)]
    x = torch.ones(2)
    before = framejit.counters()["compiles"]
    compiled = [framejit.compile(decorator(f)) for f in plain]
    for _ in range(2):
        for number, f in enumerate(compiled):
            assert f(x).tolist() == [number, number]
            assert len(framejit.inspect(f)) == 1
    assert framejit.counters()["compiles"] == before + 12
    # Decorated anew it is the same function; with other options it is not.
    assert framejit.compile(decorator(plain[3]))(x).tolist() == [3, 3]
    assert framejit.counters()["compiles"] == before + 12
    framejit.compile(decorator(plain[3]), dynamic=True)(x)
    assert framejit.counters()["compiles"] == before + 13


@pytest.mark.parametrize("value", [3, "f", torch.ones(1), None])
def test_explain_takes_functions_alone(value):
    with pytest.raises(TypeError, match=r"framejit.explain: expected a function"):
        framejit.explain(value)


def run_source(source, **environment):
    return run_python("-c", source, environment={"FRAMEJIT_STRICT": "0", **environment})


def test_off_switch():
    done = run_source(
        "import framejit\ndef f(): pass\nassert framejit.compile(f) is f", FRAMEJIT="0"
    )
    assert done.returncode == 0, done.stderr


def test_log_channels():
    source = """
import torch, framejit
@framejit.compile
def f(x):
    if x.sum() > 0:
        return x + 1
    return x.cos()
f(torch.ones(3)); f(torch.ones(4))
"""
    done = run_source(
        source, FRAMEJIT_LOG="guards,recompiles,graph_breaks,graphs,bytecode,kernels"
    )
    assert done.returncode == 0, done.stderr
    for channel in ("guards", "recompiles", "graph_breaks", "graphs", "bytecode"):
        assert f"framejit.{channel}" in done.stderr, done.stderr
    assert "expected 3, got 4" in done.stderr


# ---- modules


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.drop = nn.Dropout(0.5)

    def forward(self, x):
        return self.drop(self.layer(x)).relu()


def test_compiled_module_is_the_same_module():
    net = Net()
    compiled = framejit.compile(net)
    assert isinstance(compiled, Net) and type(compiled).__name__ == "Net"
    assert list(compiled.state_dict()) == list(net.state_dict())
    assert all(a is b for a, b in zip(compiled.parameters(), net.parameters()))
    x = torch.randn(2, 4)
    for training in (True, False, True):
        compiled.train(training)
        assert net.training is training
        torch.manual_seed(3)
        expected = net(x)
        torch.manual_seed(3)
        torch.testing.assert_close(compiled(x), expected)
    compiled.to(torch.float64)
    assert net.layer.weight.dtype == torch.float64
    torch.testing.assert_close(compiled.eval()(x.double()), net(x.double()))


def test_original_stays_eager():
    net = Net().eval()
    compiled = framejit.compile(net)
    net(torch.randn(2, 4))
    assert framejit.counters()["compiles"] == 0
    compiled(torch.randn(2, 4))
    assert framejit.counters()["compiles"] >= 1


def test_copies_and_pickles_as_plain_module():
    compiled = framejit.compile(Net())
    for other in (
        copy.copy(compiled),
        copy.deepcopy(compiled),
        pickle.loads(pickle.dumps(compiled)),
    ):
        assert type(other) is Net
        for a, b in zip(other.parameters(), compiled.parameters()):
            assert torch.equal(a, b)


def test_hooks_and_attribute_writes():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return self.layer(x)

    plain = Counting()
    compiled = framejit.compile(plain)
    x = torch.randn(2, 4)
    for _ in range(4):
        torch.testing.assert_close(compiled(x), plain.layer(x))
    assert plain.calls == 4
    handle = plain.register_forward_hook(lambda module, args, out: out * 2)
    torch.testing.assert_close(compiled(x), plain.layer(x) * 2)
    handle.remove()
    torch.testing.assert_close(compiled(x), plain.layer(x))


class Slotted(nn.Module):
    __slots__ = ("extra",)

    def forward(self, x):
        return x + 1


@pytest.mark.parametrize("make", [Slotted, lambda: torch.jit.script(nn.Linear(3, 3))])
def test_forwarding_modules(make):
    plain = make()
    compiled = framejit.compile(plain)
    x = torch.randn(2, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), plain(x))
    assert list(compiled.state_dict()) == list(plain.state_dict())


@pytest.mark.parametrize("make", (torch.nn.LazyLinear, torch.nn.LazyBatchNorm1d))
def test_a_lazy_module_stays_compiled_when_it_becomes_another_class(make):
    torch.manual_seed(0)
    args = (3,) if make is torch.nn.LazyLinear else ()
    plain, compiled = make(*args), framejit.compile(make(*args), backend="eager")
    for seed in range(3):
        x = torch.randn(4, 5)
        torch.manual_seed(seed)
        expected = plain(x)
        torch.manual_seed(seed)
        torch.testing.assert_close(compiled(x), expected)
    assert list(compiled.state_dict()) == list(plain.state_dict())
    assert any(
        e.operations for entry in framejit.inspect(compiled) for e in entry.walk()
    )


def test_compile_inplace():
    net = Net().eval()
    x = torch.randn(2, 4)
    expected = net(x)
    framejit.compile_inplace(net, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(net(x), expected)
    assert framejit.counters()["compiles"] == 1 and type(net) is Net
    for other in (copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        torch.testing.assert_close(other(x), expected)
        assert other._compiled_call_impl is None
    assert framejit.counters()["compiles"] == 1
    handle = net.register_forward_hook(lambda module, args, out: out * 2)
    torch.testing.assert_close(net(x), expected * 2)
    handle.remove()
    framejit.compile_inplace(net, disable=True)
    framejit.reset()
    torch.testing.assert_close(net(x), expected)
    assert framejit.counters()["compiles"] == 0
    with pytest.raises(TypeError, match="expected a module"):
        framejit.compile_inplace(len)


def test_allow_in_graph():
    ran = []

    @framejit.allow_in_graph
    def opaque(x, scale):
        ran.append(1)
        return x.sin() * scale

    def other(x, scale):
        return x - scale

    def f(x):
        return call(x + 1, 2.0) - 1

    call = opaque
    x = torch.randn(4, requires_grad=True)
    compiled = framejit.compile(f, backend="eager", fullgraph=True)
    for _ in range(3):
        result = compiled(x)
        torch.testing.assert_close(result, (x + 1).sin() * 2 - 1)
    (entry,) = framejit.inspect(compiled)
    assert entry.operations == 3 and "sin" not in entry.torch_graph
    (gradient,) = torch.autograd.grad(result.sum(), x)
    torch.testing.assert_close(gradient, (x + 1).cos() * 2)
    call = other
    torch.testing.assert_close(compiled(x), x - 2)
    with pytest.raises(TypeError, match="expected a Python function"):
        framejit.allow_in_graph(torch.sin)


def test_argument_types_are_checked():
    with pytest.raises(TypeError, match="fullgraph must be True or False, not 1"):
        framejit.compile(add, fullgraph=1)
    with pytest.raises(TypeError, match="dynamic must be None, True or False"):
        framejit.compile(add, dynamic="yes")
    with pytest.raises(TypeError, match="options must be a dict"):
        framejit.compile(add, options=[1])
    with pytest.raises(ValueError, match="either mode or options"):
        framejit.compile(add, mode="default", options={})
