"""Facts of the language that a capture used, changed before the next call."""

from __future__ import annotations

import collections
import contextvars
import functools

import pytest
import torch

import framejit


def both(fn, *calls):
    """Compiled equals eager on each call in turn; the arguments are functions."""
    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    for make in calls:
        expected, actual = fn(*make()), compiled(*make())
        assert str(expected) == str(actual)
    return compiled


VAR = contextvars.ContextVar("VAR", default=1)
UNSET = contextvars.ContextVar("UNSET")


def test_context_variable_changes():
    def fn(x):
        return x * VAR.get() + UNSET.get(0)

    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(2)
    assert torch.equal(compiled(x), x)
    token = VAR.set(5)
    assert torch.equal(compiled(x), x * 5)
    VAR.reset(token)
    assert torch.equal(compiled(x), x)

    def in_context():
        UNSET.set(7)
        return compiled(x)

    assert torch.equal(contextvars.copy_context().run(in_context), x + 7)
    assert torch.equal(compiled(x), x)


def test_context_variable_is_set():
    def fn(x):
        VAR.set(VAR.get() + 1)
        return x * VAR.get()

    def run(f):
        out = [f(torch.ones(2)).sum().item() for _ in range(3)]
        return out, VAR.get()

    expected = contextvars.copy_context().run(run, fn)
    compiled = framejit.compile(fn, backend="eager")
    assert contextvars.copy_context().run(run, compiled) == expected


class Thing:
    pass


def test_keys_become_one_object():
    def fn(x, a, b):
        d = {a: 1}
        d[b] = 2
        return x * len(d) + d[a]

    one, two = Thing(), Thing()
    x = torch.ones(2)
    both(fn, lambda: (x, one, two), lambda: (x, one, one), lambda: (x, two, one))


def test_elements_become_one_object():
    def fn(x, a, b):
        return x * len({a, b}), a in {b}

    one, two = Thing(), Thing()
    x = torch.ones(2)
    both(fn, lambda: (x, one, two), lambda: (x, one, one), lambda: (x, two, one))


def test_tensor_keys_become_one_object():
    def fn(a, b):
        seen = {a: 1}
        return a * len({a, b}), b in seen

    s, t = torch.ones(2), torch.ones(2)
    both(fn, lambda: (s, t), lambda: (s, s), lambda: (t, s))


def test_ids_become_equal():
    def fn(x, a, b):
        seen = {id(a)}
        return x + (1 if id(b) in seen else 2), id(a) == id(b)

    one, two = Thing(), Thing()
    x = torch.ones(2)
    both(fn, lambda: (x, one, two), lambda: (x, one, one), lambda: (x, two, one))


def test_maxlen_changes():
    def fn(x, d):
        d.append(3)
        return x * len(d), list(d)

    x = torch.ones(2)
    both(
        fn,
        lambda: (x, collections.deque([1, 2])),
        lambda: (x, collections.deque([1, 2], maxlen=2)),
        lambda: (x, collections.deque([1, 2], maxlen=3)),
    )


def test_singledispatch_registers():
    @functools.singledispatch
    def kind(value):
        return 1

    def fn(x):
        return x * kind(3)

    x = torch.ones(2)
    compiled = framejit.compile(fn, backend="eager")
    assert torch.equal(compiled(x), x)
    kind.register(int, lambda value: 5)
    assert torch.equal(compiled(x), x * 5)


class Attr(dict):
    __getattr__ = dict.get
    __setattr__ = dict.__setitem__


def test_attribute_of_attr_dict_changes():
    def fn(x, d):
        d.c = d.a
        return x * d.a + (d.missing or 0)

    x = torch.ones(2)
    both(
        fn,
        lambda: (x, Attr(a=2)),
        lambda: (x, Attr(a=3)),
        lambda: (x, Attr(a=2, missing=4)),
    )


class Items:
    def __init__(self, items):
        self.items = items

    def __getitem__(self, i):
        return self.items[i]


def test_items_of_sequence_change():
    def fn(x, seq):
        for v in seq:
            x = x * v
        return x

    x = torch.ones(2)
    both(
        fn,
        lambda: (x, Items([2, 3])),
        lambda: (x, Items([2, 4])),
        lambda: (x, Items([2, 3, 5])),
    )


@framejit.disable
def opaque(value=None):
    return value


def test_iterated_list_changes():
    def fn(x, xs):
        for v in xs:
            opaque()
            x = x * v
        return x

    x = torch.ones(2)
    both(
        fn,
        lambda: (x, [2, 3, 4]),
        lambda: (x, [2, 3]),
        lambda: (x, [2, 7, 9, 10]),
        lambda: (x, []),
        lambda: (x, [torch.ones(2) * 3, 2]),
    )


def test_iterated_list_grows_in_the_loop():
    def fn(x, xs):
        for v in xs:
            opaque()
            x = x * v
            if len(xs) < 5:
                xs.append(v + 1)
        return x, xs

    x = torch.ones(2)
    both(fn, lambda: (x, [2, 3]), lambda: (x, [1]), lambda: (x, [4, 5, 6]))


def test_iterated_dict_changes():
    def fn(x, d):
        for i, (k, v) in enumerate(d.items()):
            opaque()
            x = x * v + i + len(k)
        return x

    x = torch.ones(2)
    both(
        fn,
        lambda: (x, {"a": 1, "bb": 2}),
        lambda: (x, {"a": 1, "bb": 3}),
        lambda: (x, {"a": 1, "ccc": 2}),
        lambda: (x, {"a": 1}),
    )


def test_dict_changed_in_the_loop():
    def fn(x, d):
        for k in d:
            opaque()
            d[k + "!"] = 1
        return x

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="changed size during iteration"):
            compiled(torch.ones(2), {"a": 1, "b": 2})


def test_long_loop_of_breaks_is_left_to_cpython():
    def fn(x, n):
        y = x + 1
        total = 0
        for i in range(n):
            opaque()
            total += i
        return y * total

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    x = torch.zeros(2)
    assert compiled(x, 500)[0] == sum(range(500))
    lines = [text for _, text in framejit.events() if "FJ410" in text]
    assert len(lines) == 1
    assert compiled(x, 600)[0] == sum(range(600))
    assert sum("FJ410" in text for _, text in framejit.events()) == 1
    framejit.reset()  # forgets that, too
    assert compiled(x, 500)[0] == sum(range(500))
    assert sum("FJ410" in text for _, text in framejit.events()) == 1


def test_long_loop_with_graphs_goes_on():
    def fn(x, n):
        for i in range(n):
            x = x + 1
            opaque()
        return x

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    assert compiled(torch.zeros(1), 300).item() == 300
    assert not any("FJ410" in text for _, text in framejit.events())


def reasons(fn, *args):
    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    compiled(*args)
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    return [b.id for e in entries for b in e.breaks]


@pytest.mark.parametrize(
    ("fn", "reason"),
    [
        (lambda x: (x + 1)[x > 0], "FJ103"),
        (lambda x: (x + 1).nonzero(), "FJ103"),
        (lambda x: torch.masked_select(x + 1, x > 0), "FJ103"),
        (lambda x: (x + 1).unique(), "FJ103"),
        (lambda x: torch.where(x + 1 > 0), "FJ103"),
        (lambda x: (x + 1).sum().item(), "FJ102"),
        (lambda x: (x + 1).tolist(), "FJ102"),
        (lambda x: float((x + 1).sum()), "FJ102"),
        (lambda x: 1 if (x + 1).sum() > 0 else 2, "FJ101"),
        (lambda x: bool((x + 1).sum()), "FJ101"),
        (lambda x: not (x + 1).sum(), "FJ101"),
        (lambda x: print(x + 1, end="", file=None), "FJ207"),
        (lambda x: f"{x + 1}", "FJ102"),
    ],
)
def test_reason_of_data_dependence(fn, reason):
    assert reason in reasons(fn, torch.tensor([1.0, -1.0, 2.0]))
