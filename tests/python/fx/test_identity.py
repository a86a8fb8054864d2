"""``is`` and ``match`` of what examples are: facts of the graph, or refused."""

from __future__ import annotations

import copy
import dis
import types

import pytest
import torch

from framejit.fx._expanding import expanded
from fx.both import ours

x34 = torch.linspace(-1, 1, 12).view(3, 4)
double = x34.double()


def by_number(x):
    match x.shape[0]:
        case 3:
            return x * 2
        case _:
            return x * 3


def by_flag(x, flag):
    match flag:
        case True:
            return x * 2
        case None:
            return x * 4
    return x * 3


IS = {
    "dtype": (lambda x: x * 2 if x.dtype is torch.float32 else x, (x34,), (double,)),
    "no dtype": (lambda x: x if x.dtype is not torch.half else x * 2, (x34,), None),
    "flag": (lambda x, a: x * 2 if a is True else x * 3, (x34, True), (x34, False)),
    "no flag": (lambda x, a: x * 2 if a is True else x * 3, (x34, 1), (x34, True)),
    "same": (lambda x, y: x * 2 if x is y else x * 3, (x34, x34), (x34, double)),
    "others": (lambda x, y: x * 2 if x is y else x * 3, (x34, double), (x34, x34)),
    "None": (lambda x, a: x * 2 if a is None else x * 3, (x34, 2), (x34, None)),
    "not None": (lambda x, a: x if a is not None else x * 3, (x34, 2), (x34, None)),
    "nothing": (lambda x, a: x * 2 if a is None else x * 3, (x34, None), (x34, 2)),
    "grad": (lambda x: x * 2 if x.grad is None else x * 3, (x34,), None),
    "type": (lambda x: x * 2 if type(x) is torch.Tensor else x, (x34,), None),
    "value": (lambda x, a: (x, a is True, a is not None), (x34, True), (x34, None)),
    "match": (by_number, (x34,), (x34[:2],)),
    "match flag": (by_flag, (x34, True), (x34, None)),
    "match no flag": (by_flag, (x34, 5), (x34, True)),
}


@pytest.mark.parametrize("name", IS)
def test_identity_is_a_fact(name):
    program, inputs, against = IS[name]
    traced = ours.symbolic_trace(program, example_inputs=inputs)
    for each in (traced, ours.symbolic_trace(traced), copy.deepcopy(traced)):
        made, expected = each(*inputs), program(*inputs)
        if isinstance(expected, tuple):
            assert made[1:] == expected[1:]
            made, expected = made[0], expected[0]
        assert torch.equal(made, expected)
        if against is not None:
            with pytest.raises(AssertionError):
                each(*against)


def test_patterns_of_classes_are_refused():
    def program(x):
        match x.shape:
            case [a, b]:
                return x * a
        return x

    def other(x):
        match x.shape[0]:
            case int():
                return x * 2
        return x

    for each in (program, other):
        with pytest.raises(ours.TraceError, match=f"in {each.__name__}: case"):
            ours.symbolic_trace(each, example_inputs=(x34,))


def busy(values, end=None):
    """Jumps in all directions, handlers and `is`."""
    out = []
    for at, value in enumerate(values):
        try:
            while value is not None and at < 3:
                at += 1
                if value is end:
                    break
                if at is None or value is Ellipsis:
                    raise KeyError(at)
            else:
                out.append(("else", at, value is None))
            with open("/dev/null") as file:
                out.append((file is None, file is not None))
                if value == 5:
                    raise ValueError(value)
        except KeyError as error:
            out.append(error.args)
            continue
        except ValueError:
            if value is None:
                return out
            out.append([v for v in values if v is not None])
        finally:
            out.append(at is value)
    return out


def lines_of(code):
    return [
        (i.opname, i.positions)
        for i in dis.get_instructions(code)
        if i.opname not in ("EXTENDED_ARG", "IS_OP") and "NONE" not in i.opname
    ]


def test_expanded_code_does_the_same():
    code = expanded(busy.__code__)
    space = {
        "is, asked": lambda left, right: left is right,
        "__builtins__": __builtins__,
    }
    twin = types.FunctionType(code, space, "busy", busy.__defaults__)
    for values in ([], [1, None, ..., 5, 2], [None], [5, 5, None], [True, 0]):
        for end in (None, 1, 5):
            assert twin(values, end) == busy(values, end)
    places = {place for _, place in lines_of(code)}
    assert {place for _, place in lines_of(busy.__code__)} <= places
    assert expanded((lambda x: x + 1).__code__) is None


def test_long_code_is_expanded():
    body = "".join(f"    if x is y: x = {at}\n" for at in range(300))
    space: dict = {"is, asked": lambda left, right: left is right}
    exec(
        f"def program(x, y):\n  for _ in range(2):\n{body}\n    pass\n  return x", space
    )
    program = space["program"]
    code = expanded(program.__code__)
    twin = types.FunctionType(code, space, "program")
    assert twin(1, 1) == program(1, 1) and twin(1, 2) == program(1, 2)
