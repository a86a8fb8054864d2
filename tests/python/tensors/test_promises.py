"""Results that are not what the trace said: the original runs, eager is asked."""

import itertools

import pytest
import torch

import framejit
from differential import BACKENDS, assert_same
from framejit import _C

CPU = torch.ones(())
numbers = itertools.count()


def custom(kernel, fake):
    """An operator of one tensor with a fake implementation that may lie."""
    name = f"framejit_promises::op{next(numbers)}"
    made = torch.library.custom_op(
        name, kernel, mutates_args=(), schema="(Tensor x) -> Tensor"
    )
    made.register_fake(fake)
    return made


LIES = {
    "dtype": (lambda x: x.double() * 2, lambda x: torch.empty_like(x)),
    "strides": (
        lambda x: (x * 2).t().contiguous().t(),
        lambda x: torch.empty(x.shape, dtype=x.dtype),
    ),
    "sizes": (lambda x: x[:1] * 2, lambda x: torch.empty_like(x)),
    "negative": (lambda x: torch._neg_view(x * -2), lambda x: torch.empty_like(x)),
    "rank": (lambda x: x.sum(), lambda x: torch.empty_like(x)),
}


def events():
    return [text for _, text in _C.recent_events()]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("lie", LIES)
def test_a_lie_about_a_result_is_not_committed(lie, backend, dynamic):
    op = custom(*LIES[lie])

    def f(x, seen):
        y = op(x)
        seen.add_(1)
        # Decided by what is known of y.
        z = y + 1 if y.dtype is torch.float32 else y * 100
        z = z * 2 if y.is_contiguous() else z * 3
        return z * 5 if y.shape == x.shape else z.mean()

    framejit.reset()
    compiled = framejit.compile(f, backend=backend, dynamic=dynamic)
    for rows in (3, 3, 4, 5, 6):
        x = torch.randn(rows, 4)
        seen, expected_seen = torch.zeros(()), torch.zeros(())
        expected = f(x, expected_seen)
        _C.clear_events()
        assert_same(compiled(x, seen), expected)
        assert torch.equal(seen, expected_seen)
    # It is known by now that nobody knows.
    assert not [text for text in events() if "failed" in text]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_lie_is_logged_with_both_answers(backend):
    op = custom(*LIES["dtype"])
    framejit.reset()
    compiled = framejit.compile(lambda x: op(x).sum(), backend=backend)
    _C.clear_events()
    compiled(torch.randn(2, 3))
    told = [text for text in events() if "original code runs" in text]
    assert len(told) == 1
    assert "framejit_promises::" in told[0]
    assert "Double [2, 3] strides [3, 1], not the Float [2, 3]" in told[0]


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_operator_that_lied_breaks_the_graph_and_no_more_runs_twice(backend):
    runs = []

    def kernel(x):
        runs.append(1)
        return x.double()

    op = custom(kernel, lambda x: torch.empty_like(x))
    framejit.reset()
    compiled = framejit.compile(lambda x: (op(x * 2) + 1).sum(), backend=backend)
    x = torch.randn(2, 3)
    for _ in range(4):
        compiled(x)
    runs.clear()
    assert compiled(x).dtype is torch.float64
    assert len(runs) == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_random_state_is_eagers_after_a_lie(backend):
    op = custom(*LIES["dtype"])

    def f(x):
        a = torch.rand(3)
        return op(x), a, torch.rand(3)

    framejit.reset()
    compiled = framejit.compile(f, backend=backend)
    x = torch.randn(2, 3)
    for seed in range(3):
        torch.manual_seed(seed)
        expected = f(x)
        torch.manual_seed(seed)
        for a, b in zip(compiled(x), expected, strict=True):
            assert torch.equal(a, b)


# ---- every operator rehearsed


def test_reset_forgets_surprises():
    def trusts():
        return {row["trust"] for row in _C.operators()}

    _C.distrust_operators()
    assert "rehearsal" in trusts()
    framejit.reset()
    assert trusts() == {"inference"}


def views(x, w):
    return (
        (x @ w).relu(),
        x.t(),
        x[0],
        x.diagonal(),
        torch.ones(3) * 2,
        x.unfold(0, 2, 1),
    )


def writes(x, w):
    y = x * 2
    y[0].add_(1)
    y.t()[1] = w[0]
    return y, y.view(-1), y.softmax(0)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("mode", ["grad", "no_grad", "inference", "inference_inputs"])
@pytest.mark.parametrize("fn", [views, writes])
def test_rehearsed_programs(fn, mode, backend):
    """A rehearsal is right in every mode: of normal tensors and of inference's."""
    modes = {"grad": torch.enable_grad, "no_grad": torch.no_grad}
    scope = modes.get(mode, torch.inference_mode)

    def run():
        compiled = framejit.compile(fn, backend=backend)
        for _ in range(3):
            with torch.inference_mode(mode == "inference_inputs"):
                x, w = torch.randn(3, 3), torch.randn(3, 3)
            if mode == "grad":
                x.requires_grad_()
            with scope():
                got, want = compiled(x, w), fn(x, w)
            for a, b in zip(got, want, strict=True):
                assert_same(a, b)
                assert a.is_inference() == b.is_inference()
                assert a.requires_grad == b.requires_grad
        [entry] = framejit.inspect(compiled)
        assert not entry.breaks
        return entry.fallback_reason

    framejit.reset()
    reason = run()
    framejit.reset()
    _C.distrust_operators()
    assert run() == reason
    framejit.reset()


WRITES = {
    "mul.Tensor": lambda x, y: x.mul_(y),
    "mul.Scalar": lambda x, y: x.mul_(2.5),
    "add.Tensor": lambda x, y: x.add_(y),
    "sub.Tensor": lambda x, y: x.sub_(y, alpha=2),
    "div.Tensor": lambda x, y: x.div_(y),
    "pow.Tensor_Scalar": lambda x, y: x.pow_(2.5),
    "remainder.Tensor": lambda x, y: x.remainder_(y),
    "maximum": lambda x, y: torch.maximum(x, y, out=x),
    "floor_divide": lambda x, y: x.floor_divide_(y),
    "pow.Tensor_Tensor": lambda x, y: x.pow_(y),
    "float_power.Tensor_Tensor": lambda x, y: x.float_power_(y),
    "ldexp.Tensor": lambda x, y: x.ldexp_(y),
    "clamp_min": lambda x, y: x.clamp_min_(1.5),
    "bitwise_and.Tensor": lambda x, y: x.bitwise_and_(y),
    "eq.Tensor": lambda x, y: x.eq_(y),
    "exp": lambda x, y: torch.exp(y, out=x),
    "sum": lambda x, y: torch.sum(y, 0, out=x),
    "mm": lambda x, y: torch.mm(y, y, out=x),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WRITES)
def test_what_a_distrusted_operator_writes_to_refuses_as_eager_does(name, backend):
    """With every pair of types: 2.5 is not written to an int."""
    write = WRITES[name]

    def attempt(fn, x, y):
        try:
            return fn(x, y), x
        except (RuntimeError, NotImplementedError) as error:
            return type(error), str(error), x

    types = (torch.int32, torch.float32, torch.float64, torch.bool, torch.complex64)
    for a, b in itertools.product(types, types):
        framejit.reset()
        _C.distrust_operators({name})
        assert "rehearsal" in {row["trust"] for row in _C.operators()}
        compiled = framejit.compile(lambda x, y: write(x, y), backend=backend)
        for _ in range(2):
            args = [torch.ones(3, 3).to(t) for t in (a, b)]
            want = attempt(write, *(t.clone() for t in args))
            got = attempt(compiled, *args)
            assert len(got) == len(want), (a, b, got, want)
            for mine, eagers in zip(got, want, strict=True):
                if isinstance(mine, torch.Tensor):
                    assert mine.dtype == eagers.dtype
                    torch.testing.assert_close(mine, eagers)
                else:
                    assert mine == eagers
    framejit.reset()
