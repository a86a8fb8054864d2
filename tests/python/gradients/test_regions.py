"""Regions that change torch's thread state inside a compiled function."""

import contextlib

import pytest
import torch
import torch.nn.functional as F

import framejit
from differential import BACKENDS, check, program


def matrices(grad=True):
    def make():
        return (
            torch.randn(4, 4, requires_grad=grad),
            torch.randn(4, 4, requires_grad=grad),
        )

    return make


DTYPES = (torch.bfloat16, torch.float16)


# ---- autocast


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("grad", (True, False))
def test_autocast_region(dtype, grad):
    def fn(x, w):
        with torch.autocast("cpu", dtype=dtype):
            y = F.linear(x, w)
            z = y.softmax(-1)
        return y, z, F.linear(x, w)

    check(fn, matrices(grad), graphs=1, breaks=0)


@program(matrices())
def test_autocast_default_dtype(x, w):
    with torch.autocast("cpu"):
        return x @ w


@program(matrices())
def test_autocast_nested(x, w):
    with torch.autocast(device_type="cpu", dtype=torch.bfloat16):
        a = x @ w
        with torch.autocast("cpu", enabled=False):
            b = a.float() @ w
        with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
            c = b @ w
        d = b @ w
    return a, b, c, d, x @ w


@program(matrices(), graphs=None)
def test_autocast_cached_cast_of_another_dtype(x, w):
    """An error of eager: the inner region finds the cast of the outer one."""
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ w
        with torch.autocast("cpu", dtype=torch.float16):
            return a @ w


@program(matrices())
def test_autocast_weight_used_twice(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=True):
        a = x @ w
        b = (x * 2) @ w
    return a, b


@program(matrices())
def test_autocast_without_cache(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=False):
        return x @ w, (x + 1) @ w


@program(matrices())
def test_autocast_disabled(x, w):
    with torch.autocast("cpu", enabled=False):
        return x @ w


@program(matrices())
def test_autocast_decorator(x, w):
    @torch.autocast("cpu", dtype=torch.bfloat16)
    def inner(a, b):
        return a @ b

    return inner(x, w) + x, x @ w


@torch.autocast("cpu", dtype=torch.bfloat16)
def decorated_outside(a, b):
    return a @ b


@program(matrices())
def test_autocast_decorator_made_outside(x, w):
    return decorated_outside(x, w) + x, x @ w


def test_autocast_decorates_the_compiled_function():
    check(decorated_outside, matrices(), graphs=1, breaks=0)


@program(matrices())
def test_autocast_region_passed_in(x, w):
    contexts = [
        torch.autocast("cpu", dtype=torch.bfloat16),
        contextlib.nullcontext(),
    ]
    out = []
    for context in contexts:
        with context:
            out.append(x @ w)
    return out


@program(matrices())
def test_autocast_with_no_grad(x, w):
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ w
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.no_grad():
            b = x @ w
        c = x @ w
    return a, b, c


@program(matrices())
def test_autocast_state_is_read(x, w):
    found = [torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")]
    with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
        found += [
            torch.is_autocast_enabled("cpu"),
            torch.get_autocast_dtype("cpu"),
            torch.is_autocast_cache_enabled(),
        ]
        y = x @ w
    found += [torch.is_autocast_enabled("cpu"), torch.is_autocast_cache_enabled()]
    return y, found


@program(matrices())
def test_autocast_left_by_an_exception(x, w):
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            raise ValueError("inside")
    except ValueError:
        z = x @ w
    return y, z


@program(matrices(), graphs=None, breaks=None)
def test_autocast_left_by_an_escaping_exception(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ w
        raise ValueError(str(y.dtype))


def break_in_region(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = x @ w
        framejit.graph_break()
        b = x @ w
    return a, b, x @ w


def test_autocast_break_inside():
    """Two AOT graphs cast the weight once each, so its gradient is summed in
    float32, not in bfloat16: the results are equal, the gradient is not, bit by
    bit. At the torch level both use the one cast that the cache holds."""
    check(break_in_region, matrices(), graphs=2, breaks=1, backward=False)
    check(break_in_region, matrices(), graphs=2, breaks=1, backends=("eager",))


@program(matrices(), graphs=2, breaks=1)
def test_autocast_break_inside_two_regions(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        with torch.autocast("cpu", dtype=torch.float16, cache_enabled=False):
            a = x @ w
            framejit.graph_break()
            b = x @ w
        c = x @ w
    return a, b, c, x @ w


@program(matrices(), graphs=None, breaks=None)
def test_autocast_break_in_a_callee(x, w):
    def inner(a, b):
        c = a @ b
        framejit.graph_break()
        return c + a @ b

    with torch.autocast("cpu", dtype=torch.bfloat16):
        a = inner(x, w)
    return a, x @ w


@program(matrices(), graphs=2, breaks=1)
def test_autocast_exception_behind_a_break(x, w):
    y = x
    try:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
            framejit.graph_break()
            raise ValueError
    except ValueError:
        pass
    return y, x @ w


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_is_off_behind_every_call(backend):
    @framejit.compile(backend=backend)
    def fn(x, w):
        with torch.autocast("cpu", dtype=torch.float16):
            y = x @ w
            if x.shape[0] > 4:
                raise ValueError
        return y

    for rows in (4, 5, 4, 5):
        try:
            fn(torch.randn(rows, 4), torch.randn(4, 4))
        except ValueError:
            pass
        assert not torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") is torch.bfloat16
        assert torch.is_autocast_cache_enabled()
        assert torch.autocast_increment_nesting() == 1
        assert torch.autocast_decrement_nesting() == 0


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_ambient_changes_are_misses(backend):
    def fn(x, w):
        a = x @ w
        with torch.autocast("cpu", enabled=False):
            return a, x @ w

    compiled = framejit.compile(fn, backend=backend)
    x, w = matrices()()
    contexts = [
        contextlib.nullcontext(),
        torch.autocast("cpu", dtype=torch.bfloat16),
        torch.autocast("cpu", dtype=torch.float16),
        torch.autocast("cpu", dtype=torch.float16, cache_enabled=False),
    ]
    for _ in range(2):
        for context in contexts:
            with context:
                for got, want in zip(compiled(x, w), fn(x, w)):
                    assert got.dtype == want.dtype
                    torch.testing.assert_close(got, want)
    # One per context; the same four again are hits.
    assert len(framejit.inspect(compiled)) == 4


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_default_dtype_is_guarded(backend):
    @framejit.compile(backend=backend)
    def fn(x, w):
        with torch.autocast("cpu"):
            return x @ w

    x, w = matrices()()
    before = torch.get_autocast_dtype("cpu")
    assert fn(x, w).dtype is before
    torch.set_autocast_dtype("cpu", torch.float16)
    try:
        assert fn(x, w).dtype is torch.float16
    finally:
        torch.set_autocast_dtype("cpu", before)
    assert fn(x, w).dtype is before


@pytest.mark.parametrize("backend", BACKENDS)
def test_autocast_weight_changed_between_calls(backend):
    """The cache of weight casts must not outlive the region."""

    @framejit.compile(backend=backend)
    def fn(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return x @ w

    x, w = matrices()()
    for _ in range(3):
        want = (x.bfloat16() @ w.bfloat16()).float()
        torch.testing.assert_close(fn(x, w).float(), want, rtol=2e-2, atol=2e-2)
        with torch.no_grad():
            w.mul_(-2)


def test_autocast_custom_backend_keeps_the_region():
    seen = []

    def backend(module, example_inputs):
        module.graph.eliminate_dead_code()
        module.recompile()
        seen.append(module)
        return module

    def fn(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = x @ w
        return y, x @ w

    check(fn, matrices(), graphs=1, breaks=0, backends=(backend,))
    assert seen


# ---- inference mode


@program(matrices())
def test_inference_region(x, w):
    with torch.inference_mode():
        scale = (x @ w).abs().max()
        rounds = int(scale.numel())
    return x * 2 + rounds


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference_tensor_leaves_the_region(backend):
    def fn(x):
        with torch.inference_mode():
            y = x * 2
            z = x.view(-1)
        return y, z, torch.is_inference_mode_enabled()

    compiled = framejit.compile(fn, backend=backend)
    for _ in range(2):
        x = torch.randn(3, requires_grad=True)
        for got, want in zip(compiled(x), fn(x)):
            if isinstance(want, torch.Tensor):
                assert got.is_inference() == want.is_inference()
                assert got.requires_grad == want.requires_grad
            torch.testing.assert_close(got, want)
        assert not torch.is_inference_mode_enabled()
        assert torch.is_grad_enabled()


@torch.inference_mode()
def decorated_inference(x, w):
    return (x @ w).relu()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("ambient", (True, False))
def test_inference_decorator_and_ambient(backend, ambient):
    def plain(x, w):
        return (x @ w).relu(), x.t(), torch.ones(3) * 2

    for fn in (decorated_inference, plain):
        compiled = framejit.compile(fn, backend=backend)
        for _ in range(3):
            args = matrices()()
            with torch.inference_mode(ambient):
                got, want = compiled(*args), fn(*args)
                got = got if isinstance(got, tuple) else (got,)
                want = want if isinstance(want, tuple) else (want,)
            for a, b in zip(got, want):
                torch.testing.assert_close(a, b)
                assert a.is_inference() == b.is_inference()
                assert a.requires_grad == b.requires_grad
        entries = framejit.inspect(compiled)[0].walk()
        assert sum(len(e.breaks) for e in entries) == 0
        assert sum(1 for e in entries if e.operations) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference_mode_is_guarded(backend):
    compiled = framejit.compile(lambda x: x * 2, backend=backend)
    x = torch.randn(3, requires_grad=True)
    for _ in range(2):
        assert compiled(x).requires_grad
        with torch.inference_mode():
            y = compiled(x)
        assert y.is_inference() and not y.requires_grad
        # An inference tensor as the argument, inside and outside of the mode.
        with torch.inference_mode():
            assert compiled(y).is_inference()
        assert not compiled(y).is_inference()


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference_module(backend):
    layer = torch.nn.Sequential(
        torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4), torch.nn.ReLU()
    )
    compiled = framejit.compile(layer, backend=backend)
    for train in (True, False):
        layer.train(train)
        with torch.inference_mode():
            x = torch.randn(3, 4)
            before = {k: v.clone() for k, v in layer.state_dict().items()}
            got = compiled(x)
            after = {k: v.clone() for k, v in layer.state_dict().items()}
            layer.load_state_dict(before)
            torch.testing.assert_close(got, layer(x))
            for key, value in layer.state_dict().items():
                torch.testing.assert_close(after[key], value)


@program(matrices(), graphs=None, breaks=None)
def test_inference_break_inside(x, w):
    with torch.inference_mode():
        a = x @ w
        framejit.graph_break()
        b = float(a.numel())
    return x * b


@program(matrices())
def test_inference_mode_off_inside(x, w):
    with torch.inference_mode(False):
        return x @ w


# ---- what is none of the graph's business


@program(matrices())
def test_record_function(x, w):
    with torch.profiler.record_function("forward"):
        y = x @ w
    with torch.autograd.profiler.record_function("more"):
        return y + 1


@program(matrices(), graphs=2, breaks=1)
def test_record_function_around_a_break(x, w):
    with torch.profiler.record_function("forward"):
        y = x @ w
        framejit.graph_break()
        y = y * 2
    return y + 1


@program(matrices(), graphs=None, breaks=None)
def test_fork_rng(x, w):
    with torch.random.fork_rng():
        y = x + torch.rand(4, 4)
    return y + torch.rand(4, 4)


@program(matrices(), graphs=None, breaks=None)
def test_detect_anomaly(x, w):
    with torch.autograd.set_detect_anomaly(False):
        y = x @ w
    return y + 1


@program(matrices(), graphs=None, breaks=None)
def test_sdpa_kernel(x, w):
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = x.view(1, 1, 4, 4)
    with sdpa_kernel(SDPBackend.MATH):
        y = F.scaled_dot_product_attention(q, q, w.view(1, 1, 4, 4))
    return y * 2


@program(matrices(), graphs=None, breaks=None)
def test_generator_argument(x, w):
    generator = torch.Generator().manual_seed(3)
    return x * 2 + torch.rand(4, 4, generator=generator) + torch.rand(4)


@program(matrices())
def test_random_operations(x, w):
    a = F.dropout(x, 0.3)
    b = torch.rand_like(w) + torch.randn(4) + torch.randint(0, 5, (4,))
    return a, b, torch.bernoulli(torch.full((4, 4), 0.5)), torch.randperm(4)


def thread_state():
    return (
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        str(torch._C._dispatch_tls_local_include_set()),
        str(torch._C._dispatch_tls_local_exclude_set()),
    )


RAISING_REGIONS = {
    "inference": torch.inference_mode,
    "no inference": lambda: torch.inference_mode(False),
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
}


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "native"])
@pytest.mark.parametrize("caught", [False, True])
@pytest.mark.parametrize("region", RAISING_REGIONS)
def test_graph_that_fails_inside_leaves_the_thread_as_it_was(region, caught, backend):
    def f(x, n):
        with RAISING_REGIONS[region]():
            y = x + 1
            if not caught:
                return F.leaky_relu(y, n)
            try:
                return F.leaky_relu(y, n)
            except RuntimeError:
                return y

    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    before = thread_state()
    for n in (2, 1.5, 2.5, 1e39, 1.5):
        expected = outcome(f, torch.ones(3), n)
        assert outcome(compiled, torch.ones(3), n) == expected
        assert thread_state() == before


def outcome(function, *args):
    try:
        result = function(*args)
        return str(result), result.is_inference(), result.requires_grad
    except RuntimeError as error:
        return str(error)
