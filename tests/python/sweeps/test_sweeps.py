"""A fixed part of each family; `scripts/sweep_effects` runs all of them."""

from __future__ import annotations

import itertools

import pytest
import torch

from framejit import _C
from sweeps import arguments, layouts, out, programs, refusals, scalars, writes

FAMILIES = {
    "layouts": lambda: layouts.programs(part=(3, 45)),
    "refusals": lambda: refusals.programs(part=(1, 40)),
    "types": lambda: refusals.types(part=(7, 30)),
    "forms": lambda: refusals.forms(part=(2, 40)),
    "arguments": lambda: arguments.programs(part=(11, 120)),
    "scalars": lambda: scalars.programs(part=(5, 90)),
    "assignments": lambda: itertools.islice(scalars.assignments(), 0, None, 60),
    "out": lambda: out.programs(part=(2, 25)),
    "writes": lambda: writes.through_views(part=(4, 20)),
    "chains": lambda: writes.chains(range(250)),
}


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.filterwarnings("ignore")
def test_nothing_differs_from_eager(family):
    found = []
    for program in FAMILIES[family]():
        for backend in programs.BACKENDS:
            verdict = programs.try_program(program, backend)
            if verdict.status == "WRONG":
                found.append(f"{backend} {program.name}: {verdict.why}")
    assert not found, "\n".join(found)


# As loops: what their rows must refuse as eager's kernels do.
IN_LOOPS = {
    "refusals": lambda: refusals.module_errors(),
    "types": lambda: refusals.types(part=(23, 60)),
    "forms": lambda: refusals.forms(part=(9, 60)),
    "arguments": lambda: arguments.programs(part=(17, 90)),
}


@pytest.mark.parametrize("isa", ("avx512", "avx2"))
@pytest.mark.parametrize("family", IN_LOOPS)
@pytest.mark.filterwarnings("ignore")
def test_nothing_differs_in_loops(family, isa):
    if isa == "avx512" and torch.backends.cpu.get_cpu_capability() != "AVX512":
        pytest.skip("the CPU has no AVX-512")
    before = _C.option_text("isa")
    _C.set_option("isa", isa)
    try:
        found = []
        for program in IN_LOOPS[family]():
            verdict = programs.try_program(program, "native")
            if verdict.status == "WRONG":
                found.append(f"{program.name}: {verdict.why}")
    finally:
        _C.set_option("isa", before)
    assert not found, "\n".join(found)
