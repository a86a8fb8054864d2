"""When a call compiles, when it does not, and what happens to entries: order,
limit, threads, forks, objects that die."""

from __future__ import annotations

import gc
import os
import sys
import threading
import weakref

import pytest
import torch
from torch import nn

import framejit
from framejit import _C


def compiles() -> int:
    return _C.counters()["compiles"]


@pytest.fixture(autouse=True)
def counted():
    _C.clear_events()


# ---- attributes that change at each call


@pytest.mark.parametrize("route", ["attribute", "dict", "class", "module", "list"])
def test_a_counter_does_not_compile_again(route):
    class Holder:
        n = 0

    holder, table, module, items = Holder(), {"n": 0, "k": 2.0}, nn.Identity(), [0, 2.0]
    module.n = 0

    def f(x):
        if route == "attribute":
            holder.n += 1
        elif route == "dict":
            table["n"] += 1
            x = x * table["k"]
        elif route == "class":
            Holder.n += 1
        elif route == "module":
            module.n += 1
            x = module(x)
        else:
            items[0] += 1
            x = x * items[1]
        return x + 1

    compiled = framejit.compile(f)
    x = torch.ones(2)
    expected = f(x)
    for _ in range(4):
        compiled(x)
    if route == "class":
        # A write to a class is a break; what is compiled is the rest.
        assert torch.equal(compiled(x), expected)
        return
    warm = compiles()
    for _ in range(200):
        assert torch.equal(compiled(x), expected)
    assert compiles() == warm <= 3
    count = {
        "attribute": holder.n,
        "dict": table["n"],
        "module": module.n,
        "list": items[0],
    }[route]
    assert count == 205


def test_a_counter_that_is_used_is_a_symbol():
    class Holder:
        n = 0

    holder = Holder()

    def f(x):
        holder.n += 1
        return x * holder.n

    compiled = framejit.compile(f)
    for i in range(1, 40):
        assert compiled(torch.ones(2)).tolist() == [i, i]
    assert compiles() <= 4


def test_a_schedule_in_the_forward_of_a_module():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear, self.steps = nn.Linear(2, 2), 0

        def forward(self, x):
            self.steps += 1
            if self.steps > 10:
                x = x * 2
            return self.linear(x)

    torch.manual_seed(0)
    model = Model()
    compiled = framejit.compile(model)
    x = torch.ones(1, 2)
    for step in range(1, 30):
        actual = compiled(x)
        assert model.steps == step
        expected = model.linear(x * 2 if step > 10 else x)
        torch.testing.assert_close(actual, expected)
    assert compiles() <= 5


# ---- numbers that change


def test_a_changed_int_becomes_symbolic():
    def f(x, n):
        return x * n + x[: n - 1].sum()

    compiled = framejit.compile(f)
    x = torch.arange(40.0)
    for n in range(2, 30):
        torch.testing.assert_close(compiled(x, n), f(x, n))
    assert compiles() <= 3


def test_a_changed_size_becomes_symbolic():
    def f(x):
        return x.relu().sum(0) * x.shape[0]

    compiled = framejit.compile(f)
    for n in range(2, 30):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), f(x))
    assert compiles() <= 2


def test_branches_on_a_symbolic_int_are_guarded():
    def f(x, n):
        if n > 10:
            return x * n
        return x - n

    compiled = framejit.compile(f)
    x = torch.ones(3)
    for n in (3, 4, 5, 11, 12, 6, 30, 2, 10, 11):
        assert torch.equal(compiled(x, n), f(x, n)), n
    assert compiles() <= 4


def _random_numbers(x, n):
    for _ in range(3):
        n = n * 6364136223846793005 + 1442695040888963407
    return x + n % 7, n


LARGE_INTS = {
    "random_numbers": _random_numbers,
    "opposite": lambda x, n: (x + 1, -n, abs(n), n - 5),
    "power": lambda x, n: (x + 1, n**3, n**2 * n),
    "condition": lambda x, n: x * 2 if n * n * n > 5 else x * 3,
    "float": lambda x, n: (x * (n * n * 1.5), n * n / 3),
    "operand": lambda x, n: x * (n * n) + (n + 2**61),
    "sizes": lambda x, n: (x.sum(), x.shape[0] ** 8 * x.shape[0]),
}


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("name", LARGE_INTS)
def test_integers_beyond_64_bits(name, dynamic):
    program = LARGE_INTS[name]

    def outcome(f, *args):
        try:
            return repr(f(*args))
        except Exception as error:
            return type(error).__name__

    compiled = framejit.compile(program, backend="eager", dynamic=dynamic)
    values = [3, 5, -7, 2**31, -(2**40), 2**53 + 1, 2**62, -(2**62), 2**63 - 1]
    values += [-(2**63), 2**64, 10**30, 4, 2**32 + 1, 1, 0]
    for n, value in enumerate(values):
        x = torch.ones([2, 3, 5, 4000, 7][n % 5])
        assert outcome(compiled, x, value) == outcome(program, x, value), value


@pytest.mark.parametrize("route", ["attribute", "item"])
def test_an_integer_grows_beyond_64_bits(route):
    class Holder:
        n = 3

    def f(x, holder, items):
        if route == "attribute":
            holder.n = holder.n * 3
        else:
            items[0] = items[0] * 3
        return x + 1

    compiled = framejit.compile(f, backend="eager")
    holder, items, x = Holder(), [3], torch.ones(2)
    for _ in range(60):
        compiled(x, holder, items)
    assert (holder.n if route == "attribute" else items[0]) == 3**61


@pytest.mark.parametrize("values", [(0.5, 0.25, 2.0, -0.0, float("inf"), 1e300)])
def test_changed_floats_give_the_right_answer(values):
    def f(x, lr):
        if lr > 1.0:
            return x * lr
        return x - lr * 2

    compiled = framejit.compile(f)
    x = torch.ones(3)
    for value in values * 2:
        assert torch.equal(compiled(x, value), f(x, value))


# ---- the limit, and the order


def test_recompile_limit_is_logged_once_and_the_original_runs():
    def f(x, tag):
        return x + len(tag)

    compiled = framejit.compile(f)
    x = torch.zeros(2)
    limit = int(_C.option_text("recompile_limit"))
    for i in range(limit + 10):
        assert compiled(x, "a" * i).tolist() == [i, i]
    assert compiles() == limit
    lines = [t for c, t in _C.recent_events() if t.startswith("recompile_limit")]
    assert len(lines) == 1, lines
    assert "tag == 'aaaaaaa'" in lines[0] or "tag: expected" in lines[0], lines[0]
    # The entries there are still serve.
    hits = sum(e.hits for e in framejit.inspect(compiled))
    compiled(x, "aa")
    assert sum(e.hits for e in framejit.inspect(compiled)) == hits + 1


def test_an_int_used_as_an_index_specialises_and_says_so_once():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(12))
            self.scales = [float(n) for n in range(12)]

        def forward(self, x, i):
            return self.layers[i](x) * self.scales[i]

    model, x = Model(), torch.ones(2)
    compiled = framejit.compile(model)
    limit = int(_C.option_text("recompile_limit"))
    for i in [*range(12), *range(12)]:
        assert torch.equal(compiled(x, i), model(x, i)), i
    assert compiles() == limit
    (line,) = [t for c, t in _C.recent_events() if t.startswith("recompile_limit")]
    assert "i == 7, i = 8" in line and "args" not in line and "index" in line, line


def test_entries_are_ordered_by_last_use():
    def f(x, tag):
        return x + len(tag)

    compiled = framejit.compile(f)
    x = torch.zeros(2)
    for tag in ("a", "bb", "ccc"):
        compiled(x, tag)
    compiled(x, "a")
    first = framejit.inspect(compiled)[0]
    assert any("'a'" in guard for guard in first.guards)
    compiled(x, "bb")
    first = framejit.inspect(compiled)[0]
    assert any("'bb'" in guard for guard in first.guards)


def test_equal_layers_called_through_one_helper_are_one_entry():
    def apply(layer, x):
        return layer(x).relu()

    compiled = framejit.compile(apply)
    layers = [nn.Linear(3, 3) for _ in range(24)]
    x = torch.ones(2, 3)
    for _ in range(3):
        for layer in layers:
            torch.testing.assert_close(compiled(layer, x), apply(layer, x))
    assert compiles() == 1


# ---- threads and forks


def run_threads(count, body):
    errors = []
    barrier = threading.Barrier(count)

    def run(number):
        try:
            barrier.wait()
            body(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(count)]
    old = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for t in threads:
            t.start()
        for t in threads:
            t.join(60)
        assert not any(t.is_alive() for t in threads), "deadlock"
    finally:
        sys.setswitchinterval(old)
    if errors:
        raise errors[0]


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_threads_compile_and_call_one_function(backend):
    def f(x, n):
        return (x * n).cos() + len(str(n))

    compiled = framejit.compile(f, backend=backend)
    tags = ["a", "bb", "ccc"]

    def g(x, tag):
        return x.sin() * len(tag)

    compiled_g = framejit.compile(g, backend=backend)

    def body(number):
        for i in range(30):
            x = torch.full((4,), float(i))
            torch.testing.assert_close(compiled(x, 3), f(x, 3))
            tag = tags[(i + number) % 3]
            torch.testing.assert_close(compiled_g(x, tag), g(x, tag))

    run_threads(4, body)
    entries = framejit.inspect(compiled)
    assert len(entries) == 1
    assert len(framejit.inspect(compiled_g)) == 3


def test_threads_have_their_own_state():
    weight = torch.ones(3, requires_grad=True)
    compiled = framejit.compile(lambda x: x * weight)

    def body(number):
        for _ in range(50):
            with torch.set_grad_enabled(number % 2 == 0):
                assert compiled(torch.ones(3)).requires_grad == (number % 2 == 0)

    run_threads(4, body)


def test_one_thread_resets_while_others_call():
    compiled = framejit.compile(lambda x: x * 2 + 1)

    def body(number):
        for i in range(40):
            if number == 0:
                framejit.reset()
            assert compiled(torch.full((2,), float(i))).tolist() == [2.0 * i + 1] * 2

    run_threads(4, body)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_calls_and_compiles():
    compiled = framejit.compile(lambda x: x * 2 + 1)
    x = torch.ones(3)
    compiled(x)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            ok = compiled(x).tolist() == [3, 3, 3]
            ok = ok and compiled(x.double()).tolist() == [3, 3, 3]
            ok = ok and framejit.compile(lambda x: x - 1)(x).tolist() == [0, 0, 0]
            code = 0 if ok else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert compiled(x.double()).tolist() == [3, 3, 3]


def child_compiles(compiled, x):
    """In a child of fork(): it compiles, and the collector is as the parent has it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            before = compiles()
            ok = gc.isenabled() and compiled(x).tolist() == [3, 3, 3]
            ok = ok and compiles() == before + 1
            code = 0 if ok else 2
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_another_thread_compiles():
    begun, forked = threading.Event(), threading.Event()

    def backend(gm, inputs):
        begun.set()
        forked.wait(60)
        return gm.forward

    x = torch.ones(3)
    slow = framejit.compile(lambda x: x + 1, backend=backend)
    thread = threading.Thread(target=slow, args=(x,))
    thread.start()
    assert begun.wait(60)
    try:
        assert child_compiles(framejit.compile(lambda x: x * 2 + 1), x)
    finally:
        forked.set()
        thread.join()
    assert gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_fork_while_another_thread_captures():
    """Wherever in its capture it is; how often it is met is a matter of luck."""
    lines = [f"    x = x.sin() + x.cos() * {i}" for i in range(1500)]
    names = {}
    exec("\n".join(["def f(x):", *lines, "    return x"]), names)
    x = torch.ones(3)
    thread = threading.Thread(target=framejit.compile(names["f"]), args=(x,))
    thread.start()
    answers = []
    while thread.is_alive():
        answers.append(child_compiles(framejit.compile(lambda x: x * 2 + 1), x))
    thread.join()
    assert answers and all(answers)
    assert gc.isenabled()


# ---- objects that die


def entries_of(function) -> int:
    return len(framejit.inspect(function))


@pytest.mark.parametrize("uses", [1, 2, 5, 20])
def test_an_entry_goes_with_the_class_it_was_made_for(uses, caplog):
    def f(x, o):
        return x * o.scale()

    compiled = framejit.compile(f)
    x = torch.ones(2)

    def make(k):
        class C:
            def scale(self):
                return k

        return C()

    refs = []
    for k in range(20):
        o = make(float(k))
        refs.append(weakref.ref(type(o)))
        for _ in range(uses):
            assert compiled(x, o).tolist() == [k, k]
        del o
        gc.collect()
    assert sum(r() is not None for r in refs) == 0
    assert entries_of(compiled) == 0
    said = [r.getMessage() for r in caplog.records if "FJ501" in r.getMessage()]
    if uses == 20:
        # Never the limit: dead entries are no entries.
        assert compiles() == 20
        assert not said
    else:
        # None answered more than a few: few calls are compiled from then on.
        assert compiles() <= 10
        assert len(said) == 1
        assert "compiled anew every few calls" in said[0]


def test_what_was_compiled_anew_is_tried_again():
    def f(x, fn):
        return list(map(fn, [x]))[0]

    compiled = framejit.compile(f)
    x = torch.ones(2)
    for k in range(100):
        assert compiled(x, lambda x, k=k: x + k).tolist() == [1 + k, 1 + k]
    assert 8 < compiles() < 14
    before = compiles()

    def lasting(x):
        return x * 3

    for _ in range(300):
        assert compiled(x, lasting).tolist() == [3, 3]
    assert compiles() == before + 1
    assert entries_of(compiled) == 1


def test_an_entry_goes_with_the_function_it_inlined():
    def f(x, g):
        return g(x) + 1

    compiled = framejit.compile(f)
    x = torch.ones(2)
    big = torch.ones(1000)
    alive = weakref.ref(big)

    def make(t):
        return lambda x: x * t.sum()

    g = make(big)
    assert compiled(x, g).tolist() == [1001, 1001]
    del big, g
    gc.collect()
    assert alive() is None
    assert entries_of(compiled) == 0


def test_a_compiled_function_in_a_cycle_is_collected():
    class Model:
        def __init__(self):
            def step(x):
                return self.scale(x) + 1

            self.weight = torch.ones(3)
            self.step = framejit.compile(step)

        def scale(self, x):
            return x * self.weight

    model = Model()
    assert model.step(torch.ones(3)).tolist() == [2, 2, 2]
    weight = weakref.ref(model.weight)
    del model
    gc.collect()
    assert weight() is None


def test_a_module_is_not_kept_alive_by_its_entries():
    def f(x, m):
        return m(x)

    compiled = framejit.compile(f)
    m = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    parameter = weakref.ref(m[0].weight)
    for _ in range(3):
        compiled(torch.ones(1, 2), m)
    del m
    gc.collect()
    assert parameter() is None
    # The entry serves the next module.
    before = compiles()
    compiled(torch.ones(1, 2), nn.Sequential(nn.Linear(2, 2), nn.ReLU()))
    assert compiles() == before


def test_dying_objects_while_their_entry_runs():
    class C:
        def scale(self):
            return 2.0

    holder = [C()]
    del C

    def f(x, holder):
        o = holder.pop()
        y = x * o.scale()
        del o
        gc.collect()
        return y + 1

    compiled = framejit.compile(f)
    for k in range(5):
        x = torch.ones(2)
        assert compiled(x, holder).tolist() == [3, 3]
        holder.append(type("C", (), {"scale": lambda self: 2.0})())


def test_a_second_entry_adds_one_predicate_of_its_own():
    compiled = framejit.compile(lambda x: x * 2, dynamic=False)
    inputs = [torch.ones(3), torch.ones(3, 2)]
    for x in inputs * 50:
        assert torch.equal(compiled(x), x * 2)
    assert compiles() == 2
    entries = framejit.inspect(compiled)
    assert [entry.predicates for entry in entries] == [1, 1]
    assert sum(entry.hits for entry in entries) == 100
