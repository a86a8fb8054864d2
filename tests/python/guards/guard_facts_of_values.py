"""Facts about functions, modules, globals, constants and containers.

And what is not used of an object.
"""

from __future__ import annotations

import builtins
import collections
import functools
import math
import operator
import sys
import types

import torch
from guard_facts import Env, env, fact, unused
from guard_facts_objects import Box, DoubleK, X

# ---- functions


@fact(
    code=lambda e: setattr(e.helper, "__code__", e.other.__code__),
    defaults=lambda e: setattr(e.helper, "__defaults__", (5.0,)),
    no_defaults=lambda e: setattr(e.helper, "__defaults__", None),
    kwdefaults=lambda e: setattr(e.helper, "__kwdefaults__", {"b": 5.0}),
    kwdefaults_item=lambda e: e.helper.__kwdefaults__.__setitem__("b", 5.0),
    kwdefaults_del=lambda e: e.helper.__kwdefaults__.pop("b"),
    cell=lambda e: setattr(e.rebind, "done", e.rebind(5.0)),
    cell_contents=lambda e: setattr(e.closure_cell, "cell_contents", 6.0),
    attribute=lambda e: setattr(e.helper, "gain", 5.0),
    attribute_dict=lambda e: e.helper.__dict__.__setitem__("gain", 5.0),
    attribute_del=lambda e: delattr(e.helper, "gain"),
)
def helper_function():
    captured = 1.0

    def helper(x, a=1.0, *, b=2.0):
        return x * a + b + captured

    helper.gain = 1.0

    def rebind(value):
        nonlocal captured
        captured = value

    def other(x, a=1.0, *, b=2.0):
        return x * 50 + captured

    cell = helper.__closure__[0]
    return env(
        lambda x: helper(x) * getattr(helper, "gain", 3.0),
        X(),
        helper=helper,
        other=other,
        rebind=rebind,
        closure_cell=cell,
    )


@fact(
    code=lambda e: setattr(e.f, "__code__", (lambda x, a=0, *, b=0: x * 50).__code__),
    defaults=lambda e: setattr(e.f, "__defaults__", (5.0,)),
    no_defaults=lambda e: setattr(e.f, "__defaults__", None),
    kwdefaults=lambda e: setattr(e.f, "__kwdefaults__", {"b": 5.0}),
    kwdefaults_item=lambda e: e.f.__kwdefaults__.update(b=5.0),
    kwdefaults_del=lambda e: e.f.__kwdefaults__.clear(),
    positional=lambda e: setattr(e, "args", (X(), 7.0)),
)
def own_function():
    def f(x, a=1.0, *, b=2.0):
        return x * a + b

    return env(f, X())


@fact(
    replaced=lambda e: e.rebind(functools.partial(torch.mul, other=9.0)),
    keywords=lambda e: e.p.keywords.__setitem__("other", 7.0),
    state=lambda e: e.p.__setstate__((torch.mul, (), {"other": 4.0}, None)),
)
def partial_object():
    p = functools.partial(torch.mul, other=2.0)

    def rebind(q):
        nonlocal p
        p = q

    return env(lambda x: p(x), X(), p=p, rebind=rebind)


@fact(
    function=lambda e: e.rebind(types.MethodType(lambda self, x: x * 9, e.o)),
    self_state=lambda e: setattr(e.o, "k", 9.0),
    self_object=lambda e: e.rebind(types.MethodType(e.m.__func__, e.other)),
    code=lambda e: setattr(e.m.__func__, "__code__", (lambda self, x: x * 70).__code__),
)
def bound_method_object():
    class C:
        def __init__(self, k):
            self.k = k

        def m(self, x):
            return x * self.k

    o = C(2.0)
    m = o.m

    def rebind(n):
        nonlocal m
        m = n

    return env(lambda x: m(x), X(), o=o, m=m, rebind=rebind, other=C(3.0))


# ---- modules, globals, builtins


def make_module():
    module = types.ModuleType("fj_test_module")
    exec(
        "import torch\nK = 2.0\ndef helper(x):\n    return x * K\n"
        "def f(x):\n    return helper(x) + len('ab') + abs(-1)\n",
        module.__dict__,
    )
    return module


def _restore_later(obj, name, value):
    class Patch:
        def __enter__(self):
            self.old = obj.__dict__.get(name, self)
            setattr(obj, name, value)

        def __exit__(self, *exc):
            if self.old is self:
                delattr(obj, name)
            else:
                setattr(obj, name, self.old)

    return Patch()


@fact(
    setattr=lambda e: setattr(e.m, "K", 5.0),
    dict=lambda e: e.m.__dict__.__setitem__("K", 5.0),
    globals=lambda e: e.m.f.__globals__.update(K=5.0),
    exec=lambda e: exec("K = 5.0", e.m.__dict__),
    global_statement=lambda e: exec(
        "def w():\n    global K\n    K = 9.0\nw()", e.m.__dict__
    ),
    delete=lambda e: delattr(e.m, "K"),
    delete_falls_to_builtin=lambda e: (
        delattr(e.m, "K") or _restore_later(builtins, "K", 8.0)
    ),
    helper=lambda e: setattr(e.m, "helper", lambda x: x * 9),
    helper_deleted=lambda e: e.m.__dict__.pop("helper"),
    shadow_builtin=lambda e: setattr(e.m, "len", lambda s: 7),
    patch_builtin=lambda e: _restore_later(builtins, "abs", lambda v: 30.0),
    cleared=lambda e: e.m.__dict__.pop("helper") and e.m.__dict__.pop("K"),
)
def module_globals():
    m = make_module()
    return env(m.f, X(), m=m)


@fact(
    setattr=lambda e: setattr(e.m, "K", 5.0),
    dict=lambda e: vars(e.m).__setitem__("K", 5.0),
    function=lambda e: setattr(e.m, "helper", lambda x: x * 9),
    code=lambda e: setattr(e.m.helper, "__code__", (lambda x: x * 90).__code__),
    getattr_hook=lambda e: (
        delattr(e.m, "K") or setattr(e.m, "__getattr__", lambda n: 6.0)
    ),
    new_class=lambda e: setattr(e.m, "__class__", e.Lazy),
)
def module_attribute():
    m = make_module()

    class Lazy(types.ModuleType):
        @property
        def K(self):
            return 12.0

    return env(lambda x: m.helper(x) * m.K, X(), m=m, Lazy=Lazy)


@fact(
    sys_modules=lambda e: _patch_item(sys.modules, "fj_test_module", e.other),
    attribute=lambda e: setattr(e.m, "K", 5.0),
)
def imported_in_function():
    m, other = make_module(), make_module()
    other.K = 9.0
    sys.modules["fj_test_module"] = m

    def f(x):
        import fj_test_module
        from fj_test_module import helper

        return helper(x) * fj_test_module.K

    return env(f, X(), m=m, other=other)


def _patch_item(mapping, key, value):
    class Patch:
        def __enter__(self):
            self.old = mapping[key]
            mapping[key] = value

        def __exit__(self, *exc):
            mapping[key] = self.old

    return Patch()


@fact(
    math=lambda e: _restore_later(math, "sqrt", lambda v: 50.0),
    torch_function=lambda e: _restore_later(torch, "relu", lambda v: v * 50),
    functional=lambda e: _restore_later(torch.nn.functional, "silu", lambda v: v * 60),
    tensor_method=lambda e: _restore_later(
        torch.Tensor, "sigmoid", lambda self: self * 70
    ),
    tensor_operator=lambda e: _restore_later(
        torch.Tensor, "__matmul__", lambda self, other: self * 80
    ),
    operator_module=lambda e: _restore_later(operator, "add", lambda a, b: a * 90),
)
def patched_library():
    def f(x):
        y = torch.relu(x) * math.sqrt(4.0) + torch.nn.functional.silu(x)
        return operator.add(y, x.sigmoid()) + (x @ x)

    return env(f, X())


# ---- constants and types of arguments


def argument(*values):
    return {
        f"{type(v).__name__}_{v!r}"[:24]: (lambda v: lambda e: e.give(v))(v)
        for v in values
    }


class IntSub(int):
    def __add__(self, other):
        return 90


class FloatSub(float):
    pass


class StrSub(str):
    def __eq__(self, other):
        return True

    __hash__ = str.__hash__


def _constant(first):
    def setup():
        def f(x, v):
            if isinstance(v, (int, float, complex)) and not isinstance(v, bool):
                out = x * v + (v + 1)
            elif v is None:
                out = x - 1
            else:
                out = x * len(str(v))
            return out, str(type(v)), repr(v)

        e = env(f, X(), first)
        e.give = lambda v: setattr(e, "args", (X(), v))
        return e

    setup.__name__ = f"constant_{type(first).__name__}"
    return setup


for _first, _others in (
    (1, (2, True, 1.0, IntSub(1), "1", None, 10**30, -1, 0, 1 + 0j)),
    (True, (False, 1, None, 1.0)),
    (1.0, (1, 2.0, True, FloatSub(1.0), float("nan"), float("inf"), 1 + 0j)),
    (0.0, (-0.0, 0, False, 1e-300)),
    (float("nan"), (1.0, float("inf"))),
    ("a", ("b", "aa", b"a", StrSub("a"), None)),
    (b"a", (b"b", "a", None)),
    (None, (0, False, "None")),
    (2j, (3j, 2, -2j, complex(0.0, 2.5))),
    (10**30, (1, 1.0)),
    ((1, 2.0), ((1, 2), (1, 2.0, 3), [1, 2.0], (1.0, 2.0), (True, 2.0))),
    (range(3), (range(4), range(0, 3, 2), [0, 1, 2])),
    (slice(1, 3), (slice(1, 2), slice(0, 3), slice(1, 3, 2))),
    (frozenset({1, 2}), (frozenset({1, 3}), frozenset({1, 2, 3}), frozenset())),
    (torch.float32, (torch.float64, torch.int32)),
    (torch.device("cpu"), (torch.device("meta"), "cpu")),
    (torch.Size([2, 3]), (torch.Size([3, 2]), (2, 3))),
    (torch.strided, (torch.sparse_coo,)),
    (torch.contiguous_format, (torch.channels_last,)),
    (Ellipsis, (None, NotImplemented)),
    (int, (float, bool)),
):
    fact(**argument(*_others))(_constant(_first))


# ---- containers


def _list_env():
    values = [1.0, 2.0, 3.0]

    def f(x, values):
        out = x * len(values)
        for v in values:
            out = out * 2 + v
        return out

    return env(f, X(), values, v=values)


def _set_items(e):
    e.v[:] = [4.0, 5.0, 6.0]


@fact(
    setitem=lambda e: e.v.__setitem__(1, 9.0),
    last=lambda e: e.v.__setitem__(-1, 9.0),
    append=lambda e: e.v.append(4.0),
    pop=lambda e: e.v.pop(),
    insert=lambda e: e.v.insert(0, 7.0),
    remove=lambda e: e.v.remove(2.0),
    clear=lambda e: e.v.clear(),
    reverse=lambda e: e.v.reverse(),
    sort=lambda e: e.v.sort(reverse=True),
    slice=_set_items,
    extend=lambda e: e.v.extend([1.0]),
    list_setitem=lambda e: list.__setitem__(e.v, 0, 8.0),
    type=lambda e: e.v.__setitem__(1, 2.5),
    tuple=lambda e: setattr(e, "args", (X(), (1.0, 2.0, 4.0))),
    nan=lambda e: e.v.__setitem__(1, float("nan")),
    tensor=lambda e: e.v.__setitem__(1, torch.tensor([9.0])),
)
def list_items():
    return _list_env()


@fact(
    inner=lambda e: e.v["a"][1].__setitem__("k", 9.0),
    middle=lambda e: e.v["a"].__setitem__(1, {"k": 8.0}),
    outer=lambda e: e.v.__setitem__("a", [0.0, {"k": 7.0}]),
    inner_new=lambda e: e.v["a"][1].__setitem__("other", 5.0),
    shorter=lambda e: e.v["a"].pop(0),
)
def nested_containers():
    v = {"a": [1.0, {"k": 2.0}]}

    def f(x, v):
        return x * v["a"][-1]["k"] + len(v["a"][-1]) + v["a"][0]

    return env(f, X(), v, v=v)


def _reorder(e):
    e.v["a"] = e.v.pop("a")


@fact(
    setitem=lambda e: e.v.__setitem__("a", 9.0),
    new_key=lambda e: e.v.__setitem__("z", 9.0),
    delete=lambda e: e.v.__delitem__("b"),
    pop=lambda e: e.v.pop("a"),
    popitem=lambda e: e.v.popitem(),
    clear=lambda e: e.v.clear(),
    update=lambda e: e.v.update(b=7.0),
    reorder=_reorder,
    replace=lambda e: setattr(e, "args", (X(), {"b": 2.0, "a": 1.0, "c": 3.0})),
    dict_setitem=lambda e: dict.__setitem__(e.v, "c", 9.0),
    subclass=lambda e: setattr(e, "args", (X(), e.Sub(e.v))),
    ordered=lambda e: setattr(
        e, "args", (X(), collections.OrderedDict(b=2.0, a=1.0, c=3.0))
    ),
)
def dict_items():
    class Sub(dict):
        def items(self):
            return [("q", 50.0)]

    v = {"a": 1.0, "b": 2.0, "c": 3.0}

    def f(x, v):
        out, names = x, ""
        for key, value in v.items():
            out = out * 2 + value
            names += key
        return out, names

    return env(f, X(), v, v=v, Sub=Sub)


@fact(
    added=lambda e: e.v.__setitem__("k", 5.0),
    added_none=lambda e: e.v.__setitem__("k", None),
    update=lambda e: e.v.update(k=5.0),
    setdefault=lambda e: e.v.setdefault("k", 5.0),
    ior=lambda e: operator.ior(e.v, {"k": 4.0}),
    dict_setitem=lambda e: dict.__setitem__(e.v, "k", 4.0),
)
def absent_key():
    v = {"a": 1.0}

    def f(x, v):
        if "k" in v:
            return x * 3, v["k"]
        return x + v.get("k", 1.0) + v["a"]

    return env(f, X(), v, v=v)


@fact(
    used_key=lambda e: e.v.__setitem__("a", 9.0),
    missing=lambda e: e.v.__delitem__("a"),
    factory=lambda e: setattr(e.v, "default_factory", lambda: 8.0),
)
def default_dict():
    v = collections.defaultdict(lambda: 2.0, a=1.0)

    def f(x, v):
        return x * v["a"] + v.get("q", 3.0) + v.default_factory()

    return env(f, X(), v, v=v)


@fact(
    move_to_end=lambda e: e.v.move_to_end("a"),
    setitem=lambda e: e.v.__setitem__("a", 9.0),
    delete=lambda e: e.v.popitem(last=False),
    dict_level=lambda e: dict.__setitem__(e.v, "b", 9.0),
)
def ordered_dict():
    v = collections.OrderedDict(a=1.0, b=2.0)

    def f(x, v):
        out = x
        for value in v.values():
            out = out * 2 + value
        return out

    return env(f, X(), v, v=v)


@fact(
    add=lambda e: e.v.add(9),
    discard=lambda e: e.v.discard(2),
    clear=lambda e: e.v.clear(),
    update=lambda e: e.v.update({5, 6}),
    frozen=lambda e: setattr(e, "args", (X(), frozenset({2}))),
)
def set_items():
    v = {1, 2}

    def f(x, v):
        y = x * len(v)
        if 2 in v:
            y = y + 10
        if 9 in v:
            y = y + 20
        return y

    return env(f, X(), v, v=v)


@fact(
    append=lambda e: e.v.append(9.0),
    rotate=lambda e: e.v.rotate(1),
    setitem=lambda e: e.v.__setitem__(0, 9.0),
    popleft=lambda e: e.v.popleft(),
)
def deque_items():
    v = collections.deque([1.0, 2.0, 3.0])

    def f(x, v):
        out = x * len(v) + v[0]
        for item in v:
            out = out * 2 + item
        return out

    return env(f, X(), v, v=v)


@fact(
    star=lambda e: setattr(e, "args", (X(), 1.0, 2.0)),
    fewer=lambda e: setattr(e, "args", (X(),)),
    value=lambda e: setattr(e, "args", (X(), 4.0)),
    keyword=lambda e: setattr(e, "kwargs", {"k": 5.0}),
    other_keyword=lambda e: setattr(e, "kwargs", {"j": 5.0}),
)
def star_arguments():
    def f(x, *args, **kwargs):
        return x * (len(args) + 1) + sum(args, 0.0) + kwargs.get("k", 1.0), list(kwargs)

    return env(f, X(), 3.0)


@fact(
    same=lambda e: setattr(e, "args", (X(), e.a, e.a)),
    other=lambda e: setattr(e, "args", (X(), e.b, Box())),
    swapped=lambda e: setattr(e, "args", (X(), e.b, e.a, e.a)),
)
def identity_of_arguments():
    a, b = Box(), Box()

    def f(x, a, b, c=None):
        if a is b:
            return x * 2
        if c is b:
            return x * 4
        return x * 3 if a is first else x * 5

    first = a
    return env(f, X(), a, b, a=a, b=b)


@fact(
    inner=lambda e: setattr(e.inner, "k", 9.0),
    replaced=lambda e: setattr(e.o, "inner", DoubleK()),
    weak=lambda e: e.o.__dict__.__setitem__("inner", DoubleK()),
)
def attribute_chain():
    o, inner = Box(), Box()
    o.inner = inner
    inner.k = 2.0
    return env(lambda x, o: x * o.inner.k, X(), o, o=o, inner=inner)


@fact(
    counter=lambda e: setattr(e.o, "n", 10),
    delete=lambda e: delattr(e.o, "n"),
    type=lambda e: setattr(e.o, "n", 10.5),
)
def counter_attribute():
    o = Box()
    o.n = 0

    def f(x, o):
        return x * (getattr(o, "n", 99) % 7)

    return env(f, X(), o, o=o)


# ---- what is not used


def _grow(e):
    for i in range(60):
        setattr(e.o, f"new_{i}", i)


def _churn(e):
    for i in range(60):
        setattr(e.o, f"n_{i}", i)
    for i in range(60):
        delattr(e.o, f"n_{i}")


def _reinsert(e):
    k = e.o.__dict__.pop("k")
    e.o.__dict__["k"] = k


@unused(
    other_attribute=lambda e: setattr(e.o, "j", 5.0),
    new_attribute=lambda e: setattr(e.o, "fresh", 5.0),
    delete_other=lambda e: delattr(e.o, "j"),
    grow=_grow,
    churn=_churn,
    reinsert=_reinsert,
    same_value=lambda e: setattr(e.o, "k", float("3.0")),
    new_dict=lambda e: setattr(e.o, "__dict__", {"z": 1, "k": 3.0}),
    class_other=lambda e: setattr(e.C, "j", 4.0),
    class_new=lambda e: setattr(e.C, "fresh", 4.0),
    class_method=lambda e: setattr(e.C, "method", lambda self: 4.0),
    equal_object=lambda e: setattr(e, "args", (X(), e.make())),
    equal_object_laid_out_otherwise=lambda e: setattr(
        e, "args", (X(), e.make(reverse=True))
    ),
)
def instance_unused():
    class C:
        j = 1.0

    def make(reverse=False):
        o = C()
        if reverse:
            o.j = 1.0
            o.k = 3.0
        else:
            o.k = 3.0
            o.j = 1.0
        return o

    o = make()
    return env(lambda x, o: x * o.k, X(), o, o=o, C=C, make=make)


@unused(
    other_key=lambda e: e.v.__setitem__("b", 9.0),
    new_key=lambda e: e.v.__setitem__("z", 9.0),
    delete_other=lambda e: e.v.__delitem__("b"),
    grow=lambda e: e.v.update({f"k{i}": i for i in range(50)}),
    reorder=_reorder,
    copy=lambda e: setattr(e, "args", (X(), dict(e.v))),
    equal=lambda e: setattr(e, "args", (X(), {"c": 0, "a": 1.0})),
)
def dict_unused():
    v = {"a": 1.0, "b": 2.0}
    return env(lambda x, v: x * v["a"], X(), v, v=v)


@unused(
    other_item=lambda e: e.v.__setitem__(1, 9.0),
    append=lambda e: e.v.append(9.0),
    grow=lambda e: e.v.extend(range(100)),
    copy=lambda e: setattr(e, "args", (X(), list(e.v))),
    pop=lambda e: e.v.pop(),
)
def list_unused():
    v = [1.0, 2.0, 3.0]
    return env(lambda x, v: x * v[0], X(), v, v=v)


@unused(
    other_global=lambda e: setattr(e.m, "OTHER", 5.0),
    many_globals=lambda e: e.m.__dict__.update({f"g{i}": i for i in range(200)}),
    other_builtin=lambda e: _restore_later(builtins, "fj_unused", 1),
    reassigned=lambda e: setattr(e.m, "K", float("2.0")),
    docs=lambda e: setattr(e.m.helper, "__doc__", "changed"),
    attribute=lambda e: setattr(e.m.helper, "anything", 1),
    name=lambda e: setattr(e.m.helper, "__name__", "renamed"),
)
def globals_unused():
    m = make_module()
    return env(m.f, X(), m=m)


def _count(e):
    type(e.o).calls += 1


@unused(
    class_counter=_count,
    other_class=lambda e: type("Fresh", (type(e.o),), {}),
    class_patched=lambda e: setattr(type(e.o), "unused", 1),
)
def class_unused():
    class Base:
        calls = 0

        def scale(self, x):
            return x * 2

    class C(Base):
        def scale(self, x):
            return super().scale(x) + (1 if isinstance(self, Base) else 0)

    o = C()
    return env(lambda x, o: o.scale(x), X(), o, o=o)


@unused(
    annotation=lambda e: setattr(e.f, "__annotations__", {"x": int}),
    attribute=lambda e: setattr(e.f, "tag", 3),
    same_code=lambda e: setattr(e, "f", e.make()),
)
def function_unused():
    def make():
        def f(x, a=1.0):
            return x * 2

        return f

    return env(make(), X(), make=make)


__all__ = ["Env"]
