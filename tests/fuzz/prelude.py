"""What every generated program can use: it is run before the program, in the
program's own namespace, so that compiled and eager runs share no state."""

# ruff: noqa: F401
import collections
import contextlib
import copy
import dataclasses
import functools
import io
import itertools
import math
import operator
import warnings
import weakref
from types import MethodType

import torch
import torch.nn.functional as F
import torch.nn.utils.parametrize
import torch.nn.utils.prune
import torch.utils._python_dispatch
import torch.utils.checkpoint

import framejit

LOG = []
OUT = io.StringIO()


def effect(value, tag="e"):
    """Leaves a trace of the order of evaluation."""
    LOG.append((tag, value if isinstance(value, (int, float, str, bool)) else "?"))
    return value


@framejit.disable
def opaque(value):
    """Ends the graph wherever an expression can stand."""
    LOG.append(("opaque", type(value).__name__))
    return value


def around(call):
    """What the caller has switched on during the call."""
    return contextlib.nullcontext()


class UserError(Exception):
    def __init__(self, message, code=0):
        super().__init__(message)
        self.code = code


class ChildError(UserError):
    pass


class Manager:
    """A context manager that may swallow one kind of exception."""

    def __init__(self, name, swallow=()):
        self.name = name
        self.swallow = swallow
        self.entered = 0

    def __enter__(self):
        LOG.append(("enter", self.name))
        self.entered += 1
        return self

    def __exit__(self, kind, error, traceback):
        LOG.append(("exit", self.name, kind.__name__ if kind else None))
        return kind is not None and issubclass(kind, self.swallow)


@contextlib.contextmanager
def section(name):
    LOG.append(("begin", name))
    try:
        yield len(name)
    finally:
        LOG.append(("end", name))


def twice(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        fn(*args, **kwargs)
        return fn(*args, **kwargs)

    return wrapper


def logged(fn):
    @functools.wraps(fn)
    def wrapper(*args, **kwargs):
        LOG.append(("call", fn.__name__, len(args), sorted(kwargs)))
        return fn(*args, **kwargs)

    return wrapper


Pair = collections.namedtuple("Pair", ["first", "second"])


class Frozen(frozenset):
    """Classes derived from frozenset are read by C code, too."""


def all_held(holder):
    """The boxes in it, however deep."""
    if isinstance(holder, slice):
        holder = (holder.start, holder.stop)
    found = []
    for item in holder if isinstance(holder, (tuple, frozenset)) else ():
        if isinstance(item, (tuple, frozenset)):
            found += all_held(item)
        elif hasattr(item, "items"):
            found.append(item)
    return found


class Box:
    """Attributes, and the protocols that go to them."""

    kind = "box"

    def __init__(self, n, x, items=None):
        self.n = n
        self.x = x
        self.items = [] if items is None else items
        self.table = {}

    def __len__(self):
        return len(self.items)

    def __getitem__(self, key):
        return self.items[key]

    def __setitem__(self, key, value):
        self.items[key] = value

    def __contains__(self, value):
        return value == self.n

    def __iter__(self):
        return iter(self.items)

    def __call__(self, x, scale=1):
        self.n += 1
        return x * scale + self.x

    def __add__(self, other):
        return Box(self.n + getattr(other, "n", other), self.x)

    def __iadd__(self, other):
        self.n += other
        return self

    def __eq__(self, other):
        return isinstance(other, Box) and self.n == other.n

    def __hash__(self):
        return hash(self.n)

    def __lt__(self, other):
        return self.n < other.n

    def __getattr__(self, name):
        if name.startswith("dyn_"):
            return len(name) + self.n
        raise AttributeError(f"no {name} in Box")

    @property
    def double(self):
        return self.n * 2

    @double.setter
    def double(self, value):
        self.n = value // 2

    @classmethod
    def make(cls, n, x):
        return cls(n, x)

    @staticmethod
    def plus(a, b):
        return a + b

    def push(self, x):
        self.items.append(x)
        return self


class ChildBox(Box):
    kind = "child"

    def __init__(self, n, x, items=None):
        super().__init__(n, x, items)
        self.extra = n + 1

    def __call__(self, x, scale=1):
        return super().__call__(x, scale) - self.extra


class SlotBox:
    __slots__ = ("n", "x", "items", "table")

    def __init__(self, n, x, items=None):
        self.n = n
        self.x = x
        self.items = [] if items is None else items
        self.table = {}

    def __call__(self, x, scale=1):
        self.n -= 1
        return x - self.x * scale


class Net(torch.nn.Module):
    """State of every kind a module has."""

    def __init__(self, scale):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([scale]))
        self.register_buffer("calls", torch.zeros(()))
        self.n = 0
        self.history = []
        self.act = torch.nn.Tanh()
        self.register_buffer("last", None)
        self.drop = torch.nn.Dropout(0.25)
        self.layers = torch.nn.ModuleList([torch.nn.ReLU(), torch.nn.Sigmoid()])
        self.blocks = torch.nn.ModuleDict(
            {"a": torch.nn.Sequential(torch.nn.Tanh(), torch.nn.Softmax(-1))}
        )
        self.register_buffer("mean", torch.zeros(1), persistent=False)
        self.steps = 0

    def forward(self, x, skip=False):
        self.n += 1
        if not skip:
            for layer in self.layers:
                x = layer(x) * self.weight
        if self.training:
            self.calls += 1
            x = self.drop(x)
        self.last = x.detach()
        return self.act(x)

    def deep(self, x):
        for name, block in self.blocks.items():
            x = block(x) + len(name)
        with torch.no_grad():
            self.mean.mul_(0.9).add_(x.mean() * 0.1)
        self.steps = self.steps + 1
        return x - self.mean

    @property
    def gain(self):
        return self.n + len(self.layers)


def hook(module, args, output):
    """A forward hook."""
    LOG.append(("hook", type(module).__name__, len(args)))
    return output * 2


class Tagged(torch.Tensor):
    """A class of tensors that notes what it is asked."""

    asked = 0

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        Tagged.asked += 1
        return super().__torch_function__(func, types, args, kwargs or {})


class Scaling(torch.overrides.TorchFunctionMode):
    """A mode that changes one function."""

    def __init__(self, by):
        self.by = by
        self.names = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.names.append(getattr(func, "__name__", "?"))
        out = func(*args, **(kwargs or {}))
        return out * self.by if func is torch.ones_like else out


class Square(torch.autograd.Function):
    """With a gradient of its own."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * 3


# What the dimensions use.

EXC = ValueError("global")
SHARED = iter([1, 2, 3])
SETTINGS = {}
HELD = []  # histories


def chained(error, cause):
    error.__cause__ = cause
    return error


def raised(error):
    """With a traceback."""
    try:
        raise error
    except Exception as caught:
        return caught


def noted(error, note):
    error.add_note(note)
    return error


def done(value, call):
    """The container after one of its methods."""
    eval(f"value.{call}", {"value": value})
    return value


def of_other_owner(tensor):
    """The same memory, which torch does not know to be."""
    if tensor.dtype == torch.bfloat16:  # NumPy has none
        return torch.from_dlpack(tensor)
    return torch.from_numpy(tensor.numpy())


def counting(n):
    while True:
        n += 1
        yield n


@functools.lru_cache(maxsize=None)
def cached(n):
    LOG.append(("computed", n))
    return n * 3


@functools.lru_cache(maxsize=2)
def few(n):
    LOG.append(("few", n))
    return n - 1


def cyclic_list(n):
    found = [n]
    found.append(found)
    return found


def nested(depth):
    found = [0]
    for i in range(depth):
        found = [i, found]
    return found


def nested_dict(depth):
    found = {}
    for i in range(depth):
        found = {"i": i, "d": found}
    return found


class Node:
    def __init__(self, n, following=None):
        self.n = n
        self.next = following
        self.items = []

    @classmethod
    def ring(cls, length):
        first = node = cls(0)
        for i in range(1, length):
            node = cls(i, node)
        first.next = node
        return node

    @classmethod
    def chain(cls, length):
        node = cls(0)
        for i in range(length):
            node = cls(i, node)
        return node

    @classmethod
    def tree(cls, depth):
        node = cls(depth)
        if depth:
            node.items = [cls.tree(depth - 1), cls.tree(depth - 1)]
            for item in node.items:
                item.next = node
        return node


SILENT = False  # the runner's: what goes says nothing


class Final:
    """Says when it goes."""

    def __init__(self, n, held=None):
        self.n = n
        self.held = held

    def __del__(self):
        if not SILENT:
            LOG.append(("final", self.n))


class FinalTorch(Final):
    """Works with tensors when it goes."""

    def __del__(self):
        if SILENT:
            return
        LOG.append(("final", self.n))
        with torch.no_grad():
            G_TENSOR.add_(1)
            LOG.append(float(torch.ones(2).mul_(self.n).sum()))


def gone(what):
    if not SILENT:
        LOG.append(("gone", type(what).__name__))


def watched(n):
    found = Box(n, torch.ones(()))
    weakref.finalize(found, gone, n).atexit = False
    return found


@contextlib.contextmanager
def both(*managers):
    with contextlib.ExitStack() as stack:
        for manager in managers:
            stack.enter_context(manager)
        yield


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


class Counting(torch.utils._python_dispatch.TorchDispatchMode):
    """Sees every operator."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        LOG.append(("operator", str(func)))
        return func(*args, **(kwargs or {}))


class OtherBox(Box):
    def __call__(self, x, scale=1):
        return x - scale


class OtherNet(Net):
    def forward(self, x, skip=False):
        self.n += 2
        return x * self.weight - 1

    @property
    def gain(self):
        return -self.n


class Doubling(torch.nn.Module):
    def forward(self, x):
        return x * 2
