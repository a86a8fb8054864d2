"""What C code sees of a tensor or a number that capture stands in for.

Every slot of the type is asked by every C function that asks for it, inside and
outside of `try`: compiled is eager in value, type, exception and message. The
grid is expressions over `v` times what `v` is times what stands around them.
"""

import collections
import copy
import dataclasses
import enum
import re

import numpy as np
import pytest
import torch
from standin_expressions import AROUND, EXPRESSIONS

import framejit


class TensorClass(torch.Tensor):
    pass


# What v is: statements before, and one value for each call.
KINDS = {
    "float tensor": ("pass", [torch.tensor([1.5, 2.5, 3.0])] * 2),
    "one int": ("pass", [torch.tensor(3)] * 2),
    "subclass": ("pass", [torch.tensor([1.5, 2.5]).as_subclass(TensorClass)] * 2),
    "computed": ("v = v * 1", [torch.tensor([True, False])] * 2),
    "size": ("v = v.shape[0]", [torch.ones(n) for n in (5, 7, 3)]),
    "int": ("pass", [5, 7, 3, 0, -2]),
    "float": ("pass", [5.0, 7.5, 3.0, 0.0]),
    "bool": ("v = v > 3", [5, 7, 3]),
    "torch.Size": ("v = v.shape", [torch.ones(n, 2) for n in (5, 7, 3)]),
}


class Cls:
    def __init__(self, a):
        self.a = a


@dataclasses.dataclass(frozen=True)
class DC:
    a: object


class Enum_(enum.Enum):
    A = 1
    B = 3


class IntSub(int):
    pass


def with_v(v):
    with v as t:
        return t


def f1(*a, **k):
    return (a, k)


def raise_it(v):
    raise v


def assert_it(v):
    assert v, v
    return 1


def while_it(v):
    i = 0
    while v:
        i += 1
        if i > 3:
            break
    return i


def match_it(v):
    match v:
        case int():
            return "int"
        case float():
            return "float"
        case [a, *b]:
            return "sequence"
        case {"a": 1}:
            return "mapping"
        case _:
            return "other"


def match_lit(v):
    match v:
        case 3:
            return "three"
        case True:
            return "true"
        case None:
            return "none"
        case _:
            return "other"


def for_it(v):
    r = []
    for i in v:
        r.append(i)
    return r


def unpack_it(v):
    a, b, c = v
    return a, c


def slicing(v):
    items = list(range(10))
    items[v:] = [1]
    del items[0:v]
    return items


def del_item(v):
    items = list(range(10))
    del items[v]
    return items


D = {1: 2, 3: 4, 5: 6}
L = [1, 2, 3, 4]


def shown(value, depth=0):
    """The value as text that is equal for equal values."""
    if depth > 6:
        return "..."
    if isinstance(value, torch.Tensor):
        plain = value.detach().as_subclass(torch.Tensor)
        about = str(value.dtype), tuple(value.shape), value.requires_grad
        return type(value).__name__, *about, repr(plain.tolist())
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.shape, repr(value.tolist())
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, *(shown(item, depth + 1) for item in value)
    if isinstance(value, dict):
        pairs = [(shown(k, depth + 1), shown(i, depth + 1)) for k, i in value.items()]
        return type(value).__name__, *pairs
    if isinstance(value, (set, frozenset)):
        items = sorted(repr(shown(item, depth + 1)) for item in value)
        return type(value).__name__, *items
    if type(value) in (Cls, DC):
        return type(value).__name__, shown(value.a, depth + 1)
    if isinstance(value, BaseException):
        return type(value), shown(value.args, depth + 1)
    if type(value) is int and abs(value) > 10**7:
        return "an address"
    return type(value).__name__, re.sub(r"0x[0-9a-f]+", "at", repr(value))


def outcome(function, v):
    torch.manual_seed(0)
    try:
        return shown(function(copy.deepcopy(v), torch.ones(2)))
    except BaseException as error:
        text = re.sub(r"0x[0-9a-f]+", "at", str(error))
        return "raised", type(error), text


def differences(kind, around, expressions):
    before, values = KINDS[kind]
    found = []
    for expression in expressions:
        source = AROUND[around].replace("{e}", expression).replace("{before}", before)
        names = dict(globals())
        exec(compile(source, f"<{around}: {expression}>", "exec"), names)
        original = names["f"]
        compiled = framejit.compile(original, backend="eager")
        for i, value in enumerate(values):
            eager, ours = outcome(original, value), outcome(compiled, value)
            if eager != ours:
                found.append(f"{expression}, call {i}: {eager} != {ours}")
                break
    return found


LINES = EXPRESSIONS.strip().split("\n")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", KINDS)
def test_slots_asked_by_c_code(kind):
    assert not differences(kind, "caught", LINES)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("around", [name for name in AROUND if name != "caught"])
@pytest.mark.parametrize("kind", ["float tensor", "int", "torch.Size"])
def test_slots_asked_inside_of_handlers(kind, around):
    # Each place gets another sixth of them.
    place = list(AROUND).index(around) + list(KINDS).index(kind)
    assert not differences(kind, around, LINES[place % 6 :: 6])


class Special:
    """Every special method gives what it was made with."""

    def __init__(self, v):
        self.v = v

    def __getattr__(self, name):
        return self.v


def _give(self, *args):
    return self.v


for _name in """index len bool hash str repr format int float complex contains iter
    length_hint round bytes eq fspath getitem trunc floor ceil""".split():
    setattr(Special, f"__{_name}__", _give)

ASKED = """
[1, 2, 3, 4, 5, 6][s]
[1, 2, 3][:s]
len(s)
bool(s)
hash(s)
str(s)
repr(s)
format(s)
ascii(s)
f"{s}"
"%s" % s
"%d" % s
int(s)
float(s)
complex(s)
1 in s
list(s)
round(s)
bytes(s)
range(s)
"a" * s
[s] == [3]
3 in [s]
[s, s].count(3)
1 if s else 2
not s
list(filter(None, [s]))
all([s])
sorted([s, s], key=bool)
s.other
hasattr(s, "other")
hex(s)
chr(s)
math.floor(s)
""".strip().split("\n")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["float tensor", "one int", "int", "float", "bool"])
def test_what_special_methods_give(kind):
    expressions = [re.sub(r"\bs\b", "Special(v)", line) for line in ASKED]
    expressions = [e.replace('"%Special(v)"', '"%s"') for e in expressions]
    assert not differences(kind, "caught", expressions)


# What numbers raise for their value, with the value in the message.
ERRORS = """
0 ** -v
(v - 3) ** -1
1 << -v
1 // (v - 3)
1 / (v - 3)
7 % (v - 3)
[1, 2][v]
(1, 2)[v * 100]
range(3)[v]
float(v * 10 ** 400)
math.exp(v * 1000)
math.sqrt(-v)
math.log(v - 3)
[1].pop(v)
{}[v]
chr(-v)
(-8.0) ** (v / 3)
2.0 ** (v * 10000)
(v * 2 ** 62) * 4
torch.ones(3)[v + 10]
torch.ones(3).view(v + 100)
torch.zeros(-v)
round(v, -v)
int(v / (v - 3))
"%d %d" % v
bytes(-v)
range(0, 3, v - 3)
list(itertools.islice(range(5), -v))
""".strip().split("\n")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["int", "size", "float"])
def test_errors_of_numbers(kind):
    assert not differences(kind, "caught", ERRORS)
