"""An effect that fails where a handler of the program would see it is no
effect to be kept for later: the handler runs, as in eager."""

from __future__ import annotations

import collections
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import pytest
import torch

import framejit

TEXTS = ("a", "\u1234", "a")


def streams() -> dict[str, Callable[[], Any]]:
    def ascii_only():
        return io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)

    def closed():
        stream = ascii_only()
        stream.close()
        return stream

    def closed_text():
        stream = io.StringIO()
        stream.close()
        return stream

    def broken():
        class Broken(io.RawIOBase):
            def writable(self):
                return True

            def write(self, data):
                raise BrokenPipeError("nobody reads")

        return io.TextIOWrapper(Broken(), write_through=True)

    return {
        "ascii": ascii_only,
        "closed": closed,
        "closed_text": closed_text,
        "broken": broken,
    }


EFFECTS: dict[str, Callable[[str], Any]] = {
    "print": lambda text: print(text),
    "print_to": lambda text: print(text, file=sys.stderr),
    "print_flushed": lambda text: print(text, flush=True),
    "write": lambda text: sys.stdout.write(text),
    "write_and_flush": lambda text: (sys.stdout.write("b"), sys.stdout.flush()),
    "warn": lambda text: warnings.warn(text, stacklevel=1),
}


class OwnContext:
    def __init__(self, seen: list[Any], swallow: bool) -> None:
        self.seen, self.swallow = seen, swallow

    def __enter__(self) -> None:
        self.seen.append("in")

    def __exit__(self, kind: Any, *_: Any) -> bool:
        self.seen.append(kind.__name__ if kind else None)
        return self.swallow


@contextmanager
def own_manager(seen: list[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        seen.append("left")


def handlers() -> dict[str, Callable[..., Any]]:
    """fn(x, effect, text, seen): each has a handler that would see a failure."""

    def caught(x, effect, text, seen):
        try:
            effect(text)
        except (ValueError, OSError, Warning) as error:
            return x * 2, type(error).__name__
        return x * 3

    def in_a_call(x, effect, text, seen):
        def inner(y):
            y = y + 1
            effect(text)
            return y

        try:
            x = inner(x)
        except Exception as error:
            seen.append(str(error))
        return x * 3

    def in_the_end(x, effect, text, seen):
        try:
            seen.append(1)
            effect(text)
            seen.append(2)
        finally:
            seen.append(3)
        return x * 2

    def in_a_handler(x, effect, text, seen):
        try:
            try:
                raise KeyError(1)
            except KeyError:
                effect(text)
                seen.append("shown")
        except Exception as error:
            return x * 2, repr(error.__context__)
        return x * 3

    def own_with(x, effect, text, seen):
        with OwnContext(seen, True):
            effect(text)
            return x * 3
        return x * 2

    def own_with_that_looks(x, effect, text, seen):
        with OwnContext(seen, False):
            effect(text)
        return x * 2

    def own_generator(x, effect, text, seen):
        with own_manager(seen):
            effect(text)
        return x * 2

    def suppressed(x, effect, text, seen):
        with suppress(Exception):
            effect(text)
            seen.append("after")
        return x * 2

    def under_no_grad(x, effect, text, seen):
        try:
            with torch.no_grad():
                effect(text)
                x = x + 1
        except Exception:
            return x * 2, torch.is_grad_enabled()
        return x * 3

    def in_a_generator(x, effect, text, seen):
        def items():
            for i in range(3):
                try:
                    effect(text)
                    yield i
                except Exception:
                    yield -1

        return x * torch.tensor([float(sum(items()))])

    def thrown_through_a_generator(x, effect, text, seen):
        def items():
            effect(text)
            yield 1

        try:
            return x * sum(items())
        except Exception:
            return x * 9

    def async_with(x, effect, text, seen):
        class Own:
            async def __aenter__(self):
                return self

            async def __aexit__(self, kind, *rest):
                seen.append(bool(kind))
                return True

        async def body():
            async with Own():
                effect(text)
                return 3
            return 2

        try:
            body().send(None)
        except StopIteration as stop:
            return x * stop.value

    def in_turns(x, effect, text, seen):
        for i in range(3):
            try:
                effect(text)
            except Exception:
                continue
            x = x + i
        return x

    return dict(locals())


def nobody() -> dict[str, Callable[..., Any]]:
    """Nobody in the function sees a failure: the effect may come later."""

    def plain(x, effect, text, seen):
        effect(text)
        return x * 2

    def only_cleanup(x, effect, text, seen):
        try:
            raise KeyError(1)
        except KeyError as error:
            seen.append(str(error))
            effect(text)
        return x * 2

    def contexts_of_torch(x, effect, text, seen):
        with torch.no_grad(), nullcontext():
            effect(text)
            y = x * 2
        with torch.autocast("cpu", enabled=False), torch.enable_grad():
            effect(text)
            return y + 1

    def in_a_comprehension(x, effect, text, seen):
        return x * len([effect(text) for _ in range(2)])

    def in_a_generator(x, effect, text, seen):
        def items():
            for i in range(2):
                effect(text)
                yield i

        return x * sum(items())

    def behind_the_handler(x, effect, text, seen):
        try:
            seen.append(1)
        except ValueError:
            return x
        effect(text)
        return x * 2

    def decorated(x, effect, text, seen):
        @torch.no_grad()
        def inner(y):
            effect(text)
            return y * 2

        return inner(x)

    return dict(locals())


def outcomes(compile: Callable[[Any], Any], body: Any, effect: Any, stream: Any) -> Any:
    """What each of some calls gives, and what the stream has then."""
    fn = compile(body)
    log: list[Any] = []
    for text in TEXTS:
        out, seen = io.TextIOWrapper(io.BytesIO(), encoding="utf8"), []
        for target in (out, stream(), out):
            old = sys.stdout, sys.stderr
            sys.stdout = sys.stderr = target
            with warnings.catch_warnings():
                warnings.simplefilter("always")
                try:
                    result = str(fn(torch.ones(1), effect, text, seen))
                except Exception as error:
                    result = repr(error)
                finally:
                    sys.stdout, sys.stderr = old
            log.append((result, list(seen)))
        out.flush()
        log.append(out.buffer.getvalue())
    return log


@pytest.mark.parametrize("body", handlers().items(), ids=lambda item: item[0])
@pytest.mark.parametrize("effect", EFFECTS)
def test_handler_sees_the_failure(body, effect):
    for stream in streams().values():
        framejit.reset()
        expected = outcomes(lambda fn: fn, body[1], EFFECTS[effect], stream)
        actual = outcomes(framejit.compile, body[1], EFFECTS[effect], stream)
        assert actual == expected


@pytest.mark.parametrize("body", nobody().items(), ids=lambda item: item[0])
@pytest.mark.parametrize("effect", EFFECTS)
def test_failure_that_nobody_sees_leaves_the_function(body, effect):
    for stream in streams().values():
        framejit.reset()
        expected = outcomes(lambda fn: fn, body[1], EFFECTS[effect], stream)
        actual = outcomes(framejit.compile, body[1], EFFECTS[effect], stream)
        assert actual == expected


@pytest.mark.parametrize("body", nobody().items(), ids=lambda item: item[0])
def test_effect_outside_of_handlers_is_no_break(body, capsys):
    fn = body[1]

    def run(x):
        return fn(x, EFFECTS["print"], "text", [])

    framejit.reset()
    compiled = framejit.compile(run)
    for _ in range(2):
        assert torch.equal(compiled(torch.ones(1)), run(torch.ones(1)))
    entries = [e for top in framejit.inspect(compiled) for e in top.walk()]
    assert [b.id for e in entries for b in e.breaks] == []
    assert len(set(capsys.readouterr().out.split())) == 1


def writes() -> dict[str, Callable[..., Any]]:
    """fn(effect, l, d, s, q, o): writes on both sides of effects."""

    def list_whole_then_item(effect, l, d, s, q, o):
        l.reverse()
        effect()
        l.append(1)

    def list_item_then_whole(effect, l, d, s, q, o):
        l.append(7)
        effect()
        l.reverse()
        l.append(8)

    def list_many(effect, l, d, s, q, o):
        l.sort()
        effect()
        l.insert(0, 8)
        effect()
        l.sort(reverse=True)
        effect()
        del l[0]

    def list_emptied(effect, l, d, s, q, o):
        l.clear()
        effect()
        l.extend([4, 5])
        effect()
        l.clear()

    def dict_whole_then_item(effect, l, d, s, q, o):
        d.clear()
        effect()
        d[1] = 2

    def dict_item_then_whole(effect, l, d, s, q, o):
        d.pop(5)
        effect()
        d.clear()
        d[3] = 4

    def dict_one_key(effect, l, d, s, q, o):
        d[5] = 1
        effect()
        d[5] = 2
        effect()
        del d[5]

    def set_many(effect, l, d, s, q, o):
        s.add(9)
        effect()
        s.discard(1)
        s.update([11, 12])
        effect()
        s.clear()

    def deque_many(effect, l, d, s, q, o):
        q.appendleft(9)
        effect()
        q.rotate(1)
        effect()
        q.clear()

    def attributes(effect, l, d, s, q, o):
        o.a = 1
        effect()
        o.a = 2
        o.b = 3
        effect()
        del o.a

    def nested(effect, l, d, s, q, o):
        d["x"] = l
        l.reverse()
        effect()
        l.sort()
        d["x"] = None

    return dict(locals())


@pytest.mark.parametrize("body", writes().items(), ids=lambda item: item[0])
def test_writes_around_an_effect_that_fails(body):
    class Plain:
        pass

    def run(compile: Callable[[Any], Any]) -> str:
        texts: list[str] = []

        def fn(x, *args):
            left = iter(texts)
            body[1](lambda: print(next(left)), *args)
            return x * 2

        fn, seen = compile(fn), []
        for bad in (None, 0, 1, 2, None):
            texts[:] = ["\u1234" if i == bad else "a" for i in range(3)]
            o = Plain()
            args = [3, 1, 2], {5: 6, 7: 8}, {1, 2}, collections.deque([1, 2]), o
            old = sys.stdout
            sys.stdout = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
            try:
                result = str(fn(torch.ones(1), *args))
            except UnicodeEncodeError:
                result = "failed"
            finally:
                sys.stdout = old
            seen.append((result, args[:4], vars(o)))
        return str(seen)

    framejit.reset()
    assert run(framejit.compile) == run(lambda fn: fn)


def test_log_in_a_try():
    log = logging.Logger("framejit-test")
    log.addHandler(logging.FileHandler("/nowhere/at/all", delay=True))

    def fn(x):
        try:
            log.warning("hello")
        except OSError as error:
            return x * 2, type(error).__name__
        return x * 3

    framejit.reset()
    compiled = framejit.compile(fn)
    for _ in range(2):
        assert str(compiled(torch.ones(1))) == str(fn(torch.ones(1)))
