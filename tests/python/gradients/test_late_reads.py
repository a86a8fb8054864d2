"""What gradient functions read of the program, they read in the backward.

Every kind of gradient function, reading through every kind of place, where the
place is written to at every moment between its registration and the backward.
"""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import framejit

SCALE: Any = 1.0


class Holder:
    k: Any


class Place:
    """Where a number or tensor is kept: `read()` and `write()` are inlined."""


class Attribute(Place):
    def __init__(self) -> None:
        self.k: Any = None

    def read(self) -> Any:
        return self.k

    def write(self, value: Any) -> None:
        self.k = value


class Global(Place):
    def read(self) -> Any:
        return SCALE

    def write(self, value: Any) -> None:
        global SCALE
        SCALE = value


class Cell(Place):
    def __init__(self) -> None:
        k: Any = None

        def read() -> Any:
            return k

        def write(value: Any) -> None:
            nonlocal k
            k = value

        self.read, self.write = read, write


class ClassAttribute(Place):
    k: Any = None

    @classmethod
    def read(cls) -> Any:
        return cls.k

    @classmethod
    def write(cls, value: Any) -> None:
        cls.k = value


class ListItem(Place):
    def __init__(self) -> None:
        self.items: list[Any] = [None]

    def read(self) -> Any:
        return self.items[0]

    def write(self, value: Any) -> None:
        self.items[0] = value


class DictItem(Place):
    def __init__(self) -> None:
        self.items: dict[str, Any] = {"k": None}

    def read(self) -> Any:
        return self.items["k"]

    def write(self, value: Any) -> None:
        self.items["k"] = value


class Absent(Place):
    """An attribute that is there or not."""

    def read(self) -> Any:
        return getattr(self, "k", 1.0)

    def write(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) or value > 2:
            self.k = value
        elif "k" in self.__dict__:
            del self.k


class TensorInPlace(Place):
    """The tensor stays, its content changes."""

    def __init__(self) -> None:
        self.tensor = torch.ones(1)

    def read(self) -> Any:
        return self.tensor

    def write(self, value: Any) -> None:
        with torch.no_grad():
            self.tensor.fill_(float(value))


class TensorRebound(Attribute):
    def write(self, value: Any) -> None:
        self.k = torch.full((1,), float(value))


PLACES: list[Callable[[], Any]] = [
    Attribute,
    Global,
    Cell,
    ClassAttribute,
    ListItem,
    DictItem,
    Absent,
    TensorInPlace,
    TensorRebound,
]


# ---- gradient functions: each gives x, with a gradient that reads the place


def hook(x: Any, place: Any) -> Any:
    y = x * 1
    y.register_hook(lambda g: g * place.read())
    return y


def bound_read_hook(x: Any, place: Any) -> Any:
    y = x * 1
    read = place.read
    y.register_hook(lambda g: g * read())
    return y


def partial_hook(x: Any, place: Any) -> Any:
    y = x * 1
    y.register_hook(partial(_scaled, place))
    return y


def _scaled(place: Any, g: Any) -> Any:
    return g * place.read()


def default_hook(x: Any, place: Any) -> Any:
    y = x * 1
    y.register_hook(lambda g, place=place: g * place.read())
    return y


def post_accumulate(x: Any, place: Any) -> Any:
    def accumulated(leaf: Any) -> None:
        leaf.grad.mul_(place.read())

    x.register_post_accumulate_grad_hook(accumulated)
    return x * 1


class OnContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, place: Any) -> Any:
        ctx.place = place
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return g * ctx.place.read(), None


def function(x: Any, place: Any) -> Any:
    return OnContext.apply(x, place)


class Vjp(torch.autograd.Function):
    @staticmethod
    def forward(x: Any, place: Any) -> Any:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.place = inputs[1]

    @staticmethod
    def vjp(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return g * ctx.place.read(), None


def vjp_function(x: Any, place: Any) -> Any:
    return Vjp.apply(x, place)


OPERATOR_PLACE: list[Any] = [None]


@torch.library.custom_op("framejit_late::identity", mutates_args=())
def identity(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


identity.register_fake(lambda x: torch.empty_like(x))
identity.register_autograd(lambda ctx, g: g * OPERATOR_PLACE[0].read())


def operator(x: Any, place: Any) -> Any:
    OPERATOR_PLACE[0] = place
    return identity(x)


def _body(x: Any, place: Any) -> Any:
    return x * place.read() * x.sin()


def checkpointed(x: Any, place: Any) -> Any:
    return checkpoint(_body, x, place, use_reentrant=False)


KINDS: list[Callable[[Any, Any], Any]] = [
    hook,
    bound_read_hook,
    partial_hook,
    default_hook,
    post_accumulate,
    function,
    vjp_function,
    operator,
    checkpointed,
]


# ---- when the place is written to


def in_the_capture(kind: Any, x: Any, place: Any, value: Any) -> Any:
    place.write(2.0)
    y = kind(x, place)
    place.write(value)
    return y * 2


def by_the_caller(kind: Any, x: Any, place: Any, value: Any) -> Any:
    return kind(x, place) * 2


def backward_inside(kind: Any, x: Any, place: Any, value: Any) -> Any:
    place.write(2.0)
    y = kind(x, place)
    place.write(value)
    (y * 2).sum().backward()
    return y.detach()


def between_calls(kind: Any, x: Any, place: Any, value: Any) -> Any:
    return kind(x, place) * 2


MOMENTS = [in_the_capture, by_the_caller, backward_inside, between_calls]


def observed(
    moment: Any, kind: Any, make_place: Any, compiler: Callable[..., Any]
) -> list[Any]:
    """The gradients of some calls, or how they failed."""
    global SCALE
    SCALE, ClassAttribute.k = 1.0, 1.0

    def program(x: Any, place: Any, value: Any) -> Any:
        return moment(kind, x, place, value)

    compiled = compiler(program)
    place = make_place()
    place.write(1.0)
    seen: list[Any] = []
    for number, value in enumerate((3.0, 5.0, 5.0, 7.0)):
        x = torch.full((3,), 0.5 + number, requires_grad=True)
        if moment is between_calls:
            place.write(value)
        try:
            y = compiled(x, place, value)
            if moment is by_the_caller:
                place.write(value + 10)
            if y.requires_grad:
                y.sum().backward()
            assert x.grad is not None
            seen.append(x.grad.tolist())
        except Exception as error:
            seen.append((type(error), str(error)))
    return seen


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("moment", MOMENTS)
def test_late_reads_are_those_of_the_backward(moment: Any, kind: Any) -> None:
    for make_place in PLACES:
        framejit.reset()
        expected = observed(moment, kind, make_place, lambda fn: fn)
        actual = observed(moment, kind, make_place, framejit.compile)
        for a, b in itertools.zip_longest(expected, actual):
            same = a == b if isinstance(a, tuple) else b == pytest.approx(a)
            assert same, f"{make_place.__name__}: eager {expected}, compiled {actual}"


# ---- variables of the function around it


def test_a_variable_of_a_loop() -> None:
    def program(x: Any, v: Any) -> Any:
        parts = []
        for i in range(3):
            y = x * 1
            y.register_hook(lambda g: g * (i + 1))
            parts.append(y)
        return sum(parts)

    same_gradients(program)


def test_a_variable_written_afterwards() -> None:
    def program(x: Any, v: Any) -> Any:
        k = 1.0
        y = x * 1
        y.register_hook(lambda g: g * k)
        k = v
        return y * 2

    same_gradients(program)


def test_a_variable_written_by_an_inner_function() -> None:
    def program(x: Any, v: Any) -> Any:
        k = v

        def later() -> None:
            nonlocal k
            k = k + 1

        y = x * 1
        y.register_hook(lambda g: g * k)
        later()
        return y * 2

    same_gradients(program)


def test_a_variable_bound_before_the_hook_knows_it() -> None:
    def program(x: Any, v: Any) -> Any:
        y = x * 1

        def scaled(g: Any) -> Any:
            return g * k

        k = 1.0
        y.register_hook(scaled)
        k = v
        return y * 2

    same_gradients(program)


def test_a_variable_that_the_hook_writes_to() -> None:
    def program(x: Any, v: Any) -> Any:
        k = 1.0

        def hook(g: Any) -> None:
            nonlocal k
            k = v

        y = x * 1
        y.register_hook(hook)
        return y * k

    same_gradients(program)


def test_an_attribute_of_a_function() -> None:
    def program(x: Any, v: Any) -> Any:
        def scale() -> None: ...

        scale.k = 1.0  # type: ignore[attr-defined]
        y = x * 1
        y.register_hook(lambda g: g * scale.k)  # type: ignore[attr-defined]
        scale.k = v  # type: ignore[attr-defined]
        return y * 2

    same_gradients(program)


def test_an_attribute_of_a_tensor() -> None:
    def program(x: Any, v: Any) -> Any:
        t = x.detach() * 2
        t.k = 1.0
        y = x * 1
        y.register_hook(lambda g: g * t.k)
        t.k = v
        return y * 2

    same_gradients(program)


def test_the_gradient_of_a_tensor() -> None:
    def program(x: Any, v: Any) -> Any:
        def hook(g: Any) -> Any:
            return g if x.grad is None else g * x.grad

        y = x * 1
        y.register_hook(hook)
        return y * 2

    found = []
    for fn in (program, framejit.compile(program)):
        x = torch.full((3,), 0.5, requires_grad=True)
        seen = []
        for _ in range(3):
            first, second = fn(x, 1.0), fn(x, 1.0)
            first.sum().backward()
            second.sum().backward()
            assert x.grad is not None
            seen.append(x.grad.tolist())
            x.grad = None
        found.append(seen)
    assert found[0] == found[1]


def test_a_tensor_rebound_afterwards() -> None:
    def program(x: Any, v: Any) -> Any:
        t = x.detach() * v
        y = x * 1
        y.register_hook(lambda g: g * t)
        t = t * 3
        return y * 2

    same_gradients(program)


def test_a_tensor_written_to_afterwards() -> None:
    def program(x: Any, v: Any) -> Any:
        t = x.detach() * v
        y = x * 1
        y.register_hook(lambda g: g * t)
        t.add_(10)
        return y * 2

    same_gradients(program)


def test_a_tensor_that_the_caller_gets() -> None:
    def program(x: Any, v: Any) -> Any:
        t = x.detach() * v
        y = x * 1
        y.register_hook(lambda g: g * t)
        return y * 2, t

    same_gradients(program, lambda result: result[1].mul_(5))


def test_a_view_of_a_tensor_that_the_caller_gets() -> None:
    def program(x: Any, v: Any) -> Any:
        t = x.detach() * v
        part = t[:]
        y = x * 1
        y.register_hook(lambda g: g * part)
        return y * 2, t

    same_gradients(program, lambda result: result[1].mul_(5))


class Counting(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x: Any) -> Any:
        y = x * 1
        y.register_hook(lambda g: g * self.calls)
        self.calls += 1
        return y


def test_a_module_that_counts_its_calls() -> None:
    found = []
    for compiler in (lambda fn: fn, framejit.compile):
        module = Counting()

        @compiler
        def program(x: Any, v: Any, module: Any = module) -> Any:
            return module(module(x)) * v

        found.append(gradients_of(program))
    assert found[0] == found[1]


def gradients_of(fn: Any, between: Any = None) -> list[Any]:
    seen: list[Any] = []
    for value in (2.0, 3.0, 4.0, 2.0):
        x = torch.full((3,), 0.5, requires_grad=True)
        result = fn(x, value)
        if between is not None:
            between(result)
        y = result[0] if isinstance(result, tuple) else result
        y.sum().backward()
        assert x.grad is not None
        seen.append(x.grad.tolist())
    return seen


def same_gradients(fn: Any, between: Any = None) -> None:
    framejit.reset()
    expected = gradients_of(fn, between)
    actual = gradients_of(framejit.compile(fn), between)
    assert expected == actual, (expected, actual)


def captured_whole(fn: Any) -> None:
    """The rule leaves alone what cannot change."""
    same_gradients(fn)
    assert framejit.counters()["breaks"] == 0, framejit.events()


def test_what_cannot_change_is_captured() -> None:
    def variable(x: Any, v: Any) -> Any:
        factor = v + 1
        y = x * 1
        y.register_hook(lambda g: g * factor * v)
        return y * 2

    def default(x: Any, v: Any) -> Any:
        y = x * 1
        for i in range(3):
            y.register_hook(lambda g, i=i: g * (i + 1))
        return y * 2

    def factory(x: Any, v: Any) -> Any:
        def make(k: Any) -> Any:
            return lambda g: g * k

        y = x * 1
        for i in range(3):
            y.register_hook(make(i + 1))
        return y * 2

    def given(x: Any, v: Any) -> Any:
        y = x * 1
        y.register_hook(partial(torch.mul, v))
        return y * 2

    def tensor(x: Any, v: Any) -> Any:
        mask = (x.detach() > 0) * v
        y = x * 1
        y.register_hook(lambda g: torch.nn.functional.relu(g) * mask)
        return y * 2

    def inner_loop(x: Any, v: Any) -> Any:
        def hook(g: Any) -> Any:
            total = 0
            for i in range(3):
                total = total + sum(g * k for k in (i, v))
            return total

        y = x * 1
        y.register_hook(hook)
        return y * 2

    for fn in (variable, default, factory, given, tensor, inner_loop):
        captured_whole(fn)


# ---- the context of a function


class UnsavedTensor(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.w = w
        return x * w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return g * ctx.w, None


class SavedTensor(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.save_for_backward(w)
        return x * w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return g * ctx.saved_tensors[0], None


class KeptResult(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        ctx.y = x * w
        return ctx.y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return g * ctx.y, None


class Shape(torch.autograd.Function):
    """Looks at how its gradient lies in memory."""

    @staticmethod
    def forward(ctx: Any, x: Any, w: Any) -> Any:
        return x * w

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return g * (2 if g.is_contiguous() else 5) * (g.stride(0) + 1), None


FUNCTIONS = [UnsavedTensor, SavedTensor, KeptResult, Shape]


@pytest.mark.parametrize("cls", FUNCTIONS)
@pytest.mark.parametrize("written", ["nowhere", "capture", "caller", "data"])
def test_tensors_of_a_context(cls: Any, written: str) -> None:
    def program(x: Any, w: Any) -> Any:
        y = cls.apply(x * 1, w)
        if written == "capture":
            w.mul_(3)
        return y * 2, y

    def run(fn: Any) -> list[Any]:
        seen: list[Any] = []
        for factor in (1.0, 2.0, 3.0):
            x = torch.full((3,), 0.5, requires_grad=True)
            w = torch.full((3,), factor)
            try:
                z, y = fn(x, w)
                if written == "caller":
                    w.mul_(5)
                    if cls is KeptResult:
                        with torch.no_grad():
                            y.mul_(5)
                if written == "data":
                    w.data.mul_(5)
                z.sum().backward()
                assert x.grad is not None
                seen.append(x.grad.tolist())
            except RuntimeError as error:
                seen.append("inplace" in str(error))
        return seen

    framejit.reset()
    assert run(program) == run(framejit.compile(program))


class ListOnContext(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, held: Any, own: bool) -> Any:
        ctx.items = [2.0, 3.0] if own else held
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return g * sum(ctx.items), None, None


def test_a_list_that_others_hold() -> None:
    def fresh(x: Any, v: Any) -> Any:
        held = [v]
        y = ListOnContext.apply(x, held, False)
        held.append(v)
        return y * 2

    same_gradients(fresh)
    captured_whole(lambda x, v: ListOnContext.apply(x, None, True) * v)


class Leaking(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, contexts: Any) -> Any:
        ctx.k = 2.0
        contexts.append(ctx)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:  # type: ignore[override]
        return g * ctx.k, None


def test_a_context_written_to_afterwards() -> None:
    def program(x: Any, v: Any) -> Any:
        contexts: list[Any] = []
        y = Leaking.apply(x, contexts)
        contexts[0].k = v
        return y * 2

    same_gradients(program)


def test_names_of_modules_and_classes() -> None:
    class Constants:
        k = 2.0

    def class_data(x: Any, v: Any) -> Any:
        y = x * 1
        y.register_hook(lambda g: g * Constants.k)
        Constants.k = v
        return y * 2

    same_gradients(class_data)

    def library(x: Any, v: Any) -> Any:
        y = x * 1
        y.register_hook(lambda g: (g * torch.pi).to(torch.float32))
        return y * 2

    captured_whole(library)
