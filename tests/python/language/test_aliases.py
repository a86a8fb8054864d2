"""Two parameters that were two objects may be one, or parts of one, later on.

Every program writes through one and reads through the other. It is compiled
with separate objects and called with shared ones, and the other way round.
"""

from __future__ import annotations

import collections
import types

import pytest
import torch

import framejit


class Thing:
    def __init__(self):
        self.a = 1
        self.items = [1]


def pair(made):
    return made, made


def thing_and_dict(shared):
    thing = Thing()
    return thing, vars(thing) if shared else dict(vars(Thing()))


def namespace_and_dict(shared):
    made = types.SimpleNamespace(a=1)
    return made, vars(made) if shared else {"a": 1}


def dict_and_view(view):
    def make(shared):
        made = {"a": 1, "b": 2}
        return made, view(made if shared else dict(made))

    return make


def list_and_iterator(of):
    def make(shared):
        made = [1, 2, 3]
        return made, of(made if shared else list(made))

    return make


def two_iterators(of):
    def make(shared):
        first = iter([1, 2, 3, 4])
        return first, of(first if shared else iter([1, 2, 3, 4]))

    return make


def two_lists(shared):
    return pair([1, 2]) if shared else ([1, 2], [1, 2])


def list_in_list(shared):
    inner = [2]
    return [1, inner], inner if shared else [2]


def tensors(view):
    def make(shared):
        t = torch.ones(2, 2)
        return t, view(t if shared else torch.ones(2, 2))

    return make


def module_and_child(shared):
    model = torch.nn.Sequential(torch.nn.ReLU())
    return model, model[0] if shared else torch.nn.ReLU()


def borgs(shared):
    first, second = Thing(), Thing()
    if shared:
        second.__dict__ = first.__dict__
    return first, second


def borg_and_dict(shared):
    thing = Thing()
    own = {"a": 1}
    thing.__dict__ = own
    return thing, own if shared else {"a": 1}


def bound_to(shared):
    thing = Thing()
    return thing, types.MethodType(lambda self: self.a, thing if shared else Thing())


def make_function():
    cell = 5

    def function(p=1, *, k=2):
        return p, k, cell

    function.a = 1
    return function


def function_and(part):
    def make(shared):
        made = make_function()
        return made, part(made if shared else make_function())

    return make


def two_of(make_one):
    def make(shared):
        made = make_one()
        return made, made if shared else make_one()

    return make


def class_and(part):
    def make(shared):
        first, second = type("K", (), {"a": 1}), type("K", (), {"a": 1})
        return first, part(first if shared else second)

    return make


def made_module():
    module = types.ModuleType("made")
    module.a = 1
    return module


def part_of(make_one, part):
    def make(shared):
        first, second = make_one(), make_one()
        return first, part(first if shared else second)

    return make


def ordered():
    return collections.OrderedDict(a=1, b=2)


def a_deque():
    return collections.deque([1, 2, 3])


def begun(container):
    iterator = iter(container)
    next(iterator)
    return iterator


def nan(shared):
    first = float("nan")
    return first, [first if shared else float("nan")]


class Same:
    """Equal to nothing but itself, by a method that does not say so."""

    def __eq__(self, other):
        return False

    __hash__ = None


def never_equal(shared):
    first = Same()
    return first, [first if shared else Same()]


def dict_writes(name):
    return (f"{name}['a'] = 5", f"{name}['n'] = 3", f"{name}.clear()")


def attribute_writes(name):
    return (f"{name}.a = 5", f"{name}.n = 3", f"del {name}.a")


ANY = ("len(b)", "list(b)", "'n' in b")
CASES = {
    "thing": (
        thing_and_dict,
        (*attribute_writes("a"), *dict_writes("b")),
        ("b.get('a')", "getattr(a, 'a', 0)", "hasattr(a, 'n')", *ANY),
    ),
    "namespace": (
        namespace_and_dict,
        (*attribute_writes("a"), *dict_writes("b")),
        ("b.get('a')", "getattr(a, 'a', 0)", *ANY),
    ),
    "keys": (dict_and_view(dict.keys), dict_writes("a"), ANY),
    "values": (dict_and_view(dict.values), dict_writes("a"), ANY[:2]),
    "proxy": (dict_and_view(types.MappingProxyType), dict_writes("a"), ANY),
    "counter": (dict_and_view(collections.ChainMap), dict_writes("a"), ANY),
    "iterator of a list": (
        list_and_iterator(iter),
        ("a.append(3)", "a[0] = 9", "a.clear()"),
        ("list(b)", "next(b, 0)"),
    ),
    "enumerate of a list": (
        list_and_iterator(enumerate),
        ("a.append(3)", "a[0] = 9"),
        ("list(b)", "next(b, 0)"),
    ),
    "one iterator": (
        two_iterators(lambda i: i),
        ("w = next(a)", "w = next(b)", "w = list(a)"),
        ("next(a, 0)", "next(b, 0)", "list(b)"),
    ),
    "enumerate of an iterator": (
        two_iterators(enumerate),
        ("w = next(a)", "w = next(b)"),
        ("next(a, 0)", "next(b, 0)", "list(b)"),
    ),
    "zip of an iterator": (
        two_iterators(lambda i: zip(i, [4, 5, 6])),
        ("w = next(a)", "w = next(b)"),
        ("next(a, 0)", "next(b, 0)", "list(b)"),
    ),
    "lists": (
        two_lists,
        ("a.append(3)", "b[0] = 9", "a.clear()", "b += [3]"),
        ("len(b)", "list(a)", "a == b"),
    ),
    "list in a list": (
        list_in_list,
        ("a[1].append(3)", "b[0] = 4", "a[1] = [5]"),
        ("list(b)", "list(a[1])"),
    ),
    "tensor": (tensors(lambda t: t), ("a.add_(1)", "b[0] = 5"), ("a + b", "b + 1")),
    "view": (
        tensors(lambda t: t.view(-1).view(2, 2)),
        ("a.add_(1)", "b[0] = 5"),
        ("a + b", "b + 1"),
    ),
    "data": (tensors(lambda t: t.data), ("a.add_(1)", "b[0] = 5"), ("a + b", "b + 1")),
    "transposed": (tensors(lambda t: t.T), ("a[0] = 4", "b[0] = 5"), ("a + b",)),
    "child": (
        module_and_child,
        ("b.foo = 3", "a[0].foo = 3", "b.train(False)", "a.eval()"),
        ("hasattr(a[0], 'foo')", "hasattr(b, 'foo')", "b.training"),
    ),
}


CASES |= {
    "borgs": (
        borgs,
        attribute_writes("a"),
        ("getattr(b, 'a', 0)", "hasattr(b, 'n')", "getattr(a, 'a', 0)"),
    ),
    "borg and dict": (
        borg_and_dict,
        (*attribute_writes("a"), *dict_writes("b")),
        ("b.get('a')", "getattr(a, 'a', 0)", "hasattr(a, 'n')"),
    ),
    "bound method": (
        bound_to,
        (*attribute_writes("a"), "b.__self__.a = 4"),
        ("b()", "getattr(b.__self__, 'a', 0)", "getattr(a, 'a', 0)"),
    ),
    "keyword defaults": (
        function_and(lambda f: f.__kwdefaults__),
        ("b['k'] = 7", "a.__kwdefaults__['k'] = 8", "a.__kwdefaults__ = {'k': 9}"),
        ("a()", "b['k']", "a.__kwdefaults__['k']"),
    ),
    "attributes of a function": (
        function_and(lambda f: f.__dict__),
        (*attribute_writes("a"), *dict_writes("b")),
        ("b.get('a')", "getattr(a, 'a', 0)"),
    ),
    "cell": (
        function_and(lambda f: f.__closure__[0]),
        ("b.cell_contents = 9",),
        ("a()", "a.__closure__[0].cell_contents"),
    ),
    "functions": (
        two_of(make_function),
        ("a.__defaults__ = (4,)", "a.__kwdefaults__ = {'k': 4}", "a.z = 3"),
        ("b()", "b.__defaults__", "hasattr(b, 'z')"),
    ),
    "class and its dict": (
        class_and(vars),
        ("a.a = 5", "a.n = 3", "del a.a"),
        ("b.get('a')", "'n' in b"),
    ),
    "instance and class": (
        part_of(Thing, lambda thing: thing),
        ("type(a).m = 5",),
        ("getattr(b, 'm', 0)", "hasattr(a, 'm')"),
    ),
    "module and vars": (
        part_of(made_module, vars),
        (*attribute_writes("a"), *dict_writes("b")),
        ("b.get('a')", "getattr(a, 'a', 0)", "'n' in b"),
    ),
    "iterator of a deque": (
        part_of(a_deque, iter),
        ("a[0] = 9", "a.append(3)", "a.reverse()", "a.extend([])", "a.rotate(1)"),
        ("list(b)", "next(b, 0)"),
    ),
    "begun iterator of a deque": (
        part_of(a_deque, begun),
        ("a[0] = 9", "a[1] = 9", "a.popleft()", "a += []"),
        ("list(b)", "next(b, 0)"),
    ),
    "deques": (
        two_of(a_deque),
        ("a.append(1)", "b[0] = 4", "a.rotate(1)", "a.pop()"),
        ("list(b)", "list(a)"),
    ),
    "reversed list": (
        part_of(lambda: [1, 2, 3], reversed),
        ("a[0] = 9", "a.append(1)", "a.pop()"),
        ("list(b)", "next(b, 0)"),
    ),
    "ordered dict": (
        part_of(ordered, iter),
        (*dict_writes("a"), "a.move_to_end('a')"),
        ("list(b)", "next(b, 0)"),
    ),
    "set and iterator": (part_of(lambda: {1, 2}, iter), ("a.add(7)",), ("list(b)",)),
    "bytearray and view": (
        part_of(lambda: bytearray(b"abc"), memoryview),
        ("a[0] = 9", "b[0] = 9"),
        ("bytes(b)", "b[0]", "bytes(a)", "a == b"),
    ),
    "bytearrays": (
        two_of(lambda: bytearray(b"abc")),
        ("a[0] = 9", "a.append(1)", "a += b'x'", "a.clear()"),
        ("bytes(b)", "len(b)"),
    ),
    "exception": (
        part_of(lambda: ValueError(1), vars),
        ("a.n = 3", "b['n'] = 3"),
        ("b.get('n')", "getattr(a, 'n', 0)"),
    ),
    "generator": (
        two_of(lambda: (i for i in (1, 2, 3))),
        ("w = next(a)",),
        ("next(b, 0)", "list(b)"),
    ),
    "nan": (
        nan,
        ("w = 1",),
        (
            *("a in b", "b.count(a)", "b == [a]", "b.index(a) if a in b else -1"),
            *(
                "(a,) == tuple(b)",
                "{a: 1}.get(b[0])",
                "b[0] in {a}",
                "(a, 1) in [(b[0], 1)]",
            ),
        ),
    ),
    "never equal": (never_equal, ("w = 1",), ("a in b", "b.count(a)", "b == [a]")),
}


def seen(value):
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (list, tuple)):
        return [seen(item) for item in value]
    return repr(value).split(" at ")[0]


def outcome(fn, make, shared):
    a, b = make(shared)
    try:
        result = [seen(part) for part in fn(torch.ones(2), a, b)]
    except Exception as error:
        result = [repr(error)]
    if isinstance(a, (list, dict, torch.Tensor)):
        result.append(seen(a))
    if hasattr(a, "__next__"):
        result += [seen(list(a)), seen(list(b))]
    elif hasattr(b, "__next__"):
        try:
            result.append(seen([list(a), list(b)]))
        except RuntimeError as error:  # changed meanwhile
            result.append(repr(error))
    elif isinstance(a, (types.FunctionType, types.ModuleType, type)):
        names = ("a", "n", "__defaults__", "__kwdefaults__")
        result += [repr(getattr(a, name, None)) for name in names]
    elif isinstance(a, (Thing, types.SimpleNamespace)):
        result += [sorted(vars(a)), repr(b).split(" at ")[0]]
    return result


@pytest.mark.parametrize("name", CASES)
def test_two_objects_or_one(name):
    make, writes, reads = CASES[name]
    for write in writes:
        for read in reads:
            source = f"def f(x, a, b):\n    y = x + 1\n    {write}\n"
            source += f"    r = {read}\n    return y * 2, r\n"
            made: dict = {}
            exec(source, made)
            fn = made["f"]
            for order in ((False, True, False), (True, False)):
                expected = [outcome(fn, make, shared) for shared in order]
                framejit.reset()
                compiled = framejit.compile(fn)
                actual = [outcome(compiled, make, shared) for shared in order]
                assert actual == expected, (write, read, order)
