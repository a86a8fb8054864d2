"""Objects that somebody sees die: `__del__`, weak references, generators.

Each program is run plain and compiled, several times, and writes down what
happens in which order; finalizers read and change tensors that the code around
them uses, so that one that runs early or late gives another number.
"""

from __future__ import annotations

import gc
import sys
import threading
import weakref

import pytest
import torch
from torch import nn

import framejit

LOG: list[object] = []
BUFFER = torch.zeros(2)


class Guarded:
    """Says when it dies, what it finds, and leaves something."""

    def __init__(self, name="guarded"):
        self.name = name

    def __del__(self):
        LOG.append((self.name, BUFFER.tolist()))
        BUFFER.add_(1)

    def value(self):
        return 2.0


class Seen:
    """Its death is seen by a weak reference callback."""

    def __init__(self, name="seen"):
        self.name = name


WATCH: list[object] = []


def watched(name="seen"):
    seen = Seen(name)
    WATCH.append(weakref.ref(seen, lambda _: (LOG.append(name), BUFFER.add_(1))))
    return seen


class Holder:
    def __init__(self, make):
        self.held = make("held")
        self.items = [make("zero"), make("one"), make("two")]
        self.table = {"a": make("a"), "b": make("b")}
        self.nested = {"deep": [(make("deep"),)]}
        self.count = 0


# ---- programs: (x, holder) -> result


def overwrites_attribute(x, h):
    y = x + BUFFER
    h.held = None
    return y * 2 + BUFFER


def deletes_attribute(x, h):
    y = x + BUFFER
    del h.held
    return y * 2 + BUFFER


def overwrites_item(x, h):
    y = x + BUFFER
    h.items[1] = 3
    return y * 2 + BUFFER


def deletes_item(x, h):
    y = x + BUFFER
    del h.items[0]
    return y * 2 + BUFFER


def pops_item(x, h):
    y = x + BUFFER
    last = h.items.pop()
    y = y + BUFFER
    del last
    return y * 2 + BUFFER


def pops_and_drops(x, h):
    y = x + BUFFER
    h.items.pop()
    return y * 2 + BUFFER


def clears_list(x, h):
    y = x + BUFFER
    h.items.clear()
    return y * 2 + BUFFER


def cuts_list(x, h):
    y = x + BUFFER
    h.items[1:] = []
    return y * 2 + BUFFER


def deletes_key(x, h):
    y = x + BUFFER
    del h.table["a"]
    return y * 2 + BUFFER


def overwrites_key(x, h):
    y = x + BUFFER
    h.table["a"] = 1
    return y * 2 + BUFFER


def pops_key(x, h):
    y = x + BUFFER
    h.table.pop("b")
    return y * 2 + BUFFER


def clears_dict(x, h):
    y = x + BUFFER
    h.table.clear()
    return y * 2 + BUFFER


def drops_what_holds_it(x, h):
    y = x + BUFFER
    h.nested = {}
    return y * 2 + BUFFER


def updates_dict(x, h):
    y = x + BUFFER
    h.__dict__.update(held=1)
    return y * 2 + BUFFER


def local_deleted(x, h):
    a = h.held
    h.held = None
    y = x + BUFFER
    del a
    return y * 2 + BUFFER


def local_overwritten(x, h):
    a = h.held
    h.held = None
    y = x + BUFFER
    a = 1
    return y * 2 + BUFFER + a


def made_here(x, h):
    a = h.make("made")
    y = x + BUFFER
    del a
    return y * 2 + BUFFER


def made_and_dropped(x, h):
    y = x + BUFFER
    h.make("made")
    return y * 2 + BUFFER


def made_and_used(x, h):
    y = x + BUFFER
    name = h.make("made").name
    return y * 2 + BUFFER + len(name)


def made_in_a_callee(x, h):
    def work(x):
        a = h.make("made")
        y = x + BUFFER
        return y, a.name

    y, name = work(x)
    return y * 2 + BUFFER + len(name)


def lives_to_the_end(x, h):
    a = h.make("made")
    y = x + BUFFER
    framejit.graph_break()
    return y * 2 + BUFFER + len(a.name)


def across_a_break(x, h):
    a = h.make("made")
    y = x + BUFFER
    framejit.graph_break()
    y = y * 2 + BUFFER
    del a
    return y * 3 + BUFFER


def in_a_container_across_a_break(x, h):
    held = [h.make("made"), 1]
    y = x + BUFFER
    framejit.graph_break()
    y = y * 2 + BUFFER
    held[0] = None
    return y * 3 + BUFFER + len(held)


def in_a_loop(x, h):
    y = x
    for i in range(3):
        a = h.make(f"turn {i}")
        y = y + BUFFER + len(a.name)
    return y * 2 + BUFFER


def in_a_cell(x, h):
    a = h.make("made")

    def drop():
        nonlocal a
        a = None

    y = x + BUFFER
    framejit.graph_break()
    drop()
    return y * 2 + BUFFER


def by_an_exception(x, h):
    y = x + BUFFER
    try:
        a = h.make("made")
        raise ValueError(a.name)
    except ValueError as error:
        y = y + BUFFER + len(str(error))
    a = None
    return y * 2 + BUFFER


def raises_with(a, text):
    raise ValueError(text)


def by_the_exception_of_a_callee(x, h):
    """Whose frame, which the traceback keeps, holds it."""
    y = x + BUFFER
    try:
        raises_with(h.make("made"), "text")
    except ValueError:
        y = y + BUFFER
        LOG.append("caught")
        y = y * 3
    return y * 2 + BUFFER


def counted(x, h):
    h.count += 1
    return x * h.count + BUFFER


def deletes_its_argument(a, y):
    LOG.append("in")
    del a
    LOG.append("out")
    return y + BUFFER


def overwrites_its_argument(a, y):
    LOG.append("in")
    a = None
    LOG.append("out")
    return y + BUFFER if a is None else y


def beneath(y, h):
    LOG.append("beneath")
    y = deletes_its_argument(h.make("made"), y)
    LOG.append("done")
    return y


def without_tensors(h):
    LOG.append("no tensors")
    deletes_its_argument(h.make("made"), 1)
    LOG.append("done")


def argument_deleted(x, h):
    y = deletes_its_argument(h.make("made"), x + BUFFER)
    LOG.append("after")
    return y * 2


def argument_overwritten(x, h):
    y = overwrites_its_argument(h.make("made"), x + BUFFER)
    LOG.append("after")
    return y * 2


def argument_by_name_deleted(x, h):
    y = deletes_its_argument(y=x + BUFFER, a=h.make("made"))
    LOG.append("after")
    return y * 2


def argument_deleted_further_down(x, h):
    y = beneath(x + BUFFER, h)
    LOG.append("after")
    return y * 2


def argument_deleted_without_tensors(x, h):
    y = x + BUFFER
    without_tensors(h)
    LOG.append("after")
    return y * 2 + BUFFER


def argument_deleted_in_a_callback(x, h):
    y = x + BUFFER
    parts = list(map(lambda i: deletes_its_argument(h.make(f"made {i}"), y), (1, 2)))
    LOG.append("after")
    return parts[0] + parts[1]


PROGRAMS = [
    overwrites_attribute,
    deletes_attribute,
    overwrites_item,
    deletes_item,
    pops_item,
    pops_and_drops,
    clears_list,
    cuts_list,
    deletes_key,
    overwrites_key,
    pops_key,
    clears_dict,
    drops_what_holds_it,
    updates_dict,
    local_deleted,
    local_overwritten,
    made_here,
    made_and_dropped,
    made_and_used,
    made_in_a_callee,
    lives_to_the_end,
    across_a_break,
    in_a_container_across_a_break,
    in_a_loop,
    in_a_cell,
    by_an_exception,
    by_the_exception_of_a_callee,
    counted,
    argument_deleted,
    argument_overwritten,
    argument_by_name_deleted,
    argument_deleted_further_down,
    argument_deleted_without_tensors,
    argument_deleted_in_a_callback,
]


def run(fn, make, x):
    """The result, the log, and the buffer, of one call on a new holder."""
    LOG.clear()
    BUFFER.zero_()
    holder = Holder(make)
    holder.make = make
    result = fn(x, holder)
    LOG.append("returned")
    left = len(LOG), BUFFER.tolist()
    del holder
    gc.collect()
    log = list(LOG)
    LOG.clear()
    WATCH.clear()
    return result, log, left


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("make", [Guarded, watched], ids=["del", "weakref"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_what_dies_dies_where_the_program_says(program, make, backend):
    compiled = framejit.compile(program, backend=backend)
    for turn in range(3):
        x = torch.full((2,), float(turn))
        expected = run(program, make, x)
        found = run(compiled, make, x)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:] == expected[1:], turn
    assert framejit.counters()["failures"] == 0


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_a_finalizer_that_appears_later(program):
    """Compiled for objects without one, then called with some that have."""
    compiled = framejit.compile(program, backend="eager")
    x = torch.ones(2)
    for make in (Seen, Seen, Guarded, watched, Seen, Guarded):
        expected = run(program, make, x)
        found = run(compiled, make, x)
        torch.testing.assert_close(found[0], expected[0])
        assert found[1:] == expected[1:], make


def test_objects_without_finalizers_cost_no_break():
    compiled = framejit.compile(overwrites_attribute, fullgraph=True, backend="eager")
    for program in (overwrites_attribute, clears_list, deletes_key, in_a_loop):
        compiled = framejit.compile(program, fullgraph=True, backend="eager")
        for _ in range(3):
            run(compiled, Seen, torch.ones(2))
    assert framejit.counters()["recompiles"] == 0


def test_dead_tensors_are_dead_to_weak_references():
    def deletes(x):
        y = x * 2
        r = weakref.ref(y)
        before = r() is y
        del y
        return x + 1, before, r() is None

    def overwrites(x):
        y = x * 2
        r = weakref.ref(y)
        y = y + 1
        return y * 2, r() is None

    def clears(x):
        y = [x * 2]
        r = weakref.ref(y[0])
        y.clear()
        return x + 1, r() is None

    def keeps(x):
        y = x * 2
        r = weakref.ref(y)
        z = [y]
        del y
        return x + 1, r() is z[0]

    for fn in (deletes, overwrites, clears, keeps):
        for backend in ("eager", "native"):
            compiled = framejit.compile(fn, backend=backend)
            for _ in range(3):
                assert compiled(torch.ones(2))[1:] == fn(torch.ones(2))[1:], fn


def test_dead_objects_are_dead_to_weak_references():
    def look(x):
        a = Seen()
        r = weakref.ref(a)
        framejit.graph_break()
        before = r() is a
        y = x + 1
        del a
        return y * 2, before, r() is None

    compiled = framejit.compile(look, backend="eager")
    for _ in range(3):
        result, before, after = compiled(torch.ones(2))
        assert before and after
        assert result.tolist() == [4.0, 4.0]


# ---- collections


class Cycle:
    """Garbage that only a collection finds; its finalizer computes."""

    made = 0
    gone = 0
    sums = torch.zeros(2)
    wrong: list[object] = []

    def __init__(self):
        self.me = self
        Cycle.made += 1

    def __del__(self):
        Cycle.gone += 1
        y = torch.ones(2, requires_grad=True)
        z = (y * 2).sum()
        if not z.requires_grad or z.item() != 4.0 or not torch.is_grad_enabled():
            Cycle.wrong.append((z, torch.is_grad_enabled()))
        Cycle.sums.add_(1)


@pytest.fixture
def eager_collector():
    gc.collect()
    Cycle.made = Cycle.gone = 0
    Cycle.sums.zero_()
    Cycle.wrong.clear()
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    yield
    gc.set_threshold(*threshold)


def garbage_program(x):
    for _ in range(5):
        Cycle()
        x = x.sin() + x.cos()
    framejit.graph_break()
    with torch.no_grad():
        for _ in range(5):
            x = x * 2 - x
    return x.relu()


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("grad", [False, True])
def test_collections_are_none_of_a_compilations_business(
    eager_collector, backend, grad
):
    x = torch.linspace(-1, 1, 4, requires_grad=grad)
    for _ in range(3):
        framejit.reset()
        compiled = framejit.compile(garbage_program, backend=backend)
        expected = garbage_program(x)
        for _ in range(3):
            for _ in range(10):
                Cycle()
            torch.testing.assert_close(compiled(x), expected)
    gc.collect()
    assert Cycle.gone == Cycle.made > 0
    assert Cycle.sums.tolist() == [Cycle.gone] * 2 and not Cycle.wrong
    assert gc.isenabled()
    assert framejit.counters()["failures"] == 0


def test_a_backend_that_collects(eager_collector):
    def backend(gm, inputs):
        Cycle()
        gc.collect()
        return gm.forward

    compiled = framejit.compile(garbage_program, backend=backend)
    x = torch.linspace(-1, 1, 4)
    torch.testing.assert_close(compiled(x), garbage_program(x))
    gc.collect()
    assert Cycle.gone == Cycle.made and not Cycle.wrong


def test_the_collector_is_as_the_program_left_it():
    def f(x):
        was = gc.isenabled()
        gc.disable()
        y = x + 1
        off = gc.isenabled()
        gc.enable()
        return y * 2, was, off, gc.isenabled()

    compiled = framejit.compile(f, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[1:] == (True, False, True)
    gc.disable()
    try:
        compiled = framejit.compile(lambda x: x * 3 + 1)
        compiled(torch.ones(3))
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_reference_counts():
    def f(x):
        a = Seen()
        y = x + 1
        framejit.graph_break()
        return y, sys.getrefcount(a)

    compiled = framejit.compile(f, backend="eager")
    for _ in range(3):
        assert compiled(torch.ones(2))[1] == f(torch.ones(2))[1]


# ---- other threads


def test_other_threads_compute_while_one_compiles():
    """Forward, backward and finalizers on threads that compile nothing."""
    stop = threading.Event()
    wrong: list[object] = []
    turns = [0, 0]

    class Dropped:
        def __del__(self):
            if (torch.ones(2) * 2).sum().item() != 4.0:
                wrong.append("finalizer")

    def work(number):
        weight = torch.ones(4, requires_grad=True)
        while not stop.is_set():
            Dropped()
            y = (weight * 2).sin().sum()
            y.backward()
            grad = weight.grad
            weight.grad = None
            if not torch.allclose(grad, 2 * torch.cos(torch.full((4,), 2.0))):
                wrong.append(grad)
            turns[number] += 1

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    for thread in threads:
        thread.start()
    try:
        net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)])
        x = torch.ones(2, 4)
        for _ in range(15):
            framejit.reset()
            compiled = framejit.compile(net)
            out = compiled(x)
            torch.testing.assert_close(out, net(x))
            out.sum().backward()
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        sys.setswitchinterval(interval)
    assert not wrong and min(turns) > 0
    assert framejit.counters()["failures"] == 0
