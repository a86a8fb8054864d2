"""Objects that are very deep or contain themselves, and all that is done to them.

A kind says how an object is put around another and how a cycle of it is made;
an operation is what a compiled function does with one. A case runs the function
compiled and as it is, twice, on objects made by the caller or by the function
itself. `python deep_objects.py STACK_KB DEPTH CASES` runs cases on a thread of
that stack and prints the name of each before it runs: of a process that died the
last name is the culprit.
"""

from __future__ import annotations

import collections
import copy
import functools
import os
import pickle
import sys
import threading
import types
from collections.abc import Callable
from typing import Any

import torch

import framejit


class Node:
    def __init__(self, next: Any = None) -> None:
        self.next = next


class Slotted:
    __slots__ = ("next",)

    def __init__(self, next: Any = None) -> None:
        self.next = next


class Equal:
    def __init__(self, next: Any = None) -> None:
        self.next = next

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Equal) and self.next == other.next

    def __hash__(self) -> int:
        return hash(self.next)


def cyclic_list():
    made: list = []
    made.append(made)
    return made


def cyclic_dict():
    made: dict = {}
    made["k"] = made
    return made


def cyclic_tuple():
    inner: list = []
    made = (inner, 1)
    inner.append(made)
    return made


def cyclic_node():
    made = Node()
    made.next = made
    return made


def cyclic_slotted():
    made = Slotted()
    made.next = made
    return made


def cyclic_deque():
    made: collections.deque = collections.deque()
    made.append(made)
    return made


def cyclic_exception():
    made = ValueError("a")
    made.args = (ValueError("b", made),)
    return made


def cyclic_closure():
    def made():
        return made

    return made


def cyclic_namespace():
    made = types.SimpleNamespace()
    made.next = made
    return made


def in_context(inner):
    made = ValueError("x")
    made.__context__ = inner
    return made


def closed_over(inner):
    def made():
        return inner

    return made


def in_dict_twice(inner):
    return {"a": inner, "b": inner}


# name: (innermost, one around another, one that contains itself)
KINDS: dict[str, tuple[Callable, Callable, Callable | None]] = {
    "list": (lambda: [], lambda n: [n, 1], cyclic_list),
    "shared list": (lambda: [], lambda n: [n, n], None),
    "tuple": (lambda: (), lambda n: (n, 1), cyclic_tuple),
    "shared tuple": (lambda: (), lambda n: (n, n), None),
    "dict": (lambda: {}, lambda n: {"k": n}, cyclic_dict),
    "shared dict": (lambda: {}, in_dict_twice, None),
    "OrderedDict": (lambda: {}, lambda n: collections.OrderedDict(k=n), None),
    "defaultdict": (lambda: {}, lambda n: collections.defaultdict(int, {"k": n}), None),
    "object": (lambda: Node(), lambda n: Node(n), cyclic_node),
    "compared object": (lambda: None, lambda n: Equal(n), None),
    "slots": (lambda: Slotted(), lambda n: Slotted(n), cyclic_slotted),
    "frozenset": (lambda: frozenset(), lambda n: frozenset((n,)), None),
    "deque": (
        lambda: collections.deque(),
        lambda n: collections.deque([n]),
        cyclic_deque,
    ),
    "exception": (lambda: ValueError("x"), lambda n: ValueError(n), cyclic_exception),
    "context": (lambda: ValueError("x"), in_context, None),
    "closure": (lambda: lambda: 1, closed_over, cyclic_closure),
    "partial": (lambda: len, lambda n: functools.partial(print, n), None),
    "map": (lambda: iter([1]), lambda n: map(abs, n), None),
    "zip": (lambda: iter([1]), lambda n: zip(n, strict=False), None),
    "enumerate": (lambda: iter([1]), lambda n: enumerate(n), None),
    "generator": (lambda: iter([1]), lambda n: (i for i in n), None),
    "slice": (lambda: slice(1), lambda n: slice(n, 1), None),
    "namespace": (
        lambda: types.SimpleNamespace(),
        lambda n: types.SimpleNamespace(next=n),
        cyclic_namespace,
    ),
    "method": (lambda: len, lambda n: types.MethodType(n, 1), None),
    "class": (lambda: object, lambda n: type("C", (n,), {}), None),
    "proxy": (lambda: {}, lambda n: types.MappingProxyType({"k": n}), None),
    "alias": (lambda: int, lambda n: list[n], None),
}


def raised(o, x):
    if isinstance(o, BaseException):
        raise o
    raise ValueError(o)


def caught(o, x):
    try:
        raise o
    except Exception as error:
        return type(error)


def after_break(o, x):
    framejit.graph_break()
    return o


def default(o, x):
    def f(a=o):
        return a

    return f()


def stars(o, x):
    def f(*a):
        return len(a)

    return f(*o)


def unpacked(o, x):
    _first, *rest = o
    return rest


def leaf(o, x):
    for _ in range(30):
        o = o[0] if isinstance(o, (list, tuple)) else o.next
    return type(o)


def to_the_end(o, x):
    count = 0
    while getattr(o, "next", None) is not None and count < 2000:
        o = o.next
        count += 1
    return count


ONE: dict[str, Callable] = {
    "str": lambda o, x: str(o),
    "repr": lambda o, x: repr(o),
    "format": lambda o, x: f"{o}",
    "hash": lambda o, x: hash(o) == hash(o),
    "copy": lambda o, x: copy.copy(o),
    "deepcopy": lambda o, x: copy.deepcopy(o),
    "len": lambda o, x: len(o),
    "bool": lambda o, x: bool(o),
    "iterate": lambda o, x: [1 for _ in o],
    "list": lambda o, x: len(list(o)),
    "pickle": lambda o, x: len(pickle.dumps(o)) > 0,
    "return": lambda o, x: o,
    "close over": lambda o, x: lambda: o,
    "raise": raised,
    "catch": caught,
    "key": lambda o, x: {o: 1}[o],
    "default": default,
    "stars": stars,
    "unpack": unpacked,
    "type": lambda o, x: type(o) is list,
    "isinstance": lambda o, x: isinstance(o, list),
    "instance of": lambda o, x: isinstance(x, o),
    "call": lambda o, x: o() is None,
    "add": lambda o, x: o + o,
    "index": lambda o, x: x[o],
    "vars": lambda o, x: len(vars(o)),
    "tensor operand": lambda o, x: torch.add(x, o),
    "tensor list": lambda o, x: torch.cat(o),
    "torch.tensor": lambda o, x: torch.tensor(o),
    "break": after_break,
    "leaf": leaf,
    "to the end": to_the_end,
}
TWO: dict[str, Callable] = {
    "==": lambda o, p, x: o == p,
    "<": lambda o, p, x: o < p,
    "sort": lambda o, p, x: len(sorted([o, p])),
    "in": lambda o, p, x: o in [p],
}
STORE = "store"
OPERATIONS = [*ONE, *TWO, STORE]
# What only the interpreter of Python can be trusted with: the text of a shared
# object, or a comparison of two, has 2**depth parts.
EXPONENTIAL = {
    *TWO,
    "str",
    "repr",
    "format",
    "hash",
    "key",
    "raise",
    "tensor operand",
    "tensor list",
    "torch.tensor",
    "index",
}


class Holder:
    attr: Any = None


def function_of(kind: str, operation: str, depth: int | None, fresh: bool) -> Callable:
    innermost, around, cycle = KINDS[kind]

    def make():
        if depth is None:
            return cycle()
        made = innermost()
        for _ in range(depth):
            made = around(made)
        return made

    if operation == STORE:

        def run(o, p, x, holder):
            holder.attr = make() if fresh else o
            return x * 2

    elif operation in TWO:
        two = TWO[operation]

        def run(o, p, x, holder):
            y = x * 2
            if fresh:
                return two(make(), make(), x), y
            return two(o, p, x), y

    else:
        one = ONE[operation]

        def run(o, p, x, holder):
            y = x * 2
            return one(make() if fresh else o, x), y

    run.make = make
    return run


def outcome(function: Callable, make: Callable, fresh: bool) -> tuple[Any, ...]:
    holder = Holder()
    o, p = (None, None) if fresh else (make(), make())
    try:
        result = function(o, p, torch.ones(3), holder)
    except Exception as error:
        return ("raised", type(error).__name__, None, o)
    return ("returned", result, holder.attr, o)


def parts_of(value: Any) -> list:
    if isinstance(value, (list, tuple, collections.deque)):
        return list(value)
    if isinstance(value, (dict, types.MappingProxyType)):
        return list(value.values())
    if isinstance(value, frozenset):
        return list(value)
    if isinstance(value, BaseException):
        return [value.args, value.__context__]
    if isinstance(value, types.FunctionType):
        return [cell.cell_contents for cell in value.__closure__ or ()]
    if isinstance(value, slice):
        return [value.start]
    if isinstance(value, functools.partial):
        return [value.args]
    if isinstance(value, Slotted):
        return [getattr(value, "next", None)]
    if isinstance(value, (Node, Equal, types.SimpleNamespace)):
        return [vars(value)]
    return []


def difference(expected: Any, actual: Any) -> str:
    """Compares shapes with a stack of its own: no recursion here."""
    pending = [(expected, actual)]
    seen: dict[int, int] = {}
    while pending:
        a, b = pending.pop()
        if type(a).__name__ != type(b).__name__:
            return f"{type(a)} and {type(b)}"
        if isinstance(a, (int, str, bool, float)):
            if a != b and " at 0x" not in str(a):
                return f"{str(a)[:50]} and {str(b)[:50]}"
            continue
        if isinstance(a, torch.Tensor):
            if not torch.equal(a, b):
                return "tensors differ"
            continue
        nested = (
            not isinstance(a, (type(None), type)) and a != ()
            if type(a) is tuple
            else True
        )
        if nested and id(a) in seen:
            if seen[id(a)] != id(b) and type(a) in (list, dict, Node):
                return f"what was one {type(a).__name__} is two"
            continue
        seen[id(a)] = id(b)
        parts, others = parts_of(a), parts_of(b)
        if len(parts) != len(others):
            return f"{len(parts)} and {len(others)} parts"
        pending.extend(zip(parts, others, strict=True))
    return ""


def run_case(kind: str, operation: str, depth: int | None, fresh: bool) -> str:
    function = function_of(kind, operation, depth, fresh)
    make = function.make
    expected = outcome(function, make, fresh)
    compiled = framejit.compile(function, backend="eager")
    for _ in range(2):
        actual = outcome(compiled, make, fresh)
        if expected[0] != actual[0]:
            return (
                f"{expected[0]} {expected[1]!s:.60} but {actual[0]} {actual[1]!s:.60}"
            )
        for a, b in zip(expected, actual, strict=True):
            if found := difference(a, b):
                return found
    return ""


def cases(depth: int, part: int, parts: int) -> list[tuple[str, str, int | None, bool]]:
    found: list[tuple[str, str, int | None, bool]] = []
    for kind, (_, _, cycle) in KINDS.items():
        for operation in OPERATIONS:
            shared = kind.startswith("shared")
            if shared and operation in EXPONENTIAL:
                continue
            if kind == "shared tuple" and operation == "deepcopy":
                continue  # copy.deepcopy remembers no tuple of constants
            at = depth
            if kind == "class":
                at = min(depth, 200)
            if kind == "generator":
                at = min(depth, 1000)  # CPython destroys a chain of them recursively
            if shared and operation in ("deepcopy", "pickle"):
                at = min(depth, 100)
            for fresh in (False, True):
                found.append((kind, operation, at, fresh))
                if cycle:
                    found.append((kind, operation, None, fresh))
    return [case for i, case in enumerate(found) if i % parts == part]


def main() -> None:
    stack, depth, part, parts = (int(word) for word in sys.argv[1:5])
    only = sys.argv[5] if len(sys.argv) > 5 else ""
    torch.set_num_threads(1)
    framejit.compile(lambda x: x * 2, backend="eager")(torch.ones(3))
    failures = []

    def work() -> None:
        for case in cases(depth, part, parts):
            if only and only != f"{case[0]}/{case[1]}":
                continue
            print(*case, flush=True)
            if found := run_case(*case):
                failures.append((*case, found))

    threading.stack_size(stack * 1024)
    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    for failure in failures:
        print("FAILED", *failure)
    os._exit(bool(failures))


if __name__ == "__main__":
    main()
