"""Facts that C code looks at on its own: special methods that appear or go, what
bound methods of C are bound to, how keys compare, MROs, the interpreter's state."""

from __future__ import annotations

import copy
import operator
import os
import sys
import threading
from collections.abc import Callable
from typing import Any

import torch
from guard_facts import env, fact


def X() -> torch.Tensor:
    return torch.tensor([1.0, 2.0, 3.0])


# ---- a special method that the class has not when it is captured

# name: a program that asks for it, the method.
_Asks = dict[str, tuple[Callable[[Any, Any], Any], Any]]
SPECIALS: _Asks = {
    "__bool__": (lambda x, o: x * (2 if o else 3), lambda s: False),
    "__bool__ any": (lambda x, o: x * (2 if any([o]) else 3), lambda s: False),
    "__bool__ not": (lambda x, o: x * (2 if not o else 3), lambda s: False),
    "__len__": (lambda x, o: x * (2 if o else 3), lambda s: 0),
    "__eq__": (lambda x, o: x * (2 if o == 3 else 3), lambda s, q: True),
    "__eq__ reflected": (lambda x, o: x * (2 if 3 == o else 3), lambda s, q: True),
    "__eq__ in list": (lambda x, o: x * (2 if o in [1, 2] else 3), lambda s, q: True),
    "__eq__ of lists": (lambda x, o: x * (2 if [o] == [1] else 3), lambda s, q: True),
    "__eq__ count": (lambda x, o: x * [1, o].count(1), lambda s, q: True),
    "__ne__": (lambda x, o: x * (2 if o != o else 3), lambda s, q: True),
    "__lt__": (lambda x, o: x * (2 if o < 3 else 3), lambda s, q: True),
    "__contains__": (lambda x, o: x * (2 if 3 in o else 3), lambda s, q: True),
    "__iter__": (lambda x, o: x + sum(o), lambda s: iter([3])),
    "__iter__ in": (lambda x, o: x * (2 if 3 in o else 3), lambda s: iter([3])),
    "__getitem__": (lambda x, o: x + o[0], lambda s, i: 7),
    "__call__": (lambda x, o: o(x), lambda s, x: x * 3),
    "__call__ callable": (lambda x, o: x * (2 if callable(o) else 3), lambda s: 3),
    "__add__": (lambda x, o: x * (o + 1), lambda s, q: 3),
    "__radd__": (lambda x, o: x * (1 + o), lambda s, q: 3),
    "__rmul__": (lambda x, o: x * o, lambda s, x: x * 3),
    "__iadd__": (lambda x, o: x * operator.iadd(o, 1), lambda s, q: 3),
    "__neg__": (lambda x, o: x * -o, lambda s: 3),
    "__index__": (lambda x, o: x + [5, 6, 7][o], lambda s: 1),
    "__index__ slice": (lambda x, o: x + sum([5, 6, 7][o:]), lambda s: 1),
    "__index__ tensor": (lambda x, o: x[o:], lambda s: 1),
    "__int__": (lambda x, o: x + int(o), lambda s: 1),
    "__float__": (lambda x, o: x + float(o), lambda s: 1.0),
    "__round__": (lambda x, o: x + round(o), lambda s: 1),
    "__abs__": (lambda x, o: x + abs(o), lambda s: 1),
    "__getattr__": (lambda x, o: x + getattr(o, "zz", 1), lambda s, n: 5),
    "__getattribute__": (lambda x, o: x * o.k, lambda s, n: 5),
    "__getattribute__ dict": (lambda x, o: x + len(o.__dict__), lambda s, n: {"a": 1}),
    "__getattribute__ class": (
        lambda x, o: x * (2 if isinstance(o, int) else 3),
        lambda s, n: int if n == "__class__" else object.__getattribute__(s, n),
    ),
    "__setattr__": (
        lambda x, o: (
            o.__dict__.pop("q", None),
            setattr(o, "q", 5),
            x + getattr(o, "q", 0),
        )[2],
        lambda s, n, v: None,
    ),
    "__init__": (
        lambda x, o: x + getattr(type(o)(), "j", 1),
        lambda s: s.__dict__.update(j=7),
    ),
    "__reversed__": (lambda x, o: x + sum(reversed(o)), lambda s: iter([4])),
    "__class_getitem__": (lambda x, o: x + type(o)[1], classmethod(lambda c, i: 4)),
    "__copy__": (lambda x, o: x + copy.copy(o).k, lambda s: _Nine()),
    "__deepcopy__": (lambda x, o: x + copy.deepcopy(o).k, lambda s, memo: _Nine()),
    "__pow__": (lambda x, o: x + pow(o, 2), lambda s, q: 4),
    "__fspath__": (lambda x, o: x + len(os.fspath(o)), lambda s: "abcd"),
    "__torch_function__": (
        lambda x, o: x + o,
        classmethod(lambda c, f, t, a=(), k=None: torch.zeros(2)),
    ),
    "__hash__": (lambda x, o: x * (2 if o in {1: 2} else 3), lambda s: 1 // 0),
    "__hash__ new": (lambda x, o: x * len({o: 1, 5: 2}), lambda s: 1 // 0),
}


class _Nine:
    k = 9


def _special(name: str) -> None:
    program, method = SPECIALS[name]
    dunder = name.split()[0]

    def setup() -> Any:
        class Base:
            k = 3

        class C(Base):
            pass

        return env(lambda x, o: program(x, o), X(), C(), C=C, Base=Base)

    def instance(e: Any) -> Any:
        other = type("Other", (e.C,), {dunder: method})
        e.args = (e.args[0], other())

    setup.__name__ = name.replace(" ", "_")
    fact(
        own_class=lambda e: setattr(e.C, dunder, method),
        base=lambda e: setattr(e.Base, dunder, method),
        other_class=instance,
    )(setup)


def _special_gone(name: str) -> None:
    program, method = SPECIALS[name]
    dunder = name.split()[0]

    def setup() -> Any:
        base = type("Base", (), {"k": 3})
        c = type("C", (base,), {dunder: method})
        return env(lambda x, o: program(x, o), X(), c(), C=c)

    setup.__name__ = name.replace(" ", "_") + "_gone"
    fact(delete=lambda e: delattr(e.C, dunder))(setup)


for _name in SPECIALS:
    _special(_name)
    if "__hash__" not in _name and "__init__" not in _name:
        _special_gone(_name)


# ---- methods of C, bound to something of the program


def bound(
    name: str, program: Callable[[Any, Any], Any], make: Any, **changes: Any
) -> None:
    def setup() -> Any:
        held = make()
        e = env(lambda x, m: program(x, m), X(), held[0], held=held)
        e.give = lambda m: setattr(e, "args", (e.args[0], m))
        return e

    setup.__name__ = f"bound_{name}"
    fact(**changes)(setup)


bound(
    "list_len",
    lambda x, m: x + m(),
    lambda: (lambda v: (v.__len__, v))([1, 2]),
    append=lambda e: e.held[1].append(3),
    other_list=lambda e: e.give([1, 2, 3, 4].__len__),
    other_method=lambda e: e.give([1, 2, 3, 4].__sizeof__),
    of_a_tuple=lambda e: e.give((1, 2, 3, 4).__len__),
)
bound(
    "list_contains",
    lambda x, m: x + m(9),
    lambda: (lambda v: (v.__contains__, v))([1, 2]),
    append=lambda e: e.held[1].append(9),
)
bound(
    "list_iter",
    lambda x, m: x + sum(m()),
    lambda: (lambda v: (v.__iter__, v))([1, 2]),
    append=lambda e: e.held[1].append(9),
)
bound(
    "dict_len",
    lambda x, m: x + m(),
    lambda: (lambda v: (v.__len__, v))({1: 2}),
    update=lambda e: e.held[1].update({5: 6}),
)


class _Held:
    k = 1


bound(
    "getattribute",
    lambda x, m: x + m("k"),
    lambda: (lambda o: (o.__getattribute__, o))(_Held()),
    setattr=lambda e: setattr(e.held[1], "k", 5),
    other_object=lambda e: e.give(
        (lambda o: vars(o).update(k=7) or o)(_Held()).__getattribute__
    ),
)
bound(
    "self_of_wrapper",
    lambda x, m: x + len(m.__self__),
    lambda: (lambda v: (v.__len__, v))([1, 2]),
    append=lambda e: e.held[1].append(3),
)
bound(
    "tensor_getitem",
    lambda x, m: x + m(0),
    lambda: (lambda t: (t.__getitem__, t))(torch.ones(3)),
    values=lambda e: e.held[1].mul_(5),
    other_tensor=lambda e: e.give(torch.zeros(2, 3, dtype=torch.double).__getitem__),
)


@fact(
    same=lambda e: setattr(e, "args", (X(), e.a.append, e.a.append)),
    other_method=lambda e: setattr(e, "args", (X(), e.a.append, e.a.extend)),
)
def comparison_of_bound_methods():
    a, b = [1], [1]

    def f(x, m, n):
        return x * (2 if m == n else 3), len({m.__name__, n.__name__})

    return env(f, X(), a.append, b.append, a=a)


# ---- classes


@fact(
    bases=lambda e: setattr(e.C, "__bases__", (e.Other,)),
    between=lambda e: setattr(e.C, "__bases__", (e.Middle,)),
)
def mro_read():
    class Base:
        pass

    class Other:
        pass

    class Middle(Base):
        pass

    class C(Base):
        pass

    def f(x, o):
        names = [c.__name__ for c in type(o).__mro__]
        return x * len(names), names, type(o).__base__.__name__

    return env(f, X(), C(), C=C, Other=Other, Middle=Middle)


@fact(
    qualname=lambda e: setattr(e.C, "__qualname__", "Longer.Name"),
    module=lambda e: setattr(e.C, "__module__", "another"),
)
def text_of_a_class():
    class C:
        pass

    return env(lambda x: (x + 1, str(C), f"{C}", repr([C])), X(), C=C)


@fact(
    attribute=lambda e: setattr(e.o, "cls", int),
    class_attribute=lambda e: setattr(type(e.o), "cls", int),
)
def claimed_class():
    class C:
        cls: type = str

        @property
        def __class__(self):
            return self.cls

    o = C()
    return env(lambda x: x * (2 if isinstance(o, int) else 3), X(), o=o)


# ---- the interpreter


class _Setting:
    def __init__(self, get: Any, put: Any, value: Any) -> None:
        self.get, self.put, self.value = get, put, value

    def __enter__(self) -> None:
        self.old = self.get()
        self.put(self.value)

    def __exit__(self, *exc: object) -> None:
        self.put(self.old)


@fact(
    limit=lambda e: _Setting(
        sys.getrecursionlimit, sys.setrecursionlimit, sys.getrecursionlimit() + 50
    )
)
def recursion_limit_read():
    return env(lambda x: x + sys.getrecursionlimit(), X())


@fact(
    threads=lambda e: _Setting(
        torch.get_num_threads, torch.set_num_threads, torch.get_num_threads() + 1
    )
)
def num_threads_read():
    return env(lambda x: x + torch.get_num_threads(), X())


@fact(thread=lambda e: _in_thread(e))
def thread_ident_read():
    return env(lambda x: (x + 1, threading.get_ident()), X())


def _catches(x: torch.Tensor) -> Any:
    try:
        raise ValueError("caught")
    except ValueError as error:
        return x + 1, repr(error.__context__)


@fact(handler=lambda e: _beneath_a_handler(e))
def context_of_what_is_caught():
    return env(_catches, X())


class _beneath_a_handler:
    """Whoever calls handles an exception."""

    def __init__(self, e: Any) -> None:
        self.e = e

    def __enter__(self) -> None:
        def call(f: Any, *args: Any) -> Any:
            try:
                raise OSError("handled")
            except OSError:
                return f(*args)

        self.e.wrap = lambda f: lambda *args: call(f, *args)

    def __exit__(self, *exc: object) -> None:
        del self.e.wrap


class _in_thread:
    """The calls are made by another thread, which lives on."""

    def __init__(self, e: Any) -> None:
        self.e = e

    def __enter__(self) -> None:
        from concurrent.futures import ThreadPoolExecutor

        self.pool = ThreadPoolExecutor(1)
        self.e.wrap = lambda f: lambda *args: self.pool.submit(f, *args).result()

    def __exit__(self, *exc: object) -> None:
        self.pool.shutdown()
        del self.e.wrap
