"""What examples decide is a fact of the graph, and looking at them changes nothing."""

from __future__ import annotations

import contextlib
import copy
import enum
import math
import threading

import pytest
import torch
from torch import nn

from fx.both import ours

TraceError = ours.TraceError

x34 = torch.linspace(-1, 1, 12).view(3, 4)


class Keeps(nn.Module):
    """Writes what it can into itself."""

    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros((), dtype=torch.long))
        self.scale = nn.Parameter(torch.ones(4))
        self.plain = torch.zeros(2)
        self.seen, self.table, self.number = [], {}, 0
        self.lock = threading.Lock()
        self.inner = nn.BatchNorm1d(4, momentum=None)

    def forward(self, x):
        self.calls += 1
        self.plain.add_(1)
        self.last = x
        self.seen.append(x)
        self.table["x"] = x
        self.number += 1
        self.calls = self.calls + 1
        with self.lock, torch.no_grad():
            self.scale.mul_(2)
        return self.inner(x) * self.scale * self.number


class LeavesAlone(ours.Tracer):
    def is_leaf_module(self, m, path):
        return isinstance(m, Keeps) or super().is_leaf_module(m, path)


def test_modules_that_run_for_examples_are_left_as_they_were():
    leaf = Keeps()
    leaf.register_forward_pre_hook(lambda m, args: setattr(m, "hooked", args))
    root = nn.Sequential(leaf, nn.BatchNorm1d(4), nn.GRU(4, 3), leaf)[:3]
    state = {k: v.clone() for k, v in root.state_dict().items()}
    tensors = {k: id(v) for k, v in root.state_dict(keep_vars=True).items()}
    names = list(vars(leaf))

    tracer = LeavesAlone()
    graph = tracer.trace(root, example_inputs=(x34,))
    assert [n.op for n in graph.nodes].count("call_module") == 3
    assert tensors == {k: id(v) for k, v in root.state_dict(keep_vars=True).items()}
    for key, value in root.state_dict().items():
        assert torch.equal(value, state[key]), key
    assert list(vars(leaf)) == names
    assert leaf.seen == [] and leaf.table == {} and leaf.number == 0
    assert torch.equal(leaf.plain, torch.zeros(2))


def test_what_a_leaf_writes_the_next_call_of_it_finds():
    class Counts(nn.Module):
        number = 0

        def forward(self, x):
            self.number += 1
            return x[: self.number]

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.leaf = Counts()

        def forward(self, x):
            first, second = self.leaf(x), self.leaf(x)
            return x * 2 if first.shape[0] < second.shape[0] else x

    class Tracer(ours.Tracer):
        def is_leaf_module(self, m, path):
            return isinstance(m, Counts)

    root = Twice()
    graph = Tracer().trace(root, example_inputs=(x34,))
    assert root.leaf.number == 0
    assert torch.equal(ours.GraphModule(root, graph)(x34), x34 * 2)


def unpacks(x):
    a, b, c = x
    return a + b * c


# What a program asks, an example of another answer, and what the fact says.
double = x34.double()
ASKED = {
    "type": (lambda x: x * 2 if type(x) is torch.Tensor else x, nn.Parameter(x34)),
    "class": (lambda x: x * 2 if issubclass(type(x), torch.Tensor) else x, 1.0),
    "set": (lambda x: x * 2 if x.dim() in {2, 3} else x * 3, x34[0]),
    "key": (lambda x: x * {3: 2.0}.get(x.shape[0], 5.0), x34[:2]),
    "dtype": (lambda x: x * {torch.float32: 2.0}.get(x.dtype, 5.0), double),
    "tuple": (lambda x: x * 2 if tuple(x.shape) in {(3, 4)} else x, x34[:2]),
    "text": (lambda x: x * 2 if str(x.dtype) == "torch.float32" else x, double),
    "f": (lambda x: x * 2 if f"{x.dtype}" == "torch.float32" else x, double),
    "repr": (lambda x: x * len(f"{x.shape!r}"), x34.view(12)),
    "percent": (lambda x: x * len("%s" % x.dtype), double),
    "hash": (lambda x: x * (hash(x.shape[0]) % 7), x34[:2]),
    "is_tensor": (lambda x: x * 2 if torch.is_tensor(x) else x, 3.0),
    "hasattr": (lambda x: x * 2 if hasattr(x, "shape") else x * 3, 3.0),
    "no attribute": (lambda x: x * 2 if hasattr(x, "real_name") else x * 3, None),
    "getattr": (lambda x: x * getattr(x, "nothing", 2), None),
    "unpacked": (lambda x: (lambda a, b, c: a + b * c)(*x), x34[:2]),
    "names": (unpacks, torch.cat([x34, x34])),
    "callable": (lambda x: x * 2 if callable(x) else x * 3, None),
}


@pytest.mark.parametrize("name", ASKED)
def test_what_a_program_asks_is_a_fact(name):
    program, other = ASKED[name]
    traced = ours.symbolic_trace(program, example_inputs=(x34,))
    for each in (traced, ours.symbolic_trace(traced), copy.deepcopy(traced)):
        assert torch.equal(each(x34), program(x34))
        if other is not None:
            with pytest.raises((AssertionError, TypeError), match="test_examples.py"):
                each(other)
    assert traced.meta["facts"] and "test_examples.py" in traced.meta["facts"][0]


def test_what_has_no_text_is_refused():
    for program in (
        lambda x: x * len(f"{x}"),
        lambda x: x * len(str(x)),
        lambda x: x * len(repr(x)),
        lambda x: x * (hash(x.sum().item()) % 7),
    ):
        with pytest.raises(TraceError, match="test_examples.py:"):
            ours.symbolic_trace(program, example_inputs=(x34,))
    traced = ours.symbolic_trace(lambda x: x * len(f"{x}"))
    assert torch.equal(traced(x34), x34 * len("Proxy(x)"))  # as torch.fx


def test_a_float_is_what_it_is_to_the_sign():
    traced = ours.symbolic_trace(
        lambda x, a: x * len(f"{a}"), example_inputs=(x34, 0.0)
    )
    assert torch.equal(traced(x34, 0.0), x34 * 3)
    for other in (-0.0, 0, False):
        with pytest.raises(AssertionError, match=r"a is 0\.0 .*, but it is "):
            traced(x34, other)


def handles(x):
    try:
        scale = 2 if x.sum() > 0 else 3
    except Exception:
        scale = 5
    return x * scale


def suppresses(x):
    with contextlib.suppress(Exception):
        return x * [1, 2, 3][x.argmax()]
    return x * 3


def finds_no_length(x):
    try:
        lengths = list(map(len, [x.sum()]))
    except (TypeError, RuntimeError):
        lengths = []
    return x * len(lengths)


@pytest.mark.parametrize("program", [handles, suppresses, finds_no_length])
@pytest.mark.parametrize("how", [{}, {"example_inputs": (x34,)}])
def test_an_error_that_the_program_handles_ends_the_trace(program, how):
    with pytest.raises((TraceError, RuntimeError), match=f"in {program.__name__}"):
        ours.symbolic_trace(program, **how)
    # (A tracer may know better.)

    class Knows(ours.Tracer):
        def to_bool(self, obj):
            try:
                return super().to_bool(obj)
            except TraceError:
                return True

    if program is handles:
        tracer = Knows()
        made = ours.GraphModule(tracer.root or {}, tracer.trace(program, **how))
        assert torch.equal(made(x34), x34 * 2)


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


CONCRETE = {
    "bool": (True, (1, 1.0, False)),
    "int": (1, (True, 1.0, 2)),
    "float": (0.0, (-0.0, 0, 1.0)),
    "nan": (math.nan, (0.0,)),
    "complex": (2 + 0j, (2, complex(2, -0.0))),
    "tensor": (torch.ones(4), (torch.zeros(4), torch.ones(4).double(), 1.0)),
    "dtype": (torch.float64, (torch.float16,)),
    "device": (torch.device("cpu"), (torch.device("meta"),)),
    "function": (torch.relu, (torch.abs, None)),
    "class": (dict, (list,)),
    "enum": (Kind.ONE, (Kind.TWO, 1)),
    "list": ([1, (2.0, "a")], ([1, (2, "a")],)),
}


@pytest.mark.parametrize("name", CONCRETE)
def test_concrete_arguments_are_checked(name):
    def program(x, k):
        if isinstance(k, (int, float, complex, torch.Tensor)):
            return x * k
        return k(x) if k is torch.relu else x * len(str(k))

    value, others = CONCRETE[name]
    traced = ours.symbolic_trace(program, concrete_args={"k": value})
    for each in (traced, ours.symbolic_trace(traced)):
        if name == "list" and each is not traced:
            continue  # (its leaves are the inputs)
        made = each(x34, value)
        assert torch.allclose(made, program(x34, value), equal_nan=True)
        for other in others:
            with pytest.raises((AssertionError, TypeError), match="k has been spec"):
                each(x34, other)
    if name == "bool":
        with pytest.raises(TraceError, match="no graph can check that k is"):
            ours.symbolic_trace(program, concrete_args={"k": threading.Lock()})


def test_the_check_of_none_is_no_dead_code():
    traced = ours.symbolic_trace(lambda x, y: x, concrete_args={"y": None})
    traced.graph.eliminate_dead_code()
    traced.recompile()
    with pytest.raises(AssertionError, match="y has been specialized"):
        traced(x34, 1)
