"""The invariants of capture, each attacked."""

from __future__ import annotations

import gc
import sys
import weakref

import pytest
import torch

import framejit
from differential import BACKENDS, check
from framejit import _C

# ---- 1: a capture changes nothing the program can see


def test_failed_capture_leaves_no_trace(lenient):
    class Box:
        pass

    box = Box()
    box.items, box.count, box.seen = [], 0, {}

    def f(box, x):
        box.count += 1
        box.items.append(x)
        box.seen["x"] = x
        x.add_(1)
        return x * 2

    compiled = framejit.compile(f)
    # An internal error at every instruction of the capture in turn.
    for instruction in range(1, 40):
        framejit.reset()
        _C.inject_failure_at(instruction)
        try:
            x = torch.zeros(3)
            before = (box.count, len(box.items))
            rng = torch.get_rng_state()
            result = compiled(box, x)
        finally:
            _C.inject_failure_at(0)
        # The original ran, exactly once.
        assert result.tolist() == [2, 2, 2] and x.tolist() == [1, 1, 1]
        assert (box.count, len(box.items)) == (before[0] + 1, before[1] + 1)
        assert box.items[-1] is x and box.seen["x"] is x
        assert torch.equal(rng, torch.get_rng_state())
        assert torch.is_grad_enabled()


def test_capture_draws_no_random_numbers():
    @framejit.compile(backend="eager")
    def f(x):
        return x + torch.rand(3)

    torch.manual_seed(7)
    expected = [torch.rand(3) for _ in range(3)]
    torch.manual_seed(7)
    for value in expected:
        torch.testing.assert_close(f(torch.zeros(3)), value)


# ---- 2: every fact used is guarded

SCALE = 2.0


def test_global_is_guarded():
    global SCALE
    f = framejit.compile(lambda x: x * SCALE)
    x = torch.ones(2)
    assert f(x).tolist() == [2, 2]
    SCALE = 3.0
    assert f(x).tolist() == [3, 3]
    SCALE = 2.0
    assert f(x).tolist() == [2, 2]


def test_closure_default_and_attribute_are_guarded():
    class Config:
        depth = 1

    config, factor = Config(), 1.0

    def f(x, k=2.0):
        return x * factor * k * config.depth

    compiled = framejit.compile(f)
    x = torch.ones(1)
    assert compiled(x).item() == 2
    factor = 5.0
    assert compiled(x).item() == 10
    f.__defaults__ = (3.0,)
    assert compiled(x).item() == 15
    Config.depth = 2
    assert compiled(x).item() == 30
    config.depth = 3
    assert compiled(x).item() == 45
    del config.depth
    assert compiled(x).item() == 30


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.double(),
        lambda x: x.clone().requires_grad_(),
        lambda x: x.t(),
        lambda x: x[:2],
        lambda x: torch.nn.Parameter(x.clone()),
        lambda x: x.unsqueeze(0),
    ],
)
def test_tensor_metadata_is_guarded(change):
    def f(x):
        return (
            x.reshape(-1) * 2,
            x.dtype,
            x.requires_grad,
            x.stride(),
            type(x).__name__,
        )

    compiled = framejit.compile(f)
    x = torch.randn(3, 3)
    compiled(x)
    for value in (change(x), x, change(x)):
        actual, expected = compiled(value), f(value)
        torch.testing.assert_close(actual[0], expected[0])
        assert actual[1:] == expected[1:]


def test_grad_mode_is_guarded():
    f = framejit.compile(lambda x: x * 2)
    x = torch.ones(2, requires_grad=True)
    assert f(x).requires_grad
    with torch.no_grad():
        assert not f(x).requires_grad
    assert f(x).requires_grad


def test_list_length_and_dict_order_are_guarded():
    check_list = framejit.compile(lambda xs: sum(xs[1:], xs[0]))
    for n in (2, 3, 2, 4):
        xs = [torch.full((2,), float(i)) for i in range(n)]
        assert check_list(xs).tolist() == [n * (n - 1) / 2] * 2
    in_order = framejit.compile(lambda d: torch.stack([v for v in d.values()]))
    a, b = torch.zeros(1), torch.ones(1)
    assert in_order({"a": a, "b": b}).flatten().tolist() == [0, 1]
    assert in_order({"b": b, "a": a}).flatten().tolist() == [1, 0]


def test_code_of_called_function_is_guarded():
    def helper(x):
        return x + 1

    f = framejit.compile(lambda x: helper(x))
    x = torch.zeros(1)
    assert f(x).item() == 1
    helper.__code__ = (lambda x: x + 10).__code__
    assert f(x).item() == 10


def test_same_storage_is_guarded():
    def f(a, b):
        a.add_(1)
        return a + b

    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(f, backend=backend)
        for _ in range(2):
            a, b = torch.zeros(2), torch.zeros(2)
            assert compiled(a, b).tolist() == [1, 1]
            c = torch.zeros(2)
            assert compiled(c, c).tolist() == [2, 2]
            base = torch.zeros(4)
            assert compiled(base[:2], base[1:3]).tolist() == [2, 1]


# ---- 3: execution is transactional


@pytest.mark.parametrize("backend", BACKENDS)
def test_error_after_mutation(backend):
    @framejit.compile(backend=backend)
    def f(x, index):
        x.add_(1)
        return x[index]

    good, bad = torch.tensor([0]), torch.tensor([7])
    x = torch.zeros(3)
    assert f(x, good).tolist() == [1]
    with pytest.raises(IndexError, match="index 7 is out of bounds"):
        f(x, bad)
    assert x.tolist() == [2, 2, 2]
    assert f(x, good).tolist() == [3]


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_state_after_error(backend):
    def f(x, index):
        return (x + torch.rand(3))[index]

    compiled = framejit.compile(f, backend=backend)
    outcomes = []
    for call in (f, compiled):
        torch.manual_seed(5)
        x = torch.zeros(3)
        call(x, torch.tensor([0]))
        with pytest.raises(IndexError):
            call(x, torch.tensor([9]))
        outcomes.append(torch.rand(2))
    assert torch.equal(*outcomes)


def test_effects_happen_once_and_in_order():
    def f(log, x):
        log.append("first")
        y = x * 2
        log.append(y)
        if y.sum() > 0:
            log.append("positive")
        log.append("last")
        return y

    def make():
        return [], torch.ones(2)

    check(f, make)


# ---- 4: a bug inside FrameJIT runs the original code, or raises when strict


def test_internal_error_runs_original(lenient):
    f = framejit.compile(lambda x: x + 1)
    _C.inject_failure_at(1)
    try:
        assert f(torch.zeros(1)).item() == 1
    finally:
        _C.inject_failure_at(0)
    assert framejit.counters()["failures"] == 1
    assert any("inject" in text for _, text in framejit.events())


def test_internal_error_raises_when_strict():
    f = framejit.compile(lambda x: x + 1)
    _C.inject_failure_at(1)
    try:
        with pytest.raises(RuntimeError):
            f(torch.zeros(1))
    finally:
        _C.inject_failure_at(0)


# ---- no leak


def resident_kb():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4


def leak_round(number):
    size = 2 + number % 5

    def f(d, scale):
        y = d["x"] * scale
        if y.sum() > 0:
            y = y + 1
        return [y, d]

    compiled = framejit.compile(f)
    x = torch.ones(size, requires_grad=number % 2 == 0)
    marker = type("Marker", (), {})()
    d = {"x": x, "marker": marker}
    out = compiled(d, float(number % 3))
    if out[0].requires_grad:
        out[0].sum().backward()
    return weakref.ref(x), weakref.ref(marker)


def test_nothing_outlives_its_function():
    refs = []
    for number in range(10):
        refs += leak_round(number)
    framejit.reset()
    gc.collect()
    assert [ref() for ref in refs] == [None] * len(refs)


def test_ten_thousand_calls_stay_flat():
    def f(x, k):
        y = x * k
        if y.sum() > 0:
            return y + 1
        return y - 1

    compiled = framejit.compile(f)

    def rounds(count):
        for number in range(count):
            compiled(torch.ones(2 + number % 3), number % 2 + 1)
            if number % 50 == 49:
                framejit.reset()
        gc.collect()

    rounds(3000)
    blocks, memory = sys.getallocatedblocks(), resident_kb()
    rounds(10000)
    assert sys.getallocatedblocks() - blocks < 500
    assert resident_kb() - memory < 8 * 1024


def test_bases_are_guarded():
    class First:
        def scale(self):
            return 2.0

    class Second:
        def scale(self):
            return 5.0

    class Base(First):
        pass

    class Child(Base):
        def scale(self):
            return super().scale() * 10

    f = framejit.compile(lambda child, x: x * child.scale())
    x = torch.ones(1)
    assert f(Child(), x).item() == 20
    Base.__bases__ = (Second,)
    assert f(Child(), x).item() == 50


def test_forward_mode_tangents_are_kept():
    import torch.autograd.forward_ad as fwad

    f = framejit.compile(lambda x: x * x)
    x = torch.full((3,), 2.0)
    f(x)
    with fwad.dual_level():
        dual = fwad.make_dual(x, torch.ones(3))
        value, tangent = fwad.unpack_dual(f(dual))
        assert tangent.tolist() == [4, 4, 4]
    assert f(x).tolist() == [4, 4, 4]


@pytest.mark.parametrize("backend", BACKENDS)
def test_unused_operation_still_raises(backend):
    def f(x, index):
        x[index]
        return x * 2

    compiled = framejit.compile(f, backend=backend)
    x = torch.ones(3)
    assert compiled(x, torch.tensor([1])).tolist() == [2, 2, 2]
    with pytest.raises(IndexError):
        compiled(x, torch.tensor([5]))
