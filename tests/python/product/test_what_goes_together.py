"""What a write lets go of: held several times by what goes, beneath tensors, in
classes, gradients, context variables and iterators that end. Who sees it go
(a finalizer, a callback, a weak reference) sees it where the program says so.
"""

from __future__ import annotations

import contextvars
import functools
import weakref

import pytest
import torch

import framejit

SEEN: list[int] = []
VARIABLE: contextvars.ContextVar = contextvars.ContextVar("v")
REFERENCES: list[weakref.ref] = []


class Final:
    def __del__(self):
        SEEN.append(1)


class Holder:
    pass


class Attributes:
    """Of a class."""


class Custom(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, watched):
        ctx.watched = watched
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * 2, None


def final():
    return Final()


def with_callback():
    found = Holder()
    REFERENCES.append(weakref.ref(found, lambda _: SEEN.append(1)))
    return found


WATCHED = [final, with_callback]


def twice(watched):
    return [watched, watched]


def siblings(watched):
    return {"a": [watched], "b": (watched,)}


def circle(watched):
    first, second = Holder(), Holder()
    first.other, first.watched = second, watched
    second.watched = watched
    return [first, second]


def many(watched):
    return [[watched] for _ in range(40)] + [watched]


def tied(watched):
    layer = torch.nn.Linear(2, 2)
    layer.watched = watched
    return torch.nn.Sequential(layer, torch.nn.ReLU(), layer)


def compiled(watched):
    layer = torch.nn.Linear(2, 2)
    layer.watched = watched
    return framejit.compile(layer)


def tensor_attribute(watched):
    tensor = torch.ones(2)
    tensor.watched = watched
    return tensor


def history(watched):
    leaf = torch.ones(2, requires_grad=True)
    return Custom.apply(leaf, watched) * 2 + 1


def gradient(watched):
    tensor = torch.ones(2, requires_grad=True)
    tensor.grad = torch.ones(2)
    tensor.grad.watched = watched
    return tensor


def hook(watched):
    tensor = torch.ones(2, requires_grad=True)
    tensor.register_hook(functools.partial(lambda watched, grad: grad, watched))
    return tensor


HOLDERS = [twice, siblings, circle, many, tied, compiled, tensor_attribute, history]
HOLDERS += [gradient, hook]


def overwrites_attribute(x, holder):
    holder.held = None
    return x + len(SEEN)


def deletes_attribute(x, holder):
    del holder.held
    return x + len(SEEN)


def overwrites_item(x, holder):
    holder.items[0] = None
    return x + len(SEEN)


def clears(x, holder):
    holder.items.clear()
    return x + len(SEEN)


def overwrites_class_attribute(x, holder):
    Attributes.held = x * 2
    return x + len(SEEN)


def deletes_class_attribute(x, holder):
    del Attributes.held
    return x + len(SEEN)


def sets_variable(x, holder):
    VARIABLE.set(None)
    return x + len(SEEN)


def exhausts(x, holder):
    for _ in holder.iterator:
        pass
    return x + len(SEEN)


def exhausts_by_next(x, holder):
    next(holder.iterator)
    next(holder.iterator, None)
    return x + len(SEEN)


def behind_a_break(x, holder):
    kept = [holder.held, holder.held]
    holder.held = None
    framejit.graph_break()
    kept = None  # noqa: F841
    return x + len(SEEN)


def prepare(program, value):
    holder = Holder()
    if program in (overwrites_item, clears):
        holder.items = [value]
    elif program in (overwrites_class_attribute, deletes_class_attribute):
        Attributes.held = value
    elif program is sets_variable:
        VARIABLE.set(value)
    elif program in (exhausts, exhausts_by_next):
        holder.iterator = iter([value])
    else:
        holder.held = value
    return holder


PROGRAMS = [overwrites_attribute, deletes_attribute, overwrites_item, clears]
PROGRAMS += [overwrites_class_attribute, deletes_class_attribute, sets_variable]
PROGRAMS += [exhausts, exhausts_by_next, behind_a_break]


def outcomes(program, call, hold, watch):
    found = []
    for _ in range(3):
        SEEN.clear()
        REFERENCES.clear()
        holder = prepare(program, hold(watch()))
        x = torch.ones(2)
        found.append((call(x, holder).tolist(), len(SEEN)))
    SEEN.clear()
    return found


@pytest.mark.parametrize("watch", WATCHED)
@pytest.mark.parametrize("hold", HOLDERS)
@pytest.mark.parametrize("program", PROGRAMS)
def test_it_goes_where_the_program_says(program, hold, watch):
    expected = outcomes(program, program, hold, watch)
    fn = framejit.compile(program, backend="eager")
    assert outcomes(program, fn, hold, watch) == expected


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_others_hold_stays(program):
    """Only then is the capture whole."""
    keep = []

    def hold(watched):
        keep.append(watched)
        return [watched, watched]

    def watch():
        return Final()

    expected = outcomes(program, program, hold, watch)
    keep.clear()
    fn = framejit.compile(program, backend="eager")
    assert outcomes(program, fn, hold, watch) == expected


def zero_grad(model, optimizer, references):
    optimizer.zero_grad()
    return sum(r() is None for r in references)


def zero_grad_of_module(model, optimizer, references):
    model.zero_grad()
    return sum(r() is None for r in references)


def delete_grads(model, optimizer, references):
    for parameter in model.parameters():
        del parameter.grad
    return sum(r() is None for r in references)


def set_to_none(model, optimizer, references):
    for parameter in model.parameters():
        parameter.grad = None
    return sum(r() is None for r in references)


def set_to_another(model, optimizer, references):
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    return sum(r() is None for r in references)


@pytest.mark.parametrize(
    "program",
    [zero_grad, zero_grad_of_module, delete_grads, set_to_none, set_to_another],
)
@pytest.mark.parametrize("turns", [1, 3])
def test_weak_references_to_gradients(program, turns):
    def run(call):
        model = torch.nn.Linear(2, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        found = []
        for _ in range(turns):
            model(torch.ones(1, 2)).sum().backward()
            references = [weakref.ref(p.grad) for p in model.parameters()]
            found.append(call(model, optimizer, references))
        return found

    assert run(framejit.compile(program, backend="eager")) == run(program)


def test_a_callback_with_the_names_of_dynamos():
    dynamo = pytest.importorskip("torch._dynamo.utils")

    def program(x, holder):
        holder.held = None
        return x + len(SEEN)

    def run(call):
        found = []
        for _ in range(3):
            SEEN.clear()
            holder = Holder()
            holder.held = Holder()

            @functools.wraps(dynamo.count_calls)
            def callback(_):
                SEEN.append(1)

            reference = weakref.ref(holder.held, callback)
            found.append(call(torch.ones(1), holder).item())
            del reference
        return found

    assert run(framejit.compile(program, backend="eager")) == run(program)
