"""What is given to FrameJIT and is no option, mode or value is said, and not ignored.

The environment: one warning a variable, and the default. Arguments: an error. Both
are made from the rows of options.def, and so are these tests.
"""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys

import pytest
import torch

import framejit
from framejit import _arguments
from framejit._arguments import ROWS

BAD_VALUES = {
    "FRAMEJIT": "yes",
    "FRAMEJIT_ISA": "avx9",
    "FRAMEJIT_LOG": "guards,foo",
    "FRAMEJIT_RECOMPILE_LIMIT": "abc",
    "FRAMEJIT_BACKEND": "nonsense",
    "FRAMEJIT_ONLY": " ,",
}

PROGRAM = """
import torch, framejit
from framejit import _C
print({row[1]: _C.option_text(row[1]) for row in _C.option_table()})
f = framejit.compile(lambda x: x.cos() + 1)
print(f(torch.zeros(3)).tolist(), framejit.counters()["compiles"])
framejit.compile(f)
"""


def run_python(source, expect=0, **environment):
    plain = {k: v for k, v in os.environ.items() if not k.startswith("FRAMEJIT")}
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**plain, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == expect, done.stderr
    return done


@pytest.fixture(scope="module")
def unwritable(tmp_path_factory):
    file = tmp_path_factory.mktemp("trace") / "file"
    file.write_text("")
    return str(file / "folder")


@pytest.fixture(scope="module")
def warned(unwritable):
    """Every variable with a value that is none of its own: the lines said."""
    bad = {row.variable: "nonsense" for row in ROWS}
    bad |= {**BAD_VALUES, "FRAMEJIT_TRACE": unwritable}
    done = run_python(PROGRAM, **bad)
    return bad, done


def test_a_bad_value_is_one_warning_and_the_default(warned):
    bad, done = warned
    lines = done.stderr.splitlines()
    for row in ROWS:
        mine = [line for line in lines if line.startswith(f"{row.variable}=")]
        assert len(mine) == 1, (row.variable, done.stderr)
        assert f"{row.variable}={bad[row.variable]!r}" in mine[0]
        assert row.accepted in mine[0]
        assert repr(row.default) in mine[0] or "counts as unset" in mine[0]
    assert len(lines) == len(bad), done.stderr
    options = {row.keyword: row.default for row in ROWS}
    options["trace"] = bad["FRAMEJIT_TRACE"]
    shown, result = done.stdout.splitlines()
    given = eval(shown)
    assert given.pop("backend") == "nonsense"  # until it is first asked for
    assert given.items() <= options.items()
    assert result == "[2.0, 2.0, 2.0] 1"


def test_backends_are_named(warned):
    (line,) = [
        line for line in warned[1].stderr.splitlines() if "FRAMEJIT_BACKEND" in line
    ]
    assert "aot_eager" in line and "inductor" in line


def test_a_folder_that_goes_away_is_one_warning(tmp_path):
    program = (
        "import sys, os, shutil, torch, framejit\n"
        "from framejit import _tracefile\n"
        "f = framejit.compile(lambda x, n: x + n)\n"
        "def fail(*args, **kwargs): raise OSError(28, 'No space left on device')\n"
        "_tracefile.json.dumps = fail\n"
        "f(torch.ones(2), 1); f(torch.ones(3, 3), 'a' and 2)\n"
    )
    done = run_python(program, FRAMEJIT_TRACE=str(tmp_path / "new" / "folder"))
    assert done.stderr.count("FRAMEJIT_TRACE") == 1
    assert "No space left" in done.stderr


GOOD = {
    "FRAMEJIT": "off",
    "FRAMEJIT_ISA": "ATen",
    "FRAMEJIT_KERNEL_CACHE": "0",
    "FRAMEJIT_LOG": "graphs, kernels",
    "FRAMEJIT_RECOMPILE_LIMIT": "3",
    "FRAMEJIT_MAX_INSTRUCTIONS": "1000",
    "FRAMEJIT_PRECISE_MATH": "1",
    "FRAMEJIT_CHANNELS_LAST": "0",
    "FRAMEJIT_EMULATE_PRECISION_CASTS": "0",
    "FRAMEJIT_STRICT": "1",
    "FRAMEJIT_VERIFY": "true",
    "FRAMEJIT_DISABLE_PASS": "dead_code",
    "FRAMEJIT_BACKEND": "eager",
    "FRAMEJIT_ONLY": "models.*",
    "FRAMEJIT_PROFILE": "original",
    "FRAMEJIT_PERF_MAP": "0",
    "FRAMEJIT_PROGRESS": "0",
}


def test_good_values_are_taken_in_silence(tmp_path):
    good = {**GOOD, "FRAMEJIT_TRACE": str(tmp_path / "new" / "folder")}
    assert good.keys() == {row.variable for row in ROWS}
    done = run_python("\n".join(PROGRAM.splitlines()[:4]), **good)
    assert done.stderr == ""
    taken = eval(done.stdout)
    assert taken == {
        **{row.keyword: good[row.variable] for row in ROWS},
        "activation": "0",
        "isa": "aten",
        "log": "graphs,kernels",
        "verify": "1",
    }


def test_an_empty_value_is_none():
    empty = {row.variable: "" for row in ROWS}
    done = run_python(PROGRAM, **empty)
    assert done.stderr == ""
    assert eval(done.stdout.splitlines()[0]) == {r.keyword: r.default for r in ROWS}


def test_variables_that_are_nearly_ours():
    wrong = {
        "FRAMEJIT_RECOMPILE_LIMT": "FRAMEJIT_RECOMPILE_LIMIT",
        "FRAMEJIT_LOGS": "FRAMEJIT_LOG",
        "FRAMEJIT_BACKENDS": "FRAMEJIT_BACKEND",
        "FRAMEJITISA": "FRAMEJIT_ISA",
    }
    done = run_python(
        "import torch, framejit",
        **dict.fromkeys(wrong, "1"),
        FRAMEJIT_CCACHE="/tmp",  # not near any
        MY_FRAMEJIT_LOG="all",
    )
    lines = done.stderr.splitlines()
    assert sorted(lines) == sorted(
        f"{name} is no variable of FrameJIT; did you mean {meant}?"
        for name, meant in wrong.items()
    )


# ---- arguments


def f(x):
    return x.cos() + 1


@pytest.mark.parametrize("backend", _arguments.OWN_BACKENDS)
def test_unknown_options_are_errors(backend):
    for key, near in {"max_instruction": "max_instructions", "fuse": None}.items():
        with pytest.raises(ValueError) as caught:
            framejit.compile(f, backend=backend, options={key: 1})
        text = str(caught.value)
        assert (
            repr(key) in text
            and "recompile_limit, max_instructions, precise_math, " in text
        )
        assert (f"did you mean {near!r}?" in text) == (near is not None)


@pytest.mark.parametrize("value", [2, -1, "on", 1.5, None])
def test_values_of_switches_are_checked(value):
    with pytest.raises(TypeError, match="precise_math: expected 0 or 1, got"):
        framejit.compile(f, options={"precise_math": value})


NUMBERS = [r.keyword for r in ROWS if r.scope == "call" and r.type == "int"]


@pytest.mark.parametrize("key", NUMBERS)
@pytest.mark.parametrize("value", [0, -1, True, 1.5, "9", None])
def test_values_of_options_are_checked(key, value):
    with pytest.raises(
        (TypeError, ValueError), match=f"{key}: expected a whole number, 1"
    ):
        framejit.compile(f, options={key: value})


def test_a_value_is_shown_as_it_was_given():
    for given in ({"recompile_limit": 0}, {"options": {"recompile_limit": 0}}):
        with pytest.raises(ValueError, match="or more, got 0$"):
            framejit.compile(f, **given)
    with pytest.raises(TypeError, match="or more, got '0'$"):
        framejit.compile(f, options={"recompile_limit": "0"})


@pytest.mark.parametrize(
    "name, near",
    [("full_graph", "fullgraph"), ("Dynamic", "dynamic"), ("zebra", None)],
)
def test_unknown_arguments_name_those_there_are(name, near):
    calls = [
        lambda: framejit.compile(f, **{name: True}),
        lambda: framejit.compile(**{name: True}),
        lambda: framejit.compile_inplace(torch.nn.Linear(2, 2), **{name: True}),
    ]
    for call in calls:
        with pytest.raises(TypeError) as caught:
            call()
        text = str(caught.value)
        assert text.startswith(f"framejit.compile: unknown argument {name!r}")
        assert "known: model, fullgraph, dynamic, backend, mode" in text
        assert (f"did you mean {near!r}?" in text) == (near is not None)


def test_options_of_the_process_are_none_of_calls():
    with pytest.raises(ValueError, match="unknown option 'isa'"):
        framejit.compile(f, options={"isa": "aten"})


@pytest.mark.parametrize("mode", ["lite", "max-autotun", ""])
def test_unknown_modes_are_errors(mode):
    with pytest.raises(ValueError, match="unknown mode .*reduce-overhead") as caught:
        framejit.compile(f, mode=mode)
    assert ("did you mean 'max-autotune'?" in str(caught.value)) == (
        mode == "max-autotun"
    )
    with pytest.raises(TypeError, match="mode must be a str"):
        framejit.compile(f, mode=3)


@pytest.mark.parametrize("mode", _arguments.MODES)
def test_known_modes(mode):
    x = torch.randn(3)
    torch.testing.assert_close(framejit.compile(f, mode=mode)(x), f(x))


def test_unknown_backends_name_the_nearest():
    with pytest.raises(ValueError, match="did you mean 'native'"):
        framejit.compile(f, backend="nativ")


def test_a_decorator_that_is_wrong_raises_on_its_line():
    with pytest.raises(ValueError, match="unknown option"):
        framejit.compile(options={"nonsense": 1})
    with pytest.raises(ValueError, match="unknown backend"):
        framejit.compile(backend="nonsense")


def test_every_argument_of_torch_compile_is_one_here():
    theirs = inspect.signature(torch.compile).parameters
    ours = inspect.signature(framejit.compile).parameters
    # Those of the newest, whatever the torch: 2.11 has neither name nor shapes_spec.
    newest = torch.__version__.startswith("2.13.")
    assert [name for name in ours if newest or name in theirs] == list(theirs)
    for name, parameter in theirs.items():
        if newest or name != "backend":  # 2.11: "inductor"
            assert ours[name].default == parameter.default, name
        assert ours[name].kind == parameter.kind, name


def test_a_name_is_taken_and_shapes_spec_is_not():
    x = torch.randn(3)
    torch.testing.assert_close(framejit.compile(f, name="region")(x), f(x))
    with pytest.raises(TypeError, match="name must be a str"):
        framejit.compile(f, name=3)
    with pytest.raises(NotImplementedError, match="shapes_spec is not supported"):
        framejit.compile(f, shapes_spec={})


# ---- recompile_limit, isolate_recompiles


def tagged(x, tag):
    return x + len(tag)


def compiles_of(compiled, count=6):
    x = torch.zeros(2)
    before = framejit.counters()["compiles"]
    for i in range(count):
        assert compiled(x, "a" * i).tolist() == [i, i]
    return framejit.counters()["compiles"] - before


@pytest.mark.parametrize(
    "arguments",
    [{"recompile_limit": 2}, {"options": {"recompile_limit": 2}}],
    ids=["argument", "option"],
)
def test_a_recompile_limit_of_its_own(arguments):
    assert compiles_of(framejit.compile(tagged, **arguments)) == 2
    assert compiles_of(framejit.compile(tagged)) == 6
    (line,) = [
        text for _, text in framejit.events() if text.startswith("recompile_limit (2)")
    ]
    assert "other calls run the original code" in line


def test_the_limit_holds_behind_breaks():
    def broken(x, tag):
        x = x + 1
        framejit.graph_break()
        return x + len(tag)

    compiled = framejit.compile(broken, recompile_limit=1)
    for i in range(4):
        assert compiled(torch.zeros(1), "a" * i).item() == i + 1
    for entry in framejit.inspect(compiled):
        assert all(len(entries) <= 1 for entries in entry.resume.values())


def test_fullgraph_at_the_limit_raises():
    compiled = framejit.compile(tagged, recompile_limit=2, fullgraph=True)
    x = torch.zeros(2)
    compiled(x, ""), compiled(x, "a")
    with pytest.raises(framejit.RecompileError) as caught:
        compiled(x, "aa")
    text = str(caught.value)
    assert "recompile_limit (2) reached" in text and "expected 'a', got 'aa'" in text
    assert not any("original code" in text for _, text in framejit.events())
    assert compiled(x, "a").tolist() == [1, 1]  # what is there still answers


def test_the_limit_is_given_once():
    with pytest.raises(ValueError, match="given twice"):
        framejit.compile(f, recompile_limit=3, options={"recompile_limit": 3})


def test_isolated_entries():
    first, second = (framejit.compile(tagged) for _ in range(2))
    assert compiles_of(first) == 6 and compiles_of(second) == 0
    framejit.reset()
    first, second = (
        framejit.compile(tagged, isolate_recompiles=True) for _ in range(2)
    )
    assert compiles_of(first) == 6 and compiles_of(second) == 6


# ---- what other backends get


def test_a_backend_gets_its_mode_and_options_as_from_torch_compile():
    got = []

    def backend(gm, example_inputs, mode=None, options=None):
        got.append((mode, options))
        return gm.forward

    x = torch.randn(3)
    given = [
        {"options": {"level": 2, "max_instructions": 10_000}},
        {"mode": "lite"},
        {"mode": "default"},
        {},
    ]
    kept = [framejit.compile(f, backend=backend, **arguments) for arguments in given]
    for compiled in kept:
        torch.testing.assert_close(compiled(x), f(x))
    assert got == [(None, {"level": 2}), ("lite", None), (None, None)]
    got.clear()
    for arguments in ({"options": {"level": 2}}, {"mode": "lite"}, {}):
        torch._dynamo.reset()
        torch.compile(f, backend=backend, **arguments)(x)
    assert got == [(None, {"level": 2}), ("lite", None), (None, None)]


def test_a_backend_that_takes_none():
    def backend(gm, example_inputs):
        return gm.forward

    with pytest.raises(TypeError, match="the backend backend takes no options"):
        framejit.compile(f, backend=backend, options={"level": 2})
    with pytest.raises(TypeError, match="the backend backend takes no mode"):
        framejit.compile(f, backend=backend, mode="max-autotune")
    framejit.compile(f, backend=backend, options={"max_instructions": 5})


def test_inductor_checks_its_own():
    with pytest.raises(RuntimeError, match="Unexpected optimization option nonsense"):
        framejit.compile(f, backend="inductor", options={"nonsense": 1})
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        framejit.compile(f, backend="inductor", mode="nonsense")
    framejit.compile(f, backend="inductor", mode="lite")


@pytest.mark.parametrize("channels", [None, ["recompiles"], 3])
def test_channels_are_text(channels):
    with pytest.raises(TypeError, match="set_logs: expected channels"):
        framejit.set_logs(channels)


def test_marks_are_of_dimensions_of_tensors():
    with pytest.raises(TypeError, match="the number of a dimension, got 'a'"):
        framejit.mark_dynamic(torch.ones(2), "a")
    with pytest.raises(TypeError, match="expected a tensor, got Linear"):
        framejit.mark_static(torch.nn.Linear(2, 2))


def test_what_cannot_be_called_cannot_be_left_alone():
    with pytest.raises(TypeError, match="expected a function or a module, got int"):
        framejit.disable(3)


@pytest.mark.parametrize("kind", [property, functools.cached_property])
@pytest.mark.parametrize("options", [{}, {"backend": "eager"}])
def test_properties_are_refused_with_the_way_to_do_it(kind, options):
    def total(self):
        return self.x.sum()

    with pytest.raises(TypeError, match=rf"got a {kind.__name__}.*below"):
        framejit.compile(kind(total), **options)

    class Holder:
        def __init__(self):
            self.x = torch.ones(3)

        value = kind(framejit.compile(total, **options))

    framejit.reset()
    assert Holder().value == 3
    assert framejit.counters()["compiles"] == 1
