"""Inputs as objects of Python: classes, identity, views that torch keeps by a bit."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import nn

from differential import assert_same
from framejit import export as fe


class Asks(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def programs(function: Any, *args: Any, **kwargs: Any) -> list[Any]:
    """The program, and what a file has of it."""
    module = Asks(function)
    program = fe.export(module, args, kwargs)
    file = io.BytesIO()
    fe.save(program, file)
    file.seek(0)
    made = [program.module(), fe.load(file).module()]
    for run in made:
        assert_same(run(*args, **kwargs), module(*args, **kwargs), "the example")
    return made


def x() -> torch.Tensor:
    return torch.ones(3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x * 2 if type(x) is torch.Tensor else x * 3,
        lambda x: x * 2 if isinstance(x, nn.Parameter) else x * 3,
    ],
)
def test_parameters_are_no_tensors(function):
    for run in programs(function, x()):
        with pytest.raises(fe.InputError, match="exported for a tensor that is no"):
            run(nn.Parameter(x()))
    for run in programs(function, nn.Parameter(x())):
        with pytest.raises(fe.InputError, match="exported for a Parameter"):
            run(x())


class Sub(torch.Tensor):
    pass


def test_subclasses_are_refused():
    for run in programs(lambda x: x * 2, x()):
        with pytest.raises(fe.InputError, match="a subclass of Tensor"):
            run(x().as_subclass(Sub))
    with pytest.raises(TypeError, match="a subclass of Tensor"):
        fe.export(Asks(lambda x: x * 2), (x().as_subclass(Sub),))


def test_one_object_twice():
    for run in programs(lambda x, y: x * 2 if x is y else x * 3, x(), x()):
        given = x()
        with pytest.raises(fe.InputError, match="are one object"):
            run(given, given)
    for run in programs(lambda x, y: x + y, x(), x()):  # it does not ask
        given = x()
        assert_same(run(given, given), given + given, "sum")


@pytest.mark.parametrize(
    "view", [lambda: torch.ones(3, dtype=torch.cfloat).conj(), lambda: (x() * 1j).imag]
)
def test_views_by_a_bit(view):
    given = view()
    if not given.is_conj():
        given = torch.ones(3, dtype=torch.cfloat).conj().imag
    for run in programs(lambda x: x * 2, given.resolve_conj().resolve_neg().clone()):
        with pytest.raises(fe.InputError, match=r"(conjugate|negative) view: pass"):
            run(given)
    with pytest.raises(TypeError, match="view: pass"):
        fe.export(Asks(lambda x: x * 2), (given,))


@pytest.mark.parametrize(("of", "other"), [(0.0, -0.0), (-0.0, 0.0)])
def test_signs_of_zeros(of, other):
    for run in programs(lambda x, k: x * k, x(), of):
        with pytest.raises(fe.InputError, match="exported for"):
            run(x(), other)


def test_keywords_come_in_their_order():
    def first(**kwargs):
        a, b = kwargs.values()
        return a - b

    for run in programs(first, a=x(), b=x() * 5):
        with pytest.raises(fe.InputError, match="in the order"):
            run(b=x(), a=x())

    class Named(nn.Module):
        def forward(self, *, a, b):
            return a - b

    run = fe.export(Named(), (), {"a": x(), "b": x()}).module()
    assert_same(run(b=x(), a=x() * 3), x() * 2, "named ones have no order")


def test_names_that_code_has_for_others():
    def names(inf, nan, device, torch_, getattr, slice, self_):  # noqa: A002
        y = torch.where(inf > 0, float("inf"), nan) + torch.full_like(
            nan, -float("inf")
        )
        z = torch.zeros(3, device="cpu") + device
        return y, z, torch_ * float("nan"), getattr[1:] + slice[:-1] + self_

    class Names(nn.Module):
        def forward(
            self,
            inf,
            nan,
            device,
            torch,
            getattr,
            slice,
            self_,  # noqa: A002
        ):
            return names(inf, nan, device, torch, getattr, slice, self_)

    args = (*(torch.rand(3) for _ in range(6)), torch.rand(2))
    assert_same(fe.export(Names(), args).module()(*args), Names()(*args), "names")


def test_signs_of_complex_zeros():
    run = fe.export(Asks(lambda x, k: x * k), (x(), 0j)).module()
    run(x(), 0j)
    with pytest.raises(fe.InputError, match="exported for"):
        run(x(), complex(0.0, -0.0))
