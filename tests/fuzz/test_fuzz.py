"""2,000 random programs with fixed seeds, compiled against eager.

`scripts/fuzz --seed N --count 1` runs one of them again and shrinks it.
"""

from __future__ import annotations

import gc
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import framejit
from fuzz import dimensions, runner
from fuzz.generate import generate

PROGRAMS = 2000
CHUNK = 100
FIRST, MORE = 20_000, 200


@pytest.fixture(scope="module", autouse=True)
def settled():
    runner.settle()
    yield
    gc.unfreeze()


@pytest.fixture(autouse=True)
def fresh():
    framejit.reset()
    yield
    framejit.reset()


def test_a_seed_makes_one_program():
    assert [generate(s).source for s in range(20)] == [
        generate(s).source for s in range(20)
    ]
    assert len({generate(s).source for s in range(20)}) == 20


@pytest.mark.parametrize("start", range(0, PROGRAMS, CHUNK))
def test_programs(start):
    failed = []
    for seed in range(start, start + CHUNK):
        try:
            runner.run_program(generate(seed, wanted=()))
        except Exception as error:
            failed.append(f"seed {seed}: {type(error).__name__}: {error}"[:500])
    assert not failed, "\n".join(failed)


@pytest.mark.parametrize("start", range(FIRST, FIRST + MORE, CHUNK))
def test_programs_with_all_dimensions(start):
    """What is in dimensions.py beside the statements."""
    failed = []
    for seed in range(start, start + CHUNK):
        try:
            runner.run_program(generate(seed))
        except Exception as error:
            failed.append(f"seed {seed}: {type(error).__name__}: {error}"[:500])
    assert not failed, "\n".join(failed)


def test_a_dimension_can_be_switched_off():
    sources = {generate(s, wanted=()).source for s in range(40)}
    assert not any("SETTINGS" in source for source in sources)
    for dimension in dimensions.DIMENSIONS:
        alone = {generate(s, wanted=(dimension.name,)).source for s in range(40)}
        assert alone != sources, dimension.name


def test_nothing_says_when_the_collector_came():
    wanted = ("collection", "finalizers", "exceptions", "deep")
    sources = [generate(s, wanted=wanted).source for s in range(200)]
    speaks = re.compile("Final|watched|weakref")
    assert any(speaks.search(source) for source in sources)
    collected = [source for source in sources if "'gc'" in source]
    assert collected and not any(speaks.search(source) for source in collected)


def test_random_numbers_are_drawn_by_one_thread():
    wanted = ("threads", "iterators")
    sources = [generate(s, wanted=wanted).source for s in range(400)]
    lazy = [source for source in sources if "(torch.randn(n, n) for" in source]
    assert lazy and not any("'threads'" in source for source in lazy)
    assert any("'threads'" in source for source in sources)


def test_most_programs_are_one_graph():
    counted = captured = 0
    for seed in range(10_000, 10_100):
        program = generate(seed, wanted=())
        if program.has_break:
            continue
        report = runner.run(program.source)
        if not report.raised:
            counted += 1
            captured += not report.breaks
    assert counted > 20
    assert captured >= 0.9 * counted


KNOWN = sorted((Path(__file__).parent / "known").glob("*.py"))


@pytest.mark.parametrize("path", KNOWN, ids=lambda path: path.stem)
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_programs_that_failed_once(path, backend):
    """Kept as text: the generator makes other programs of their seeds now."""
    runner.run(path.read_text(), backend, name=path.stem)


WRONG = """
def make_args(call):
    return torch.ones(2), call

def between(call):
    pass

def F_CELL(value):
    pass

G_INT = G_STR = G_TENSOR = G_LIST = G_DICT = OBJ = None
NET = Net(0.5)

def f(x, n):
    y = x + 1
    if 1 < 2:
        z = x.cos()
        LOG.append("a" + str(id(LOG) % 1))
        LOG.append(id(LOG))
    return y, z
"""


# In eager the error holds the frame, and so itself and `late`.
FRAMES = """
def f(x, n):
    try:
        raise ValueError(n)
    except ValueError as caught:
        error = caught
    late = Final(1)
    z = x.cos()
    return z
"""


def test_what_only_frames_of_a_traceback_hold_may_go_at_once():
    source = WRONG.partition("def f(")[0] + FRAMES
    code = compile(source, "<fuzz>", "exec")
    plain, compiled = runner.load(code), runner.load(code)
    with runner._no_collector():
        fn = framejit.compile(compiled["f"], backend="eager")
        for names, call in ((plain, plain["f"]), (compiled, fn)):
            call(*names["make_args"](0))
        assert compiled["LOG"] == [("final", 1)] and not plain["LOG"]
        assert runner._frees_what_matters(plain)
        assert not runner._frees_what_matters(plain)
    runner.run(source)
    with pytest.raises(runner.Mismatch, match="LOG"):
        runner.run(source.replace("z = ", "z = LOG.append(id(LOG)) or "))


# The error holds the history of the first call, of a weight of other sizes.
HISTORY = """
def make_args(call):
    if call:
        NET.weight.data = torch.ones([1, 3][call == 2], 1)
    return torch.ones(2, 3), call

def f(x, n):
    y = x * NET.weight
    try:
        raise ValueError(n)
    except ValueError as caught:
        error = caught
    return y
"""


@pytest.mark.parametrize("held", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
def test_what_garbage_holds_is_no_history(backend, held):
    source = WRONG.partition("def f(")[0] + HISTORY
    if held:  # by the program
        source = source.replace("    try:", "    HELD.append(y)\n    try:")
    names = runner.load(compile(source, "<fuzz>", "exec"))
    with runner._no_collector():
        names["f"](*names["make_args"](0))
        names["make_args"](1)
        assert runner._frees_what_matters(names) != held
        assert not runner._frees_what_matters(names)
    runner.run(source, backend)


LATE = """
def f(x, n):
    kept = Final(1)
    y = x + 1
    KEPT.append(kept) if framejit.is_compiling() else KEPT.clear()
    return y
"""


def test_a_finalizer_that_runs_late_is_a_difference():
    late = WRONG.partition("def f(")[0] + "KEPT = []\n" + LATE
    with pytest.raises(runner.Mismatch, match="LOG"):
        runner.run(late)


ROUNDING = """
def f(x, n):
    y = F.layer_norm(x, (7,))
    LOG.append(n)
    for i in range(3):
        LOG.append(int(y.sum().item() > 0))  # its sum is 0
    return x
"""


def test_what_rounding_decides_is_found_at_its_place():
    source = WRONG.partition("def f(")[0].replace("ones(2)", "randn(5, 7)") + ROUNDING
    for place in ("call 0: 1.LOG.1: ", "call 0: 1.LOG.3: "):
        assert runner._place_of(f"native, {place}1 != 0") == place
        assert runner._multiplies_rounding(source, 1, "", place)
    for place in ("call 0: 1.LOG.0: ", "call 0: 1.G_INT: "):
        assert not runner._multiplies_rounding(source, 1, "", place)
    assert not runner._place_of("native, call 0: eager raised [], compiled raised []")
    assert not runner._place_of("native, call 0: gradients: number 0: None != x")
    wrong = source.replace("LOG.append(n)", "LOG.append(framejit.is_compiling())")
    with pytest.raises(runner.Mismatch, match="LOG.0"):
        runner.run(wrong, "native")


HOOKED = """
SETTINGS = {"gradients": "twice"}

def around(call):
    return torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t)

def f(x, n):
    y = x + 0
    y[y > 0] = 2.0  # the mask is saved as numbers, which are indices
    return y
"""


def test_a_backward_may_raise_anything():
    source = WRONG.partition("def f(")[0]
    source = source.replace("torch.ones(2)", "torch.ones(1, 4, requires_grad=True)")
    code = compile(source + HOOKED, "<fuzz>", "exec")
    names = runner.load(code)
    assert "out of bounds" in runner._outcome(names, names["f"], 0).grads
    runner.run(source + HOOKED, "native")


def test_a_difference_is_found_and_shrunk():
    # In a fresh process: hundreds of candidates, each compiled.
    program = (
        "import sys\n"
        "from fuzz import runner, shrink\n"
        "try:\n"
        "    runner.run(sys.argv[1])\n"
        "except runner.Mismatch as error:\n"
        "    assert 'LOG' in str(error)\n"
        "else:\n"
        "    raise SystemExit('no difference')\n"
        "print(shrink.shrink(sys.argv[1], 'eager'))\n"
    )
    root = Path(__file__).parents[2]
    small = subprocess.run(
        [sys.executable, "-c", program, WRONG],
        env={**os.environ, "PYTHONPATH": f"{root}:{root / 'tests'}"},
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    ).stdout
    assert "LOG.append(id(LOG))" in small
    assert "cos" not in small
