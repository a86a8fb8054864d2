"""2,000 random programs with fixed seeds, compiled against eager.

`scripts/fuzz --seed N --count 1` runs one of them again and shrinks it.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import framejit
from fuzz import runner, shrink
from fuzz.generate import generate

PROGRAMS = 2000
CHUNK = 100


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
            runner.run_program(generate(seed))
        except Exception as error:
            failed.append(f"seed {seed}: {type(error).__name__}: {error}"[:500])
    assert not failed, "\n".join(failed)


def test_most_programs_are_one_graph():
    counted = captured = 0
    for seed in range(10_000, 10_100):
        program = generate(seed)
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


def test_a_difference_is_found_and_shrunk():
    with pytest.raises(runner.Mismatch, match="LOG"):
        runner.run(WRONG)
    small = shrink.shrink(WRONG, "eager")
    assert "LOG.append(id(LOG))" in small
    assert "cos" not in small
