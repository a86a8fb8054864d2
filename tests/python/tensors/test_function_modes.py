"""Function modes, and classes of tensors that change between calls."""

import pytest
import torch
import torch._dynamo._trace_wrapped_higher_order_op  # a first import inside would break
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


# ---- vmap in a mode


class Notes(TorchFunctionMode):
    """Writes down what it is asked about, and changes one of the calls."""

    def __init__(self):
        self.seen = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        self.seen.append((getattr(func, "__name__", "?"), len(args), len(types)))
        out = func(*args, **(kwargs or {}))
        return out + 1 if func is torch.sin else out


def vmap_in_a_mode(x):
    with Notes() as mode:
        y = torch.vmap(lambda row: torch.sin(row) * 2 + row.sum())(x)
    return y, mode.seen


def vmaps_in_a_mode(x):
    def pair(a, b):
        return torch.sin(a) - b, a * b

    with Notes() as mode:
        inner = torch.vmap(pair, in_dims=(None, 0), out_dims=1)
        y, z = torch.vmap(inner, in_dims=(1, None))(x, x[0])
    return y, z, mode.seen


def vmap_in_two_modes(x):
    with Notes() as outer, Notes() as inner:
        y = torch.vmap(torch.sin)(x)
    return y, outer.seen, inner.seen


def mode_in_a_vmap(x):
    def body(row):
        with Notes():
            return torch.sin(row)

    with Passes():
        return torch.vmap(body)(x)


def closure_in_a_mode(x):
    scale = x.sum()
    with Notes() as mode:
        y = torch.vmap(lambda row: torch.sin(row) * scale)(x)
    return y, mode.seen


VMAPS = [
    vmap_in_a_mode,
    vmaps_in_a_mode,
    vmap_in_two_modes,
    mode_in_a_vmap,
    closure_in_a_mode,
]


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("fn", VMAPS, ids=lambda fn: fn.__name__)
def test_vmap_in_a_mode(fn, requires_grad):
    def args():
        return (torch.randn(3, 4, requires_grad=requires_grad),)

    fn(*args())  # torch's first vmap loads what it needs
    check(fn, args, breaks=0, graphs=1)


def test_vmap_in_a_mode_of_other_arguments():
    """Chunks and classes that are asked themselves: as eager, with a break."""

    def chunks(x):
        with Notes() as mode:
            y = torch.vmap(torch.sin, chunk_size=2)(x)
        return y, mode.seen

    def classes(x):
        with Passes():
            return torch.vmap(torch.cos)(x.as_subclass(Inherits))

    check(chunks, lambda: (torch.randn(4, 3),))
    check(classes, lambda: (torch.randn(4, 3),))


# ---- masks for attention, as Hugging Face's models make them


def causal(batch, head, query, key):
    return key <= query


def padding(mask):
    return lambda batch, head, query, key: mask[batch, key]


def all_of(*conditions):
    def condition(batch, head, query, key):
        result = query.new_ones((), dtype=torch.bool)
        for each in conditions:
            result = result & each(batch, head, query, key).to(result.device)
        return result

    return condition


def attention_mask(kept, positions, offset):
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    make = all_of(causal, padding(kept))
    for place in (3, 2, 1, 0):
        dims = [None] * 4
        dims[place] = 0
        make = torch.vmap(make, in_dims=tuple(dims), out_dims=0)
    batch, head = torch.arange(kept.shape[0]), torch.arange(1)
    keys = torch.arange(kept.shape[1])
    keys += offset
    with TransformGetItemToIndex():
        return make(batch, head, positions, keys)


def kept_keys(length):
    kept = torch.ones(2, length, dtype=torch.bool)
    kept[0, : length // 2] = False
    return kept


@pytest.mark.parametrize("backend", BACKENDS)
def test_masks_for_growing_lengths(backend):
    compiled = framejit.compile(attention_mask, backend=backend)
    framejit.reset()
    for length in (1, 7, 8, 9, 16, 17, 33):
        for queries in (length, 1):
            args = kept_keys(length), torch.arange(length - queries, length), 0
            assert_same(compiled(*args), attention_mask(*args))
    assert framejit.counters()["breaks"] == 0, framejit.events()
    assert framejit.counters()["compiles"] <= 4, framejit.events()


@pytest.mark.parametrize("requires_grad", [False, True])
def test_indexing_in_the_mode_of_masks(requires_grad):
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex

    def scores(table, index):
        def score(i, j):
            return table[i, j] * 2 + table[0, j]

        with TransformGetItemToIndex():
            inner = torch.vmap(score, in_dims=(None, 0))
            return torch.vmap(inner, in_dims=(0, None))(index, index)

    def args():
        return torch.randn(4, 4, requires_grad=requires_grad), torch.arange(3)

    check(scores, args, breaks=0, graphs=1)


class Doubling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        return out * 2 if func is torch.ones_like else out


class Tagged(torch.Tensor):
    pass


def breaks_behind(x, y):
    with Doubling():
        q = x.as_subclass(Tagged) * 2
        framejit.graph_break()
        q = q + torch.ones_like(x)
    return q.as_subclass(torch.Tensor)


def raises_behind(x, y):
    with Doubling():
        q = x.as_subclass(Tagged) * 2
        q = q + y
        q = q + torch.ones_like(x)
    return q.as_subclass(torch.Tensor)


def caught_behind(x, y):
    with Doubling(), Doubling():
        q = x.as_subclass(Tagged).sin()
        try:
            q = q + y
        except RuntimeError:
            q = q + torch.ones_like(x)
    return q.as_subclass(torch.Tensor), torch.ones_like(x)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("f", [breaks_behind, raises_behind, caught_behind])
def test_a_break_behind_a_subclass_in_a_mode(f, backend):
    """The mode is still there when its method has asked a class in between."""

    def outcome(f, size):
        try:
            return f(torch.ones(4, 4), torch.ones(size))
        except RuntimeError as error:
            return [str(error), repr(error.__context__)]

    compiled = framejit.compile(f, backend=backend)
    for size in (3, 4, 3, 4):
        expected, found = outcome(f, size), outcome(compiled, size)
        assert str(expected) == str(found)
        assert torch._C._len_torch_function_stack() == 0
