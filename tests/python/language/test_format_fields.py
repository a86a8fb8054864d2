"""str.format reads attributes and items of classes, functions and modules."""

from __future__ import annotations

import datetime
import decimal
import fractions
import types
from typing import Any

import pytest
import torch

import framejit


def make_class() -> Any:
    return type(
        "Holder", (), {"__class_getitem__": classmethod(lambda cls, key: cls.held)}
    )


def make_instance() -> Any:
    return make_class()()


def make_function() -> Any:
    return lambda: None


def make_module() -> Any:
    return types.ModuleType("holder")


EXPRESSIONS = """
"{0.held}".format(v)
"{a.held!r:>5}".format(a=v)
"{a.held}".format_map({"a": v})
"{0[0].held}".format([v])
"{0[key]}".format(v)
"{:{w.held}}".format(1, w=v)
""".strip().splitlines()


@pytest.mark.parametrize(
    "make", [make_class, make_instance, make_function, make_module]
)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_format_fields(expression: str, make: Any) -> None:
    namespace: dict[str, Any] = {}
    exec(f"def fn(v, x):\n    return {expression}, x * 2", namespace)
    fn = namespace["fn"]
    compiled = framejit.compile(fn, backend="eager")

    def outcome(call: Any, v: Any) -> Any:
        try:
            return call(v, torch.ones(2))[0]
        except Exception as error:
            return type(error), str(error)

    v = make()
    for held in (1, 2, 3, 1):
        v.held = held
        assert outcome(compiled, v) == outcome(fn, v)


# ---- whose form is its text: classes of C code may have another one

OWN_TEXTS = [
    decimal.Decimal,
    datetime.date,
    fractions.Fraction,
    int,
    float,
    str,
    object,
]


@pytest.mark.parametrize("method", ["__str__", "__repr__", "__format__"])
@pytest.mark.parametrize("base", OWN_TEXTS, ids=lambda base: base.__name__)
def test_formats_of_derived_classes(base: Any, method: str) -> None:
    made = type("Own", (base,), {method: lambda self, *spec: "own"})
    arguments = {datetime.date: (2020, 1, 1), object: ()}.get(base, (1,))

    def fn(v: Any, x: torch.Tensor) -> Any:
        text = f"{v}", f"{v!s}", f"{v!r}", format(v), format(v, ""), str(v), repr(v)
        return *text, "{}".format(v), "%s %r" % (v, v), x * 2

    compiled = framejit.compile(fn, backend="eager")
    for _ in range(2):
        v = made(*arguments)
        expected = [part.partition(" at 0x")[0] for part in fn(v, torch.ones(1))[:-1]]
        actual = compiled(v, torch.ones(1))[:-1]
        assert [part.partition(" at 0x")[0] for part in actual] == expected
