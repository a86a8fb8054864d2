"""A module that is imported beneath a break: what runs as it is imported is not
compiled (a library would fill caches and reports), what it defines is, later on."""

from __future__ import annotations

import pytest
import torch

import framejit

MODULE = """
import torch

NAMES = {}

def named(name):
    NAMES[name] = torch.ones(2) * len(name)
    return NAMES[name]

def scaled(x):
    return x * 3

TABLE = []
for n in range(1, 12):
    TABLE.append(named("ab" * n))

class Row:
    def __init__(self, n):
        print(end="")
        self.value = TABLE[n].sum()

ROWS = []
for n in range(11):
    ROWS.append(Row(n))
"""


def by_name(x, name):
    y = x.sin()
    module = __import__(name)
    return module.scaled(y) + module.TABLE[3] + module.ROWS[4].value


def through_a_function(x, name):
    y = x.sin()
    print(end="")
    return by_name(y, name) + y


@pytest.mark.parametrize("fn", [by_name, through_a_function])
def test_what_runs_at_import_is_not_compiled(fn, tmp_path, monkeypatch):
    name = f"framejit_late_{fn.__name__}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)
    compiled = framejit.compile(fn, backend="eager")
    x = torch.rand(2)
    outcome = compiled(x, name)
    told = [text for _, text in framejit.events()]
    assert not [text for text in told if f"{name}.py" in text]
    assert torch.equal(outcome, fn(x, name))
    assert torch.equal(compiled(x, name), outcome)
    later = framejit.explain(by_name)(x, name)
    graphs = [str(graph) for graph in later.graphs]
    assert any(f"{name}.py" in graph for graph in graphs)
