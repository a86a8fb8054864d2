"""A number that a caller gives is that object, symbolic or not: where it is handed
out, kept across a break, is a key (a NaN is found by identity) or asked for its id.
"""

from __future__ import annotations

import math

import pytest
import torch

import framejit


def handed_out(x, n):
    return x + 1, n


def in_containers(x, n):
    return x * 2, [n, (n,)], {"n": n}, {n: 1}


def as_a_key(x, n):
    found = {n: 1}
    return x + found.get(n, 5), n in found, found == {n: 1}, n in [n], (n,) == (n,)


def as_an_id(x, n):
    return x + 1, id(n) == id(n), n is n


def across_a_break(x, n):
    kept = [n]
    framejit.graph_break()
    return x + 1, kept[0] is n, n in kept, kept.index(n), n


def in_an_attribute(x, n):
    class Holder:
        pass

    holder = Holder()
    holder.n = n
    framejit.graph_break()
    return x.sum(), holder.n is n, n


PROGRAMS = [handed_out, in_containers, as_a_key, as_an_id, across_a_break]
PROGRAMS += [in_an_attribute]
NUMBERS = [2.5, 3.5, math.nan, -0.0, 10**6, 10**6 + 7, 1e300, math.nan, 2**62, math.inf]


def objects_in(value):
    if isinstance(value, (list, tuple)):
        return [found for item in value for found in objects_in(item)]
    if isinstance(value, dict):
        return [found for item in value.items() for found in objects_in(list(item))]
    return [value]


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_same_object(f, backend, dynamic):
    framejit.reset()
    compiled = framejit.compile(f, backend=backend, dynamic=dynamic)
    for number in NUMBERS:
        _, *expected = f(torch.ones(2), number)
        _, *actual = compiled(torch.ones(2), number)
        a, b = objects_in(expected), objects_in(actual)
        assert len(a) == len(b)
        for mine, its in zip(a, b, strict=True):
            assert type(mine) is type(its)
            if mine is number and dynamic is not False:
                assert its == number or math.isnan(number)
            elif mine is not number:
                assert mine == its, number
