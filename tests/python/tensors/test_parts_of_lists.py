"""Views that one call took out of a list of tensors come of one operation."""

from __future__ import annotations

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

import framejit

MAKERS = {
    "unbind": lambda x: x.unbind(0),
    "rows": lambda x: list(x),
    "split": lambda x: x.split(2),
    "chunk": lambda x: x.t().chunk(5, 1),
    "turned": lambda x: x.t().unbind(1),
    "two lists": lambda x: [*x.unbind(0), *x.unbind(1)],
    "parts of parts": lambda x: [p for part in x.split(4) for p in part.unbind(0)],
    "of a result": lambda x: (x * 2).unbind(0),
    "sizes": lambda x: x.split([3, 4, 3], 0),
}
COUNTED = ("aten::unbind", "aten::split", "aten::split_with_sizes", "aten::chunk")


def count(f, x):
    f(x)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        f(x)
    return sum(row.count for row in found.key_averages() if row.key in COUNTED)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("mode", ["grad", "no_grad", "inference"])
@pytest.mark.parametrize("make", MAKERS)
def test_one_operation(make, mode, backend):
    def f(x):
        parts = MAKERS[make](x)
        return *parts, x.sum()

    states = {"no_grad": torch.no_grad, "inference": torch.inference_mode}
    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    with states.get(mode, torch.enable_grad)():
        x = torch.arange(60.0).view(10, 6)
        for _ in range(3):
            expected, actual = f(x), compiled(x)
            assert len(actual) == len(expected)
            for a, b in zip(expected, actual, strict=True):
                assert torch.equal(a, b) and a.stride() == b.stride()
                assert a.storage_offset() == b.storage_offset()
                assert a._is_view() == b._is_view()
                if not torch.is_inference_mode_enabled():
                    assert (a._base is x) == (b._base is x)
        assert count(compiled, x) <= count(f, x)
        # Written to, they show it alike.
        expected, actual = f(x.clone()), compiled(x.clone())
        for parts in (expected, actual):
            if mode != "grad":
                parts[0].add_(1)
        for a, b in zip(expected, actual, strict=True):
            assert torch.equal(a, b)
