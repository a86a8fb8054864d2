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

import framejit

EXPRESSIONS = r"""
hash(v)
{v: 1}
{v}
{v: 1}[v]
{1: 2}.get(v)
v in {1: 2}
v in {1, 2}
{1: 2}[v]
{1: 2}.get(v, 5)
frozenset([v])
set([v, v])
len({v, v + 1})
int(v)
float(v)
bool(v)
complex(v)
len(v)
list(iter(v))
list(v)
tuple(v)
operator.index(v)
[10,20,30,40,50,60,70,80,90][v]
(10,20,30,40,50,60,70,80,90)[v]
"abcdefghij"[v]
b"abcdefghij"[v]
range(10)[v]
[10,20,30,40,50,60,70,80,90][:v]
"abcdefghij"[v:]
v in [1, 2, 3]
v in (1, 2, 3)
[1,2,3,4,5].index(v)
[1,2,3,3].count(v)
L.count(v)
L.index(v)
v in L
[v, 1].index(1)
[1, v].remove(v)
[v].remove(v)
v in [v]
[v].index(v)
[v].count(v)
v in range(10)
range(10).index(v)
range(10).count(v)
"a" in str(v)
str(v)
repr(v)
format(v)
format(v, "5")
format(v, ".3f")
format(v, "d")
f"{v}"
f"{v!r}"
f"{v:>8}"
f"{v:.2f}"
"%s" % v
"%d" % v
"%f" % v
"%r" % (v,)
"%*d" % (v, 3)
"%x" % v
"%c" % v
"{}".format(v)
"{0!r:>5}".format(v)
"{:d}".format(v)
"{0.real}".format(v)
"{0.__class__}".format(v)
str.format("{}", v)
"{a}".format_map({"a": v})
ascii(v)
bytes(v)
bytearray(v)
memoryview(v)
bytes([v])
b"%d" % v
np.asarray(v)
np.array([v, v])
np.array(v) + 1
np.add(v, 1)
np.zeros(v)
np.float32(v)
np.arange(v)
np.sum(v)
np.ones(3) * v
np.ones(3) + v
np.int64(2) * v
v * np.float64(2)
v.__array__()
v.__array_interface__
v.__dlpack__()
v.__reduce_ex__(2)
v.__reduce_ex__(2)[0]
pickle.dumps(v) == b""
pickle.loads(pickle.dumps(v))
copy.copy(v)
copy.deepcopy(v)
copy.deepcopy([v, v])
copy.deepcopy({"a": v})
weakref.ref(v)() is v
v.__class__
type(v)
v.__class__.__name__
type(v).__name__
isinstance(v, int)
isinstance(v, float)
isinstance(v, torch.Tensor)
isinstance(v, (int, float))
isinstance(v, torch.SymInt)
v == 3
v != 3
v < 3
3 < v
v == "a"
v == None
v is v
v is 3
v is None
v @ v
v + "a"
"a" + v
"ab" * v
[1, 2] * v
v * [1]
(1,) * v
b"ab" * v
v + [1]
[1] + v
v and 5
v or 5
not v
5 if v else 6
[i for i in range(3) if v]
all([v, v])
any([v])
list(filter(None, [v]))
list(filter(lambda t: v, [1, 2]))
sorted([v, v])
sorted([3, 1, 2], key=lambda t: v)
min(v, 1)
max([v, 1])
min([1, 2], key=lambda t: v)
max(1, 2, v)
sum([v, v])
sum([1], v)
abs(v)
-v
+v
~v
round(v)
round(v, 1)
divmod(v, 2)
divmod(7, v)
pow(v, 2)
pow(2, v)
pow(v, 2, 5)
pow(2, v, 5)
v ** 0.5
v // 2
v % 2
7 % v
v << 1
1 << v
v >> 1
v & 1
v | 1
v ^ 1
math.sqrt(v)
math.floor(v)
math.ceil(v)
math.trunc(v)
math.isnan(v)
math.gcd(v, 2)
math.comb(5, v)
math.log(v)
math.prod([v, 2])
math.fsum([v, 2.0])
math.hypot(v, 1)
math.isclose(v, 1)
math.copysign(1.0, v)
math.pow(v, 2)
math.log2(v)
cmath.sqrt(v)
chr(v)
ord(v)
bin(v)
hex(v)
oct(v)
range(v)
list(range(v))
list(range(0, 10, v))
list(enumerate("ab", v))
enumerate("ab", v).__next__()
list(zip(range(3), [v]))
slice(v)
slice(v, v)
slice(v).indices(10)
slice(1, v).indices(10)
random.Random(0).choice([1, 2, v])
random.Random(0).randint(0, v)
random.Random(v).random()
random.Random(0).sample(range(20), v)
json.dumps(v)
json.dumps([v])
json.dumps({"a": v})
json.dumps({v: 1})
struct.pack("i", v)
struct.pack("f", v)
ctypes.c_int(v).value
ctypes.c_double(v).value
(ctypes.c_int * 3)(v)[0]
array.array("i", [v])
array.array("d", [v])
decimal.Decimal(v)
fractions.Fraction(v)
fractions.Fraction(1, v)
datetime.timedelta(seconds=v)
"x".center(v)
"x".zfill(v)
"x".ljust(v)
"a,b,c".split(",", v)
"aaa".replace("a", "b", v)
"abc".find("c", v)
(5).to_bytes(v, "big")
int("11", v)
int.from_bytes(b"a", "big") + v
int.__add__(v, 1)
int.__index__(v)
float.__add__(1.0, v)
float(v).hex()
v.bit_length()
v.real
v.imag
v.numerator
v.denominator
v.conjugate()
v.is_integer()
v.as_integer_ratio()
v.to_bytes(2, "big")
v.__index__()
v.__int__()
v.__float__()
v.__bool__()
v.__hash__()
v.__format__("")
v.__str__()
v.__repr__()
v.__len__()
v.__sizeof__()
v.__dir__()
dir(v) == 1
v.__eq__(3)
v.__add__(1)
v.__radd__(1)
v.__trunc__()
v.__floor__()
v.__ceil__()
v.__round__()
v.__doc__
v.__getattribute__("real")
getattr(v, "nope")
getattr(v, "nope", 7)
hasattr(v, "nope")
hasattr(v, "__iter__")
hasattr(v, "__len__")
hasattr(v, "__index__")
hasattr(v, "node")
hasattr(v, "shape")
hasattr(v, "is_integer")
hasattr(v, "dtype")
setattr(v, "foo", 3)
delattr(v, "nope")
setattr(v, "real", 3)
vars(v)
v.foo
v.nope
v()
v(1)
v[0]
v[0, 0]
v["a"]
v[None]
v[...]
v[100]
v[1:2]
v[0.5]
v[-100]
operator.setitem(v, 0, 1)
operator.delitem(v, 0)
operator.getitem(v, 0)
operator.contains(v, 1)
operator.length_hint(v)
operator.concat(v, v)
operator.countOf([v, 1], 1)
operator.truth(v)
operator.not_(v)
operator.eq(v, 3)
operator.is_(v, v)
operator.attrgetter("real")(v)
operator.itemgetter(v)([1,2,3,4,5,6])
operator.itemgetter(0)(v)
operator.methodcaller("__str__")(v)
reversed(v)
list(reversed(v))
next(v)
iter(v).__next__()
v.__next__()
with_v(v)
[*v]
dict(v)
dict(a=v)
{**v}
f1(*v)
f1(**v)
str(v, "ascii")
str([v])
repr((v,))
str({"a": v})
repr({1: [v]})
"%s" % [v]
f"{[v]}"
",".join(v)
",".join([v])
",".join(map(str, [v]))
list(map(str, [v]))
list(map(int, [v]))
list(map(float, [v]))
list(map(hash, [v]))
list(map(operator.index, [v]))
functools.reduce(operator.add, [v, v])
functools.partial(f1, v)()
functools.cmp_to_key(lambda a, b: v)(1) < functools.cmp_to_key(lambda a, b: v)(2)
list(itertools.repeat(1, v))
list(itertools.islice(range(10), v))
list(itertools.accumulate([v, v]))
list(itertools.groupby([v, v]))[0][0]
list(itertools.combinations(range(3), v))
list(itertools.product([1], repeat=v))
list(itertools.takewhile(lambda t: v, [1, 2]))
list(itertools.chain(v))
list(itertools.chain([v]))
list(itertools.compress([1, 2], [v, v]))
next(itertools.count(v))
next(itertools.cycle([v]))
collections.Counter([v, v])
collections.deque([v], v)
collections.deque([1, 2], maxlen=v)
collections.deque([1, 2, 3]).rotate(v)
collections.OrderedDict([(v, 1)])
collections.namedtuple("P", "a")(v)
collections.defaultdict(int)[v]
bisect.bisect([1, 2, 3, 4, 5], v)
heapq.nsmallest(v, [3, 1, 2])
heapq.heapify([v, 1, v])
re.match("a", v)
re.sub("a", "b", "aaaa", v)
io.StringIO("abcdefgh").read(v)
io.BytesIO(v)
io.StringIO(v)
print(v, file=io.StringIO())
eval("v + 1", {"v": v})
exec("v + 1", {"v": v})
isinstance(v, v)
issubclass(v, int)
super(v, v)
v.item()
v.tolist()
v.numpy()
v.data_ptr()
v.storage()
v.cpu().numpy()
v.detach().numpy()
v.detach().tolist()
v.sum().item()
v.is_cuda
v.shape
v.size()
v.size(0)
hash(v.shape)
{v.shape: 1}
str(v.shape)
json.dumps(list(v.shape))
v.shape == (3,)
v.shape in [(3,)]
{(3,): 5}.get(v.shape)
{tuple(v.shape): 5}
str(v.dtype)
torch.zeros(v)
torch.zeros(v, 2)
torch.zeros((v,))
torch.zeros([v, v])
torch.ones(3).view(v, -1)
torch.tensor(v)
torch.tensor([v, 1])
torch.as_tensor(v)
torch.full((2,), v)
torch.arange(v)
torch.ones(10)[v]
torch.ones(10)[:v]
torch.ones(10)[v:]
torch.ones(3) * v
torch.ones(3) == v
torch.ones(2, 3).sum(v)
torch.ones(3).add(1, alpha=v)
torch.ones(3).repeat(v)
torch.ones(12).reshape(v, -1)
torch.ones(12).split(v)
torch.ones(4, 3).expand(v, 4, 3)
torch.ones(3).to(v)
torch.ones(3).clamp(max=v)
torch.linspace(0, 1, v)
torch.is_tensor(v)
torch.is_floating_point(v)
torch.Size([v])
torch.Size((1, v)).numel()
torch.Size([2, 3])[v]
torch.equal(v, v)
torch.nn.functional.pad(torch.ones(3), (v, 0))
torch.dtype(v)
torch.from_numpy(v)
torch.Tensor.add(v, 1)
torch.add(v, 1)
torch.linalg.matrix_rank(torch.eye(5), out=v)
torch.stack([v, v])
torch.cat([v, v])
torch.sym_int(v)
torch.sym_max(v, 2)
torch.sym_not(v)
sys.intern(v)
callable(v)
isinstance([v], list)
([v], 1) == ([3], 1)
[v] == [v]
[v] < [v, 1]
(v,) == (3,)
(1, v) < (2, v)
{"a": v} == {"a": 3}
[v] == [3]
slice(v) == slice(3)
(v,) in [(3,)]
{(v, 1): 2}
{(3, 1): 2}.get((v, 1))
{1: 2}.pop(v, 4)
{1: 2}.setdefault(v, 4)
[1, 2, 3, 4, 5, 6, 7].pop(v)
[1].insert(v, 2)
[1].append(v)
[1].extend(v)
{1}.add(v)
{1}.discard(v)
{1} | {v}
{3, 1} - {v}
{1}.issubset([v])
frozenset([1, 3]) & {v}
raise_it(v)
assert_it(v)
while_it(v)
match_it(v)
match_lit(v)
for_it(v)
unpack_it(v)
slicing(v)
del_item(v)
Cls(v).a
Cls(v) == Cls(v)
DC(v)
DC(v) == DC(v)
str(DC(v))
IntSub(v)
Enum_(v)
Exception(v).args[0]
str(Exception(v))
str(ValueError("a", v))
KeyError(v)
str(KeyError(v))
"""

AROUND = {
    "caught": """
def f(v, x):
    {before}
    try:
        r = {e}
    except Exception as error:
        r = "caught", type(error), str(error)
    return r, x + 1
""",
    "not caught": """
def f(v, x):
    {before}
    return {e}, x + 1
""",
    "bare": """
def f(v, x):
    {before}
    y = x * 2
    try:
        return {e}, y
    except:
        return "bare", y
""",
    "finally returns": """
def f(v, x):
    {before}
    r = 0
    try:
        r = {e}
    finally:
        return r, x + 1
""",
    "suppressed": """
def f(v, x):
    {before}
    r = 0
    with contextlib.suppress(Exception):
        r = {e}
    return r, x + 1
""",
    "beneath C code": """
def h(v):
    try:
        return {e}
    except Exception as error:
        return type(error), error.args
def f(v, x):
    {before}
    r = []
    y = sorted([1, 2], key=lambda t: (r.append(h(v)), 1)[1])
    return r, y, x + 1
""",
}


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
    if type(value) is int and abs(value) > 10**12:
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
