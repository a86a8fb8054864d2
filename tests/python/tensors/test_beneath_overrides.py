"""What torch's own class has, read and written beneath a class of the program's."""

from __future__ import annotations

import copy

import pytest
import torch

import framejit

GETTERS = sorted(
    name
    for name, value in vars(torch._C.TensorBase).items()
    if type(value).__name__ == "getset_descriptor" and name not in ("_cdata",)
)
KINDS = ["leaf", "gradient", "computed", "plain", "integers"]


def hiding(name):
    """A class that has the attribute anew, as torch's own one."""
    getter = vars(torch._C.TensorBase)[name]
    return type(
        "Hides",
        (torch.Tensor,),
        {name: property(lambda self: getattr(super(Hides[name], self), name))},
    ), getter


Hides: dict[str, type] = {}
for _name in GETTERS:
    Hides[_name] = hiding(_name)[0]


def tensor(kind, cls=None):
    if kind == "integers":
        x = torch.arange(4)
    else:
        x = torch.arange(4.0)
    if cls:
        x = x.as_subclass(cls)
    if kind in ("leaf", "gradient"):
        x.requires_grad_()
    if kind == "gradient":
        torch.Tensor.backward((x * x).sum())
    if kind == "computed":
        x = x.requires_grad_() * 2
    return x


def plain(value):
    if isinstance(value, torch.Tensor):
        return (
            type(value).__name__,
            value.as_subclass(torch.Tensor).tolist(),
            value.requires_grad,
        )
    if isinstance(value, (bool, int, str, type(None), torch.dtype, torch.Size)):
        return value
    return type(value).__name__


def outcome(function, *args):
    try:
        return plain(function(*args))
    except Exception as error:
        return type(error)


def routes(name):
    getter = vars(torch._C.TensorBase)[name]
    return {
        "override": (True, lambda x: getattr(x, name)),
        "super": (False, lambda x: getattr(super(torch.Tensor, x), name)),
        "getattribute": (
            False,
            lambda x: super(torch.Tensor, x).__getattribute__(name),
        ),
        "getter": (True, lambda x: getter.__get__(x)),
        "class getter": (True, lambda x: type(x).__dict__[name].__get__(x)),
    }


@pytest.mark.parametrize("name", GETTERS)
def test_getters(name):
    for route, (hides, read) in routes(name).items():
        for kind in KINDS:
            cls = Hides[name] if hides else None

            def program(x):
                return read(x)

            want = outcome(program, tensor(kind, cls))
            compiled = framejit.compile(program)
            for _ in range(2):
                assert outcome(compiled, tensor(kind, cls)) == want, (route, kind)


def test_sizes_that_change():
    class Long(torch.Tensor):
        def __len__(self):
            return super().shape[0]

    def program(x):
        return x + len(x), super(torch.Tensor, x).shape[0]

    compiled = framejit.compile(program)
    for n in (3, 4, 5, 1):
        x = torch.ones(n).as_subclass(Long)
        assert plain(compiled(x)[0]) == plain(program(x)[0])
        assert compiled(x)[1] == n


class WritesOn(torch.nn.Parameter):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)

    def __delattr__(self, name):
        super().__delattr__(name)


class Passes(torch.Tensor):
    pass


def _delete_grad(x):
    del x.grad


WRITES = {
    "data": lambda x: setattr(x, "data", torch.zeros(4)),
    "no grad": lambda x: setattr(x, "grad", None),
    "requires_grad": lambda x: setattr(x, "requires_grad", False),
    "own": lambda x: setattr(x, "own", 5),
    "delete grad": _delete_grad,
    "beneath data": lambda x: super(torch.Tensor, x).__setattr__(
        "data", torch.zeros(4)
    ),
    "beneath own": lambda x: super(torch.Tensor, x).__setattr__("own", 5),
    "beneath grad": lambda x: super(torch.Tensor, x).__delattr__("grad"),
    "object's": lambda x: object.__setattr__(x, "own", 5),
}


@pytest.mark.parametrize("cls", [WritesOn, Passes, torch.nn.Parameter, torch.Tensor])
@pytest.mark.parametrize("what", WRITES)
def test_writes(what, cls):
    def program(x):
        WRITES[what](x)
        return x + 1

    def run(function):
        x = torch.arange(4.0)
        if cls in (WritesOn, torch.nn.Parameter):
            x = cls(x)
        else:
            x = x.as_subclass(cls).requires_grad_()
        torch.Tensor.backward((x * x).sum())
        out = outcome(function, x)
        seen = [outcome(getattr, x, n) for n in ("grad", "own", "requires_grad")]
        return out, seen, plain(x)

    compiled = framejit.compile(program)
    for _ in range(2):
        assert run(compiled) == run(program)


OPERATORS = "add sub mul truediv floordiv mod pow and or xor lshift rshift".split()


@pytest.mark.parametrize("operation", OPERATORS)
def test_in_place_beside_an_override(operation):
    """`x += y` is torch's own where the class has `+` alone."""
    seen = []

    def method(self, other):
        seen.append(operation)
        return getattr(super(Own, self), f"__{operation}__")(other)

    Own = type("Own", (torch.Tensor,), {f"__{operation}__": method})
    symbol = dict(
        zip(OPERATORS, "+= -= *= /= //= %= **= &= |= ^= <<= >>=".split(), strict=True)
    )[operation]
    scope: dict = {}
    exec(f"def program(x, y):\n    x {symbol} y\n    return x, x is y", scope)
    program = scope["program"]
    integers = operation in ("and", "or", "xor", "lshift", "rshift")

    def run(function, other, leaf):
        x = (torch.arange(1, 5) if integers else torch.arange(1.0, 5.0)).as_subclass(
            Own
        )
        if leaf and not integers:
            x.requires_grad_()
        del seen[:]
        try:
            out, _ = function(x, other)
        except Exception as error:
            return type(error), list(seen)
        return out is x, plain(out), plain(x), list(seen)

    compiled = framejit.compile(program)
    for other in (2, torch.tensor(2), torch.full((4,), 2)):
        for leaf in (False, True):
            want = run(program, other, leaf)
            for _ in range(2):
                assert run(compiled, copy.copy(other), leaf) == want, (other, leaf)


@pytest.mark.parametrize("cls", [Passes, torch.Tensor, torch.nn.Parameter])
def test_what_was_just_written(cls):
    def program(x):
        x.own = 5
        found = getattr(x, "own", 1), hasattr(x, "own"), hasattr(x, "other")
        del x.own
        return *found, getattr(x, "own", 1), hasattr(x, "own"), x + 1

    x = (
        torch.ones(2).as_subclass(cls)
        if cls is not torch.nn.Parameter
        else cls(torch.ones(2))
    )
    compiled = framejit.compile(program)
    for _ in range(2):
        assert compiled(x)[:5] == program(x)[:5] == (5, True, False, 1, False)


def test_attributes_asked_in_python():
    asked = []

    class Asks(torch.Tensor):
        def __getattribute__(self, name):
            asked.append(name)
            return super().__getattribute__(name)

    def program(x):
        return x.sum(), x.shape[0]

    def run(function):
        x = torch.ones(3).as_subclass(Asks)
        del asked[:]
        total, n = function(x)
        return list(asked), n, total.as_subclass(torch.Tensor).item()

    compiled = framejit.compile(program)
    # (A capture asks some of them, too.)
    assert run(compiled)[1:] == run(program)[1:]
    for _ in range(3):
        assert run(compiled) == run(program)
