"""scripts/bench gpu: kernels and models on a CUDA device, against eager, Inductor and
a device copy of the same bytes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from benchmarks.kernels import (
    Tensors,
    adam,
    bias_gelu_residual,
    chain,
    column_statistics,
    embed,
    layer_norm_gelu,
    log_softmax_backward,
    normal,
    rms_norm,
    swiglu,
)
from benchmarks.measure import Row, Run, print_rows

BF16 = torch.bfloat16
MEGA = 1 << 20


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable[..., object]
    inputs: Callable[[], Tensors]


def adam_inputs() -> Tensors:
    result: list[Tensor] = []
    for i in range(20):
        p, g, m, v = (normal(1024 * (1 + i % 4), 1024) for _ in range(4))
        result += [p, g, m, v.square()]
    return tuple(result)


def two(*sizes: int, dtype: torch.dtype = torch.float32) -> Callable[[], Tensors]:
    return lambda: (normal(*sizes, dtype=dtype), normal(*sizes, dtype=dtype))


# Large enough that no launch shows: 32 million elements or so.
CASES = (
    Case("float32 chain", chain, two(8192, 4096)),
    Case("bfloat16 chain", chain, two(8192, 4096, dtype=BF16)),
    Case("float16 chain", chain, two(8192, 4096, dtype=torch.float16)),
    Case("float64 chain", chain, two(4096, 4096, dtype=torch.float64)),
    Case(
        "uint8 chain",
        lambda x, y: (x ^ y) + (x & 7),
        lambda: (
            torch.randint(0, 255, (8192, 8192), dtype=torch.uint8),
            torch.randint(0, 255, (8192, 8192), dtype=torch.uint8),
        ),
    ),
    Case("cos cos", lambda x: x.cos().cos(), lambda: (normal(32 * MEGA),)),
    Case(
        "bias + gelu + residual",
        bias_gelu_residual,
        lambda: (normal(8192, 4096), normal(4096), normal(8192, 4096)),
    ),
    Case(
        "bias + gelu + residual, bfloat16",
        bias_gelu_residual,
        lambda: (
            normal(8192, 4096, dtype=BF16),
            normal(4096, dtype=BF16),
            normal(8192, 4096, dtype=BF16),
        ),
    ),
    Case("transpose + add", lambda x, y: x.t() + y, two(4096, 4096)),
    Case("sum", lambda x: (x * 2).sum(), lambda: (normal(64 * MEGA),)),
    Case(
        "sum, bfloat16",
        lambda x: (x * 2).sum(),
        lambda: (normal(64 * MEGA, dtype=BF16),),
    ),
    Case("sum of rows", lambda x: (x * x).sum(-1), lambda: (normal(8192, 4096),)),
    Case("sum of columns", lambda x: (x * x).sum(0), lambda: (normal(8192, 4096),)),
    Case(
        "columns: mean, std, max, argmax",
        column_statistics,
        lambda: (normal(16384, 1024),),
    ),
    Case("softmax, 1024", lambda x: x.softmax(-1), lambda: (normal(32768, 1024),)),
    Case("softmax, 50257", lambda x: x.softmax(-1), lambda: (normal(512, 50257),)),
    Case(
        "softmax, 1024, bfloat16",
        lambda x: x.softmax(-1),
        lambda: (normal(32768, 1024, dtype=BF16),),
    ),
    Case(
        "log softmax backward",
        log_softmax_backward,
        lambda: (normal(32768, 1024), normal(32768, 1024).log_softmax(-1)),
    ),
    Case(
        "layer norm + gelu, 1024",
        layer_norm_gelu,
        lambda: (normal(32768, 1024), normal(1024), normal(1024)),
    ),
    Case(
        "layer norm + gelu, bfloat16",
        layer_norm_gelu,
        lambda: (
            normal(32768, 1024, dtype=BF16),
            normal(1024, dtype=BF16),
            normal(1024, dtype=BF16),
        ),
    ),
    Case(
        "rms norm, 4096, bfloat16",
        rms_norm,
        lambda: (normal(8192, 4096, dtype=BF16), normal(4096, dtype=BF16)),
    ),
    Case("swiglu, bfloat16", swiglu, lambda: (normal(8192, 8192, dtype=BF16),)),
    Case(
        "batch norm, training",
        lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True).relu(),
        lambda: (normal(64, 128, 56, 56), normal(128), normal(128)),
    ),
    Case("cumsum", lambda x: (x * 2).cumsum(-1), lambda: (normal(8192, 4096),)),
    Case(
        "embedding",
        embed,
        lambda: (
            torch.randint(50257, (32, 1024)),
            normal(50257, 768),
            normal(1024, 768),
        ),
    ),
    Case(
        "cross entropy",
        lambda x, y: F.cross_entropy(x, y),
        lambda: (normal(4096, 8192), torch.randint(8192, (4096,))),
    ),
    Case(
        "scatter add",
        lambda x, i: torch.zeros_like(x).scatter_add(0, i, x),
        lambda: (normal(4096, 1024), torch.randint(4096, (4096, 1024))),
    ),
    Case("adam of 20", adam, adam_inputs),
)


def bytes_of(*values: object) -> int:
    total = 0
    for value in values:
        if isinstance(value, Tensor):
            total += value.numel() * value.element_size()
        elif isinstance(value, list | tuple):
            total += bytes_of(*value)
    return total


def microseconds(run: Run, seconds: float) -> float:
    """A call, by the device's clock."""
    torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    torch.cuda.synchronize()
    calls = max(3, int(seconds / max(time.perf_counter() - begin, 1e-5)))
    first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    first.record()
    for _ in range(calls):
        run()
    last.record()
    last.synchronize()
    return first.elapsed_time(last) * 1e3 / calls


def alternate(
    variants: dict[str, Run], rounds: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds a call of each round, as benchmarks.measure.alternate."""
    times: dict[str, list[float]] = {name: [] for name in variants}
    for _ in range(rounds):
        for name, run in variants.items():
            times[name].append(microseconds(run, seconds) * 1e-6)
    return times


def differs(ours: object, theirs: object) -> str:
    """How far apart, where that is too far; "" otherwise."""
    if isinstance(ours, list | tuple) and isinstance(theirs, list | tuple):
        found = [differs(a, b) for a, b in zip(ours, theirs, strict=True)]
        return next((text for text in found if text), "")
    assert isinstance(ours, Tensor) and isinstance(theirs, Tensor)
    bound = 2e-2 if theirs.dtype in (BF16, torch.float16) else 1e-3
    try:
        torch.testing.assert_close(ours, theirs, rtol=bound, atol=bound)
    except AssertionError as error:
        return str(error).replace("\n", " ")[:150]
    return ""


def compiled_by(
    arguments: argparse.Namespace, function: Callable[..., object]
) -> dict[str, Callable[..., object]]:
    import framejit

    made: dict[str, Callable[..., object]] = {
        "framejit": framejit.compile(function, dynamic=False)
    }
    if arguments.torch_compile:
        made["inductor"] = torch.compile(function, dynamic=False)
    return made


def row_of(arguments: argparse.Namespace, case: Case) -> Row:
    torch.manual_seed(0)
    with torch.device("cuda"):
        inputs = case.inputs()
    expected = case.function(*inputs)
    moved = bytes_of(*inputs, expected)
    variants: dict[str, Run] = {"eager": lambda: case.function(*inputs)}
    compile_ms: dict[str, float] = {}
    torch._dynamo.reset()
    for name, call in compiled_by(arguments, case.function).items():
        torch.cuda.synchronize()
        begin = time.perf_counter()
        try:
            found = call(*inputs)
            torch.cuda.synchronize()
        except Exception as error:
            print(f"  {case.name}: {name} raises {type(error).__name__}: {error}"[:200])
            continue
        compile_ms[name] = (time.perf_counter() - begin) * 1e3
        if wrong := differs(found, expected):
            print(f"  {case.name}: {name} is not eager: {wrong}")
        variants[name] = lambda call=call: call(*inputs)  # type: ignore[misc]
    source = torch.empty(moved // 2, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    variants["copy"] = lambda: target.copy_(source)
    times = alternate(variants, arguments.rounds, arguments.turn)
    return Row(case.name, times, compile_ms, moved)


def gpu(arguments: argparse.Namespace) -> None:
    if not torch.cuda.is_available():
        print("\nscripts/bench gpu: there is no CUDA device")
        return
    about = torch.cuda.get_device_properties(0)
    print(f"\n{about.name}, torch {torch.__version__}, CUDA {torch.version.cuda}")

    def rows() -> Iterator[Row]:
        for case in CASES:
            if arguments.filter not in case.name:
                continue
            with torch.no_grad():
                yield row_of(arguments, case)

    print_rows("kernels on CUDA", rows(), "framejit", ("inductor", "eager"))
