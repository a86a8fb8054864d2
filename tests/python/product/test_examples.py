"""The programs in examples/: eager's losses and tokens, in few graphs, unbroken."""

from __future__ import annotations

import importlib.util
import sys

import pytest

import framejit
from programs_in_pages import ROOT

EXAMPLES = ROOT / "examples"
# Steps, entries at most, tolerance.
ROWS = {
    "train_gpt": (4, 1, 1e-4),
    "finetune_bert": (5, 4, 1e-4),
    "generate_llama": (2, 6, 1e-4),
    "train_resnet": (3, 2, 2e-2),
}


def load(name: str):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    framejit.reset()
    yield
    for name in ("beside", *ROWS):
        sys.modules.pop(name, None)


def test_every_example_has_a_row():
    assert {path.stem for path in EXAMPLES.glob("*.py")} == {*ROWS, "beside"}


@pytest.mark.parametrize("name", ROWS)
def test_example(name, capsys):
    steps, most, tolerance = ROWS[name]
    example = load(name)
    beside = sys.modules["beside"]
    compiled = beside.compare(example.make, "small", steps, tolerance)
    (one,) = compiled
    entries = [e for top in framejit.inspect(one) for e in top.walk()]
    assert 1 <= len(entries) <= most
    assert [str(b) for e in entries for b in e.breaks] == []
    assert [e.fallback_reason for e in entries if e.fallback_reason] == []
    assert framejit.counters()["failures"] == 0
    printed = capsys.readouterr().out
    assert f"step {steps - 1}:" in printed and "entries, 0 breaks" in printed
