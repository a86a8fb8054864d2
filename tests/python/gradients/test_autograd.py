"""Gradients: what requires them, where they flow, and how often."""

import pytest
import torch
import torch.nn.functional as F

import framejit
from differential import BACKENDS, leaf, program


def leaves(*flags):
    def make():
        return tuple(torch.randn(3, 4, requires_grad=flag) for flag in flags)

    return make


def body(x, y, z):
    a = (x * y).sin()
    return a + z, (a @ z.t()).sum(), y * 2


@pytest.mark.parametrize(
    "flags",
    [(a, b, c) for a in (True, False) for b in (True, False) for c in (True, False)],
)
def test_every_combination(flags):
    program(leaves(*flags))(body)()


@program(leaves(True, True))
def test_some_outputs_without_grad(x, y):
    return x * 2, y.detach() * 3, (x > 0), x.argmax(), x.detach(), torch.ones(2)


@program(leaves(True, True))
def test_detach_cuts(x, y):
    a = x * y
    return a.detach() * x + a, (a * 2).detach()


@program(leaves(True, True))
def test_no_grad_inside(x, y):
    with torch.no_grad():
        scale = x.abs().max()
    return x / scale + y, scale


@program(leaves(True, False))
def test_enable_grad_inside(x, y):
    with torch.no_grad():
        a = x * 2
        with torch.enable_grad():
            b = x * 3
        c = b * 2
    return a, b, c, b * y


@program(leaves(True, False))
def test_set_grad_enabled(x, y):
    with torch.set_grad_enabled(False):
        a = x * 2
    with torch.set_grad_enabled(True):
        b = x * 3
    return a, b, y * b


@program(leaves(True))
def test_decorated_no_grad(x):
    @torch.no_grad()
    def frozen(v):
        return v * 2

    return frozen(x) + x


@program(leaves(True, True))
def test_double_use(x, y):
    a = x * y
    b = a + a * a
    return a, b, b + a, x


@program(leaves(True), graphs=None)
def test_output_is_input(x):
    return x, x * 2, x.view(-1)


@program(leaf)
def test_intermediate_used_everywhere(x):
    ys = [x]
    for _ in range(5):
        ys.append(ys[-1].sin() * ys[0])
    return ys


@program(leaves(True, True))
def test_reductions_and_norms(x, y):
    return (
        F.layer_norm(x, (4,)),
        x.softmax(0),
        (x - y).norm(),
        x.std(),
        x.max(),
        F.log_softmax(y, 1)[0],
    )


@program(leaves(True, True))
def test_indexing(x, y):
    return (
        x[0] * y[:, 0].sum(),
        x[[0, 0, 1]],
        x.gather(1, torch.tensor([[0], [1], [1]])),
        torch.where(x > 0, x, y),
    )


@program(leaves(True, True))
def test_broadcasting(x, y):
    return x + y[0], x * y[:, :1], x.sum(0) + y, (x[:, None] * y).sum(1)


@program(leaves(True))
def test_non_differentiable_points(x):
    return x.relu(), x.abs(), x.clamp(min=0), x.round(), x.sign(), x.floor() * x


@program(
    lambda: (
        torch.randn(3, dtype=torch.double, requires_grad=True),
        torch.randn(3, requires_grad=True),
    )
)
def test_mixed_precision(d, f):
    return d * f, f.double() + d, d.float() * f, f.half().float()


def training_setup():
    torch.manual_seed(1)
    return torch.randn(3, 4, requires_grad=True), torch.randn(3, 4)


def simple(x, y):
    a = (x * y).sin()
    return a.exp() * x


def both(backend, scenario, fn=simple):
    """Runs a scenario with the original and the compiled function."""
    outcomes = []
    compiled = framejit.compile(fn, backend=backend)
    for call in (fn, compiled, compiled):
        x, y = training_setup()
        try:
            outcomes.append(scenario(call, x, y))
        except Exception as error:
            outcomes.append((type(error), str(error)))
    for other in outcomes[1:]:
        if isinstance(outcomes[0], tuple) and isinstance(outcomes[0][0], type):
            assert outcomes[0] == other
        else:
            torch.testing.assert_close(other, outcomes[0])
    return outcomes


def backward_twice(f, x, y):
    out = f(x, y).sum()
    out.backward()
    out.backward()


def retain_graph(f, x, y):
    out = f(x, y).sum()
    out.backward(retain_graph=True)
    out.backward()
    return x.grad


def accumulate(f, x, y):
    for i in range(3):
        (f(x, y) * i).sum().backward()
    return x.grad


def two_calls_one_backward(f, x, y):
    (f(x, y) * f(y, x)).sum().backward()
    return x.grad


def chained_calls(f, x, y):
    f(f(x, y), y).sum().backward()
    return x.grad


def hook_on_output(f, x, y):
    out = f(x, y)
    seen = []
    out.register_hook(lambda g: seen.append(g) or g * 2)
    out.sum().backward()
    return [x.grad, *seen]


def retain_grad(f, x, y):
    z = x * 2
    z.retain_grad()
    out = f(z, y)
    out.retain_grad()
    out.sum().backward()
    return [z.grad, out.grad, x.grad]


def strided_gradient(f, x, y):
    out = f(x, y)
    out.backward(torch.randn(4, 3, generator=torch.Generator().manual_seed(0)).t())
    return x.grad


def expanded_gradient(f, x, y):
    f(x, y).backward(torch.ones(1).expand(3, 4))
    return x.grad


def partial_gradient(f, x, y):
    return torch.autograd.grad(f(x, y)[0, 1], x)


def input_changed_before_backward(f, x, y):
    out = f(x, y)
    y.add_(1)
    out.sum().backward()
    return x.grad


def output_changed_before_backward(f, x, y):
    out = f(x, y)
    out.mul_(2)
    out.sum().backward()
    return x.grad


def create_graph(f, x, y):
    (g,) = torch.autograd.grad(f(x, y).sum(), x, create_graph=True)
    return g


def in_no_grad(f, x, y):
    with torch.no_grad():
        a = f(x, y)
    b = f(x, y)
    with torch.inference_mode():
        c = f(x, y)
    return [
        a,
        b,
        c.clone(),
        torch.tensor([a.requires_grad, b.requires_grad, c.requires_grad]),
    ]


def non_leaf_input(f, x, y):
    z = x.sin()
    out = f(z, y) + z
    out.sum().backward()
    return x.grad


def unused_output(f, x, y):
    f(x, y)
    out = f(x, y)
    del x
    return out.sum()


def graph_freed_late(f, x, y):
    outs = [f(x, y) for _ in range(3)]
    for out in reversed(outs):
        out.sum().backward()
    return x.grad


def backward_in_thread(f, x, y):
    import threading

    out = f(x, y).sum()
    thread = threading.Thread(target=out.backward)
    thread.start()
    thread.join()
    return x.grad


def is_leaf_and_version(f, x, y):
    out = f(x, y)
    return torch.tensor(
        [out.is_leaf, out.requires_grad, out.grad_fn is not None, out._version]
    )


def anomaly(f, x, y):
    with torch.autograd.detect_anomaly(check_nan=True):
        f(x, y).sum().backward()
    return x.grad


def saved_tensor_hooks(f, x, y):
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t * 1):
        out = f(x, y)
    out.sum().backward()
    return x.grad


SCENARIOS = [
    retain_graph, accumulate, two_calls_one_backward, chained_calls, hook_on_output, retain_grad,
    strided_gradient, expanded_gradient, partial_gradient, input_changed_before_backward,
    output_changed_before_backward, in_no_grad, non_leaf_input, unused_output, graph_freed_late,
    backward_in_thread, is_leaf_and_version, anomaly, saved_tensor_hooks,
]  # fmt: skip


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.filterwarnings("ignore:Anomaly Detection")
def test_scenario(scenario, backend):
    both(backend, scenario)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_twice_raises(backend):
    outcomes = both(backend, backward_twice)
    assert outcomes[0][0] is RuntimeError


@pytest.mark.parametrize("backend", BACKENDS)
def test_second_order(backend):
    def second(f):
        x, y = training_setup()
        (g,) = torch.autograd.grad(f(x, y).sum(), x, create_graph=True)
        return g, torch.autograd.grad(g.square().sum(), x)[0]

    expected = second(simple)
    compiled = framejit.compile(simple, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(second(compiled), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_backward_inside(backend):
    def step(x, y):
        loss = (x * y).square().sum()
        loss.backward()
        return x.grad * 2

    compiled = framejit.compile(step, backend=backend)
    for call in (step, compiled, compiled):
        x, y = training_setup()
        out = call(x, y)
        torch.testing.assert_close(out, 4 * x * y * y)


@pytest.mark.parametrize("backend", BACKENDS)
def test_grad_call_inside(backend):
    def gradient(x, y):
        return torch.autograd.grad((x * y).sin().sum(), x)[0] * 2

    compiled = framejit.compile(gradient, backend=backend)
    for _ in range(2):
        x, y = training_setup()
        torch.testing.assert_close(compiled(x, y), gradient(x, y))


@pytest.mark.parametrize("backend", BACKENDS)
def test_custom_function(backend):
    class Clip(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x.exp()

        @staticmethod
        def backward(ctx, g):
            return g * 10

    def f(x, y):
        return Clip.apply(x * 2) + y

    both(backend, accumulate, f)


@pytest.mark.parametrize("backend", BACKENDS)
def test_checkpoint(backend):
    from torch.utils.checkpoint import checkpoint

    def f(x, y):
        return checkpoint(lambda a: (a * y).sin(), x, use_reentrant=False) + 1

    both(backend, accumulate, f)


@pytest.mark.parametrize("backend", BACKENDS)
def test_loop_of_steps_across_sizes(backend):
    compiled = framejit.compile(simple, backend=backend)
    for n in (2, 3, 5, 7):
        results = []
        for f in (simple, compiled):
            torch.manual_seed(n)
            x, y = (
                torch.randn(n, 4, requires_grad=True),
                torch.randn(n, 4, requires_grad=True),
            )
            out = f(x, y)
            out.square().mean().backward()
            results.append((out, x.grad, y.grad))
        torch.testing.assert_close(results[1], results[0])


@program(leaf, graphs=None, breaks=None)
def test_grad_across_break(x):
    y = x.sin()
    framejit.graph_break()
    z = y * x
    framejit.graph_break()
    return z + y, y


# The gradient of an output whose elements share memory, or leave gaps, cannot
# be brought into the strides of the output.
def _summed(x):
    return x.norm(dim=0).unsqueeze(1).expand(4, 4)


def _stepped(x):
    return (x.sin() * 2)[::2, 1:3].cos().unfold(0, 2, 1)


def _row(x):
    return x.sum(0, keepdim=True).expand(5, -1), x.exp().diagonal()


def _permuted(x):
    return x.cos().t(), x.sin().unsqueeze(0).permute(2, 0, 1)


@pytest.mark.parametrize("fn", (_summed, _stepped, _row, _permuted))
def test_gradients_of_any_layout(fn):
    for backend in BACKENDS:
        framejit.reset()
        compiled = framejit.compile(fn, backend=backend)
        for round in range(3):
            x = torch.randn(4, 4, requires_grad=True)
            a, b = fn(x), compiled(x)
            outputs = zip(a, b) if isinstance(a, tuple) else [(a, b)]
            for y, z in outputs:
                assert y.shape == z.shape
                for make in (torch.ones_like, torch.randn_like):
                    torch.manual_seed(round)
                    tangent = make(torch.empty(y.shape))
                    if round == 1:
                        tangent = tangent.sum(0, keepdim=True).expand_as(tangent)
                    (p,) = torch.autograd.grad(y, x, tangent, retain_graph=True)
                    (q,) = torch.autograd.grad(z, x, tangent, retain_graph=True)
                    torch.testing.assert_close(p, q)
