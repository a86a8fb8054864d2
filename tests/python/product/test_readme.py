"""The README says what is true: its example runs, its tables agree."""

from __future__ import annotations

import contextlib
import io
import linecache
import pathlib
import re

import framejit
from child_process import run_python
from framejit._arguments import ROWS

ROOT = pathlib.Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()


def option_table() -> str:
    """The table of the README, made from options.def."""
    rows = []
    for row in ROWS:
        accepted = row.accepted
        for word in row.words:
            accepted = re.sub(rf"\b{word}\b", f"`{word}`", accepted)
        default = f"`{row.default}`" if row.default else ""
        rows.append(f"| `{row.variable}` | {default} | {accepted} | {row.help} |\n")
    return "".join(rows)


def block(language: str) -> str:
    return re.search(rf"```{language}\n(.*?)```", README, re.DOTALL).group(1)


def test_options():
    assert option_table() in README


def test_options_of_a_call():
    usage = (ROOT / "docs" / "usage.md").read_text()
    for page, begin in ((README, "- `options`: "), (usage, "| `options` | ")):
        named = page.split(begin)[1].split(";")[0].split(" are FrameJIT's")[0]
        for row in ROWS:
            assert (f"`{row.keyword}`" in named) == (row.scope == "call"), row.keyword


def test_example():
    source = block("python")
    linecache.cache["example.py"] = (
        len(source),
        None,
        source.splitlines(True),
        "example.py",
    )
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(source, "example.py", "exec"), {})
    assert output.getvalue() == block("text")


def test_links():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (ROOT / target).exists(), target


def test_api_is_named():
    for name in framejit.__all__:
        if name[0].islower():
            assert re.search(rf"\b{name}\b", README), f"{name} is not in the README"


def test_framejit_0():
    program = "import framejit\ndef f(x): return x\nassert framejit.compile(f) is f\n"
    run_python("-c", program, check=True, environment={"FRAMEJIT": "0"})
