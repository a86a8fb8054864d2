"""What eager refuses of two types it refuses in every layout, compiled, too."""

from __future__ import annotations

import itertools
import warnings
from typing import Any

import pytest
import torch

import framejit
from sweeps import mixtures

PARTS = 12


def outcome(fn: Any, args: Any) -> Any:
    try:
        return fn(*args)
    except Exception as error:
        return type(error)


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("part", range(PARTS))
def test_mixtures_of_types(part: int, backend: str) -> None:
    operators = mixtures.operators()[part::PARTS]
    assert operators
    for op, tensors in operators:
        check_mixtures(op, tensors, backend)


def check_mixtures(op: Any, tensors: int, backend: str) -> None:
    def fn(*args: torch.Tensor) -> Any:
        return op.op(*args)

    types = mixtures.TYPES
    pairs = [(a, b) for a, b in itertools.product(types[:3], types) if a != b]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for layout, (first, other) in itertools.product(mixtures.LAYOUTS, pairs):
            framejit.reset()
            args = mixtures.arguments(tensors, layout, first, other)
            expected = outcome(op.op, args)
            actual = outcome(framejit.compile(fn, backend=backend), args)
            where = f"{op.name} {layout} {first} {other}"
            if not isinstance(expected, torch.Tensor):
                assert actual is expected, where
                continue
            assert isinstance(actual, torch.Tensor), where
            assert actual.dtype == expected.dtype, where
            assert actual.stride() == expected.stride(), where
            torch.testing.assert_close(
                actual, expected, equal_nan=True, msg=lambda m, w=where: f"{w}: {m}"
            )
