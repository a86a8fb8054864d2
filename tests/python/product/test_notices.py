"""What is said without being asked: one warning per place, and nothing else."""

from __future__ import annotations

import contextlib
import io
import logging
from pathlib import Path

import pytest
import torch

import framejit
from framejit import _C


@pytest.fixture
def warnings_of(caplog):
    """(logger, text) of the warnings so far."""
    framejit.reset()
    caplog.set_level(logging.WARNING, "framejit")
    yield lambda: [
        (r.name, r.getMessage())
        for r in caplog.records
        if r.name.startswith("framejit") and r.levelno >= logging.WARNING
    ]
    framejit.reset()


def text_of(notice: str) -> str:
    return next(text for name, _, text in _C.notices() if name == notice)


def test_documentation_has_a_row_for_each_notice():
    usage = Path(__file__).parents[3] / "docs" / "usage.md"
    section = usage.read_text().split("## What is said without being asked")[1]
    lines = section.split("\n## ")[0].splitlines()
    rows = [line for line in lines if line.startswith("| `framejit.")]
    assert rows == [
        f"| `framejit.{channel}` | {text} |" for _, channel, text in _C.notices()
    ]


def test_a_function_that_compiles_says_nothing(warnings_of):
    compiled = framejit.compile(lambda x: (x * 2).sum())
    for size in (2, 3, 4):
        compiled(torch.ones(size))
    assert warnings_of() == []


def test_reaching_the_recompile_limit_is_said_once(warnings_of):
    @framejit.compile(dynamic=False)
    def f(x):
        return x * 2

    for size in range(2, 14):
        f(torch.ones(size))
    [(logger, text)] = warnings_of()
    assert logger == "framejit.recompiles"
    assert "recompile_limit (8) reached" in text and "FJ501" in text
    framejit.reset()
    for size in range(2, 14):
        f(torch.ones(size))
    assert len(warnings_of()) == 2, "reset() forgets what was said"


def stages(count):
    return [
        torch.nn.Sequential(*(torch.nn.Linear(2, 2) for _ in range(n + 1)))
        for n in range(count)
    ]


def test_the_limit_of_modules_compiled_one_by_one_names_the_way_out(warnings_of):
    for stage in stages(10):
        framejit.compile(stage)(torch.ones(1, 2))
        assert len(warnings_of()) <= 1
    kept = [framejit.compile(stage) for stage in stages(10)]
    for stage in kept:
        stage(torch.ones(1, 2))
    [(_, text)] = warnings_of()
    assert "its entries are of 8 modules" in text
    assert "isolate_recompiles=True" in text


def test_modules_that_are_isolated_have_a_limit_each(warnings_of):
    kept = [framejit.compile(stage, isolate_recompiles=True) for stage in stages(10)]
    for stage in kept:
        stage(torch.ones(1, 2))
    assert warnings_of() == []
    assert framejit.counters()["compiles"] == 10


def test_the_limit_of_one_module_is_its_own(warnings_of):
    module = framejit.compile(torch.nn.Linear(2, 2), dynamic=False)
    for size in range(2, 14):
        module(torch.ones(size, 2))
    [(_, text)] = warnings_of()
    assert "recompile_limit" in text and "isolate_recompiles" not in text


def test_the_limit_of_one_graph_names_it_too():
    kept = [framejit.compile(stage, fullgraph=True) for stage in stages(9)]
    with pytest.raises(framejit.RecompileError, match="isolate_recompiles=True"):
        for stage in kept:
            stage(torch.ones(1, 2))


def test_a_limit_without_an_entry_says_that_nothing_was_compiled(warnings_of):
    sparse = torch.eye(4).to_sparse()
    compiled = framejit.compile(lambda x: (sparse @ x.T).relu().sum())
    for _ in range(12):
        compiled(torch.ones(3, 4))
    texts = [text for _, text in warnings_of() if "recompile_limit" in text]
    [text] = texts
    assert "nothing was found to compile" in text and "other calls" not in text


def test_a_class_of_the_same_name_is_another_one(warnings_of):
    def make():
        class Model(torch.nn.Module):
            def forward(self, x):
                return x + 1

        return Model()

    compiled = framejit.compile(lambda model, x: model(x))
    models = [make() for _ in range(12)]  # entries go with their classes
    for model in models:
        compiled(model, torch.ones(2))
    [(_, text)] = warnings_of()
    assert "Model, got another class of that name" in text


def generator(x):
    yield x * 2


async def coroutine(x):
    return x * 2


def failing_at_once(x):
    return x.tolist()


def breaking_everywhere(x):
    framejit.graph_break()
    framejit.graph_break()
    return x


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("function", [generator, coroutine])
def test_generators_and_coroutines_are_said_not_to_be_compiled(
    warnings_of, function, fullgraph
):
    compiled = framejit.compile(function, fullgraph=fullgraph)
    for _ in range(3):
        made = compiled(torch.ones(2))
        if function is coroutine:
            made.close()
    [(logger, text)] = warnings_of()
    assert logger == "framejit.graph_breaks"
    assert function.__name__ in text


@pytest.mark.parametrize("function", [failing_at_once, breaking_everywhere])
def test_a_function_of_which_nothing_is_compiled_says_so(warnings_of, function):
    compiled = framejit.compile(function)
    for _ in range(3):
        compiled(torch.ones(2))
    [(logger, text)] = warnings_of()
    assert logger == "framejit.graph_breaks"
    assert function.__name__ in text


def test_a_backend_that_raises_is_said_once(warnings_of):
    def backend(graph, inputs):
        raise ValueError("not today")

    compiled = framejit.compile(lambda x: x * 2, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    [(logger, text)] = warnings_of()
    assert logger == "framejit.fallbacks" and "not today" in text


def test_a_graph_that_fails_when_it_runs_is_said_once(warnings_of):
    def backend(graph, inputs):
        def run(*args):
            raise ValueError("not today")

        return run

    compiled = framejit.compile(lambda x: x * 2, backend=backend)
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    [(logger, text)] = warnings_of()
    assert logger == "framejit.fallbacks"
    assert "original code runs" in text and "not today" in text


def test_the_users_own_error_is_no_warning(warnings_of):
    table = torch.ones(4, 2)

    @framejit.compile
    def rows(x, i):
        return x[i] * 2

    @framejit.compile
    def behind_a_break(x, i):
        framejit.graph_break()
        return x[i] * 2

    good, bad = torch.tensor([1, 2]), torch.tensor([1, 9])
    for function in (rows, behind_a_break):
        assert torch.equal(function(table, good), table[good] * 2)
        for _ in range(2):
            with pytest.raises(IndexError, match="out of bounds"):
                function(table, bad)
        assert torch.equal(function(table, good), table[good] * 2)
    assert not warnings_of()


def test_a_graph_that_is_not_fused_is_said_once(warnings_of):
    # The gradient's formula compares the exponent, a number of the call, with 0.
    compiled = framejit.compile(lambda x, a: x.abs() ** a, dynamic=True)
    for a in (1.5, 2.5, 3.5):
        compiled(torch.ones(3, requires_grad=True), a)
    [(logger, text)] = warnings_of()
    assert logger == "framejit.fallbacks" and "value of a float" in text


def test_each_place_speaks_for_itself(warnings_of):
    def first(x):
        return x.tolist()

    def second(x):
        return x.tolist()

    for function in (first, second):
        compiled = framejit.compile(function)
        compiled(torch.ones(2))
        compiled(torch.ones(2))
    texts = [text for _, text in warnings_of()]
    assert len(texts) == 2 and "first" in texts[0] and "second" in texts[1]


class Worker(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(2, 2)

    def forward(self, x):
        return self.net(x)

    def step(self, x):
        return self.net(x).sum()

    def through_a_call(self, x):
        return self(x).sum()


def test_a_module_whose_other_methods_are_used(warnings_of):
    compiled = framejit.compile(Worker())
    for _ in range(40):
        compiled.parameters()
        compiled.step(torch.ones(2))
    [(logger, text)] = warnings_of()
    assert logger == "framejit.graph_breaks"
    assert "Worker.step" in text and "never called" in text


def test_a_module_that_is_called_says_nothing(warnings_of):
    for use in ("__call__", "through_a_call", "forward"):
        compiled = framejit.compile(Worker())
        for _ in range(40):
            getattr(compiled, use)(torch.ones(2))
            if use != "forward":
                compiled.step(torch.ones(2))
    assert warnings_of() == []


def step_by_its_net(self, batch):
    return self.net(batch).sum()


def step_by_a_method(self, batch):
    self.last = batch
    return self.shared(batch)


def step_by_a_call(self, batch):
    return self(batch).sum()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("package", ["lightning", "pytorch_lightning"])
@pytest.mark.parametrize(
    "step,shared,told",
    [
        (step_by_its_net, None, True),
        (step_by_a_method, step_by_its_net, True),
        (step_by_a_method, step_by_a_call, False),
        (step_by_a_call, None, False),
    ],
)
def test_modules_that_a_trainer_drives(
    warnings_of, package, in_place, step, shared, told
):
    base = type("LightningModule", (torch.nn.Module,), {})
    base.__module__ = f"{package}.pytorch.core.module"
    task = type("Task", (base,), {"training_step": step, "shared": shared})
    for _ in range(2):
        (framejit.compile_inplace if in_place else framejit.compile)(task())
    texts = [text for _, text in warnings_of()]
    assert len(texts) == told
    assert all("Task.training_step" in text for text in texts)


class Interrupted(BaseException):
    """What the handler of a signal raises."""


class InterruptedLock:
    """A lock of logging behind whose acquire() a signal arrives."""

    def __init__(self, lock):
        self.lock, self.armed = lock, True
        self.release, self._is_owned = lock.release, lock._is_owned

    def acquire(self):
        self.lock.acquire()
        if self.armed:
            self.armed = False
            raise Interrupted

    def __enter__(self):
        self.acquire()

    def __exit__(self, *_):
        self.release()


@pytest.mark.parametrize("held", [False, True], ids=["free", "held"])
def test_an_interrupted_warning_leaves_no_lock_held(held):
    handler = logging.StreamHandler(io.StringIO())
    handler.lock = InterruptedLock(handler.lock)
    logger = logging.getLogger("framejit")
    logger.addHandler(handler)
    compiled = framejit.compile(lambda x, n: x * n, dynamic=False, recompile_limit=1)
    compiled(torch.ones(2), 1)
    with contextlib.ExitStack() as stack:
        if held:
            handler.lock.lock.acquire()
            stack.callback(handler.lock.lock.release)
        stack.callback(logger.removeHandler, handler)
        with contextlib.suppress(Interrupted):
            compiled(torch.ones(2), 2)
        assert not handler.lock.armed
        assert handler.lock._is_owned() == held


def test_an_interrupted_warning_leaves_logging_unlocked(monkeypatch):
    lock = logging._lock
    compiled = framejit.compile(lambda x, n: x * n, dynamic=False, recompile_limit=1)
    compiled(torch.ones(2), 1)
    armed = InterruptedLock(lock)
    monkeypatch.setattr(logging, "_lock", armed)
    with contextlib.suppress(Interrupted):
        compiled(torch.ones(2), 2)
    assert not armed.armed
    assert not lock._is_owned()


def test_a_line_is_said_once_of_graphs_that_begin_there(warnings_of):
    torch.manual_seed(0)
    layers = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.Linear(8, 3))
    layers[0].weight.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    layers[1].register_full_backward_hook(lambda module, given, got: None)
    compiled = framejit.compile(layers, dynamic=False)
    for i in range(6):
        compiled(torch.randn(4 + i % 3, 5)).square().mean().backward()
    texts = [text for _, text in warnings_of()]
    assert len(texts) == 1 and "inputs have hooks" in texts[0]
    framejit.reset()
    compiled(torch.randn(4, 5)).square().mean().backward()
    assert [text for _, text in warnings_of()] == 2 * texts, "reset() forgets"


def test_a_line_is_said_once_of_the_parts_of_a_function(warnings_of):
    @framejit.compile
    def f(x):
        parts = []
        for _ in range(3):
            with torch.inference_mode():
                parts.append(x * 2)
            framejit.graph_break()
        return parts

    f(torch.ones(2))
    texts = [text for _, text in warnings_of()]
    assert len(texts) == len(set(texts)) == 1 and "inference mode" in texts[0]
