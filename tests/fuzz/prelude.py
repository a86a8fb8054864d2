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

import torch
import torch.nn.functional as F
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
