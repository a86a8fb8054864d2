"""scripts/bench kernels: functions of one kernel or a few, against eager, Inductor
and a plain copy of the same bytes."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from benchmarks.measure import Row, Run, alternate, clock_of, print_rows

Tensors = tuple[torch.Tensor, ...]


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable[..., object]
    inputs: Callable[[], Tensors]


def normal(*sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes).to(dtype)


def chain(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return ((x * y + 1.0).relu() - y * 0.5) * x


def cos_cos(x: torch.Tensor) -> torch.Tensor:
    return x.cos().cos()


def column_statistics(x: torch.Tensor) -> Tensors:
    return x.mean(0), x.std(0), x.amax(0), x.argmax(0)


def rms_norm(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * weight


def swiglu(x: torch.Tensor) -> torch.Tensor:
    gate, up = x.chunk(2, -1)
    return F.silu(gate) * up


def small_numbers() -> torch.Tensor:
    return torch.randint(0, 100, (131072,), dtype=torch.int8)


def layer_norm_gelu(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return F.gelu(F.layer_norm(x, (x.shape[-1],), w, b))


def bias_gelu_residual(
    x: torch.Tensor, b: torch.Tensor, r: torch.Tensor
) -> torch.Tensor:
    return F.gelu(x + b) + r


def batch_norm_relu(
    x: torch.Tensor,
    mean: torch.Tensor,
    var: torch.Tensor,
    w: torch.Tensor,
    b: torch.Tensor,
) -> torch.Tensor:
    return F.batch_norm(x, mean, var, w, b).relu()


def int_mix(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x // 7) * 3 + (y % 13) - (x & y)


def embed(ids: torch.Tensor, table: torch.Tensor, position: torch.Tensor) -> object:
    return F.embedding(ids, table) * 8.0 + position


def adam(*tensors: torch.Tensor) -> list[Tensors]:
    count = len(tensors) // 4
    result = []
    for i in range(count):
        p, g, m, v = tensors[4 * i : 4 * i + 4]
        m = m * 0.9 + g * 0.1
        v = v * 0.999 + g * g * 0.001
        result.append((p - 1e-3 * m / (v.sqrt() + 1e-8), m, v))
    return result


def adam_inputs() -> Tensors:
    result: list[torch.Tensor] = []
    for i in range(40):
        p, g, m, v = (normal(64 * (1 + i % 5), 128) for _ in range(4))
        result += [p, g, m, v.square()]
    return tuple(result)


def log_softmax_backward(grad: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    return grad - output.exp() * grad.sum(-1, keepdim=True)


def write_row(buffer: torch.Tensor, row: torch.Tensor) -> torch.Tensor:
    buffer[7] = row
    return buffer[7].sum()


BF16 = torch.bfloat16
CASES = (
    Case(
        "float32 chain, 1e6",
        chain,
        lambda: (normal(1000, 1000), normal(1000, 1000)),
    ),
    Case("cos cos, 1e5", cos_cos, lambda: (normal(100_000),)),
    Case(
        "float64 chain, 1e6",
        chain,
        lambda: (
            normal(1000, 1000, dtype=torch.float64),
            normal(1000, 1000, dtype=torch.float64),
        ),
    ),
    Case(
        "bfloat16 chain, 1e6",
        chain,
        lambda: (normal(1000, 1000, dtype=BF16), normal(1000, 1000, dtype=BF16)),
    ),
    Case(
        "gelu + bias + residual, 4096x1024",
        bias_gelu_residual,
        lambda: (normal(4096, 1024), normal(1024), normal(4096, 1024)),
    ),
    Case(
        "transpose + add, 2048x2048",
        lambda x, y: x.t() + y,
        lambda: (normal(2048, 2048), normal(2048, 2048)),
    ),
    Case(
        "column mean, std, max, argmax", column_statistics, lambda: (normal(4096, 512),)
    ),
    Case("softmax, 4096x1024", lambda x: x.softmax(-1), lambda: (normal(4096, 1024),)),
    Case(
        "log softmax backward",
        log_softmax_backward,
        lambda: (normal(4096, 1024), normal(4096, 1024).log_softmax(-1)),
    ),
    Case(
        "layer norm + gelu, 4096x1024",
        layer_norm_gelu,
        lambda: (normal(4096, 1024), normal(1024), normal(1024)),
    ),
    Case("rms norm, 4096x1024", rms_norm, lambda: (normal(4096, 1024), normal(1024))),
    Case("swiglu of two halves", swiglu, lambda: (normal(2048, 2048),)),
    Case(
        "batch norm + relu, NCHW",
        batch_norm_relu,
        lambda: (
            normal(16, 64, 56, 56),
            normal(64),
            normal(64).square() + 0.1,
            normal(64),
            normal(64),
        ),
    ),
    Case(
        "group norm, NCHW",
        lambda x, w, b: F.group_norm(x, 8, w, b),
        lambda: (normal(16, 64, 56, 56), normal(64), normal(64)),
    ),
    Case(
        "cross entropy, 4096x1024",
        lambda x, t: F.cross_entropy(x, t),
        lambda: (normal(4096, 1024), torch.randint(0, 1024, (4096,))),
    ),
    Case(
        "embedding + scale + add",
        embed,
        lambda: (
            torch.randint(0, 10_000, (32, 128)),
            normal(10_000, 512),
            normal(128, 512),
        ),
    ),
    Case(
        "int mix, // and %",
        int_mix,
        lambda: (
            torch.randint(-1000, 1000, (1000, 1000)),
            torch.randint(-1000, 1000, (1000, 1000)),
        ),
    ),
    Case("Adam over 40 tensors", adam, adam_inputs),
    Case(
        "max pool 3x3", lambda x: F.max_pool2d(x, 3), lambda: (normal(16, 32, 96, 96),)
    ),
    Case(
        "upsample nearest 2x",
        lambda x: F.interpolate(x, scale_factor=2.0),
        lambda: (normal(8, 32, 56, 56),),
    ),
    Case(
        "upsample bilinear 2x",
        lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"),
        lambda: (normal(8, 32, 56, 56),),
    ),
    Case("gelu", F.gelu, lambda: (normal(131072),)),
    Case("gelu, bfloat16", F.gelu, lambda: (normal(131072).bfloat16(),)),
    Case("power", lambda x: x**1.7, lambda: (normal(131072).abs(),)),
    Case(
        "power, bfloat16", lambda x: x**1.7, lambda: (normal(131072).abs().bfloat16(),)
    ),
    Case(
        "booleans",
        lambda a, b: a & b,
        lambda: (normal(131072) > 0, normal(131072) > 0),
    ),
    Case(
        "comparison of int8",
        lambda a, b: a == b,
        lambda: (small_numbers(), small_numbers()),
    ),
    Case(
        "polynomial, bfloat16",
        lambda x: (((x * 0.1 + 0.2) * x + 0.3) * x + 0.4) * x + 0.5,
        lambda: (normal(131072).bfloat16(),),
    ),
    Case(
        "transposed copy, bfloat16",
        lambda x: x.t().contiguous(),
        lambda: (normal(512, 512).bfloat16(),),
    ),
    Case(
        "transposed copy, float64",
        lambda x: x.t().contiguous(),
        lambda: (normal(512, 512).double(),),
    ),
    Case(
        "reflected border",
        lambda x: F.pad(x, (3, 3, 3, 3), mode="reflect"),
        lambda: (normal(1, 4, 256, 256),),
    ),
    Case("cumsum, 4096x1024", lambda x: x.cumsum(-1), lambda: (normal(4096, 1024),)),
    Case(
        "one row written in place",
        write_row,
        lambda: (normal(4096, 256), normal(256)),
    ),
)


def tensors_in(value: object) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in tensors_in(item)]
    return []


def bytes_of(tensors: list[torch.Tensor]) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def copy_of(count: int) -> Run:
    """Moves `count` bytes: half are read, half written, to memory that is there."""
    source = torch.empty(max(1, count // 2), dtype=torch.uint8).fill_(1)
    target = torch.empty_like(source).fill_(0)
    return lambda: target.copy_(source)


def measure(case: Case, arguments: argparse.Namespace) -> Row:
    import framejit

    torch.manual_seed(0)
    inputs = case.inputs()
    variants: dict[str, Run] = {}
    compile_ms: dict[str, float] = {}
    compilers: dict[str, Callable[..., Callable[..., object]]] = {
        "framejit": framejit.compile
    }
    if arguments.torch_compile:
        compilers["inductor"] = torch.compile
    with torch.no_grad():
        expected = case.function(*inputs)
        moved = bytes_of(tensors_in(inputs)) + bytes_of(tensors_in(expected))
        variants["eager"] = lambda: case.function(*inputs)
        for name, compiler in compilers.items():
            compiled = compiler(case.function)
            start = time.perf_counter()
            got = compiled(*inputs)
            compile_ms[name] = (time.perf_counter() - start) * 1e3
            for mine, theirs in zip(tensors_in(got), tensors_in(expected), strict=True):
                torch.testing.assert_close(mine, theirs, rtol=2e-2, atol=2e-2)
            variants[name] = lambda compiled=compiled: compiled(*inputs)
        variants["copy"] = copy_of(moved)
        times = alternate(
            variants, arguments.rounds, arguments.turn, clock_of(arguments)
        )
    return Row(case.name, times, compile_ms, moved)


def kernels(arguments: argparse.Namespace) -> None:
    wanted = [case for case in CASES if arguments.filter in case.name]
    rows = (measure(case, arguments) for case in wanted)
    threads = torch.get_num_threads()
    print_rows(f"kernels, {threads} threads", rows, "framejit", ("inductor", "eager"))
