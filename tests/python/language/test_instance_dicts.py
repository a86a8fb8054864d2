"""An object made in a capture and its `__dict__`, held side by side, are two ways
to one place: behind a break, in the result, and in what the program holds."""

from __future__ import annotations

import collections
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit
from differential import opaque


class Box:
    def __init__(self, n: Any) -> None:
        self.n = n


class Table(dict[str, int]):
    pass


class Failure(Exception):
    pass


def boxed(n: int) -> Any:
    return Box(n)


def table(n: int) -> Any:
    made = Table(a=1)
    made.n = n  # type: ignore[attr-defined]
    return made


def ordered(n: int) -> Any:
    made = collections.OrderedDict(a=1)
    made.n = n  # type: ignore[attr-defined]
    return made


def failure(n: int) -> Any:
    made = Failure(1)
    made.n = n  # type: ignore[attr-defined]
    return made


def namespace(n: int) -> Any:
    return types.SimpleNamespace(n=n)


def function(n: int) -> Any:
    def made() -> None:
        pass

    made.n = n  # type: ignore[attr-defined]
    return made


MAKERS = [boxed, table, ordered, failure, namespace, function]
SHARED: dict[str, Any] = {}


def written_as_a_dict(x, make):
    made = make(3)
    held = made.__dict__
    opaque()
    held["n"] = 5
    del held
    return x + made.n, vars(made)


def written_as_an_object(x, make):
    held = made = make(3)
    held = vars(made)
    opaque()
    made.n = 5
    made.new = 1
    return x + held["n"], held


def dict_met_first(x, make):
    a = b = make(3)
    a = vars(b)
    opaque()
    a["n"] = 6
    return x + b.n, a, a is vars(b)


def dict_met_last(x, make):
    a = b = make(3)
    b = vars(a)
    opaque()
    b["n"] = 6
    return x + a.n, b, b is vars(a)


def both_returned(x, make):
    made = make(3)
    return x + 1, [vars(made), made], {"a": made, "b": vars(made)}


def holds_its_own(x, make):
    made = make(3)
    made.own = vars(made)
    opaque()
    made.n = 7
    return x + made.own["n"], made.own is vars(made)


def hold_each_others(x, make):
    a, b = make(3), make(4)
    a.other, b.other = vars(b), vars(a)
    opaque()
    a.other["n"], b.other["n"] = 8, 9
    return x + a.n * b.n, a.other is vars(b), b.other is vars(a)


def by_a_method(x, make):
    made = make(3)
    update = vars(made).update
    opaque()
    update(n=4)
    return x + made.n


def by_a_view(x, make):
    made = make(3)
    items = vars(made).items()
    opaque()
    made.n = 4
    return x + dict(items)["n"]


def by_an_iterator(x, make):
    made = make(3)
    rest = iter(vars(made).values())
    opaque()
    made.n = 4
    return x + next(rest)


def by_its_own_iterator(x, make):
    made = make(3)
    made.rest = None
    made.rest = iter(vars(made))
    first = next(made.rest)
    opaque()
    return x + made.n, first, list(made.rest)


def one_dict_of_two(x, make):
    a, b = make(3), make(4)
    b.__dict__ = vars(a)
    opaque()
    b.n = 9
    return x + a.n, vars(a) is vars(b), a, b


def a_dict_put_in(x, make):
    made, held = make(3), {"n": 1}
    made.__dict__ = held
    opaque()
    held["n"] = 9
    return x + made.n, vars(made) is held, made, held


def a_dict_of_the_program_put_in(x, make):
    made = make(3)
    made.__dict__ = SHARED
    opaque()
    made.n = 9
    return x + SHARED["n"], vars(made) is SHARED, made


def put_into_the_programs(x, make):
    made = make(3)
    SHARED["made"] = made
    SHARED["held"] = vars(made)
    return x + 1


PROGRAMS = [
    written_as_a_dict,
    written_as_an_object,
    dict_met_first,
    dict_met_last,
    both_returned,
    holds_its_own,
    hold_each_others,
    by_a_method,
    by_a_view,
    by_an_iterator,
    by_its_own_iterator,
    one_dict_of_two,
    a_dict_put_in,
    a_dict_of_the_program_put_in,
    put_into_the_programs,
]


def picture(value: Any, seen: dict[int, int]) -> Any:
    """What is in it, and which places are one object: its number."""
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, (int, str, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [picture(v, seen) for v in value]
    if not isinstance(value, dict) and not hasattr(value, "__dict__"):
        return list(value) if hasattr(value, "__next__") else type(value).__name__
    known = id(value) in seen
    number = seen.setdefault(id(value), len(seen))
    if known:
        return number
    held = dict.items(value) if isinstance(value, dict) else ()
    found = [number, type(value).__name__]
    found += [[k, picture(v, seen)] for k, v in held]
    return found + ([picture(vars(value), seen)] if hasattr(value, "__dict__") else [])


def run(fn: Callable[..., Any], make: Callable[[int], Any], x: torch.Tensor) -> Any:
    SHARED.clear()
    SHARED["n"] = 0
    try:
        result = fn(x, make)
    except AttributeError as error:  # a namespace keeps its dict
        result = str(error)
    return picture([result, SHARED], {})


@pytest.mark.parametrize("make", MAKERS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_an_object_and_its_dict_are_one_place(program, make):
    compiled = framejit.compile(program, backend="eager")
    for turn in range(3):
        x = torch.full((2,), float(turn))
        assert run(compiled, make, x) == run(program, make, x), turn
    assert framejit.counters()["failures"] == 0


def test_it_costs_no_break():
    for program in (written_as_a_dict, dict_met_first, both_returned):
        compiled = framejit.compile(program, backend="eager")
        run(compiled, boxed, torch.ones(2))
        entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
        breaks = [b.detail for e in entries for b in e.breaks]
        assert entries and all("opaque" in detail for detail in breaks)


# ---- a `__dict__` of a class of its own
class Sub(dict[str, Any]):
    pass


class Hundred(dict[str, Any]):
    def __getitem__(self, key: str) -> Any:
        return 100

    def __contains__(self, key: object) -> bool:
        return True

    def get(self, key: str, default: Any = None) -> Any:
        return 50

    def keys(self) -> Any:
        return ["fake"]


class Missing(dict[str, Any]):
    def __missing__(self, key: str) -> Any:
        return 7


class Counted(dict[str, Any]):
    def __setitem__(self, key: str, value: Any) -> None:
        dict.__setitem__(self, key, ["set", value])


class Pairs(dict[str, Any]):
    def __iter__(self) -> Any:
        return iter(["x", "y"])


def counter(**items: Any) -> Any:
    return collections.Counter(items)


def default(**items: Any) -> Any:
    return collections.defaultdict(int, items)


KINDS: list[Callable[..., Any]] = [
    dict,
    Sub,
    Hundred,
    Missing,
    Counted,
    Pairs,
    collections.OrderedDict,
    default,
    counter,
]
OF_A_CLASS = KINDS[1:]


class Plain:
    pass


class Cached(Plain):
    @functools.cached_property
    def twice(self) -> Any:
        return self.a * 2  # type: ignore[attr-defined]


class Strict:
    __slots__ = ("__dict__",)


def holding(kind: Callable[..., Any], cls: type = Cached) -> Any:
    made = cls()
    made.__dict__ = kind(a=2)
    return made


def reads_plainly(x, o):
    return x * o.a, hasattr(o, "zz"), getattr(o, "b", 3)


def reads_an_item(x, o):
    return x * vars(o)["a"]


def reads_after_an_attribute(x, o):
    y = o.a
    return x * y * o.__dict__["a"]


def asks_in(x, o):
    return x + ("zz" in o.__dict__)


def gets(x, o):
    return x * o.__dict__.get("a")


def a_missing_item(x, o):
    try:
        return x * o.__dict__["b"]
    except KeyError:
        return x - 1


def lists_keys(x, o):
    return x, list(o.__dict__.keys()), list(o.__dict__), dir(o)[-3:]


def asks_the_type(x, o):
    return x, type(vars(o)).__name__, isinstance(o.__dict__, Sub)


def sets_an_item(x, o):
    o.__dict__["b"] = 4
    return x, o


def sets_an_attribute(x, o):
    o.b = 4
    return x + o.b, o


def moves_it(x, o):
    other = Plain()
    other.__dict__ = o.__dict__
    other.b = 5
    return x, o, other


def caches(x, o):
    return x * o.twice, o


def state_of_it(x, o):
    return x, o.__getstate__()


def reads_behind_a_break(x, o):
    d = o.__dict__
    opaque()
    d["c"] = 1
    return x * d["a"], o, vars(o) is d


READERS = [
    reads_plainly,
    reads_an_item,
    reads_after_an_attribute,
    asks_in,
    gets,
    a_missing_item,
    lists_keys,
    asks_the_type,
    sets_an_item,
    sets_an_attribute,
    moves_it,
    caches,
    state_of_it,
    reads_behind_a_break,
]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("kind", OF_A_CLASS, ids=lambda k: k.__name__)
@pytest.mark.parametrize("program", READERS, ids=lambda p: p.__name__)
def test_a_plain_dict_and_one_of_a_class_share_no_entry(program, kind, backend):
    for order in ([dict, kind, dict], [kind, dict, kind]):
        compiled = framejit.compile(program, backend=backend)
        for turn, each in enumerate(order):
            x = torch.full((2,), float(turn + 1))
            got = picture(compiled(x, holding(each)), {})
            assert got == picture(program(x, holding(each)), {}), (order, turn)
    assert framejit.counters()["failures"] == 0


@pytest.mark.parametrize("kind", OF_A_CLASS, ids=lambda k: k.__name__)
def test_a_dict_that_came_in_twice_is_asked_for_its_class(kind):
    def by_an_item(x, o, held):
        y = o.a
        return x * y * held[0]["a"]

    compiled = framejit.compile(by_an_item, backend="native")
    for each in (dict, kind, dict):
        o, x = holding(each), torch.ones(2)
        want = by_an_item(x, o, [vars(o)])
        assert compiled(x, o, [vars(o)]).tolist() == want.tolist()


@pytest.mark.parametrize("kind", [dict, Hundred, Missing], ids=lambda k: k.__name__)
def test_one_object_whose_dict_is_exchanged(kind):
    o, first, second = Plain(), {"a": 2}, kind(a=3)
    compiled = framejit.compile(reads_an_item, backend="native")
    for held in (first, first, second, first, second):
        o.__dict__ = held
        x = torch.ones(2)
        assert compiled(x, o).tolist() == reads_an_item(x, o).tolist()


def test_a_dict_that_an_argument_and_a_tensor_or_a_module_have():
    def of_a_tensor(x, d, t):
        return x * d["a"] * t.a

    def made(a: int, held: int) -> Any:
        t = torch.ones(2)
        t.a = a  # type: ignore[attr-defined]
        return ({"a": held}, t) if held else (vars(t), t)

    compiled = framejit.compile(of_a_tensor, backend="native")
    for a, held in ((2, 0), (3, 2), (2, 3), (2, 0)):
        x = torch.ones(2)
        want = of_a_tensor(x, *made(a, held))
        assert compiled(x, *made(a, held)).tolist() == want.tolist()

    module = types.ModuleType("held")
    module.a = 2  # type: ignore[attr-defined]

    def of_a_module(x, d):
        return x * d["a"] * module.a

    compiled = framejit.compile(of_a_module, backend="native")
    for held in (vars(module), {"a": 2}, vars(module)):
        module.a = 2  # type: ignore[attr-defined]
        assert compiled(torch.ones(2), held).tolist() == [4.0, 4.0]
        module.a = 3  # type: ignore[attr-defined]
        want = of_a_module(torch.ones(2), held)
        assert compiled(torch.ones(2), held).tolist() == want.tolist()


def fresh_instance() -> Any:
    return Plain()


def fresh_slotted() -> Any:
    return Strict()


def fresh_function() -> Any:
    def made() -> None:
        pass

    return made


def fresh_exception() -> Any:
    return Failure(1)


def by_assignment(o: Any, d: Any) -> None:
    o.__dict__ = d


def by_setattr(o: Any, d: Any) -> None:
    setattr(o, "__dict__", d)  # noqa: B010


def by_objects_setattr(o: Any, d: Any) -> None:
    object.__setattr__(o, "__dict__", d)


def by_the_setter(o: Any, d: Any) -> None:
    for cls in type(o).__mro__:
        if "__dict__" in cls.__dict__:
            cls.__dict__["__dict__"].__set__(o, d)
            return


SETTERS = [by_assignment, by_setattr, by_objects_setattr, by_the_setter]


def returned(x, make, kind, put):
    o = make()
    put(o, kind(a=x))
    return o


def both_come_out(x, make, kind, put):
    o, d = make(), kind(a=x)
    put(o, d)
    d["k"] = 1
    return o, d, vars(o) is d


def kept_behind_a_break(x, make, kind, put):
    o, d = make(), kind(a=x)
    put(o, d)
    opaque()
    o.b = 2
    o.__dict__["c"] = 3
    return type(o.__dict__).__name__, o, d, o.__dict__ is d


def read_at_once(x, make, kind, put):
    o = make()
    put(o, kind(a=2))
    o.b = 2
    return x * o.__dict__["a"], type(vars(o)).__name__, o


def has_attributes_of_its_own(x, make, kind, put):
    o, d = make(), kind(a=x)
    if kind is Sub:
        d.q = x + 1
    put(o, d)
    return o, d


def put_and_dropped(x, make, kind, put):
    o = make()
    put(o, kind(a=x))
    return x * 2


FRESH = [
    returned,
    both_come_out,
    kept_behind_a_break,
    read_at_once,
    has_attributes_of_its_own,
    put_and_dropped,
]
MADE = [fresh_instance, fresh_slotted, fresh_function, fresh_exception]


@pytest.mark.parametrize("program", FRESH, ids=lambda p: p.__name__)
@pytest.mark.parametrize("put", SETTERS, ids=lambda p: p.__name__)
def test_a_dict_of_a_class_stays_of_its_class(program, put):
    for make in MADE:
        for kind in KINDS:
            compiled = framejit.compile(program, backend="eager")
            for turn in range(2):
                x = torch.full((2,), float(turn))
                got = picture(compiled(x, make, kind, put), {})
                want = picture(program(x, make, kind, put), {})
                assert got == want, (make, kind, turn)
    assert framejit.counters()["failures"] == 0


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.__name__)
def test_a_dict_that_came_in_is_put_in(kind):
    def puts_it(x, make, d):
        o = make()
        o.__dict__ = d
        o.b = x
        opaque()
        o.c = x + 1
        return o, d, vars(o) is d

    for make in [*MADE, Plain]:
        compiled = framejit.compile(puts_it, backend="eager")
        for turn in range(2):
            x = torch.full((2,), float(turn))
            got = picture(compiled(x, make, kind(a=1)), {})
            assert got == picture(puts_it(x, make, kind(a=1)), {}), (make, turn)


class Open(dict[str, Any]):
    def __init__(self, **items: Any) -> None:
        super().__init__(**items)
        self.__dict__ = self


def test_a_dict_that_is_its_own_dict():
    def made(x):
        c = Open(a=x)
        c.b = x + 1
        opaque()
        c.z = 1
        return c.a + c["b"], c["z"], type(c).__name__, c.__dict__ is c

    def given(x, c):
        c.b = x + 1
        c["d"] = x * 2
        return c.a + c["b"] + c.d, type(c).__name__, c.__dict__ is c, list(c)

    for turn in range(2):
        x = torch.full((2,), float(turn))
        assert picture(framejit.compile(made)(x), {}) == picture(made(x), {})
        got = framejit.compile(given)(x, Open(a=turn))
        assert picture(got, {}) == picture(given(x, Open(a=turn)), {})
