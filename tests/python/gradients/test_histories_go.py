"""A history that nobody keeps goes at once, and with it what it saved: no output
of a graph keeps the node that saved it."""

from __future__ import annotations

import gc
import weakref

import pytest
import torch
import torch.nn.functional as F

import framejit

# Of x (3, 4) and w (4,): what is saved is an output, or of an output's memory.
PROGRAMS = {
    "detached_output": lambda x, w: (y := x.sum(), w * y.detach()),
    "detached_of_dot": lambda x, w: (y := x.max(0).values.dot(w), w * y.detach()),
    "all_of_it": lambda x, w: (y := (x * x).max(0).values, s := y @ w, w * s.detach()),
    "own_result": lambda x, w: x.tanh(),
    "own_result_twice": lambda x, w: (y := x.exp(), y.sigmoid(), y * 2),
    "view_saved": lambda x, w: (y := x.exp(), y.t() @ y),
    "alias_saved": lambda x, w: (y := x.exp(), y.view(-1) * y.flatten()),
    "slice_saved": lambda x, w: (y := x.exp(), y[0] * w),
    "expanded": lambda x, w: (y := w.exp(), y.expand(3, 4) * x),
    "contiguous": lambda x, w: (y := x.exp(), y.contiguous() * x),
    "clone": lambda x, w: (y := x.exp(), y.clone() * x),
    "to": lambda x, w: (y := x.exp(), y.to(torch.float32) * x, y.float() * 2),
    "data": lambda x, w: (y := x.exp(), y.data * x),
    "softmax": lambda x, w: (y := x.softmax(-1), y.log_softmax(-1)),
    "norm": lambda x, w: (y := F.layer_norm(x, (4,), w), y * y.detach()),
    "dropout": lambda x, w: (y := F.dropout(x, 0.5), y.detach() * x),
    "chunks": lambda x, w: (x.exp() * w).chunk(2, -1),
    "slices": lambda x, w: (y := (x.exp() * w), y[:, :2], y[:, 2:])[1:],
    "max_indices": lambda x, w: (y := x.max(0), x.gather(0, y.indices[None])),
    "squeezed": lambda x, w: (y := x.sum(), y.unsqueeze(0) * w, y.reshape(1) * w),
    "scalar_of_output": lambda x, w: (y := x.sum(), (y.detach() / 2) * w, y * w),
}


@pytest.mark.parametrize("used", [False, True])
@pytest.mark.parametrize("backend", ["native", "aot_eager", "eager"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_arguments_go_with_the_results(name, backend, used):
    program = PROGRAMS[name]

    def run(fn):
        x = torch.rand(3, 4, requires_grad=True)
        w = torch.rand(4, requires_grad=True)
        results = fn(x, w)
        if used:
            tensors = [results] if isinstance(results, torch.Tensor) else results
            flat = []
            for item in tensors:
                flat += [item] if isinstance(item, torch.Tensor) else [*item]
            total = sum(t.sum() for t in flat if t.requires_grad)
            torch.autograd.grad(total, x, retain_graph=True, allow_unused=True)
        return weakref.ref(x), weakref.ref(w)

    compiled = framejit.compile(program, backend=backend)
    gc.collect()
    gc.disable()
    try:
        for _ in range(4):
            expected = [reference() is None for reference in run(program)]
            found = [reference() is None for reference in run(compiled)]
            assert found == expected == [True, True]
    finally:
        gc.enable()


@pytest.mark.parametrize("backend", ["native", "aot_eager"])
def test_they_go_with_an_error(backend):
    def program(x, w):
        y = (x * x).max(0).values
        s = y @ w
        v = w * s.detach()
        framejit.graph_break()
        raise KeyError(v.shape)

    compiled = framejit.compile(program, backend=backend)
    for _ in range(4):
        x = torch.rand(3, 4, requires_grad=True)
        w = torch.rand(4, requires_grad=True)
        references = weakref.ref(x), weakref.ref(w)
        with pytest.raises(KeyError):
            compiled(x, w)
        del x, w
        gc.collect()
        assert [r() for r in references] == [None, None]
