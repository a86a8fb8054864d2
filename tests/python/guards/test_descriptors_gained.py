"""What a class does not have when a function is captured, and has at the next call:
the slots of the class of a class attribute, the hooks of class statements, what
makes an object callable."""

from __future__ import annotations

import collections
import functools

import pytest
import torch

import framejit


def scenario_get_of_a_property():
    class P(property):
        pass

    class A:
        p = P(lambda s: 2)

    a = A()

    def f(x):
        return x * a.p

    def change():
        P.__get__ = lambda s, o, t=None: 77

    return f, change


def scenario_get_of_an_instance():
    class D:
        pass

    class B:
        q = D()

    def f(x):
        return x * (2 if isinstance(B.q, D) else 3)

    def change():
        D.__get__ = lambda s, o, t=None: 5

    return f, change


def scenario_get_through_an_object():
    class D:
        pass

    class B:
        q = D()

    b = B()

    def f(x):
        return x * (2 if isinstance(getattr(b, "q", None), D) else 3)

    def change():
        D.__get__ = lambda s, o, t=None: 5

    return f, change


def scenario_get_of_a_metaclass_attribute():
    class D:
        pass

    class M(type):
        q = D()

    class B(metaclass=M):
        pass

    def f(x):
        return x * (2 if isinstance(B.q, D) else 3)

    def change():
        D.__get__ = lambda s, o, t=None: 5

    return f, change


def scenario_set_gained():
    class D:
        def __get__(self, obj, kind=None):
            return 50

    class B:
        q = D()

    b = B()
    b.__dict__["q"] = 3

    def f(x):
        return x * b.q

    def change():
        D.__set__ = lambda s, o, v: None

    return f, change


def scenario_set_lost():
    class D:
        def __get__(self, obj, kind=None):
            return 50

        def __set__(self, obj, value):
            pass

    class B:
        q = D()

    b = B()
    b.__dict__["q"] = 3

    def f(x):
        return x * b.q

    def change():
        del D.__set__

    return f, change


def scenario_stores():
    class D:
        pass

    class B:
        q = D()

    b = B()
    b.seen = 0

    def f(x):
        b.q = 4
        return x * b.seen, sorted(b.__dict__)

    def change():
        b.__dict__.pop("q", None)
        D.__set__ = lambda s, o, v: o.__dict__.update(seen=v)

    return f, change


def scenario_deletes():
    class D:
        pass

    class B:
        q = D()

    b = B()

    def f(x):
        b.__dict__["q"] = 1
        del b.q
        return x, sorted(b.__dict__)

    def change():
        D.__delete__ = lambda s, o: None

    return f, change


def scenario_has():
    class D:
        pass

    class B:
        q = D()

    b = B()

    def f(x):
        return x * (2 if hasattr(b, "q") else 3)

    def change():
        def fail(s, o, t=None):
            raise AttributeError("q")

        D.__get__ = fail

    return f, change


def scenario_method_of_an_object():
    class C:
        def __call__(self, *args):
            return 2 + len(args)

    class B:
        m = C()

    b = B()

    def f(x):
        return x * b.m()

    def change():
        C.__get__ = lambda s, o, t=None: functools.partial(s, o)

    return f, change


def scenario_class_of_the_attribute():
    class D:
        pass

    class E:
        def __get__(self, obj, kind=None):
            return 5

    class B:
        q = D()

    b = B()

    def f(x):
        return x * (2 if isinstance(b.q, D) else 3)

    def change():
        B.__dict__["q"].__class__ = E

    return f, change


def scenario_init_subclass():
    class B:
        pass

    def f(x):
        class S(B):
            pass

        return x * getattr(S, "k", 1)

    def change():
        B.__init_subclass__ = classmethod(lambda cls: setattr(cls, "k", 5))

    return f, change


def scenario_init_subclass_of_type():
    class B:
        pass

    def f(x):
        return x * getattr(type("S", (B,), {}), "k", 1)

    def change():
        B.__init_subclass__ = classmethod(lambda cls: setattr(cls, "k", 5))

    return f, change


def scenario_set_name():
    class V:
        k = 1

    v = V()

    def f(x):
        class S:
            held = v

        return x * S.held.k

    def change():
        V.__set_name__ = lambda s, owner, name: setattr(s, "k", len(name))

    return f, change


def scenario_callable_for_partial():
    class K:
        pass

    k = K()

    def f(x):
        try:
            return x * functools.partial(k)()
        except TypeError:
            return x * 3

    def change():
        K.__call__ = lambda s: 7

    return f, change


def scenario_callable_for_defaultdict():
    class K:
        pass

    k = K()

    def f(x):
        try:
            return x * collections.defaultdict(k)["a"]
        except TypeError:
            return x * 3

    def change():
        K.__call__ = lambda s: 7

    return f, change


def scenario_init():
    class K:
        k = 1

    def f(x):
        try:
            return x * K(3).k
        except TypeError:
            return x * 9

    def change():
        K.__init__ = lambda s, k: setattr(s, "k", k)

    return f, change


def scenario_enum_member():
    import enum

    class Color(enum.Enum):
        RED = 2

    def f(x):
        return x * (2 if Color.RED is Color(2) else 3)

    def change():
        Color.__set__ = lambda s, o, v: None

    return f, change


SCENARIOS = {n[9:]: f for n, f in globals().items() if n.startswith("scenario_")}


def outcome(function, x):
    try:
        return repr(function(x))
    except (TypeError, AttributeError) as error:
        return repr(error)


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_before_and_after(name, backend):
    x = torch.ones(2)
    plain, change = SCENARIOS[name]()
    expected = [outcome(plain, x)]
    change()
    expected.append(outcome(plain, x))
    function, change = SCENARIOS[name]()
    compiled = framejit.compile(function, backend=backend)
    actual = [outcome(compiled, x)]
    assert outcome(compiled, x)
    change()
    actual.append(outcome(compiled, x))
    assert actual == expected


def test_a_descriptor_that_stays_needs_one_entry():
    class D:
        def __get__(self, obj, kind=None):
            return 3

    class B:
        d = D()
        e = object()

    b = B()

    @framejit.compile
    def f(x):
        return x * b.d

    for size in (2, 2, 2):
        f(torch.ones(size))
    assert len(framejit.inspect(f)) == 1
