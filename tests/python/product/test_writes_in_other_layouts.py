"""Inputs that are written through a view of another layout, and read afterwards by
what is a kernel and by what is a call of ATen: the memory is the input's, its
order the view's."""

from __future__ import annotations

import pytest
import torch

import framejit

WRITES = {
    "copy": lambda v, a: v.copy_(a.tanh()),
    "mul": lambda v, a: v.mul_(2),
    "tanh": lambda v, a: v.tanh_(),
    "add": lambda v, a: v.add_(a),
    "fill": lambda v, a: v.fill_(0.5),
}
VIEWS = {
    "t": lambda c: c.transpose(-1, -2),
    "itself": lambda c: c,
    "turned": lambda c: c.flip(0).transpose(-1, -2),
    "part": lambda c: c[..., 1:, :].transpose(-1, -2),
    "row": lambda c: c[..., :1, :].transpose(-1, -2),
}
READS = {
    "mm": lambda v, c, b: b @ v,
    "of the input": lambda v, c, b: c @ c.transpose(-1, -2),
    "linear": lambda v, c, b: torch.nn.functional.linear(c, c),
    "addmm": lambda v, c, b: torch.baddbmm(v, v, c) if v.dim() == 3 else None,
    "softmax": lambda v, c, b: torch.softmax(v, -1),
    "sum": lambda v, c, b: (v.sum(0), c.sum(0)),
    "sort": lambda v, c, b: v.sort(-1)[0],
    "itself": lambda v, c, b: v,
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize("write", WRITES)
def test_what_was_written_is_read(write, view, read, isa):
    def f(c, b):
        v = VIEWS[view](c)
        WRITES[write](v, torch.arange(float(v.numel())).view(v.shape))
        return READS[read](v, c, b)

    compiled = framejit.compile(f)
    for shape, wide in (((4, 4), 4), ((4, 3), 4), ((2, 4, 4), 4), ((1, 4), 4)):
        for turned in (False, True):
            # A product takes what fits, or both raise.
            c = torch.randn(*shape)
            if turned:
                c = c.transpose(-1, -2).contiguous().transpose(-1, -2)
            b = torch.randn(*shape[:-2], 2, wide if wide == c.shape[-1] else 3)
            results = []
            for call in (f, compiled):
                mine = c.clone(memory_format=torch.preserve_format)
                try:
                    results.append((call(mine, b.clone()), mine))
                except (RuntimeError, IndexError) as error:
                    results.append((type(error), mine))
            if isinstance(results[0][0], type):
                assert results[0][0] is results[1][0]
            else:
                torch.testing.assert_close(*results)


@pytest.mark.parametrize("mode", ["trunc", "floor", "//"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_whole_quotients_are_rounded_as_eager_rounds_them(mode, dtype, isa):
    def f(a, b):
        whole = a // b if mode == "//" else torch.div(a, b, rounding_mode=mode)
        return whole + 1

    torch.manual_seed(0)
    a = (torch.randn(20_001) * 20).to(dtype)
    b = torch.randn(20_001).to(dtype)
    assert torch.equal(framejit.compile(f)(a, b), f(a, b))
