"""Parts of images that begin elsewhere at each call."""

import logging
import random

import pytest
import torch
import torch.nn.functional as F

import framejit
from differential import BACKENDS
from sweeps.offsets import crops_of_operator
from sweeps.sizes import _run, operators, visit

RESIZED = {
    "nearest": lambda x: F.interpolate(x, (16, 16), mode="nearest"),
    "nearest-exact": lambda x: F.interpolate(x, (16, 16), mode="nearest-exact"),
    "bilinear": lambda x: F.interpolate(
        x, size=(16, 16), mode="bilinear", align_corners=False
    ),
    "bicubic": lambda x: F.interpolate(x, (16, 16), mode="bicubic"),
    "antialias": lambda x: F.interpolate(x, (6, 6), mode="bilinear", antialias=True),
    "area": lambda x: F.interpolate(x, (6, 6), mode="area"),
    "a factor": lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
    "linear": lambda x: F.interpolate(x.flatten(1, 2), 16, mode="linear"),
    "trilinear": lambda x: F.interpolate(x[None], (4, 9, 9), mode="trilinear"),
    "Upsample": torch.nn.Upsample(scale_factor=2, mode="nearest"),
    "pool": lambda x: F.max_pool2d(x, 2),
    "adaptive": lambda x: F.adaptive_avg_pool2d(x, 5),
    "fold": lambda x: F.unfold(x, 3),
    "pad": lambda x: F.pad(x, (1, 2, 0, 1), mode="reflect"),
    "convolution": lambda x: F.conv2d(x, torch.ones(2, 3, 3, 3)),
    "grid": lambda x: F.grid_sample(
        x, torch.linspace(-1, 1, 64).reshape(2, 4, 4, 2), align_corners=False
    ),
}


@pytest.mark.parametrize("grad", [False, True], ids=["", "grad"])
@pytest.mark.parametrize("name", RESIZED)
def test_where_a_crop_begins_is_a_number(name, grad):
    resized = RESIZED[name]

    def crop(x, i, j):
        return resized(x[:, :, i : i + 12, j : j + 12])

    random.seed(0)
    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(crop, backend=backend)
        for _ in range(8):
            i, j = random.sample(range(2, 7), 2)
            x = torch.randn(2, 3, 18, 18, requires_grad=grad)
            found, expected = compiled(x, i, j), crop(x, i, j)
            torch.testing.assert_close(found, expected)
            assert found.stride() == expected.stride()
            if grad:
                (a,) = torch.autograd.grad(found.sin().sum(), x)
                (b,) = torch.autograd.grad(expected.sin().sum(), x)
                torch.testing.assert_close(a, b)
        assert framejit.counters()["compiles"] == 2


def test_a_crop_may_end_where_the_image_does():
    """A bound that is the size now says nothing else than one below it."""

    def crop(x, i, n):
        return x[:, i : i + n].sin()

    compiled = framejit.compile(crop)
    x = torch.randn(3, 10)
    for i, n in (2, 5), (3, 7), (5, 3), (4, 6), (3, 4), (8, 2):
        torch.testing.assert_close(compiled(x, i, n), crop(x, i, n))
    assert framejit.counters()["compiles"] == 2
    torch.testing.assert_close(compiled(x, 6, 7), crop(x, 6, 7))  # cut short
    assert framejit.counters()["compiles"] == 3


def test_operators_of_packages_may_ask_where_a_tensor_begins():
    @torch.library.custom_op("framejit_crops::begin", mutates_args=())
    def begin(x: torch.Tensor) -> torch.Tensor:
        return x.new_zeros(x.storage_offset() + 1)

    @begin.register_fake
    def _(x):
        return x.new_empty(x.storage_offset() + 1)

    def offset(x, i):
        return begin(x[i : i + 2]).size(0) + x.sum()

    compiled = framejit.compile(offset)
    x = torch.zeros(9)
    for i in (3, 4, 5, 3):
        assert compiled(x, i) == i + 1


# An entry for each place; each says why. One that is no longer needed fails.
CUSTOM = "an operator that is Python code, whose fake one may ask where a tensor begins"
AGAIN = {
    "nn.functional.linear_cross_entropy.chunked": CUSTOM,
    "nn.functional.linear_cross_entropy.chunked_none": CUSTOM,
}
PARTS = 4
EVERY = 3


def name_of(op):
    return ".".join(filter(None, (op.name, op.variant_test_name)))


def test_the_table_names_operators():
    assert AGAIN.keys() <= {name_of(op) for op in operators()}


def samples_of(op):
    """The first, if eager takes parts of images, and has their gradients."""
    try:
        samples = list(crops_of_operator(op))[:1]
        for fn, calls in samples:
            for args in calls:
                _run(fn, args)
    except Exception:  # whichever it raises
        return []
    return samples


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_no_operator_is_compiled_for_each_place(part, caplog):
    for channel in ("framejit.graph_breaks", "framejit.fallbacks"):
        caplog.set_level(logging.ERROR, channel)
    chosen = [
        op
        for at, op in enumerate(operators())
        if at % EVERY == 1 or name_of(op) in AGAIN
    ]
    wrong, visited, needless = [], 0, []
    for op in chosen[part::PARTS]:
        name = name_of(op)
        for fn, calls in samples_of(op):
            found = visit(fn, calls, dynamic=None)
            visited += 1
            if found.wrong:
                wrong.append(f"{name}: {found.wrong}")
            elif found.entries > 2 and name not in AGAIN:
                wrong.append(f"{name}: {found.entries} entries")
            elif found.entries <= 2 and name in AGAIN:
                needless.append(name)
    assert not wrong
    assert not needless
    assert visited > 10
