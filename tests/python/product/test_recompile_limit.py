"""What counts towards the recompile limit. Calls that raise do not, in whatever way
they do, nor do calls under a mode that a capture leaves alone."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import framejit
from framejit import _C

LIMIT = int(_C.option_text("recompile_limit"))


def entries(compiled) -> int:
    return len(framejit.inspect(compiled))


def hits(compiled) -> int:
    return sum(entry.hits for entry in framejit.inspect(compiled))


def outcome(function, args):
    try:
        return function(*args)
    except Exception as error:
        return type(error), str(error)


def assert_same(found, expected):
    assert type(found) is type(expected), (found, expected)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected)
    else:
        assert found == expected


# ---- calls that raise: function, arguments that raise for every i >= 0, and
# arguments that do not


def raises(x, i):
    if i >= 0:
        raise ValueError(i)
    return x + 1


def raises_behind_work(x, i):
    y = x.cos()
    if i >= 0:
        raise ValueError(i)
    return y


def raises_a_string(x, s):
    y = x.cos() + len(s)
    if s != "good":
        raise ValueError(s)
    return y


def wrong_shapes(x, y):
    return x.cos() @ y


def wrong_view(x, n):
    return x.reshape(n, n)


def wrong_cat(x, y):
    return torch.cat([x, y])


def wrong_type(x, y):
    return x.cos() + y


def wrong_dtype(x, y):
    return x.cos() @ y


def wrong_dim(x, dim):
    return x.cos().sum(dim)


def wrong_keyword(x, name):
    return torch.sum(x, **{name: 0})


def tensor_index(x, i):
    return x[i]


def list_index(x, i):
    return x * [1.0, 2.0][i]


def key(x, d):
    return x * d["k"]


def attribute(x, o):
    return x * o.k


def zero_division(x, i):
    return x * (1 / i)


def assertion(x, n):
    assert x.size(0) == n, n
    return x * 2


def in_a_callee(x, i):
    def scale(i):
        if i >= 0:
            raise KeyError(i)
        return 2.0

    return x * scale(i)


def through_finally(x, i):
    try:
        return x * [1.0, 2.0][i]
    finally:
        x = x + 1


def from_a_handler(x, i):
    try:
        return x * [1.0, 2.0][i]
    except IndexError as error:
        raise ValueError(i) from error


def in_a_region(x, i):
    with torch.no_grad():
        if i >= 0:
            raise RuntimeError(i)
        return x * 2


def on_data(x, i):
    if x.sum() > 0:
        raise ValueError(i)
    return x * 2


def behind_a_break(x, i):
    print(end="")
    if i >= 0:
        raise ValueError(i)
    return x * 2


def behind_a_break_and_work(x, s):
    y = x * len(s)
    print(end="")
    if s != "good":
        raise ValueError(s)
    return y * 2


def at_a_break(x, s):
    y = x * len(s)
    print(end=None if s == "good" else 1.5)
    return y * 2


def unpacking(x, items):
    a, b = items
    return x * a + b


def calls_what_is_none(x, g):
    return x * g()


def exhausted(x, items):
    return x * next(iter(items))


def generator(x, i):
    def numbers():
        yield 1.0
        if i >= 0:
            raise RuntimeError(i)
        yield 2.0

    for n in numbers():
        x = x * n
    return x


def out_of_range(x, index):
    return torch.nn.functional.embedding(index, x)


def item(x, i):
    return x * torch.ones(i + 2).item()


def linear(x, layer):
    return layer(x)


class Holder:
    pass


def holder(i):
    made = Holder()
    setattr(made, f"a{i}", i)
    return made


def two():
    return 2.0


GOOD_HOLDER = Holder()
GOOD_HOLDER.k = 2.0
LINEAR = nn.Linear(3, 4)
T = torch.ones(3)

RAISING = [
    (raises, lambda i: (T, i), lambda: (T, -1)),
    (raises_behind_work, lambda i: (T, i), lambda: (T, -1)),
    (raises_a_string, lambda i: (T, f"{i}"), lambda: (T, "good")),
    (
        wrong_shapes,
        lambda i: (torch.ones(2, 3 + i), torch.ones(50 + 2 * i, 4)),
        lambda: (torch.ones(2, 3), torch.ones(3, 4)),
    ),
    (wrong_view, lambda i: (torch.ones(4), i + 5), lambda: (torch.ones(4), 2)),
    (
        wrong_cat,
        lambda i: (torch.ones(2, i + 2), torch.ones(2, i + 3, 4)),
        lambda: (torch.ones(2, 3), torch.ones(2, 3)),
    ),
    (wrong_type, lambda i: (T, f"a{i}"), lambda: (T, T)),
    (
        wrong_dtype,
        lambda i: (
            torch.ones(i + 2, i + 2),
            torch.ones(i + 2, i + 2, dtype=torch.int64),
        ),
        lambda: (torch.ones(2, 2), torch.ones(2, 2)),
    ),
    (wrong_dim, lambda i: (T, i + 5), lambda: (T, 0)),
    (wrong_keyword, lambda i: (T, f"dim{i}"), lambda: (T, "dim")),
    (tensor_index, lambda i: (T, 10 + i), lambda: (T, 0)),
    (list_index, lambda i: (T, 10 + i), lambda: (T, 0)),
    (key, lambda i: (T, {f"a{i}": 1}), lambda: (T, {"k": 2.0})),
    (attribute, lambda i: (T, holder(i)), lambda: (T, GOOD_HOLDER)),
    (zero_division, lambda i: (torch.ones(i + 1), 0), lambda: (T, 2)),
    (assertion, lambda i: (T, i + 5), lambda: (T, 3)),
    (in_a_callee, lambda i: (T, i), lambda: (T, -1)),
    (through_finally, lambda i: (T, i + 5), lambda: (T, 1)),
    (from_a_handler, lambda i: (T, i + 5), lambda: (T, 1)),
    (in_a_region, lambda i: (T, i), lambda: (T, -1)),
    (on_data, lambda i: (T * (i + 1), i), lambda: (-T, 1)),
    (behind_a_break, lambda i: (T, i), lambda: (T, -1)),
    (behind_a_break_and_work, lambda i: (T, f"{i}"), lambda: (T, "good")),
    (at_a_break, lambda i: (T, f"{i}"), lambda: (T, "good")),
    (unpacking, lambda i: (T, [1.0] * (i + 3)), lambda: (T, [1.0, 2.0])),
    (calls_what_is_none, lambda i: (T, None), lambda: (T, two)),
    (exhausted, lambda i: (T, [] if i % 2 else ()), lambda: (T, [2.0])),
    (generator, lambda i: (T, i), lambda: (T, -1)),
    (
        out_of_range,
        lambda i: (torch.ones(i + 2, 3), torch.tensor([i + 5])),
        lambda: (torch.ones(4, 3), torch.tensor([2])),
    ),
    (item, lambda i: (T, i), lambda: (T, -1)),
    (
        linear,
        lambda i: (torch.ones(2, 5 + i), LINEAR),
        lambda: (torch.ones(2, 3), LINEAR),
    ),
]


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize(
    ("function", "bad", "good"), RAISING, ids=[row[0].__name__ for row in RAISING]
)
def test_calls_that_raise_do_not_count(function, bad, good, backend):
    compiled = framejit.compile(function, backend=backend)
    for i in range(3 * LIMIT):
        expected = outcome(function, bad(i))
        assert isinstance(expected, tuple), "it is to raise"
        assert_same(outcome(compiled, bad(i)), expected)
    # Calls that return are compiled: at once, or after one of each part that ran as
    # it is, where so many raised before.
    for _ in range(3):
        assert_same(compiled(*good()), function(*good()))
    made, compiles = entries(compiled), _C.counters()["compiles"]
    before = hits(compiled)
    assert_same(compiled(*good()), function(*good()))
    # The next good call compiled nothing, and an entry answered it.
    assert entries(compiled) == made and _C.counters()["compiles"] == compiles
    assert hits(compiled) == before + 1
    # Others that raise leave it there.
    for i in range(3 * LIMIT, 6 * LIMIT):
        outcome(compiled, bad(i))
    compiles = _C.counters()["compiles"]
    assert_same(compiled(*good()), function(*good()))
    assert _C.counters()["compiles"] == compiles


def attempts() -> int:
    counters = _C.counters()
    return counters["compiles"] + counters["breaks"]


@pytest.mark.parametrize(
    ("function", "bad"),
    [row[:2] for row in RAISING],
    ids=[r[0].__name__ for r in RAISING],
)
def test_calls_that_raise_are_soon_captured_rarely(function, bad):
    compiled = framejit.compile(function)
    for i in range(20):
        outcome(compiled, bad(i))
    before = attempts()
    for i in range(20, 220):
        assert outcome(compiled, bad(i)) == outcome(function, bad(i))
    # Of each of two parts: after 17 calls, 33, 65 ... (two breaks and entries each)
    assert attempts() <= before + 16


class Stop(Exception):
    pass


class Counting(nn.Module):
    """A hook that counts and stops the forward, as who wants features does it."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.step, self.stops = 0, True
        self.layer.register_forward_hook(self.hook)

    def hook(self, module, args, output):
        self.step += 1
        self.features = output
        if self.stops:
            raise Stop(f"at {self.step}")

    def forward(self, x):
        return self.layer(x).relu()


def test_a_hook_that_counts_and_stops():
    net = Counting()
    compiled = framejit.compile(net)
    x = torch.ones(2, 3)
    for i in range(100):
        if i == 30:
            before = attempts()
        with pytest.raises(Stop, match=f"at {i + 1}$"):
            compiled(x)
        torch.testing.assert_close(
            net.features[1], net.layer.weight.sum(1) + net.layer.bias
        )
    # Of each of three parts (the module's call, its forward, the layer's).
    assert attempts() <= before + 12
    # When it no longer stops, it is compiled.
    net.stops = False
    for _ in range(4):
        compiled(x)
    made = attempts()
    expected = (net.layer.weight.sum(1) + net.layer.bias).relu()
    for _ in range(5):
        torch.testing.assert_close(compiled(x)[0], expected)
    assert attempts() == made and net.step == 100 + 4 + 5


def test_every_second_call_raises():
    def f(x, it):
        y = x.cos()
        if it % 2:
            raise ValueError(f"at {it}")
        return y * 2

    compiled = framejit.compile(f)
    for it in range(1, 100, 2):
        if it == 41:
            before = attempts()
        with pytest.raises(ValueError, match=f"at {it}$"):
            compiled(T, it)
        assert_same(compiled(T, 0), f(T, 0))
    assert attempts() <= before + 4
    assert entries(compiled) == 1 and hits(compiled) == 50


@pytest.mark.parametrize("values", [range(20), [0.5 * i for i in range(20)]])
def test_what_a_call_that_raises_does_not_read(values):
    def features(x, step):
        x.cos()
        raise Stop

    compiled = framejit.compile(features)
    for value in values:
        with pytest.raises(Stop):
            compiled(T, value)
    assert attempts() == 1


def test_it_is_said_once_that_few_calls_are_captured():
    compiled = framejit.compile(raises)
    for i in range(100):
        outcome(compiled, (T, i))
    said = [text for _, text, *_ in framejit.events() if "each in another way" in text]
    assert len(said) == 1 and "FJ406" in said[0] and "raises (" in said[0]


@pytest.mark.parametrize("function", [raises, on_data], ids=lambda f: f.__name__)
def test_where_a_call_must_be_one_graph_each_is_captured(function):
    compiled = framejit.compile(function, fullgraph=True)
    for i in range(40):
        with pytest.raises(framejit.GraphBreakError):
            compiled(T, i)


def test_a_call_that_raises_again_costs_no_capture():
    compiled = framejit.compile(raises)
    outcome(compiled, (T, 3))
    breaks = _C.counters()["breaks"]
    for _ in range(5):
        outcome(compiled, (T, 3))
    assert _C.counters()["breaks"] == breaks
    outcome(compiled, (T, 4))
    assert _C.counters()["breaks"] == breaks + 1


def test_what_raised_once_may_return_later():
    flag = {"bad": True}

    def f(x):
        if flag["bad"]:
            raise ValueError
        return x + 1

    compiled = framejit.compile(f)
    for _ in range(3):
        with pytest.raises(ValueError):
            compiled(T)
    flag["bad"] = False
    assert torch.equal(compiled(T), T + 1)
    assert entries(compiled) == 1
    flag["bad"] = True
    with pytest.raises(ValueError):
        compiled(T)


def test_a_module_that_raises_at_first(recwarn):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(3, 3)
            self.ready = False

        def forward(self, x):
            if not self.ready:
                raise RuntimeError("not yet")
            return self.layer(x)

    net = Net()
    compiled = framejit.compile(net)
    for n in range(2 * LIMIT):
        with pytest.raises(RuntimeError, match="not yet"):
            compiled(torch.ones(n + 1, 3))
    net.ready = True
    x = torch.ones(2, 3)
    for _ in range(2):  # the first may run as it is
        assert torch.equal(compiled(x), net(x))
    compiles = _C.counters()["compiles"]
    compiled(x)
    assert compiles >= 1 and _C.counters()["compiles"] == compiles


def test_calls_that_return_do_count():
    def f(x, s):
        return x + len(s)

    compiled = framejit.compile(f)
    for i in range(3 * LIMIT):
        compiled(T, "a" * i)
    assert entries(compiled) == LIMIT


# ---- states of the thread that no capture supports


class PassingFunctionMode(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class PassingDispatchMode(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def default_device():
    before = torch.get_default_device()
    torch.set_default_device("meta")
    try:
        yield
    finally:
        torch.set_default_device(None if before.type == "cpu" else before)


def under(manager):
    def call(compiled, x):
        with manager():
            return compiled(x)

    return call


def saved_hooks():
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t)


STATES = {
    "flop counter": under(lambda: FlopCounterMode(display=False)),
    "dispatch mode": under(PassingDispatchMode),
    "function mode": under(PassingFunctionMode),
    "default device": under(default_device),
    "no torch function": under(torch._C.DisableTorchFunction),
    "no torch function of classes": under(torch._C.DisableTorchFunctionSubclass),
    "saved tensor hooks": under(saved_hooks),
    "save on cpu": under(torch.autograd.graph.save_on_cpu),
    "vmap": lambda compiled, x: torch.vmap(compiled)(x),
    "grad": lambda compiled, x: torch.func.grad(lambda y: compiled(y).sum())(x),
    "vjp": lambda compiled, x: torch.func.vjp(compiled, x)[0],
    "jvp": lambda compiled, x: torch.func.jvp(compiled, (x,), (x,))[0],
    "functionalize": lambda compiled, x: torch.func.functionalize(compiled)(x),
    "jit trace": lambda compiled, x: torch.jit.trace(
        lambda y: compiled(y), (x,), check_trace=False
    )(x),
    "make_fx": lambda compiled, x: torch.fx.experimental.proxy_tensor.make_fx(
        lambda y: compiled(y)
    )(x)(x),
}


@pytest.mark.parametrize("state", STATES)
def test_calls_under_a_mode_do_not_count(state):
    def f(x):
        return (x * 2.0).sin()

    compiled = framejit.compile(f)
    x = torch.arange(6.0).reshape(3, 2)
    expected = STATES[state](f, x)
    for _ in range(3 * LIMIT):
        found = STATES[state](compiled, x)
        assert_same(found, expected)
    # Nothing was compiled for it ...
    assert entries(compiled) == 0
    # ... but other calls are, and go on to be when the mode comes back.
    assert_same(compiled(x), f(x))
    assert entries(compiled) == 1
    STATES[state](compiled, x)
    before = hits(compiled)
    compiled(x)
    assert entries(compiled) == 1 and hits(compiled) == before + 1


@pytest.mark.parametrize("state", ["flop counter", "saved tensor hooks"])
def test_a_mode_entered_in_the_function_does_not_count(state):
    manager = {
        "flop counter": lambda: FlopCounterMode(display=False),
        "saved tensor hooks": saved_hooks,
    }[state]

    def f(x, enter):
        with manager() if enter else contextlib.nullcontext():
            y = x * 2.0
            print(end="")
            z = y.sin()
        return z

    compiled = framejit.compile(f)
    for _ in range(3 * LIMIT):
        assert_same(compiled(T, True), f(T, True))
    for _ in range(2):
        assert_same(compiled(T, False), f(T, False))
    compiles = _C.counters()["compiles"]
    compiled(T, False)
    assert compiles > 0 and _C.counters()["compiles"] == compiles


# ---- the turns of one call

ROWS = [torch.full((2,), float(i)) for i in range(60)]


def by_index(rows):
    total = 0.0
    for i in range(len(rows)):
        total += (rows[i] * 2).sum().item()
    return total


def by_key(rows):
    found = {}
    for i, row in enumerate(rows):
        found[i] = (row * 2).sum().item()
    return found


def by_text(rows):
    found = {}
    for i, row in enumerate(rows):
        found[f"k{i}"] = row.sum().item()
    return found


def of_a_dict(rows):
    named = {str(i): row for i, row in enumerate(rows)}
    return {name: row.norm().item() for name, row in named.items()}


def while_it_lasts(rows):
    i, found = 0, []
    while i < len(rows):
        found.append(rows[i].sum().item() * i)
        i += 1
    return found


@pytest.mark.parametrize(
    "f",
    [by_index, by_key, by_text, of_a_dict, while_it_lasts],
    ids=lambda f: f.__name__,
)
def test_turns_of_one_call_count(f):
    compiled = framejit.compile(f)
    for _ in range(3):
        assert compiled(ROWS) == f(ROWS)
    # Each place where the function goes on has its own limit.
    assert _C.counters()["compiles"] <= 4 * (LIMIT + 1)
