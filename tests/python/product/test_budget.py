"""How long a capture may be, and which loops are not unrolled."""

import pytest
import torch

import framejit
from child_process import run_python
from framejit import _C, _script


def callee(x):
    return x.sin() + 1


def long_loop(x, n):
    for _ in range(n):
        x = callee(x)
    return x


def counted(compiled, *args):
    before = framejit.counters()["breaks"]
    result = compiled(*args)
    return result, framejit.counters()["breaks"] - before


def names() -> set[str]:
    return {name.split(" (")[0].split(".")[-1] for name, _ in _C.all_entries()}


def test_beyond_the_budget_the_function_runs_as_it_is_and_callees_are_compiled():
    framejit.reset()
    compiled = framejit.compile(
        long_loop, backend="aot_eager", options={"max_instructions": 500}
    )
    x = torch.ones(3)
    result, breaks = counted(compiled, x, 200)
    assert torch.equal(result, long_loop(x, 200)) and breaks == 1
    # Remembered: no second attempt, for shorter loops neither.
    for n in (200, 100, 1):
        result, breaks = counted(compiled, x, n)
        assert torch.equal(result, long_loop(x, n)) and breaks == 0
    assert names() == {"callee"}
    framejit.reset()
    assert counted(compiled, x, 2)[1] == 0 and names() == {"long_loop"}


def test_within_the_budget_the_loop_is_unrolled():
    framejit.reset()
    compiled = framejit.compile(
        long_loop, backend="aot_eager", options={"max_instructions": 100_000}
    )
    assert torch.equal(compiled(torch.ones(3), 200), long_loop(torch.ones(3), 200))
    assert names() == {"long_loop"}


def test_the_report_names_the_option_and_the_line(caplog):
    framejit.reset()
    caplog.set_level("WARNING", logger="framejit")
    framejit.compile(long_loop, options={"max_instructions": 50})(torch.ones(3), 99)
    [record] = [r for r in caplog.records if "FJ412" in r.getMessage()]
    assert "max_instructions" in record.getMessage()
    assert __file__ in record.getMessage()


def test_fullgraph_says_so():
    framejit.reset()
    compiled = framejit.compile(
        long_loop, fullgraph=True, options={"max_instructions": 50}
    )
    with pytest.raises(framejit.GraphBreakError, match="FJ412"):
        compiled(torch.ones(3), 99)


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "9"])
def test_a_budget_is_a_positive_int(wrong):
    error = ValueError if type(wrong) is int else TypeError
    with pytest.raises(error, match="max_instructions: expected a whole number, 1 or"):
        framejit.compile(long_loop, options={"max_instructions": wrong})


def test_the_environment_sets_it_for_all():
    program = (
        "import torch, framejit\n"
        "from framejit import _C\n"
        "@framejit.compile\n"
        "def f(x):\n"
        "    for i in range(200): x = x + 1\n"
        "    return x\n"
        "assert f(torch.zeros(1)).item() == 200\n"
        "print(framejit.counters()['breaks'], len(_C.all_entries()))\n"
    )
    for limit, expected in (("300", "1 0"), ("300000", "0 1")):
        ran = run_python(
            "-c",
            program,
            check=True,
            environment={"FRAMEJIT_MAX_INSTRUCTIONS": limit},
        )
        assert ran.stdout.strip() == expected


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(12))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu() + x
        return x


def generate(model, x, turns):
    for _ in range(turns):
        x = torch.tanh(model(x))
    return x


def in_script_mode(function, *args):
    framejit.reset()
    _script.start(backend="aot_eager")
    try:
        with torch.no_grad():
            result = [function(*args) for _ in range(2)][-1]
        return result, names()
    finally:
        _script.stop()


def test_in_script_mode_a_generation_loop_is_not_unrolled():
    model, x = Model(), torch.randn(2, 4)
    result, compiled = in_script_mode(generate, model, x, 20)
    with torch.no_grad():
        torch.testing.assert_close(result, generate(model, x, 20))
    assert "generate" not in compiled and compiled


def test_a_loop_over_layers_is_unrolled():
    model, x = Model(), torch.randn(2, 4)
    _, compiled = in_script_mode(generate, model, x, 1)
    assert compiled == {"generate"}


def test_a_decorated_generation_loop_is_unrolled():
    framejit.reset()
    model, x = Model(), torch.randn(2, 4)
    compiled = framejit.compile(generate, backend="aot_eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(model, x, 6), generate(model, x, 6))
    assert names() == {"generate"}
