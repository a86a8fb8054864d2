"""Programs in pages of Markdown, run as they stand, with the lines of the page."""

from __future__ import annotations

import contextlib
import io
import linecache
import pathlib
import re
import sys
import warnings

import pytest

ROOT = pathlib.Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)


def programs(page: pathlib.Path) -> list[str]:
    """Each with as many empty lines before it as there are lines in the page."""
    text = page.read_text()
    return [
        "\n" * (text[: found.start(1)].count("\n")) + found.group(1)
        for found in BLOCK.finditer(text)
    ]


def run_program(page: pathlib.Path, source: str) -> str:
    """Runs it as a file of the page's name; returns what it printed."""
    name = page.name
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    output = io.StringIO()
    limit = sys.getrecursionlimit()
    try:
        with contextlib.redirect_stdout(output), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exec(compile(source, name, "exec"), {"__name__": "__main__"})
    finally:
        sys.setrecursionlimit(limit)  # a program may need more
    return output.getvalue()


def need_packages(source: str) -> None:
    """What a recipe is for may be missing here."""
    for name in ("transformers", "lightning"):
        if re.search(rf"^\s*(import|from) {name}\b", source, re.MULTILINE):
            pytest.importorskip(name)
