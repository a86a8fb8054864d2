"""Whole-script mode: FRAMEJIT=1, python -m framejit.

Most tests switch the mode on in this process; the few that need the start-up
hook or the command line run one of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import pathlib
import sys
import threading
import unittest

import pytest
import torch
from torch import nn

import framejit
from child_process import run_python
from framejit import _C, _script

ROOT = pathlib.Path(__file__).parents[3]


@contextlib.contextmanager
def script(**options):
    options.setdefault("backend", "eager")
    _script.start(**options)
    try:
        yield
    finally:
        _script.stop()
        _C.set_option("only", "")


def compiled() -> list[str]:
    """Names of the functions that have entries."""
    return sorted(name.split(" (")[0].split(".")[-1] for name, _ in _C.all_entries())


def chain(x):
    return x.sin().cos()


def helper(x, scale):
    return chain(x) * scale


def plain(n):
    return n + 1


# ---- what is compiled


def test_frames_with_tensors_are_compiled_and_others_not():
    x = torch.randn(4)
    with script():
        assert torch.equal(helper(x, 2.0), chain(x) * 2.0)
        assert plain(3) == 4
    # helper takes chain in; chain was called on its own as well.
    assert compiled() == ["chain", "helper"]


def test_nothing_is_compiled_before_or_after():
    x = torch.randn(4)
    chain(x)
    with script():
        pass
    chain(x)
    assert compiled() == [] and _C.script_mode() == "off"


@pytest.mark.parametrize(
    "wrap,get",
    [
        (lambda x: (x,), lambda c: c[0]),
        (lambda x: [x, 1], lambda c: c[0]),
        (lambda x: {"a": {"b": x}}, lambda c: c["a"]["b"]),
        (lambda x: (1, [2, x]), lambda c: c[1][1]),
    ],
)
def test_tensors_in_containers_count(wrap, get):
    def first(c):
        return get(c).sin()

    x = torch.randn(4)
    argument = wrap(x)
    with script():
        result = first(argument)
    assert torch.equal(result, x.sin())
    assert compiled() == ["first"]


def test_arguments_of_every_kind_are_seen():
    def only_keyword(*, x):
        return x + 1

    def stars(*args, **kwargs):
        return args[0] + kwargs["y"]

    x = torch.randn(4)
    with script():
        only_keyword(x=x)
        stars(x, y=x)
    assert compiled() == ["only_keyword", "stars"]


def test_methods_of_objects_that_hold_tensors():
    class Average:
        def __init__(self):
            self.total = torch.zeros(3)

        def doubled(self):
            return self.total * 2

    average = Average()
    with script():
        assert torch.equal(average.doubled(), torch.zeros(3))
    assert compiled() == ["doubled"]


def make_noise():
    return torch.ones(3).sin()


def test_code_that_names_torch_is_compiled_from_its_second_call():
    with script():
        make_noise()
        assert compiled() == []
        assert torch.equal(make_noise(), torch.ones(3).sin())
    assert compiled() == ["make_noise"]


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 2)

    def forward(self, x):
        return self.second(torch.relu(self.first(x)))


def test_training_equals_eager():
    def train():
        torch.manual_seed(7)
        model = Net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        losses = []
        for _ in range(4):
            x, y = torch.randn(6, 4), torch.randn(6, 2)
            loss = nn.functional.mse_loss(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        return losses, [p.detach().clone() for p in model.parameters()]

    losses, parameters = train()
    with script(backend="native"):
        got_losses, got_parameters = train()
    assert "forward" in compiled()
    assert got_losses == pytest.approx(losses, rel=1e-5)
    for a, b in zip(parameters, got_parameters):
        torch.testing.assert_close(a, b)


def test_layers_called_from_module_level():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    x = torch.randn(2, 4)
    expected = model(x)
    with script():
        torch.testing.assert_close(model(x), expected)
    assert compiled() == ["forward"]


# ---- what is left alone


def test_generators_and_coroutines_run_as_they_are():
    def generate(x):
        yield x.sin()

    async def later(x):
        return x.cos()

    x = torch.randn(4)
    with script():
        assert torch.equal(next(generate(x)), x.sin())
        assert torch.equal(asyncio.run(later(x)), x.cos())
    assert "generate" not in compiled() and "later" not in compiled()


def test_disabled_functions_and_what_they_call():
    @framejit.disable
    def own(x):
        return chain(x)

    @torch.compiler.disable
    def of_torch(x):
        return chain(x)

    x = torch.randn(4)
    with script():
        own(x)
        of_torch(x)
        with framejit.disable():
            chain(x)
    assert compiled() == []


def test_torch_compiler_disable_breaks_a_compiled_function():
    @torch.compiler.disable
    def of_torch(x):
        return chain(x)

    @framejit.compile(backend="eager")
    def f(x):
        return of_torch(x + 1) * 2

    x = torch.randn(4)
    for _ in range(2):
        assert torch.equal(f(x), chain(x + 1) * 2)
    (entry,) = framejit.inspect(f)
    assert [item.id for item in entry.breaks] == ["FJ205"]
    assert "chain" not in compiled()


def test_other_tracers_see_the_program():
    x = torch.randn(4)
    with script():
        scripted = torch.jit.trace(chain, (x,))
        graph = torch.fx.symbolic_trace(Net())
    assert [n.op for n in graph.graph.nodes].count("call_module") == 2
    assert torch.equal(scripted(x), chain(x))
    assert compiled() == []


def test_effects_happen_once():
    log = []

    def noisy(x):
        log.append("before")
        print("effect", file=open(os.devnull, "w"))
        log.append("after")
        return x + 1

    def raising(x):
        log.append("raise")
        raise KeyError("mine")

    x = torch.zeros(2)
    with script():
        for _ in range(3):
            noisy(x)
        for _ in range(2):
            with pytest.raises(KeyError, match="mine"):
                raising(x)
    assert log == ["before", "after"] * 3 + ["raise"] * 2


def test_traced_frames_run_the_original():
    lines = []

    def tracer(frame, event, arg):
        if frame.f_code is chain.__code__:
            lines.append(event)
        return tracer

    x = torch.randn(4)
    with script():
        sys.settrace(tracer)
        try:
            chain(x)
        finally:
            sys.settrace(None)
        assert lines == ["call", "line", "return"]
        assert compiled() == []
        calls = []
        sys.setprofile(
            lambda frame, event, arg: calls.append((event, frame.f_code.co_name))
        )
        try:
            chain(x)
        finally:
            sys.setprofile(None)
        assert ("call", "chain") in calls and compiled() == []
        chain(x)
    assert compiled() == ["chain"]


class Samples(torch.utils.data.Dataset):
    """What a worker does: the mode there, and what it has compiled."""

    def __init__(self, explicit):
        self.explicit = framejit.compile(chain) if explicit else chain

    def __len__(self):
        return 4

    def __getitem__(self, i):
        before = framejit.counters()["compiles"]
        for n in range(3, 7):
            self.explicit(helper(torch.ones(n), 2.0))
        return _C.script_mode(), framejit.counters()["compiles"] - before


# (A compiled function cannot be sent to a process.)
@pytest.mark.parametrize(
    "start,explicit", [("fork", False), ("fork", True), ("spawn", False)]
)
def test_workers_of_data_loaders_are_left_alone(start, explicit, monkeypatch):
    monkeypatch.setenv("FRAMEJIT", "1")  # of what is spawned
    data = torch.utils.data.DataLoader(
        Samples(explicit), num_workers=2, collate_fn=list, multiprocessing_context=start
    )
    with script():
        found = [item for batch in data for item in batch]
        assert _C.script_mode() != "off"
    assert {mode for mode, _ in found} == {"off"}
    assert any(compiles for _, compiles in found) == explicit


def test_only_restricts():
    x = torch.randn(4)
    with script(only="test_activation.py:chain"):
        helper(x, 2.0)
    assert compiled() == ["chain"]
    framejit.reset()
    with script(only="some.other.module"):
        helper(x, 2.0)
    assert compiled() == []


PATTERNS = [
    ("models", "models", "/a/models/__init__.py", "f", True),
    ("models", "models.net", "/a/models/net.py", "f", True),
    ("models", "modelsx", "/a/modelsx.py", "f", False),
    ("mod*", "modelsx", "/a/modelsx.py", "f", True),
    ("net.py:f", "x", "/a/net.py", "f", True),
    ("net.py:f", "x", "/a/subnet.py", "f", False),
    ("a/net.py:f*", "x", "/b/a/net.py", "forward", True),
    ("/a/*.py:Net.*", "x", "/a/net.py", "Net.forward", True),
    ("*:forward", "x", "/a/net.py", "Net.forward", True),
    ("*:forward", "x", "/a/net.py", "Net.backward", False),
    ("models:f", "models", "/a/models.py", "f", True),
    ("one, two", "two", "/a/two.py", "f", True),
    ("", "two", "/a/two.py", "f", False),
]


@pytest.mark.parametrize("patterns,module,file,name,expected", PATTERNS)
def test_patterns(patterns, module, file, name, expected):
    assert _C.matches_only(patterns, module, file, name) is expected


# ---- cost


def sleep_and_wake():
    with script():
        _C.set_script_patience(500)
        for n in range(2000):
            plain(n)
        assert _C.script_mode() == "asleep"
        x = torch.ones(3)
        for n in range(3):
            x = x + 1
        assert _C.script_mode() == "on"
        chain(x)
        # More patient now.
        for n in range(900):
            plain(n)
        assert _C.script_mode() == "on"
    assert compiled() == ["chain"]


def in_a_process_of_its_own(name):
    run_python(
        "-c",
        f"import test_activation; test_activation.{name}()",
        path=[pathlib.Path(__file__).parent],
        check=True,
    )


@pytest.mark.skipif(
    sys.version_info >= (3, 12), reason="a function watcher needs no hook"
)
def test_the_hook_sleeps_and_a_torch_operation_wakes_it():
    # It stays while there are other threads, of the test runner for example.
    in_a_process_of_its_own("sleep_and_wake")


def test_the_hook_stays_while_there_are_threads():
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait)
    thread.start()
    try:
        with script():
            _C.set_script_patience(100)
            for n in range(1000):
                plain(n)
            assert _C.script_mode() == "on"
    finally:
        stop.set()
        thread.join()


def recurse_as_deep_as_asked_for():
    def depth(n):
        try:
            return depth(n + 1)
        except RecursionError:
            return n

    expected = depth(0)
    with script():
        assert depth(0) == expected
        limit = sys.getrecursionlimit()
        sys.setrecursionlimit(50_000)
        try:

            def down(n):
                return 0 if n == 0 else 1 + down(n - 1)

            assert down(40_000) == 40_000
        finally:
            sys.setrecursionlimit(limit)


def test_recursion_depth_is_what_was_asked_for():
    # Other compilers leave hooks that nest natively.
    in_a_process_of_its_own("recurse_as_deep_as_asked_for")


def test_threads_are_served():
    x = torch.randn(4)
    results = []

    def work():
        for _ in range(20):
            results.append(helper(x, 2.0))

    with script():
        threads = [threading.Thread(target=work) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(results) == 60
    assert all(torch.equal(r, chain(x) * 2.0) for r in results)
    assert "helper" in compiled()


def test_works_beside_compile():
    x = torch.randn(4)
    f = framejit.compile(helper, backend="eager")
    with script():
        f(x, 2.0)
        # The same code under the same options shares its entries.
        assert framejit.counters()["compiles"] == 1
        helper(x, 2.0)
        assert framejit.counters()["compiles"] == 1
        with framejit.set_stance("force_eager"):
            assert torch.equal(chain(x), x.sin().cos())
    assert compiled() == ["helper"]


@pytest.mark.parametrize(
    "module", ["test_contextlib", "test_sys_settrace", "test_scope"]
)
def test_cpython_tests_are_the_same(module):
    """A sample; scripts/cpython_tests runs them all, isolated."""
    pytest.importorskip(f"test.{module}")

    def run():
        result = unittest.TestResult()
        tracer = sys.gettrace()
        sys.settrace(None)
        try:
            unittest.defaultTestLoader.loadTestsFromName(f"test.{module}").run(result)
        finally:
            sys.settrace(tracer)
        bad = [str(test) for test, _ in result.failures + result.errors]
        return result.testsRun, sorted(bad)

    expected = run()
    assert expected[0] > 10
    with script():
        _C.set_script_patience(1 << 40)
        assert run() == expected
        assert _C.script_mode() == "on"


# ---- processes of their own

PROGRAM = """
import sys
import torch

class Net(torch.nn.Module):
    def forward(self, x):
        return x.sin().cos()

def step(net, x):
    return net(x) * 2

if __name__ == "__main__":
    assert sys.modules["__main__"].Net is Net
    print(sys.argv[1:], __file__.endswith("prog.py"))
    print(step(Net(), torch.zeros(3)).tolist())
    import pickle
    assert type(pickle.loads(pickle.dumps(Net()))) is Net
    import framejit
    print(sorted(n.split(" (")[0] for n, _ in framejit._C.all_entries()))
    if "fail" in sys.argv:
        raise ValueError("as asked")
"""
OUTPUT = "[2.0, 2.0, 2.0]\n"


@pytest.fixture
def program(tmp_path):
    (tmp_path / "prog.py").write_text(PROGRAM)
    return tmp_path


def run(*args, cwd, path=(), stdin=None, **environment):
    return run_python(*args, input=stdin, cwd=cwd, path=path, environment=environment)


def test_environment_variable(program):
    """What site runs of framejit.pth in an installation is run by hand here:
    twice, as it does in a virtual environment."""
    site = ROOT / "framejit" / "site"
    line = (site / "framejit.pth").read_text()
    (program / "sitecustomize.py").write_text(line + "\n" + line)
    path = [program, site]
    done = run("prog.py", "a", cwd=program, path=path, FRAMEJIT="1")
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"['a'] True\n{OUTPUT}['step']\n"
    done = run("prog.py", cwd=program, path=path, FRAMEJIT="0")
    assert done.stdout == f"[] True\n{OUTPUT}[]\n", done.stderr


def test_start_up_imports_nothing_without_torch(program):
    site = ROOT / "framejit" / "site"
    (program / "sitecustomize.py").write_text((site / "framejit.pth").read_text())
    source = (
        "import sys, importlib.util\n"
        "importlib.util.find_spec('torch')\n"
        "assert not {'torch', 'framejit'} & set(sys.modules)\n"
        "found = [f for f in sys.meta_path if type(f).__name__ == '_WaitForTorch']\n"
        "print('_framejit_startup' in sys.modules, len(found))\n"
    )
    path = [program, site]
    assert run("-c", source, cwd=program, path=path).stdout == "False 0\n"
    assert run("-c", source, cwd=program, path=path, FRAMEJIT="0").stdout == "False 0\n"
    assert run("-c", source, cwd=program, path=path, FRAMEJIT="1").stdout == "True 1\n"


def test_command_line(program):
    flags = ["-m", "framejit", "--backend", "eager", "--report"]
    done = run(*flags, "prog.py", "--backend", "x", cwd=program)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"['--backend', 'x'] True\n{OUTPUT}['step']\n"
    assert "framejit: 1 compiles" in done.stderr and "step  prog.py:9" in done.stderr


def test_command_line_shows_errors_as_python_does(program):
    done = run("-m", "framejit", "prog.py", "fail", cwd=program)
    assert done.returncode == 1
    assert done.stderr.startswith("Traceback") and "framejit" not in done.stderr
    assert done.stderr.endswith('raise ValueError("as asked")\nValueError: as asked\n')


@pytest.mark.parametrize("name", ["nofile.py", "no/file", "prog.py/x"])
def test_command_line_says_what_it_cannot_open_as_python_does(program, name):
    plain = run(name, "a", cwd=program)
    ours = run("-m", "framejit", name, "a", cwd=program)
    assert plain.returncode == 2 and "[Errno " in plain.stderr
    assert (ours.returncode, ours.stdout, ours.stderr) == (2, "", plain.stderr)


@pytest.mark.parametrize("arguments", [["-m"], ["-c"], ["-z"], ["--nonsense"], []])
def test_command_line_that_is_wrong_exits_with_2(program, arguments):
    done = run("-m", "framejit", *arguments, cwd=program)
    assert done.returncode == 2 and not done.stdout
    assert "python -m framejit" in done.stderr


def test_command_line_names_the_script_as_python_does(program):
    (program / "where.py").write_text(
        "import os, sys\nos.chdir('/')\n"
        "print(__file__, os.path.exists(__file__), sys.argv, sys.path[0])\n1 / 0\n"
    )
    plain = run("where.py", "a", cwd=program)
    ours = run("-m", "framejit", "where.py", "a", cwd=program)
    assert (ours.stdout, ours.stderr) == (plain.stdout, plain.stderr)
    assert str(program / "where.py") in plain.stdout and "True" in plain.stdout


def test_command_line_takes_a_program_from_standard_input(program):
    source = "import sys\nprint(sys.argv, __name__)\nfrom prog import *\n"
    source += "print(step(Net(), torch.zeros(3)).tolist(), __file__)\n"
    flags = ["-m", "framejit", "--report", "-", "a"]
    done = run(*flags, cwd=program, stdin=source)
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"['-', 'a'] __main__\n{OUTPUT.strip()} <stdin>\n"
    assert "framejit: 1 compiles" in done.stderr


def test_command_line_module_and_only(program):
    flags = ["-m", "framejit", "--only", "*:forward", "-m", "prog", "b"]
    done = run(*flags, cwd=program)
    assert done.stdout == f"['b'] True\n{OUTPUT}['Net.forward']\n", done.stderr
