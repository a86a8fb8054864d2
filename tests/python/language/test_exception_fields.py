"""Everything an exception has besides its arguments, as a handler sees it and as
it is outside of the capture: `name`, `obj`, `value`, cause, context, notes.
"""

from __future__ import annotations

import pytest
import torch

import framejit


def undefined():
    return never_defined  # type: ignore[name-defined]  # noqa: F821


def free_too_early():
    def inner():
        return late

    found = inner()
    late = 1
    return found


def local_too_early():
    found = soon
    soon = 1
    return found


def in_a_class_body():
    class Made:
        value = never_there  # type: ignore[name-defined]  # noqa: F821

    return Made


def no_attribute():
    return (1).missing  # type: ignore[attr-defined]


def no_key():
    return {}["k"]


def at_the_end():
    return next(iter(()))


def with_a_cause():
    raise ValueError(1) from KeyError(2)


def with_a_cause_shown():
    error = ValueError(1)
    error.__cause__ = KeyError(2)
    error.__suppress_context__ = False
    raise error


def with_no_cause():
    raise ValueError(1) from None


def suppressed_only():
    error = ValueError(1)
    error.__suppress_context__ = True
    raise error


def in_a_handler():
    try:
        {}["k"]
    except KeyError:
        raise ValueError(1)  # noqa: B904


def with_a_note():
    error = ValueError(1)
    error.add_note("a note")
    raise error


WAYS = [undefined, free_too_early, local_too_early, in_a_class_body, no_attribute]
WAYS += [no_key, at_the_end, with_a_cause, with_a_cause_shown, with_no_cause]
WAYS += [suppressed_only, in_a_handler, with_a_note]


def picture(error):
    if error is None:
        return None
    fields = [
        getattr(error, name, "none") for name in ("name", "obj", "value", "__notes__")
    ]
    return (
        type(error),
        repr(error.args),
        fields,
        error.__suppress_context__,
        picture(error.__cause__),
        picture(error.__context__),
    )


def seen_by_the_handler(x, way):
    try:
        way()
    except Exception as error:
        found = (getattr(error, "name", 0), getattr(error, "value", 0))
        return x + 1, found, error.__suppress_context__, error.__cause__ is None
    return x


def handed_out(x, way):
    try:
        way()
    except Exception as error:
        kept = error
    return x + 1, kept


def across_a_break(x, way):
    try:
        way()
    except Exception as error:
        x = x + 1
        framejit.graph_break()
        return x * len(error.args), error
    return x


def raised_on(x, way):
    y = x + 1
    way()
    return y


PLACES = [seen_by_the_handler, handed_out, across_a_break, raised_on]


def outcome(f, way):
    try:
        _, *rest = f(torch.ones(2), way)
    except Exception as error:
        return picture(error)
    return [picture(r) if isinstance(r, Exception) else r for r in rest]


@pytest.mark.parametrize("place", PLACES, ids=lambda f: f.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda f: f.__name__)
def test_fields(way, place):
    framejit.reset()
    compiled = framejit.compile(place, backend="eager")
    for _ in range(3):
        assert outcome(compiled, way) == outcome(place, way)
