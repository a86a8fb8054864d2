"""Containers and objects: read, made, changed, handed back with their identity."""

import collections
import dataclasses
import types

import torch

from differential import leaf, one, program, two


class Box:
    def __init__(self, **kwargs):
        self.__dict__.update(kwargs)


@dataclasses.dataclass
class Config:
    depth: int
    scale: float = 2.0
    names: list = dataclasses.field(default_factory=list)


@dataclasses.dataclass(frozen=True)
class Frozen:
    depth: int


Pair = collections.namedtuple("Pair", ["first", "second"])


class Slotted:
    __slots__ = ("a", "b")

    def __init__(self, a, b):
        self.a, self.b = a, b

    def __eq__(self, other):
        return self.a == other.a and torch.equal(self.b, other.b)


def boxed():
    return Box(count=0, items=[1, 2], x=torch.randn(3)), torch.randn(3)


@program(lambda: ([torch.randn(2), torch.randn(2)],))
def test_list_in(xs):
    return xs[0] + xs[-1], len(xs), xs[::-1], xs + [1], xs * 2


@program(lambda: ({"a": torch.randn(2), "b": {"c": torch.randn(2)}},))
def test_dict_in(d):
    return (
        d["a"] + d["b"]["c"],
        d.get("z", 3),
        "a" in d,
        len(d),
        list(d.keys()),
        dict(d, e=1),
    )


@program(lambda: ((torch.randn(2), (torch.randn(2), 3)),))
def test_tuple_in(t):
    a, (b, n) = t
    return a + b * n, t[1:], t + (1,), t.index(t[0]) if n == 0 else n


@program(lambda: ({1, 2, 3}, frozenset({"a"}), torch.randn(2)))
def test_sets_in(s, f, x):
    return x * len(s), 2 in s, "a" in f, s | {9}, s & {1}, sorted(s), f - {"a"}


@program(lambda: ([3, 1], torch.randn(2)))
def test_list_mutated(xs, x):
    xs.append(x)
    xs.insert(0, x * 2)
    xs.extend([5, 6])
    xs[1] = 7
    del xs[2]
    del xs[0]
    xs.remove(7)
    return x + len(xs)


@program(lambda: ([3, 1, 2], torch.randn(2)))
def test_list_sorted_reversed(xs, x):
    xs.sort()
    last = xs.pop()
    xs.reverse()
    xs += [4]
    xs[1:2] = [8, 9]
    return x * last, xs


@program(lambda: ({"a": 1, "b": 2}, torch.randn(2)))
def test_dict_mutated(d, x):
    d["c"] = x + 1
    d["a"] += 4
    del d["b"]
    d.setdefault("l", []).append(x)
    d.update({"u": 1}, v=2)
    gone = d.pop("u")
    return x * gone, d.pop("missing", None)


@program(lambda: ({"a": 1}, torch.randn(2)))
def test_dict_cleared(d, x):
    d.clear()
    d["x"] = x * 2
    return d


@program(lambda: ({1}, torch.randn(2)))
def test_set_mutated(s, x):
    s.add(2)
    s.discard(1)
    return x + len(s), s


@program(boxed)
def test_attributes_mutated(box, x):
    box.count += 1
    box.items.append(box.count)
    box.last = x * 2
    box.x = box.x + x
    del box.items[0]
    return box.x


@program(boxed)
def test_attribute_deleted(box, x):
    del box.count
    box.__dict__["direct"] = 5
    return x + hasattr(box, "count"), getattr(box, "other", 3), vars(box)["direct"]


@program(lambda: (torch.randn(2), []))
def test_same_object_twice(x, empty):
    y = x + 1
    both = [y]
    return y, y, both, both, {"y": y, "b": both}


@program(two)
def test_input_returned(x, y):
    return x, x + y, [x, y], (y,)


@program(lambda: ([torch.randn(2)],))
def test_input_container_returned(xs):
    xs.append(xs[0] * 2)
    return xs, [xs], xs[1]


@program(lambda: (lambda x: (x, x, [x]))(torch.randn(3)))
def test_same_input_twice(x, y, xs):
    return x + y, x is y, xs[0] is x, x * 2


@program(lambda: (lambda xs: (xs, xs, torch.randn(2)))([1]))
def test_same_list_twice(a, b, x):
    a.append(2)
    b.append(len(a))
    return x * len(b), a is b


@program(lambda: ([1], torch.randn(2)))
def test_list_stored_in_itself(xs, x):
    inner = [x * 2]
    xs.append(inner)
    xs[-1].append(3)
    return inner, xs[1] is inner


@program(one)
def test_cyclic_result(x):
    a = [x + 1]
    d = {"a": a}
    a.append(d)
    return len(a), a[1]["a"] is a, a[0]


@program(lambda: (Config(2, names=["n"]), torch.randn(3)))
def test_dataclass(config, x):
    for _ in range(config.depth):
        x = x * config.scale
    config.names.append("m")
    config.depth = 7
    return x, Config(1).depth


@program(one)
def test_dataclass_made(x):
    c = Config(3, names=[x])
    c.scale = x * 2
    return c


@program(lambda: (torch.randn(3), Frozen(3)))
def test_frozen_dataclass(x, f):
    return x * f.depth, f == Frozen(3)


@program(lambda: (Pair(torch.randn(2), 3),))
def test_namedtuple(p):
    a, b = p
    return Pair(a * b, p.first), p._replace(second=a), p[0] + 1


@program(lambda: (Slotted(2, torch.randn(2)),))
def test_slots(s):
    s.a += 1
    s.b = s.b * s.a
    return s.b, Slotted(1, s.b).b


@program(one)
def test_object_made_and_returned(x):
    box = Box(x=x, y=x + 1)
    box.z = [box.y]
    return box


@program(one)
def test_collections(x):
    d = collections.defaultdict(list)
    d["a"].append(x * 2)
    o = collections.OrderedDict(a=1)
    o["b"] = x
    q = collections.deque([1, 2], maxlen=2)
    q.append(3)
    return dict(d), o, list(q), x + 1


@program(lambda: (collections.OrderedDict(a=torch.randn(2), b=2), torch.randn(2)))
def test_ordered_dict_in(o, x):
    o["c"] = o["a"] * o["b"]
    o.move_to_end("a")
    return list(o), o["c"] + x


@program(lambda: (collections.defaultdict(int, a=1), torch.randn(2)))
def test_default_dict_in(d, x):
    d["b"] += 2
    d["a"] += 1
    return x * d["b"], dict(d)


@program(lambda: (types.SimpleNamespace(n=2, x=torch.randn(2)),))
def test_namespace(ns):
    ns.n += 1
    ns.y = ns.x * ns.n
    return ns.y


@program(two)
def test_dict_methods(x, y):
    d = {"x": x, "y": y}
    e = {**d, "z": x + y}
    f = d | {"w": 1}
    return (
        list(e.values()),
        list(f.items())[-1],
        e.keys() - d.keys(),
        {v: k for k, v in {"a": 1}.items()},
    )


@program(two)
def test_list_methods(x, y):
    xs = [3, 1, 2]
    xs.sort(reverse=True)
    ys = xs.copy()
    ys.remove(1)
    return x + xs.index(1), xs.count(3), ys, xs == [3, 2, 1], xs < [4], [*xs, *ys]


@program(lambda: ([[1, 2], [3]], torch.randn(2)))
def test_nested_lists_mutated(xs, x):
    xs[0].append(x * 2)
    xs[1], xs[0] = xs[0], xs[1]
    return xs[1][2]


@program(lambda: ({"k": [torch.randn(2)]},))
def test_tensor_replaced_in_place(d):
    d["k"][0] = d["k"][0] + 1
    d["k"][0] += 1
    return d["k"][0]


@program(lambda: ([1, 2, 3], torch.randn(2)))
def test_read_after_write(xs, x):
    for i in range(len(xs)):
        xs[i] = xs[i] * 10
    return x * sum(xs), xs[0] + xs[-1], 10 in xs, 1 in xs


@program(lambda: ([1, 2], [1, 2], torch.randn(2)))
def test_equal_lists(a, b, x):
    return x + 1, a == b, a is b, a is not None


@program(lambda: ({"a": torch.randn(2)}, torch.randn(2)))
def test_write_same_value_back(d, x):
    d["a"] = d["a"]
    d["b"] = x
    return d["a"] + d["b"]


@program(leaf)
def test_views_of_dict_out(x):
    d = {"a": x * 2}
    return list(d.values()), tuple(d), dict(d.items())


@program(lambda: (torch.randn(2), "text", b"raw", 2 + 3j, None, ...))
def test_odd_constants_in(x, s, b, c, none, dots):
    return x + len(s), s.upper() + "!", b[0], c.real, none is None, dots is ..., c * 2


@program(lambda: ([torch.randn(2) for _ in range(3)], {"k": 1}))
def test_everything_aliased(xs, d):
    out = {"xs": xs, "first": xs[0], "d": d, "new": [xs[1], xs[1] + 1]}
    d["out"] = out["new"]
    return out


@program(lambda: (torch.randn(3), [0.5, 2, 1]))
def test_numbers_in_list_change_nothing(x, ks):
    for k in ks:
        x = x * k
    return x


@program(lambda: (Box(inner=Box(w=torch.randn(3), tags=("a", "b"))),))
def test_deep_attributes(box):
    inner = box.inner
    inner.w = inner.w * 2
    box.inner.seen = True
    box.alias = inner
    return inner.w + len(inner.tags), box.alias is box.inner
