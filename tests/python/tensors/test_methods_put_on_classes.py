"""Methods of tensors in C, called where a class, or torch itself, has one in Python:
a node calls what the program called, once, and a method put on a class between calls
is seen."""

import operator
from unittest import mock

import pytest
import torch
import torch.nn.functional as F

import framejit

Tensor = torch.Tensor


def text(result):
    if isinstance(result, Tensor):
        return type(result).__name__, result.tolist()
    return repr(result)


def answer(function, *args):
    try:
        return text(function(*args))
    except Exception as error:
        return type(error).__name__


# ---- a method in Python, which calls that of C


def set_item(x):
    x[0] = 5
    return x


def retain(x):
    y = x.requires_grad_() * 2
    y.retain_grad()
    return y


OWN = {
    "__getitem__": lambda x: x[0] + 1,
    "__setitem__": set_item,
    "__add__": lambda x: x + 1,
    "requires_grad_": lambda x: x.clone().requires_grad_(),
    "retain_grad": retain,
    "unflatten": lambda x: x.unflatten(0, (3, 1)),
    "type": lambda x: x.type(torch.FloatTensor),
    "as_strided": lambda x: x.as_strided((2,), (1,)),
    "__abs__": abs,
    "__len__": len,
}


@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("wraps", [True, False], ids=["own", "bound"])
@pytest.mark.parametrize("name", OWN)
def test_a_method_runs_as_often_as_called(name, wraps, backend):
    logs = []
    for compile in (lambda f: f, lambda f: framejit.compile(f, backend=backend)):
        log = []
        original = getattr(Tensor, name)

        def method(self, *args, original=original, log=log, **kwargs):
            log.append(len(log))
            if wraps:
                return original(self, *args, **kwargs)
            return getattr(super(cls, self), name)(*args, **kwargs)  # noqa: B023

        cls = type("Own", (Tensor,), {name: method})
        run = compile(lambda x: OWN[name](x))
        seen = []
        for _ in range(3):
            seen.append((answer(run, torch.ones(3).as_subclass(cls)), len(log)))
        logs.append(seen)
    assert logs[0] == logs[1]


@pytest.mark.parametrize(
    "name", ["__getitem__", "__setitem__", "unflatten", "reciprocal"]
)
@pytest.mark.parametrize("counts", [False, True])
def test_a_method_of_torch_that_was_replaced(name, counts):
    call = {**OWN, "reciprocal": lambda x: 1 / x}[name]
    logs = []
    for compile in (lambda f: f, framejit.compile):
        log, number = [], [0]
        original = getattr(Tensor, name)

        def method(self, *args, original=original, log=log, number=number):
            if counts:
                number[0] += 1
            else:
                log.append(1)
            return original(self, *args)

        seen = []
        with mock.patch.object(Tensor, name, method):
            run = compile(lambda x: call(x))
            for _ in range(3):
                seen.append((answer(run, torch.ones(3)), len(log) + number[0]))
        logs.append(seen)
    assert logs[0] == logs[1]


# ---- put on a class between calls

UNARY = {
    "__neg__": operator.neg,
    "__pos__": operator.pos,
    "__abs__": abs,
    "__invert__": lambda x: ~x,
    "__reversed__": lambda x: list(reversed(x)),
    "__len__": len,
    "__iter__": lambda x: [q for q in x],
    "__getitem__": lambda x: x[0],
}
NAMES = "add sub mul pow truediv floordiv mod matmul and or xor lshift rshift".split()
BINARY = {
    f"__{name}__": getattr(operator, name + "_" * (name in ("and", "or")))
    for name in NAMES
}
IN_PLACE = {f"__i{name}__": getattr(operator, "i" + name) for name in NAMES}
COMPARED = {
    f"__{name}__": getattr(operator, name) for name in "eq ne lt gt le ge".split()
}


def calls():
    yield from ((name, f, "one") for name, f in UNARY.items())
    for name, f in {**BINARY, **IN_PLACE, **COMPARED}.items():
        yield name, f, "two"
    for name, f in BINARY.items():
        reflected = "__r" + name[2:]
        yield reflected, (lambda x, y, f=f: f(y, x)), "two"
        yield reflected, (lambda x, y, f=f: f(torch.ones(3), x)), "two"


def set_tag(x):
    x.tag = 3
    return x.tag


def delete_tag(x):
    x.tag = 3
    del x.tag
    return hasattr(x, "tag")


HOOKS = [("__setattr__", set_tag, "one"), ("__delattr__", delete_tag, "one")]


def put(name):
    if name == "__setattr__":
        return lambda self, n, value: self.__dict__.__setitem__(n, value * 10)
    if name == "__iter__":
        return lambda self: iter([7])
    return lambda self, *args: 7


@pytest.mark.parametrize("mixin", [False, True], ids=["class", "mixin"])
@pytest.mark.parametrize("base", [Tensor, torch.nn.Parameter])
@pytest.mark.parametrize("name, call, operands", [*calls(), *HOOKS])
def test_put_on_a_class_between_calls(name, call, operands, base, mixin):
    answers = []
    for compile in (lambda f: f, framejit.compile):
        own = type("Mixin", (), {})
        cls = type("Own", (own, base) if mixin else (base,), {})
        made = torch.ones(3)
        if any(word in name for word in ("and", "or", "xor", "shift", "invert")):
            made = made.int()
        if base is Tensor:
            x = made.as_subclass(cls)
        else:
            x = cls(made, requires_grad=made.is_floating_point())
        args = (x,) if operands == "one" else (x, 2)
        run = compile(lambda *args: call(*args))
        seen = [answer(run, *args), answer(run, *args)]
        setattr(own if mixin else cls, name, put(name))
        seen += [answer(run, *args), answer(run, *args)]
        answers.append(seen)
    assert answers[0] == answers[1]


# ---- replaced in torch, before the first call or after it


def backward(x):
    (x.requires_grad_() * 2).sum().backward()
    return x.grad


def gradient(x):
    return torch.autograd.grad((x.requires_grad_() * 2).sum(), x)[0]


def replaced():
    of_tensor = {
        "__len__": len,
        "__iter__": lambda x: [q for q in x],
        "__reversed__": lambda x: list(reversed(x)),
        "__contains__": lambda x: 1 in x,
        "unbind": lambda x: sum(q for q in x),
        "reciprocal": lambda x: 1 / x,
        "backward": backward,
        "sum": lambda x: x.sum(),
        "norm": lambda x: x.norm(),
        "split": lambda x: x.split(2),
        "__pow__": lambda x: x**2,
        "__rpow__": lambda x: 2**x,
        "__rsub__": lambda x: 1 - x,
        "__getitem__": lambda x: x[0],
    }
    for name, call in of_tensor.items():
        yield Tensor, name, call
    yield torch, "max_pool1d", lambda x: F.max_pool1d(x[None], 2)
    yield torch.autograd, "backward", backward
    yield torch.autograd, "grad", gradient


@pytest.mark.parametrize("early", [False, True], ids=["later", "before"])
@pytest.mark.parametrize("owner, name, call", list(replaced()))
def test_replaced_in_torch(owner, name, call, early):
    def other(*args, **kwargs):
        return iter([7]) if name in ("__iter__", "unbind") else 7

    answers = []
    for compile in (lambda f: f, framejit.compile):
        run = compile(lambda x: call(x))

        def once(run=run):
            return answer(run, torch.arange(1.0, 4.0))

        seen = [] if early else [once(), once()]
        with mock.patch.object(owner, name, other):
            seen += [once(), once()]
        seen.append(once())
        answers.append(seen)
    assert answers[0] == answers[1]


# ---- what else a mixin brings


def writes_dict(x):
    x.__dict__["tag"] = 3
    return x.tag, dict(x.__dict__)


def test_the_dict_of_a_tensor_with_a_mixin():
    class Mixin:
        pass

    class Own(Mixin, Tensor):
        pass

    for function in (writes_dict, lambda x: x.__dict__.__setitem__("tag", 4)):
        x, y = (torch.ones(2).as_subclass(Own) for _ in range(2))
        compiled = framejit.compile(function)
        for _ in range(2):
            assert function(x) == compiled(y)
            assert x.__dict__ == y.__dict__


@pytest.mark.parametrize("write", ["none", "tensor", "delete"])
def test_a_handler_is_asked_once_about_a_write(write):
    def writes(x):
        if write == "delete":
            del x.grad
        else:
            x.grad = None if write == "none" else torch.ones(2)
        return x.sin()

    logs = []
    for compile in (lambda f: f, framejit.compile):
        log = []

        class Asked(Tensor):
            @classmethod
            def __torch_function__(cls, function, types, args=(), kwargs=None, log=log):
                log.append(function.__name__)
                return super().__torch_function__(function, types, args, kwargs or {})

        run = compile(lambda x: writes(x))
        for _ in range(3):
            run(torch.ones(2).as_subclass(Asked))
        logs.append(log)
    assert logs[0] == logs[1]
