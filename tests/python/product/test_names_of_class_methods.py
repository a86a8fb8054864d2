"""type.__new__ makes a static method of a function called __new__ and class methods of
__init_subclass__ and __class_getitem__. A compiled function of those names in a class is
treated alike, and as there nobody is asked: no __setattr__ of a metaclass."""

from __future__ import annotations

import abc
import enum
import functools
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import framejit

NAMES = ["__new__", "__init_subclass__", "__class_getitem__", "other"]


def plain(made: Any) -> Any:
    return made


def with_options(made: Any) -> Any:
    return framejit.compile(fullgraph=False)(made)


def of_a_wrapper(made: Any) -> Any:
    @functools.wraps(made)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return made(*args, **kwargs)

    return framejit.compile(wrapper)


def above_static(made: Any) -> Any:
    return framejit.compile(staticmethod(made))


def above_class(made: Any) -> Any:
    return framejit.compile(classmethod(made))


def beneath_static(made: Any) -> Any:
    return staticmethod(framejit.compile(made))


def beneath_class(made: Any) -> Any:
    return classmethod(framejit.compile(made))


# What is compiled, and the same without.
FORMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "compile": (framejit.compile, plain),
    "options": (with_options, plain),
    "wrapper": (of_a_wrapper, plain),
    "above static": (above_static, staticmethod),
    "above class": (above_class, classmethod),
    "beneath static": (beneath_static, staticmethod),
    "beneath class": (beneath_class, classmethod),
}

LOG: list[Any] = []


class Logging(type):
    def __setattr__(cls, name: str, value: Any) -> None:
        LOG.append(("set", name))
        super().__setattr__(name, value)


class Frozen(type):
    def __setattr__(cls, name: str, value: Any) -> None:
        raise AttributeError("frozen class: " + name)


class WithProperties(type):
    def _set(cls, value: Any) -> None:
        LOG.append("property set")

    __class_getitem__ = property(lambda cls: 5, _set)  # type: ignore[assignment]
    __init_subclass__ = property(lambda cls: 5, _set)  # type: ignore[assignment]


class Abstract(abc.ABCMeta):
    def __setattr__(cls, name: str, value: Any) -> None:
        if not name.startswith("_abc"):
            LOG.append(("set", name))
        super().__setattr__(name, value)


METACLASSES = [type, Logging, Frozen, WithProperties, abc.ABCMeta, Abstract]


def methods(wrap: Any) -> dict[str, Any]:
    def __new__(cls: Any, *args: Any) -> Any:
        made = object.__new__(cls)
        made.seen = torch.ones(2) + len(args)
        return made

    def __init_subclass__(cls: Any, **kwargs: Any) -> None:
        LOG.append(("subclass", cls.__name__, kwargs, float(torch.ones(1) + 1)))

    def __class_getitem__(cls: Any, key: Any) -> Any:
        return cls.__name__, key, float(torch.ones(1) + 2)

    def other(*args: Any) -> Any:
        return len(args), float(torch.ones(1) + 3)

    return {
        name: wrap(made)
        for name, made in [
            ("__new__", __new__),
            ("__init_subclass__", __init_subclass__),
            ("__class_getitem__", __class_getitem__),
            ("other", other),
        ]
    }


def in_a_body(meta: Any, space: dict[str, Any]) -> Any:
    class Layer(metaclass=meta):
        first = 1
        if "__new__" in space:
            __new__ = space["__new__"]
        if "__init_subclass__" in space:
            __init_subclass__ = space["__init_subclass__"]
        if "__class_getitem__" in space:
            __class_getitem__ = space["__class_getitem__"]
        if "other" in space:
            other = space["other"]
        last = 2

    return Layer


def by_a_call(meta: Any, space: dict[str, Any]) -> Any:
    return meta("Layer", (), dict(space, first=1))


def by_new_class(meta: Any, space: dict[str, Any]) -> Any:
    return types.new_class(
        "Layer", (), {"metaclass": meta}, lambda ns: ns.update(space)
    )


def assigned(meta: Any, space: dict[str, Any]) -> Any:
    made = meta("Layer", (), {})
    for name, value in space.items():
        setattr(made, name, value)
    return made


def in_a_base(meta: Any, space: dict[str, Any]) -> Any:
    return meta("Derived", (meta("Layer", (), dict(space)),), {})


def watched(meta: Any, space: dict[str, Any]) -> Any:
    """A descriptor that comes behind the methods sees what they have become."""

    class Last:
        def __set_name__(self, owner: Any, name: str) -> None:
            LOG.append([type(vars(owner).get(name)).__name__ for name in NAMES[:3]])

    return meta("Layer", (), dict(space, last=Last()))


MAKERS = [in_a_body, by_a_call, by_new_class, assigned, in_a_base, watched]


def outcome(do: Callable[[], Any]) -> Any:
    try:
        result = do()
    except Exception as error:
        return type(error), str(error).replace("'CompiledFunction'", "'function'")
    is_plain = isinstance(result, (int, str, tuple, list, type(None)))
    return result if is_plain else type(result).__name__


def kind_of(value: Any) -> Any:
    is_function = isinstance(value, types.FunctionType)
    return "function" if is_function else type(value).__name__


def told(make: Any, meta: Any, names: list[str], wrap: Any) -> Any:
    LOG.clear()
    try:
        made = make(meta, {n: m for n, m in methods(wrap).items() if n in names})
    except Exception as error:
        return type(error), str(error)
    answers = [
        [(name, kind_of(value)) for name, value in vars(made).items()],
        outcome(lambda: made()),
        outcome(lambda: made(1, 2).seen.tolist()),
        outcome(lambda: made[3]),
        outcome(lambda: made.__class_getitem__(3)),
        outcome(lambda: made().__class_getitem__(3)),
        outcome(lambda: type(made().__new__(made)).__name__),
        outcome(lambda: meta("Sub", (made,), {}).__name__),
        outcome(lambda: made.__init_subclass__()),
        outcome(lambda: made().__init_subclass__()),
        outcome(lambda: made.other(1)),
        outcome(lambda: made().other(1)),
        outcome(lambda: type(meta("Sub", (made,), {})()).__name__),
    ]
    return answers, list(LOG)


@pytest.mark.parametrize("make", MAKERS, ids=lambda make: make.__name__)
@pytest.mark.parametrize("meta", METACLASSES, ids=lambda meta: meta.__name__)
@pytest.mark.parametrize("form", FORMS)
def test_methods_of_these_names(form: str, meta: Any, make: Any) -> None:
    compiled, eager = FORMS[form]
    for names in (NAMES, *([name] for name in NAMES)):
        assert told(make, meta, names, compiled) == told(make, meta, names, eager), (
            names
        )


def test_the_class_of_an_instance_is_its_own() -> None:
    def program(wrap: Any) -> Any:
        class Layer:
            @wrap
            def __new__(cls) -> Any:
                return object.__new__(cls)

            def clone(self) -> Any:
                return self.__new__(type(self))

        return type(Layer().clone()).__name__

    assert program(plain) == program(framejit.compile) == "Layer"


def test_an_enum() -> None:
    def program(wrap: Any) -> Any:
        class Color(enum.Enum):
            @wrap
            def __new__(cls, value: Any) -> Any:
                made = object.__new__(cls)
                made._value_ = value + int(torch.ones(1) + 1)
                return made

            RED = 1
            BLUE = 2

        return [member.value for member in Color], Color(3).name

    assert program(plain) == program(framejit.compile) == ([3, 4], "RED")


def test_set_name_of_another_class_changes_nothing() -> None:
    made = framejit.compile(lambda cls, *args: len(args))

    class Layer:
        __class_getitem__ = 5

    made.__set_name__(Layer, "__class_getitem__")
    made.__set_name__(int, "__class_getitem__")
    assert Layer.__class_getitem__ == 5 and not hasattr(int, "__class_getitem__")
