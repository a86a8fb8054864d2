"""Every break reason has a stable, unique id and a page under docs/breaks/, whose
programs do what the page says of them."""

from __future__ import annotations

import pathlib
import re
import shutil
import signal
import subprocess

import pytest
import torch

import framejit
from framejit import _C, _script
from programs_in_pages import ROOT, programs, run_program

PAGES = ROOT / "docs" / "breaks"
IDS = sorted(row[1] for row in _C.break_reasons())
# No program can be promised for these: what has no row is added when somebody
# finds it, and bugs are repaired.
WITHOUT_PROGRAM = {"FJ401", "FJ901"}

# What comes of it is an exception of the program's, and nothing else.
EXCEPTIONS = {"FJ504"}


def page_of(identifier: str) -> pathlib.Path:
    return PAGES / f"{identifier}.md"


def test_ids_are_unique_and_documented():
    rows = _C.break_reasons()
    ids = [row[1] for row in rows]
    assert len(set(ids)) == len(ids)
    for _, identifier, title, _ in rows:
        page = page_of(identifier)
        assert page.exists(), f"no page for {identifier} ({title})"
        assert title in page.read_text(), f"{page.name} does not name {title!r}"


def test_no_page_without_a_reason():
    ids = {row[1] for row in _C.break_reasons()}
    assert {page.stem for page in PAGES.glob("FJ*.md")} == ids


def test_every_page_says_what_to_do():
    for identifier in IDS:
        text = page_of(identifier).read_text()
        _, mark, rest = text.partition("**What to do.**")
        assert mark and rest.strip(), identifier
        assert (identifier in WITHOUT_PROGRAM) == (not programs(page_of(identifier)))


def test_messages_name_the_page():
    def reads(x):
        return x.sum().item() + 1

    (brk,) = framejit.explain(reads)(torch.ones(2)).breaks
    page = "page: docs/breaks/FJ102.md"
    assert page in str(brk) and (ROOT / brk.page).exists()
    framejit.compile(reads)(torch.ones(2))
    told = [text for name, text in framejit.events() if name == "graph_breaks"]
    assert told and all(text.endswith(page) for text in told if "FJ102" in text)
    with pytest.raises(framejit.GraphBreakError, match=page):
        framejit.compile(reads, fullgraph=True)(torch.ones(2))


def test_pages_are_installed(tmp_path):
    """Under the package's folder, where the name that messages give leads."""
    script = ROOT / "build" / "release" / "framejit" / "cmake_install.cmake"
    if not script.exists() or shutil.which("cmake") is None:
        pytest.skip("no build by CMake here")
    command = ["cmake", f"-DCMAKE_INSTALL_PREFIX={tmp_path}", "-P", str(script)]
    subprocess.run(command, check=True, capture_output=True)
    installed = tmp_path / "framejit" / "docs" / "breaks"
    assert {page.name for page in installed.iterdir()} == {f"{i}.md" for i in IDS}


def told_by(page: pathlib.Path, source: str) -> list[str]:
    """Events, and what the program prints (of `explain`)."""
    framejit.reset()
    _C.clear_events()
    handler = signal.getsignal(signal.SIGALRM)
    script = source.lstrip().startswith("# FRAMEJIT=1")
    if script:
        _script.start()
    try:
        printed = run_program(page, source)
    finally:
        if script:
            _script.stop()
        signal.signal(signal.SIGALRM, handler)
    return [text for _, text in framejit.events()] + [printed]


def places_in(text: str, page: pathlib.Path) -> set[int]:
    """Lines of the page that a break with its id is said to be at."""
    identifier, name = page.stem, re.escape(page.name)
    found = re.findall(
        rf"^ *(?:break: )?{identifier} .*\n *(?:break: )? *at {name}:(\d+)",
        text,
        re.MULTILINE,
    )
    whole = rf"^{identifier} |\({identifier}\)"  # of a function
    if not found and re.search(whole, text, re.MULTILINE):
        found = re.findall(rf"\({name}:(\d+)", text)[:1]
    return {int(line) for line in found}


ALL = [
    pytest.param(page_of(identifier), number, id=f"{identifier}-{number}")
    for identifier in IDS
    for number in range(len(programs(page_of(identifier))))
]


@pytest.mark.parametrize("page,number", ALL)
def test_a_program_breaks_where_the_page_says(page, number):
    """The lines that name the id are those it is reported for; a program without
    such a line has none. That of an exception is the program's own affair."""
    source = programs(page)[number]
    lines = source.splitlines()
    wanted = {i for i, line in enumerate(lines, 1) if f"# {page.stem}" in line}
    assert wanted or number > 0
    told = told_by(page, source)
    if page.stem in EXCEPTIONS:
        return
    places = set().union(*(places_in(text, page) for text in told))
    assert places == wanted, "\n".join(told)
