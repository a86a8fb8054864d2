"""What a program does besides computing: warnings, log records, writes to
classes, caches that outlive the call. Effects are kept for after the graph, in
their order; what decides about them is guarded."""

from __future__ import annotations

import functools
import io
import logging
import math
import random
import sys
import warnings
import weakref
from typing import Any

import pytest
import torch

import framejit
from differential import one, program


def entries_of(compiled: Any) -> list[Any]:
    return [e for entry in framejit.inspect(compiled) for e in entry.walk()]


def breaks_of(compiled: Any) -> list[str]:
    return [b.id for e in entries_of(compiled) for b in e.breaks]


def outcome(fn: Any, *args: Any) -> tuple[Any, ...]:
    """Result or exception, and every warning with its place."""
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        try:
            result = str(fn(*args))
        except Exception as error:
            result = repr(error)
    return result, [(str(w.message), w.category, w.filename, w.lineno) for w in seen]


def same(fn: Any, calls: int = 3, breaks: int = 0, reset: Any = None) -> Any:
    """Compiled does what eager does, in each of some calls, as one graph."""
    expected, actual = [], []
    for run, log in ((fn, expected), (None, actual)):
        framejit.reset()
        if reset:
            reset()
        run = run or framejit.compile(fn, backend="eager")
        for _ in range(calls):
            log.append(outcome(run, torch.arange(4.0)))
    assert actual == expected
    assert len(breaks_of(run)) == breaks, breaks_of(run)
    assert framejit.counters()["fallbacks"] == 0
    return run


# ---- warnings.warn


def library(level: int) -> None:
    warnings.warn("from the library", FutureWarning, stacklevel=level)


class Warns(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        warnings.warn("forward", stacklevel=2)
        return x * 2


def test_warning_in_place():
    def fn(x):
        warnings.warn(f"sizes {x.shape}")
        y = x * 2
        warnings.warn("old", DeprecationWarning)
        return y

    same(fn)


def test_warning_levels():
    def fn(x):
        library(1)
        library(2)
        library(3)  # the caller of the compiled function
        library(level=4)
        return x + 1

    same(fn)


def test_warning_instances_and_loops():
    def fn(x):
        for i in range(3):
            warnings.warn(RuntimeWarning(f"turn {i}"))
            x = x + i
        return x

    same(fn)


def test_warning_in_branch_not_taken():
    def fn(x):
        if x.dim() > 3:
            warnings.warn("never")
        return x * 2

    same(fn)


def test_warning_around_a_break():
    def fn(x):
        warnings.warn("before")
        framejit.graph_break()
        warnings.warn("after")
        return x * 2

    same(fn, breaks=1)


def test_warning_of_torch():
    def fn(x):
        return torch.nn.functional.softmax(x)  # implicit dim: stacklevel=3

    same(fn)


def test_warning_level_through_module_call():
    # nn.Module's own frames are not interpreted: the place is not known.
    module = Warns()

    def fn(x):
        return module(x) + 1

    expected, compiled = outcome(fn, torch.ones(2)), framejit.compile(fn)
    framejit.reset()
    assert outcome(compiled, torch.ones(2)) == expected


def test_warning_turned_into_an_error():
    def fn(x):
        try:
            warnings.warn("careful", UserWarning)
        except UserWarning:
            return x + 100
        return x * 2

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(2)
    with warnings.catch_warnings():
        for action in ("ignore", "error", "ignore", "error"):
            warnings.simplefilter(action)
            assert torch.equal(compiled(x), fn(x)), action
        warnings.resetwarnings()
        warnings.filterwarnings("error", message="care")
        assert torch.equal(compiled(x), x + 100)
        warnings.filterwarnings("ignore", category=UserWarning)
        assert torch.equal(compiled(x), x * 2)


def test_warning_once_by_the_registry():
    def fn(x):
        warnings.warn("only once")
        return x * 2

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    counts = []
    for run in (fn, compiled):
        globals().get("__warningregistry__", {}).clear()
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("default")
            for _ in range(3):
                run(torch.ones(2))
        counts.append(len(seen))
    assert counts == [1, 1]


def test_recorded_warnings_that_are_looked_at():
    def fn(x, seen):
        warnings.warn("one")
        return x * len(seen)

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    results = []
    for run in (fn, compiled, fn, compiled):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            results.append(run(torch.ones(1), seen).item())
    assert results == [1.0] * 4


def test_another_list_becomes_the_recorded_one():
    def fn(x, seen):
        warnings.warn("one")
        return x * (len(seen) + 1)

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        assert compiled(torch.ones(1), []).item() == 1
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        assert compiled(torch.ones(1), seen).item() == 2


def test_warning_shown_by_the_program(monkeypatch):
    shown = []

    def fn(x):
        warnings.warn("one")
        return x * (len(shown) + 1)

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        monkeypatch.setattr(warnings, "showwarning", lambda *a, **k: shown.append(a))
        assert compiled(torch.ones(1)).item() == 2
        assert compiled(torch.ones(1)).item() == 3


# ---- logging


@pytest.fixture
def logger():
    # With a manager of its own: pytest gives its handlers to all others.
    log = logging.Logger("framejit-test", logging.WARNING)
    log.manager = logging.Manager(log)
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(
        logging.Formatter("%(levelname)s %(funcName)s:%(lineno)d %(message)s")
    )
    log.addHandler(handler)
    log.propagate = False
    log.stream = stream
    return log


def logged(log, fn, *args, breaks=0):
    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    texts = []
    for run in (fn, compiled):
        log.stream.seek(0)
        log.stream.truncate()
        results = [str(run(*args)) for _ in range(2)]
        texts.append((results, log.stream.getvalue()))
    assert texts[0] == texts[1]
    assert len(breaks_of(compiled)) == breaks, breaks_of(compiled)
    return compiled


def test_log_records(logger):
    def inner(x):
        logger.error("inner %s %r", x.shape, (1, "a"))
        return x

    def fn(x):
        logger.debug("not shown %s", x)
        logger.warning("sizes %s, %d", x.shape, 3)
        y = inner(x) * 2
        logger.log(logging.CRITICAL, "done")
        return y

    logged(logger, fn, torch.ones(3))


def test_log_of_a_tensor_breaks(logger):
    def fn(x):
        logger.warning("value %s", x)
        return x * 2

    logged(logger, fn, torch.ones(3), breaks=1)


def test_log_in_a_handler(logger):
    def fn(x):
        try:
            raise ValueError("no")
        except ValueError:
            logger.warning("caught", exc_info=False)
        return x * 2

    logged(logger, fn, torch.ones(3))


def test_log_level_and_handlers_change(logger):
    def fn(x):
        logger.warning("hello")
        return x * 2

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(2)
    compiled(x)
    logger.setLevel(logging.ERROR)
    compiled(x)
    assert logger.stream.getvalue().count("hello") == 1
    logger.setLevel(logging.WARNING)

    class Own(logging.Handler):
        seen = 0

        def emit(self, record):
            Own.seen += 1

    logger.addHandler(Own())
    compiled(x)
    compiled(x)
    assert Own.seen == 2
    logger.addFilter(lambda record: False)
    compiled(x)
    assert Own.seen == 2 and logger.stream.getvalue().count("hello") == 3


@functools.lru_cache(None)
def warn_once(log, *args):
    log.warning(*args)


def test_log_once(logger):
    def fn(x):
        warn_once(logger, "once")
        return x * 2

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert logger.stream.getvalue().count("\n") == 1
    assert any(not e.breaks for e in framejit.inspect(compiled))
    warn_once.cache_clear()
    compiled(torch.ones(2))
    assert logger.stream.getvalue().count("\n") == 2


def test_streams(capsys):
    def fn(x):
        print("to stderr", x.shape, file=sys.stderr)
        written = sys.stdout.write("text\n")
        sys.stdout.flush()
        print("more", end="!\n")
        return x * written

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    shown = []
    for run in (fn, compiled):
        results = [str(run(torch.ones(2))) for _ in range(2)]
        shown.append((results, capsys.readouterr()))
    assert shown[0] == shown[1]
    assert not breaks_of(compiled)


# ---- functools.lru_cache: what the real cache holds


class Cached:
    def __init__(self, n):
        self.n = n

    @functools.lru_cache(maxsize=4)  # noqa: B019
    def method(self, k):
        return self.n * k

    @classmethod
    @functools.lru_cache(None)
    def of_class(cls, k):
        return k + 1


@functools.lru_cache(None)
def cached_tensor(n):
    return torch.arange(float(n))


def test_cached_method_keeps_its_result():
    obj = Cached(2)

    def fn(x):
        return x * obj.method(3) + Cached.of_class(1)

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(2)
    for _ in range(2):
        assert torch.equal(compiled(x), fn(x))
    obj.n = 50  # the cache does not see it, nor may the compiled function
    assert torch.equal(compiled(x), torch.full((2,), 8.0))
    Cached.method.cache_clear()
    assert torch.equal(compiled(x), torch.full((2,), 152.0))
    for k in range(10):  # pushes the entry out of the cache
        obj.method(k + 100)
    obj.n = 3
    assert torch.equal(compiled(x), torch.full((2,), 11.0))


def test_cached_tensor_is_the_caches():
    def fn(x):
        return x + cached_tensor(4), cached_tensor(4)

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    for _ in range(3):
        result, held = compiled(torch.ones(4))
        assert held is cached_tensor(4)
        assert torch.equal(result, torch.arange(4.0) + 1)
    assert any(not e.breaks for e in framejit.inspect(compiled))
    cached_tensor(4).add_(1)
    assert torch.equal(compiled(torch.ones(4))[0], torch.arange(4.0) + 2)


def test_cached_function_that_prints(capsys):
    @functools.lru_cache(None)
    def loud(n):
        print("computing", n)
        return n * 2

    def fn(x):
        return x * loud(3)

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
    assert capsys.readouterr().out == "computing 3\n"


# ---- attributes of classes


class Counter:
    count = 0
    name = "base"

    def bump(self):
        type(self).count += 1
        return self.count

    @classmethod
    def mark(cls):
        cls.name = cls.name + "!"
        return cls.name


class Derived(Counter):
    pass


def reset_counter():
    Counter.count, Counter.name = 0, "base"
    for cls in (Counter, Derived):
        for name in ("fresh", "count", "name"):
            if cls is Derived and name in vars(cls):
                delattr(cls, name)
    if "fresh" in vars(Counter):
        del Counter.fresh


def test_class_counter():
    def fn(x):
        Counter.count += 1
        return x * Counter.count, Counter().bump(), Derived.count

    run = same(fn, calls=6, reset=reset_counter)
    assert Counter.count == 12
    # A counter becomes a symbol.
    assert len(entries_of(run)) < 5


def test_class_attributes_come_and_go():
    def fn(x):
        Counter.fresh = 3
        Derived.count = 7
        found = hasattr(Counter, "fresh"), Derived.fresh, Derived.count, Counter.count
        del Derived.count
        return x * Counter.fresh, found, Derived.count, Derived.mark(), Counter.name

    same(fn, reset=reset_counter)


def test_class_tensor_attribute():
    def fn(x):
        Counter.fresh = x * 2
        return Counter.fresh + 1, Counter().fresh

    same(fn, reset=reset_counter)
    assert torch.equal(Counter.fresh, torch.arange(4.0) * 2)


def test_class_write_before_an_exception():
    def fn(x):
        Counter.count += 5
        raise ValueError(Counter.count)

    same(fn, calls=2, reset=reset_counter, breaks=0)


def test_class_method_replaced_breaks():
    def fn(x):
        Counter.bump = lambda self: 42
        return x * Counter().bump()

    bump = Counter.bump
    try:
        framejit.reset()
        compiled = framejit.compile(fn, backend="eager")
        assert torch.equal(compiled(torch.ones(1)), torch.full((1,), 42.0))
        assert "FJ407" in breaks_of(compiled)
    finally:
        Counter.bump = bump


def test_builtin_class_is_immutable():
    def fn(x):
        try:
            set.nothing = 3
        except TypeError as error:
            return x * 2, str(error)

    same(fn)


def test_hook_registered_in_forward():
    module = torch.nn.Linear(4, 4)

    def fn(x):
        handle = module.register_forward_hook(lambda m, a, out: out * 2)
        try:
            return module(x)
        finally:
            handle.remove()

    before = torch.utils.hooks.RemovableHandle.next_id
    same(fn, calls=4)
    assert torch.utils.hooks.RemovableHandle.next_id == before + 8


def test_names_of_a_class_change():
    class A:
        first = 1

    def fn(x):
        return x * len([n for n in dir(A()) if not n.startswith("_")]), [
            n for n in vars(A) if n.endswith("st")
        ]

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    x = torch.ones(1)
    assert str(compiled(x)) == str(fn(x))
    A.last = 2
    assert str(compiled(x)) == str(fn(x)) == "(tensor([2.]), ['first', 'last'])"
    assert not breaks_of(compiled)


def test_weak_references():
    class Node:
        pass

    node = Node()
    node.value = 3

    def fn(x):
        reference = weakref.ref(node)
        return x * reference().value, reference, reference is weakref.ref(node)

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    for _ in range(2):
        result, reference, once = compiled(torch.ones(1))
        assert reference() is node and once and result.item() == 3
    assert not breaks_of(compiled)


# ---- Python's random numbers


def test_random_is_a_break():
    def fn(x):
        if random.random() < 0.5:
            return x * 2
        return x + random.randint(0, 3)

    framejit.reset()
    compiled = framejit.compile(fn, backend="eager")
    results = []
    for run in (fn, compiled):
        random.seed(5)
        results.append([str(run(torch.ones(2))) for _ in range(12)])
    assert results[0] == results[1]
    assert set(breaks_of(compiled)) == {"FJ306"}


# ---- the order of what an iterator does and what is done with its items


class Loud:
    def __init__(self, n, log):
        self.n, self.log = n, log

    def __radd__(self, other):
        self.log.append(("radd", self.n))
        return other + self.n

    def __lt__(self, other):
        self.log.append(("lt", self.n))
        return self.n < other.n

    def __gt__(self, other):
        self.log.append(("gt", self.n))
        return self.n > other.n

    def __rmul__(self, other):
        self.log.append(("rmul", self.n))
        return other * self.n


@program(one, breaks=0)
def test_items_are_used_as_they_come(x):
    log = []

    def numbers():
        for i in (3, 1, 2):
            log.append(("made", i))
            yield i

    def louds():
        for i in numbers():
            yield Loud(i, log)

    def key(i):
        log.append(("key", i))
        return -i

    total = sum(louds()), sum(numbers(), 2.5), math.prod(louds())
    ends = max(numbers(), key=key), min(louds()).n, max(louds(), default=None).n
    try:
        sum(i if i != 1 else "1" for i in numbers())
    except TypeError as error:
        log.append(str(error))
    return x * total[0], total, ends, log, sum([]), max([], default=3), sum([0.1] * 10)
