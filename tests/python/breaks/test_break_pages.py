"""Every break reason has a stable, unique id and a page under docs/breaks/."""

from __future__ import annotations

import pathlib

from framejit import _C

PAGES = pathlib.Path(__file__).parents[3] / "docs" / "breaks"


def test_ids_are_unique_and_documented():
    rows = _C.break_reasons()
    ids = [row[1] for row in rows]
    assert len(set(ids)) == len(ids)
    for _, identifier, title, _ in rows:
        page = PAGES / f"{identifier}.md"
        assert page.exists(), f"no page for {identifier} ({title})"
        assert title in page.read_text(), f"{page.name} does not name {title!r}"


def test_no_page_without_a_reason():
    ids = {row[1] for row in _C.break_reasons()}
    assert {page.stem for page in PAGES.glob("FJ*.md")} == ids
