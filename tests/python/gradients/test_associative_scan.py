"""`associative_scan`, to which models go that are told they are compiled."""

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same

scans = pytest.importorskip("torch._higher_order_ops.associative_scan")


def recurrence(left, right):
    """h' = a * h + b, of two steps."""
    return left[0] * right[0], right[0] * left[1] + right[1]


def pair(n, dim, grad):
    sizes = [2, 3]
    sizes.insert(dim, n)
    made = [torch.rand(sizes) + 0.2 for _ in range(2)]
    return tuple(x.requires_grad_(grad) for x in made)


def run(fn, xs):
    result = fn(*xs)
    leaves = [x for x in xs if x.requires_grad]
    if not leaves:
        return result, None
    return result, torch.autograd.grad(sum(r.sin().sum() for r in result), leaves)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("n", range(1, 10))
def test_a_scan_is_one_graph(n, grad, backend):
    def scan(a, b):
        return scans.associative_scan(recurrence, (a, b), dim=1, combine_mode="generic")

    compiled = framejit.compile(scan, backend=backend, fullgraph=True)
    for _ in range(2):
        xs = pair(n, 1, grad)
        assert_same(run(compiled, xs), run(scan, xs))
    assert framejit.counters()["compiles"] == 1


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dim", [0, 1, 2, -1, -3])
def test_along_any_dim_either_way(dim, reverse):
    def scan(a, b):
        found = scans.associative_scan(
            lambda left, right: {
                "a": left["a"] * right["a"],
                "b": [right["a"] * left["b"][0] + right["b"][0]],
            },
            {"a": a, "b": [b]},
            dim,
            reverse,
            "generic",
        )
        return found["a"], found["b"][0]

    compiled = framejit.compile(scan, fullgraph=True)
    xs = pair(6, dim % 3, False)
    assert_same(compiled(*xs), scan(*xs))


def test_what_is_no_arithmetic_of_elements():
    """A product of matrices: the function sees one step at a time."""

    def scan(x):
        return scans.associative_scan(torch.matmul, x, 0, combine_mode="generic")

    compiled = framejit.compile(scan, fullgraph=True)
    x = torch.rand(7, 3, 3)
    assert_same(compiled(x), scan(x))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: scans.associative_scan(torch.add, x, 0),  # pointwise, on a CPU
        lambda x: scans.associative_scan(torch.add, x, 0, combine_mode="any"),
        lambda x: scans.associative_scan(torch.add, x, 5, combine_mode="generic"),
        lambda x: scans.associative_scan(torch.add, x[:0], 0, combine_mode="generic"),
    ],
    ids=["pointwise", "mode", "dim", "empty"],
)
def test_what_torch_refuses_it_refuses(call):
    x = torch.rand(4, 2)
    errors = []
    for fn in (call, framejit.compile(call)):
        with pytest.raises(Exception) as error:  # whichever it is
            fn(x)
        errors.append((type(error.value), str(error.value)))
    assert errors[0] == errors[1]


def test_a_model_that_asks_whether_it_is_compiled():
    """As the Mamba of transformers does; the loop is what eager runs."""

    def model(a, b):
        if torch.compiler.is_compiling():
            found = scans.associative_scan(
                recurrence, (a, b), dim=1, combine_mode="generic"
            )
            return found[1]
        state, states = torch.zeros_like(b[:, 0]), []
        for t in range(a.size(1)):
            state = a[:, t] * state + b[:, t]
            states.append(state)
        return torch.stack(states, 1)

    compiled = framejit.compile(model)
    a, b = pair(9, 1, False)
    torch.testing.assert_close(compiled(a, b), model(a, b))
    assert framejit.counters()["breaks"] == 0
