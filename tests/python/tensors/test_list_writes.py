"""Writes to lists of tensors count in the version of each, as in eager: what was saved
for a backward and written to since is refused."""

from __future__ import annotations

import pytest
import torch

import framejit
from framejit import _C

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


WITH_SYMBOLS = {
    **{name: WRITES[name] for name in ("number", "lists", "copy", "lerp")},
    "zero": lambda a, b: torch._foreach_zero_([a]),
    "by a tensor": lambda a, b: torch._foreach_mul_([a, b], torch.tensor(2.0)),
    "divided": lambda a, b: torch._foreach_div_([a, b], b.sum()),
    "at least": lambda a, b: torch._foreach_clamp_min_([a, b], 1.5),
    "root": lambda a, b: torch._foreach_sqrt_([a, b]),
}


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
@pytest.mark.parametrize("name", WITH_SYMBOLS)
def test_symbolic_sizes_stay_in_the_graph(name, backend):
    write = WITH_SYMBOLS[name]

    def fn(a, b):
        write(a, b)
        return a * b

    compiled = framejit.compile(fn, backend=backend, dynamic=True)
    _C.clear_events()
    for n in (3, 5, 4):
        found = []
        for run in (fn, compiled):
            a, b = torch.arange(n) + 1.0, torch.full((n,), 2.0)
            found.append((run(a, b), a, b))
        torch.testing.assert_close(*found)
    assert not [text for _, text in _C.recent_events() if "torch level" in text]


@pytest.mark.parametrize("dynamic", [None, True])
def test_what_eager_refuses_to_write_is_refused(dynamic):
    def fn(a, b):
        torch._foreach_add_([a], [b])
        return a

    compiled = framejit.compile(fn, dynamic=dynamic)
    assert compiled(torch.ones(3), torch.ones(3)).tolist() == [2, 2, 2]
    for _ in range(2):
        with pytest.raises(RuntimeError, match="shape"):
            compiled(torch.ones(3), torch.ones(2, 3))


def test_clipping_gradients_of_symbolic_sizes():
    model = torch.nn.Linear(3, 4)

    @framejit.compile(dynamic=True)
    def step(x):
        model(x).pow(2).sum().backward()
        return torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    _C.clear_events()
    for n in (5, 6, 7):
        x = torch.randn(n, 3)
        model.zero_grad()
        norm = step(x)
        grads = [p.grad.clone() for p in model.parameters()]
        model.zero_grad()
        model(x).pow(2).sum().backward()
        want = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        torch.testing.assert_close(norm, want)
        torch.testing.assert_close(grads, [p.grad for p in model.parameters()])
    assert not [text for _, text in _C.recent_events() if "torch level" in text]
