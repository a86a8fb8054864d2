"""Recurrent layers whose length or batch changes: one native graph for all of them, in
which the layer is a call of torch's own and the rest is lowered."""

from __future__ import annotations

import contextlib
import functools
import gc
import threading
import weakref

import pytest
import torch
from torch import nn

import framejit


@pytest.fixture(autouse=True)
def one_thread():
    """oneDNN's threads wait for each other at each step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


LAYERS = {
    "lstm": lambda: nn.LSTM(6, 5, batch_first=True),
    "lstm-double": lambda: nn.LSTM(6, 5).double(),
    "lstm-no-bias": lambda: nn.LSTM(6, 5, bias=False),
    "lstm-stacked": lambda: nn.LSTM(6, 5, 2, batch_first=True, bidirectional=True),
    "lstm-proj": lambda: nn.LSTM(6, 5, 2, proj_size=3, bidirectional=True),
    "lstm-dropout": lambda: nn.LSTM(6, 5, 2, dropout=0.5),
    "gru": lambda: nn.GRU(6, 5, batch_first=True),
    "gru-bfloat16": lambda: nn.GRU(6, 5, batch_first=True).bfloat16(),
    "gru-dropout": lambda: nn.GRU(6, 5, 3, dropout=0.25, bidirectional=True),
    "gru-no-bias": lambda: nn.GRU(6, 5, bias=False, bidirectional=True),
    "rnn-relu": lambda: nn.RNN(6, 5, 2, nonlinearity="relu", bidirectional=True),
    "rnn-tanh": lambda: nn.RNN(6, 5, batch_first=True),
}
# (batch or length, the other)
CHANGES = {
    "first": [(3, 4), (5, 4), (6, 4), (2, 4), (9, 4)],
    "second": [(3, 4), (3, 5), (3, 6), (3, 2), (3, 9)],
    "both": [(3, 4), (5, 7), (7, 5), (4, 4), (9, 2)],
}


def model(m, x):
    output, state = m((x * 1.5).tanh() + x)
    states = state if isinstance(state, tuple) else (state,)
    return (output.exp().softmax(-1) * output).sum(), output, states


def type_of(m):
    return next(m.parameters()).dtype


def outcome(run, m, x, gradients=True):
    torch.manual_seed(x.shape[0])
    loss, output, states = run(m, x)
    found = [loss, output, *states]
    if gradients:
        total = loss + sum(s.sin().sum() for s in states)
        found += torch.autograd.grad(total, [x, *m.parameters()])
    return found, [t.stride() for t in found], torch.get_rng_state()


def entries_of(compiled):
    return [e for entry in framejit.inspect(compiled) for e in entry.walk()]


def check_native(compiled, most):
    entries = entries_of(compiled)
    assert [e.fallback_reason for e in entries] == [""] * len(entries)
    assert [str(b) for e in entries for b in e.breaks] == []
    assert len(entries) <= most


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_one_native_graph_for_all_sizes(name, change, dynamic):
    m = LAYERS[name]()
    framejit.reset()
    compiled = framejit.compile(model, dynamic=dynamic)
    for a, b in CHANGES[change]:
        x = torch.randn(a, b, 6, dtype=type_of(m), requires_grad=True)
        expected, actual = outcome(model, m, x), outcome(compiled, m, x)
        torch.testing.assert_close(actual, expected)
    check_native(compiled, 1 if dynamic else 2)
    assert "framejit.recurrent" in str(framejit.inspect(compiled)[0].forward_graph)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize("name", LAYERS)
@pytest.mark.filterwarnings("ignore:LSTM with projections")
def test_without_gradients(name, mode):
    m = LAYERS[name]()
    framejit.reset()
    compiled = framejit.compile(model)
    for a, b in CHANGES["both"]:
        x = torch.randn(a, b, 6, dtype=type_of(m))
        with mode():
            expected = outcome(model, m, x, gradients=False)
            actual = outcome(compiled, m, x, gradients=False)
        torch.testing.assert_close(actual, expected)
    check_native(compiled, 2)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_many_lengths_are_two_entries(name):
    m = LAYERS[name]()
    framejit.reset()
    compiled = framejit.compile(model)
    for length in range(5, 15):
        outcome(compiled, m, torch.randn(3, length, 6, requires_grad=True))
    check_native(compiled, 2)


WITH = {
    "all": lambda m, x: [x, *m.parameters()],
    "input": lambda m, x: [x],
    "weights": lambda m, x: list(m.parameters()),
    "biases": lambda m, x: [p for n, p in m.named_parameters() if "bias" in n],
    "of the state": lambda m, x: [m.weight_hh_l0],
}


@pytest.mark.parametrize("wanted", WITH)
@pytest.mark.parametrize("name", ["lstm", "lstm-double", "gru", "rnn-relu"])
def test_gradients_of_some(name, wanted):
    m = LAYERS[name]()
    framejit.reset()
    compiled = framejit.compile(model, dynamic=True)
    for a, b in CHANGES["both"]:
        x = torch.randn(a, b, 6, dtype=type_of(m))
        leaves = WITH[wanted](m, x)
        for p in m.parameters():
            p.requires_grad_(any(p is leaf for leaf in leaves))
        x.requires_grad_(any(x is leaf for leaf in leaves))
        found = []
        for run in (model, compiled):
            loss, output, states = run(m, x)
            found.append(torch.autograd.grad(loss, leaves, retain_graph=True))
            # Nothing comes to the other results.
            found[-1] += torch.autograd.grad(states[-1].sum(), leaves)
        torch.testing.assert_close(found[1], found[0])
    check_native(compiled, 1)


def raised(function):
    try:
        return function(), None
    except RuntimeError as error:
        return None, str(error).split(":")[0]


WRITES = {
    "input": lambda m, x, y: x.mul_(2),
    "weight_ih": lambda m, x, y: m.weight_ih_l0.mul_(2),
    "weight_hh": lambda m, x, y: m.weight_hh_l0.mul_(2),
    "bias": lambda m, x, y: m.bias_hh_l0.mul_(2),
    "output": lambda m, x, y: y.detach().mul_(2),
}


@pytest.mark.parametrize("trained", ["all", "input", "weights"])
@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("name", ["lstm", "lstm-double", "gru", "rnn-tanh"])
def test_writes_before_the_backward(name, write, trained):
    """Refused where eager refuses them, and not seen where it does not see them."""

    def fn(m, x):
        return m(x)[0]

    m = LAYERS[name]()
    for p in m.parameters():
        p.requires_grad_(trained != "input")
    framejit.reset()
    compiled = framejit.compile(fn)
    for length in (3, 4, 5):
        first = torch.randn(4, length, 6, dtype=type_of(m))
        outcomes = []
        for run in (fn, compiled):
            x = first.clone().requires_grad_(trained != "weights")
            leaves = [x] if trained != "weights" else []
            leaves += m.parameters() if trained != "input" else []
            y = run(m, x)
            state = {k: v.clone() for k, v in m.state_dict().items()}
            with torch.no_grad():
                WRITES[write](m, x, y)
            outcomes.append(
                raised(lambda y=y, to=leaves: torch.autograd.grad(y.sum(), to))
            )
            m.load_state_dict(state)
        assert outcomes[1][1] == outcomes[0][1]
        torch.testing.assert_close(outcomes[1][0], outcomes[0][0])


@pytest.mark.parametrize("trained", [True, False])
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("name", ["lstm-no-bias", "gru-no-bias"])
def test_an_input_that_the_function_writes_to(name, again, trained):
    def fn(m, x):
        x.mul_(2)
        return m(x)[0]

    m = LAYERS[name]()
    m.weight_ih_l0.requires_grad_(trained)
    leaves = [p for p in m.parameters() if p.requires_grad]
    framejit.reset()
    compiled = framejit.compile(fn)
    for length in (3, 4, 5):
        first = torch.randn(length, 4, 6)
        outcomes = []
        for run in (fn, compiled):
            x = first.clone()
            y = run(m, x)
            if again:
                x.add_(1)
            outcomes.append(raised(lambda y=y: torch.autograd.grad(y.sum(), leaves)))
        assert outcomes[1][1] == outcomes[0][1]
        torch.testing.assert_close(outcomes[1][0], outcomes[0][0])


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_backward_twice(name):
    m = LAYERS[name]()
    framejit.reset()
    compiled = framejit.compile(model)
    for length in (3, 4, 5):
        x = torch.randn(2, length, 6, requires_grad=True)
        loss = compiled(m, x)[0]
        first = torch.autograd.grad(loss, x, retain_graph=True)
        torch.testing.assert_close(torch.autograd.grad(loss, x), first)
        with pytest.raises(RuntimeError, match="a second time"):
            torch.autograd.grad(loss, x)
    check_native(compiled, 2)


@pytest.mark.parametrize("name", ["lstm-double", "gru", "rnn-tanh"])
def test_second_derivatives(name):
    m = LAYERS[name]()
    framejit.reset()
    compiled = framejit.compile(model)
    for length in (3, 4, 5):
        x = torch.randn(2, length, 6, dtype=type_of(m), requires_grad=True)
        found = []
        for run in (model, compiled):
            (g,) = torch.autograd.grad(run(m, x)[0], x, create_graph=True)
            found.append(torch.autograd.grad(g.pow(2).sum(), x))
        torch.testing.assert_close(found[1], found[0])


@pytest.mark.parametrize("name", ["lstm", "gru-dropout"])
def test_training_step_in_the_graph(name):
    def step(m, x):
        loss, output, _ = model(m, x)
        return loss, output, torch.autograd.grad(loss, [x, *m.parameters()])

    m = LAYERS[name]()
    framejit.reset()
    compiled = framejit.compile(step)
    for length in (3, 4, 5, 8):
        x = torch.randn(2, length, 6, requires_grad=True)
        found = []
        for run in (step, compiled):
            torch.manual_seed(length)
            found.append(run(m, x))
        torch.testing.assert_close(found[1], found[0])
    check_native(compiled, 2)


def test_layers_in_a_row():
    """What one layer keeps is what the kernels before it made."""
    first, second = nn.GRU(6, 5, batch_first=True), nn.LSTM(5, 4, batch_first=True)

    def fn(x):
        h = first((x + 1).relu() * 0.5)[0]
        return second(h.sigmoid() - h)[0].sin()

    framejit.reset()
    compiled = framejit.compile(fn)
    leaves = [*first.parameters(), *second.parameters()]
    for length in (3, 4, 5, 8, 13):
        x = torch.randn(64, length, 6, requires_grad=True)
        expected = torch.autograd.grad(fn(x).sum(), [x, *leaves])
        actual = torch.autograd.grad(compiled(x).sum(), [x, *leaves])
        torch.testing.assert_close(actual, expected)
    check_native(compiled, 2)


def test_onednn_that_is_disabled_meanwhile():
    m = LAYERS["lstm"]()
    framejit.reset()
    compiled = framejit.compile(model)
    for length in (3, 4, 5, 6, 7):
        x = torch.randn(2, length, 6, requires_grad=True)
        flags = torch.backends.mkldnn.flags(enabled=False)
        with flags if length > 4 else contextlib.nullcontext():
            expected, actual = outcome(model, m, x), outcome(compiled, m, x)
        torch.testing.assert_close(actual, expected)


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_nothing_is_kept_of_a_call_that_is_over(name):
    m = LAYERS[name]()
    framejit.reset()
    compiled = framejit.compile(model)
    for length in (3, 4, 5):
        x = torch.randn(2, length, 6, requires_grad=True)
        seen = weakref.ref(x.untyped_storage())
        compiled(m, x)[0].backward()
        del x
        gc.collect()
        assert seen() is None
    check_native(compiled, 2)


def test_threads():
    m = LAYERS["gru"]()
    framejit.reset()
    compiled = framejit.compile(model, dynamic=True)
    xs = [torch.randn(2, n, 6, requires_grad=True) for n in range(2, 10)]
    expected = [torch.autograd.grad(model(m, x)[0], x)[0] for x in xs]
    compiled(m, xs[0])
    found = [None] * len(xs)

    def work(i):
        for _ in range(20):
            found[i] = torch.autograd.grad(compiled(m, xs[i])[0], xs[i])[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(found, expected)


def test_sizes_that_do_not_fit_are_refused():
    m = nn.GRU(6, 5)

    def fn(x, h):
        return torch.gru(x, h, m._flat_weights, True, 1, 0.0, True, False, False)

    framejit.reset()
    compiled = framejit.compile(fn)
    for length, width, batch in ((3, 6, 2), (4, 6, 2), (5, 7, 2), (5, 6, 3), (6, 6, 2)):
        x, h = torch.randn(length, 2, width), torch.randn(1, batch, 5)
        expected, actual = raised(lambda f=fn: f(x, h)), raised(lambda: compiled(x, h))
        assert actual[1] == expected[1]
        torch.testing.assert_close(actual[0], expected[0])


class Encoder(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first = torch.nn.Linear(4, 4)
        self.layer = getattr(torch.nn, kind)(4, 8, batch_first=True)

    def forward(self, x):
        return self.layer(self.first(x))[0]


@pytest.mark.parametrize("kind", ["GRU", "LSTM", "RNN"])
@pytest.mark.parametrize("where", ["inside", "around"])
def test_a_layer_within_autocast_asks_whether_it_is(kind, where):
    """torch's layers ask so for an input of 16 bits: that is guarded state."""
    model = Encoder(kind)
    autocast = functools.partial(torch.autocast, "cpu", torch.bfloat16)

    def within(x):
        with autocast():
            return model(x)

    framejit.reset()
    compiled = framejit.compile(within if where == "inside" else model)
    for autocasts in (True, True, False, True):
        x = torch.randn(2, 5, 4)
        with autocast() if autocasts and where == "around" else torch.no_grad():
            got = compiled(x)
            want = (within if where == "inside" else model)(x)
        assert got.dtype == want.dtype
        torch.testing.assert_close(got, want)
    assert framejit.counters()["breaks"] == 0


def test_whether_anything_is_cast_is_asked_as_the_region_says():
    def f(x):
        before = torch._C._is_any_autocast_enabled()
        with torch.autocast("cpu", torch.bfloat16):
            inside = torch._C._is_any_autocast_enabled()
            with torch.autocast("cpu", enabled=False):
                off = torch._C._is_any_autocast_enabled()
        return x * 2, before, inside, off

    framejit.reset()
    compiled = framejit.compile(f)
    for enabled in (False, True, False):
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            assert compiled(torch.ones(2))[1:] == f(torch.ones(2))[1:]
    assert framejit.counters()["breaks"] == 0
