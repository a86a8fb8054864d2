"""Arithmetic of NumPy's numbers fails, warns or says nothing as numpy.errstate has it
at the call, whatever it was when the function was captured."""

from __future__ import annotations

import itertools
import warnings

import pytest
import torch

import framejit

np = pytest.importorskip("numpy")

PROGRAMS = {
    "divide": lambda x, a: (x * 2, a / 0),
    "add": lambda x, a: (x * 2, np.int8(100) + np.int8(100)),
    "divmod": lambda x, a: (x * 2, divmod(a, 0)),
    "power": lambda x, a: (x * 2, pow(a, 1e308), a**1e308),
    "negative": lambda x, a: (x * 2, -np.int8(-128)),
    "absolute": lambda x, a: (x * 2, abs(np.int8(-128))),
    "sum": lambda x, a: (x * 2, sum([np.int8(100), np.int8(100)])),
    "remainder": lambda x, a: (x * 2, a % 0, a // 0),
    "multiply": lambda x, a: (x * 2, a * 1e308 * 1e308),
    "float32": lambda x, a: (x * 2, np.float32(1e30) * np.float32(1e30)),
    "float16": lambda x, a: (x * 2, np.float16(1) * 70000),
    "reflected": lambda x, a: (x * 2, 1e308 * (a * 1e308)),
    "used": lambda x, a: x * (a / 0),
    "fine": lambda x, a: (x * (a / 4), a + np.float64(1), round(a / 3, 2), -a, a > 1),
    "ufunc": lambda x, a: (x, np.divide(a, 0), np.log(a - 2)),
    "method": lambda x, a: (x, (a * 1e308).astype(np.float32)),
}
PROGRAMS["in place"] = lambda x, a: (x * 2, in_place(a))


def in_place(a):
    a /= 0
    return a


def own_state(x, a):
    with np.errstate(divide="ignore"):
        return x * 2, a / 0


PROGRAMS["own state"] = own_state
PROGRAMS["caught"] = lambda x, a: caught(x, a)


def caught(x, a):
    try:
        return x * 2, a / 0
    except FloatingPointError as error:
        return x * 3, str(error)


def outcome(function, mode):
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with np.errstate(all=mode):
            try:
                result = repr(function(torch.ones(2), np.float64(2)))
            except FloatingPointError as error:
                result = repr(error)
    return result, [str(w.message) for w in seen]


@pytest.mark.parametrize("name", PROGRAMS)
def test_states(name):
    program = PROGRAMS[name]
    for order in itertools.permutations(["ignore", "warn", "raise"]):
        framejit.reset()
        compiled = framejit.compile(program)
        for mode in order:
            assert outcome(compiled, mode) == outcome(program, mode), (order, mode)


def test_no_error_is_one_graph():
    compiled = framejit.compile(PROGRAMS["fine"], fullgraph=True)
    assert repr(compiled(torch.ones(2), np.float64(2))) == repr(
        PROGRAMS["fine"](torch.ones(2), np.float64(2))
    )


def test_the_state_is_left_as_it_was():
    before = np.geterr()
    framejit.compile(PROGRAMS["divide"])(torch.ones(2), np.float64(2))
    assert np.geterr() == before
