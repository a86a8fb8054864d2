"""locals() and exec(): until CPython 3.13 a frame has one dict of its variables for
as long as it lives, whatever part of it is compiled."""

from __future__ import annotations

import zlib

import pytest
import torch

import framejit

b = 100


def exec_then_eval(x):
    exec("b = 3")
    framejit.graph_break()
    return x * eval("b")


def exec_then_locals(x):
    exec("z = 3")
    framejit.graph_break()
    return x * locals().get("z", 1)


def exec_breaks(x):
    exec("z = zlib.crc32(b'a') % 7")
    return x * eval("z") if "z" in locals() else x


def exec_of_a_tensor(x):
    exec("b = x.sum().item()")
    return x * eval("b")


def kept(x):
    d = locals()
    k = 4
    framejit.graph_break()
    locals()
    return x * d.get("k", 1), k


def same_dict(x):
    d = locals()
    framejit.graph_break()
    return x, d is locals()


def written(x):
    locals()["cfg"] = 5
    framejit.graph_break()
    return x * ("cfg" in locals())


def twice(x):
    exec("z = 1")
    framejit.graph_break()
    exec("z += 1")
    return x * eval("z")


def beneath(x):
    def inner():
        exec("b = 3")
        framejit.graph_break()
        return eval("b")

    return x * inner()


def in_a_loop(x):
    for i in range(3):
        exec(f"z{i} = i")
        x = x * zlib.crc32(b"a") % 5
    return x, sorted(n for n in locals() if n.startswith("z"))


def only_read(x):
    text = "{x.shape}".format(**locals())
    framejit.graph_break()
    return x + 1, text


def after_the_break(x):
    framejit.graph_break()
    exec("z = 3")
    return x * eval("z")


PROGRAMS = [
    exec_then_eval,
    exec_then_locals,
    exec_breaks,
    exec_of_a_tensor,
    kept,
    same_dict,
    written,
    twice,
    beneath,
    in_a_loop,
    only_read,
    after_the_break,
]


def outcome(function):
    try:
        return repr(function(torch.ones(2)))
    except (NameError, KeyError) as error:
        return repr(error)


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_variables(program):
    compiled = framejit.compile(program)
    for _ in range(3):
        assert outcome(compiled) == outcome(program)


@pytest.mark.parametrize("program", [only_read, after_the_break])
def test_still_captured(program):
    compiled = framejit.compile(program)
    compiled(torch.ones(2))
    assert any(
        e.operations for entry in framejit.inspect(compiled) for e in entry.walk()
    )
