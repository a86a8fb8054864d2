"""What traces say of results: a part of scripts/sweep_metadata, and no Python."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import framejit
from differential import BACKENDS

ROOT = Path(__file__).resolve().parents[3]


# Of all operators, and all forms of out= of those whose kernels lay it out.
PARTS = {
    "0": (["--every", "9", "--part", "0/12"], 200),
    "5": (["--every", "9", "--part", "5/12"], 200),
    "out": (
        ["--with", " out", "--only", "^ormqr,householder,^cat$,g.eig$,g.qr,^sort"],
        40,
    ),
}


@pytest.mark.parametrize("part", PARTS)
def test_metadata_of_results_is_eagers(part):
    command = [sys.executable, ROOT / "scripts" / "sweep_metadata", "--samples", "1"]
    options, least = PARTS[part]
    command += options
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    kinds = "traced|actual|raises|shared|gradient|crash|died"
    wrong = [x for x in done.stdout.splitlines() if re.search(f" ({kinds}):", x)]
    assert not wrong, "\n".join(wrong)
    assert int(re.search(r"'same': (\d+)", done.stdout)[1]) > least


IMPORTS = """
import importlib.abc, sys, warnings
import torch, framejit
from torch.testing._internal.common_methods_invocations import op_db

warnings.filterwarnings("ignore")
torch.set_num_threads(1)
watched = ("sympy", "torch._subclasses")
for name in list(sys.modules):
    if name.startswith(watched):
        del sys.modules[name]
asked = []

class Watch(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name in watched:
            asked.append(name)
            raise ImportError(name)

sys.meta_path.insert(0, Watch())
def gradients(results, inputs):
    if isinstance(results, torch.Tensor):
        results = [results]
    ends = [r for r in results or () if isinstance(r, torch.Tensor) and r.requires_grad]
    leaves = [i for i in inputs if isinstance(i, torch.Tensor) and i.requires_grad]
    if ends and leaves:
        ones = [torch.ones_like(end) for end in ends]
        torch.autograd.grad(ends, leaves, ones, allow_unused=True)

compiled = 0
for op in op_db:
    dtypes = [t for t in op.dtypes if t is torch.float32] or [*op.dtypes]
    try:
        torch.manual_seed(0)
        grad = op.supports_autograd and dtypes[0].is_floating_point
        sample = next(iter(op.sample_inputs("cpu", dtypes[0], requires_grad=grad)))
        fn, args = op.get_op(), (sample.input, *sample.args)
        asked.clear()
        gradients(fn(*args, **sample.kwargs), args)
        if asked:
            continue  # eager asks, too
    except Exception:
        continue
    for backend in "aot_eager", "native":
        for dynamic in None, True:
            framejit.reset()
            made = framejit.compile(
                lambda *args: fn(*args, **sample.kwargs), backend=backend, dynamic=dynamic
            )
            try:
                gradients(made(*args), args)
            except Exception as error:
                print("raised", op.name, backend, dynamic, repr(error)[:200])
            compiled += 1
            if asked:
                print("imported", op.name, backend, dynamic, asked)
                asked.clear()
print("compiled", compiled)
"""


def test_no_capture_imports_sympy_or_fake_tensors():
    done = subprocess.run(
        [sys.executable, "-c", IMPORTS], capture_output=True, text=True, cwd=ROOT
    )
    lines = done.stdout.splitlines()
    wrong = [x for x in lines if x.startswith(("imported", "raised"))]
    assert not wrong, "\n".join(wrong)
    assert int(lines[-1].split()[1]) > 2000, done.stderr[-2000:]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_copy_of_another_size_raises_what_eager_raises(backend):
    def f(x, y):
        return (x * 1).copy_(y)

    compiled = framejit.compile(f, backend=backend)
    x, y = torch.ones(2, 3), torch.ones(5)
    with pytest.raises(RuntimeError) as expected:
        f(x, y)
    with pytest.raises(RuntimeError) as actual:
        compiled(x, y)
    assert str(actual.value) == str(expected.value)


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_type_of_a_mixed_layer_norm_decides_a_cast(backend):
    def f(x, w, b):
        return torch.nn.functional.layer_norm(x, (4,), w, b).float()

    compiled = framejit.compile(f, backend=backend)
    args = torch.randn(3, 4).bfloat16(), torch.randn(4), torch.randn(4)
    assert compiled(*args).dtype is f(*args).dtype
    assert torch.equal(compiled(*args), f(*args))


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_layout_of_eigenvectors_decides_a_branch(backend):
    def f(a):
        vectors = torch.linalg.eig(a)[1]
        return vectors.abs() if vectors.is_contiguous() else vectors.abs() * 2

    a = torch.randn(4, 4)
    assert torch.equal(framejit.compile(f, backend=backend)(a), f(a))


# Kernels that lay an `out` out again: one that has to be resized, and one of the right
# sizes, where there are no elements.
OUTS = {
    "householder_product": lambda out: torch.linalg.householder_product(
        torch.ones(5, 3), torch.ones(3), out=out
    ),
    "householder_product of nothing": lambda out: torch.linalg.householder_product(
        torch.ones(0, 3, 3), torch.ones(0, 3), out=out
    ),
    "ormqr of nothing": lambda out: torch.ormqr(
        torch.ones(3, 3), torch.ones(3), torch.ones(3, 0), out=out
    ),
    "cat": lambda out: torch.cat([torch.ones(2, 3), torch.ones(1, 3)], out=out),
    "eig": lambda out: torch.linalg.eigvals(torch.ones(3, 3), out=out),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OUTS)
def test_an_out_that_is_laid_out_again_is_eagers(name, backend):
    def f(out):
        result = OUTS[name](out)
        return result.stride(), result.shape, out.stride(), out.shape, result is out

    compiled = framejit.compile(f, backend=backend)
    dtype = torch.complex64 if name == "eig" else torch.float32
    sizes = f(torch.empty(0, dtype=dtype))[1]
    odd = torch.empty([n * 2 + 1 for n in sizes], dtype=dtype)
    for make in (
        lambda: torch.empty(0, dtype=dtype),
        lambda: torch.empty(sizes, dtype=dtype),
        lambda: torch.empty(tuple(reversed(sizes)), dtype=dtype),
        lambda: odd[tuple(slice(0, 2 * n, 2) for n in sizes)].clone(),
        lambda: odd[tuple(slice(0, 2 * n, 2) for n in sizes)],
    ):
        assert compiled(make()) == f(make())
