"""What is seen through a weak reference goes where the program says so, whatever its
callback is made of; callbacks of other compilers' tables are nobody's business."""

import functools
import gc
import sys
import types
import weakref

import pytest
import torch
from torch import nn

import framejit

DEATHS = []


class Thing:
    pass


def python(deaths):
    return lambda reference: deaths.append(1)


def bound_c_method(deaths):
    return deaths.append


def partial(deaths):
    return functools.partial(list.append, deaths)


class Callback:
    def __init__(self, deaths):
        self.deaths = deaths

    def __call__(self, reference):
        self.deaths.append(1)


def of_another_module(deaths):
    callback = python(deaths)
    callback.__module__ = "torch._dynamo.utilities"
    return callback


CALLBACKS = (
    python,
    bound_c_method,
    partial,
    Callback,
    of_another_module,
)


def attribute(x, holder):
    holder.thing = None
    return x + len(DEATHS)


def deleted(x, holder):
    del holder.thing
    return x + len(DEATHS)


def item(x, holder):
    holder.things[0] = None
    return x + len(DEATHS)


def key(x, holder):
    holder.table.pop("thing")
    return x + len(DEATHS)


def cleared(x, holder):
    holder.things.clear()
    return x + len(DEATHS)


def program(fn, make, wrap):
    # Code of its own, of which no other test's breaks are remembered.
    compiled = wrap(types.FunctionType(fn.__code__.replace(), globals()))
    results = []
    for _ in range(3):
        DEATHS.clear()
        holder, thing = Thing(), Thing()
        reference = weakref.ref(thing, make(DEATHS))
        if fn in (attribute, deleted):
            holder.thing = thing
        elif fn is key:
            holder.table = {"thing": thing}
        else:
            holder.things = [thing]
        del thing
        results.append((compiled(torch.ones(2), holder)[0].item(), len(DEATHS)))
        assert reference() is None
    return results


@pytest.mark.parametrize("make", CALLBACKS, ids=lambda make: make.__name__)
@pytest.mark.parametrize(
    "fn", [attribute, deleted, item, key, cleared], ids=lambda fn: fn.__name__
)
def test_callbacks_run_where_the_program_says(fn, make):
    wrap = functools.partial(framejit.compile, backend="eager")
    assert program(fn, make, wrap) == program(fn, make, lambda fn: fn)


def test_modules_that_another_compiler_remembers():
    """Dynamo, once used, has a weak reference to each module that is made."""
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(2))
    assert "torch._dynamo.utils" in sys.modules

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(2, 2) for _ in range(3))

        def forward(self, x):
            for layer in self.layers:
                framejit.graph_break()
                x = layer(x)
            return x

    net = Net()
    assert weakref.getweakrefcount(net.layers[0])
    compiled = framejit.compile(net, backend="eager")
    x = torch.ones(2)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), net(x))
    breaks = framejit.explain(net.forward)(x).breaks
    assert {brk.id for brk in breaks} == {"FJ206"}, breaks
    framejit.reset()
    torch._dynamo.reset()
    gc.collect()
