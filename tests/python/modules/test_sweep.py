"""A fixed part of torch's samples of its operators and modules, against eager.

`scripts/sweep_ops --all` runs them all and writes docs/coverage.md.
"""

import importlib.machinery
import importlib.util
import random
import warnings
from pathlib import Path

import pytest
import torch

SCRIPT = Path(__file__).parents[3] / "scripts" / "sweep_ops"


@pytest.fixture(scope="module")
def sweep_ops():
    loader = importlib.machinery.SourceFileLoader("sweep_ops", str(SCRIPT))
    spec = importlib.util.spec_from_loader("sweep_ops", loader)
    module = importlib.util.module_from_spec(spec)
    # The dataclasses in it look their module up.
    import sys

    sys.modules["sweep_ops"] = module
    loader.exec_module(module)
    return module


def wrong_ones(sweep_ops, modules, every, start, backends):
    found, seen = [], 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for subject in sweep_ops.subjects_of(modules)[start::every]:
            torch.manual_seed(0)
            random.seed(0)
            samples = subject.samples(1)
            for backend in backends:
                status, why = sweep_ops.sweep(subject, backend, samples)
                seen += status in ("captured", "fell back", "broke")
                if status == "WRONG":
                    found.append(f"{subject.name} {backend}: {why}")
    return found, seen


@pytest.mark.parametrize("start", (0, 7, 14))
def test_operators(sweep_ops, start):
    wrong, seen = wrong_ones(sweep_ops, False, 21, start, sweep_ops.BACKENDS)
    assert not wrong, "\n".join(wrong)
    assert seen > 50


def test_modules(sweep_ops):
    wrong, seen = wrong_ones(sweep_ops, True, 8, 1, sweep_ops.BACKENDS)
    assert not wrong, "\n".join(wrong)
    assert seen > 15


def test_a_wrong_result_is_seen(sweep_ops):
    subject = next(s for s in sweep_ops.subjects_of(False) if s.name == "cos")
    right, calls = subject.call, []

    def sometimes(first, *args, **kwargs):
        calls.append(1)
        return right(first, *args, **kwargs) + len(calls) % 2

    samples = subject.samples(1)
    subject.call = sometimes
    status, why = sweep_ops.sweep(subject, "eager", samples)
    assert status == "WRONG", why
