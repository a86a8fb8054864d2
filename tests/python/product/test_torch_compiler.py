"""torch.compiler's functions in and around functions that FrameJIT compiles."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
import torch._dynamo  # else a call imports it, which is a break
from torch import nn

import framejit


def walk(compiled):
    return [e for entry in framejit.inspect(compiled) for e in entry.walk()]


def breaks(compiled):
    return [b.id for e in walk(compiled) for b in e.breaks]


def run(function, *args, calls=2, **options):
    compiled = framejit.compile(function, **options)
    for _ in range(calls):
        torch.testing.assert_close(compiled(*args), function(*args))
    return compiled


x = torch.linspace(-1, 1, 5)

# ---- graph_break


def break_between(x):
    y = x + 1
    torch._dynamo.graph_break()
    return y * 2


def break_with_words(x):
    y = x + 1
    torch._dynamo.graph_break(msg="because")
    return y * 2


def break_in_a_callee(x):
    return break_between(x.cos()) + 1


def break_in_a_loop(x):
    for _ in range(3):
        x = x * 2
        torch._dynamo.graph_break("again")
    return x


@pytest.mark.parametrize(
    "function", [break_between, break_with_words, break_in_a_callee, break_in_a_loop]
)
def test_graph_break_is_one(function):
    compiled = run(function, x)
    assert set(breaks(compiled)) == {"FJ206"}
    assert sum(e.operations > 0 for e in walk(compiled)) >= 2
    with pytest.raises(framejit.GraphBreakError, match="FJ206"):
        framejit.compile(function, fullgraph=True)(x)


def test_its_words_are_shown():
    compiled = run(break_with_words, x)
    assert "because" in str(walk(compiled)[0].breaks[0])


def test_wrong_arguments_raise_as_they_do():
    def wrong(x):
        try:
            torch._dynamo.graph_break(1, 2)
        except TypeError as error:
            return x + len(str(error))

    run(wrong, x)


def test_breaks_that_torch_needs_for_its_own_compiler_are_none():
    """A differentiable optimizer's step asks for two."""

    def step(weight, grad):
        optimizer = torch.optim.SGD([weight], lr=0.1, differentiable=True)
        weight.grad = grad
        optimizer.step()
        return weight + 0

    weights = [torch.ones(3) for _ in range(2)]
    compiled = framejit.compile(step)
    for _ in range(2):
        a, b = (f(w, torch.ones(3)) for f, w in zip((compiled, step), weights))
        torch.testing.assert_close(a, b)
    assert "FJ206" not in breaks(compiled)


# ---- allow_in_graph


def looked_into(x):
    return x.sin() + 1


def test_allow_in_graph_is_one_node():
    def opaque(x, scale):
        return (x.sin() + 1) * scale

    def f(x):
        return opaque(x * 2, 3.0) - 1

    assert walk(run(f, x, backend="eager"))[0].operations == 5
    torch.compiler.allow_in_graph(opaque)
    framejit.reset()
    for backend in ("eager", "aot_eager", "native"):
        compiled = run(f, x, backend=backend, fullgraph=True)
        assert walk(compiled)[0].operations == 3
    leaf = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(compiled(leaf).sum(), leaf)
    torch.testing.assert_close(gradient, (leaf * 2).cos() * 6)


class Config:
    scale = 2


def size_of(x):
    return x.size(0) * 2


def is_matrix(x):
    return x.dim() == 2


def with_object(x, config):
    return x * config.scale


def of_nothing():
    return torch.ones(1)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, config: x * size_of(x),
        lambda x, config: x * 2 if is_matrix(x) else x - 1,
        lambda x, config: with_object(x, config) + 1,
        lambda x, config: x + of_nothing(),
    ],
)
def test_what_is_allowed_may_give_and_take_anything(function):
    """What is no function of tensors and constants breaks, or is guarded."""
    for allowed in (size_of, is_matrix, with_object, of_nothing):
        torch.compiler.allow_in_graph(allowed)
    compiled, config = framejit.compile(function), Config()
    for scale, shape in enumerate([(3,), (4,), (5,), (3, 1), (3,)]):
        config.scale = scale
        args = torch.randn(shape), config
        torch.testing.assert_close(compiled(*args), function(*args))


def test_other_functions_stay_looked_into():
    assert walk(run(looked_into, x, backend="eager"))[0].operations == 2
    traced = torch._dynamo.nonstrict_trace(looked_into)
    compiled = run(lambda x: traced(x) * 2, x, backend="eager")
    assert walk(compiled)[0].operations == 3


# ---- disable, assume_constant_result, is_compiling, marks


@pytest.mark.parametrize("recursive", [True, False])
def test_disable_leaves_the_function_alone(recursive):
    seen = []

    @torch.compiler.disable(recursive=recursive)
    def opaque(x):
        seen.append(torch.compiler.is_compiling())
        return x.cos()

    compiled = run(lambda x: opaque(x + 1) * 2, x)
    assert seen == [False] * 4
    assert breaks(compiled) == ["FJ205"]


def test_a_disabled_method():
    class Holder(nn.Module):
        @torch.compiler.disable
        def opaque(self, x):
            return x.cos()

        def forward(self, x):
            return self.opaque(x + 1) * 2

    assert breaks(run(Holder(), x)) == ["FJ205"]


def test_disable_made_inside():
    def f(x):
        @torch.compiler.disable
        def opaque(x):
            return x * 2

        return opaque(x) + 1

    run(f, x)


def test_what_is_assumed_constant_is_asked_once():
    calls = []

    @torch.compiler.assume_constant_result
    def number():
        calls.append(1)
        return 5

    compiled = framejit.compile(lambda x: x + number())
    for _ in range(3):
        torch.testing.assert_close(compiled(x), x + 5)
    assert len(calls) == 1 and not breaks(compiled)


def test_marks_made_inside():
    def mark(x):
        torch._dynamo.mark_dynamic(x, 0)
        return x + 1

    def mark_static(x):
        torch._dynamo.mark_static(x)
        return x * 2

    def maybe(x):
        y = x + 1
        torch._dynamo.maybe_mark_dynamic(y, 0)
        return y * 2

    for function in (mark, mark_static, maybe):
        run(function, torch.ones(4))


def test_marks_made_outside():
    def f(x):
        return x * 2

    compiled = framejit.compile(f)
    for n in (4, 5, 6):
        tensor = torch.ones(n)
        torch._dynamo.mark_dynamic(tensor, 0)
        torch.testing.assert_close(compiled(tensor), f(tensor))
    assert len(framejit.inspect(compiled)) == 1


# ---- set_stance


@pytest.fixture
def default_stance():
    yield
    torch.compiler.set_stance("default")
    framejit.set_stance("default")


def tagged(x, tag):
    return x + len(tag)


def hits(compiled):
    return sum(e.hits for e in framejit.inspect(compiled))


def test_force_eager(default_stance):
    compiled = framejit.compile(tagged)
    compiled(x, "a")
    with torch.compiler.set_stance("force_eager"):
        compiled(x, "a"), compiled(x, "bb")
        assert hits(compiled) == 1
    compiled(x, "a")
    assert hits(compiled) == 2 and len(framejit.inspect(compiled)) == 1

    @torch.compiler.set_stance("force_eager")
    def eager(x):
        return compiled(x, "a")

    torch.testing.assert_close(eager(x), x + 1)
    assert hits(compiled) == 2


def test_on_recompile(default_stance):
    compiled = framejit.compile(tagged)
    compiled(x, "a")
    torch.compiler.set_stance("eager_on_recompile")
    torch.testing.assert_close(compiled(x, "bb"), x + 2)
    torch.testing.assert_close(compiled(x, "a"), x + 1)
    assert hits(compiled) == 2 and len(framejit.inspect(compiled)) == 1
    torch.compiler.set_stance("fail_on_recompile")
    compiled(x, "a")
    with pytest.raises(RuntimeError, match="fail_on_recompile"):
        compiled(x, "bb")
    torch.compiler.set_stance("default")
    torch.testing.assert_close(compiled(x, "bb"), x + 2)
    assert len(framejit.inspect(compiled)) == 2


def test_stances_about_dynamos_compile_times_change_nothing(default_stance):
    for stance in ("eager_then_compile", "aot_eager_then_compile"):
        torch.compiler.set_stance(stance)
        framejit.reset()
        assert len(framejit.inspect(run(tagged, x, "a"))) == 1
    torch.compiler.set_stance("default", force_backend="eager")
    assert len(framejit.inspect(run(tagged, x, "a"))) == 1


def test_the_stricter_stance_is_in_force(default_stance):
    compiled = framejit.compile(tagged)
    compiled(x, "a")
    with framejit.set_stance("fail_on_recompile"):
        with torch.compiler.set_stance("eager_on_recompile"):
            with pytest.raises(framejit.RecompileError):
                compiled(x, "bb")
            assert framejit.get_stance() == "fail_on_recompile"
        with torch.compiler.set_stance("force_eager"):
            torch.testing.assert_close(compiled(x, "bb"), x + 2)
    with torch.compiler.set_stance("force_eager"):
        with framejit.set_stance("default"):
            compiled(x, "a")
    assert hits(compiled) == 1 and len(framejit.inspect(compiled)) == 1


def test_a_stance_set_inside(default_stance):
    def f(x):
        with torch.compiler.set_stance("force_eager"):
            y = x + 1
        return y * 2

    run(f, x)
    assert torch._dynamo.eval_frame._stance.stance == "default"
    assert len(framejit.inspect(run(tagged, x, "a"))) == 1


def test_a_stance_set_before_framejit_is_imported():
    program = (
        "import torch\n"
        "torch.compiler.set_stance('force_eager')\n"
        "import framejit\n"
        "f = framejit.compile(lambda x: x + 1)\n"
        "f(torch.ones(2))\n"
        "before = framejit.counters()['compiles']\n"
        "torch.compiler.set_stance('default')\n"
        "f(torch.ones(2))\n"
        "print(before, framejit.counters()['compiles'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "0 1\n", done.stderr
