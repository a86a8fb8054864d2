"""Why graphs run call by call: each reason is on the page, names what it is about and
the program's line."""

import pathlib
import re

import pytest
import torch
import torch.nn.functional as F

import framejit
from programs_in_pages import ROOT

TABLE = ROOT / "graph" / "ir" / "torch_level.def"
PAGE = ROOT / "docs" / "breaks" / "FJ601.md"
ROW = re.compile(r'FJ_TORCH_LEVEL\(\s*(k\w+),\s*"([^"]*)",\s*"([^"]*)"\)')
HERE = pathlib.Path(__file__).name
LEAF = torch.nn.Linear(3, 3)


def rows():
    text = TABLE.read_text()
    found = ROW.findall(text)
    assert len(found) == text.count("FJ_TORCH_LEVEL(k")
    return found


def test_the_page_has_each_reason_and_what_to_do():
    listed = re.findall(r"^\| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    wanted = [(text.replace("{}", "..."), advice) for _, text, advice in rows()]
    assert [row for row in listed if row in wanted] == wanted


def test_each_reason_is_given_somewhere():
    sources = "".join(
        path.read_text()
        for folder in ("graph", "backend")
        for path in (ROOT / folder).rglob("*.cpp")
    )
    names = [name for name, _, _ in rows()]
    assert [n for n in names if f"TorchLevel::{n}" not in sources] == []


@pytest.mark.parametrize("folder", ["graph/joint", "graph/tracing", "backend"])
def test_no_reason_is_given_past_the_table(folder):
    """`aten_args`, `program` and the executors check what has been built; a program
    does not come there."""
    inner = {"aten_args.cpp", "program.cpp", "torch_executor.cpp", "backend.cpp"}
    inner |= {"callable_executor.cpp", "user_outputs.cpp", "aot_build.cpp"}
    for path in (ROOT / folder).rglob("*.cpp"):
        text = " ".join(path.read_text().split())
        found = re.findall(r'kBackendFailed, (?:std::string\()?"[^"]*"', text)
        assert path.name in inner or not found, path


# ---- programs


@torch.library.custom_op("framejit_reasons::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


twice.register_autograd(lambda ctx, g: g * 2)


def python_formula(x):
    return twice(x) + 1  # HERE


def item_is_written(x, at):
    row = x[at]  # HERE
    x.mul_(2)
    return row + 1


def item_is_returned(x, at):
    return x[at]  # HERE


def writes_history(x):
    with torch.no_grad():
        LEAF.weight.mul_(0.5)  # HERE
    return LEAF(x)


def through_data(x):
    x.data.mul_(0.5)  # HERE
    return x + 1


def assigns(x, y):
    x.data = y * 2  # HERE
    return x + 1


def a_parameter(x):
    return torch.nn.Parameter(x * 2)  # HERE


def reshaped(x):
    y = x * 2
    z = y[:2]
    y.unsqueeze_(0)  # HERE
    return y.sum() + z.sum()


def a_float(x, p):
    return x.abs() ** p  # HERE


def of_a_library(x, p):
    return F.celu(x, p)  # HERE


def part_of_a_part(x):
    part = LEAF(x)[:, :2]
    inner = part[:, 1:]  # HERE
    return part, inner, inner.relu()


X = torch.arange(12.0).reshape(4, 3)
PROGRAMS = {
    python_formula: ([(X.clone().requires_grad_(),)], "kPythonFormula", "twice"),
    item_is_written: ([(X.clone(), torch.tensor(1))], "kItemIsWritten", "getitem"),
    item_is_returned: ([(X.clone(), torch.tensor(1))], "kItemIsReturned", "getitem"),
    writes_history: ([(X,)], "", "weight"),
    through_data: ([(X.clone(),)], "kInputThroughData", "x"),
    assigns: ([(X.clone(), X.clone())], "kAssigns", "data"),
    a_parameter: ([(X,)], "kMakesSubclass", "Parameter"),
    reshaped: ([(X,)], "kReshapedInPlace", "unsqueeze_"),
    a_float: (
        [(X.clone().requires_grad_(), p) for p in (1.5, 2.5)],
        "kFloatValue",
        "pow",
    ),
    of_a_library: (
        [(X.clone().requires_grad_(), p) for p in (1.5, 2.5)],
        "kFloatValue",
        "functional.py",
    ),
    part_of_a_part: ([(X,)], "", "getitem"),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda f: f.__name__)
def test_the_message_names_what_it_is_about_and_the_line(program):
    calls, reason, subject = PROGRAMS[program]
    compiled = framejit.compile(program)
    for args in calls:
        compiled(*args)
    reasons = [e.fallback_reason for e in framejit.inspect(compiled)]
    [text] = [text for text in reasons if text]
    lines = pathlib.Path(__file__).read_text().splitlines()
    first = program.__code__.co_firstlineno
    line = next(n for n in range(first, first + 9) if "# HERE" in lines[n - 1])
    assert f"{HERE}:{line} in {program.__name__}" in text
    assert subject in text.split(": ", 1)[1]
    row = {name: (words, advice) for name, words, advice in rows()}.get(reason)
    if row:
        words, advice = row
        assert all(part in text for part in words.split("{}"))
        assert text.endswith(advice)
