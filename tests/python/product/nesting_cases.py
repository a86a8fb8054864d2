"""FrameJIT beside the other compilers and tracers of torch: every nesting.

``python nesting_cases.py TOOL`` runs every case of one tool, each in a process
of its own (a fork of this one), and prints a line for each that is not right:
a crash is a result like any other. `test_nesting.py` runs all tools, and one
case in 23 (NESTING_SHARE) of each.

A case is (subject, nest, history). The nest says who is inside whom: ``FT`` is
``framejit.compile(tool(subject))``, ``F>T`` a function compiled by FrameJIT
that calls ``tool(subject)``, and so on. What it gives is compared with the same
nest without FrameJIT, in values and gradients, cold and after each side was
called first, again and again, with resets between.
"""

from __future__ import annotations

import contextlib
import copy
import importlib
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import framejit
from framejit import _script

Tool = Callable[[Any, tuple[Any, ...]], Any]


# ---- subjects


def plain(x):
    return (x.sin() * 2 + 1).relu()


def broken(x):
    y = x.sin() * 2
    print(end="")
    framejit.graph_break()
    return (y + 1).relu()


def tuned(by):
    """A closure with defaults: facts of a function besides its code."""

    def tune(x, scale=2.0, *, shift=1.0):
        return (x.sin() * scale + shift).relu() * by

    return tune


def helped(x):
    return plain(x) + broken(x).cos()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 1.5))

    def forward(self, x):
        return self.inner(x).relu() * self.scale


class BrokenNet(Net):
    def forward(self, x):
        y = self.inner(x)
        print(end="")
        framejit.graph_break()
        return y.relu() * self.scale


class Holder(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.held = inner

    def forward(self, x):
        return self.held(x).sum(-1, keepdim=True) + x


class BrokenHolder(Holder):
    def forward(self, x):
        y = self.held(x)
        framejit.graph_break()
        print(end="")
        return y.sum(-1, keepdim=True) + x


def holding(inner):
    def hold(x):
        return inner(x).sum(-1, keepdim=True) + x

    return hold


def holding_with_break(inner):
    def hold(x):
        y = inner(x)
        framejit.graph_break()
        print(end="")
        return y.sum(-1, keepdim=True) + x

    return hold


SUBJECTS = {
    "plain": lambda: plain,
    "broken": lambda: broken,
    "helped": lambda: helped,
    "tuned": lambda: tuned(1.5),
    "net": Net,
    "broken_net": BrokenNet,
}
BREAKING = {"broken", "helped", "broken_net"}


# ---- tools


def as_module(fn):
    if isinstance(fn, nn.Module):
        return fn

    class Caller(nn.Module):
        def forward(self, x):
            return fn(x)

    return Caller()


def export(strict):
    def tool(fn, args):
        return torch.export.export(as_module(fn), args, strict=strict).module()

    return tool


def make_fx(functionalize=False, **options):
    def tool(fn, args):
        from torch.fx.experimental.proxy_tensor import make_fx as trace

        call = (lambda *given: fn(*given)) if isinstance(fn, nn.Module) else fn
        if functionalize:
            call = torch.func.functionalize(call)
        return trace(call, **options)(*args)

    return tool


def functional_call(fn, args):
    if not isinstance(fn, nn.Module):
        return None
    values = {
        name: value.detach().clone()
        for name, value in [*fn.named_parameters(), *fn.named_buffers()]
    }
    return lambda *given: torch.func.functional_call(fn, values, given)


class Doubling(torch.utils._python_dispatch.TorchDispatchMode):
    """Changes what an operator gives, so that a mode left out shows."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.ops.aten.relu.default else result


class Tripling(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 3 if getattr(func, "__name__", "") == "relu" else result


def under(make_mode):
    def tool(fn, args):
        def call(*given):
            with make_mode():
                return fn(*given)

        return call

    return tool


def on_fakes(fn, args):
    """What the program gives on fake tensors, as zeros of that size."""

    def call(*given):
        from torch._subclasses.fake_tensor import FakeTensorMode

        with FakeTensorMode(allow_non_fake_inputs=True) as mode:
            result = fn(*(mode.from_tensor(t.detach()) for t in given))
        assert type(result).__name__ == "FakeTensor", type(result)
        return torch.zeros(result.shape, dtype=result.dtype)

    return call


def saved_hooks(fn, args):
    def call(*given):
        with torch.autograd.graph.saved_tensors_hooks(lambda t: t * 1, lambda t: t * 2):
            return fn(*given)

    return call


def flops(fn, args):
    def call(*given):
        from torch.utils.flop_counter import FlopCounterMode

        with FlopCounterMode(display=False) as counter:
            result = fn(*given)
        return result, counter.get_total_flops()

    return call


def transform(wrap):
    def tool(fn, args):
        return wrap(lambda *given: fn(*given))

    return tool


def tangent(fn):
    return lambda x: torch.func.jvp(fn, (x,), (torch.ones_like(x),))


TOOLS: dict[str, Tool] = {
    "compile_eager": lambda fn, args: torch.compile(fn, backend="eager"),
    "compile_aot": lambda fn, args: torch.compile(fn, backend="aot_eager"),
    "compile_dynamic": lambda fn, args: torch.compile(
        fn, backend="eager", dynamic=True
    ),
    "inductor": lambda fn, args: torch.compile(fn),
    "dynamo_disable": lambda fn, args: torch._dynamo.disable(fn),
    "export": export(False),
    "export_strict": export(True),
    "make_fx": make_fx(),
    "make_fx_fake": make_fx(tracing_mode="fake"),
    "make_fx_symbolic": make_fx(tracing_mode="symbolic"),
    "make_fx_pre_dispatch": make_fx(pre_dispatch=True),
    "make_fx_functional": make_fx(functionalize=True),
    "jit_trace": lambda fn, args: torch.jit.trace(fn, args, check_trace=False),
    "jit_script": lambda fn, args: torch.jit.script(fn),
    "symbolic_trace": lambda fn, args: torch.fx.symbolic_trace(fn),
    "vmap": transform(torch.vmap),
    "grad": transform(lambda fn: torch.func.grad(lambda x: fn(x).sum())),
    "jvp": transform(tangent),
    "jacrev": transform(torch.func.jacrev),
    "functionalize": transform(torch.func.functionalize),
    "functional_call": functional_call,
    "fake": on_fakes,
    "dispatch_mode": under(Doubling),
    "function_mode": under(Tripling),
    "inference_mode": under(torch.inference_mode),
    "autocast": under(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "saved_hooks": saved_hooks,
    "flops": flops,
}


# ---- nests: (tool, FrameJIT or nothing, subject, arguments) -> callable


def nests(fj, tool, subject, args):
    """Every nest by name, as a function that builds it."""
    is_module = isinstance(subject, nn.Module)
    hold = Holder if is_module else holding
    hold_with_break = BrokenHolder if is_module else holding_with_break
    return {
        "FT": lambda: fj(tool(subject, args)),
        "TF": lambda: tool(fj(subject), args),
        "F>T": lambda: fj(hold(tool(subject, args))),
        "T>F": lambda: tool(hold(fj(subject)), args),
        "F>>T": lambda: fj(hold_with_break(tool(subject, args))),
        "T>>F": lambda: tool(hold_with_break(fj(subject)), args),
        "FTF": lambda: fj(tool(fj(subject), args)),
        "TFT": lambda: tool(fj(tool(subject, args)), args),
        "F>T>F": lambda: fj(hold(tool(hold(fj(subject)), args))),
        "T>F>T": lambda: tool(hold(fj(hold(tool(subject, args)))), args),
    }


NESTS = list(nests(None, None, None, None))
HISTORIES = ("cold", "inner_first", "outer_first", "script")


def outcome(call, x):
    """Values and gradients, or the exception."""
    x = x.clone().requires_grad_()
    try:
        result = call(x)
    except Exception as error:
        return error
    tensors = result if isinstance(result, tuple) else (result,)
    total = sum(
        t.float().sum()
        for t in tensors
        if isinstance(t, torch.Tensor) and t.requires_grad
    )
    if isinstance(total, torch.Tensor):
        total.backward()
    return [t.detach() if isinstance(t, torch.Tensor) else t for t in tensors], x.grad


def check(found, expected, where):
    if isinstance(expected, Exception):
        assert isinstance(found, Exception), (where, expected)
        return
    if isinstance(found, Exception):
        raise found
    torch.testing.assert_close(found, expected, msg=lambda m: f"{where}: {m}")


def run_case(tool_name, subject_name, nest, history):
    tool = TOOLS[tool_name]
    torch.manual_seed(0)
    subject = SUBJECTS[subject_name]()
    x = torch.randn(4, 4)
    args = (torch.randn(4, 4),)
    plain_subject = copy.deepcopy(subject)
    backend = os.environ.get("NESTING_BACKEND", "native")

    def fj(fn):
        return framejit.compile(fn, backend=backend)

    try:
        reference = nests(lambda fn: fn, tool, plain_subject, args)[nest]()
    except Exception as error:
        reference = error
    if reference is None or (isinstance(reference, Exception) and history != "cold"):
        return
    expected = reference
    if not isinstance(reference, Exception):
        expected = [outcome(reference, value) for value in (x, x + 1, x)]
    if hasattr(torch, "_dynamo"):
        torch._dynamo.reset()

    if history == "script":
        _script.start(backend=backend)
    if history == "inner_first":
        outcome(fj(subject), x)
        # A tool that takes the nest may refuse the subject alone.
        with contextlib.suppress(Exception):
            outcome(tool(subject, args), x)
    if isinstance(expected, Exception):
        try:
            nests(fj, tool, subject, args)[nest]()
        except Exception:
            return
        return  # The tool itself refuses; that we do not is no fault.
    call = nests(fj, tool, subject, args)[nest]()
    if history == "outer_first":
        outcome(call, x)
        outcome(fj(subject), x)
    for reset in (None, framejit.reset, lambda: torch._dynamo.reset(), framejit.reset):
        if reset is not None and history != "cold":
            reset()
        for turn, value in enumerate((x, x + 1, x)):
            check(outcome(call, value), expected[turn], f"call {turn}")
            check(outcome(subject, value), outcome(plain_subject, value), "the subject")
    if history == "script":
        _script.stop()
    assert framejit.counters()["failures"] == 0, "an internal error"
    from framejit import _C

    installs = getattr(_C, "hook_installs", lambda: 0)()
    assert installs == 0, "the hook is still installed"


def forked(case):
    """Runs the case in a child; what went wrong, or ""."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        text = ""
        try:
            run_case(*case)
        except BaseException:
            text = traceback.format_exc()
        os.write(write, text[-4000:].encode())
        os._exit(1 if text else 0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        text = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return f"killed by signal {os.WTERMSIG(status)}"
    return text


def is_known(tool, subject, nest):
    """What does not work, and says so (docs/beside-torch-compile.md)."""
    is_module = subject in ("net", "broken_net")
    if tool == "symbolic_trace":
        return is_module and nest in ("T>F", "T>>F", "F>T>F", "T>F>T")
    return tool == "jit_script" and not is_module and nest == "TFT"


def cases(tool_name):
    for subject in SUBJECTS:
        for nest in NESTS:
            if is_known(tool_name, subject, nest):
                continue
            for history in HISTORIES:
                yield tool_name, subject, nest, history


def main():
    tool_name, *only = sys.argv[1:]
    torch.set_num_threads(1)
    # Once, for all children.
    for name in ("_dynamo", "_subclasses.fake_tensor", "fx.experimental.proxy_tensor"):
        importlib.import_module(f"torch.{name}")
    failures = count = 0
    # One case in so many; 23 divides neither the nests nor the histories.
    share = int(os.environ.get("NESTING_SHARE", "1"))
    first = len(tool_name) % share
    for case in list(cases(tool_name))[first::share]:
        if only and list(case[1 : 1 + len(only)]) != only:
            continue
        count += 1
        text = forked(case)
        if text:
            failures += 1
            print("FAILED", *case)
            print("   ", text.replace("\n", "\n    ") if only else text.strip()[-300:])
            sys.stdout.flush()
    print(f"{tool_name}: {count} cases, {failures} failures")


if __name__ == "__main__":
    main()
