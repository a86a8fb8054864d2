"""torch is given objects of the program's own classes as sizes and numbers.

C code asks them by methods in Python (`__iter__`, `__len__`, `__getitem__`,
`__index__`, `__float__`), which have effects and may answer something else at the
next call. Every call below, with every kind of object, three of each kind: results,
errors and what was asked are eager's.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import framejit


class Asked:
    def __init__(self, value: Any) -> None:
        self.value = value
        self.log: list[str] = []


class Items(Asked):
    def __iter__(self):
        self.log.append("iter")
        return iter(self.value)

    def __len__(self):
        self.log.append("len")
        return len(self.value)

    def __getitem__(self, index):
        self.log.append("item")
        return self.value[index]


class Index(Asked):
    def __index__(self):
        self.log.append("index")
        return self.value

    def __int__(self):
        self.log.append("int")
        return self.value


class Floating(Asked):
    def __float__(self):
        self.log.append("float")
        return float(self.value)


class Both(Index, Floating):
    pass


class OwnInt(int):
    log: list[str] = []

    def __index__(self):
        OwnInt.log.append("index")
        return 1


class OwnList(list):
    log: list[str] = []

    def __iter__(self):
        return iter([1, 1])

    def __getitem__(self, index):
        return 1


class OwnTuple(tuple):
    log: list[str] = []

    def __iter__(self):
        return iter([1, 1])

    def __getitem__(self, index):
        return 1

    def __len__(self):
        return 2


class PlainTuple(tuple):
    log: list[str] = []


class PlainList(list):
    log: list[str] = []


SHAPES = [(1, 2), (2, 1), (2, 2), (1, 2)]
NUMBERS = [1, 0, 1, 2]
KINDS = {
    Items: SHAPES,
    Index: NUMBERS,
    Floating: NUMBERS,
    Both: NUMBERS,
    OwnInt: NUMBERS,
    OwnList: SHAPES,
    OwnTuple: SHAPES,
    PlainTuple: SHAPES,
    PlainList: SHAPES,
}
EXPRESSIONS = """
torch.tensor(v)
torch.tensor([v, v])
torch.tensor([[1, 2], v])
torch.as_tensor(v)
torch.scalar_tensor(v)
torch.zeros(v)
torch.zeros(v, v)
torch.ones((v, 2))
torch.full((2,), v)
torch.arange(v)
torch.linspace(0, 1, v)
torch.eye(v)
torch.rand(v)
torch.randint(v, (2,))
torch.Size(v)
torch.Size((v, v))
torch.Size([[v], v])
torch.Size(v).numel()
torch.broadcast_shapes(v)
torch.broadcast_shapes((2, 1), v)
torch.broadcast_shapes((v, 1), (1, v))
torch.finfo(v)
torch.iinfo(v)
torch.can_cast(v, v)
torch.promote_types(v, v)
torch.device(v)
torch.device('cpu', v)
torch.is_tensor(v)
torch.result_type(x, v)
torch.numel(v)
torch.stack(v)
torch.cat(v)
torch.unsqueeze(x, v)
torch.chunk(x, v)
torch.split(x, v)
torch.topk(x, v)
torch.roll(x, v)
torch.flip(x, v)
torch.triu(x, v)
torch.clamp(x, v)
torch.clamp(x, max=v)
torch.pow(x, v)
torch.where(x > 1, x, v)
torch.nn.functional.pad(x, v)
torch.nn.functional.dropout(x, v, False)
torch.manual_seed(v)
x.view(v)
x.view(v, -1)
x.reshape((1, v))
x.sum(v)
x.sum(dim=v)
x.expand(v, -1)
x.permute(v)
x.repeat(v)
x.transpose(v, 0)
x.to(v)
x.new_zeros(v)
x.new_tensor(v)
x.fill_(v)
x + v
v + x
x * v
x ** v
x // v
x == v
x[v]
x[v:]
x.item() + v
x.shape[v]
x.size(v)
range(v)
""".strip().splitlines()


def seen(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.tolist(), value.dtype, value.shape
    if isinstance(value, (torch.Generator, Asked)):
        return type(value)
    return type(value), repr(value)


def outcome(fn: Any, v: Any) -> Any:
    type(v).log = []
    torch.manual_seed(0)
    try:
        found = seen(fn(v, torch.ones(2, 2)))
    except Exception as error:
        found = type(error), str(error).partition(" at 0x")[0]
    return found, v.log


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_arguments_of_other_classes(expression: str, kind: Any) -> None:
    namespace: dict[str, Any] = {"torch": torch}
    exec(f"def fn(v, x):\n    return {expression}", namespace)
    compiled = framejit.compile(namespace["fn"], backend="eager")
    for value in KINDS[kind]:
        expected = outcome(namespace["fn"], kind(value))
        assert expected == outcome(compiled, kind(value)), value
