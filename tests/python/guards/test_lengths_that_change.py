"""The length of a container that comes in, where nothing but the length is asked
for: a constant at first, a number of the call once it has changed."""

import collections

import pytest
import torch

import framejit

KINDS = {
    "list": lambda n: [0.5] * n,
    "tuple": lambda n: (0.5,) * n,
    "deque": lambda n: collections.deque([0.5] * n, maxlen=100),
    "dict": lambda n: {i: 0.5 for i in range(n)},
    "set": lambda n: set(range(n)),
    "tensors": lambda n: [torch.ones(2)] * n,
    "ordered": lambda n: collections.OrderedDict.fromkeys(range(n)),
}


def warms_up(x, items):
    if len(items) < 16:
        return None
    return x * 2


def divides(x, items):
    return x / max(len(items), 1)


def is_there(x, items):
    if items:
        return x + 1
    return x - 1


def steps(x, items):
    return x * (len(items) % 3), len(items) // 2


def returns(x, items):
    return x + 1, len(items)


def starred(x, items):
    return counted(x, *items)


def counted(x, *items):
    return x * len(items)


def appends(x, items):
    items.append(2.0)
    return x / len(items)


def appends_and_pops(x, items):
    items.append(2.0)
    if len(items) > 12:
        items.pop(0)
    return x / len(items)


def extends(x, items):
    before = len(items)
    items.append(1.0)
    items.extend([2.0, 3.0])
    items += [before]
    return x * len(items), before


def equal(got, expected):
    if isinstance(expected, torch.Tensor):
        return torch.equal(got, expected)
    if isinstance(expected, tuple):
        return len(got) == len(expected) and all(map(equal, got, expected))
    return type(got) is type(expected) and got == expected


LENGTHS = [2, 3, 4, 0, 1, *range(5, 40), 2, 0, 90]


# (A tuple of numbers is a constant, guarded as a whole.)
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "tuple"])
@pytest.mark.parametrize("fn", [warms_up, divides, is_there, returns])
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_few_entries_for_all_lengths(fn, kind, backend):
    compiled = framejit.compile(fn, backend=backend)
    x = torch.ones(3)
    for n in LENGTHS:
        items = KINDS[kind](n)
        assert equal(compiled(x, items), fn(x, items)), n
    assert len(framejit.inspect(compiled)) <= 4


@pytest.mark.parametrize("fn", [steps, starred])
@pytest.mark.parametrize("kind", KINDS)
def test_lengths_that_are_computed_with(fn, kind):
    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(3)
    for n in LENGTHS:
        items = KINDS[kind](n)
        assert equal(compiled(x, items), fn(x, items)), n


@pytest.mark.parametrize("fn", [appends, appends_and_pops, extends])
@pytest.mark.parametrize("dynamic", [None, False])
def test_lengths_of_what_was_added_to(fn, dynamic):
    compiled = framejit.compile(fn, backend="eager", dynamic=dynamic)
    x = torch.ones(3)
    for n in LENGTHS:
        mine, theirs = [0.5] * n, [0.5] * n
        assert equal(compiled(x, mine), fn(x, theirs)), n
        assert mine == theirs
    # (A list whose first item goes is looked at as a whole.)
    if dynamic is None and fn is not appends_and_pops:
        assert len(framejit.inspect(compiled)) <= 4


def test_one_list_added_to_under_two_names():
    def fn(x, items, same):
        items.append(1.0)
        before = len(same)
        same.append(2.0)
        return x * before, len(items)

    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(3)
    for n in range(2, 8):
        for alias in (True, False, True):
            mine, theirs = [0.5] * n, [0.5] * n
            got = compiled(x, mine, mine if alias else [0.5])
            assert equal(got, fn(x, theirs, theirs if alias else [0.5]))
            assert mine == theirs


def test_dynamic_false_keeps_lengths_constant():
    compiled = framejit.compile(divides, backend="eager", dynamic=False)
    for n in range(2, 7):
        assert equal(compiled(torch.ones(3), [1] * n), torch.ones(3) / n)
    assert len(framejit.inspect(compiled)) == 5


class Counts(list):
    def __len__(self):
        return 7


class Plain(list):
    pass


def test_the_class_of_a_container_changes():
    compiled = framejit.compile(divides, backend="eager")
    x = torch.ones(3)
    for n in (2, 3, 4):
        for kind in (list, Plain, Counts, collections.deque, tuple):
            items = kind([1] * n)
            assert equal(compiled(x, items), divides(x, items))
    changed = Plain([1] * 5)
    assert equal(compiled(x, changed), x / 5)
    changed.__class__ = Counts
    assert equal(compiled(x, changed), x / 7)


@pytest.mark.parametrize("kind", ["list", "deque", "dict", "set"])
def test_content_that_is_read_or_written_as_well(kind):
    def fn(x, items):
        before = len(items)
        if kind == "dict":
            items[-1] = 1.0
        elif kind == "set":
            items.add(-1)
        else:
            items.append(2.0)
        total = sum(float(item) for item in items)
        return x * total, before, len(items)

    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(3)
    for n in (2, 3, 4, 5, 4, 0, 1):
        mine, theirs = KINDS[kind](n), KINDS[kind](n)
        assert equal(compiled(x, mine), fn(x, theirs))
        assert mine == theirs


def test_a_container_that_grows_by_each_call():
    seen, expected = collections.deque(maxlen=50), collections.deque(maxlen=50)

    def fn(x, history):
        history.append(1)
        return x * 2

    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(3)
    for _ in range(60):
        assert equal(compiled(x, seen), fn(x, expected))
    assert seen == expected


def test_one_object_under_two_names():
    def fn(x, a, b):
        if len(a) == len(b):
            return x + 1
        return x * len(b)

    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(3)
    for n in range(2, 9):
        same = [1] * n
        assert equal(compiled(x, same, same), fn(x, same, same))
        assert equal(compiled(x, same, [1] * 3), fn(x, same, [1] * 3))


def test_a_large_list_that_is_replaced_is_not_walked_through():
    class Holder:
        items = [1] * 50_000

    def fn(x, holder):
        holder.items = (holder.items + [1])[-50_000:]
        return x * len(holder.items)

    compiled = framejit.compile(fn, backend="eager")
    mine, theirs = Holder(), Holder()
    for _ in range(4):
        assert equal(compiled(torch.ones(3), mine), fn(torch.ones(3), theirs))
        assert mine.items == theirs.items
