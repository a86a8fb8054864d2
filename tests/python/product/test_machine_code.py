"""Machine code lives as long as what may run it, in pages nobody can write."""

from __future__ import annotations

import gc
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import framejit
from framejit import _C


def make(number: int) -> Callable[[torch.Tensor], torch.Tensor]:
    """A function whose kernels no other function has."""
    scope: dict[str, Any] = {}
    source = f"def f(x):\n    return (x * {number}.5 + {number}).sin() * x"
    exec(compile(source, f"<made {number}>", "exec"), scope)
    return scope["f"]  # type: ignore[no-any-return]


def clean() -> int:
    framejit.reset()
    gc.collect()
    return _C.code_bytes()


def code_goes_with_its_function() -> None:
    before = clean()
    most = 0
    x = torch.randn(8, requires_grad=True)
    for number in range(1000):
        compiled = framejit.compile(make(number))
        compiled(x).sum().backward()
        assert _C.code_bytes() > before
        most = max(most, _C.code_bytes())
        del compiled
        if number % 50 == 0:
            gc.collect()
    assert most - before < 4_000_000
    assert clean() == before


def test_code_goes_with_its_function() -> None:
    # In a process of its own: once a module was compiled, entries belong to code
    # objects, which they hold themselves, and go with reset().
    run = f"import runpy; runpy.run_path({__file__!r})['code_goes_with_its_function']()"
    subprocess.run([sys.executable, "-c", run], check=True)


def test_code_goes_with_its_entry() -> None:
    before = clean()
    compiled = framejit.compile(make(1))
    held = []
    for number in range(1000):
        compiled(torch.randn(8))
        held.append(_C.code_bytes() - before)
        framejit.reset()
        assert _C.code_bytes() == before
    assert len(set(held)) == 1 and held[0] > 0


def test_a_backward_keeps_its_kernels(machine_kernels: None) -> None:
    before = clean()
    x = torch.randn(8, requires_grad=True)
    result = framejit.compile(make(2))(x)
    framejit.reset()
    assert _C.code_bytes() > before
    (gradient,) = torch.autograd.grad(result.sum(), x)
    (expected,) = torch.autograd.grad(make(2)(x).sum(), x)
    torch.testing.assert_close(gradient, expected)
    del result
    assert _C.code_bytes() == before


def test_an_entry_retired_while_it_runs_keeps_its_code() -> None:
    before = clean()

    class Resets:
        def __setattr__(self, name: str, value: object) -> None:
            framejit.reset()
            held.append(_C.code_bytes())
            object.__setattr__(self, name, value)

    held: list[int] = []

    def f(x: torch.Tensor, sink: Any) -> torch.Tensor:
        y = x.sin() * 2
        sink.last = y
        return y.cos() + x

    compiled = framejit.compile(f)
    x = torch.randn(8)
    for _ in range(3):
        torch.testing.assert_close(compiled(x, Resets()), f(x, Resets()))
    gc.collect()
    framejit.reset()
    assert _C.code_bytes() == before


def writable_code() -> set[str]:
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {line.split()[0] for line in maps if line.split()[1].startswith("rwx")}


def test_code_is_never_writable_and_executable() -> None:
    make(3)(torch.randn(8))  # what torch itself may map
    before, used = writable_code(), clean()
    kept = [framejit.compile(make(number)) for number in range(20)]
    for compiled in kept:
        compiled(torch.randn(8, requires_grad=True)).sum().backward()
    assert _C.code_bytes() > used
    assert writable_code() <= before
