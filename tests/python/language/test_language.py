"""Objects and the language: attribute and operator protocols, classes, control.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import abc
import dataclasses
import enum
import sys
import typing

import torch

from differential import leaf, one, program, two

COUNTER = 0
THREE = 3


# ---- classes


@program(one)
def test_class_statement(x):
    class Scale:
        factor = 2

        def __init__(self, by):
            self.by = by

        def run(self, v):
            return v * self.by * self.factor

    return Scale(3).run(x)


@program(one)
def test_class_statement_with_base_and_super(x):
    class Base:
        def __init__(self, n):
            self.n = n

        def go(self, v):
            return v + self.n

    class Child(Base):
        def __init__(self, n):
            super().__init__(n)
            self.m = n * 2

        def go(self, v):
            return super().go(v) * self.m

    return Child(2).go(x)


@program(one)
def test_class_sees_locals(x):
    y = x * 2

    class Holder:
        value = y
        names = [f"n{i}" for i in range(2)]

        @staticmethod
        def get():
            return y + 1

    return Holder.value + Holder.get(), Holder.names


@program(one, graphs=None, breaks=None)
def test_class_with_keywords(x):
    class Registry:
        seen = []

        def __init_subclass__(cls, *, tag=None, **kwargs):
            super().__init_subclass__(**kwargs)
            cls.tag = tag
            Registry.seen.append(tag)

    class A(Registry, tag="a"):
        pass

    class B(Registry, tag="b"):
        pass

    return x + len(Registry.seen), A.tag, B.tag


@program(one)
def test_class_with_metaclass(x):
    class Meta(type):
        def __new__(mcls, name, bases, namespace):
            namespace["added"] = len(namespace)
            return super().__new__(mcls, name, bases, namespace)

        def __call__(cls, *args):
            made = super().__call__(*args)
            made.extra = 5
            return made

    class Made(metaclass=Meta):
        def __init__(self, n):
            self.n = n

    m = Made(2)
    return x * m.n + m.extra, Made.added > 0


@program(one)
def test_type_with_three_arguments(x):
    cls = type("Dyn", (), {"k": 3, "get": lambda self, v: v * self.k})
    return cls().get(x), type(cls()).__name__, cls.__name__


@program(one, graphs=None, breaks=None)
def test_local_dataclass(x):
    @dataclasses.dataclass
    class Pair:
        a: int
        b: int = 2

    p = Pair(1)
    return x * p.a + p.b


@program(one)
def test_local_exception_class(x):
    class Stop(Exception):
        def __init__(self, code):
            super().__init__(f"code {code}")
            self.code = code

    try:
        raise Stop(4)
    except Stop as stop:
        return x * stop.code, str(stop), stop.args


@program(one)
def test_local_module_class(x):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.k = 2

        def forward(self, v):
            return v * self.k

    return Net()(x)


@program(one)
def test_local_autograd_free_class_body_loop(x):
    class Table:
        total = 0
        for i in range(3):
            total += i
        if total > 2:
            big = True
        del i

    return x + Table.total, Table.big


@program(one, graphs=None, breaks=None)
def test_local_enum(x):
    class Color(enum.Enum):
        RED = 1
        BLUE = 2

    return x * Color.BLUE.value, [c.name for c in Color]


# ---- attribute protocol


class Loud:
    def __init__(self):
        self.log = []

    def __getattr__(self, name):
        if name.startswith("no_"):
            raise AttributeError(name)
        return len(name)

    def __setattr__(self, name, value):
        object.__setattr__(self, name, value)

    def __delattr__(self, name):
        self.log.append(name)
        object.__delattr__(self, name)


@program(lambda: (torch.randn(3), Loud()))
def test_getattr_hooks(x, loud):
    loud.k = 4
    y = x * loud.k + loud.missing
    del loud.k
    return y, loud.k, hasattr(loud, "no_way"), getattr(loud, "no_such", 9)


class Everything:
    def __init__(self):
        self.a = 2

    def __getattribute__(self, name):
        if name == "virtual":
            return 7
        return object.__getattribute__(self, name)


@program(lambda: (torch.randn(3), Everything()))
def test_getattribute(x, obj):
    return x * obj.virtual + obj.a, getattr(obj, "nothing", None)


class Typed:
    def __init__(self, kind):
        self.kind = kind

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, obj, owner=None):
        if obj is None:
            return self
        return getattr(obj, self.name, 0)

    def __set__(self, obj, value):
        if not isinstance(value, self.kind):
            raise TypeError(f"{self.name} wants {self.kind.__name__}")
        setattr(obj, self.name, value)

    def __delete__(self, obj):
        delattr(obj, self.name)


class WithDescriptors:
    width = Typed(int)
    height = Typed(int)


@program(lambda: (torch.randn(3), WithDescriptors()))
def test_data_descriptors(x, box):
    box.width = 3
    try:
        box.height = "no"
    except TypeError as error:
        text = str(error)
    y = x * box.width + box.height
    del box.width
    return y, box.width, text


class NonData:
    def __get__(self, obj, owner):
        return 5 if obj is None else 6


class UsesNonData:
    nd = NonData()


@program(lambda: (torch.randn(3), UsesNonData()))
def test_non_data_descriptor(x, obj):
    a = obj.nd
    obj.__dict__["nd"] = 10
    return x * a + obj.nd, UsesNonData.nd


class Meter:
    def __init__(self):
        self._v = 1
        self.sets = 0

    @property
    def v(self):
        return self._v

    @v.setter
    def v(self, value):
        self.sets += 1
        self._v = value

    @v.deleter
    def v(self):
        self._v = None


@program(lambda: (torch.randn(3), Meter()))
def test_property_setter(x, m):
    m.v = 5
    m.v += 1
    y = x * m.v
    del m.v
    return y, m.sets, m.v


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a):
        self.a = a


@program(lambda: (torch.randn(3), [Slotted(2)]), graphs=None, breaks=None)
def test_slots(x, holder):
    s = holder.pop()
    s.b = x * s.a
    try:
        s.c = 1
    except AttributeError as error:
        text = str(error)
    t = Slotted(4)
    has = hasattr(t, "b")
    t.b = 1
    del t.b
    return s.b + t.a, text, has, hasattr(t, "b")


class Meta(type):
    level = 3

    def describe(cls):
        return cls.__name__

    @property
    def twice(cls):
        return cls.base * 2

    def __len__(cls):
        return 11

    def __iter__(cls):
        return iter([1, 2])

    def __contains__(cls, item):
        return item == 3

    def __getitem__(cls, item):
        return item + 1


class WithMeta(metaclass=Meta):
    base = 4


@program(one)
def test_metaclass_attributes(x):
    return (
        x * WithMeta.level + WithMeta.twice,
        WithMeta.describe(),
        len(WithMeta),
        list(WithMeta),
        3 in WithMeta,
        WithMeta[4],
        hasattr(WithMeta(), "level"),
    )


class Generic1(typing.Generic[typing.TypeVar("T")]):
    def __init__(self, k):
        self.k = k


class Subscriptable:
    def __class_getitem__(cls, item):
        return (cls.__name__, item)


@program(one, graphs=None, breaks=None)
def test_class_getitem(x):
    g = Generic1[int](3)
    return x * g.k, Subscriptable[4], isinstance(g, Generic1)


class Shape(abc.ABC):
    @abc.abstractmethod
    def area(self): ...

    @property
    @abc.abstractmethod
    def name(self): ...

    def describe(self, x):
        return x * self.area()


class Square(Shape):
    def __init__(self, n):
        self.n = n

    def area(self):
        return self.n**2

    @property
    def name(self):
        return "square"


@program(lambda: (torch.randn(3), Square(3)))
def test_abstract_class(x, sq):
    try:
        Shape()
    except TypeError as error:
        text = str(error)
    return sq.describe(x), sq.name, isinstance(sq, Shape), text, Square(2).area()


class Family:
    registry = {}
    count = 0

    @classmethod
    def make(cls, *args):
        return cls(*args)

    @staticmethod
    def double(v):
        return v * 2


class Kid(Family):
    pass


@program(one)
def test_class_and_static_methods(x):
    kid = Kid.make()
    return kid.double(x) * Kid.count, type(kid).__name__, Family.make().double(3)


@program(
    lambda: (torch.randn(3), setattr(Family, "count", 0)), graphs=None, breaks=None
)
def test_class_attribute_written(x, _):
    Family.count = 0
    Family.count += 1
    y = x * Family.count
    Family.count = 0
    return y


@program(lambda: (torch.randn(3), Square(3)))
def test_set_and_delete_by_name(x, sq):
    for name in ("p", "q"):
        setattr(sq, name, len(name))
    delattr(sq, "q")
    return x * sq.p, hasattr(sq, "q"), getattr(sq, "q", None), vars(sq), sq.__dict__


@program(lambda: (torch.randn(3), Square(3)))
def test_dict_of_instance(x, sq):
    sq.__dict__["extra"] = 3
    sq.__dict__.update(more=4)
    return x * sq.extra * sq.more, sorted(sq.__dict__), list(vars(sq).items())


class Callable1:
    def __init__(self, k):
        self.k = k

    def __call__(self, v, *, plus=0):
        return v * self.k + plus


@program(lambda: (torch.randn(3), Callable1(3)))
def test_callable_object(x, f):
    return f(x), f(x, plus=2), callable(f), callable(3), Callable1(2)(x)


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


# ---- functions, scopes, calls


@program(one)
def test_star_arguments_everywhere(x):
    def f(a, /, b, *args, c=1, **kw):
        return a, b, args, c, kw

    xs, d = [1, 2], {"c": 5, "z": 6}
    out = [
        f(*xs),
        f(*xs, *xs),
        f(0, *xs, **d),
        f(*(i for i in range(4)), y=2, **d),
        f(*"ab", **{"q": 1}, **{"r": 2}),
        f(1, b=2),
    ]
    return x * len(out), out, [*xs, *range(2)], {**d, "c": 1}, (*xs, 3), {*xs, *"a"}


@program(one)
def test_call_errors(x):
    def f(a, b=2, *, k):
        return a

    errors = []
    for args, kw in [
        ((), {}),
        ((1,), {}),
        ((1, 2, 3), {"k": 1}),
        ((1,), {"k": 1, "z": 2}),
        ((1,), {"a": 1, "k": 1}),
    ]:
        try:
            f(*args, **kw)
        except TypeError as error:
            errors.append(str(error).replace("<locals>", ""))
    return x + len(errors), errors


@program(one)
def test_global_write(x):
    global COUNTER
    COUNTER = 5
    COUNTER += 1
    y = x * COUNTER
    COUNTER = 0
    return y


@program(one)
def test_global_deleted(x):
    global FLEETING
    FLEETING = 3
    y = x * FLEETING
    del FLEETING
    try:
        FLEETING  # noqa: B018
    except NameError as error:
        return y, str(error)


@program(one)
def test_nonlocal_and_del(x):
    a = 1

    def inner():
        nonlocal a
        a = a + 1
        return a

    def drop():
        nonlocal a
        del a

    r = inner() + inner()
    drop()
    try:
        a  # noqa: B018
    except NameError as error:
        return x * r, str(error)


@program(one)
def test_locals_call(x):
    a, b = 1, 2
    y = x * a
    d = locals()
    return y + b, sorted(d), d["a"]


@program(one)
def test_vars_of_object(x):
    sq = Square(3)
    return x * vars(sq)["n"], vars(sq)


@program(one, graphs=None, breaks=None)
def test_dir_and_globals(x):
    return x * 2, "COUNTER" in globals(), "n" in dir(Square(1)), "append" in dir([])


@program(one)
def test_import_inside(x):
    import collections.abc as cabc
    import math
    from functools import partial as p
    from os import path

    f = p(lambda a, b: a * b, 3)
    return (
        x * math.floor(2.7) + f(2),
        isinstance([], cabc.Sequence),
        path.basename("a/b"),
    )


@program(one)
def test_recursion(x):
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    def walk(tree):
        if isinstance(tree, list):
            return sum(walk(t) for t in tree)
        return tree

    return x * fact(5) + walk([1, [2, [3, 4]]])


@program(one)
def test_mutual_recursion_and_default_binding(x):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    fs = [lambda v, k=k: v * k for k in range(3)]
    return x * sum(f(2) for f in fs), even(10), odd(7)


def outer_decorator(times):
    def wrap(f):
        def inner(*args, **kwargs):
            return f(*args, **kwargs) * times

        inner.times = times
        return inner

    return wrap


@outer_decorator(3)
def decorated(v):
    return v + 1


@program(one)
def test_decorators(x):
    @outer_decorator(2)
    @outer_decorator(5)
    def local(v):
        return v - 1

    return decorated(x), local(x), local.times


@program(one)
def test_lambda_in_containers(x):
    ops = {"add": lambda a, b: a + b, "mul": lambda a, b: a * b}
    return [ops[k](x, 2) for k in sorted(ops)], (lambda *a, **k: (a, k))(1, z=2)


@program(one)
def test_function_attributes_and_introspection(x):
    def f(a, b=2):
        "doc"
        return a

    f.k = 3
    return (
        x * f.k,
        f.__name__,
        f.__doc__,
        f.__defaults__,
        f.__code__.co_argcount,
        f.__module__,
    )


@program(one)
def test_chained_walrus_and_conditionals(x):
    if (n := len(x)) > 2 and (m := n * 2) > 3:
        y = x * m
    else:
        y = x
    a = b = c = 3
    return y, n, 1 < a < 5 > b == c, a if not b else None, [z := 3, z + 1]


@program(one)
def test_while_else_and_nested_break(x):
    out = []
    i = 0
    while i < 5:
        i += 1
        for j in range(i):
            if j == 2:
                break
            if j % 2:
                continue
            out.append((i, j))
        else:
            out.append("full")
            continue
        if i == 4:
            break
    else:
        out.append("never")
    return x * i, out


@dataclasses.dataclass
class Point:
    a: int
    b: int


@program(one)
def test_match_everything(x):
    out = []
    for case in [
        [1, 2, 3],
        (1,),
        {"k": 1, "z": 2},
        Point(1, 2),
        Point(3, 4),
        "text",
        None,
        3.5,
        [1, [2, 3]],
        -1,
        True,
    ]:
        match case:
            case [a, *rest] if len(rest) == 2:
                out.append(("seq", a, rest))
            case (1,):
                out.append("one")
            case {"k": k, **others}:
                out.append(("map", k, others))
            case Point(a=1, b=b):
                out.append(("point", b))
            case Point(a, b):
                out.append(("other", a, b))
            case str() as s:
                out.append(s)
            case None:
                out.append("none")
            case float(f):
                out.append(f)
            case [_, [b, c]]:
                out.append((b, c))
            case -1 | -2:
                out.append("neg")
            case True:
                out.append("true")
    return x * len(out), out


@program(one, graphs=None, breaks=None)
def test_string_methods(x):
    s = "Hello World"
    return (
        x * s.count("o"),
        s.split(),
        s.lower().title(),
        "-".join(["a", "b"]),
        "{} {k:>5} {!r}".format(1, 2, k=2.5),
        "{0.a} {1[0]}".format(Point(1, 2), [3]),
        "%d %5.2f %s %r" % (1, 2.5, "a", "b"),
        "%(a)s" % {"a": 3},
        s.partition(" "),
        s.replace("l", "L", 1),
        s[::-1],
        s.startswith(("He", "x")),
        s.encode("utf8"),
        s.find("W"),
        s.isalpha(),
        "a,b".rsplit(",", 1),
        s.center(20, "*"),
        s.zfill(15),
        s.translate({72: "J"}),
        "abc".strip("a"),
        s.removeprefix("He"),
        f"{3.14159:.2f} {10:x} {'a':>3} {x.shape} {x.dtype} {1_000:,}",
        "a" * 3,
        "b" in s,
        ord("a"),
        chr(98),
        ascii("é"),
        "é".encode("latin-1").decode("latin-1"),
        bytes([1, 2]) + b"x",
        b"ab".hex(),
        str.maketrans("a", "b"),
    )


@program(one)
def test_numbers(x):
    return (
        x * round(2.567, 1),
        divmod(7, 3),
        pow(2, 10, 7),
        abs(-3),
        7 // 2,
        -7 % 3,
        2**-1,
        1 << 3,
        5 & 3 | 8 ^ 1,
        ~5,
        int("12", 8),
        float("inf"),
        complex(1, 2) * 2,
        (3).bit_length(),
        (2.5).is_integer(),
        (0.1).hex(),
        max(1, 2.5),
        min([3, 1], key=lambda v: -v),
        sum([[1], [2]], []),
        bin(5),
        hex(255),
        oct(8),
        int.from_bytes(b"\x01\x02", "big"),
        (5).to_bytes(2, "little"),
        bool([]),
        1.0 == 1,
        round(7),
        isinstance(True, int),
        float.fromhex("0x1p-1"),
    )


@program(one)
def test_sets(x):
    a, b = {1, 2, 3}, {2, 3, 4}
    c = set(a)
    c |= {9}
    c -= {1}
    c ^= {2}
    c.update([5], (6,))
    return (
        x * len(a & b),
        a | b,
        a - b,
        a ^ b,
        a <= {1, 2, 3, 4},
        a.isdisjoint({9}),
        c,
        frozenset(a) & b,
        {frozenset([1]): 2}[frozenset([1])],
        sorted(a.symmetric_difference(b)),
        2 in a,
        {i % 2 for i in range(5)},
        a == {3, 2, 1},
        a > {1},
    )


@program(one)
def test_slices(x):
    xs = list(range(10))
    ys = xs[:]
    ys[2:4] = [20, 30, 40]
    del ys[-1]
    del ys[::3]
    ys[::2] = [0] * len(ys[::2])
    s = slice(1, None, 2)
    return (
        x[1:] * len(ys),
        ys,
        xs[s],
        s.indices(7),
        "hello"[s],
        (1, 2, 3)[::-1],
        xs[-3:-1],
        s.start,
    )


@program(one)
def test_sorting(x):
    pairs = [("b", 2), ("a", 3), ("c", 1)]
    pairs.sort(key=lambda p: p[1])
    objs = sorted([Point(3, 1), Point(1, 2)], key=lambda p: p.a)
    return (
        x * objs[0].a,
        pairs,
        sorted({"z": 1, "y": 2}),
        sorted([3, 1, 2], reverse=True),
        sorted(["b", "A"], key=str.lower),
        min(pairs, key=lambda p: p[0]),
        max([], default=4),
        [o.a for o in objs],
    )


@program(one)
def test_iteration_builtins(x):
    it = iter([1, 2, 3])
    seen = []
    for a, b in zip(it, it):
        seen.append((a, b))
    pop = [3, 2, 1]
    return (
        x * sum(v for v in range(3)),
        seen,
        list(zip([1, 2], "ab", strict=True)),
        list(enumerate("ab", 5)),
        list(map(lambda a, b: a + b, [1, 2], [3, 4])),
        list(filter(None, [0, 1, 2])),
        any(v > 1 for v in [1, 2]),
        all([]),
        list(reversed([1, 2])),
        next(iter([]), "d"),
        list(iter(pop.pop, 1)),
        dict(zip("ab", [1, 2])),
        list(range(5, 0, -2)),
        tuple(i for i in range(3) if i),
        [*map(str, range(2))],
        dict(a=1, **{"b": 2}),
        dict([("x", 1)]),
        {k: v for k, v in zip("ab", range(2))},
    )


@program(one)
def test_isinstance_forms(x):
    return (
        x + 1,
        isinstance(1, (str, (int, float))),
        isinstance(1, int | str),
        isinstance(None, int | None),
        issubclass(bool, int),
        issubclass(Square, (Shape, int)),
        isinstance(x, torch.Tensor),
        isinstance(x, (list, torch.Tensor)),
        isinstance(Square(1), abc.ABC),
        type(x) is torch.Tensor,
        isinstance(len, typing.Callable),
    )


@program(one)
def test_super_forms(x):
    class A:
        tag = "A"

        def f(self):
            return 1

        @classmethod
        def c(cls):
            return cls.__name__

        @staticmethod
        def s():
            return 5

        @property
        def p(self):
            return 10

    class B(A):
        tag = "B"

        def f(self):
            return super(B, self).f() + super().f()

        @classmethod
        def c(cls):
            return super().c() + "b"

        @property
        def p(self):
            return super().p + super().s()

        def t(self):
            return super().tag

        def g(self):
            sup = super()
            return [sup.f() for _ in range(2)]

    b = B()
    return x * b.f() + b.p, B.c(), b.t(), b.g(), super(B, b).f()


class Mixin1:
    def forward(self, v):
        return v + 1


class Mixin2:
    def forward(self, v):
        return v * 2


class Multi(Mixin1, Mixin2):
    def forward(self, v):
        return Mixin2.forward(self, super().forward(v))


@program(lambda: (torch.randn(3), Multi()))
def test_multiple_inheritance(x, m):
    return (
        m.forward(x),
        [c.__name__ for c in Multi.__mro__],
        Multi.__bases__ == (Mixin1, Mixin2),
    )


@program(one)
def test_getattr_with_defaults(x):
    sq = Square(2)
    errors = []
    for f in (lambda: getattr(sq, "zz"), lambda: delattr(sq, "zz"), lambda: sq.zz):
        try:
            f()
        except AttributeError as error:
            errors.append((str(error), error.name))
    return x * getattr(sq, "n"), getattr(sq, "zz", None), hasattr(x, "shape"), errors


@program(one)
def test_identity_and_id(x):
    a, b = [], []
    seen = {id(a): "a"}
    return x + 1, id(a) == id(a), id(b) in seen, seen[id(a)], a is b, id(x) == id(x)


@program(one)
def test_hash(x):
    return (
        x * 2,
        hash("a") == hash("a"),
        hash((1, 2)) == hash((1, 2)),
        hash(1),
        {hash(1.0)},
    )


@program(lambda: (torch.randn(3), torch.randn(3), Square(1)))
def test_dict_keyed_by_objects(x, y, sq):
    d = {x: 1, y: 2}
    e = {sq: 3, Square: 4}
    memo = {}
    memo[sq] = 5
    d[x] += 1
    return (
        x * d[x] + d[y] + e[sq],
        y in d,
        memo[sq],
        len(d),
        sq in memo,
        Square(1) in memo,
    )


@program(lambda: (torch.randn(3), torch.nn.Linear(3, 3), torch.nn.ReLU()))
def test_dict_and_set_of_modules(x, lin, relu):
    seen = set()
    names = {lin: "lin", relu: "relu"}
    for m in (lin, relu, lin):
        if m in seen:
            continue
        seen.add(m)
        x = m(x)
    return x, names[lin], len(seen)


@program(lambda: ({Square: 1, len: 2, torch.float32: 3}, torch.randn(2)))
def test_input_dict_with_odd_keys(d, x):
    return x * d[Square] + d[len] * d[torch.float32], [k is len for k in d]


KEY = Square(1)


@program(lambda: ({KEY: 2}, torch.randn(2)), graphs=None, breaks=None)
def test_input_dict_keyed_by_object(d, x):
    return x * d[KEY], KEY in d, [v for v in d.values()]


@program(one)
def test_generator_protocol(x):
    def gen():
        got = None
        try:
            while True:
                got = yield (got, x * 2)
                if got == "stop":
                    return "done"
        except ValueError as error:
            yield str(error)
        finally:
            log.append("closed")

    log = []
    g = gen()
    a = next(g)
    b = g.send(3)
    c = g.throw(ValueError("thrown"))
    g.close()
    h = gen()
    next(h)
    try:
        h.send("stop")
    except StopIteration as stop:
        value = stop.value
    return a[1], b, c, value, log


@program(one)
def test_yield_from(x):
    def inner(n):
        got = 0
        for i in range(n):
            got += (yield x * i) or 0
        return got

    def outer():
        a = yield from inner(2)
        b = yield from [1, 2]
        yield (a, b)

    g = outer()
    out = [next(g), g.send(5), *g]
    return out


@program(one)
def test_generator_expression_laziness(x):
    log = []

    def note(v):
        log.append(v)
        return v

    g = (note(i) * x for i in range(5))
    a = next(g)
    b = next(g)
    return a + b, log, sum(1 for _ in g), len(log)


@program(one)
def test_exceptions_have_cause_and_context(x):
    try:
        try:
            raise KeyError("a")
        except KeyError as inner:
            raise ValueError("b") from inner
    except ValueError as error:
        cause, context, hidden = (
            error.__cause__,
            error.__context__,
            error.__suppress_context__,
        )
    try:
        try:
            1 / 0
        except ZeroDivisionError:
            [].pop()
    except IndexError as error:
        second = error.__context__
    return x + 1, repr(cause), cause is context, hidden, repr(second), str(second)


@program(one)
def test_sys_exc_info(x):
    try:
        raise ValueError("a")
    except ValueError:
        kind, value, tb = sys.exc_info()
        del tb
    return x + 1, kind.__name__, str(value)


@program(one, graphs=0, breaks=0)
def test_exception_attributes(x):
    error = ValueError("a", 2)
    error.code = 3
    error.add_note("note")
    try:
        raise error
    except (TypeError, ValueError) as e:
        out = e.args, e.code, e.__notes__
    return x, out, repr(error), isinstance(error, Exception)


@program(one)
def test_finally_order(x):
    log = []

    def f(kind):
        for i in range(3):
            try:
                if kind == "break":
                    break
                if kind == "continue":
                    continue
                if kind == "return":
                    return i
                if kind == "raise":
                    raise KeyError(i)
            finally:
                log.append((kind, i))
        return "end"

    out = [f("break"), f("continue"), f("return")]
    try:
        f("raise")
    except KeyError:
        out.append("raised")
    return x * len(log), log, out


@program(one)
def test_multiple_with(x):
    log = []

    class CM:
        def __init__(self, name):
            self.name = name

        def __enter__(self):
            log.append("+" + self.name)
            return self

        def __exit__(self, kind, value, tb):
            log.append(("-" + self.name, kind and kind.__name__, str(value)))
            return self.name == "b"

    with CM("a"), CM("b") as b, CM("c"):
        y = x * len(b.name)
        raise ValueError("v")
    return y, log


@program(two)
def test_unpacking_forms(x, y):
    (a, [b, *c]), d = (x, [y, 1, 2]), {"k": 3}
    for i, (j, k) in enumerate([(1, 2), (3, 4)]):
        a = a * j + k - i
    head, *_, tail = range(5)
    return a, b, c, d, head, tail


@program(one)
def test_del_forms(x):
    d = {"a": 1, "b": 2}
    xs = [1, 2, 3, 4]
    p = Point(1, 2)
    del d["a"], xs[0], p.a
    t = 3
    del t
    return x * xs[0], d, xs, hasattr(p, "a")


@program(one)
def test_augmented_everything(x):
    a = [1]
    b = a
    a += [2]
    a *= 2
    d = {"k": 1}
    d["k"] += 5
    d |= {"z": 1}
    n = 7
    n //= 2
    n **= 2
    n <<= 1
    n |= 1
    n &= 15
    n ^= 2
    n >>= 1
    n %= 5
    n -= 1
    s = "a"
    s += "b"
    p = Point(1, 2)
    p.a += 3
    return x * n, a is b, a, d, s, p.a
