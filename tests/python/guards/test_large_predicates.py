"""Guards of large models: what predicates leave out while no dict changes, and
what they ask once for all parameters.

The facts are changed between calls of one loop in a function, so that no dict
of the process changes but those the program changes.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import framejit
from framejit import _C


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.act = nn.Linear(4, 4), nn.ReLU()

    def forward(self, x):
        return self.act(self.up(x)) + x


class Quiet(nn.Linear):
    def forward(self, x):
        return x


class Config:
    def __init__(self, scale: float) -> None:
        self.scale = scale


class Model(nn.Module):
    def __init__(self, blocks: int = 20) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(blocks))
        self.factors = [1.5, 2.0]
        self.config = Config(3.0)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x * self.factors[0] * self.config.scale


BATCH = torch.linspace(-1, 1, 8).reshape(2, 4)
_SMALL = torch.full((4, 4), 0.5)
_WIDE = torch.full((4, 8), 0.25)


def double(module, args, output):
    return output * 2


class Pair:
    """A change of the model and how to take it back."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self.linear = model.blocks[7].up
        self.weight = self.linear.weight
        self.old = self.weight.data
        self.spare = dict(self.linear.__dict__)
        self.own = self.linear.__dict__
        self.halved = _WIDE[:, ::2]
        self.bias = self.linear.bias
        self.handle = None

    @torch.no_grad()
    def transpose(self) -> None:
        self.weight.t_()


CHANGES: dict[str, tuple[Callable[[Pair], object], Callable[[Pair], object]]] = {
    # No dict changes in these.
    "class": (
        lambda p: setattr(p.linear, "__class__", Quiet),
        lambda p: setattr(p.linear, "__class__", nn.Linear),
    ),
    "data": (
        lambda p: setattr(p.weight, "data", _SMALL),
        lambda p: setattr(p.weight, "data", p.old),
    ),
    "strides": (
        lambda p: setattr(p.weight, "data", p.halved),
        lambda p: setattr(p.weight, "data", p.old),
    ),
    "transposed": (
        lambda p: p.transpose(),
        lambda p: p.transpose(),
    ),
    "values": (
        lambda p: p.old.add_(1),
        lambda p: p.old.sub_(1),
    ),
    "requires_grad": (
        lambda p: p.weight.requires_grad_(False),
        lambda p: p.weight.requires_grad_(True),
    ),
    "list item": (
        lambda p: p.model.factors.reverse(),
        lambda p: p.model.factors.reverse(),
    ),
    "plain object": (
        lambda p: setattr(p.model.config, "scale", 5.0),
        lambda p: setattr(p.model.config, "scale", 3.0),
    ),
    # In these some does.
    "hook": (
        lambda p: setattr(p, "handle", p.linear.register_forward_hook(double)),
        lambda p: p.handle.remove(),
    ),
    "hook by hand": (
        lambda p: p.linear._forward_hooks.__setitem__(0, double),
        lambda p: p.linear._forward_hooks.clear(),
    ),
    "own forward": (
        lambda p: setattr(p.linear, "forward", torch.sin),
        lambda p: delattr(p.linear, "forward"),
    ),
    "parameter": (
        lambda p: setattr(p.linear, "bias", None),
        lambda p: setattr(p.linear, "bias", p.bias),
    ),
    "other dict": (
        lambda p: setattr(p.linear, "__dict__", {**p.own, "forward": torch.cos}),
        lambda p: setattr(p.linear, "__dict__", p.own),
    ),
    "object replaced": (
        lambda p: setattr(p.model, "config", Config(7.0)),
        lambda p: setattr(p.model, "config", Config(3.0)),
    ),
}


@pytest.mark.parametrize("verify", [False, True], ids=["", "verify"])
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_calls_is_seen(name, verify):
    change, undo = CHANGES[name]
    torch.manual_seed(0)
    pair = Pair(Model())
    model = pair.model
    compiled = framejit.compile(lambda m, x: m(x), backend="eager")

    def rounds():
        for _ in range(3):
            for action in (None, change, None, undo):
                if action is not None:
                    action(pair)
                for _ in range(3):
                    expected, result = model(BATCH), compiled(model, BATCH)
                    assert torch.equal(result, expected)
                    assert result.requires_grad == expected.requires_grad

    if verify:
        _C.set_option("verify", "1")
    try:
        rounds()
    finally:
        _C.set_option("verify", "0")


def test_another_dict_with_other_values():
    # The dict is swapped for one that existed before: no dict changes.
    torch.manual_seed(0)
    pair = Pair(Model())
    model, linear = pair.model, pair.linear
    pair.spare["_parameters"] = {
        "weight": nn.Parameter(_SMALL),
        "bias": linear.bias,
    }
    compiled = framejit.compile(lambda m, x: m(x), backend="eager")

    def rounds():
        for _ in range(10):
            for state in (pair.own, pair.spare):
                linear.__dict__ = state
                for _ in range(3):
                    assert torch.equal(compiled(model, BATCH), model(BATCH))

    rounds()


def with_keywords(model, x, **factors):
    x = model(x)
    return x * factors["scale"] if factors else x


def with_positions(model, x, *factors):
    x = model(x)
    return x * factors[0] if factors else x


def with_list(model, x, factors):
    x = model(x)
    return x * factors[0] if factors else x


# What a small argument is empty of is looked at before the model, whose walk must not
# forget it.
@pytest.mark.parametrize("dicts_change", [False, True], ids=["", "dicts change"])
@pytest.mark.parametrize(
    ("function", "empty", "full"),
    [
        (with_keywords, ((), {}), ((), {"scale": 3.0})),
        (with_positions, ((), {}), ((3.0,), {})),
        (with_list, (([],), {}), (([3.0],), {})),
    ],
    ids=["keywords", "positions", "list"],
)
def test_an_argument_that_was_empty(function, empty, full, dicts_change):
    torch.manual_seed(0)
    model = Model()
    compiled = framejit.compile(function, backend="eager")
    for args, kwargs in [empty, empty, full, empty, full, full, empty]:
        if dicts_change:
            model.blocks[3].seen = {}
        expected = function(model, BATCH, *args, **kwargs)
        assert torch.equal(compiled(model, BATCH, *args, **kwargs), expected)
        assert torch.equal(compiled(model, BATCH, *args, **kwargs), expected)


def test_what_is_written_between_calls_but_not_used():
    torch.manual_seed(0)
    model = Model()
    compiled = framejit.compile(lambda m, x: m(x), backend="eager")

    def rounds(times):
        for step in range(times):
            model.blocks[3].seen = step
            assert torch.equal(compiled(model, BATCH), model(BATCH))

    rounds(20)
    with framejit.testing.no_recompile():
        rounds(20)


# ---- forward mode: one question for all parameters


def test_a_level_of_forward_mode_without_tangents():
    torch.manual_seed(0)
    model = Model()
    compiled = framejit.compile(lambda m, x: m(x), backend="eager")
    for _ in range(3):
        compiled(model, BATCH)
    with framejit.testing.no_recompile(), forward_ad.dual_level():
        for _ in range(3):
            assert torch.equal(compiled(model, BATCH), model(BATCH))


def test_a_parameter_with_a_tangent():
    torch.manual_seed(0)
    model = Model()
    compiled = framejit.compile(lambda m, x: m(x), backend="eager")
    bias = model.blocks[5].up.bias
    for _ in range(3):
        compiled(model, BATCH)
    for _ in range(2):
        with forward_ad.dual_level():
            with torch.no_grad():
                bias.mul_(forward_ad.make_dual(torch.ones(4), torch.ones(4)))
            expected = forward_ad.unpack_dual(model(BATCH))
            result = forward_ad.unpack_dual(compiled(model, BATCH))
            assert expected.tangent is not None
            assert torch.equal(result.primal, expected.primal)
            assert torch.equal(result.tangent, expected.tangent)
        # The pointer to tangents stays behind; nothing is in it.
        assert torch.equal(compiled(model, BATCH), model(BATCH))


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_a_tensor_that_had_a_tangent(backend):
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(4), torch.ones(4))
        had = dual * 3
    compiled = framejit.compile(lambda x: x * 2 + 1, backend=backend)
    compiled(torch.ones(4))
    with framejit.testing.no_recompile():
        for _ in range(3):
            assert torch.equal(compiled(had), had * 2 + 1)
    with forward_ad.dual_level():
        dual = forward_ad.make_dual(torch.ones(4), torch.ones(4))
        result = forward_ad.unpack_dual(compiled(dual))
        assert torch.equal(result.tangent, torch.full((4,), 2.0))
