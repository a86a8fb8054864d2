"""Inference tensors: what is written through views of them, and what is refused.

A view of an inference tensor is one, whatever the mode it is made in. Eager refuses
to write to it outside of inference mode (behind the write: the data has changed), and
to save it for a backward; a view of a normal tensor made in inference mode is normal.
"""

from __future__ import annotations

import contextlib
import textwrap

import pytest
import torch

import framejit

BACKENDS = ["eager", "aot_eager", "native"]

VIEWS = {
    "itself": "c",
    "reshaped": "c.view(-1)",
    "item": "c[0]",
    "chain": "c.t()[0].unsqueeze(0)",
    "one of several": "c.split(1)[1]",
    "alias": "torch.ops.aten.alias(c)",
    "strided": "c.as_strided((2,), (1,))",
    "expanded": "c.unsqueeze(0).expand(1, 2, 2)",
    "same": "c.contiguous()",
    "complex": "torch.view_as_complex(c)",
    "detached": "c.detach()",
    "data": "c.data",
    "item of detached": "c.detach()[0]",
    "computed": "c + 1",
}
WRITES = {
    "in place": "v.add_(1)",
    "twice": "v.mul_(2); v.zero_()",
    "assigned": "v[...] = 3",
    "augmented": "v += 1",
    "part": "v[0] = 2",
    "copied": "v.copy_(torch.zeros(v.shape))",
    "out": "torch.mul(v, 2, out=v)",
    "foreach": "torch._foreach_add_([v], 1)",
    "layout": "v.unsqueeze_(0)",
    "data": "v.data = torch.zeros_like(v)",
    "through data": "v.data.add_(1)",
    "detached": "v.detach_()",
    "history": "v.requires_grad_()",
    "other memory": "v.set_(torch.zeros_like(v))",
    "read": "torch.ones(v.shape).copy_(v)",
}
BLOCKS = {
    "no_grad": "torch.no_grad()",
    "enable_grad": "torch.enable_grad()",
    "inference": "torch.inference_mode()",
    "no inference": "torch.inference_mode(False)",
}
CALLS = {
    "normal": contextlib.nullcontext,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


def function(body):
    text = "def f(c):\n" + textwrap.indent(body, "    ")
    made: dict = {"torch": torch}
    exec(text, made)
    return made["f"]


def facts(tensor):
    version = None
    with contextlib.suppress(RuntimeError):
        version = tensor._version
    return (
        tensor.detach().clone().tolist(),
        (tensor.dtype, tensor.stride(), tensor.is_inference()),
        (tensor.requires_grad, version),
    )


def outcome(fn, made_in_inference, call):
    with torch.inference_mode(made_in_inference):
        c = torch.arange(1.0, 5.0).view(2, 2).clone()
    with CALLS[call]():
        try:
            result = [facts(x) if isinstance(x, torch.Tensor) else x for x in fn(c)]
        except Exception as error:
            result = type(error), str(error).splitlines()[0]
    return result, facts(c)


def check(body, backend):
    fn = function(body)
    for created in (False, True):
        for call in CALLS:
            compiled = framejit.compile(fn, backend=backend)
            expected = outcome(fn, created, call)
            actual = outcome(compiled, created, call)
            assert actual == expected, (body, created, call)


def refused(body):
    return RuntimeError in outcome(function(body), True, "normal")[0]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("view", VIEWS)
def test_write_through_view(view, backend):
    for write in WRITES.values():
        check(f"v = {VIEWS[view]}\n{write}\nreturn v, v.is_inference()", backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("block", BLOCKS)
@pytest.mark.parametrize("view", ["itself", "reshaped", "chain", "detached"])
def test_block_in_the_function(view, block, backend):
    mode, made = BLOCKS[block], VIEWS[view]
    for name in ("in place", "part", "out", "history"):
        write = WRITES[name]
        inside = f"v = {made}\nwith {mode}:\n    {write}\nreturn v * 1, v[0]"
        check(inside, backend)
        behind = f"with {mode}:\n    v = {made}\n{write}\nreturn v * 1, v[0]"
        check(behind, backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("view", ["itself", "reshaped", "item", "detached"])
def test_view_of_what_a_block_made(view, backend):
    for write in WRITES.values():
        check(
            "with torch.inference_mode():\n    c = c * 2\n"
            f"v = {VIEWS[view]}\n{write}\nreturn v, c",
            backend,
        )


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("view", VIEWS)
def test_saved_for_backward(view, backend):
    for use in ("v * p", "v + p", "(v * p).sum()", "v.clone() * p"):
        check(
            "p = torch.ones(2, requires_grad=True) * 1\n"
            f"v = {VIEWS[view]}\nr = {use}\nreturn r, v",
            backend,
        )


def test_eager_refuses():
    """What the tests above are about."""
    for view in ("itself", "reshaped", "item", "chain", "alias", "item of detached"):
        for write in ("in place", "part", "out", "foreach", "history"):
            assert refused(f"v = {VIEWS[view]}\n{WRITES[write]}\nreturn []")
    for view in ("detached", "data", "computed"):
        assert not refused(f"v = {VIEWS[view]}\nv.add_(1)\nreturn []")
    assert refused("return [c.view(-1) * torch.ones(4, requires_grad=True)]")


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("backend", BACKENDS)
def test_one_function_in_turn(backend, dynamic):
    """Entries for normal tensors and refusals for inference tensors, of many sizes."""

    def fn(c):
        c.view(-1)[1:].add_(1)
        return c * 2, c.view(-1)

    compiled = framejit.compile(fn, backend=backend, dynamic=dynamic)
    for size in (2, 3, 5, 2):
        for made_in_inference in (False, True, False):
            for mode in CALLS.values():
                seen = []
                for run in (fn, compiled):
                    with torch.inference_mode(made_in_inference):
                        c = torch.arange(2.0 * size).view(2, size).clone()
                    with mode():
                        try:
                            result = [facts(x) for x in run(c)]
                        except RuntimeError as error:
                            result = str(error).splitlines()[0]
                    seen.append((result, facts(c)))
                assert seen[0] == seen[1], (size, made_in_inference, mode)
