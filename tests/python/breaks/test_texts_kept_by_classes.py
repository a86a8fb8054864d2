"""A text that goes into a named tuple or a dataclass, and one that `dict.get` gave, is
known by its type like one that goes into a dict. What looks at it makes it a fact."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import pytest
import torch

import framejit


class Output(NamedTuple):
    y: torch.Tensor
    id: Any = "none"

    @property
    def shown(self) -> str:
        return f"<{self.id}>"


Plain = collections.namedtuple("Plain", ["y", "id"])


class Derived(Output):
    pass


class Counting(Plain):
    """Looks at it where it is made."""

    def __new__(cls, y: Any, id: Any) -> Any:
        return super().__new__(cls, y * len(id), id)


@dataclasses.dataclass
class Data:
    y: torch.Tensor
    id: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    y: torch.Tensor
    id: Any = None


@dataclasses.dataclass
class Checked:
    y: torch.Tensor
    id: Any = None

    def __post_init__(self) -> None:
        self.long = len(self.id) > 3


@dataclasses.dataclass
class Slotted:
    __slots__ = ("id", "y")
    y: torch.Tensor
    id: Any


def got(batch: Any) -> Any:
    return {"y": batch["x"] * 2, "id": batch.get("id")}


def got_or(batch: Any) -> Any:
    return {"y": batch["x"] * 2, "id": batch.get("id", "nothing")}


def got_alone(batch: Any) -> Any:
    return batch.get("id")


def missing(batch: Any) -> Any:
    return {"y": batch["x"] * 2, "id": batch.get("other", batch["id"])}


def named(batch: Any) -> Any:
    return Output(batch["x"] * 2, batch["id"])


def named_by_keyword(batch: Any) -> Any:
    return Output(y=batch["x"] * 2, id=batch["id"])


def named_of_get(batch: Any) -> Any:
    return Output(batch["x"] * 2, batch.get("id"))


def plain(batch: Any) -> Any:
    return Plain(batch["x"] * 2, batch["id"])


def derived(batch: Any) -> Any:
    return [Derived(batch["x"] * 2, (batch["id"], 1))]


def data(batch: Any) -> Any:
    return Data(batch["x"] * 2, batch["id"])


def data_by_keyword(batch: Any) -> Any:
    return {"a": Data(y=batch["x"] * 2, id=batch["id"])}


def behind_a_break(batch: Any) -> Any:
    y = batch["x"] * 2
    framejit.graph_break()
    return Output(y + 1, batch["id"])


ONE = [
    got, got_or, named, named_by_keyword, named_of_get, plain, derived, data,
    data_by_keyword, behind_a_break,
]  # fmt: skip


def counting(batch: Any) -> Any:
    return Counting(batch["x"] * 2, batch["id"])


def checked(batch: Any) -> Any:
    return Checked(batch["x"] * 2, batch["id"])


def frozen(batch: Any) -> Any:
    return Frozen(batch["x"] * 2, batch["id"])


def slotted(batch: Any) -> Any:
    return Slotted(batch["x"] * 2, batch["id"])


def read_back(batch: Any) -> Any:
    out = Output(batch["x"], batch["id"])
    return out.y * len(out.id), out.shown


def compared(batch: Any) -> Any:
    a, b = Plain(1, batch["id"]), Plain(1, batch.get("id"))
    return batch["x"] * 2, a == b, a == (1, "a"), hash(a) == hash(b), "a" in a


def found(batch: Any) -> Any:
    return batch["x"] + Plain(2, batch["id"]).index(batch["id"])


def unpacked(batch: Any) -> Any:
    y, name = Output(batch["x"] * 2, batch["id"])
    return y, name + "!"


def replaced(batch: Any) -> Any:
    return Output(batch["x"] * 2, batch["id"])._replace(y=1), repr(
        Plain(0, batch["id"])
    )


def as_dict(batch: Any) -> Any:
    out = Output(batch["x"] * 2, batch["id"])
    return out._asdict(), dataclasses.asdict(Data(batch["x"], batch["id"]))


def asked(batch: Any) -> Any:
    out = Output(batch["x"] * 2, batch["id"])
    return out, isinstance(out.id, str), type(out.id) is bytes, out.id is None


READ = [
    missing, counting, checked, frozen, slotted, read_back, compared, found, unpacked, replaced,
    as_dict, asked, got_alone,
]  # fmt: skip

VALUES = ["a", "b", "", "long" * 9, b"a", "a", 3, None, ["b"], "b", torch.ones(2)]


def shown(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist()
    if dataclasses.is_dataclass(value):
        names = [*getattr(value, "__dict__", {}), "y", "id"]
        return type(value), [(name, shown(getattr(value, name))) for name in names]
    if isinstance(value, dict):
        return {key: shown(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value), [shown(item) for item in value]
    return value


def outcome(function: Any, value: Any) -> Any:
    try:
        return shown(function({"x": torch.ones(3), "id": value}))
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("function", [*ONE, *READ], ids=lambda f: f.__name__)
def test_equals_eager(function: Any) -> None:
    compiled = framejit.compile(function)
    for _ in range(2):
        for value in VALUES:
            assert outcome(compiled, value) == outcome(function, value), value


@pytest.mark.parametrize("function", ONE, ids=lambda f: f.__name__)
def test_one_entry_for_all(function: Any) -> None:
    compiled = framejit.compile(function)
    for number in range(12):
        batch = {"x": torch.ones(3), "id": f"image {number}"}
        assert shown(compiled(batch)) == shown(function(batch))
        if number == 0:
            before = framejit.counters()["compiles"]
    assert framejit.counters()["compiles"] == before


def test_it_is_the_object_that_came_in() -> None:
    compiled = framejit.compile(named_of_get)
    for number in range(4):
        batch = {"x": torch.ones(3), "id": f"image {number}"}
        assert compiled(batch).id is batch["id"]
