"""Matrix products that a program puts into its arguments are made there: no copy,
and no memory for the result."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import differential
import framejit

pytestmark = [
    pytest.mark.usefixtures("isa"),
    # The interpreter makes no plan of memory.
    pytest.mark.parametrize("isa", ["avx512", "avx2"], indirect=True),
]

Program = Callable[..., object]
N, K = 12, 7


def addmm(x, a, b):
    x.addmm_(a, b)


def addmm_scaled(x, a, b):
    x.addmm_(a, b, beta=0.5, alpha=-2)


def addmm_without(x, a, b):
    x.addmm_(a, b, beta=0)


def addmm_out(x, a, b):
    torch.addmm(a.new_ones(N), a, b, out=x)


def mm_out(x, a, b):
    torch.mm(a, b, out=x)


def addmv(x, a, b):
    x.view(-1)[:N].addmv_(a, b[:, 0])


def addmv_whole(x, a, b):
    x.addmv_(torch.cat([a] * N), b[:, 0])


def addbmm(x, a, b):
    x.addbmm_(a.expand(3, N, K), b.expand(3, K, N), beta=2)


def baddbmm(x, a, b):
    x.baddbmm_(a.expand(1, N, K), b.expand(1, K, N))


def baddbmm_of_a_view(x, a, b):
    x[None].baddbmm_(a[None], b[None], alpha=3)


def and_read(x, a, b):
    before = x.sum(0)
    x.addmm_(a * 2, b)
    return before, x + 1


def and_a_row(x, a, b):
    x.addmm_(a, b)
    x[3] = 1


def behind_a_write(x, a, b):
    x.mul_(2)
    x.addmm_(a, b)


SHAPES: dict[Program, tuple[int, ...]] = {
    addmv_whole: (N * N,),
    baddbmm: (1, N, N),
}
# What is made where it belongs, in one step.
PLACED = (
    *(addmm, addmm_scaled, addmm_without, addmm_out, mm_out, addmv_whole, addbmm),
    *(baddbmm, baddbmm_of_a_view, and_read, and_a_row),
)


def with_itself(x, a, b):
    x.addmm_(x, x)


def with_its_transpose(x, a, b):
    x.addmm_(x.t(), x)


def to_its_transpose(x, a, b):
    torch.addmm(x.t(), a, b, out=x)


def of_itself(x, a, b):
    x.copy_(torch.mm(x, x))


def as_bias(x, a, b):
    x.copy_(torch.addmm(x[0], a, b))


def transposed(x, a, b):
    x.t().addmm_(a, b)


def twice(x, a, b):
    x.addmm_(a, b)
    x.addmm_(a + 1, b, beta=0.5)


def old_content(x, a, b):
    old = x * 1
    x.addmm_(a, b)
    return old, x.t()


def into_a_part(x, a, b):
    x[1:4].addmm_(a[1:4], b)
    x[:, 2].addmv_(a, b[:, 1])


def swapped(x, a, b):
    y = torch.mm(x, x.t())
    x.addmm_(a, b)
    return y, torch.mm(x, y)


def behind_what_can_fail(x, a, b):
    x.addmm_(a, b)
    return torch.linalg.inv(x @ x.t() + torch.eye(N, dtype=x.dtype) * 1000)


OTHERS = (
    *(addmv, behind_a_write, with_itself, with_its_transpose, of_itself, as_bias),
    *(transposed, twice, old_content, into_a_part, swapped, behind_what_can_fail),
)


def arguments(
    program: Program, dtype: torch.dtype = torch.float32
) -> tuple[Tensor, ...]:
    shapes = (SHAPES.get(program, (N, N)), (N, K), (K, N))
    return tuple(torch.randn(s, dtype=torch.float64).to(dtype) for s in shapes)


def text_of(compiled: Program) -> str:
    return "\n".join("\n".join(entry.kernels) for entry in framejit.inspect(compiled))


@pytest.mark.parametrize("program", PLACED + OTHERS, ids=lambda p: p.__name__)
def test_the_content_is_eagers(program: Program) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        differential.check(
            program, lambda dtype=dtype: arguments(program, dtype), backends=("native",)
        )
    integers = lambda: tuple((t * 4).long() for t in arguments(program))  # noqa: E731
    if program not in (addmm_scaled, behind_what_can_fail, twice):
        differential.check(program, integers, backends=("native",))
    compiled = framejit.compile(program)
    for _ in range(3):
        ours, theirs = arguments(program), arguments(program)
        compiled(*ours)
        program(*theirs)
        assert ours[0]._version == theirs[0]._version


def test_a_transpose_is_refused_as_by_eager() -> None:
    differential.check(to_its_transpose, lambda: arguments(to_its_transpose))


def copies(run: Callable[[], object]) -> int:
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        run()
    names = [event.name for event in profile.events()]
    return names.count("aten::copy_") + names.count("aten::clone")


@pytest.mark.parametrize("program", PLACED, ids=lambda p: p.__name__)
def test_it_is_made_there(program: Program) -> None:
    compiled = framejit.compile(program)
    args = arguments(program)
    compiled(*args)
    assert len(re.findall(r"%\d+ into %\d", text_of(compiled))) == 1, text_of(compiled)
    ours, theirs = copies(lambda: compiled(*args)), copies(lambda: program(*args))
    # A view of what was made is compared with the argument by copy_(), which sees
    # that both are the same memory.
    assert ours <= theirs + (program is baddbmm_of_a_view)


def test_a_parameter() -> None:
    weight, other = (torch.nn.Parameter(torch.ones(N, N)) for _ in range(2))

    def step(a: Tensor, b: Tensor, w: Tensor) -> None:
        with torch.no_grad():
            w.addmm_(a, b, alpha=-0.1)

    compiled = framejit.compile(step)
    place = weight.data_ptr()
    for _ in range(3):
        _, a, b = arguments(addmm)
        compiled(a, b, weight)
        step(a, b, other)
        torch.testing.assert_close(weight, other, rtol=0, atol=0)
        assert weight._version == other._version
    assert weight.data_ptr() == place
    assert " into %" in text_of(compiled)


def test_any_size() -> None:
    def program(x: Tensor, a: Tensor, b: Tensor) -> Tensor:
        x.addmm_(a, b)
        return x.relu()

    compiled = framejit.compile(program, dynamic=True)
    for n, m, k in ((3, 5, 2), (8, 4, 9), (2, 17, 3), (1, 6, 4), (5, 1, 1), (0, 3, 2)):
        torch.manual_seed(n)
        x, a, b = torch.randn(n, m), torch.randn(n, k), torch.randn(k, m)
        again = x.clone()
        for ours, theirs in ((compiled(x, a, b), program(again, a, b)), (x, again)):
            torch.testing.assert_close(ours, theirs, rtol=0, atol=0)


def test_where_calls_are_seen() -> None:
    """Under a mode the graph's own operators run; what they make is put there."""

    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            return func(*args, **(kwargs or {}))

    compiled = framejit.compile(and_a_row)
    compiled(*arguments(and_a_row))
    x, a, b = arguments(and_a_row)
    again = x.clone()
    with Seen():
        compiled(x, a, b)
    and_a_row(again, a, b)
    torch.testing.assert_close(x, again, rtol=0, atol=0)
