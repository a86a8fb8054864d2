"""The report at exit has what was compiled for objects that are gone by then."""

from __future__ import annotations

import gc
import sys

import pytest
import torch
from torch import nn

import framejit
from child_process import run_python
from framejit import _report

SCRIPT = """
import torch
from torch import nn

def step(model, optimizer, x, y):
    loss = (model(x) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()

def main():
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters())
    for _ in range(10):
        step(model, optimizer, torch.ones(8, 4), torch.ones(8, 1))

main()
"""


def test_a_model_that_main_made(tmp_path):
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    done = run_python("-m", "framejit", "--report", script)
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    (row,) = [line for line in lines if line.endswith(" step  train.py:5")]
    hits, entries, operations, breaks, ms = row.split()[:5]
    assert int(hits) == 10 and int(entries) == int(breaks) >= 1
    assert int(operations) > 0 and float(ms) > 0
    assert "behind line 10" in done.stderr and "FJ102" in done.stderr


def rows() -> dict[str, list[str]]:
    lines = _report.text(200).splitlines()[2:]
    table = [line.split() for line in lines if "  test_past_entries.py:" in line]
    return {" ".join(cells[5:]).split(" test_past")[0]: cells for cells in table}


@pytest.fixture(autouse=True)
def nothing_compiled():
    framejit.reset()
    yield
    framejit.reset()


def run_model() -> None:
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), momentum=0.9)

    def train(x):
        model(x).relu().sum().backward()
        optimizer.step()

    compiled = framejit.compile(train)
    for _ in range(4):
        compiled(torch.ones(2, 3))


def test_entries_that_go_and_those_that_stay_are_added_up():
    def kept(x):
        return x * 2

    compiled = framejit.compile(kept)
    compiled(torch.ones(2))
    for _ in range(3):
        run_model()
    gc.collect()
    found = rows()
    (name,) = [name for name in found if name.endswith("train")]
    assert found[name][0] == "12" and int(found[name][1]) >= 3
    assert len(framejit.inspect(compiled)) == 1
    (name,) = [name for name in found if name.endswith("kept")]
    assert found[name][:2] == ["1", "1"]
    del compiled


def test_reset_forgets_them():
    run_model()
    gc.collect()
    assert rows()
    framejit.reset()
    assert not rows()


def test_what_goes_is_not_kept():
    def make():
        model = nn.Linear(3, 2)
        framejit.compile(lambda x: model(x))(torch.ones(2, 3))
        return model

    model = make()
    references = sys.getrefcount(model)
    gc.collect()
    framejit.reset()
    assert sys.getrefcount(model) <= references
