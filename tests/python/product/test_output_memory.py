"""Memory of large outputs is used again once nobody holds it, and is a tensor's
like any other."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import threading

import pytest
import torch
from torch import Tensor

import framejit
from framejit import _C

pytestmark = pytest.mark.usefixtures("machine_kernels")

LARGE = 1 << 17  # elements, of 4 bytes
MOST_WAITING = 256 << 20


@framejit.compile
def twice(x: Tensor) -> Tensor:
    return x * 2 + 0


def large(value: float, elements: int = LARGE) -> Tensor:
    return torch.full((elements,), value)


before_test = 0  # in use by what other tests of this process still hold


@pytest.fixture(autouse=True)
def count_from_here():
    global before_test
    gc.collect()
    framejit.reset()
    before_test = _C.block_bytes()[0]


def used() -> int:
    """Bytes, of what this test holds."""
    return _C.block_bytes()[0] - before_test


def waiting() -> int:
    return _C.block_bytes()[1]


def test_memory_of_an_output_that_died_is_used_again():
    x = large(1.0)
    place = twice(x).data_ptr()
    held = twice(x)
    assert held.data_ptr() == place
    assert twice(x).data_ptr() != place
    assert used() == held.nbytes


def test_small_outputs_are_the_allocators():
    before = _C.block_bytes()
    held = twice(large(1.0, 1000))
    assert _C.block_bytes() == before
    assert held[0] == 2


@pytest.mark.parametrize("elements", [32767, 32768, 32769, 33001, 1_000_003])
def test_sizes_are_those_asked_for(elements):
    for _ in range(2):
        out = twice(large(3.0, elements))
        assert out.untyped_storage().nbytes() == elements * 4
        assert out.data_ptr() % 64 == 0
        assert torch.equal(out, large(6.0, elements))
        del out


def test_outputs_that_are_held_stay():
    held = [twice(large(float(i))) for i in range(8)]
    views = [twice(large(float(i)))[5:100:7] for i in range(8)]
    arrays = [twice(large(float(i))).numpy() for i in range(8)]
    storages = [twice(large(float(i))).untyped_storage() for i in range(8)]
    for _ in range(8):
        twice(large(-1.0))
    for i in range(8):
        assert (held[i] == 2 * i).all()
        assert (views[i] == 2 * i).all()
        assert (arrays[i] == 2 * i).all()
        assert (torch.tensor([], dtype=torch.float32).set_(storages[i]) == 2 * i).all()


def test_what_a_backward_needs_stays():
    @framejit.compile
    def loss(x: Tensor) -> Tensor:
        return (x.exp().tanh() * x).sum()

    inputs = [large(i / 8).requires_grad_() for i in range(4)]
    losses = [loss(x) for x in inputs]
    for _ in range(3):
        loss(large(5.0).requires_grad_()).backward()
    for x, value in zip(inputs, losses, strict=True):
        value.backward()
        again = x.detach().clone().requires_grad_()
        (again.exp().tanh() * again).sum().backward()
        torch.testing.assert_close(x.grad, again.grad)


def test_a_resize_is_as_eager_does_it():
    eager = large(1.0) * 2
    out = twice(large(1.0))
    assert out.untyped_storage().resizable() == eager.untyped_storage().resizable()
    for size in (2 * LARGE, 10, LARGE, 0, 7):
        for tensor in (out, eager):
            tensor.resize_(size)
        assert out.untyped_storage().nbytes() == eager.untyped_storage().nbytes()
    out, eager = twice(large(1.0)), large(1.0) * 2
    for size in (8 * LARGE, 400, 0):
        for tensor in (out, eager):
            tensor.untyped_storage().resize_(size)
            assert tensor.untyped_storage().nbytes() == size
        kept = min(size // 4, LARGE)
        assert (torch.empty(0).set_(out.untyped_storage())[:kept] == 2).all()
    assert used() == 0


def test_a_grown_tensor_keeps_its_elements():
    out = twice(large(4.0))
    out.resize_(3 * LARGE)
    assert (out[:LARGE] == 8).all()
    twice(large(1.0))
    assert (out[:LARGE] == 8).all()


def share(out: Tensor) -> Tensor:
    assert out.share_memory_().is_shared()
    return out


def set_data(out: Tensor) -> Tensor:
    holder = torch.zeros(3)
    holder.data = out
    return holder


def set_storage(out: Tensor) -> Tensor:
    return torch.empty(0).set_(out.untyped_storage(), 0, out.shape)


@pytest.mark.parametrize(
    "use",
    [
        share,
        set_data,
        set_storage,
        copy.deepcopy,
        lambda out: pickle.loads(pickle.dumps(out)),
        lambda out: torch.from_dlpack(out.detach()),
        lambda out: torch.from_numpy(out.numpy()),
        torch._lazy_clone,
    ],
    ids=["share", "data", "set", "deepcopy", "pickle", "dlpack", "numpy", "lazy"],
)
def test_it_is_a_tensor_like_any_other(use):
    kept = use(twice(large(3.0)))
    for _ in range(3):
        twice(large(-1.0))
    assert torch.equal(kept, large(6.0))


def test_reset_gives_back_what_waits():
    held = twice(large(1.0))
    twice(large(2.0))
    assert waiting() > 0
    framejit.reset()
    assert waiting() == 0
    assert used() == held.nbytes
    del held
    assert used() == 0


def test_no_more_waits_than_was_in_use():
    twice(large(1.0))
    once = waiting()
    for elements in range(LARGE, 3 * LARGE, LARGE // 4):
        out = twice(large(1.0, elements))
        assert used() + waiting() <= max(once, 2 * out.nbytes)
        del out
    most = waiting()
    several = [twice(large(1.0)) for _ in range(20)]
    del several
    for elements in range(LARGE, 4 * LARGE, LARGE // 8):
        twice(large(1.0, elements))
    assert waiting() <= max(most, 20 * LARGE * 4)


def test_what_waits_is_bounded():
    x = large(1.0, 12 << 20)
    held = [twice(x) for _ in range(6)]
    assert used() == 6 * x.nbytes
    del held
    assert 0 < waiting() <= MOST_WAITING


def test_large_intermediates_wait_too():
    elements = 9 << 20

    @framejit.compile
    def rows(x: Tensor, y: Tensor) -> Tensor:
        return (torch.mm(x, y) + 1).sum(0)

    x, y = torch.ones(elements // 512, 2), torch.ones(2, 1024)
    with torch.no_grad():
        for _ in range(2):
            assert (rows(x, y) == 3 * x.shape[0]).all()
    assert waiting() >= 4 * elements


@pytest.mark.parametrize("threads", [2, 8])
def test_threads_do_not_share_what_they_hold(threads):
    with torch.no_grad():
        twice(large(0.0))
    failures: list[int] = []

    def work(number: int) -> None:
        with torch.no_grad():
            for turn in range(200):
                value = float(number * 1000 + turn)
                out = twice(large(value, LARGE // 2 + number % 3 * 4096))
                if not (out == 2 * value).all():
                    failures.append(number)

    started = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    assert not failures
    assert used() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_has_its_own():
    held, x = twice(large(1.0)), large(2.0)
    twice(x)
    # While another thread may be in the middle of it.
    stop = threading.Event()

    def work() -> None:
        while not stop.is_set():
            twice(large(7.0))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                torch.set_num_threads(1)  # OpenMP's others are not here
                ok = (held == 2).all()
                for _ in range(3):
                    ok &= (twice(x) == 4).all()
                os._exit(0 if ok else 1)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        thread.join()
    assert (held == 2).all()


def test_a_profiler_sees_the_memory():
    x = large(1.0)
    twice(x)

    def allocated() -> int:
        activities = [torch.profiler.ProfilerActivity.CPU]
        with torch.profiler.profile(
            activities=activities, profile_memory=True
        ) as profile:
            held = twice(x)
        assert held[0] == 2
        return sum(
            event.self_cpu_memory_usage
            for event in profile.events()
            if event.self_cpu_memory_usage > 0
        )

    assert LARGE * 4 <= allocated() < LARGE * 8
