"""How often programs are compiled whose sizes change: the exact number for each."""

import math

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same
from sweeps.sizes import IDIOMS, SIZES, inputs_of_idiom, visit

# Under dynamic=True over sizes 5, 6, 7, 8; one where nothing is said. With "grad",
# where the gradient takes more.
#
# The graph has another shape for each size, or for even and odd ones:
OTHER_GRAPHS = {
    "unbind": 4,
    "for in range(n)": 4,
    "for row in x": 4,
    "split(2)": 2,
    "split(2) grad": 4,  # the last part has one row, or two
    "tensor_split": 2,
    "pad to even": 2,  # something is added, or nothing
}
# Torch takes the size for a number before an operator sees it (an argument of type
# int, or code that asks for the sizes as such).
NUMBERS_OF_TORCH = {
    "linspace": 4,
    "linspace(n)": 4,
    "stft": 4,
    "block_diag grad": 4,
    "cumprod grad": 4,
    "strided windows grad": 4,
}
# The same on 2.11: the gradient of a trace.
if torch.__version__.startswith("2.11."):
    NUMBERS_OF_TORCH["trace grad"] = 4
# Before 2.13 it is a kernel of ours, which needs no number.
if not torch.__version__.startswith("2.13."):
    del NUMBERS_OF_TORCH["cumprod grad"]
AGAIN = OTHER_GRAPHS | NUMBERS_OF_TORCH


def expected_entries(name, grad):
    entries = AGAIN.get(name, 1)
    return AGAIN.get(f"{name} grad", entries) if grad else entries


def test_the_tables_name_idioms():
    assert {name.removesuffix(" grad") for name in AGAIN} <= IDIOMS.keys()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("name", IDIOMS)
def test_a_size_that_changes_is_compiled_as_often_as_is_said(name, grad):
    found = visit(IDIOMS[name], inputs_of_idiom(grad))
    assert not found.wrong
    assert found.entries == expected_entries(name, grad)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_size_is_the_last_that_is_compiled_for(backend):
    differing = []
    for name in list(IDIOMS)[::7]:
        again = expected_entries(name, True)
        found = visit(IDIOMS[name], inputs_of_idiom(True), backend, dynamic=None)
        entries = 2 if again == 1 else min(again + 1, len(SIZES))
        if found.wrong or found.entries > entries:
            differing.append(f"{name}: {found}")
    assert not differing, "\n".join(differing)


# ---- operators that write to an argument

WRITES = {
    "addmm_": lambda x: (x @ x.t()).addmm_(x, x.t()),
    "baddbmm_": lambda x: (x @ x.t())[None].baddbmm_(x[None], x.t()[None]),
    "addmv_": lambda x: x[:, 0].clone().addmv_(x, x[0]),
    "addr_": lambda x: x.clone().addr_(x[:, 0], x[0]),
    "index_copy_": lambda x: x.clone().index_copy_(0, torch.tensor([1]), x[:1]),
    "copy_": lambda x: torch.empty(x.size(0), 4).copy_(x[0]),
    "copy_ transposed": lambda x: torch.empty(x.size(0), 4).t().copy_(x.t()),
    "cat out": lambda x: torch.cat([x, x], out=torch.empty(2 * x.size(0), 4)),
    "mm out": lambda x: torch.mm(x, x.t(), out=torch.empty(len(x), len(x))),
    "eye out": lambda x: torch.eye(len(x), out=torch.empty(len(x), len(x))),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WRITES)
def test_a_write_of_any_size_is_in_one_graph(name, backend):
    framejit.reset()
    compiled = framejit.compile(
        WRITES[name], dynamic=True, backend=backend, fullgraph=True
    )
    for (x,) in inputs_of_idiom(False):
        assert_same(compiled(x), WRITES[name](x))
    assert len(list(framejit.inspect(compiled))) == 1


@pytest.mark.filterwarnings("ignore:An output with one or more elements")
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_out_of_another_size_is_resized_as_eager_does(backend):
    def joined(x, out):
        return torch.cat([x, x], out=out) + 1, out.shape

    framejit.reset()
    compiled = framejit.compile(joined, dynamic=True, backend=backend)
    for rows, room in ((5, 5), (6, 6), (7, 8), (8, 7), (6, 6)):
        x = torch.arange(rows * 4.0).view(rows, 4)
        outs = torch.zeros(2 * room, 4), torch.zeros(2 * room, 4)
        assert_same(compiled(x, outs[0]), joined(x, outs[1]))
        assert_same(*outs)


# ---- upsampling by a factor


@pytest.mark.parametrize("factor", [2, 2.0, 0.5, 1.5, 1.3, 0.7, (2, 0.25)])
@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_sizes_by_a_factor_are_those_of_eager(factor, mode):
    def scaled(x):
        return torch.nn.functional.interpolate(x, scale_factor=factor, mode=mode)

    framejit.reset()
    compiled = framejit.compile(scaled, dynamic=True)
    for n in (5, 6, 7, 8, 12):
        x = torch.linspace(-1, 1, n * 8).view(1, 1, n, 8).requires_grad_()
        expected, actual = scaled(x), compiled(x)
        assert_same(actual, expected)
        grads = [torch.autograd.grad(y.sum(), x)[0] for y in (actual, expected)]
        assert_same(*grads)
    factors = factor if isinstance(factor, tuple) else (factor,)
    if all(math.log2(f).is_integer() for f in factors if f > 0):
        assert len(list(framejit.inspect(compiled))) <= 2
