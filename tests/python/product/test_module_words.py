"""Messages about compiled modules: the program's words, and counts that agree."""

from __future__ import annotations

import enum
import io
import logging
import os
import re

import pytest
import torch

import framejit
from child_process import run_python
from framejit import _report

HERE = os.path.basename(__file__)


class Broken(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.up = torch.nn.Linear(4, 4)

    def forward(self, x, scale=1.0, *rest, mask=None, **more):
        y = self.up(x) * scale
        if y.sum() > 1000:
            y = y + 1
        for item in rest:
            y = y + item
        if mask is not None:
            y = y * mask
        for name in more:
            y = y + more[name]
        return y.relu()


class Whole(torch.nn.Module):
    def forward(self, x, scale=1.0, *rest, mask=None, **more):
        y = x * scale
        for item in rest:
            y = y + item
        if mask is not None:
            y = y * mask
        for name in more:
            y = y + more[name]
        return y.relu()


class Derived(Whole):
    pass


class Scripted(torch.nn.Module):
    def forward(self, x):
        return x.relu() * 2


def said(caplog) -> str:
    return "\n".join(r.getMessage() for r in caplog.records)


@pytest.fixture
def everything(caplog):
    framejit.reset()
    framejit.set_logs("guards,recompiles,graph_breaks,fallbacks,bytecode")
    caplog.set_level(logging.INFO, "framejit")
    yield caplog
    framejit.set_logs("")


def call_in_many_ways(compiled):
    x = torch.ones(3, 4)
    compiled(x)
    compiled(torch.ones(5, 4))
    compiled(x, 2.0)
    compiled(x, 2.0, torch.ones(4), torch.zeros(4))
    compiled(x, 2.0, torch.ones(4), torch.zeros(4).double())
    compiled(x, mask=torch.ones(4))
    compiled(x, mask=torch.ones(4).double())
    compiled(x, other=torch.ones(4))
    compiled(x, other=torch.ones(4).double())
    with torch.no_grad():
        compiled(x)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("cls", [Broken, Whole, Derived])
def test_no_word_of_ours(everything, cls, in_place):
    module = cls()
    if in_place:
        framejit.compile_inplace(module)
    else:
        module = framejit.compile(module)
    call_in_many_ways(module)
    texts = [said(everything)] + [text for _, text in framejit.events()]
    for entry in framejit.inspect(module):
        texts += entry.guards + [str(item) for item in entry.breaks]
        texts += [line for item in entry.breaks for line in item.stack]
    everything_said = "\n".join(texts)
    for word in ("_module.py", "in __call__", "args[", "kwargs", ".s0"):
        assert word not in everything_said, word
    line = cls.forward.__code__.co_firstlineno
    assert f"{cls.__qualname__}.forward ({__file__}:{line})" in everything_said


def test_arguments_have_the_names_of_parameters(everything):
    x, y = torch.ones(3, 4), torch.ones(4)
    for first, second in [
        (((x,), {}), ((torch.ones(5, 4),), {})),
        (((x, 1.0), {}), ((x, 2.0), {})),
        (((x, 1.0, y, y + 1), {}), ((x, 1.0, y, y.double()), {})),
        (((x,), {"mask": y}), ((x,), {"mask": y.double()})),
        (((x,), {"other": y}), ((x,), {"other": y.double()})),
    ]:
        framejit.reset()
        compiled = framejit.compile(Whole())
        for args, kwargs in (first, second):
            compiled(*args, **kwargs)
    with torch.no_grad():
        compiled(*args, **kwargs)
    misses = said(everything)
    for words in (
        "x.size(0): expected 3, got 5",
        "scale: expected 1.0, got 2.0",
        "rest[1].dtype: expected float32, got float64",
        "mask.dtype: expected float32, got float64",
        "more['other'].dtype: expected float32, got float64",
        "grad mode changed: was on, is off",
        "hint: mark_dynamic(x, 0)",
    ):
        assert any(words in line for line in misses.splitlines()), words
    assert re.search(
        rf"expected 3, got 5  \({re.escape(__file__)}:\d+ in forward", misses
    )


def test_a_module_with_a_break_is_one_break_and_two_graphs():
    framejit.reset()
    x = torch.ones(3, 4)
    found = framejit.explain(Broken())(x)
    assert found.graph_count == 2 and found.graph_break_count == 1
    assert found.op_count == 5 and framejit.counters()["breaks"] == 1
    (item,) = found.breaks
    assert item.id == "FJ101" and len(item.stack) == 1 and HERE in item.where
    assert sum("FJ101" in text for _, text in found.events) == 1

    compiled = framejit.compile(Broken())
    compiled(x)
    (entry,) = framejit.inspect(compiled)
    assert entry.operations == 4 and len(entry.walk()) == 2
    assert [item.id for item in entry.breaks] == ["FJ101"]


def test_a_module_without_a_break_is_one_graph():
    found = framejit.explain(Whole())(torch.ones(3, 4))
    assert found.graph_count == 1 and not found.breaks
    assert "x: Tensor float32 cpu sizes [3, 4] strides [4, 1]" in found.guards


def test_a_forward_of_the_instance(everything):
    def other(y, z=2):
        return y * z

    module = Whole()
    module.forward = other
    compiled = framejit.compile(module)
    compiled(torch.ones(3))
    compiled(torch.ones(4))
    assert "y.size(0): expected 3, got 4" in said(everything)
    assert f"other ({__file__}:{other.__code__.co_firstlineno})" in said(everything)


@pytest.mark.filterwarnings("ignore")
def test_a_scripted_module_goes_by_its_own_name(everything):
    scripted = framejit.compile(torch.jit.script(Scripted()))
    for size in (3, 4):
        scripted(torch.ones(size))
    inside = framejit.compile(torch.nn.Sequential(torch.jit.script(Scripted())))
    inside(torch.ones(3))
    texts = [said(everything), str(framejit.explain(scripted)(torch.ones(3)))]
    everything_said = "\n".join(texts + [text for _, text in framejit.events()])
    assert "_module.py" not in everything_said
    assert "Scripted.forward (<torch.jit.ScriptModule Scripted>" in everything_said
    assert "torch.jit._script.RecursiveScriptModule" in everything_said


STATES = [
    (torch.no_grad, "grad mode changed: was on, is off"),
    (torch.inference_mode, "inference mode changed: was off, is on"),
    (lambda: torch.autocast("cpu"), "autocast changed: was off, is on"),
]


@pytest.mark.parametrize("state,words", STATES)
def test_what_changed_of_the_thread(everything, state, words):
    compiled = framejit.compile(lambda x: x * 2)
    compiled(torch.ones(3))
    with state():
        compiled(torch.ones(3))
    (line,) = [text for text in said(everything).splitlines() if "recompiling" in text]
    assert words in line and "dispatch keys" not in line


def test_another_default_dtype_in_words(everything):
    compiled = framejit.compile(lambda x: x * 2)
    compiled(torch.ones(3))
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        compiled(torch.ones(3, dtype=torch.float32))
    finally:
        torch.set_default_dtype(before)
    assert "default dtype changed: was Float, is Double" in said(everything)


def test_the_counter_of_fallbacks_counts_its_events():
    framejit.reset()

    def fails(gm, inputs):
        raise ValueError("no")

    def picks(x, i):
        return x * 2, x[i] + 1

    framejit.compile(lambda x: x + 1, backend=fails)(torch.ones(2))
    compiled = framejit.compile(picks)
    compiled(torch.ones(3), torch.tensor([0]))
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([7]))
    x = torch.ones(3, requires_grad=True)
    (g,) = torch.autograd.grad(
        framejit.compile(lambda x: (x**3).sum())(x), x, create_graph=True
    )
    g.sum().backward()
    events = [text for channel, text in framejit.events() if channel == "fallbacks"]
    assert len(events) >= 3
    assert framejit.counters()["fallbacks"] == len(events)


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Style(enum.Flag):
    PLAIN = 1
    BOLD = 2


def chosen(x, choice):
    return x + 1 if choice is Color.RED or choice is Style.PLAIN else x - 1


def behind_a_break(x, choice):
    y = x[:choice].relu()
    framejit.graph_break()
    return y * 2


def held_number(x, choice):
    return x[:choice].sum().item() + x.sum()


WORDS = {
    "enum": (chosen, Color.RED, Color.BLUE, "expected Color.RED, got Color.BLUE"),
    "flag": (chosen, Style.PLAIN, Style.BOLD, "expected Style.PLAIN, got Style.BOLD"),
    "size behind a break": (behind_a_break, 2, 3, "y.size(0): expected 2, got 3"),
    "number held": (held_number, 2, 3, " held at line "),
}


@pytest.mark.parametrize("case", WORDS)
def test_words_of_a_recompilation(case):
    function, first, second, words = WORDS[case]
    framejit.reset()
    compiled = framejit.compile(function)
    x = torch.arange(5.0)
    compiled(x, first)
    compiled(x, second)
    told = [text for channel, text in framejit.events() if channel == "recompiles"]
    lines = [text for text in told if words in text]
    assert lines
    # Nobody can mark what the function made.
    assert not any("mark_dynamic" in text or "as a tensor" in text for text in lines)


def test_words_of_an_object_whose_metaclass_is_called_like_that_of_enums():
    asked = []

    class Descriptor:
        def __get__(self, owner, kind=None):
            asked.append(owner)
            return "WRONG"

        def __set__(self, owner, value):
            raise AttributeError

    meta = type("EnumType", (type,), {})
    kind = meta("Choice", (), {"_name_": Descriptor()})
    first, second = kind(), kind()
    compiled = framejit.compile(lambda x, choice: x + 1 if choice is first else x - 1)
    compiled(torch.ones(2), first)
    compiled(torch.ones(2), second)
    told = [text for channel, text in framejit.events() if channel == "recompiles"]
    assert told and not any("WRONG" in text for text in told) and not asked


# ---- the report at exit


def whole(x):
    return x + 1


def broken(x):
    if x.sum() > 0:
        x = x + 1
    return x * 2


def refused(x):
    for _ in range(100):
        x = x + 1
    return x


def generator(x):
    yield x + 1


@pytest.mark.filterwarnings("ignore")
def test_the_report():
    framejit.reset()
    x = torch.ones(3)
    small = framejit.compile(refused, options={"max_instructions": 50})
    kept = [*map(framejit.compile, (whole, broken)), small]
    for compiled in kept:
        compiled(x)
    generating = framejit.compile(generator)
    list(generating(x))
    module = framejit.compile(Broken())
    module(torch.ones(3, 4))
    for width in (60, 120):
        lines = _report.text(width).splitlines()
        table = lines[1 : lines.index("breaks:")]
        assert all(len(line) <= width for line in table)
        assert len(set(table)) == len(table)  # told apart
    head, *rows = table
    assert head.split() == ["hits", "entries", "ops", "breaks", "ms", "function"]
    ends = [head.index(name) + len(name) for name in head.split()[:-1]]
    for row in rows:
        assert all(row[end - 1].isdigit() and row[end] == " " for end in ends), row

    def row(name):
        (found,) = [r for r in rows if name in r]
        return found.split()[:4]

    def place(function):
        return f"{function.__qualname__}  {HERE}:{function.__code__.co_firstlineno}"

    assert row(place(whole)) == ["1", "1", "1", "0"]
    assert sum(place(broken) in r for r in rows) == 2  # and behind its break
    behind = broken.__code__.co_firstlineno + 1
    assert sum(f", behind line {behind}" in r for r in rows) == 1
    assert sum(place(Broken.forward) in r for r in rows) == 2
    breaks = lines[lines.index("breaks:") + 1 : lines.index("not captured:")]
    assert sum("FJ101" in line for line in breaks) == 2
    missing = lines[lines.index("not captured:") + 1 :]
    assert any(place(generator) in line and "generator" in line for line in missing)
    assert any(place(refused) in line and "FJ412" in line for line in missing), lines
    assert not any(place(whole) in line for line in missing)


DYING = """
import gc, sys
import torch, framejit
from framejit import _C

ENTRIES = 60  # more than the interpreter has spare lists for


@framejit.compile(recompile_limit=ENTRIES)
def apply(function, x):
    return function(x)


def run(number):
    def act(x, k=number):
        return x * k

    act.itself = act  # which the collector is needed for
    apply(act, torch.ones(3))


gc.collect()
gc.disable()
for number in range(ENTRIES):
    run(number)
before = gc.get_stats()[0]["collections"]
gc.set_threshold(gc.get_count()[0] + 20)  # in the middle of what follows
gc.enable()
told = getattr(_C, sys.argv[1])()
gc.disable()
print(len(told), gc.get_stats()[0]["collections"] - before)
"""


@pytest.mark.parametrize("report", ["report_rows", "all_entries"])
def test_a_collection_may_take_what_is_reported_on(report):
    # What is freed is overwritten.
    debug = {"PYTHONMALLOC": "debug"}
    done = run_python("-c", DYING, report, environment=debug)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "1"


def test_files_of_one_name_are_told_apart():
    short = _report._short(["/a/b/model.py", "/a/c/model.py", "/a/c/other.py"])
    assert short == {
        "/a/b/model.py": "b/model.py",
        "/a/c/model.py": "c/model.py",
        "/a/c/other.py": "other.py",
    }


def test_the_report_is_printed_to_any_file():
    file = io.StringIO()
    _report.print_report(file)
    assert file.getvalue().startswith("framejit: ")


def test_an_entry_is_printed_in_a_line():
    """Its guards and graphs are fields: printed whole they were kilobytes."""

    def branches(x):
        y = x.sin() * 2
        return y + 1 if y.sum() > 0 else y - 1

    compiled = framejit.compile(branches, dynamic=True)
    compiled(torch.ones(3))
    (entry,) = framejit.inspect(compiled)
    assert repr(entry).startswith("<entry 0: 4 operations, ")
    assert "1 hit, " in repr(entry) and "2 resume functions" in repr(entry)
    assert f"break FJ101 at {__file__}:" in repr(entry)
    assert "\n" not in repr(entry)
    lines = str(entry).splitlines()
    assert lines[0] == repr(entry)
    assert "  s0 is x.size(0)" in lines
    assert any("page: docs/breaks/FJ101.md" in line for line in lines)
