"""set_stance, marks on dimensions, framejit.testing, the pytest plugin."""

from __future__ import annotations

import pathlib
import threading

import pytest
import torch

import framejit
from framejit import testing

pytest_plugins = ["pytester"]
ROOT = pathlib.Path(__file__).parents[3]


def add(x, y=1):
    return x + y


def compiles() -> int:
    return framejit.counters()["compiles"]


def x(*size, **kwargs):
    return torch.zeros(*size, **kwargs)


@pytest.fixture(autouse=True)
def back_to_default():
    yield
    assert framejit.get_stance() == "default"
    framejit.set_stance("default")


# ---- set_stance


def test_force_eager():
    f = framejit.compile(add, backend="eager")
    with framejit.set_stance("force_eager"):
        assert framejit.get_stance() == "force_eager"
        f(x(3))
    assert compiles() == 0
    f(x(3))
    assert compiles() == 1
    with framejit.set_stance("force_eager"):
        f(x(3))
    assert framejit.inspect(f)[0].hits == 1


def test_eager_on_recompile():
    f = framejit.compile(add, backend="eager")
    with framejit.set_stance("eager_on_recompile"):
        assert torch.equal(f(x(3)), x(3) + 1)
    assert compiles() == 0  # the first compilation counts, as in torch
    f(x(3))
    with framejit.set_stance("eager_on_recompile"):
        assert torch.equal(f(x(4)), x(4) + 1)
        f(x(3))
    assert compiles() == 1
    assert framejit.inspect(f)[0].hits == 2
    f(x(4))
    assert compiles() == 2


def test_fail_on_recompile():
    ran = []

    def noted(x):
        ran.append(1)
        return x + 1

    f = framejit.compile(noted, backend="eager")
    with framejit.set_stance("fail_on_recompile"):
        with pytest.raises(framejit.RecompileError, match="no entry yet"):
            f(x(3))
    f(x(3))
    with framejit.set_stance("fail_on_recompile"):
        f(x(3))
        with pytest.raises(framejit.RecompileError) as caught:
            f(x(4))
    text = str(caught.value)
    assert "noted" in text and "x.size(0): expected 3, got 4" in text
    assert "mark_dynamic(x, 0)" in text
    assert len(ran) == 2 and compiles() == 1


def test_stance_as_function_decorator_and_nested():
    f = framejit.compile(add, backend="eager")
    framejit.set_stance("force_eager")
    f(x(3))
    framejit.set_stance("default")
    assert compiles() == 0

    @framejit.set_stance("force_eager")
    def eager(size):
        """Doc."""
        assert framejit.get_stance() == "force_eager"
        return f(x(size))

    assert framejit.get_stance() == "default" and eager.__doc__ == "Doc."
    for _ in range(2):
        eager(3)
    assert compiles() == 0 and framejit.get_stance() == "default"
    with framejit.set_stance("force_eager"):
        with framejit.set_stance("fail_on_recompile"):
            with pytest.raises(framejit.RecompileError):
                f(x(3))
        assert framejit.get_stance() == "force_eager"
        f(x(3))
    assert compiles() == 0


def test_stance_is_put_back_after_an_error():
    with pytest.raises(KeyError):
        with framejit.set_stance("force_eager"):
            raise KeyError
    assert framejit.get_stance() == "default"


def test_one_object_used_twice():
    f = framejit.compile(add, backend="eager")
    stance = framejit.set_stance("force_eager")
    framejit.set_stance("default")
    for _ in range(2):
        with stance:
            f(x(3))
        framejit.set_stance("default")
    assert compiles() == 0


def test_stance_holds_on_every_thread():
    f = framejit.compile(add, backend="eager")
    with framejit.set_stance("force_eager"):
        thread = threading.Thread(target=f, args=(x(3),))
        thread.start()
        thread.join()
    assert compiles() == 0


def test_stance_inside_a_compiled_function():
    @framejit.compile(backend="eager")
    def f(x):
        x = x + 1
        with framejit.set_stance("force_eager"):
            x = x * 2
        return x - 1

    for _ in range(3):
        assert torch.equal(f(x(3)), x(3) + 1)
    assert framejit.get_stance() == "default"


def test_unknown_stance():
    with pytest.raises(ValueError, match="unknown stance 'eager'"):
        framejit.set_stance("eager")


# ---- marks


def sizes(f):
    return [
        guard.split("sizes ")[1].split("]")[0] + "]"
        for entry in framejit.inspect(f)
        for guard in entry.guards
        if " sizes " in guard
    ]


def test_mark_dynamic():
    f = framejit.compile(add, backend="eager")
    a = x(3, 4)
    framejit.mark_dynamic(a, 0)
    f(a)
    assert sizes(f) == ["[s0, 4]"]
    f(x(7, 4))
    assert compiles() == 1
    f(x(7, 5))
    assert compiles() == 2


@pytest.mark.parametrize("dims", [[0, 1], (-1, -2)])
def test_mark_several_dims(dims):
    f = framejit.compile(add, backend="eager")
    a = x(3, 4)
    framejit.mark_dynamic(a, dims)
    f(a)
    f(x(8, 9))
    assert compiles() == 1


def test_marks_reach_attributes_and_containers():
    class Holder:
        pass

    def f(d, holder):
        return d["x"] + holder.y.sum()

    compiled = framejit.compile(f, backend="eager")
    holder = Holder()
    holder.y = x(5)
    d = {"x": x(3)}
    framejit.mark_dynamic(d["x"], 0)
    framejit.maybe_mark_dynamic(holder.y, 0)
    compiled(d, holder)
    holder.y = x(6)
    assert torch.equal(compiled({"x": x(9)}, holder), x(9))
    assert compiles() == 1


def test_bounds():
    f = framejit.compile(add, backend="eager")
    a = x(8)
    framejit.mark_dynamic(a, 0, min=4, max=16)
    f(a)
    f(x(4)), f(x(16))
    assert compiles() == 1
    f(x(17))
    assert compiles() == 2
    f(x(3))
    assert compiles() == 3 or compiles() == 2
    with pytest.raises(ValueError, match="min 5 is above max 2"):
        framejit.mark_dynamic(a, 0, min=5, max=2)


def test_mark_static():
    f = framejit.compile(add, backend="eager", dynamic=True)
    a = x(3, 4)
    framejit.mark_static(a, 1)
    f(a)
    assert sizes(f) == ["[s0, 4]"]
    framejit.reset()
    a = x(3, 4)
    framejit.mark_static(a)
    f(a)
    assert sizes(f) == ["[3, 4]"]
    # Not after a change, either.
    framejit.reset()
    f = framejit.compile(add, backend="eager")
    for n in (3, 4, 5):
        a = x(n)
        framejit.mark_static(a)
        f(a)
    assert sorted(sizes(f)) == ["[3]", "[4]", "[5]"]


def test_dynamic_is_stronger_than_static():
    f = framejit.compile(add, backend="eager")
    a = x(3)
    framejit.mark_dynamic(a, 0)
    framejit.mark_static(a, 0)
    f(a)
    assert sizes(f) == ["[s0]"]


def test_marks_of_torch_are_respected():
    f = framejit.compile(add, backend="eager")
    a = x(3, 4)
    torch._dynamo.mark_dynamic(a, 1)
    f(a)
    assert sizes(f) == ["[3, s0]"]
    framejit.reset()
    f = framejit.compile(add, backend="eager", dynamic=True)
    a = x(3, 4)
    torch._dynamo.mark_static(a, 0)
    f(a)
    assert sizes(f) == ["[3, s0]"]


def test_dynamic_false_does_not_overrule_a_mark():
    f = framejit.compile(add, backend="eager", dynamic=False)
    a = x(3)
    framejit.mark_dynamic(a, 0)
    f(a)
    f(x(5))
    assert compiles() == 1


def test_anomaly_mode_names_the_operator_where_eager_is_forced():
    f = framejit.compile(lambda x: (x * 0 / x).log().sum() * 0)
    for stance, name in (
        ("default", "FrameJitBackward"),
        ("force_eager", "LogBackward0"),
    ):
        x = torch.zeros(2, requires_grad=True)
        with torch.autograd.detect_anomaly(), framejit.set_stance(stance):
            loss = f(x)
            with pytest.warns(UserWarning), pytest.raises(RuntimeError, match=name):
                loss.backward()


def pinned(x):
    return x + 1 if x.size(0) == 3 else x - 1


def test_a_lost_mark_raises_under_fullgraph_and_is_logged_otherwise():
    a = x(3)
    framejit.mark_dynamic(a, 0)
    f = framejit.compile(pinned, backend="eager", fullgraph=True)
    with pytest.raises(framejit.ConstraintViolationError) as caught:
        f(a)
    assert "mark_dynamic(x, 0)" in str(caught.value)
    assert __file__ in str(caught.value)
    g = framejit.compile(pinned, backend="eager")
    assert torch.equal(g(a), x(3) + 1)
    assert any("mark_dynamic(x, 0)" in text for _, text in framejit.events())
    # The weak form never complains.
    b = x(3)
    framejit.maybe_mark_dynamic(b, 0)
    framejit.reset()
    assert torch.equal(f(b), x(3) + 1)


@pytest.mark.parametrize(
    "forces",
    [
        lambda x: x.view(3, 4) * 2,
        lambda x: x.reshape(6, 2).sum(),
        lambda x: x + 1 if 2 * x.size(0) - 1 == 5 else x,
    ],
)
def test_a_mark_is_lost_where_a_multiple_of_the_size_is_one_number(forces):
    a = torch.ones(3, 4)
    framejit.mark_dynamic(a, 0)
    f = framejit.compile(forces, backend="eager", fullgraph=True)
    with pytest.raises(framejit.ConstraintViolationError, match="must be one number"):
        f(a)


def test_sizes_0_and_1_cannot_be_dynamic():
    f = framejit.compile(add, backend="eager", fullgraph=True)
    a = x(1)
    framejit.mark_dynamic(a, 0)
    with pytest.raises(framejit.ConstraintViolationError, match="0 and 1"):
        f(a)


def test_mark_arguments_are_checked():
    with pytest.raises(TypeError, match="expected a tensor"):
        framejit.mark_dynamic([1], 0)
    with pytest.raises(IndexError, match="dim 2"):
        framejit.mark_dynamic(x(3, 3), 2)


# ---- framejit.testing


def test_no_recompile():
    f = framejit.compile(add, backend="eager")
    with testing.no_recompile():
        f(x(3))
        f(x(3))
    with pytest.raises(AssertionError, match=r"x.size\(0\): expected 3, got 4"):
        with testing.no_recompile():
            f(x(4))
    with testing.no_recompile():
        f(x(5))
    with pytest.raises(AssertionError, match="compiled"):
        with testing.no_recompile(first=False):
            framejit.compile(lambda x: x * 2, backend="eager")(x(3))
    with pytest.raises(KeyError):
        with testing.no_recompile():
            f(x(3).double())
            raise KeyError


def test_count_graphs():
    def broken(x):
        if x.sum() > 0:
            return x + 1
        return x.sin().cos()

    f = framejit.compile(broken, backend="eager")
    with testing.count_graphs() as graphs:
        f(x(3))
        assert graphs.count == 0  # known at the end
    assert graphs.count == 2 and graphs.operations == 4
    assert len(graphs.graphs) == 2 and graphs.breaks[0].startswith("FJ101")
    with testing.count_graphs(0):
        f(x(3))
    with pytest.raises(AssertionError, match="1 graphs were compiled, not 2"):
        with testing.count_graphs(2):
            f(torch.ones(3))
    with testing.no_break():
        f(x(3))
    framejit.reset()
    with pytest.raises(AssertionError, match="FJ101"):
        with testing.no_break():
            f(x(3))


def test_strict(lenient):
    def broken(gm, inputs):
        def run(*args):
            raise RuntimeError("on purpose")

        return run

    f = framejit.compile(add, backend=broken)
    g = framejit.compile(add, backend="eager")
    with testing.strict():
        g(x(3))
    with pytest.raises((AssertionError, RuntimeError), match="on purpose"):
        with testing.strict():
            f(x(3))


def test_strict_and_a_graph_at_torch_level(lenient):
    def makes_a_leaf(x):
        return (x * 2).requires_grad_()

    f, g = framejit.compile(makes_a_leaf), framejit.compile(add)
    with testing.strict():
        g(x(3))
    assert framejit.counters()["fallbacks"] == 0
    with pytest.raises(AssertionError, match="torch level"):
        with testing.strict():
            f(x(3))
    assert framejit.counters()["fallbacks"] == 1
    with testing.strict():
        f(x(3))  # compiled before


def test_strict_and_a_backend_that_fails(lenient):
    def broken(gm, inputs):
        raise RuntimeError("on purpose")

    f = framejit.compile(add, backend=broken)
    with pytest.raises((AssertionError, RuntimeError), match="on purpose"):
        with testing.strict():
            f(x(3))
    assert framejit.counters()["fallbacks"] == 1


def test_pytest_plugin(pytester):
    pytester.syspathinsert(ROOT / "framejit" / "site")
    pytester.makepyfile(
        """
        import framejit, pytest, torch

        f = framejit.compile(lambda x: x + 1, backend="eager")

        @pytest.fixture(autouse=True)
        def fresh():
            framejit.reset()

        @pytest.mark.framejit_no_recompile
        def test_no_recompile_passes():
            f(torch.zeros(3)), f(torch.zeros(3))

        @pytest.mark.framejit_no_recompile
        def test_no_recompile_fails():
            f(torch.zeros(3)), f(torch.zeros(4))

        @pytest.mark.framejit_graphs(1)
        def test_graphs_passes():
            f(torch.zeros(3))

        @pytest.mark.framejit_graphs(2)
        def test_graphs_fails():
            f(torch.zeros(3))

        @pytest.mark.framejit_no_break
        def test_break_fails():
            framejit.compile(lambda x: x.sum().item() + x, backend="eager")(torch.zeros(3))

        def test_strict_option(request):
            assert framejit._C.option_text("strict") == "1"

        @pytest.mark.framejit_no_recompile
        def test_own_error_is_shown():
            f(torch.zeros(3)), f(torch.zeros(4))
            raise KeyError("own")
        """
    )
    framejit._C.set_option("strict", "0")
    try:
        result = pytester.runpytest_inprocess(
            "-p", "framejit_pytest", "--framejit-strict"
        )
    finally:
        framejit._C.set_option("strict", "1")
    result.assert_outcomes(passed=3, failed=4)
    result.stdout.fnmatch_lines(["*x.size(0): expected 3, got 4*", "*KeyError: 'own'*"])
