"""Every operator and module of torch's databases with all sizes symbolic.

FJ_SHAPES=all: all samples of each, also as loops. Otherwise one of each.
"""

import logging
import os
import re
from pathlib import Path

import pytest
import torch

import framejit
from sweeps import shapes

ALL = os.environ.get("FJ_SHAPES") == "all"
PARTS = 8
PAGE = Path(__file__).parents[3] / "docs" / "shapes.md"
ROW = re.compile(r"^\| `([^`]+)` \| (.*?) \|", re.MULTILINE)


def documented():
    """Operators by name: what the page says pins their sizes."""
    return {name: set(re.findall(r"`(\S+)`", by)) for name, by in ROW.findall(text())}


def text():
    return PAGE.read_text()


def is_of_this_torch():
    version = re.search(r"^torch (\d+\.\d+)", text(), re.MULTILINE)
    return torch.__version__.startswith(version[1] + ".")


def test_the_page_has_every_operator():
    if not is_of_this_torch():
        pytest.skip("the page is of another torch")
    assert documented().keys() == {case.name for case in shapes.cases()}, (
        "run scripts/sweep_shapes --markdown docs/shapes.md"
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", ("aot_eager", "native") if ALL else ("aot_eager",))
@pytest.mark.parametrize("part", range(PARTS))
def test_other_sizes_are_right(part, backend, monkeypatch):
    monkeypatch.setattr(logging.root.manager, "disable", logging.CRITICAL)
    pages, wrong, tried = documented(), [], 0
    for case in shapes.cases()[part::PARTS]:
        row = shapes.visit(case, 1_000_000 if ALL else 1, backend)
        tried += row.tried
        wrong += [f"{row.name}, sample {found}" for found in row.wrong]
        new = row.pinned.keys() - pages.get(row.name, set())
        if new and is_of_this_torch():
            wrong.append(f"{row.name} is pinned by {', '.join(sorted(new))}")
    framejit.reset()
    assert not wrong, "\n".join(wrong)
    assert tried > 50
