"""The operator protocol, and subclasses of builtin types.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import torch

from differential import leaf, one, program

THREE = 3


# ---- operator protocol


class Vec:
    def __init__(self, v):
        self.v = v

    def __add__(self, other):
        if not isinstance(other, Vec):
            return NotImplemented
        return Vec(self.v + other.v)

    def __radd__(self, other):
        return Vec(self.v + other)

    def __iadd__(self, other):
        self.v = self.v + other
        return self

    def __mul__(self, other):
        return Vec(self.v * other)

    __rmul__ = __mul__

    def __neg__(self):
        return Vec(-self.v)

    def __abs__(self):
        return Vec(abs(self.v))

    def __matmul__(self, other):
        return (self.v * other.v).sum()

    def __getitem__(self, i):
        return self.v[i]

    def __setitem__(self, i, value):
        self.v = self.v.clone()
        self.v[i] = value

    def __len__(self):
        return len(self.v)

    def __iter__(self):
        for i in range(len(self)):
            yield self[i]

    def __contains__(self, item):
        return item == "v"

    def __eq__(self, other):
        return isinstance(other, Vec) and self.v.shape == other.v.shape

    def __hash__(self):
        return 3

    def __bool__(self):
        return False

    def __index__(self):
        return 2

    def __format__(self, spec):
        return f"<{spec}>"

    def __repr__(self):
        return "Vec"

    def __int__(self):
        return 5

    def __float__(self):
        return 1.5

    def __round__(self, n=0):
        return n

    def __divmod__(self, other):
        return (1, other)

    def __pow__(self, n, mod=None):
        return Vec(self.v**n)

    def __rpow__(self, other):
        return other

    def __invert__(self):
        return "inverted"

    def __lt__(self, other):
        return True

    def __enter__(self):
        return self.v

    def __exit__(self, *args):
        return args[0] is KeyError

    def __reversed__(self):
        return iter([3, 2, 1])


@program(leaf)
def test_operators(x):
    a, b = Vec(x), Vec(x * 2)
    c = a + b
    d = 1 + a
    e = 2 * a * 3
    a += 1
    return c.v, d.v, e.v, a.v, (-b).v, abs(b).v, a @ b


@program(lambda: (Vec(torch.randn(3)), Vec(torch.randn(3))))
def test_operators_of_inputs(a, b):
    c = a + b
    d = 1 + a
    a += 2
    return c.v, d.v, a @ b, a is b, a == b, a != b, bool(a), not a, a < b, a > b


@program(leaf)
def test_container_protocol(x):
    a = Vec(x)
    first, *rest = a
    return first, rest[0], len(a), "v" in a, 3 in a, list(reversed(a)), [0, 1, 2, 3][a]


@program(leaf, graphs=None, breaks=None)
def test_conversion_protocol(x):
    a = Vec(x)
    return (
        f"{a:spec} {a!r} {a}",
        format(a, "z"),
        repr(a),
        str(a),
        int(a),
        float(a),
        round(a),
        round(a, 3),
        divmod(a, 4),
        (a**2).v,
        2**a,
        ~a,
        x * int(a),
        "yes" if a else "no",
        {a: 1}[Vec(x)],
        range(a),
        "%s" % a,
        [1, 2, 3, 4][a:],
    )


@program(leaf)
def test_own_context_manager(x):
    with Vec(x) as v:
        y = v * 2
        raise KeyError("swallowed")
    return y


@program(leaf)
def test_setitem_protocol(x):
    a = Vec(x * 1)
    a[0] = 3.0
    a[1] += 1
    return a.v


class OnlyGetitem:
    def __init__(self, items):
        self.items = items

    def __getitem__(self, i):
        return self.items[i]


@program(lambda: (torch.randn(3), OnlyGetitem([1, 2, 3])))
def test_iteration_by_getitem(x, seq):
    total = x
    for v in seq:
        total = total * v
    made = OnlyGetitem((4, 5))
    return total, list(seq), 2 in seq, tuple(made), sum(made), [*made], max(made)


class Countdown:
    def __init__(self, n):
        self.n = n

    def __iter__(self):
        return self

    def __next__(self):
        if self.n == 0:
            raise StopIteration
        self.n -= 1
        return self.n


@program(lambda: (torch.randn(3), Countdown(3)))
def test_user_iterator(x, it):
    a = next(it)
    return (
        [x * n for n in it],
        a,
        next(it, "end"),
        list(Countdown(2)),
        sum(Countdown(4)),
    )


class Reflected:
    def __rsub__(self, other):
        return ("rsub", other)

    def __rtruediv__(self, other):
        return ("rdiv", other)

    def __rmatmul__(self, other):
        return ("rmatmul",)

    def __rand__(self, other):
        return "rand"

    def __rlshift__(self, other):
        return "rlshift"


@program(one)
def test_reflected(x):
    r = Reflected()
    return 1 - r, 2.0 / r, [1] @ r, 1 & r, 1 << r, x + 1


@program(one)
def test_unsupported_operands(x):
    errors = []
    for f in (
        lambda: 1 + "a",
        lambda: [1] - [2],
        lambda: None < 3,
        lambda: -"a",
        lambda: {}[[]],
        lambda: len(3),
        lambda: THREE[0],
        lambda: object()(),
        lambda: iter(4),
        lambda: next([1]),
        lambda: int("z"),
        lambda: [1, 2].index(5),
        lambda: {1: 2}.pop(3),
        lambda: (1).foo,
        lambda: "a %d" % "b",
    ):
        try:
            f()
        except Exception as error:
            errors.append((type(error).__name__, str(error)))
    return x * len(errors), errors


# ---- subclasses of builtin types


class MyList(list):
    def total(self):
        return sum(self)

    def append(self, item):
        super().append(item * 2)


class MyDict(dict):
    def __missing__(self, key):
        self[key] = len(key)
        return self[key]

    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class AttrDict(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


class MyTuple(tuple):
    def __new__(cls, *items):
        return super().__new__(cls, items)

    def head(self):
        return self[0]


class MyStr(str):
    def shout(self):
        return self.upper() + "!"


class MyInt(int):
    def __add__(self, other):
        return MyInt(int(self) + int(other) + 100)


class MyFloat(float):
    pass


class MySet(set):
    def add(self, item):
        super().add(item)
        return self


@program(one)
def test_list_subclass(x):
    xs = MyList([1, 2])
    xs.append(3)
    xs += [1]
    xs.tag = "t"
    return x * xs.total(), xs, xs.tag, xs[1:], len(xs), xs == [1, 2, 6, 1]


@program(lambda: (torch.randn(3), MyList([1, 2])))
def test_list_subclass_in(x, xs):
    xs.append(3)
    return x * xs.total(), list(xs), [v for v in xs]


@program(one)
def test_dict_subclass(x):
    d = MyDict(a=1)
    return x * d["abc"] + d.a, d, d.get("zz"), "abc" in d


@program(lambda: (torch.randn(3), MyDict(a=1)))
def test_dict_subclass_in(x, d):
    return x * d["abc"] + d.a, sorted(d), d.get("zz")


@program(lambda: (torch.randn(3), AttrDict(a=1, b=2)))
def test_attr_dict(x, d):
    d.c = x * d.a
    e = AttrDict(d)
    e.q = 4
    return d.c + d.b, e, e.missing


@program(one)
def test_tuple_subclass(x):
    t = MyTuple(1, 2, x)
    return t.head() * t[2], t, len(t), t[1:], t + (1,)


@program(one)
def test_str_int_float_subclass(x):
    s, i, f = MyStr("ab"), MyInt(3), MyFloat(1.5)
    return (
        s.shout(),
        x * (i + 1),
        x * f,
        s + "c",
        i * 2,
        f"{s}{i}",
        {s: 1}["ab"],
        isinstance(i, int),
    )


@program(
    lambda: (torch.randn(3), MyStr("ab"), MyInt(3), MyFloat(2.5)),
    graphs=None,
    breaks=None,
)
def test_scalar_subclasses_in(x, s, i, f):
    return s.shout(), x * (i + 1), x * f, s + "c", i == 3


@program(one)
def test_set_subclass(x):
    s = MySet()
    s.add(1).add(2)
    return x * len(s), s, 1 in s, s | {3}
