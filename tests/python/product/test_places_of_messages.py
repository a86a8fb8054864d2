"""What FrameJIT says names places of the program, and no file of its own: what it
interprets in place of a function of torch stands at the program's call."""

from __future__ import annotations

import functools
import re

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import framejit
from differential import opaque
from framejit import _C

OWN_FILE = re.compile(r"framejit[/\\]_\w+\.py|\b_compile_with\b|<locals>\.call\b")


class Plain(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class Unmaterialised(Plain):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2


class Opaque(Plain):
    @staticmethod
    def forward(ctx, x):
        opaque()
        return x * 2


class OpaqueBackward(Plain):
    @staticmethod
    def backward(ctx, gradient):
        opaque()
        return gradient * 2


class Sized(Plain):
    """Recompiles for what its forward reads."""

    @staticmethod
    def forward(ctx, x):
        return x * 2 if x.dtype == torch.float32 else x * SCALE[0]


SCALE = [3.0]


def broken_inside(x):
    x = x.sin()
    opaque()
    return x.cos()


def lbfgs(x):
    p = x.detach().clone().requires_grad_()
    optimizer = torch.optim.LBFGS([p], max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = (p**2).sum()
        loss.backward()
        return loss

    optimizer.step(closure)
    return p.detach()


def with_hook(x):
    y = x.sin()
    y.register_hook(lambda g: broken_inside(g))
    return y * 2


def with_profiler(x):
    with torch.profiler.record_function("a" + str(opaque(1))):
        x = x.sin()
        opaque()
    return x * 2


def in_inference_mode(x):
    with torch.inference_mode():
        x = x.sin()
        opaque()
        return x * 2


def with_backward(x):
    p = x.detach().clone().requires_grad_()
    Opaque.apply(p).sum().backward()
    return p.grad


def with_grad(x):
    p = x.detach().clone().requires_grad_()
    return torch.autograd.grad(OpaqueBackward.apply(p).sum(), p)[0]


class Callable:
    def __call__(self, x):
        return broken_inside(x)


PROGRAMS = {
    "checkpoint": lambda x: checkpoint(broken_inside, x, use_reentrant=False),
    "reentrant checkpoint": lambda x: checkpoint(broken_inside, x, use_reentrant=True),
    "plain function": lambda x: Plain.apply(x.sin()),
    "materialize": lambda x: Unmaterialised.apply(x.sin()),
    "forward breaks": lambda x: Opaque.apply(x.sin()),
    "backward breaks": lambda x: OpaqueBackward.apply(x.sin()),
    "forward recompiles": lambda x: Sized.apply(x.sin()),
    "optimizer": lbfgs,
    "hook": with_hook,
    "profiler": with_profiler,
    "inference mode": in_inference_mode,
    "backward": with_backward,
    "grad": with_grad,
    "vmap": lambda x: torch.vmap(broken_inside)(x),
    "func.grad": lambda x: torch.func.grad(lambda y: broken_inside(y).sum())(x),
    "vjp": lambda x: torch.func.vjp(broken_inside, x)[0],
    "jvp": lambda x: torch.func.jvp(broken_inside, (x,), (x,))[0],
    "jacrev": lambda x: torch.func.jacrev(broken_inside)(x),
    "cond": lambda x: torch.cond(x.sum() > 0, broken_inside, torch.cos, (x,)),
    "pool": lambda x: torch.nn.functional.max_pool1d(x[None], 2, return_indices=True),
    "object": Callable(),
    "bound builtin": torch.ones(4).add,
    "builtin": torch.sin,
    "partial": functools.partial(broken_inside),
    "module": torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Flatten(0)),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_message_names_a_file_of_framejit(name):
    fn = PROGRAMS[name]
    records = []

    def listen(kind, record):
        records.append((kind, record))

    framejit.reset()
    compiled = framejit.compile(fn, recompile_limit=2)
    calls = [
        torch.ones(4, 4),
        torch.ones(4, 4, requires_grad=True),
        torch.ones(6, 4),
        torch.ones(4, 4, dtype=torch.float64),
        torch.ones(4, 4, dtype=torch.complex64),
    ]
    _C.add_trace_listener(listen)
    try:
        for x in calls:
            SCALE[0] += 1
            try:
                compiled(x)
            except (RuntimeError, TypeError):
                continue  # the program's own
    finally:
        _C.remove_trace_listener(listen)
    said = [f"{kind}: {record!r}" for kind, record in records]
    said += [f"{channel}: {text}" for channel, text in framejit.events()]
    try:
        explanation = framejit.explain(fn)(calls[1])
        said.append(str(explanation))
        said += [place for b in explanation.breaks for place in (b.where, *b.stack)]
    except (RuntimeError, TypeError):
        pass
    try:
        framejit.compile(fn, fullgraph=True)(calls[1])
    except framejit.GraphBreakError as error:
        said.append(str(error))
    except (RuntimeError, TypeError):
        pass
    assert said
    wrong = [text for text in said if OWN_FILE.search(text)]
    assert not wrong, "\n".join(wrong)


def test_a_break_of_what_stands_for_torch_is_at_the_call():
    fn = PROGRAMS["materialize"]
    explanation = framejit.explain(fn)(torch.ones(3, requires_grad=True))
    (found,) = explanation.breaks
    line = fn.__code__.co_firstlineno
    assert found.where.endswith(f"test_places_of_messages.py:{line} in <lambda>")
    assert found.stack == [found.where]
