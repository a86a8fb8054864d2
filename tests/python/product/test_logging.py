"""Why a call was compiled again, in the user's words; logs, traces, explain()."""

from __future__ import annotations

import inspect
import json
import logging
import re
import sys

import pytest
import torch

import framejit
from child_process import run_python
from framejit import _tracefile


@pytest.fixture
def recompiles(caplog):
    """The lines of the recompiles channel so far."""
    framejit.set_logs("recompiles")
    caplog.set_level(logging.INFO, "framejit.recompiles")
    yield lambda: [
        r.getMessage() for r in caplog.records if r.name == "framejit.recompiles"
    ]
    framejit.set_logs("")


def line_of(function, text):
    lines, first = inspect.getsourcelines(function)
    return first + next(i for i, line in enumerate(lines) if text in line)


class Config:
    scale = 2.0

    def __init__(self):
        self.items = [1, 2]


def with_flag(x, flag):
    return x + 1 if flag else x - 1


def with_list(x, items):
    for item in items:
        x = x + item
    return x


def with_dict(x, d):
    for key in d:
        x = x + d[key]
    return x


def with_config(x, config):
    return x * config.scale


def double(x):
    return x * 2


def in_set(x, items):
    return x * (1 in items)


def or_one(x, y):
    return x if y is None else x + y


def add(x, y=1):
    return x + y


def x(*size, **kwargs):
    return torch.zeros(*size, **kwargs)


# function, first call, second call, what the line says, hint
MISSES = [
    (add, (x(10),), (x(8),), "x.size(0): expected 10, got 8", "mark_dynamic(x, 0)"),
    (
        add,
        (x(3, 10),),
        (x(3, 8),),
        "x.size(1): expected 10, got 8",
        "mark_dynamic(x, 1)",
    ),
    (add, (x(3),), (x(3, 3),), "x.dim(): expected 1, got 2", ""),
    (
        add,
        (x(3),),
        (x(3).double(),),
        "x.dtype: expected float32, got float64",
        "",
    ),
    (
        add,
        (x(3),),
        (x(3, requires_grad=True),),
        "x.requires_grad: expected False, got True",
        "requires_grad",
    ),
    (
        add,
        (x(3, 4),),
        (x(4, 3).t(),),
        "x.stride(0): expected 4, got 1",
        "x.contiguous()",
    ),
    (add, (x(3),), (torch.nn.Parameter(x(3)),), "type(x)", ""),
    (add, (x(3) * 1j,), ((x(3) * 1j).conj(),), "x.is_conj(): expected False", ""),
    (add, (x(3),), (torch._neg_view(x(3)),), "x.is_neg(): expected False", ""),
    (
        double,
        (x(1, 3),),
        (x(1, 3).to_sparse(),),
        "x.layout: expected torch.strided, got torch.sparse_coo",
        "",
    ),
    (in_set, (x(3), {1}), (x(3), {2}), "list(items): expected (1,), got (2,)", "keys"),
    (or_one, (x(3), None), (x(3), x(3)), "y: expected None, got a Tensor", ""),
    (add, (x(3), 2), (x(3), 3), "y: expected 2, got 3", "dynamic=True"),
    (add, (x(3), 2), (x(3), "2"), "y: expected 2, got '2'", ""),
    (with_flag, (x(3), True), (x(3), False), "flag: expected True, got False", ""),
    (with_list, (x(3), [1]), (x(3), [1, 2]), "len(items): expected 1, got 2", "size"),
    (
        with_dict,
        (x(3), {"a": 1}),
        (x(3), {"b": 1}),
        "list(d): expected ('a',), got ('b')",
        "keys",
    ),
]


@pytest.mark.parametrize("function,first,second,reason,hint", MISSES)
def test_a_line_for_a_miss(recompiles, function, first, second, reason, hint):
    compiled = framejit.compile(function, backend="eager")
    compiled(*first)
    assert recompiles() == []
    try:
        compiled(*second)
    except TypeError:
        pass
    (line,) = recompiles()
    name = f"{function.__qualname__} ({__file__}:{function.__code__.co_firstlineno})"
    assert line.startswith(f"recompiling {name}, entry 0: {reason}"), line
    assert ("hint: " in line) == bool(hint) and hint in line, line
    # The place is a line of the function.
    assert f"({__file__}:" in line.split("entry 0:")[1], line


def test_the_place_is_the_line_that_used_it(recompiles):
    def f(x, y):
        a = x.sin()
        b = y.cos()
        return a.sum() + b.sum()

    compiled = framejit.compile(f, backend="eager")
    compiled(x(3), x(4))
    compiled(x(3), x(5))
    (line,) = recompiles()
    assert "y.size(0): expected 4, got 5" in line
    assert f"{__file__}:{line_of(f, 'y.cos()')}" in line


def test_a_line_for_each_entry(recompiles):
    compiled = framejit.compile(with_list, backend="eager")
    for n in range(3):
        compiled(x(3), [1] * n)
    first, *others = recompiles()
    assert "entry 0: len(items): expected 0, got 1" in first
    assert [line.split("entry ")[1][0] for line in others] == ["1", "0"]


def test_state_and_globals_are_named(recompiles):
    compiled = framejit.compile(add, backend="eager")
    compiled(x(3, requires_grad=True))
    with torch.no_grad():
        compiled(x(3, requires_grad=True))
    (line,) = recompiles()
    assert "grad mode" in line and "one torch mode" in line
    compiled = framejit.compile(with_config, backend="eager")
    config = Config()
    compiled(x(3), config)
    config.scale = 3.0
    compiled(x(3), config)
    assert "scale" in recompiles()[-1]


K = 2


def test_numbers_that_are_not_passed(recompiles, monkeypatch):
    def f(x):
        return x * K + sys.getrecursionlimit()

    compiled = framejit.compile(f, backend="eager")
    compiled(x(3))
    monkeypatch.setitem(globals(), "K", 3)
    compiled(x(3))
    assert "global K: expected 2, got 3" in recompiles()[-1]
    assert recompiles()[-1].endswith(
        "hint: keep it in a tensor, or pass it as an argument"
    )
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 7)
    try:
        compiled(x(3))
    finally:
        sys.setrecursionlimit(limit)
    assert f"recursion limit: expected {limit}, got {limit + 7}" in recompiles()[-2]
    assert "hint" not in recompiles()[-2]


def test_a_module_has_the_name_of_its_class(recompiles):
    class Net(torch.nn.Module):
        flag = 1

        def forward(self, x):
            return x * self.flag

    module = Net()
    compiled = framejit.compile(module, backend="eager")
    compiled(x(3))
    module.flag = 2
    compiled(x(3))
    assert recompiles()[0].startswith(f"recompiling {Net.__qualname__}.forward (")


def test_one_line_when_the_limit_is_reached(recompiles):
    compiled = framejit.compile(with_flag, backend="eager")
    for n in range(12):
        compiled(x(3), str(n))
    assert sum("recompile_limit" in line for line in recompiles()) == 1


def test_misses_are_events_without_a_channel():
    compiled = framejit.compile(add, backend="eager")
    compiled(x(3))
    compiled(x(4))
    (text,) = [text for channel, text in framejit.events() if channel == "recompiles"]
    assert "x.size(0): expected 3, got 4" in text


def test_guard_tree(caplog):
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(3, 3)

        def forward(self, x):
            return self.layer(x)

    framejit.set_logs("guards")
    caplog.set_level(logging.INFO, "framejit.guards")
    try:
        framejit.compile(Net(), backend="eager")(x(2, 3))
    finally:
        framejit.set_logs("")
    (text,) = [r.getMessage() for r in caplog.records if r.name == "framejit.guards"]
    lines = text.splitlines()
    assert lines[0].startswith("guards of ")

    def depth(part):
        (line,) = [line for line in lines if part in line][:1]
        return len(line) - len(line.lstrip())

    assert depth("thread state is unchanged") == 2
    assert depth(".weight: Parameter float32") > depth("type(self) is") == 2
    user_line = line_of(Net.forward, "self.layer(x)")
    assert any(f"# {__file__}:{user_line}" in line for line in lines)
    entry_guards = {line.split("  # ")[0].strip() for line in lines[1:]}
    assert len(lines) - 1 >= len(entry_guards) > 5


class Holder:
    def __init__(self):
        self.weight = torch.ones(5, 5)


def one_guard_a_line(x, numbers, holder):
    y = x.sin()
    k = numbers["k"]
    y = y * k
    if x.shape[0] > 3:
        y = y + 1
    y = y @ holder.weight
    return y.exp() + torch.relu(y)


def test_guards_name_the_line_that_relies_on_them(caplog):
    framejit.set_logs("guards")
    caplog.set_level(logging.INFO, "framejit.guards")
    try:
        compiled = framejit.compile(one_guard_a_line, dynamic=True, backend="eager")
        compiled(x(5), {"k": 2.0}, Holder())
    finally:
        framejit.set_logs("")
    (text,) = [r.getMessage() for r in caplog.records if r.name == "framejit.guards"]
    assert "3 < x.size(0)" not in text  # it is 5, as the product needs
    for guard, line in (
        ("x: Tensor", "x.sin()"),
        ("Tensor.sin", "x.sin()"),
        ("type(numbers['k'])", 'numbers["k"]'),
        ("Tensor.__mul__", "y * k"),
        ("Tensor.shape", "x.shape"),
        ("holder.weight: Tensor", "holder.weight"),
        ("Tensor.__matmul__", "holder.weight"),
        ("x.size(0) == 5", "holder.weight"),
        ("Tensor.exp", "y.exp()"),
        ("global torch", "y.exp()"),
    ):
        (found,) = [
            line for line in text.splitlines() if line.strip().startswith(guard)
        ]
        number = line_of(one_guard_a_line, line)
        assert found.endswith(f"# {__file__}:{number} in one_guard_a_line"), found


def test_guards_with_hit_counts():
    compiled = framejit.compile(add, backend="eager")
    for size in (3, 3, 3, 4):
        compiled(x(size))
    dynamic, static = framejit.inspect(compiled)
    assert static.hits == 3 and dynamic.hits == 1
    assert len(static.guards) == len(static.guard_failures)
    (line,) = [line for line in static.guard_lines() if line.startswith("x: Tensor")]
    assert line.endswith("(3 hits, 1 misses)")
    assert sum(static.guard_failures) == 1 and sum(dynamic.guard_failures) == 0
    report = str(framejit.explain(add)(x(3)))
    assert "1 hits" in report and "guard: x: Tensor" in report


def test_level_of_the_loggers_is_the_users_again():
    logger = logging.getLogger("framejit")
    before = logger.level
    framejit.set_logs("guards")
    assert logger.isEnabledFor(logging.INFO)
    framejit.set_logs("recompiles")
    framejit.set_logs("")
    assert logger.level == before
    framejit.set_logs("guards")
    logger.setLevel(logging.ERROR)
    framejit.set_logs("")
    assert logger.level == logging.ERROR
    logger.setLevel(before)


def test_unknown_channel():
    with pytest.raises(ValueError, match="unknown channel"):
        framejit.set_logs("nonsense")


def test_trace_file(tmp_path):
    def f(x):
        if x.sum() > 0:
            return x + 1
        return x - 1

    folder = tmp_path / "trace"
    _tracefile.set_folder(str(folder))
    try:
        compiled = framejit.compile(f, backend="eager")
        compiled(torch.ones(3))
        compiled(torch.ones(4))
        with pytest.raises(framejit.GraphBreakError):
            framejit.compile(f, backend="eager", fullgraph=True)(torch.ones(3))
    finally:
        _tracefile.set_folder("")
    (file,) = folder.iterdir()
    records = [json.loads(line) for line in file.read_text().splitlines()]
    kinds = [record["kind"] for record in records]
    assert kinds.count("compile_start") == kinds.count("compile_end") == 5
    assert kinds.count("recompile") == 2
    start, end = records[0], records[1]
    assert start["kind"] == "compile_start" and not start["resume"]
    assert start["function"].startswith(f.__qualname__)
    entry = end["entry"]
    assert entry["capture_ms"] > 0 and entry["backend_ms"] >= 0
    assert "torch.gt" in entry["torch_graph"] or "gt" in entry["torch_graph"]
    assert any(guard.startswith("x: Tensor") for guard in entry["guards"])
    assert entry["breaks"][0]["id"] == "FJ101"
    recompile = next(r for r in records if r["kind"] == "recompile")
    assert recompile["reason"].startswith("x.size(0): expected 3, got 4")
    assert recompile["hint"] == "mark_dynamic(x, 0)"
    assert "FJ101" in records[-1]["break"]
    assert len({record["pid"] for record in records}) == 1


def test_an_operator_without_a_rule_is_not_called_an_error_of_eager():
    from torch.nn.utils.rnn import pack_padded_sequence

    def packs(x, lengths):
        return pack_padded_sequence(x * 2, lengths, batch_first=True).data

    breaks = framejit.explain(packs)(torch.ones(2, 5, 3), torch.tensor([5, 3])).breaks
    assert [
        found.id for found in breaks if "_pack_padded_sequence" in found.detail
    ] == ["FJ304"]


@pytest.fixture
def loops(caplog):
    """The events of the loops channel so far."""
    framejit.set_logs("loops")
    caplog.set_level(logging.INFO, "framejit.loops")
    yield lambda: [r.getMessage() for r in caplog.records if r.name == "framejit.loops"]
    framejit.set_logs("")


@pytest.mark.parametrize("train", [False, True])
def test_a_line_for_a_call_of_aten(kernels, loops, train):
    def two_lines(x, w):
        y = x.sin()
        return (y @ w).cos()

    compiled = framejit.compile(two_lines)
    result = compiled(x(3, 3).requires_grad_(train), x(3, 3))
    if train:
        result.sum().backward()
    (entry,) = framejit.inspect(compiled)
    place = f"{__file__}:{line_of(two_lines, '@')} in "
    expected = ["aten.mm.default"] * (1 + train)
    assert [line.split(" at ")[0] for line in entry.not_lowered] == expected
    assert all(
        place in line and line.endswith(": no row") for line in entry.not_lowered
    )
    assert entry.loop_nodes >= 2 * (1 + train)
    logged = [line.strip() for text in loops() for line in text.splitlines()]
    assert [line for line in logged if line.startswith("aten")] == entry.not_lowered
    nodes = [int(n) for n in re.findall(r"(\d+) nodes", "\n".join(logged))]
    assert len(nodes) == 1 + train and sum(nodes) == entry.loop_nodes


def test_a_line_for_a_graph_without_loops(kernels, loops):
    def overlapping(x):
        return (x + 1j).as_strided((2, 2), (1, 1))

    compiled = framejit.compile(overlapping)
    compiled(x(4))
    (entry,) = framejit.inspect(compiled)
    reason = "the whole graph: strides into the storage of a result"
    assert entry.not_lowered == [reason] and entry.loop_nodes == 0
    (text,) = loops()
    assert reason in text


SAYS_SOMETHING = """
import logging, torch, framejit
{configure}
f = framejit.compile(lambda x: x * 2)
f(torch.ones(2))
f(torch.ones(3))
"""


@pytest.mark.parametrize(
    ("configure", "prefixes"),
    [
        ("", ["framejit.recompiles: "]),
        ("logging.basicConfig(level=logging.INFO)", ["INFO:framejit.recompiles:"]),
        (
            "logging.getLogger('framejit').addHandler(logging.StreamHandler())",
            ["recompiling "],
        ),
        # Handlers that do not show it.
        ("logging.getLogger().addHandler(logging.NullHandler())", ["framejit.re"]),
        (
            "logging.basicConfig(); logging.getLogger().handlers[0].setLevel('ERROR')",
            ["framejit.recompiles: "],
        ),
        (
            "logging.basicConfig(); logging.getLogger('framejit').propagate = False",
            ["framejit.recompiles: "],
        ),
    ],
)
def test_each_line_once_where_logging_is_configured_later(configure, prefixes):
    program = SAYS_SOMETHING.format(configure=configure)
    done = run_python("-c", program, environment={"FRAMEJIT_LOG": "recompiles"})
    lines = done.stderr.splitlines()
    assert done.returncode == 0 and len(lines) == len(prefixes), done.stderr
    for line, prefix in zip(lines, prefixes, strict=True):
        assert line.startswith(prefix) and "x.size(0): expected 2, got 3" in line


def test_explain_shows_the_guards_that_say_most():
    model = torch.nn.TransformerEncoderLayer(8, 2, 16)
    explained = framejit.explain(model)(torch.randn(2, 3, 8))
    shown = [s for s in str(explained).splitlines() if s.startswith("  guard:")]
    assert len(explained.guards) > 100
    assert "src: Tensor float32" in shown[0]
    assert (
        shown[-1]
        == f"  guard: ... and {len(explained.guards) - len(shown) + 1} more: .guards"
    )
    assert len(shown) <= 11

    def few(x, scale):
        return x * scale

    explained = framejit.explain(few)(torch.ones(3), 2.0)
    shown = [s for s in str(explained).splitlines() if s.startswith("  guard:")]
    assert len(shown) == len(explained.guards) <= 10


def test_guards_that_turned_calls_away_are_shown_first():
    config = {f"key {i}": i for i in range(30)}

    def f(x):
        return x + sum(config.values())

    compiled = framejit.compile(f)
    compiled(torch.ones(3))
    config["key 7"] = 70
    compiled(torch.ones(3))
    (missed,) = [e for e in framejit.inspect(compiled) if any(e.guard_failures)]
    lines = missed.shown_guards(("x",))
    assert any("1 misses" in line for line in lines)
    assert any(line.startswith("x: Tensor") for line in lines)
    assert len(lines) <= 11 and len(missed.guards) > 30
