"""The programs in the pages under docs/ run as they stand."""

from __future__ import annotations

import pytest

import framejit
from programs_in_pages import ROOT, need_packages, programs, run_program

PAGES = ["export.md", "fx.md", "nothing-compiled.md", "profiling.md", "recipes.md"]
ALL = [
    pytest.param(ROOT / "docs" / name, number, id=f"{name}-{number}")
    for name in PAGES
    for number in range(len(programs(ROOT / "docs" / name)))
]


@pytest.mark.parametrize("page,number", ALL)
def test_program(page, number):
    source = programs(page)[number]
    need_packages(source)
    framejit.reset()
    run_program(page, source)


@pytest.mark.parametrize("name", PAGES)
def test_pages_say_that_they_are_tested(name):
    page = ROOT / "docs" / name
    assert len(programs(page)) > 1 and "test_documents.py" in page.read_text()


def test_every_page_is_linked():
    everything = "".join(
        page.read_text() for page in [ROOT / "README.md", *ROOT.glob("docs/*.md")]
    )
    for name in PAGES:
        assert f"{name})" in everything, name
