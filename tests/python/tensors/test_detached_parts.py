"""What detach() gives is no view to autograd, of whatever it was taken: a part of a
hidden value, beside other results of the same memory, of an input."""

from __future__ import annotations

import pytest
import torch

import framejit
from differential import assert_same

COMPILED = ["aot_eager", "native"]


def last_row(x):
    h = x * 2
    return h[-1].detach(), h[-1]


def beside_the_whole(x):
    h = x * 2
    return h, h[-1].detach(), h.detach()[0], h.detach()


def two_detached(x):
    h = x * 2
    return h.detach(), h[1:].detach(), h[0].detach()[1:]


def turned(x):
    h = (x * 2).t()
    return h.detach(), h, h[0].detach()


def one_of_several(x):
    a, b, c = (x * 2).unbind()
    return a.detach(), b.detach(), c.detach()[:1]


def without_grad(x):
    h = x * 2
    with torch.no_grad():
        return h[0].detach(), h.detach(), h.detach()[1]


def of_the_input(x):
    return x[0].detach(), x.t().detach(), x.detach()[1], x.detach()


def written(x):
    h = x * 2
    d = h[-1].detach()
    d.add_(1)
    return d, h.detach(), h


PROGRAMS = [
    last_row,
    beside_the_whole,
    two_detached,
    turned,
    one_of_several,
    without_grad,
    of_the_input,
    written,
]


def told(outputs, no_views):
    facts = []
    for output in outputs:
        facts += [
            output.detach().clone(),
            output.requires_grad,
            output._version,
            [output.data_ptr() - other.data_ptr() for other in outputs],
        ]
    for place in no_views:
        output = outputs[place]
        facts += [output._is_view(), output._base is None]
        output.detach_()
    return facts


@pytest.mark.parametrize("backend", COMPILED)
@pytest.mark.parametrize("requires_grad", [True, False])
@pytest.mark.parametrize("program", PROGRAMS)
def test_detached_last(program, requires_grad, backend):
    def results(function):
        torch.manual_seed(0)
        return function(torch.rand(3, 2, requires_grad=requires_grad))

    # Views of what the caller does not get are another matter.
    no_views = [i for i, out in enumerate(results(program)) if not out._is_view()]
    assert no_views
    compiled = framejit.compile(program, backend=backend)
    for _ in range(2):
        expected = told(results(program), no_views)
        assert_same(expected, told(results(compiled), no_views), exact=True)
