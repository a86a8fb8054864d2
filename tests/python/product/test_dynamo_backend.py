"""torch.compile(backend="framejit"): Dynamo captures, FrameJIT compiles its graphs.

Every program is compared with eager: values, gradients, mutation; and a graph of
it must have been compiled here, in this many entries at most.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import framejit
from framejit import _C


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def entries() -> list[dict]:
    return [entry for _, found in _C.all_entries() for entry in found]


def kernels() -> int:
    return sum(len(entry["kernels"]) for entry in entries())


def check(function, *inputs, calls=3, gradients=True, **options):
    """Compiled and plain on clones of the inputs, call after call."""
    compiled = torch.compile(function, backend="framejit", **options)
    for _ in range(calls):
        results = []
        for f in (compiled, function):
            args = [
                x.detach().clone().requires_grad_(x.requires_grad)
                if isinstance(x, torch.Tensor)
                else x
                for x in inputs
            ]
            torch.manual_seed(0)
            out = f(*args)
            outs = out if isinstance(out, tuple) else (out,)
            wanted = [x for x in args if isinstance(x, torch.Tensor)]
            found = None
            if any(x.requires_grad for x in wanted):
                torch.stack([o.sum() for o in outs]).sum().backward()
                found = [x.grad for x in wanted]
            results.append((outs, [x.detach() for x in wanted], found))
        torch.testing.assert_close(*results)
    return compiled


def chain(x, y):
    return (x * y).cos().sum(-1) + y.mean()


def test_inference(kernels_on):
    check(chain, torch.randn(4, 5), torch.randn(5))
    (entry,) = entries()
    assert entry["hits"] == 3 and kernels() > 0 and not entry["fallback_reason"]


def test_training(kernels_on):
    check(chain, torch.randn(4, 5, requires_grad=True), torch.randn(5))
    (entry,) = entries()
    assert entry["backward_graph"] and kernels() > 0


@pytest.fixture
def kernels_on(request):
    request.getfixturevalue("kernels")


@pytest.mark.parametrize("dynamic", [None, True, False])
def test_sizes_that_change(dynamic):
    compiled = torch.compile(chain, backend="framejit", dynamic=dynamic)
    y = torch.randn(5)
    for n in (4, 5, 6, 7, 8):
        x = torch.randn(n, 5, requires_grad=True)
        again = x.detach().clone().requires_grad_()
        compiled(x, y).sum().backward()
        chain(again, y).sum().backward()
        torch.testing.assert_close(x.grad, again.grad)
    # Of Dynamo's graphs: the one for all sizes takes two here.
    assert len(entries()) == {None: 3, True: 2, False: 5}[dynamic]


def test_a_graph_break():
    seen = []

    def broken(x):
        y = x.sin() + 1
        seen.append(len(seen))
        torch._dynamo.graph_break()
        if y.sum() > 0:
            return y * 2
        return y - 1

    compiled = torch.compile(broken, backend="framejit")
    for value in (1.0, 1.0, -2.0, -2.0):
        x = torch.full((3,), value)
        torch.testing.assert_close(compiled(x), broken(x))
    assert len(seen) == 8 and len(entries()) >= 3


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.drop = nn.Dropout(0.3)

    def forward(self, x):
        return self.drop(torch.relu(self.norm(self.first(x)))).sum(1)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_module_in_training(in_place):
    plain = Net()
    model = Net()
    model.load_state_dict(plain.state_dict())
    if in_place:
        model.compile(backend="framejit")
        called = model
    else:
        called = torch.compile(model, backend="framejit")
    optimizers = [torch.optim.SGD(m.parameters(), 0.1) for m in (model, plain)]
    for step in range(5):
        x = torch.randn(6, 4)
        losses = []
        for f, optimizer in zip((called, plain), optimizers):
            torch.manual_seed(step)
            loss = f(x).pow(2).sum()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        torch.testing.assert_close(*losses)
    torch.testing.assert_close(model.state_dict(), plain.state_dict())
    assert len(entries()) == 1
    model.eval(), plain.eval()
    torch.testing.assert_close(called(x), plain(x))
    assert len(entries()) == 2


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.sin()

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x.cos() * 2


def modes(x):
    with torch.no_grad():
        y = x * 2
    with torch.autocast("cpu", dtype=torch.bfloat16):
        z = x @ x.t()
    return y + x, z.float()


def mutated(x):
    x.add_(1)
    return x * 2


PROGRAMS = {
    "modes": (modes, lambda: torch.randn(4, 4, requires_grad=True)),
    "mutated": (mutated, lambda: torch.randn(4)),
    "views": (lambda x: (x.t(), x[1:] * 2), lambda: torch.randn(4, 4)),
    "custom": (
        lambda x: Doubled.apply(x * 2),
        lambda: torch.randn(4, requires_grad=True),
    ),
    "checkpointed": (
        lambda x: checkpoint(lambda z: z.sin().cos(), x, use_reentrant=False),
        lambda: torch.randn(4, requires_grad=True),
    ),
    "random": (
        lambda x: x * torch.rand(4) + nn.functional.dropout(x),
        lambda: torch.randn(4),
    ),
    "item": (lambda x: x * x.sum().item(), lambda: torch.randn(4)),
    "nonzero": (lambda x: x[x > 0] * 2, lambda: torch.randn(9)),
    "vmap": (
        torch.vmap(lambda x: x.sum() * x),
        lambda: torch.randn(3, 4, requires_grad=True),
    ),
    "constant": (lambda x: x + torch.arange(4), lambda: torch.randn(4)),
    "empty": (lambda x: x * 2, lambda: torch.randn(0, requires_grad=True)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name):
    function, make = PROGRAMS[name]
    check(function, make())
    assert entries()


def test_whole_graphs_of_dynamo():
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(PROGRAMS["item"][0], torch.randn(4), fullgraph=True)


def test_an_error_is_the_programs():
    def raises(x, i):
        return x.cos()[i]

    compiled = torch.compile(raises, backend="framejit")
    compiled(torch.ones(3), torch.tensor([1]))
    for f in (compiled, raises):
        with pytest.raises(IndexError, match="out of range|out of bounds"):
            f(torch.ones(3), torch.tensor([7]))


def test_options_and_modes_are_checked_as_in_compile():
    x = torch.ones(2)
    wrong = {"options": {"nonsense": 1}}, {"mode": "lite"}
    for arguments in wrong:
        compiled = torch.compile(chain, backend="framejit", **arguments)
        with pytest.raises(Exception, match="unknown (option|mode)"):
            compiled(x, x)
    fine = {"options": {"max_instructions": 10_000}}, {"mode": "reduce-overhead"}
    for arguments in fine:
        torch._dynamo.reset()
        check(chain, x, x, **arguments)


def test_it_is_registered():
    assert "framejit" in torch._dynamo.list_backends()
    assert "framejit" not in framejit.list_backends()
    # In framejit.compile it is another name of the default.
    x = torch.randn(3)
    torch.testing.assert_close(
        framejit.compile(chain, backend="framejit")(x, x), chain(x, x)
    )


USE = """
f = torch.compile(lambda x: x.cos() + 1, backend="framejit")
print(f(torch.zeros(2)).tolist())
import framejit
print(framejit.counters()["compiles"])
"""


def run_python(source, **environment):
    done = subprocess.run(
        [sys.executable, "-c", source],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")


@pytest.mark.parametrize(
    "before",
    [
        "import torch, framejit",
        "import framejit, torch._dynamo",
        "import torch._dynamo, framejit",
        "import torch._dynamo; torch._dynamo.list_backends(); import framejit",
    ],
)
def test_import_registers_it(before):
    assert run_python(before + "\nimport torch" + USE)[:2] == ["[2.0, 2.0]", "1"]


@pytest.fixture
def installed(tmp_path):
    """What pip leaves of the entry point of pyproject.toml."""
    import pathlib
    import tomllib

    root = pathlib.Path(framejit.__file__).parents[1]
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    (group,) = [g for g in project["entry-points"] if "dynamo" in g]
    info = tmp_path / "framejit-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        "Metadata-Version: 2.1\nName: framejit\nVersion: 0.1.0\n"
    )
    rows = "".join(f"{k} = {v}\n" for k, v in project["entry-points"][group].items())
    (info / "entry_points.txt").write_text(f"[{group}]\n{rows}")
    return os.pathsep.join([str(tmp_path), str(root)])


@pytest.mark.parametrize(
    "before",
    [
        "import torch",
        "import torch, framejit",
        "import torch; torch._dynamo.list_backends(); import framejit",
        "import torch; torch._dynamo.list_backends()",
    ],
)
def test_the_entry_point_registers_it(installed, before):
    source = before + "\nassert 'framejit' in torch._dynamo.list_backends()" + USE
    assert run_python(source, PYTHONPATH=installed)[:2] == ["[2.0, 2.0]", "1"]


def test_framejit_0_leaves_dynamos_graph_as_it_is():
    found = run_python("import torch, framejit" + USE, FRAMEJIT="0")
    assert found[:2] == ["[2.0, 2.0]", "0"]
