"""Gradients a program defines itself: autograd.Function, hooks, checkpoint."""

import functools

import pytest
import torch
from torch.autograd.function import once_differentiable
from torch.utils.checkpoint import checkpoint

import framejit
from differential import BACKENDS, assert_same, check, program


def leaves(count=1, grad=True):
    def make():
        return tuple(torch.randn(3, 4, requires_grad=grad) for _ in range(count))

    return make


class Scale(torch.autograd.Function):
    """A gradient that is not the one of the operations."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.factor * 10, None


class Cube(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x * x

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * 3 * x * x


class SavesOutput(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        y = x.exp()
        ctx.save_for_backward(y)
        return y

    @staticmethod
    def backward(ctx, grad):
        (y,) = ctx.saved_tensors
        return grad * y * 2


class TwoOutputs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        ctx.shape = x.shape
        return x * y, (x + y).sum()

    @staticmethod
    def backward(ctx, first, second):
        x, y = ctx.saved_tensors
        return first * y + second.expand(ctx.shape), first * x - second


class Mask(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        mask = x > 0
        ctx.mark_non_differentiable(mask)
        ctx.save_for_backward(mask)
        return x * mask, mask

    @staticmethod
    def backward(ctx, grad, _):
        (mask,) = ctx.saved_tensors
        return grad * mask * 3


class Needs(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w.t()

    @staticmethod
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = grad @ w * 2
        if ctx.needs_input_grad[1]:
            gw = grad.t() @ x * 3
        return gx, gw


class Setup(torch.autograd.Function):
    @staticmethod
    def forward(x, power=2):
        return x**power

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, power = inputs
        ctx.save_for_backward(x)
        ctx.power = power

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * ctx.power * x ** (ctx.power - 1) * 7, None


class Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * 5


class StraightThrough(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, grad):
        return grad


class Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, alpha):
        ctx.alpha = alpha
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return grad.neg() * ctx.alpha, None


@program(leaves())
def test_scale(x):
    return Scale.apply(x, 3.0) + x


@program(leaves())
def test_saved_input(x):
    return Cube.apply(x * 2).sum()


@program(leaves())
def test_saved_output(x):
    return SavesOutput.apply(x) * 2


@program(leaves(2))
def test_two_outputs(x, y):
    a, b = TwoOutputs.apply(x, y)
    return a * b, a


@program(leaves(2))
def test_one_of_two_outputs_used(x, y):
    a, _ = TwoOutputs.apply(x, y)
    return a.sin()


@program(leaves())
def test_non_differentiable(x):
    y, mask = Mask.apply(x)
    return y, mask, y * mask


@pytest.mark.parametrize("flags", [(True, True), (True, False), (False, True)])
def test_needs_input_grad(flags):
    def make():
        return tuple(torch.randn(4, 4, requires_grad=flag) for flag in flags)

    def fn(x, w):
        return Needs.apply(x, w) * 2

    check(fn, make, graphs=1, breaks=0)


@program(leaves(2, grad=False))
def test_nothing_requires_grad(x, w):
    return Needs.apply(x, w), Cube.apply(x)


@program(leaves())
def test_under_no_grad(x):
    with torch.no_grad():
        y = Cube.apply(x)
    return y, Cube.apply(x)


@program(leaves())
def test_setup_context(x):
    return Setup.apply(x, 3), Setup.apply(x)


@program(leaves())
def test_once_differentiable(x):
    return Once.apply(x) * x


@program(leaves())
def test_straight_through(x):
    return StraightThrough.apply(x * 4) * x


@program(leaves())
def test_gradient_reversal(x):
    return Reverse.apply(x * 2, 0.5) * 3


@program(leaves())
def test_chain_of_functions(x):
    for _ in range(3):
        x = Scale.apply(SavesOutput.apply(x * 0.1), 2.0)
    return x


@program(leaves())
def test_function_inside_function(x):
    class_result = Cube.apply(Cube.apply(x))
    return class_result.mean()


class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return Needs.apply(x, self.weight).relu()


@program(lambda: (Layer(), torch.randn(3, 4, requires_grad=True)))
def test_in_a_module(layer, x):
    return layer(x) + 1


GAIN = 2.0


class ReadsGlobal(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        return grad * GAIN


@pytest.mark.parametrize("backend", BACKENDS)
def test_global_of_the_backward_is_guarded(backend):
    global GAIN
    compiled = framejit.compile(lambda x: ReadsGlobal.apply(x), backend=backend)
    try:
        for gain in (2.0, 5.0, 2.0):
            GAIN = gain
            x = torch.randn(4, requires_grad=True)
            compiled(x).sum().backward()
            assert x.grad.tolist() == [gain] * 4
    finally:
        GAIN = 2.0


CALLS = []


class HasEffect(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, grad):
        CALLS.append(1)
        return grad * 2


@pytest.mark.parametrize("backend", BACKENDS)
def test_effect_in_the_backward(backend):
    """It happens when the backward runs, and once."""
    CALLS.clear()
    compiled = framejit.compile(lambda x: HasEffect.apply(x + 1) * 2, backend=backend)
    for number in (1, 2):
        x = torch.randn(4, requires_grad=True)
        y = compiled(x)
        assert len(CALLS) == number - 1
        y.sum().backward()
        assert len(CALLS) == number
        assert x.grad.tolist() == [4.0] * 4


@program(leaves(), graphs=None, breaks=None)
def test_break_inside_forward(x):
    class Breaks(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            framejit.graph_break()
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 7

    return Breaks.apply(x * 2) * 3


def break_before(x):
    y = Cube.apply(x)
    framejit.graph_break()
    return Cube.apply(y) + y


def test_break_between_functions():
    check(break_before, leaves(), graphs=2, breaks=1)


def test_double_backward_at_torch_level():
    def second(fn):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        (g,) = torch.autograd.grad(fn(x).sum(), x, create_graph=True)
        (h,) = torch.autograd.grad(g.sum(), x)
        return g.tolist(), h.tolist()

    def fn(x):
        return Cube.apply(x)

    assert second(framejit.compile(fn, backend="eager")) == second(fn)


def test_once_differentiable_twice_at_torch_level():
    def fn(x):
        return Once.apply(x)

    for run in (fn, framejit.compile(fn, backend="eager")):
        x = torch.tensor([1.0, 2.0], requires_grad=True)
        (g,) = torch.autograd.grad((run(x) ** 2).sum(), x, create_graph=True)
        with pytest.raises(RuntimeError, match="once_differentiable"):
            g.sum().backward()


def test_saved_tensor_changed_in_place():
    def fn(x):
        return Cube.apply(x * 1)

    def fails(run):
        x = torch.ones(3, requires_grad=True)
        base = x * 1
        y = run(base)
        with torch.no_grad():
            base.add_(1)
        return y

    for backend in BACKENDS:
        compiled = framejit.compile(lambda x: Cube.apply(x), backend=backend)
        for run in (Cube.apply, compiled):
            y = fails(run)
            with pytest.raises(RuntimeError, match="modified by an inplace"):
                y.sum().backward()


def test_custom_backend():
    def fn(x):
        return Cube.apply(x) + Scale.apply(x, 2.0)

    check(fn, leaves(), graphs=1, breaks=0, backends=(lambda module, inputs: module,))


def test_dynamic_shapes():
    compiled = framejit.compile(lambda x, y: TwoOutputs.apply(x, y), dynamic=True)
    for rows in (3, 5, 7):
        pair = [torch.randn(rows, 4, requires_grad=True) for _ in range(2)]
        copy = [t.detach().clone().requires_grad_() for t in pair]
        for run, args in ((compiled, pair), (TwoOutputs.apply, copy)):
            a, b = run(*args)
            (a.sum() + b).backward()
        for got, want in zip(pair, copy):
            torch.testing.assert_close(got.grad, want.grad)


# ---- hooks on tensors


@program(leaves())
def test_hook_changes_the_gradient(x):
    y = x * 2
    y.register_hook(lambda grad: grad * 10)
    return y.sin() + y


@program(leaves())
def test_hook_that_returns_nothing(x):
    y = x * 2
    y.register_hook(lambda grad: None)
    return y.sin()


@program(leaves(2))
def test_hook_with_a_captured_tensor(x, y):
    scale = y.detach().exp()
    z = x * y
    z.register_hook(lambda grad: grad * scale)
    return z.sum()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", ("method", "closure", "default", "instance"))
def test_hook_with_an_effect(backend, kind):
    """It happens when the backward runs, not when the hook is registered."""

    class Seen(list):
        def note(self, grad):
            self.append(grad)

    def fn(x):
        seen = Seen() if kind == "instance" else []
        y = x * 2
        if kind == "method":
            y.register_hook(seen.append)
        elif kind == "closure":
            y.register_hook(lambda grad: seen.append(1))
        elif kind == "default":
            y.register_hook(lambda grad, log=seen: log.append(1))
        else:
            y.register_hook(seen.note)
        return y * 3, seen

    compiled = framejit.compile(fn, backend=backend)
    for run in (fn, compiled, compiled):
        x = torch.ones(3, requires_grad=True)
        y, seen = run(x)
        assert len(seen) == 0
        y.sum().backward()
        assert len(seen) == 1


@program(leaves(), graphs=None, breaks=None)
def test_hook_handle_escapes(x):
    y = x * 2
    handle = y.register_hook(lambda grad: grad * 10)
    handle.remove()
    return y * 3


@pytest.mark.parametrize("backend", BACKENDS)
def test_retain_grad(backend):
    def fn(x):
        y = x * 2
        y.retain_grad()
        return y, y.sin()

    compiled = framejit.compile(fn, backend=backend)
    for _ in range(2):
        x = torch.ones(3, requires_grad=True)
        found = []
        for run in (fn, compiled):
            y, z = run(x)
            z.sum().backward()
            found.append(y.grad)
        torch.testing.assert_close(*found)


# ---- checkpoint


def block(x, w):
    return torch.nn.functional.dropout(torch.tanh(x @ w.t()), 0.5)


@program(leaves(2), graphs=None, breaks=1)
def test_checkpoint(x, w):
    return checkpoint(block, x, w, use_reentrant=False) * 2


@program(leaves(2), graphs=None, breaks=1)
def test_checkpoint_nested(x, w):
    def outer(a, b):
        return checkpoint(block, a, b, use_reentrant=False).sin() @ b

    return checkpoint(outer, x, w, use_reentrant=False)


@program(leaves(2), graphs=None, breaks=None, backward=False)
def test_checkpoint_reentrant(x, w):
    return checkpoint(block, x, w, use_reentrant=True) * 2


@program(
    lambda: (Layer(), torch.randn(3, 4, requires_grad=True)), graphs=None, breaks=1
)
def test_checkpoint_of_a_module(layer, x):
    return checkpoint(layer, x, use_reentrant=False) + x


class Normed(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(4)
        self.calls = 0

    def forward(self, x):
        return self.norm(x)


class Counting(Normed):
    def forward(self, x):
        self.calls += 1
        return x.sin()


def normed_case(kind, train=True):
    return lambda: (kind().train(train), torch.randn(3, 4, requires_grad=True))


def run_checkpointed(module, x):
    return checkpoint(module, x, use_reentrant=False) * 2


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [Normed, Counting])
def test_checkpoint_runs_effects_again(kind, backend):
    """As eager does: once in the forward, once in the backward."""
    for train in (True, False):
        states = []
        for compiled in (False, True):
            torch.manual_seed(0)
            module, x = normed_case(kind, train)()
            fn = run_checkpointed
            if compiled:
                fn = framejit.compile(fn, backend=backend)
            y = fn(module, x)
            before = int(module.norm.num_batches_tracked), module.calls
            y.sum().backward()
            after = int(module.norm.num_batches_tracked), module.calls
            states.append((before, after, y.detach(), x.grad, module.state_dict()))
        assert_same(states[0], states[1], "state", exact=backend == "eager")


@program(normed_case(Normed, train=False), graphs=None, breaks=1)
def test_checkpoint_without_effects(module, x):
    return checkpoint(module, x, use_reentrant=False) * 2


@program(normed_case(Normed))
def test_checkpoint_without_gradients(module, x):
    with torch.no_grad():
        return checkpoint(module, x, use_reentrant=False) * 2


@program(leaves(2), graphs=None, breaks=1)
def test_checkpoint_of_a_partial(x, w):
    fn = functools.partial(block, w=w)
    return checkpoint(fn, x, use_reentrant=False)


@program(leaves(2), graphs=None, breaks=1)
def test_checkpoint_writes_to_its_own(x, w):
    def own(a):
        y = a.sin()
        y.mul_(2)
        return torch.nn.functional.relu(y * w, inplace=True)

    return checkpoint(own, x, use_reentrant=False)


# ---- under autocast


class MixedMatmul(torch.autograd.Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu")
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, grad):
        x, w = ctx.saved_tensors
        return grad @ w.t(), x.t() @ grad


def squares():
    return tuple(torch.randn(4, 4, requires_grad=True) for _ in range(2))


@pytest.mark.parametrize("enabled", (True, False))
def test_custom_fwd_and_bwd(enabled):
    def fn(x, w):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            y = MixedMatmul.apply(x, w)
        return y.float() * 2

    check(fn, squares, graphs=1, breaks=0)


class CastsInputs(MixedMatmul):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return x @ w


@program(squares, graphs=None, breaks=None)
def test_custom_fwd_that_casts(x, w):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        return CastsInputs.apply(x @ w, w)


class KeepsAttribute(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.x = x
        return x * x

    @staticmethod
    def backward(ctx, grad):
        return grad * 2 * ctx.x


def test_attribute_of_ctx_is_not_watched():
    """Unlike a saved tensor: eager uses what the tensor holds by then."""
    for run in (
        KeepsAttribute.apply,
        framejit.compile(KeepsAttribute.apply, backend="eager"),
    ):
        x = torch.ones(3, requires_grad=True)
        base = x * 1
        y = run(base)
        with torch.no_grad():
            base.add_(1)
        y.sum().backward()
        assert x.grad.tolist() == [4.0] * 3


@program(lambda: (torch.randn(3, requires_grad=True),), breaks=0)
def test_class_made_inside(x):
    class Tripled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, a):
            ctx.save_for_backward(a)
            return a * a

        @staticmethod
        def backward(ctx, grad):
            return grad * 3

    return Tripled.apply(x)


@pytest.mark.parametrize("within", [False, True])
def test_its_name_in_errors(within: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A gradient of a wrong shape is eager's error, with the function's own name."""
    monkeypatch.setenv("FRAMEJIT_STRICT", "0")

    class Scale(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x * w.sum()

        @staticmethod
        def backward(ctx, g):
            x, w = ctx.saved_tensors
            return g * w.sum(), (g * x).sum(0)

    def loss(x, w):
        found = Scale.apply(x, w).sum()
        if within:
            found.backward()
        return found

    def use(f):
        x = torch.randn(3, 4, requires_grad=True)
        w = torch.randn(5, 1, requires_grad=True)
        with pytest.raises(RuntimeError) as raised:
            found = f(x, w)
            found.backward()
        return str(raised.value)

    expected = use(loss)
    assert "Function ScaleBackward returned an invalid gradient" in expected
    compiled = framejit.compile(loss)
    for _ in range(2):
        assert use(compiled) == expected
