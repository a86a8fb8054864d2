"""`framejit.kernels`: the CUDA kernels of a function, without a GPU. Their text is
compiled by NVRTC for every generation of GPUs (tests/codegen/cuda runs it)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import framejit
from child_process import run_python
from framejit._kernels import nvrtc_paths

TARGETS = ["sm_70", "sm_80", "sm_90", "sm_100"]

has_nvrtc = pytest.mark.skipif(
    not any(os.path.isabs(path) for path in nvrtc_paths()),
    reason="there is no NVRTC (pip install nvidia-cuda-nvrtc-cu12)",
)


def softmax(x: Any) -> Any:
    return torch.softmax(x * 2, -1)


def norms(x: Any) -> Any:
    y = F.layer_norm(x, (x.shape[-1],))
    return F.rms_norm(F.gelu(y), (x.shape[-1],))


def columns(x: Any) -> Any:
    return x.mean(0), x.std(0), x.argmax(0), x.amax(0)


def narrow(x: Any) -> Any:
    y = x.to(torch.bfloat16)
    z = x.to(torch.float16)
    return (y * 2).tanh(), z.sin() + y


def integers(x: Any) -> Any:
    i = (x * 100).to(torch.int32)
    return i // 7, i % 7, i << 2, i.to(torch.int8), i.to(torch.uint8), i > 3


def whole(x: Any) -> Any:
    return x.sum(), x.argmin(), (x > 0).any(), x.prod()


def prefixes(x: Any) -> Any:
    return x.cumsum(-1), (x > 0).to(torch.int64).cumsum(-1)


def gathers(x: Any) -> Any:
    at = torch.arange(x.shape[0] - 1, -1, -1)
    return x[at] * 2, torch.zeros_like(x).index_add(0, at, x)


def maths(x: Any) -> Any:
    return x.exp(), x.log1p(), x.erf(), x.atan2(x + 1), x.pow(2.5), x.lgamma(), x.sinh()


def doubles(x: Any) -> Any:
    y = x.double()
    return y.exp().sum(-1), y.var(-1), torch.logsumexp(y, -1)


PROGRAMS: list[Callable[[Any], Any]] = [
    softmax,
    norms,
    columns,
    narrow,
    integers,
    whole,
    prefixes,
    gathers,
    maths,
    doubles,
]


@has_nvrtc
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("function", PROGRAMS, ids=lambda f: f.__name__)
def test_nvrtc_takes_them(function: Any, target: str) -> None:
    found = framejit.kernels(function, torch.randn(33, 70), target=target)
    assert found.note == "" and len(found) > 0
    if any("--gpu-architecture" in kernel.problem for kernel in found):
        pytest.skip("this NVRTC no longer knows the architecture")
    for kernel in found:
        assert kernel.problem == "", kernel.source
        assert kernel.image[:4] == b"\x7fELF"
        assert kernel.registers is not None and 0 < kernel.registers <= 128
        assert kernel.spilled_bytes is not None and kernel.spilled_bytes <= 16
        assert kernel.shared_bytes is not None and kernel.shared_bytes <= 32768
        assert kernel.bytes_moved > 0


def test_what_is_said_of_a_kernel() -> None:
    x = torch.randn(64, 512)
    found = framejit.kernels(softmax, x)
    (kernel,) = found
    assert found.target == "sm_90" and found.calls == []
    torch.testing.assert_close(found.result, softmax(x))
    assert "softmax" in kernel.name and kernel.entry in kernel.source
    line = softmax.__code__.co_firstlineno + 1
    assert kernel.lines == [f"test_cuda_kernels.py:{line}"]
    assert kernel.team == 32 and kernel.threads == 256
    assert kernel.bytes_moved >= 2 * 64 * 512 * 4
    assert kernel.name in str(found) and "1 kernels for sm_90" in str(found)


def test_calls_of_aten_are_named() -> None:
    found = framejit.kernels(lambda x: (x @ x).relu(), torch.randn(8, 8))
    assert len(found) == 1 and len(found.calls) == 1
    assert "aten.mm" in found.calls[0] and "test_cuda_kernels.py" in found.calls[0]


def test_gradients_inside() -> None:
    def step(x: Any, w: Any) -> Any:
        loss = (x * w).tanh().sum()
        (gradient,) = torch.autograd.grad(loss, w)
        return gradient

    found = framejit.kernels(step, torch.randn(40), torch.randn(40, requires_grad=True))
    assert any("tanh" in kernel.name for kernel in found)


def test_of_a_module_and_of_what_is_compiled() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.GELU())
    assert len(framejit.kernels(module, torch.randn(2, 4))) > 0
    compiled = framejit.compile(softmax)
    x = torch.randn(3, 5)
    compiled(x)
    before = framejit.inspect(compiled)
    assert len(framejit.kernels(compiled, x)) == 1
    assert len(framejit.inspect(compiled)) == len(before)


@pytest.mark.parametrize("target", ["sm90", "sm_60", "gfx90", "", None, "sm_9"])
def test_targets_that_are_none(target: Any) -> None:
    with pytest.raises(ValueError, match='of the form "sm_90"'):
        framejit.kernels(softmax, torch.randn(3, 5), target=target)


def test_what_cannot_be_called() -> None:
    with pytest.raises(TypeError, match="expected a function or a module"):
        framejit.kernels(3)  # type: ignore[arg-type]


def test_what_the_function_raises() -> None:
    def f(x: Any) -> Any:
        raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        framejit.kernels(f, torch.randn(3))


SCRIPT = """
import torch
@torch.no_grad()
def f(x):
    return torch.softmax(x, -1)
for _ in range(3):
    f(torch.randn(40, 50))
raise SystemExit({code})
"""


@pytest.mark.parametrize("code", [0, 3])
def test_of_a_script(tmp_path: Any, code: int) -> None:
    script = tmp_path / "program.py"
    script.write_text(SCRIPT.format(code=code))
    done = run_python("-m", "framejit", "--kernels", "sm_90", str(script))
    assert done.returncode == code
    assert "1 kernels for sm_90" in done.stderr, done.stderr
    assert "program.py:5" in done.stderr


def test_a_script_for_no_target(tmp_path: Any) -> None:
    done = run_python("-m", "framejit", "--kernels", "x", "-c", "1")
    assert done.returncode == 2 and 'of the form "sm_90"' in done.stderr


def test_it_says_when_nothing_was_compiled() -> None:
    def f(x: Any) -> Any:
        return x * 2

    with framejit.set_stance("force_eager"):
        found = framejit.kernels(f, torch.randn(3))
    assert not len(found) and "no graph was compiled" in str(found)


def test_kernels_of_a_backward_are_among_them() -> None:
    w = torch.randn(5, requires_grad=True)
    found = framejit.kernels(lambda w: w.sin().sum(), w)
    assert any("cos" in kernel.name for kernel in found)


def test_an_argument_called_target() -> None:
    def loss(pred: Any, target: Any) -> Any:
        return (pred - target).square().mean()

    x = torch.randn(4)
    with pytest.raises(ValueError, match="by its position"):
        framejit.kernels(loss, x, target=x)  # type: ignore[arg-type]
    assert len(framejit.kernels(loss, x, x)) > 0
