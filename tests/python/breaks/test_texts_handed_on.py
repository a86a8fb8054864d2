"""A text or bytes that came in and goes into what a function returns, or into an
attribute, is known by its type: one entry answers all. What looks at it all the same
makes it a fact, as it was."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import framejit

LAYER = nn.Linear(4, 2)


class Holder:
    name: Any = None


class Watched:
    """What is stored is looked at."""

    seen: list[Any]

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__.setdefault("seen", []).append((name, str(value) + "!"))
        self.__dict__[name] = value


HOLDER, WATCHED = Holder(), Watched()


def in_a_tuple(x: Any, name: Any) -> Any:
    return x * 2, name


def in_a_dict(x: Any, name: Any) -> Any:
    return {"out": x * 2, "name": name}


def in_a_list(x: Any, name: Any) -> Any:
    return [x * 2, name]


def nested(x: Any, name: Any) -> Any:
    return {"out": (x * 2, [name, name]), "again": {"name": name, "y": x + 1}}


def by_a_variable(x: Any, name: Any) -> Any:
    out = {"out": x * 2, "name": name}
    return out


def alone(x: Any, name: Any) -> Any:
    return name


def stored(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return x * 2


def of_a_batch(x: Any, name: Any) -> Any:
    return first_of({"x": x, "name": name, "other": [name]})


def first_of(batch: Any) -> Any:
    return {"out": batch["x"] * 2, "name": batch["name"]}


@torch.no_grad()
def under_a_decorator(batch: Any) -> Any:
    return {"name": batch["name"], "out": LAYER(batch["x"])}


def after_a_break(x: Any, name: Any) -> Any:
    y = x * 2
    framejit.graph_break()
    return {"out": y + 1, "name": name}


def before_a_break(x: Any, name: Any) -> Any:
    return [name, LAYER(framejit_breaks(x))]


def framejit_breaks(x: Any) -> Any:
    framejit.graph_break()
    return x * 2


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = LAYER

    def forward(self, batch: Any) -> Any:
        return {"out": self.layer(batch["x"]), "name": batch["name"]}


ONE: list[Callable[..., Any]] = [
    in_a_tuple, in_a_dict, in_a_list, nested, by_a_variable, stored, after_a_break,
]  # fmt: skip


# ---- what looks at it


def compared(x: Any, name: Any) -> Any:
    out = in_a_dict(x, name)
    return out if out["name"] == "b" else [out]


def read_back(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return x * len(HOLDER.name)


def read_in_try(x: Any, name: Any) -> Any:
    HOLDER.name = name
    try:
        return x * len(HOLDER.name)
    except TypeError:
        return x


def asked_by_c(x: Any, name: Any) -> Any:
    HOLDER.name = name
    try:
        return x + "abc".startswith(HOLDER.name)
    except TypeError:
        return x - 1


def asked_for_its_type(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return x + isinstance(HOLDER.name, str) + 2 * (type(HOLDER.name) is bytes)


def asked_for_identity(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return x + (HOLDER.name is name) + 2 * (HOLDER.name is None)


def asked_for_truth(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return x + 1 if HOLDER.name else x - 1


def as_a_key(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return {HOLDER.name: x * 2}


def formatted(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return x * 2, f"{HOLDER.name}."


def in_a_container(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return x * 2, "b" in [HOLDER.name], [HOLDER.name].count("a")


def as_text(x: Any, name: Any) -> Any:
    HOLDER.name = [name]
    return x * 2, str(HOLDER.name), repr((name,))


def as_json(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return x * 2, json.dumps({"a": str(HOLDER.name)})


def copied(x: Any, name: Any) -> Any:
    HOLDER.name = name
    return x * 2, copy.deepcopy([HOLDER.name])


def watched(x: Any, name: Any) -> Any:
    WATCHED.name = name
    return x * 2


def raising(x: Any, name: Any) -> Any:
    HOLDER.name = name
    raise KeyError(HOLDER.name)


READ = [
    compared, read_back, read_in_try, asked_by_c, asked_for_its_type,
    asked_for_identity, asked_for_truth, as_a_key, formatted, in_a_container, as_text,
    as_json, copied, watched, raising,
]  # fmt: skip

VALUES = [
    "a", "b", "", "long" * 99, "\N{SNOWMAN}", b"a", b"", "a", 3, None, 2.5, ["b"], ("b",),
    "b", b"b", torch.ones(2),
]  # fmt: skip


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {shown(k): shown(v) for k, v in value.items()}
    return type(value)(map(shown, value)) if type(value) in (list, tuple) else value


def outcome(function: Any, value: Any) -> Any:
    HOLDER.name = None
    WATCHED.__dict__.clear()
    try:
        result = shown(function(torch.ones(3, 4), value))
    except Exception as error:
        result = type(error), str(error)
    return result, shown(HOLDER.name), shown(dict(WATCHED.__dict__))


@pytest.mark.parametrize(
    "function",
    [*ONE, alone, of_a_batch, before_a_break, *READ],
    ids=lambda f: f.__name__,
)
def test_equals_eager(function: Any) -> None:
    compiled = framejit.compile(function)
    for _ in range(2):
        for value in VALUES:
            assert outcome(compiled, value) == outcome(function, value), value


@pytest.mark.parametrize("function", READ[1:-1], ids=lambda f: f.__name__)
def test_what_is_read_is_still_one_graph(function: Any) -> None:
    breaks = framejit.counters()["breaks"]
    compiled = framejit.compile(function)
    compiled(torch.ones(3), "a")
    whole = framejit.counters()["breaks"] == breaks
    assert whole or function in (as_json, asked_by_c, asked_for_identity)


@pytest.mark.parametrize("function", ONE, ids=lambda f: f.__name__)
@pytest.mark.parametrize("kind", [str, lambda i: b"%d" % i], ids=["str", "bytes"])
def test_one_entry_for_all(function: Any, kind: Any) -> None:
    compiled = framejit.compile(function)
    compiled(torch.ones(3), kind(0))
    before = framejit.counters()["compiles"]
    for number in range(1, 12):
        compiled(torch.ones(3), kind(number))
    assert framejit.counters()["compiles"] == before


@pytest.mark.parametrize("make", [lambda: first_of, lambda: under_a_decorator, Model])
def test_one_entry_for_all_batches(make: Any) -> None:
    function = make()
    compiled = framejit.compile(function)
    for number in range(12):
        batch = {"x": torch.full((2, 4), float(number)), "name": f"image {number}"}
        found, expected = compiled(batch), function(batch)
        assert found["name"] is batch["name"] and list(found) == list(expected)
        torch.testing.assert_close(found["out"], expected["out"])
        if number == 0:
            before = framejit.counters()["compiles"]
    assert framejit.counters()["compiles"] == before


def test_a_hook_that_looks_at_what_a_model_returns() -> None:
    model = Model()
    seen: list[Any] = []
    model.register_forward_hook(
        lambda module, args, out: seen.append(
            len(out["name"]) if "1" in out["name"] else 0
        )
    )
    compiled = framejit.compile(model)
    names = ["a", "a1", "b", "abc1", "a", "a1"]
    for name in names:
        batch = {"x": torch.ones(2, 4), "name": name}
        assert compiled(batch)["name"] == name
    assert seen == [0, 2, 0, 4, 0, 2]


def test_it_is_the_object_that_came_in() -> None:
    compiled = framejit.compile(nested)
    for number in range(4):
        name = f"name {number}"
        out = compiled(torch.ones(2), name)
        assert out["out"][1][0] is name and out["again"]["name"] is name
