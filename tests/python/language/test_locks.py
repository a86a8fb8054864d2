"""What orders threads stays where the program has it: reads, writes and the
graph of a section that a lock protects happen while the lock is held."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

import framejit

LOCKS = {
    "Lock": threading.Lock,
    "RLock": threading.RLock,
    "Condition": threading.Condition,
    "Semaphore": threading.Semaphore,
    "BoundedSemaphore": threading.BoundedSemaphore,
}


class State:
    def __init__(self) -> None:
        self.buf = torch.ones(2)
        self.n = 1
        self.items = [1]


def reads_tensor(lock, s):
    def fn(x):
        with lock:
            return x + s.buf

    return fn


def counts(lock, s):
    def fn(x):
        with lock:
            s.n = s.n + 1
            return x * s.n

    return fn


def acquires_and_releases(lock, s):
    def fn(x):
        lock.acquire()
        try:
            s.buf.add_(x)
            return s.buf * 1
        finally:
            lock.release()

    return fn


def in_a_call(lock, s):
    def inner(x):
        with lock:
            s.items.append(len(s.items))
            return x * s.items[-1]

    def fn(x):
        return inner(x * 2) + s.n

    return fn


BODIES = [reads_tensor, counts, acquires_and_releases, in_a_call]


def contended(compile: Callable[[Any], Any], make_lock: Any, body: Any) -> list[str]:
    """A call that waits for the lock while its holder changes everything."""
    lock, s = make_lock(), State()
    fn = compile(body(lock, s))
    seen = []
    for _ in range(3):
        seen.append(str(fn(torch.ones(2))))
    lock.acquire()
    started, results = threading.Event(), []

    def other() -> None:
        started.set()
        results.append(str(fn(torch.ones(2))))

    thread = threading.Thread(target=other)
    thread.start()
    started.wait()
    thread.join(0.05)
    assert thread.is_alive()
    s.buf.mul_(100)
    s.n *= 50
    s.items.append(70)
    lock.release()
    thread.join()
    return [*seen, *results, str(s.buf), str(s.n), str(s.items)]


@pytest.mark.parametrize("kind", LOCKS)
@pytest.mark.parametrize("body", BODIES, ids=lambda f: f.__name__)
def test_what_a_lock_protects_runs_while_it_is_held(kind, body):
    framejit.reset()
    expected = contended(lambda fn: fn, LOCKS[kind], body)
    actual = contended(framejit.compile, LOCKS[kind], body)
    assert actual == expected


def test_writes_come_before_the_release():
    # Between a release and the next acquire another thread sees the writes.
    def run(compile):
        first, second, s = threading.Lock(), threading.Lock(), State()

        def fn(x):
            with first:
                s.n = s.n + 1
                s.buf.add_(x)
            with second:
                return x * s.n + s.buf

        fn, seen = compile(fn), []
        for _ in range(2):
            fn(torch.ones(2))
        second.acquire()
        thread = threading.Thread(target=lambda: seen.append(fn(torch.ones(2))))
        thread.start()
        thread.join(0.1)
        with first:
            seen.append((s.n, s.buf.tolist()))
            s.n = 100
        second.release()
        thread.join()
        return str(seen)

    framejit.reset()
    assert run(framejit.compile) == run(lambda fn: fn)


def test_lock_that_is_not_held():
    lock, recursive = threading.Lock(), threading.RLock()

    def fn(x, which):
        try:
            which.release()
        except RuntimeError as error:
            return x * 2, str(error)
        return x * 3

    framejit.reset()
    compiled = framejit.compile(fn)
    for which in (lock, recursive) * 2:
        assert str(compiled(torch.ones(2), which)) == str(fn(torch.ones(2), which))


def test_lock_is_free_again_after_an_exception():
    lock = threading.Lock()

    def fn(x, seen):
        try:
            with lock:
                seen.append(lock.locked())
                raise ValueError
        except ValueError:
            return x * 2, seen, lock.locked()

    framejit.reset()
    compiled = framejit.compile(fn)
    for _ in range(3):
        assert str(compiled(torch.ones(2), [])) == str(fn(torch.ones(2), []))
        assert not lock.locked()


def test_recursive_lock_stays_taken():
    lock = threading.RLock()

    def take(x):
        lock.acquire()
        return x * 2

    def twice(x):
        with lock, lock:
            return x * 2, lock.acquire(False), lock.release()

    framejit.reset()
    for fn in (take, twice):
        compiled = framejit.compile(fn)
        for _ in range(2):
            for run in (fn, compiled):
                assert str(run(torch.ones(2))) == str(fn(torch.ones(2)))
                if fn is take:
                    lock.release()
                    lock.release()
                assert not lock._is_owned()


@contextmanager
def a_thread(target: Callable[[], Any]) -> Iterator[None]:
    thread = threading.Thread(target=target)
    thread.start()
    yield
    thread.join()


def hand_overs() -> dict[str, Callable[[Any], str]]:
    """The other ways to wait for a thread: a peer changes s first."""

    def event(compile):
        s, ready, go = State(), threading.Event(), threading.Event()

        def fn(x):
            s.n = s.n + 1
            go.set()
            ready.wait()
            return x * s.n

        def peer():
            go.wait()
            s.n *= 10
            go.clear()
            ready.set()

        fn, results = compile(fn), []
        for _ in range(3):
            ready.clear()
            with a_thread(peer):
                results.append(fn(torch.ones(2)))
        return str(results)

    def barrier(compile):
        s, meet = State(), threading.Barrier(2)

        def fn(x):
            s.n = s.n + 1
            meet.wait()
            meet.wait()
            return x * s.n

        def peer():
            meet.wait()
            s.n *= 10
            meet.wait()

        fn, results = compile(fn), []
        for _ in range(3):
            with a_thread(peer):
                results.append(fn(torch.ones(2)))
        return str(results)

    def handed_through(make_queue):
        def run(compile):
            s, there, back = State(), make_queue(), make_queue()

            def fn(x):
                s.buf.add_(x)
                there.put(x * 2)
                y = back.get()
                return y + s.buf * s.n

            def peer():
                y = there.get()
                s.n += 1
                s.buf.mul_(3)
                back.put(y + 1)

            fn, results = compile(fn), []
            for _ in range(3):
                with a_thread(peer):
                    results.append(fn(torch.ones(2)))
            return str(results)

        return run

    def started(compile):
        s = State()

        def fn(x):
            s.n = s.n + 1

            def work():
                s.n *= 10
                s.buf.add_(x * s.n)

            t = threading.Thread(target=work)
            t.start()
            t.join()
            return x * s.n + s.buf

        fn = compile(fn)
        return str([fn(torch.ones(2)) for _ in range(3)])

    def condition(compile):
        s, changed = State(), threading.Condition()

        def fn(x):
            with changed:
                s.items.append(1)
                changed.notify_all()
                while len(s.items) % 2 == 0:
                    changed.wait()
                return x * len(s.items) * s.n

        def peer():
            with changed:
                while len(s.items) % 2:
                    changed.wait()
                s.items.append(2)
                s.n += 1
                changed.notify_all()

        fn, results = compile(fn), []
        for _ in range(3):
            with a_thread(peer):
                results.append(fn(torch.ones(2)))
        return str(results)

    return {
        "Event": event,
        "Barrier": barrier,
        "Queue": handed_through(queue.Queue),
        "SimpleQueue": handed_through(queue.SimpleQueue),
        "Thread": started,
        "Condition": condition,
    }


@pytest.mark.parametrize("kind", hand_overs())
def test_waiting_for_a_thread(kind):
    framejit.reset()
    run = hand_overs()[kind]
    assert run(framejit.compile) == run(lambda fn: fn)


def test_lock_made_in_the_function():
    def fn(x):
        lock = threading.Lock()
        with lock:
            y = x * 2
        return y + lock.locked(), lock

    framejit.reset()
    compiled = framejit.compile(fn)
    for _ in range(2):
        result, lock = compiled(torch.ones(2))
        assert torch.equal(result, torch.full((2,), 2.0))
        assert not lock.locked()


# ---- logging's own lock


def fresh_logger(level: int = logging.WARNING) -> logging.Logger:
    log = logging.Logger("framejit-test", level)
    log.manager = logging.Manager(log)
    log.addHandler(logging.NullHandler())
    log.propagate = False
    return log


def test_asking_for_a_level_is_no_break():
    def fn(x, log):
        log.debug("value %s", x.shape)
        if log.isEnabledFor(logging.INFO):
            return x * 2
        return x * 3

    framejit.reset()
    compiled = framejit.compile(fn, fullgraph=True)
    log = fresh_logger()
    for level in (logging.WARNING, logging.INFO, logging.WARNING, logging.INFO):
        log.setLevel(level)  # forgets what was asked
        for _ in range(2):
            assert torch.equal(compiled(torch.ones(1), log), fn(torch.ones(1), log))
        assert torch.equal(compiled(torch.ones(1), log), fn(torch.ones(1), log))


def test_level_set_in_the_function():
    def fn(x, log):
        log.setLevel(logging.DEBUG)
        first = log.isEnabledFor(logging.DEBUG)
        log.level = logging.ERROR
        second = log.isEnabledFor(logging.INFO)
        log.setLevel(logging.CRITICAL)
        return x * 2, first, second, log.isEnabledFor(logging.INFO)

    framejit.reset()
    compiled = framejit.compile(fn)
    for _ in range(3):
        one, two = fresh_logger(), fresh_logger()
        assert str(compiled(torch.ones(1), one)) == str(fn(torch.ones(1), two))
        assert one.level == two.level and one._cache == two._cache


def test_loggers_found_and_made():
    def fn(x, name):
        log = logging.getLogger(name)
        log.debug("hello")
        return x * 2, log.name, log is logging.getLogger(name)

    framejit.reset()
    compiled = framejit.compile(fn)
    for name in ("framejit.test.a", "framejit.test.a", "framejit.test.b"):
        assert str(compiled(torch.ones(1), name)) == str(fn(torch.ones(1), name))
    assert logging.getLogger("framejit.test.a").parent is not None


def test_break_while_the_lock_of_logging_is_held():
    class Breaks(logging.Logger):
        def getEffectiveLevel(self):
            framejit.graph_break()
            return logging.INFO

    def fn(x, log):
        return x * 2, log.isEnabledFor(logging.INFO)

    def by_hand(x, log):
        logging._lock.acquire()
        try:
            framejit.graph_break()
            return x * 2
        finally:
            logging._lock.release()

    framejit.reset()
    for body in (fn, by_hand):
        compiled = framejit.compile(body)
        for _ in range(2):
            one, two = Breaks("one"), Breaks("one")
            assert str(compiled(torch.ones(1), one)) == str(body(torch.ones(1), two))
            assert not logging._lock._is_owned()
