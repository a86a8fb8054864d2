"""Where a traceback leads: the program's lines, also of exceptions that were
raised in a capture and go on behind a break in it."""

import pytest
import torch

import framejit


def lines(error):
    """(function, line) of each frame, of the exception and what caused it."""
    found = []
    while error is not None:
        trace, frames = error.__traceback__, []
        while trace:
            code = trace.tb_frame.f_code
            if code.co_filename == __file__:
                frames.append((code.co_name, trace.tb_lineno))
            trace = trace.tb_next
        found.append((repr(error), frames))
        error = error.__cause__ or error.__context__
    return found


def outcome(fn):
    try:
        return fn(torch.ones(3))
    except Exception as error:
        # The first frame is this one.
        found = lines(error)
        return [(found[0][0], found[0][1][1:]), *found[1:]]


def value(y):
    return y.sum().item()


def fails(x):
    raise ValueError("inner")


def deeper(x):
    return fails(x)


def attribute_then_finally(x):
    y = x + 1
    try:
        z = y.missing
    finally:
        value(y)
    return z


def raise_then_finally(x):
    y = x + 1
    try:
        raise ValueError("own")
    finally:
        y.sum().item()


def callee_then_finally(x):
    y = x + 1
    try:
        deeper(x)
    finally:
        y.sum().item()


def other_handler_then_finally(x):
    y = x + 1
    try:
        deeper(x)
    except KeyError:
        pass
    finally:
        y.sum().item()


def handled_and_raised_again(x):
    y = x + 1
    try:
        [1][2]
    except IndexError:
        y.sum().item()
        raise


def handled_and_raised_by_name(x):
    y = x + 1
    try:
        [1][2]
    except IndexError as error:
        y.sum().item()
        raise error


def raised_from(x):
    y = x + 1
    try:
        deeper(x)
    except ValueError as error:
        y.sum().item()
        raise KeyError(1) from error


def kept_for_later(x):
    y = x + 1
    kept = None
    try:
        deeper(x)
    except ValueError as error:
        kept = error
    y.sum().item()
    raise kept


def in_context(x):
    y = x + 1
    try:
        deeper(x)
    except ValueError:
        try:
            [1][2]
        finally:
            y.sum().item()


def with_block(x):
    y = x + 1
    with torch.no_grad():
        try:
            deeper(x)
        finally:
            y.sum().item()


def generator(x):
    yield x + 1
    raise ValueError("made")


def from_generator(x):
    y = x + 1
    try:
        for z in generator(x):
            y = y + z
    finally:
        y.sum().item()


def thrown_into_generator(x):
    made = generator(x)
    y = next(made)
    try:
        made.throw(KeyError("thrown"))
    finally:
        y.sum().item()


def escapes(x):
    deeper(x + 1)


def escapes_behind_a_break(x):
    y = x + 1
    y.sum().item()
    deeper(y)


PROGRAMS = (
    attribute_then_finally,
    raise_then_finally,
    callee_then_finally,
    other_handler_then_finally,
    handled_and_raised_again,
    handled_and_raised_by_name,
    raised_from,
    kept_for_later,
    in_context,
    with_block,
    from_generator,
    thrown_into_generator,
    escapes,
    escapes_behind_a_break,
)


@pytest.mark.parametrize("fn", PROGRAMS, ids=lambda fn: fn.__name__)
@pytest.mark.parametrize("backend", ["eager", "native"])
def test_lines_are_those_of_eager(fn, backend):
    expected = outcome(fn)
    compiled = framejit.compile(fn, backend=backend)
    for _ in range(3):
        assert outcome(compiled) == expected


def test_returned_exception_has_its_lines():
    def fn(x):
        try:
            deeper(x)
        except ValueError as error:
            return x + 1, error

    compiled = framejit.compile(fn, backend="eager")
    for function in (fn, compiled, compiled):
        assert [name for name, _ in lines(function(torch.ones(3))[1])[0][1]] == [
            "fn",
            "deeper",
            "fails",
        ]
    assert len(framejit.inspect(compiled)) == 1


def test_an_exception_of_the_caller_keeps_its_own_lines():
    known = ValueError("known")

    def fn(x):
        try:
            raise known
        except ValueError:
            return x + 1

    compiled = framejit.compile(fn, backend="eager")
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(2)), torch.ones(2) + 1)
    assert len(lines(known)[0][1]) <= 3
