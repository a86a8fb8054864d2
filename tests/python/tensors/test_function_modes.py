"""Function modes, and classes of tensors that change between calls."""

import pytest
import torch
import torch.nn.functional as F
from tensor_classes import HANDLED, Doubles, Handled, Inherits, Plain, WithData, of
from torch.overrides import (
    TorchFunctionMode,
)

import framejit
from differential import BACKENDS, assert_same, check, opaque

# ---- modes


class Times(TorchFunctionMode):
    def __init__(self, by=2):
        self.by = by
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append((getattr(func, "__name__", "?"), len(types)))
        out = func(*args, **(kwargs or {}))
        return out * self.by if func is torch.ones else out


class Passes(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def in_mode(x):
    with Times(3) as mode:
        y = torch.ones(3, 4) + x
        z = F.relu(y)
    return y, z, mode.seen, torch.ones(2)


def in_two_modes(x):
    outer = Times(3)
    with outer:
        with Passes():
            with Times(5):
                y = torch.ones(3, 4) + x
        z = torch.ones(3, 4) - x
    return y, z, outer.seen, x.shape


def mode_and_class(x):
    with Times(3) as mode:
        y = x + torch.ones(4)
    return y, mode.seen


@pytest.mark.parametrize("cls", [torch.Tensor, Inherits, Doubles, Plain])
@pytest.mark.parametrize("fn", [in_mode, in_two_modes, mode_and_class])
def test_mode(fn, cls):
    check(fn, of(cls), breaks=0, graphs=1)


def test_mode_with_a_break():
    def f(x):
        y = torch.ones(4) + x
        with Times(3):
            y = y + torch.ones(4)
            opaque()
            y = y + torch.ones(4)
        return y + torch.ones(4)

    check(f, lambda: (torch.randn(3, 4),))


def test_mode_left_by_an_exception():
    def f(x):
        try:
            with Times(3):
                y = x + torch.ones(4)
                raise KeyError("k")
        except KeyError as error:
            return y, str(error), torch.ones(4)

    check(f, lambda: (torch.randn(3, 4),), breaks=0)


def test_mode_around_the_call():
    def f(x):
        return torch.ones(4) + x

    for backend in BACKENDS:
        compiled = framejit.compile(f, backend=backend)
        x = torch.randn(4)
        for _ in range(2):
            assert_same(compiled(x), f(x))
            with Times(3):
                inside = compiled(x)
            assert_same(inside, torch.ones(4) * 3 + x)
            with torch._C.DisableTorchFunctionSubclass():
                assert_same(compiled(x), f(x))
                assert_same(compiled(x.as_subclass(Doubles)), f(x))
            assert_same(compiled(x.as_subclass(Doubles)), f(x.as_subclass(Doubles)))


# ---- what changes between calls


def test_class_is_guarded():
    for backend in BACKENDS:
        compiled = framejit.compile(lambda x: x + 1, backend=backend)
        x = torch.randn(4)
        for cls in [torch.Tensor, Doubles, Inherits, Plain, torch.Tensor, Doubles]:
            y = x.as_subclass(cls)
            assert_same(compiled(y), y + 1)


def test_torch_function_is_guarded():
    class Changing(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):
            return super().__torch_function__(func, types, args, kwargs or {})

    def times_four(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {})) * 4

    before = Changing.__dict__["__torch_function__"]
    for backend in BACKENDS:
        compiled = framejit.compile(lambda x: x * 2, backend=backend)
        x = torch.ones(4).as_subclass(Changing)
        for change in [
            before,
            classmethod(times_four),
            torch._C._disabled_torch_function_impl,
            before,
        ]:
            Changing.__torch_function__ = change
            for _ in range(2):
                assert_same(compiled(x), x * 2)
        Changing.__torch_function__ = before


def test_code_of_torch_function_is_guarded():
    def one(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {})) * 3

    def two(cls, func, types, args=(), kwargs=None):
        with torch._C.DisableTorchFunctionSubclass():
            return func(*args, **(kwargs or {})) * 5

    class Recoded(torch.Tensor):
        __torch_function__ = classmethod(one)

    compiled = framejit.compile(lambda x: x + 1, backend="eager")
    x = torch.ones(4).as_subclass(Recoded)
    assert_same(compiled(x), torch.full((4,), 6.0))
    one.__code__ = two.__code__
    assert_same(compiled(x), torch.full((4,), 10.0))


def test_table_is_guarded():
    compiled = framejit.compile(lambda x: torch.exp(x), backend="eager")
    x = torch.ones(4).as_subclass(Handled)
    assert_same(compiled(x), torch.exp(x))
    HANDLED[torch.exp] = lambda x: torch.zeros(2)
    try:
        assert_same(compiled(x), torch.zeros(2))
    finally:
        del HANDLED[torch.exp]
    assert_same(compiled(x), torch.exp(x))


def test_attribute_is_guarded():
    compiled = framejit.compile(lambda x: x * x.meta["n"], backend="eager")
    for n in [2, 3, 2, 5]:
        x = WithData(torch.ones(4), meta={"n": n})
        assert_same(compiled(x), x * n)
    assert compiled(WithData(torch.ones(4), meta={"n": 7})).meta == {"n": 7}


def test_method_of_the_class_is_guarded():
    compiled = framejit.compile(lambda x: x.scaled(), backend="eager")
    x = WithData(torch.ones(4), meta={})
    assert_same(compiled(x), x * 3)
    before = WithData.scaled
    WithData.scale = 4.0
    assert_same(compiled(x), x * 4)
    WithData.scaled = lambda self: self + 100
    try:
        assert_same(compiled(x), x + 100)
    finally:
        WithData.scaled = before
        WithData.scale = 3.0
    assert_same(compiled(x), x * 3)
