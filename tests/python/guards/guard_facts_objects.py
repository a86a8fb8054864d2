"""Facts about objects: their attributes and their classes."""

from __future__ import annotations

import abc
import collections
import dataclasses
import enum

import torch
from guard_facts import env, fact


def X() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0])


def raw_set(obj, name, value):
    object.__setattr__(obj, name, value)


# ---- attributes of instances


class Box:
    pass


class DoubleK:
    k = 7.0


def _set_class(value):
    def change(e):
        e.o.__class__ = value

    return change


def _new_dict(e):
    e.o.__dict__ = {"k": 5.0}


@fact(
    setattr=lambda e: setattr(e.o, "k", 5.0),
    dict=lambda e: e.o.__dict__.__setitem__("k", 5.0),
    vars=lambda e: vars(e.o).__setitem__("k", 5.0),
    object=lambda e: raw_set(e.o, "k", 5.0),
    update=lambda e: e.o.__dict__.update(k=5.0),
    new_dict=_new_dict,
    delattr=lambda e: delattr(e.o, "k"),
    del_dict=lambda e: e.o.__dict__.pop("k"),
    clear=lambda e: e.o.__dict__.clear(),
    descriptor=lambda e: setattr(type(e.o), "k", property(lambda self: 9.0)),
    getattribute=lambda e: setattr(
        type(e.o),
        "__getattribute__",
        lambda self, n: 8.0 if n == "k" else object.__getattribute__(self, n),
    ),
    cell=lambda e: e.rebind(),
    other_type=lambda e: setattr(e.o, "k", 5),
    tensor=lambda e: setattr(e.o, "k", torch.tensor([4.0])),
)
def instance_attribute():
    class C:
        k = 2.0

    o = C()
    o.k = 3.0

    def f(x):
        return x * o.k

    def rebind():
        nonlocal o
        o = C()

    return env(f, X(), o=o, rebind=rebind)


@fact(
    setattr=lambda e: setattr(e.o, "k", 5.0),
    dict=lambda e: e.o.__dict__.__setitem__("k", 5.0),
    object=lambda e: raw_set(e.o, "k", 5.0),
    own_class=lambda e: setattr(e.C, "k", 5.0),
    base=lambda e: setattr(e.Base, "k", 5.0),
    type_setattr=lambda e: type.__setattr__(e.Base, "k", 5.0),
    delattr=lambda e: delattr(e.Base, "k"),
    bases=lambda e: setattr(e.C, "__bases__", (DoubleK,)),
    new_class=lambda e: setattr(e.o, "__class__", e.D),
    descriptor=lambda e: setattr(e.C, "k", property(lambda self: 9.0)),
    getattr_hook=lambda e: setattr(e.C, "__getattribute__", lambda self, n: 8.0),
)
def class_attribute():
    class Base:
        k = 2.0

        def __getattr__(self, name):
            return 11.0

    class C(Base):
        pass

    class D(Base):
        k = 6.0

    o = C()
    o.unrelated = 1
    return env(lambda x, o: x * o.k, X(), o, o=o, C=C, Base=Base, D=D)


@fact(
    setattr=lambda e: setattr(e.o, "extra", 5.0),
    dict=lambda e: e.o.__dict__.__setitem__("extra", 5.0),
    vars=lambda e: vars(e.o).update(extra=5.0),
    object=lambda e: raw_set(e.o, "extra", 5.0),
    own_class=lambda e: setattr(e.C, "extra", 5.0),
    base=lambda e: setattr(e.Base, "extra", 5.0),
    getattr_hook=lambda e: setattr(e.C, "__getattr__", lambda self, n: 4.0),
    new_class=lambda e: setattr(e.o, "__class__", e.D),
    bases=lambda e: setattr(e.C, "__bases__", (e.D,)),
)
def absent_attribute():
    class Base:
        pass

    class C(Base):
        pass

    class D(Base):
        extra = 6.0

    o = C()

    def f(x, o):
        if hasattr(o, "extra"):
            return x * o.extra
        return x + getattr(o, "extra", 1.0)

    return env(f, X(), o, o=o, C=C, Base=Base, D=D)


@fact(
    setattr=lambda e: setattr(e.o, "k", 5.0),
    object=lambda e: raw_set(e.o, "k", 5.0),
    member=lambda e: type(e.o).k.__set__(e.o, 5.0),
    delattr=lambda e: delattr(e.o, "k"),
    class_patch=lambda e: setattr(type(e.o), "k", 4.0),
    other=lambda e: setattr(e, "args", (X(), e.make(6.0))),
)
def slot_attribute():
    class S:
        __slots__ = ("k", "j")

    def make(k):
        o = S()
        o.k = k
        return o

    o = make(3.0)
    return env(lambda x, o: x * o.k, X(), o, o=o, make=make)


@fact(
    patch=lambda e: setattr(e.C, "scale", lambda self, x: x * 5),
    base=lambda e: setattr(e.Base, "offset", lambda self: 50.0),
    override=lambda e: setattr(e.C, "offset", lambda self: 60.0),
    instance=lambda e: setattr(e.o, "scale", lambda x: x * 6),
    instance_dict=lambda e: e.o.__dict__.__setitem__("offset", lambda: 7.0),
    code=lambda e: setattr(e.C.scale, "__code__", (lambda self, x: x * 9).__code__),
    defaults=lambda e: setattr(e.Base.offset, "__defaults__", (70.0,)),
    kwdefaults=lambda e: setattr(e.C.scale, "__kwdefaults__", {"by": 8.0}),
    kwdefaults_item=lambda e: e.C.scale.__kwdefaults__.update(by=4.0),
    new_class=lambda e: setattr(e.o, "__class__", e.D),
    delete=lambda e: delattr(e.C, "scale"),
    to_static=lambda e: setattr(e.C, "scale", staticmethod(lambda x: x * 11)),
    to_class=lambda e: setattr(e.C, "scale", classmethod(lambda cls, x: x * 12)),
    to_property=lambda e: setattr(
        e.C, "scale", property(lambda self: lambda x: x * 13)
    ),
)
def method():
    class Base:
        def offset(self, value=1.0):
            return value

        def scale(self, x):
            return x * 100

    class C(Base):
        def scale(self, x, *, by=2.0):
            return x * by

    class D(Base):
        def scale(self, x):
            return x * 3

    o = C()
    return env(lambda x, o: o.scale(x) + o.offset(), X(), o, o=o, C=C, Base=Base, D=D)


@fact(
    prop=lambda e: setattr(e.C, "prop", property(lambda self: 5.0)),
    prop_state=lambda e: setattr(e.o, "state", 5.0),
    prop_code=lambda e: setattr(e.C.prop.fget, "__code__", (lambda self: 9.0).__code__),
    static=lambda e: setattr(e.C, "static", staticmethod(lambda: 5.0)),
    klass=lambda e: setattr(e.C, "klass", classmethod(lambda cls: 5.0)),
    klass_state=lambda e: setattr(e.C, "kstate", 5.0),
    setter=lambda e: setattr(e.C, "prop", 6.0),
    descriptor=lambda e: setattr(type(e.C.__dict__["desc"]), "__get__", e.get),
    descriptor_state=lambda e: setattr(e.C.__dict__["desc"], "value", 5.0),
    shadow=lambda e: e.o.__dict__.__setitem__("desc", 3.0),
)
def descriptors():
    class Desc:
        value = 1.0

        def __get__(self, instance, owner):
            return self.value

    class C:
        kstate = 1.0
        desc = Desc()

        @property
        def prop(self):
            return self.state

        @staticmethod
        def static():
            return 1.0

        @classmethod
        def klass(cls):
            return cls.kstate

    o = C()
    o.state = 2.0

    def f(x, o):
        return torch.stack([x * o.prop, x + o.static(), x - o.klass(), x / o.desc])

    def get(self, instance, owner):
        return 20.0

    return env(f, X(), o, o=o, C=C, get=get)


@fact(
    len=lambda e: setattr(e.C, "__len__", lambda self: 5),
    bool=lambda e: setattr(e.C, "__bool__", lambda self: False),
    eq=lambda e: setattr(e.C, "__eq__", lambda self, other: True),
    getitem=lambda e: setattr(e.C, "__getitem__", lambda self, i: 9.0),
    contains=lambda e: setattr(e.C, "__contains__", lambda self, i: True),
    call=lambda e: setattr(e.C, "__call__", lambda self, x: x * 9),
    add=lambda e: setattr(e.C, "__radd__", lambda self, other: 90.0),
    iter=lambda e: setattr(e.C, "__iter__", lambda self: iter([4.0, 5.0])),
)
def special_methods():
    class C:
        def __len__(self):
            return 2

        def __getitem__(self, i):
            if i > 1:
                raise IndexError
            return 2.0

        def __contains__(self, i):
            return False

        def __call__(self, x):
            return x * 3

        def __radd__(self, other):
            return 3.0

        def __iter__(self):
            return iter([1.0, 2.0])

    o = C()

    def f(x, o):
        total = 1.0 + o + len(o)
        if o:
            total = total + 10
        if o == 3:
            total = total + 20
        if 5 in o:
            total = total + 40
        for item in o:
            total = total + item
        return o(x) * total + o[0]

    return env(f, X(), o, o=o, C=C)


@fact(
    new_class=lambda e: setattr(e.o, "__class__", e.Other),
    bases=lambda e: setattr(e.C, "__bases__", (e.Plain,)),
    other=lambda e: setattr(e, "args", (X(), e.Other())),
    name=lambda e: setattr(e.C, "__name__", "renamed_class"),
    hook=lambda e: setattr(e.Meta, "__instancecheck__", lambda cls, o: False),
)
def class_of_object():
    class Meta(type):
        pass

    class Base(metaclass=Meta):
        pass

    class Plain(metaclass=Meta):
        pass

    class C(Base):
        pass

    class Other(Plain):
        pass

    o = C()

    def f(x, o):
        y = x * 2 if isinstance(o, Base) else x * 3
        if type(o) is C:
            y = y + 1
        return y * len(type(o).__name__)

    return env(f, X(), o, o=o, C=C, Other=Other, Plain=Plain, Meta=Meta)


@fact(
    register=lambda e: e.A.register(e.C),
    virtual=lambda e: setattr(e, "args", (X(), e.registered())),
)
def abstract_base():
    class A(abc.ABC):
        pass

    class C:
        pass

    def registered():
        D = type("D", (), {})
        A.register(D)
        return D()

    return env(
        lambda x, o: x * 2 if isinstance(o, A) else x * 3,
        X(),
        C(),
        A=A,
        C=C,
        registered=registered,
    )


@fact(
    patch=lambda e: setattr(e.Base, "scale", lambda self, x: x * 9),
    bases=lambda e: setattr(e.C, "__bases__", (e.Other,)),
    between=lambda e: setattr(e.C, "__bases__", (e.Middle,)),
    code=lambda e: setattr(e.Base.scale, "__code__", (lambda self, x: x * 7).__code__),
)
def super_call():
    class Base:
        def scale(self, x):
            return x * 2

    class Other:
        def scale(self, x):
            return x * 4

    class Middle(Base):
        def scale(self, x):
            return super().scale(x) + 100

    class C(Base):
        def scale(self, x):
            return super().scale(x) + 1

    return env(
        lambda x, o: o.scale(x), X(), C(), Base=Base, C=C, Other=Other, Middle=Middle
    )


@fact(
    field=lambda e: setattr(e.o, "k", 5.0),
    frozen=lambda e: raw_set(e.frozen, "k", 5.0),
    default=lambda e: setattr(e.P, "j", 6.0),
    replace=lambda e: setattr(
        e, "args", (X(), dataclasses.replace(e.o, k=8.0), e.frozen)
    ),
)
def dataclass_fields():
    @dataclasses.dataclass
    class P:
        k: float = 2.0
        j: float = 1.0

    @dataclasses.dataclass(frozen=True)
    class Q:
        k: float = 2.0

    o, q = P(), Q()
    del o.j
    return env(lambda x, o, q: x * o.k + q.k + o.j, X(), o, q, o=o, frozen=q, P=P)


@fact(
    member=lambda e: setattr(e, "args", (X(), e.E.B)),
    value=lambda e: setattr(e.E.A, "_value_", 9.0),
    attribute=lambda e: setattr(e.E.A, "weight", 9.0),
)
def enums():
    class E(enum.Enum):
        A = 1.0
        B = 2.0

    E.A.weight = 1.0
    E.B.weight = 2.0

    def f(x, e):
        if e is E.A:
            x = x + 10
        return x * e.value + e.weight

    return env(f, X(), E.A, E=E)


@fact(
    replace=lambda e: setattr(e, "args", (X(), e.args[1]._replace(k=5.0))),
    method=lambda e: setattr(type(e.args[1]), "__len__", lambda self: 7),
    type=lambda e: setattr(e, "args", (X(), (2.0, 3.0, 4.0))),
)
def named_tuple():
    T = collections.namedtuple("T", "k j")

    def f(x, t):
        return x * (t.k if hasattr(t, "k") else 9.0) + len(t)

    return env(f, X(), T(2.0, 3.0))
