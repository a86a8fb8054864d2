"""`types.MappingProxyType`: what is read through a proxy is the content of each call,
whatever the proxy is over, where it was made and how it is read."""

from __future__ import annotations

import operator
import types
from typing import Any

import pytest
import torch

import framejit

P = types.MappingProxyType


class K:
    q = 1


READS = {
    "item": lambda m: m["o"],
    "get": lambda m: (m.get("n"), m.get("n", 5)),
    "in": lambda m: ("o" in m, "n" in m),
    "len": lambda m: len(m),
    "list": lambda m: list(m),
    "dict": lambda m: dict(m),
    "items": lambda m: list(m.items()),
    "keys": lambda m: sorted(m.keys() | {"z"}),
    "values": lambda m: list(m.values()),
    "copy": lambda m: m.copy(),
    "or": lambda m: m | {"z": 1},
    "ror": lambda m: {"z": 1} | m,
    "or function": lambda m: operator.or_(m, {}),
    "or of two": lambda m: m | m,
    "reversed": lambda m: list(reversed(m)),
    "spread": lambda m: {**m},
    "keywords": lambda m: dict(**m),
    "comprehension": lambda m: [k for k in m],
    "sorted": lambda m: sorted(m),
    "equal": lambda m: m == {"o": 1},
    "truth": lambda m: bool(m),
    "text": lambda m: f"{m}",
    "repr": lambda m: repr(m),
    "max": lambda m: max(m),
    "join": lambda m: ",".join(m),
    "itself": lambda m: type(m).__name__,
    "update": lambda m: {"a": 0, **{k: v for k, v in m.items()}},
}


def made(a: Any) -> Any:
    return P(a)


def twice(a: Any) -> Any:
    return P(P(a))


def came_in(a: Any) -> Any:
    return a


def over_one_that_came_in(a: Any) -> Any:
    return P(a)


MAKERS = [made, twice, came_in, over_one_that_came_in]


@pytest.mark.parametrize("name", READS)
@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("written", [False, True])
def test_content_of_each_call(name: str, maker: Any, written: bool) -> None:
    read = READS[name]
    of_proxy = maker in (came_in, over_one_that_came_in)

    def fn(x: Any, a: Any, under: Any) -> Any:
        proxy = maker(a)
        if written:
            under["n"] = 9
        return x + 1, read(proxy)

    def run(function: Any, content: dict[str, int]) -> Any:
        under = dict(content)
        a = P(under) if of_proxy else under
        try:
            return function(torch.ones(1), a, under)[1], under
        except Exception as error:
            return type(error), under

    compiled = framejit.compile(fn)
    for content in ({"o": 1}, {"o": 2}, {"o": 3, "n": 2}, {}, {"o": 1}):
        assert run(compiled, content) == run(fn, content), content


@pytest.mark.parametrize("way", ["vars", "__dict__"])
def test_over_the_attributes_of_a_class(way: str) -> None:
    def fn(x: Any) -> Any:
        proxy = P(vars(K) if way == "vars" else K.__dict__)
        return x + 1, proxy["q"], proxy.get("q"), "z" in proxy

    compiled = framejit.compile(fn)
    for number in range(3):
        K.q = number
        if number == 2:
            K.z = 1  # type: ignore[attr-defined]
        assert compiled(torch.ones(1))[1:] == fn(torch.ones(1))[1:]
    del K.z  # type: ignore[attr-defined]
