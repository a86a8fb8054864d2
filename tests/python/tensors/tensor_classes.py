"""Classes derived from torch.Tensor that tests share."""

import torch
import torch.nn.functional as F

from differential import check


class Inherits(torch.Tensor):
    """Nothing of its own: results are of its class."""


class Sub(Inherits):
    pass


class Other(torch.Tensor):
    pass


class Doubles(torch.Tensor):
    """Changes what an operation gives."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if func is torch.Tensor.add or func is torch.add:
            return out * 2
        return out


class Plain(torch.Tensor):
    """Results are plain tensors."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


class Disabled(torch.Tensor):
    __torch_function__ = torch._C._disabled_torch_function_impl


class Counts(torch.Tensor):
    """Notes what it is asked."""

    calls: list = []

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        cls.calls.append(getattr(func, "__name__", "?"))
        return super().__torch_function__(func, types, args, kwargs or {})


def implements(table, *functions):
    def register(own):
        for function in functions:
            table[function] = own
        return own

    return register


HANDLED: dict = {}


class Handled(torch.Tensor):
    """The style of torch's documentation: a table of functions."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if kwargs is None:
            kwargs = {}
        if func not in HANDLED or not all(
            issubclass(t, (torch.Tensor, Handled)) for t in types
        ):
            return super().__torch_function__(func, types, args, kwargs)
        return HANDLED[func](*args, **kwargs)


@implements(HANDLED, torch.mean, torch.Tensor.mean)
def handled_mean(x, *args, **kwargs):
    return x.as_subclass(torch.Tensor).sum() * 10


@implements(HANDLED, F.softplus)
def handled_softplus(x, beta=1, threshold=20):
    return torch.relu(x.as_subclass(torch.Tensor)) + beta


class WithData(torch.Tensor):
    """Attributes of instances, methods and properties."""

    scale = 3.0

    @staticmethod
    def __new__(cls, data, meta=None, *args, **kwargs):
        return torch.Tensor._make_subclass(cls, data)

    def __init__(self, data, meta=None):
        self.meta = meta

    @property
    def twice(self):
        return self * 2

    @property
    def tag(self):
        return self.meta["tag"]

    @tag.setter
    def tag(self, value):
        self.meta = {"tag": value}

    def scaled(self, by=None):
        return self * (self.scale if by is None else by)

    @classmethod
    def of(cls, data):
        return cls(data, meta={"tag": "of"})

    @staticmethod
    def helper(x):
        return x - 1

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        if isinstance(out, WithData) and not hasattr(out, "meta"):
            for arg in args:
                if isinstance(arg, WithData) and hasattr(arg, "meta"):
                    out.meta = arg.meta
                    break
        return out


class Operators(torch.Tensor):
    """Special methods in Python, before torch is asked."""

    def __add__(self, other):
        return torch.Tensor.__add__(self, other) * 5

    def __radd__(self, other):
        return torch.Tensor.__radd__(self, other) * 7

    def __getitem__(self, index):
        return super().__getitem__(index) + 100

    def __neg__(self):
        return self * 2

    def __len__(self):
        return 17

    def __eq__(self, other):
        return "equal"

    def __bool__(self):
        return False

    def __getattr__(self, name):
        if name == "missing":
            return 41
        raise AttributeError(name)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {}))


def operated(fn):
    """On an Operators made inside: outside it would confuse the comparison."""

    def run(x):
        return fn(x.as_subclass(Operators))

    check(run, lambda: (torch.randn(3, 4),), breaks=0, graphs=1)


def of(cls, *shape, grad=False):
    def make():
        return (torch.randn(*shape or (3, 4)).as_subclass(cls).requires_grad_(grad),)

    return make


def pair(a, b):
    return lambda: (
        torch.randn(3, 4).as_subclass(a),
        torch.randn(3, 4).as_subclass(b),
    )
