"""torch.tensor() and its like of ints and floats that became symbols."""

import pytest
import torch

import framejit

PROGRAMS = {
    "tensor": lambda x, n: torch.tensor(n),
    "as_tensor": lambda x, n: torch.as_tensor(n),
    "asarray": lambda x, n: torch.asarray(n),
    "list": lambda x, n: torch.tensor([n, 1]),
    "tuple": lambda x, n: torch.tensor((n, n + 1)).sum(),
    "nested": lambda x, n: torch.tensor([[n], [n + 1]]),
    "with_float": lambda x, n: torch.tensor([n, 1.5]),
    "float": lambda x, n: torch.tensor(n * 0.5),
    "with_bool": lambda x, n: torch.tensor([n, True]),
    "int64": lambda x, n: torch.tensor(n, dtype=torch.int64),
    "float64": lambda x, n: torch.tensor(n, dtype=torch.float64),
    "by_position": lambda x, n: torch.as_tensor(n, torch.float64),
    "size": lambda x, n: torch.tensor(x.shape[0] * n),
    "used": lambda x, n: x * torch.tensor(n) + 1,
    "new_tensor": lambda x, n: x.new_tensor([n, 2]),
    "stacked": lambda x, n: torch.stack([torch.tensor(n), torch.tensor(n // 2)]),
    "legacy": lambda x, n: torch.LongTensor([n]),
    "index": lambda x, n: torch.arange(8)[torch.tensor([n % 8, 0])],
    "int32": lambda x, n: torch.tensor(n, dtype=torch.int32),
    "ragged": lambda x, n: torch.tensor([[n], n]),
    "requires_grad": lambda x, n: torch.tensor(n * 1.0, requires_grad=True),
}
VALUES = (3, 7, 2**31, 2**31 - 1, 2**32 + 5, -(2**31) - 1, 2**53 + 1, 2**62)


def outcome(function, x, n):
    try:
        result = function(x, n)
    except (RuntimeError, ValueError, TypeError, OverflowError) as error:
        return type(error), str(error)
    return result.tolist(), result.dtype, result.requires_grad, result.is_leaf


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("backend", ["eager", "native"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_bits_of_an_int_arrive(name, backend, dynamic):
    framejit.reset()
    function = PROGRAMS[name]
    compiled = framejit.compile(function, backend=backend, dynamic=dynamic)
    for n in VALUES:
        x = torch.ones(2)
        assert outcome(compiled, x, n) == outcome(function, x, n)


@pytest.mark.parametrize("default", [torch.float32, torch.float64])
def test_the_default_type_is_the_one_of_the_call(default):
    framejit.reset()
    compiled = framejit.compile(lambda n: torch.tensor([n, 0.5]), backend="aot_eager")
    before = torch.get_default_dtype()
    for n in (3, 4, 5):
        torch.set_default_dtype(default)
        try:
            assert compiled(n).dtype == default
        finally:
            torch.set_default_dtype(before)


def test_an_int_that_changes_is_compiled_twice():
    framejit.reset()
    compiled = framejit.compile(lambda x, t: x * torch.tensor(t), backend="aot_eager")
    for t in range(2, 20):
        assert compiled(torch.ones(2), t).tolist() == [t, t]
    assert framejit.counters()["compiles"] == 2
