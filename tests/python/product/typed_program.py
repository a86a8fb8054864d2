"""What type checkers know of FrameJIT. test_typing.py gives it to mypy: every
``assert_type`` holds, and the lines with ``# E: code`` are errors of that code."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, assert_type, overload

import torch
from torch import Tensor

import framejit

_N = TypeVar("_N", int, float)


class Net(torch.nn.Module):
    width = 3

    def forward(self, x: Tensor) -> Tensor:
        return x


def plain(x: Tensor, n: int = 1, *, flag: bool = False) -> tuple[Tensor, int]:
    return x, n


def generic(x: list[_N]) -> _N:
    return x[0]


@overload
def either(x: int) -> str: ...
@overload
def either(x: str) -> int: ...
def either(x: int | str) -> int | str:
    return "" if isinstance(x, int) else 0


x = torch.ones(2)

# ---- modules: the same type, what it has, and what it returns

net = framejit.compile(Net(), backend="eager")
assert_type(net, Net)
assert_type(net.width, int)
assert_type(net.eval(), Net)
assert_type(framejit.compile(mode="default")(Net()), Net)
net.nothing_like_it()  # E: operator
framejit.compile_inplace(net, fullgraph=True)
framejit.compile_inplace(plain)  # E: arg-type

# ---- functions: their signatures

compiled = framejit.compile(plain)
assert_type(compiled(x), tuple[Tensor, int])
assert_type(compiled(x, 2, flag=True), tuple[Tensor, int])
compiled("x")  # E: arg-type
compiled(x, flags=True)  # E: call-arg
compiled()  # E: call-arg
assert_type(framejit.compile(generic)([1.5]), float)
assert_type(framejit.compile(generic)([1]), int)
assert_type(framejit.compile(either)(1), str)
assert_type(framejit.compile(either)("a"), int)
function: Callable[[Tensor], Tensor] = framejit.compile(lambda x: x * 2)
assert_type(framejit.compile(torch.relu)(x), Tensor)


# ---- decorators, with and without arguments


@framejit.compile
def decorated(x: Tensor, n: int) -> float:
    return 1.0


@framejit.compile(fullgraph=True, dynamic=None, options={"recompile_limit": 3})
def with_arguments(x: Tensor, *more: Tensor, **names: str) -> Tensor:
    return x


@framejit.compile()
def with_none(x: Tensor) -> Tensor:
    return x


assert_type(decorated(x, 1), float)
assert_type(with_arguments(x, x, a="b"), Tensor)
assert_type(with_none(x), Tensor)
decorated(x)  # E: call-arg
with_arguments(x, a=1)  # E: arg-type
with_none(3)  # E: arg-type


class Holder:
    @framejit.compile
    def method(self, x: Tensor) -> int:
        return 1

    @framejit.compile(fullgraph=True)
    def other(self, x: Tensor) -> str:
        return ""

    @staticmethod
    @framejit.compile
    def static(x: Tensor) -> bytes:
        return b""

    @classmethod
    @framejit.compile
    def of_class(cls, x: Tensor) -> Holder:
        return cls()


assert_type(Holder().method(x), int)
assert_type(Holder().other(x), str)
assert_type(Holder.static(x), bytes)
assert_type(Holder.of_class(x), Holder)
assert_type(framejit.compile(Holder().method)(x), int)
Holder().method()  # E: call-arg

# ---- arguments of compile()

framejit.compile(plain, backend=3)  # E: call-overload
framejit.compile(plain, fullgraph=None)  # E: call-overload
framejit.compile(plain, full_graph=True)  # E: call-overload
framejit.compile(plain, name="region", recompile_limit=4, isolate_recompiles=True)
framejit.compile(plain, backend=lambda graph, inputs: graph.forward)
framejit.compile(3)  # E: call-overload

# ---- the others

assert_type(framejit.disable(plain)(x), tuple[Tensor, int])
assert_type(framejit.disable(recursive=False)(plain)(x), tuple[Tensor, int])
with framejit.disable(reason="here"):
    pass
assert_type(framejit.allow_in_graph(plain)(x), tuple[Tensor, int])
assert_type(framejit.set_stance("force_eager")(plain)(x), tuple[Tensor, int])
assert_type(framejit.explain(plain)(x, 2), framejit.Explanation)
framejit.explain(plain)(2)  # E: arg-type
assert_type(framejit.counters(), dict[str, int])
assert_type(framejit.inspect(compiled), list[framejit.EntryInfo])
