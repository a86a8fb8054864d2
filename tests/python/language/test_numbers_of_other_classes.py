"""An operator between a number and a number of a class of the program's own.

A builtin number's own C code takes numbers of any class: only a subclass of its
type is asked for its reflected method first, and only who is not taken (an
integer meets a float) is asked afterwards. Constants, arguments and numbers that
became symbolic, with every operator, `divmod`, `pow` and `sum`.
"""

from __future__ import annotations

import operator

import pytest
import torch

import framejit

NAMES = ["add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "divmod"]
NAMES += ["lshift", "rshift", "and", "or", "xor", "matmul"]


def reflected(name):
    return lambda self, other: f"r{name} of {type(other).__name__}"


def make(base, kind):
    body = {}
    if kind != "plain":
        body |= {f"__r{name}__": reflected(name) for name in NAMES}
    if kind == "without divmod":
        del body["__rdivmod__"]
    return type(
        f"{base.__name__.title()}{kind.title().replace(' ', '')}", (base,), body
    )


CLASSES = {
    f"{kind} {base.__name__}": make(base, kind)
    for base in (int, float, complex)
    for kind in ("plain", "reflecting", "without divmod")
}
LEFT = {
    "true": lambda x: True,
    "int": lambda x: 7,
    "float": lambda x: 7.5,
    "complex": lambda x: 2j,
    "size": lambda x: x.shape[0],
    "half a size": lambda x: x.shape[0] * 0.5,
}
OPERATORS = {
    name: getattr(operator, f"{name}_" if name in ("and", "or") else name)
    for name in NAMES
    if name != "divmod"
}
OPERATORS |= {
    "divmod": divmod,
    "pow()": pow,
    "sum()": lambda a, b: sum([a, b]),
    "in place": operator.iadd,
    "power in place": operator.ipow,
}


def outcome(f, *args):
    try:
        found = f(*args)
        return type(found), repr(found)
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("right", CLASSES)
@pytest.mark.parametrize("left", LEFT)
def test_operators(left, right, dynamic):
    for name, operate in OPERATORS.items():

        def f(x, b, operate=operate):
            y = x + 1
            return operate(LEFT[left](x), b), y.shape[0]

        def g(x, a, b, operate=operate):
            y = x + 1
            return operate(a, b), y.shape[0]

        framejit.reset()
        compiled = framejit.compile(f, backend="eager", dynamic=dynamic)
        given = framejit.compile(g, backend="eager", dynamic=dynamic)
        for size in (3, 5):
            x, b = torch.ones(size), CLASSES[right](3)
            assert outcome(compiled, x, b) == outcome(f, x, b), name
            a = LEFT[left](x)
            assert outcome(given, x, a, b) == outcome(g, x, a, b), name
