"""The programs of `user_programs.py`: eager's results, and no break but those that
the program asks for."""

from __future__ import annotations

import re

import pytest
import torch
from user_programs import PROGRAMS

import framejit
from framejit import _C


def run(make, wrap):
    torch.manual_seed(0)
    return make(wrap)


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.filterwarnings("ignore")
def test_program(name):
    make, wanted = PROGRAMS[name]
    framejit.reset()
    expected = run(make, lambda fn: fn)
    _C.clear_events()
    actual = run(make, framejit.compile)
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)
    assert framejit.counters()["compiles"] > 0
    assert framejit.counters()["failures"] == 0
    told = "\n".join(
        text for channel, text in framejit.events() if channel == "graph_breaks"
    )
    assert set(re.findall(r"FJ\d+", told)) <= wanted, told
