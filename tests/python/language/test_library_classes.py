"""Classes of the standard library and what they make: collections, enum, dataclasses.

And typing, copy and inspect.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import collections
import copy
import dataclasses
import enum
import inspect
import numbers
import typing

import torch

from differential import leaf, one, program

# ---- collections


Pt = collections.namedtuple("Pt", "a b", defaults=[2])


class Typed(typing.NamedTuple):
    a: torch.Tensor
    k: int = 3

    def scaled(self):
        return self.a * self.k


@program(one)
def test_namedtuples(x):
    p = Pt(1)
    t = Typed(x)
    q = p._replace(a=5)
    a, b = q
    return (
        p,
        t.scaled(),
        q,
        p._asdict(),
        p._fields,
        t._replace(k=4),
        a + b,
        Pt._make([1, 2]),
        t,
    )


@program(one, graphs=None, breaks=None)
def test_local_namedtuple(x):
    Local = collections.namedtuple("Local", ["u", "v"])
    t = Local(x, 2)
    return t.u * t.v


@program(one)
def test_ordered_dict(x):
    d = collections.OrderedDict([("b", 1), ("a", 2)])
    d["c"] = 3
    d.move_to_end("b")
    d.move_to_end("c", last=False)
    last = d.popitem()
    return x * d["a"], d, last, list(d), list(reversed(d)), d == {"a": 2, "c": 3}


@program(one)
def test_defaultdict(x):
    d = collections.defaultdict(list)
    for i, k in enumerate("abab"):
        d[k].append(x * i)
    e = collections.defaultdict(lambda: 7, z=1)
    n = collections.defaultdict(int)
    n["q"] += 2
    return dict(d), e["new"], e, n, d.get("none"), d.default_factory is list


@program(one)
def test_counter(x):
    c = collections.Counter("abca")
    c.update("ab")
    c["z"] += 1
    d = collections.Counter(a=1)
    return (
        x * c["a"],
        c.most_common(2),
        c["missing"],
        dict(c),
        c - d,
        c + d,
        sorted(c.elements()),
        sum(c.values()),
        c.total(),
    )


@program(one)
def test_chain_map(x):
    base = {"a": 1, "b": 2}
    cm = collections.ChainMap({"a": 5}, base)
    child = cm.new_child({"c": 3})
    child["d"] = 4
    return (
        x * cm["a"],
        cm["b"],
        child["c"],
        "b" in child,
        dict(child),
        len(child),
        cm.get("zz", 0),
    )


@program(one)
def test_deque(x):
    d = collections.deque([1, 2, 3], maxlen=3)
    d.append(4)
    d.appendleft(0)
    e = collections.deque()
    e.extend([1, 2])
    e.extendleft([3])
    e.rotate(1)
    f = d.copy()
    f.pop()
    return (
        x * d[0],
        d,
        d.maxlen,
        e,
        list(f),
        len(e),
        2 in e,
        e.popleft(),
        d[-1],
        e.count(1),
        e.index(3),
    )


@program(lambda: (torch.randn(3), collections.deque([torch.randn(3)], maxlen=2)))
def test_deque_in(x, d):
    d.append(x)
    d.append(x + 1)
    total = sum(d)
    return total, len(d), d[0] * 2


@program(
    lambda: (
        torch.randn(3),
        collections.Counter("aab"),
        collections.ChainMap({"a": 1}, {"b": 2}),
        collections.defaultdict(list, k=[1]),
    )
)
def test_collections_in(x, counter, chain, dd):
    counter["a"] += 1
    chain["z"] = 4
    dd["new"].append(3)
    return x * counter["a"] + chain["b"], counter.most_common(1), dd["k"]


@program(one)
def test_user_dict_and_list(x):
    d = collections.UserDict(a=1)
    d["b"] = 2
    xs = collections.UserList([1, 2])
    xs.append(3)
    return x * d["a"], dict(d), len(xs), xs[1:], list(xs)


# ---- enum


class Color(enum.Enum):
    RED = 1
    GREEN = 2
    CRIMSON = 1

    def nice(self):
        return self.name.lower()

    @property
    def twice(self):
        return self.value * 2

    @classmethod
    def default(cls):
        return cls.GREEN


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 10


class Perm(enum.Flag):
    R = enum.auto()
    W = enum.auto()
    X = enum.auto()


class Mode(str, enum.Enum):
    TRAIN = "train"
    EVAL = "eval"


@program(one)
def test_enum(x):
    return (
        x * Color.RED.value,
        Color(2),
        Color["RED"],
        Color.RED.nice(),
        Color.GREEN.twice,
        [c.name for c in Color],
        len(Color),
        Color.RED in Color,
        Color.CRIMSON is Color.RED,
        Color.default() == Color.GREEN,
        isinstance(Color.RED, Color),
        {Color.RED: 1}[Color(1)],
        str(Color.RED),
        repr(Color.GREEN),
        Color.RED != Color.GREEN,
        Color.__members__["GREEN"].value,
        hash(Color.RED) == hash(Color.RED),
    )


@program(lambda: (torch.randn(3), Color.GREEN, Level.HIGH, Mode.TRAIN))
def test_enum_in(x, c, level, mode):
    if c is Color.GREEN and mode == "train":
        x = x * level
    if level > Level.LOW:
        x = x + 1
    return x, c.name, level + 1, mode.value, mode.upper(), c in (Color.RED, Color.GREEN)


@program(one)
def test_int_enum_and_flags(x):
    p = Perm.R | Perm.W
    return (
        x * Level.HIGH + Level.LOW,
        Level(10),
        Level.HIGH > 5,
        p,
        Perm.R in p,
        bool(p & Perm.X),
        ~Perm.R & p,
        p.value,
        Mode("eval"),
        f"{Mode.EVAL.value}",
        max(Level),
        sorted(Level),
    )


@program(one)
def test_enum_lookup_error(x):
    try:
        Color(9)
    except ValueError as error:
        a = str(error)
    try:
        Color["NO"]
    except KeyError as error:
        b = str(error)
    return x + 1, a, b


# ---- dataclasses


@dataclasses.dataclass
class Config:
    n: int
    scale: float = 2.0
    tags: list = dataclasses.field(default_factory=list)
    extra: dict = dataclasses.field(default_factory=dict, repr=False)
    hidden: int = dataclasses.field(init=False, default=3)

    def __post_init__(self):
        self.total = self.n * self.scale


@dataclasses.dataclass(frozen=True, order=True)
class Frozen:
    a: int
    b: int = 1


@dataclasses.dataclass(slots=True)
class SlottedData:
    a: int
    b: torch.Tensor = None


@dataclasses.dataclass(kw_only=True)
class Derived(Config):
    more: int = 1


@program(one, graphs=None, breaks=None)
def test_dataclass_made(x):
    c = Config(2, tags=["t"])
    d = dataclasses.replace(c, n=5)
    c.tags.append("u")
    return (
        x * c.total,
        d,
        dataclasses.asdict(c),
        dataclasses.astuple(Frozen(1, 2)),
        [f.name for f in dataclasses.fields(c)],
        dataclasses.is_dataclass(c),
        c == Config(2, tags=["t", "u"]),
        repr(Frozen(1)),
        Derived(3, more=2).total,
        Frozen(1) < Frozen(2),
        hash(Frozen(1)) == hash(Frozen(1)),
        SlottedData(1, x).b,
    )


@program(lambda: (torch.randn(3), Config(3), Frozen(2), SlottedData(4, torch.randn(3))))
def test_dataclass_in(x, c, f, s):
    c.n += 1
    d = dataclasses.replace(c, scale=1.5)
    g = dataclasses.replace(f, a=7)
    s.b = x * s.a
    try:
        f.a = 3
    except dataclasses.FrozenInstanceError as error:
        text = str(error)
    return x * c.n, d, g, text, dataclasses.asdict(f), {f: 1}[Frozen(2)], s.b


@program(one)
def test_dataclass_asdict_with_tensor(x):
    s = SlottedData(1, x * 2)
    return {f.name: getattr(s, f.name) for f in dataclasses.fields(s)}


@program(leaf, backward=False, graphs=None, breaks=None)
def test_dataclass_asdict_copies_tensor(x):
    s = SlottedData(1, x.detach())
    return dataclasses.asdict(s)


# ---- typing


class TD(typing.TypedDict):
    a: int
    b: torch.Tensor


@typing.runtime_checkable
class HasRun(typing.Protocol):
    def run(self, v): ...


class Runner:
    def run(self, v):
        return v + 1


T = typing.TypeVar("T")


class Box(typing.Generic[T]):
    def __init__(self, item: T):
        self.item = item

    def get(self) -> T:
        return self.item


@program(lambda: (torch.randn(3), Runner()), graphs=None, breaks=None)
def test_typing(x, runner):
    d = TD(a=1, b=x)
    value = typing.cast(int, d["a"])
    items: list[int] = [1]
    box = Box[int](3)
    opt: typing.Optional[int] = None
    if typing.TYPE_CHECKING:
        items = []
    return (
        d["b"] * value,
        isinstance(runner, HasRun),
        isinstance(x, HasRun),
        isinstance([], HasRun),
        box.get(),
        Box(x).get() * 2,
        opt,
        items,
        typing.get_origin(list[int]) is list,
        isinstance(3, numbers.Number),
    )


# ---- copy


@program(lambda: (torch.randn(3), Config(2, tags=[[1], 2]), {"k": [1, {"z": 2}]}))
def test_copy(x, c, d):
    a = copy.copy(c)
    a.n = 7
    b = copy.deepcopy(c)
    b.tags[0].append(5)
    e = copy.copy(d)
    f = copy.deepcopy(d)
    f["k"].append(1)
    g = copy.deepcopy([1, (2, [3])])
    return x * c.n, a, b, e["k"] is d["k"], f, g, copy.copy([1, 2]), a.tags is c.tags


class WithReduce:
    def __init__(self, a, b):
        self.a, self.b = a, b

    def __copy__(self):
        return WithReduce(self.b, self.a)

    def __deepcopy__(self, memo):
        return WithReduce(copy.deepcopy(self.a, memo), 9)


class WithState:
    __slots__ = ("p", "__dict__")

    def __init__(self):
        self.p = 1
        self.q = [2]

    def __getstate__(self):
        return {"q": self.q}

    def __setstate__(self, state):
        self.p = 5
        self.q = state["q"]


@program(one)
def test_copy_protocols(x):
    a = copy.copy(WithReduce(1, 2))
    b = copy.deepcopy(WithReduce([1], 2))
    s = copy.copy(WithState())
    t = copy.deepcopy(WithState())
    return (
        x * a.a,
        b.a,
        b.b,
        s.p,
        t.q,
        copy.copy(Frozen(1)),
        copy.deepcopy(Color.RED) is Color.RED,
    )


@program(one)
def test_copy_tensor(x):
    a = copy.copy([x])
    return a[0] is x, a[0] * 2


@program(one, graphs=None, breaks=None)
def test_deepcopy_tensor(x):
    return copy.deepcopy({"x": x})["x"] * 2


@program(one)
def test_deepcopy_shares(x):
    inner = [1]
    d = copy.deepcopy({"a": inner, "b": inner})
    cyc = []
    cyc.append(cyc)
    e = copy.deepcopy(cyc)
    return x * 2, d["a"] is d["b"], e[0] is e


# ---- inspect


def signed(a, b=2, *args, c, d=4, **kw):
    return a


@program(one, graphs=None, breaks=None)
def test_inspect_signature(x):
    sig = inspect.signature(signed)
    names = list(sig.parameters)
    bound = sig.bind(1, c=3)
    bound.apply_defaults()
    return (
        x * len(names),
        names,
        sig.parameters["b"].default,
        sig.parameters["c"].kind.name,
        dict(bound.arguments),
        "d" in sig.parameters,
        inspect.isfunction(signed),
        inspect.isclass(Config),
        inspect.ismethod(Config.__init__),
    )


class Inspected(torch.nn.Module):
    def forward(self, v, *, flag=False):
        return v * (2 if flag else 3)


@program(lambda: (Inspected(), torch.randn(3)))
def test_inspect_signature_of_forward(m, x):
    kwargs = {"flag": True, "other": 1}
    params = inspect.signature(m.forward).parameters
    return m(x, **{k: v for k, v in kwargs.items() if k in params})
