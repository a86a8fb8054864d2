"""Things of the program that have the names of torch's or the library's own.

A class may be called anything, `functools.wraps` copies module and name, and
packages set `__module__`. Only the object itself says what it is.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import abc
import functools

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint

from differential import check, one, program

CLASS_NAMES = [
    *("Size", "torch.Size", "dtype", "torch.dtype", "torch.device"),
    *("torch.tensortype", "tensortype", "FloatTensor", "TensorBase"),
    *("ScriptFunction", "torch.ScriptFunction", "OpOverload", "Parameter"),
    *("numpy.float64", "Tensor", "torch._C.TensorBase"),
    *("Generator", "torch.Generator", "DisableTorchFunctionSubclass"),
    "pybind11_detail_function_record",
]
MODULES = [
    *("torch", "torch._C", "torch._ops", "torch.jit", "torch.nn.functional"),
    *("torch.return_types", "torch.autograd.function", "torch.distributed"),
    *("torch.utils.checkpoint", "torch._tensor", "torch.nn.modules.linear"),
]


def impostor(name: str, module: str) -> type:
    class Impostor:
        inlined_graph = "graph()"
        _qualified_op_name = "aten::add"

        def __init__(self, n=2):
            self.n = n

        def __call__(self, x):
            self.n += 1
            return x * self.n

        def scaled(self, x):
            return x * self.n

        def __getitem__(self, index):
            return self.n + index

        def __len__(self):
            return self.n

    Impostor.__name__ = Impostor.__qualname__ = name
    Impostor.__module__ = module
    return Impostor


def use(x, made, kind):
    fresh = kind(4)
    out = made(x) + made.scaled(x) + fresh(x) + made[1] + len(fresh)
    for step in (1, 2):
        made.n += step
    return out, made.n, fresh, isinstance(made, kind), type(fresh) is kind


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_class_of_a_known_name(name):
    kind = impostor(name, __name__)
    check(use, lambda: (*one(), kind(3), kind), graphs=1, breaks=0)


@pytest.mark.parametrize("module", MODULES)
def test_class_that_says_it_is_torchs(module):
    kind = impostor("Impostor", module)
    check(use, lambda: (*one(), kind(3), kind), graphs=1, breaks=0)


@pytest.mark.parametrize("name", ["OpOverload", "OpOverloadPacket", "_OpNamespace"])
def test_class_that_says_it_is_an_operator(name):
    kind = impostor(name, "torch._ops")
    check(use, lambda: (*one(), kind(3), kind), graphs=1, breaks=0)


@pytest.mark.parametrize(
    "name", ["pybind11_type", "pybind11_builtins.pybind11_type", "EnumType", "EnumMeta"]
)
def test_metaclass_of_a_known_name(name):
    meta = type(name, (type,), {})

    class Member(metaclass=meta):
        __entries = {}
        __slots__ = ("n",)

        def __init__(self, n):
            self.n = n

    Member._Member__entries = {}
    type.__setattr__(Member, "__entries", {})

    def f(x, member, kind):
        member.n += 1
        fresh = kind(member.n)
        return x * member.n, fresh.n, member is fresh, member == fresh

    check(f, lambda: (*one(), Member(2), Member), graphs=1, breaks=0)


WRAPPED = [
    *(torch.relu, torch.is_grad_enabled, torch.compiler.is_compiling),
    *(F.relu, F.dropout, F.interpolate, F.max_pool2d),
    *(torch.utils.checkpoint.checkpoint, torch.autograd.grad, torch.no_grad),
    *(torch.Tensor.__add__, torch.Tensor.__len__, torch.Tensor.backward),
    *(torch.autograd.Function.apply, torch.nn.Module.__call__, torch.cond),
    *(torch.set_grad_enabled, torch.compile, torch.tensor),
]


@pytest.mark.parametrize("original", WRAPPED, ids=lambda f: f.__qualname__)
def test_function_that_wraps_one_of_torch(original):
    @functools.wraps(original)
    def wrapper(x, n=3):
        return x * n + 1

    def f(x):
        return wrapper(x), wrapper(x, 5)

    check(f, one, graphs=1, breaks=0)


@pytest.mark.parametrize("original", WRAPPED, ids=lambda f: f.__qualname__)
def test_decorated_by_torch_and_named_as_one_of_torch(original):
    @torch.no_grad()
    @functools.wraps(original)
    def wrapper(x, n=3):
        return x * n + 1, torch.is_grad_enabled()

    def f(x):
        return wrapper(x)[0] * 1, wrapper(x)[1], torch.is_grad_enabled()

    check(f, one)


class Meta(abc.ABCMeta):
    @functools.wraps(abc.ABCMeta.__instancecheck__)
    def __instancecheck__(cls, subject):
        return subject == 3

    @functools.wraps(abc.ABCMeta.__subclasscheck__)
    def __subclasscheck__(cls, subject):
        return subject is int


class Three(metaclass=Meta):
    pass


@program(one)
def test_instance_check_that_wraps_that_of_abc(x):
    return x * 2, isinstance(3, Three), isinstance(4, Three), issubclass(int, Three)
