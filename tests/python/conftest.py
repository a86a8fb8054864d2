"""Every test starts with empty caches, and an error inside FrameJIT fails it.

Strict mode (``FRAMEJIT_STRICT=1``) makes internal errors raise instead of
falling back. Tests of the fallback itself switch it off with the ``lenient``
fixture.
"""

from __future__ import annotations

import gc
import os
import pathlib
from collections.abc import Iterator

os.environ.setdefault("FRAMEJIT_STRICT", "1")
# For the programs that tests start.
os.environ.setdefault("PYTHONPATH", str(pathlib.Path(__file__).parents[2]))

import pytest
import torch

import framejit
from framejit import _C


@pytest.fixture(scope="module", autouse=True)
def what_is_there_is_not_looked_through():
    """Many tests collect garbage again and again: of torch, of pytest's thousands of
    items and of the modules before there is none to be found."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def fresh():
    framejit.reset()
    torch.manual_seed(0)
    yield
    framejit.reset()
    assert gc.isenabled(), "the test leaves the collector off"


@pytest.fixture
def kernels():
    """Kernels whatever the CPU: interpreted where there is no machine code."""
    if not _C.machine_isa():
        _C.set_option("isa", "loops")
    yield
    _C.set_option("isa", "auto")


@pytest.fixture
def machine_kernels():
    if not _C.machine_isa():
        pytest.skip("kernels are machine code with AVX2 or AVX-512 only")


@pytest.fixture(params=["avx512", "avx2", "loops"])
def isa(request: pytest.FixtureRequest) -> Iterator[str]:
    """Both instruction sets, and the interpreter that says what loops mean."""
    capability = torch.backends.cpu.get_cpu_capability()
    if request.param == "avx512" and capability != "AVX512":
        pytest.skip("the CPU has no AVX-512")
    before = _C.option_text("isa")
    _C.set_option("isa", request.param)
    yield request.param
    _C.set_option("isa", before)


@pytest.fixture
def lenient():
    _C.set_option("strict", "0")
    yield
    _C.set_option("strict", "1")
