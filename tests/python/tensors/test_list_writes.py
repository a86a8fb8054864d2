"""Writes to lists of tensors count in the version of each, as in eager: what was saved
for a backward and written to since is refused."""

from __future__ import annotations

import pytest
import torch

import framejit

BACKENDS = ["eager", "aot_eager", "native"]
WRITES = {
    "number": lambda a, b: torch._foreach_add_([a, b], 1),
    "tuple": lambda a, b: torch._foreach_mul_((a, b), 2),
    "lists": lambda a, b: torch._foreach_sub_([a, b], [b + 1, a + 1]),
    "by name": lambda a, b: torch._foreach_add_(self=[a, b], scalar=1),
    "zero": lambda a, b: torch._foreach_zero_([a]),
    "copy": lambda a, b: torch._foreach_copy_([a, b], [a + 1, b + 2]),
    "lerp": lambda a, b: torch._foreach_lerp_([a], [b], 0.5),
    "scaled": lambda a, b: torch._foreach_addcmul_([a, b], [b, a], [a, a], 0.5),
    "parts": lambda a, b: torch._foreach_add_([a[:1], b.view(-1)], 1),
    "overload": lambda a, b: torch.ops.aten._foreach_add_.Scalar([a, b], 1),
    "again": lambda a, b: (torch._foreach_exp_([a, b]), a.add_(1), b.add_(a)),
    "not in place": lambda a, b: b.copy_(torch._foreach_add([a, b], 1)[0]),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", WRITES)
def test_versions(name, backend):
    write = WRITES[name]

    def fn(a, b):
        write(a, b)
        return a._version, b._version

    def run(fn):
        a, b = torch.ones(2), torch.full((2,), 2.0)
        p = torch.ones(2, requires_grad=True)
        losses = [(p * a).sum(), (p * b).sum()]
        result = [fn(a, b), a._version, b._version, a.tolist(), b.tolist()]
        for loss in losses:
            try:
                loss.backward()
            except RuntimeError as error:
                result.append("modified by an inplace operation" in str(error))
        return result, p.grad is None

    expected = run(fn)
    compiled = framejit.compile(fn, backend=backend)
    assert [run(compiled), run(compiled)] == [expected, expected]


@pytest.mark.parametrize("backend", BACKENDS)
def test_write_to_what_the_graph_saved(backend):
    def fn(p, a):
        loss = (p * a).sum()
        with torch.no_grad():
            torch._foreach_add_([a], 1)
        return loss

    for run in (fn, framejit.compile(fn, backend=backend)):
        loss = run(torch.ones(2, requires_grad=True), torch.ones(2))
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.Adam])
def test_optimizer_step_between(kind, backend):
    """A step behind a forward: its backward would read other parameters."""

    def outcome(compile):
        torch.manual_seed(0)
        p = torch.ones(2, requires_grad=True)
        optimizer = kind([p], lr=0.1, foreach=True)
        p.grad = torch.ones(2)
        loss = (p * p).sum()
        compile(optimizer.step)()
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()
        return p._version

    expected = outcome(lambda step: step)
    got = outcome(lambda step: framejit.compile(lambda: step(), backend=backend))
    assert got == expected
