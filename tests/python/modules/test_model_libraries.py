"""What libraries of models do around their operations: registered operators, caches,
promises to the compiler, numbers from NumPy, kernels chosen for attention."""

from __future__ import annotations

import functools
import math
import typing
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import framejit
from differential import BACKENDS, assert_same, check, leaf, one, program, tensors_of


def captured(compiled: Any) -> tuple[int, int]:
    """Graphs and breaks over all entries."""
    entries = [e for entry in framejit.inspect(compiled) for e in entry.walk()]
    return (
        sum(1 for e in entries if e.operations),
        sum(len(e.breaks) for e in entries),
    )


# ---- operators registered by a package

calls_of_kernel: list[str] = []


@torch.library.custom_op("framejit_models::scaled_sum", mutates_args=())
def scaled_sum(x: torch.Tensor, factor: float) -> torch.Tensor:
    calls_of_kernel.append("scaled_sum")
    return (x * factor).sum(-1)


@scaled_sum.register_fake
def _(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x.new_empty(x.shape[:-1])


def _backward(ctx: Any, gradient: torch.Tensor) -> Any:
    return (gradient * ctx.factor)[..., None].expand(ctx.shape), None


def _setup(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.shape, ctx.factor = inputs[0].shape, inputs[1]


scaled_sum.register_autograd(_backward, setup_context=_setup)


@torch.library.custom_op("framejit_models::add_ones_", mutates_args={"x"})
def add_ones_(x: torch.Tensor) -> None:
    x.add_(1)


@torch.library.custom_op("framejit_models::no_fake", mutates_args=())
def no_fake(x: torch.Tensor) -> torch.Tensor:
    return x.clone()


@torch.library.custom_op("framejit_models::make", mutates_args=())
def make(size: int) -> torch.Tensor:
    calls_of_kernel.append("make")
    return torch.full((size,), float(len(calls_of_kernel)))


@make.register_fake
def _(size: int) -> torch.Tensor:
    return torch.empty(size)


def matrix() -> tuple[torch.Tensor]:
    return (torch.randn(3, 4, requires_grad=True),)


@program(matrix)
def test_custom_operator(x: Any) -> Any:
    return scaled_sum(x.sin(), 2.0) + 1


@program(matrix)
def test_custom_operator_by_its_packet(x: Any) -> Any:
    return torch.ops.framejit_models.scaled_sum(x, factor=0.5).cos()


@program(matrix)
def test_custom_operator_by_its_overload(x: Any) -> Any:
    return torch.ops.framejit_models.scaled_sum.default(x, 3.0)


@program(one)
def test_custom_operator_that_writes(x: Any) -> Any:
    y = x * 2
    add_ones_(y)
    add_ones_(x)
    return y.sin() + x


@program(one, graphs=None, breaks=1)
def test_custom_operator_without_fake(x: Any) -> Any:
    return no_fake(x + 1) * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_custom_operators_run_as_often_as_in_eager(backend: str) -> None:
    def fn(x: Any) -> Any:
        scaled_sum(x, 1.0)  # nobody reads it
        return scaled_sum(x, 2.0) + scaled_sum(x, 2.0)

    compiled = framejit.compile(fn, backend=backend)
    x = torch.randn(2, 3)
    for _ in range(3):
        calls_of_kernel.clear()
        expected = fn(x)
        in_eager = len(calls_of_kernel)
        calls_of_kernel.clear()
        assert torch.equal(compiled(x), expected)
        assert len(calls_of_kernel) == in_eager == 3
    assert captured(compiled) == (1, 0)


def test_custom_operator_of_numbers_runs_once_a_call() -> None:
    def fn(x: Any) -> Any:
        return x + make(4)

    compiled = framejit.compile(fn, backend="eager")
    x = torch.zeros(4)
    calls_of_kernel.clear()
    for number in range(1, 4):
        assert compiled(x)[0] == number
    assert len(calls_of_kernel) == 3


# ---- caches


class Settings:
    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes


runs: list[Any] = []
environment = {"width": 3}


@functools.lru_cache(maxsize=None)
def unbounded(name: str) -> int:
    runs.append(name)
    return environment[name]


@functools.lru_cache
def bounded(name: str, scale: int) -> int:
    runs.append((name, scale))
    return environment[name] * scale


@functools.lru_cache
def nothing_given() -> Settings:
    return Settings(2, 3)


@functools.lru_cache(maxsize=2)
def table(size: int) -> torch.Tensor:
    runs.append(size)
    return torch.arange(float(size))


@pytest.fixture(autouse=True)
def _fresh_caches() -> Iterator[None]:
    for cached in (unbounded, bounded, nothing_given, table):
        cached.cache_clear()
    environment["width"] = 3
    yield


@pytest.mark.parametrize("fill", (False, True))
@pytest.mark.parametrize(
    "call", (lambda: unbounded("width"), lambda: bounded("width", 2))
)
def test_cached_number(call: Any, fill: bool) -> None:
    def fn(x: Any) -> Any:
        return x * call()

    compiled = framejit.compile(fn, backend="eager")
    x = torch.randn(3)
    if fill:
        call()
    for _ in range(2):
        assert torch.equal(compiled(x), fn(x))
    # The cache keeps the old answer, whatever the function would say now.
    call()
    environment["width"] = 5
    assert torch.equal(compiled(x), fn(x))
    for cached in (unbounded, bounded):
        cached.cache_clear()
    assert torch.equal(compiled(x), fn(x))
    assert torch.equal(compiled(x), x * call())
    # They write to `runs`, once for each value: CPython makes what is missing.
    assert any(not e.breaks for e in framejit.inspect(compiled))


def test_cached_object_is_the_one_of_the_cache() -> None:
    def fn(x: Any) -> Any:
        settings = nothing_given()
        return x.repeat(settings.sizes), settings

    compiled = framejit.compile(fn, backend="eager")
    x = torch.randn(2, 2)
    settings = nothing_given()
    out, same = compiled(x)
    assert same is settings and out.shape == (4, 6)
    assert captured(compiled) == (1, 0)
    settings.sizes = (1, 2)
    assert compiled(x)[0].shape == (2, 4)
    nothing_given.cache_clear()
    out, other = compiled(x)
    assert other is nothing_given() is not settings and out.shape == (4, 6)


def test_cached_tensor() -> None:
    def fn(x: Any) -> Any:
        return x + table(x.shape[0])

    table(3)
    compiled = framejit.compile(fn, backend="aot_eager", dynamic=False)
    x = torch.randn(3)
    assert torch.equal(compiled(x), fn(x))
    assert captured(compiled) == (1, 0)
    table(3).mul_(2)
    assert torch.equal(compiled(x), fn(x))
    table(4), table(5)  # the first is forgotten
    assert torch.equal(compiled(x), fn(x))
    assert torch.equal(compiled(x), x + torch.arange(3.0))


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    @functools.lru_cache(maxsize=8)
    def angles(self, size: int) -> torch.Tensor:
        self.made += 1
        return torch.arange(float(size)) / size

    def forward(self, x: Any) -> Any:
        return x * self.angles(x.shape[-1]).cos()


def test_cached_method() -> None:
    module = Rotary()
    compiled = framejit.compile(lambda x: module(x), backend="eager")
    x, y = torch.randn(2, 4), torch.randn(2, 6)
    for value in (x, y):
        assert torch.equal(module(value), compiled(value))
        assert torch.equal(module(value), compiled(value))
    assert module.made == 2
    assert captured(compiled)[1] == 0
    Rotary.angles.cache_clear()
    assert torch.equal(compiled(x), x * (torch.arange(4.0) / 4).cos())


# ---- promises to the compiler


@torch.compiler.assume_constant_result
def probe(name: str) -> bool:
    runs.append(name)
    import importlib.util

    return importlib.util.find_spec(name) is not None


@functools.lru_cache
@torch.compiler.assume_constant_result
def kind_of_machine() -> Settings:
    runs.append("machine")
    return Settings(len(str(__import__("sys").byteorder)))


def test_assume_constant_result() -> None:
    def fn(x: Any) -> Any:
        if probe("json") and not probe("no_such_package"):
            x = x + kind_of_machine().sizes[0]
        return x

    kind_of_machine.cache_clear()
    runs.clear()
    compiled = framejit.compile(fn, backend="eager")
    x = torch.randn(3)
    assert torch.equal(compiled(x), x + 6)
    assert runs == ["json", "no_such_package", "machine"]
    runs.clear()
    assert torch.equal(compiled(x), x + 6)
    assert not runs
    assert captured(compiled) == (1, 0)


def test_assume_constant_result_takes_no_tensor() -> None:
    @torch.compiler.assume_constant_result
    def total(x: Any) -> Any:
        return float(x.sum())

    def fn(x: Any) -> Any:
        return x * total(x)

    check(fn, one, breaks=1)


# ---- numbers from NumPy


@program(leaf)
def test_numpy_on_numbers(x: Any) -> Any:
    scale = np.sqrt(16) + np.log2(8)
    x = x * scale * np.pi
    x *= np.sqrt(x.shape[0])
    return np.float64(2.0) * x / np.exp(1.0)


@program(leaf)
def test_numpy_functions_of_sizes(x: Any) -> Any:
    y = x.reshape(2, 2)
    count = int(np.prod(y.shape))
    return y.reshape(count) / np.maximum(count, 3) + int(np.ceil(2.5))


twice = np.frompyfunc(lambda value: runs.append(value) or value * 2, 1, 1)


@program(leaf, graphs=None, breaks=1)
def test_numpy_that_runs_python(x: Any) -> Any:
    return x + twice(3)


def test_numpy_that_writes(tmp_path: Any) -> None:
    def fn(x: Any) -> Any:
        np.savetxt(tmp_path / "numbers", [1.0, 2.0])
        return x + 1

    compiled = framejit.compile(fn, backend="eager")
    for _ in range(3):
        compiled(torch.ones(2))
        (tmp_path / "numbers").unlink()  # written by every call


@program(leaf, graphs=None, breaks=None)
def test_numpy_that_warns(x: Any) -> Any:
    with np.errstate(divide="ignore"):
        low = np.log(0.0)
    return x + max(float(low), -2.0)


class Scaled(nn.Module):
    def __init__(self, scale: Any, count: Any) -> None:
        super().__init__()
        self.scale, self.count = scale, count

    def forward(self, x: Any) -> Any:
        return x.repeat(self.count) * self.scale, 1 / (self.scale * x)


def test_numpy_numbers_as_attributes() -> None:
    x = torch.randn(3)
    module = Scaled(np.float64(2.0), np.int64(3))
    compiled = framejit.compile(module, backend="aot_eager")
    for scale in (2.0, 3.0, 0.0, -0.0):
        for count in (3, 2):
            module.scale, module.count = np.float64(scale), np.int64(count)
            assert_same(module(x), compiled(x), exact=True)
    module.scale = np.float32(2.0)
    assert_same(module(x), compiled(x))
    assert all(not e.breaks for e in framejit.inspect(compiled)[1:])


# ---- TorchScript


@torch.jit.script
def gate(x: torch.Tensor, scale: float, twice: bool = False) -> torch.Tensor:
    y = torch.sigmoid(x) * scale
    if twice:
        y = y * 2
    return x * y


@torch.jit.script
def loud(x: torch.Tensor) -> torch.Tensor:
    print("running")
    return x + 1


@torch.jit.script
def by_value(x: torch.Tensor) -> torch.Tensor:
    if bool(x.sum() > 0):
        return x
    return -x


@program(leaf)
def test_scripted_function(x: Any) -> Any:
    return gate(x, 2.0) + gate(x.cos(), 3, twice=True)


@torch.jit.script
def plus_one(x: torch.Tensor) -> torch.Tensor:
    return x + 1


@torch.jit.script
def plus_two(x: torch.Tensor) -> torch.Tensor:
    return x + 2


chosen = {"operator": torch.ops.aten.sin, "script": plus_one, "numpy": np.sqrt}


class Chosen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.operator, self.script = torch.ops.aten.sin.default, plus_one

    def forward(self, x: Any) -> Any:
        return self.script(self.operator(x))


def test_called_objects_are_the_ones_of_now() -> None:
    def fn(x: Any) -> Any:
        y = chosen["script"](chosen["operator"](x))
        return y * chosen["numpy"](4.0)

    compiled = framejit.compile(fn, backend="eager")
    module = Chosen()
    compiled_module = framejit.compile(module, backend="eager")
    x = torch.randn(3)
    changes: list[tuple[str, Any]] = [
        ("operator", torch.ops.aten.cos),
        ("script", plus_two),
        ("numpy", np.exp2),
    ]
    for name, value in changes:
        assert torch.equal(compiled(x), fn(x))
        assert torch.equal(compiled_module(x), module(x))
        chosen[name] = value
        if hasattr(module, name):
            setattr(module, name, value if name == "script" else value.default)
    assert torch.equal(compiled(x), fn(x))
    assert torch.equal(compiled_module(x), module(x))
    chosen.update(operator=torch.ops.aten.sin, script=plus_one, numpy=np.sqrt)
    assert torch.equal(compiled(x), fn(x))


@program(leaf, graphs=2, breaks=1)
def test_scripted_function_that_prints(x: Any) -> Any:
    return loud(x * 2) * 3


@program(leaf, graphs=2, breaks=1)
def test_scripted_function_that_looks(x: Any) -> Any:
    return by_value(x * 2) * 3


def test_scripted_function_on_other_sizes() -> None:
    def fn(x: Any) -> Any:
        return gate(x, 1.5) * x.shape[0]

    compiled = framejit.compile(fn, backend="eager")
    for size in (3, 4, 5, 6, 3):
        x = torch.randn(size, 2)
        for _ in range(3):
            assert torch.equal(compiled(x), fn(x))


# ---- references and processes


@program(leaf)
def test_weak_reference_made_inside(x: Any) -> Any:
    class Holder(dict):  # type: ignore[type-arg]
        pass

    kept = Holder(a=x)
    found = weakref.ref(kept)
    return found()["a"] + 1


@program(leaf)
def test_not_distributed(x: Any) -> Any:
    import torch.distributed as dist

    if dist.is_available() and dist.is_initialized():
        return x * dist.get_world_size()
    return x * 2


def test_tree_map_only() -> None:
    import torch.utils._pytree as pytree

    def fn(x: Any) -> Any:
        tree = {"a": x, "b": [x * 2, 3], "c": None}
        return pytree.tree_map_only(torch.Tensor, lambda t: t + 1, tree)

    check(fn, leaf, graphs=1, breaks=0)


# ---- forms of types


def nested(tree: Any) -> Any:
    return list[tree] if tree is int else tree | None


@program(leaf)
def test_type_forms(x: Any) -> Any:
    for form in (int | None, list[int], typing.Optional[str]):
        x = x + len(typing.get_args(form))
        if typing.get_origin(form) is list:
            x = x * 2
    return x


annotated: dict[str, Any] = {"size": int | None, "names": list[str]}


def test_type_forms_in_globals() -> None:
    def fn(x: Any) -> Any:
        for name, form in annotated.items():
            if type(None) in typing.get_args(form):
                x = x + len(name)
        return x

    compiled = framejit.compile(fn, backend="eager")
    x = torch.randn(3)
    assert torch.equal(compiled(x), fn(x))
    assert captured(compiled) == (1, 0)
    annotated["names"] = str | None
    assert torch.equal(compiled(x), x + 9)
    annotated["names"] = list[str]
    assert torch.equal(compiled(x), x + 4)


# ---- attention kernels


def heads() -> tuple[torch.Tensor, ...]:
    return tuple(torch.randn(2, 2, 5, 4, requires_grad=True) for _ in range(3))


@program(heads)
def test_sdpa_kernel(q: Any, k: Any, v: Any) -> Any:
    with sdpa_kernel([SDPBackend.MATH, SDPBackend.EFFICIENT_ATTENTION]):
        out = F.scaled_dot_product_attention(q, k, v)
    return out + F.scaled_dot_product_attention(q, v, k)


@program(heads)
def test_sdpa_kernel_one_backend(q: Any, k: Any, v: Any) -> Any:
    with sdpa_kernel(SDPBackend.MATH):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True), (
            torch.backends.cuda.flash_sdp_enabled()
        )


@program(heads, graphs=None, breaks=None)  # a generator is alive there
def test_sdpa_kernel_with_a_break(q: Any, k: Any, v: Any) -> Any:
    with sdpa_kernel(SDPBackend.MATH):
        out = F.scaled_dot_product_attention(q, k, v)
        framejit.graph_break()
        out = out + F.scaled_dot_product_attention(q, v, k)
    return out, torch.backends.cuda.flash_sdp_enabled()


def test_sdpa_kernel_around_the_call() -> None:
    def fn(q: Any, k: Any, v: Any) -> Any:
        flash = torch.backends.cuda.flash_sdp_enabled()
        return F.scaled_dot_product_attention(q, k, v) * (1 + flash)

    compiled = framejit.compile(fn, backend="eager")
    args = heads()
    for chosen in (None, SDPBackend.MATH, SDPBackend.FLASH_ATTENTION, None):
        if chosen is None:
            assert_same(fn(*args), compiled(*args), exact=True)
            continue
        with sdpa_kernel(chosen):
            assert_same(fn(*args), compiled(*args), exact=True)
    assert torch.backends.cuda.math_sdp_enabled()


@program(leaf)
def test_enum_of_torch(x: Any) -> Any:
    chosen = {SDPBackend.MATH: 1.0, SDPBackend.FLASH_ATTENTION: 2.0}
    if SDPBackend.MATH == SDPBackend.MATH != SDPBackend.FLASH_ATTENTION:
        x = x * chosen[SDPBackend.FLASH_ATTENTION]
    return x + int(SDPBackend.MATH)


# ---- pooling without gradients


@pytest.mark.parametrize("dtype", (torch.float32, torch.float64))
def test_max_pool1d(dtype: torch.dtype) -> None:
    def fn(x: Any) -> Any:
        x = F.max_pool1d(x, 3)
        with torch.no_grad():
            y = F.max_pool1d(x, 2, stride=1, padding=1, ceil_mode=True)
        return x, y, F.max_pool1d(x[0], 3, dilation=2)

    def inputs() -> Any:
        x = torch.randn(2, 3, 30, dtype=dtype)
        x[0, 1, 4] = math.nan
        x[1, 2] = -math.inf
        return (x,)

    check(fn, inputs, graphs=1, breaks=0)
    check(fn, lambda: (inputs()[0].requires_grad_(),), graphs=1, breaks=0)


@pytest.mark.parametrize(
    "dtype", (torch.int64, torch.uint8, torch.bool, torch.complex64)
)
@pytest.mark.parametrize("layer", (False, True))
def test_max_pool1d_of_no_floats(dtype: torch.dtype, layer: bool) -> None:
    """Torch's kernel refuses them, its operator with indices takes integers."""
    pool = torch.nn.MaxPool1d(2) if layer else lambda x: F.max_pool1d(x, 2)

    def fn(x: Any) -> Any:
        try:
            return pool(x)
        except (NotImplementedError, RuntimeError) as error:
            return type(error)

    check(fn, lambda: (torch.ones(1, 2, 8).to(dtype),))


# ---- stubs of quantization


class Stubbed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter = torch.ao.quantization.QuantStub()
        self.leave = torch.ao.quantization.DeQuantStub()
        self.arithmetic = torch.ao.nn.quantized.FloatFunctional()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        x = self.enter(x)
        return self.leave(self.arithmetic.add(x, self.layer(x)))


def test_quantization_stubs() -> None:
    module = Stubbed()
    compiled = framejit.compile(module, backend="aot_eager")
    x = torch.randn(3, 4)
    assert_same(module(x), compiled(x))
    assert captured(compiled) == (1, 0)
    assert len(tensors_of(module)) == 2


# ---- shapes known without torch's Python


@pytest.mark.parametrize("dims", (1, 2, 3))
@pytest.mark.parametrize("last", (False, True))
def test_transposed_convolution(dims: int, last: bool) -> None:
    convolve = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[dims - 1]
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}

    def inputs() -> Any:
        x = torch.randn(2, 4, *[5] * dims)
        weight = torch.randn(4, 3, *[3] * dims)
        if last and dims in formats:
            x = x.to(memory_format=formats[dims])
        return x.requires_grad_(), weight

    def fn(x: Any, weight: Any) -> Any:
        return (
            convolve(x, weight, stride=2, padding=1, output_padding=1),
            convolve(x, weight.repeat(1, 2, *[1] * dims), groups=2, dilation=2),
        )

    check(fn, inputs, graphs=1, breaks=0)


@pytest.mark.parametrize("last", (False, True))
def test_grid_sample(last: bool) -> None:
    def inputs() -> Any:
        x = torch.randn(2, 3, 5, 6)
        if last:
            x = x.to(memory_format=torch.channels_last)
        grid = torch.rand(2, 4, 7, 2) * 2 - 1
        return x.requires_grad_(), grid.requires_grad_(), torch.randn(1, 2, 3, 4, 5)

    def fn(x: Any, grid: Any, volume: Any) -> Any:
        y = F.grid_sample(x, grid, align_corners=False)
        places = F.affine_grid(torch.eye(3, 4)[None], [1, 2, 2, 2, 2], False)
        return y, F.grid_sample(volume, places, "nearest", align_corners=True)

    check(fn, inputs, graphs=1, breaks=0)


@program(lambda: (torch.randn(3, requires_grad=True), torch.randn(3)))
def test_dot(x: Any, y: Any) -> Any:
    return torch.dot(x, y) * x.dot(x)
