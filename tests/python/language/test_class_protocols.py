"""Classes, the attribute protocol, instances and their identity.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import abc
import dataclasses
import enum
import typing

import torch

from differential import one, program

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


# ---- instances and identity


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
