"""Containers that the program changes while C code, or a loop, walks them."""

from __future__ import annotations

import collections
import functools
import heapq
import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit


class Pair:
    """Its `<`, `==` and `hash` run what the test gives."""

    act: Callable[[], Any] = staticmethod(lambda: None)

    def __init__(self, n: int) -> None:
        self.n = n

    def __lt__(self, other: Pair) -> bool:
        Pair.act()
        return self.n < other.n

    def __eq__(self, other: object) -> bool:
        Pair.act()
        return isinstance(other, Pair) and self.n == other.n

    def __hash__(self) -> int:
        return 1

    def __repr__(self) -> str:
        return f"Pair({self.n})"


class Items:
    """A mapping whose methods change what is updated from it."""

    def __init__(self, target: dict[Any, Any]) -> None:
        self.target = target

    def keys(self) -> Any:
        self.target["keys"] = 1
        return ["a", "b"]

    def __getitem__(self, key: str) -> int:
        self.target[key + "!"] = len(self.target)
        return len(self.target)


def on_lists() -> dict[str, Callable[[list[Any]], Any]]:
    changes: dict[str, Callable[[list[Any]], Any]] = {
        "append": lambda l: l.append(1),
        "append_pop": lambda l: (l.append(1), l.pop()),
        "clear": lambda l: l.clear(),
        "look": lambda l: len(l),
        "extend": lambda l: l.extend([7, 8]),
        "assign": lambda l: l.__setitem__(slice(None), [5]),
    }
    found: dict[str, Callable[[list[Any]], Any]] = {}
    for name, change in changes.items():

        def by_key(l, change=change):
            return l.sort(key=lambda v: change(l) or v)

        def by_key_reversed(l, change=change):
            return l.sort(key=lambda v: change(l) and 0 or v, reverse=True)

        def by_cmp(l, change=change):
            return l.sort(
                key=functools.cmp_to_key(lambda a, b: change(l) and 0 or a - b)
            )

        def by_lt(l, change=change):
            l[:] = [Pair(n) for n in l]
            Pair.act = staticmethod(lambda: change(l))
            try:
                l.sort()
            finally:
                Pair.act = staticmethod(lambda: None)

        def sorted_copy(l, change=change):
            return sorted(l, key=lambda v: (change(l), v)[1])

        def largest(l, change=change):
            return max(l, key=lambda v: (len(l) < 9 and change(l), v)[1])

        def least(l, change=change):
            return min(l, key=lambda v: (len(l) < 9 and change(l), v)[1])

        def mapped(l, change=change):
            return list(map(lambda v: (len(l) < 9 and change(l), v)[1], l))

        def filtered(l, change=change):
            return list(filter(lambda v: (len(l) < 9 and change(l), v)[1], l))

        def reduced(l, change=change):
            return functools.reduce(
                lambda a, b: (len(l) < 9 and change(l), a + b)[1], l
            )

        def looped(l, change=change):
            seen = []
            for v in l:
                seen.append(v)
                if len(seen) < 9:
                    change(l)
            return seen

        def summed(l, change=change):
            return sum((len(l) < 9 and change(l), v)[1] for v in l)

        def any_of(l, change=change):
            return any((len(l) < 9 and change(l), False)[1] for v in l)

        def enumerated(l, change=change):
            seen = []
            for i, v in enumerate(l):
                seen.append((i, v))
                if i < 5:
                    change(l)
            return seen

        def zipped(l, change=change):
            seen = []
            for a, b in zip(l, l):
                seen.append((a, b))
                if len(seen) < 5:
                    change(l)
            return seen

        def backwards(l, change=change):
            seen = []
            for v in reversed(l):
                seen.append(v)
                change(l)
            return seen

        def grouped(l, change=change):
            return [
                (k, len(list(g)))
                for k, g in itertools.groupby(
                    l, key=lambda v: (len(l) < 9 and change(l), v)[1]
                )
            ]

        def found_by_eq(l, change=change):
            l[:] = [Pair(n) for n in l]
            Pair.act = staticmethod(lambda: len(l) < 9 and change(l))
            try:
                return Pair(2) in l, l.count(Pair(5)), l == [Pair(3), Pair(1)]
            finally:
                Pair.act = staticmethod(lambda: None)

        def extended(l, change=change):
            l.extend((len(l) < 9 and change(l), v)[1] for v in [1, 2])
            return l

        for body in list(locals().values()):
            if callable(body) and body is not change:
                found[f"{body.__name__}-{name}"] = body

    def extend_self(l):
        l.extend(l)
        l += l
        l[1:1] = l
        return l

    def extend_iter_self(l):
        l.extend(itertools.islice(iter(l), 5))
        return l

    def extend_looks(l):
        l.extend(len(l) for _ in range(3))
        l += (l[-1] + len(l) for _ in range(2))
        l[2:3] = (len(l) for _ in range(2))
        return l

    def extend_fails(l):
        l.extend(10 // (k - 2) for k in [3, 1, 2, 5])

    def extend_writes(l):
        l.extend((l.append(-1), l.pop(0), k)[2] for k in range(3))
        return l

    def sort_fails_half_way(l):
        l.extend([9, 2, 4, "a", 1])
        l.sort()

    def sort_key_fails(l):
        l.sort(key=lambda v: 1 / (v - 2))

    def lt_fails_half_way(l):
        l[:] = [Pair(n) for n in [3, 1, 2, 7, 0, 5]]
        left = [6]

        def act():
            left[0] -= 1
            if left[0] < 0:
                raise KeyError("enough")

        Pair.act = staticmethod(act)
        try:
            l.sort(reverse=True)
        finally:
            Pair.act = staticmethod(lambda: None)

    def heap(l):
        l[:] = [Pair(n) for n in l]
        Pair.act = staticmethod(lambda: len(l) < 6 and l.append(Pair(0)))
        try:
            heapq.heapify(l)
            return heapq.heappop(l)
        finally:
            Pair.act = staticmethod(lambda: None)

    for body in (
        extend_self,
        extend_looks,
        extend_fails,
        extend_writes,
        extend_iter_self,
        sort_fails_half_way,
        sort_key_fails,
        lt_fails_half_way,
        heap,
    ):
        found[body.__name__] = body
    return found


def on_others() -> dict[str, Callable[[Any, Any, Any], Any]]:
    """body(dict, set, deque)"""

    def dict_grows(d, s, q):
        for k in d:
            d[str(k) + "x"] = 1

    def dict_shrinks(d, s, q):
        for k in list(d):
            del d[k]
        for k in d.items():
            d.clear()

    def dict_swaps_keys(d, s, q):
        seen = []
        for k in d:
            seen.append(k)
            if len(seen) < 4:
                del d[k]
                d[k + 10] = 2
        return seen

    def dict_values_grow(d, s, q):
        return [d.setdefault(v + 50, 1) for v in d.values()]

    def dict_comprehension(d, s, q):
        return {k: d.pop(k) for k in d}

    def dict_backwards(d, s, q):
        for k in reversed(d):
            d[k + 20] = 1

    def dict_sorted(d, s, q):
        return sorted(d, key=lambda k: d.pop(k))

    def dict_max(d, s, q):
        return max(d, key=lambda k: d.setdefault(k + 30, 2))

    def dict_update(d, s, q):
        d.update(Items(d))
        return list(d.items())

    def dict_merge(d, s, q):
        return dict(Items(d)), {**Items(d)}, list(d.items())

    def dict_update_pairs(d, s, q):
        d.update((k + 60, d.setdefault(k + 70, 1)) for k in [1, 2])
        return list(d.items())

    def dict_update_from_itself(d, s, q):
        d.update((k + 60, 1) for k in d)

    def set_grows(d, s, q):
        for k in s:
            s.add(k + 100)

    def set_shrinks(d, s, q):
        return [s.discard(k) for k in s]

    def set_update_from_itself(d, s, q):
        s.update(k + 100 for k in s)

    def set_filtered(d, s, q):
        return list(filter(lambda k: s.add(k + 7), s))

    def set_all(d, s, q):
        return all(s.add(k + 7) is None for k in s)

    def deque_grows(d, s, q):
        for k in q:
            q.append(k)

    def deque_shrinks(d, s, q):
        return [q.popleft() for k in q]

    def deque_rotates(d, s, q):
        for _ in q:
            q.rotate(1)

    def deque_assigns(d, s, q):
        for i, _ in enumerate(q):
            q[i] = 5
        return q

    def deque_extend_self(d, s, q):
        q.extend(q)
        q.extendleft(q)
        q += q
        return q

    def deque_max(d, s, q):
        return max(q, key=lambda k: q.append(k) or k)

    def deque_by_eq(d, s, q):
        q.extend([Pair(1), Pair(2)])
        Pair.act = staticmethod(lambda: q.append(3))
        try:
            return Pair(2) in q
        finally:
            Pair.act = staticmethod(lambda: None)

    def dict_by_eq(d, s, q):
        d[Pair(1)] = 1
        Pair.act = staticmethod(lambda: len(d) < 9 and d.update({len(d) + 40: 1}))
        try:
            return d.get(Pair(2)), len(d)
        finally:
            Pair.act = staticmethod(lambda: None)

    def deque_extend_items(d, s, q):
        q.extend(len(q) for _ in range(3))
        q.extendleft((q.append(k), len(q))[1] for k in range(2))
        return q

    def set_update_items(d, s, q):
        s.update(len(s) + 50 for _ in range(3))
        s.difference_update(k for k in [1, 2, len(s) + 49])
        s.update([70, 71], (len(s) + k for k in (100, 200)), {5: 1})
        return sorted(s)

    def set_others(d, s, q):
        s.intersection_update(k for k in list(s) if s.add(9) or True)
        s.symmetric_difference_update(k + len(s) for k in [1, 2])
        return sorted(s), s.union(k + len(s) for k in [1])

    def set_update_fails(d, s, q):
        s.update(100 // (k - 2) for k in [3, 1, 2, 5])

    def dict_update_fails(d, s, q):
        d.update((100 // (k - 2), k) for k in [3, 1, 2, 5])

    def dict_or(d, s, q):
        d |= ((k + 60, d.setdefault(k + 70, 1)) for k in [1, 2])
        return list(d.items())

    def set_by_eq(d, s, q):
        s.add(Pair(1))
        Pair.act = staticmethod(lambda: s.clear())
        try:
            return Pair(2) in s, len(s)
        finally:
            Pair.act = staticmethod(lambda: None)

    def ordered(d, s, q):
        o = collections.OrderedDict(d)
        for k in o:
            o.move_to_end(k)
            o[k + 5] = 1

    def counter(d, s, q):
        c = collections.Counter(d)
        c.update((c.__setitem__(k + 9, 1), k)[1] for k in [1, 2])
        for k in c:
            c[k + 77] += 1

    return dict(locals())


def outcome(fn: Any, *args: Any) -> str:
    try:
        result: Any = fn(torch.ones(1), *args)
    except Exception as error:
        result = type(error).__name__, str(error)
    return str((result, args))


def check(body: Any, make_args: Callable[[], tuple[Any, ...]]) -> None:
    def plain(x, *args):
        return x + 1, body(*args)

    def caught(x, *args):
        try:
            x = x * 2
            found = body(*args)
        except (ValueError, RuntimeError, KeyError, TypeError, IndexError) as error:
            return x * 3, str(error)
        return x, found

    def made_inside(x):
        args = make_args()
        try:
            found = body(*args)
        except Exception as error:
            return x * 3, str(error), args
        return x * 2, found, args

    for fn, made in ((plain, make_args), (caught, make_args), (made_inside, tuple)):
        framejit.reset()
        compiled = framejit.compile(fn, backend="eager")
        for _ in range(2):
            assert outcome(compiled, *made()) == outcome(fn, *made()), fn.__name__


@pytest.mark.parametrize("name", on_lists())
def test_list_changed_while_walked(name):
    check(on_lists()[name], lambda: ([3, 1, 2, 4],))


@pytest.mark.parametrize("name", on_others())
def test_container_changed_while_walked(name):
    check(
        on_others()[name],
        lambda: ({1: 1, 2: 2, 3: 3}, {1, 2, 3}, collections.deque([1, 2, 3])),
    )
