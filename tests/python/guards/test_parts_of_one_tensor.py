"""Writes from one part of a tensor to another: which are apart at every size."""

import pytest
import torch
import torch.nn.functional as F

import framejit
from differential import _run, compare

SIZES = ((3, 4, 6), (5, 7, 9), (4, 8, 11), (2, 4, 6), (9, 5, 7), (3, 12, 6))


def last_column_first(x):
    y = x.clone()
    y[..., 0:1] = y[..., -1:]
    return y


def last_rows_first(x):
    y = x.clone()
    y[:, :2] = y[:, -2:]
    return y


def first_to_last(x):
    y = x.clone()
    y[-1] = y[0]
    return y


def halves(x):
    y = x.clone()
    n = y.size(2) // 2
    y[..., :n] += y[..., -n:]
    return y


def in_the_middle(x):
    y = torch.cat([x, x, x], 1)
    n = x.size(1)
    y[:, n : 2 * n, 1:] = y[:, 2 * n :, :-1]
    return y


def transposed(x):
    y = x.clone().transpose(1, 2)
    y[:, -1:] = y[:, :1]
    return y


def a_ring(x):
    ring = torch.zeros(x.size(0), 2 * x.size(1), x.size(2))
    ring[:, x.size(1) :] = x
    ring[:, : x.size(1)] = ring[:, x.size(1) :]
    ring[:, :1] *= ring[:, -1:]
    return ring


def padded(x):
    return F.pad(x[None], (1, 2, 2, 0), mode="circular")


APART = (
    last_column_first,
    last_rows_first,
    first_to_last,
    halves,
    transposed,
    a_ring,
    padded,
)


def shifted(x):
    y = x.clone()
    y[:, 1:] = y[:, :-1].clone() + y[:, 1:]
    return y


def shifted_onto_itself(x):
    y = x.clone()
    y[:, :2] = y[:, 1:3]
    return y


def corner(x):
    y = x.clone()
    y[:, :3, :4] = y[:, -3:, -4:]
    return y


def by_strides(x):
    y = x.clone().flatten()
    n = y.numel() // 2
    a = y.as_strided((n,), (1,))
    a.copy_(y.as_strided((n,), (1,), y.numel() - n))
    return y


def every_other(x):
    y = x.clone()
    y[..., ::2][..., :2] = y[..., 1::2][..., :2]
    return y


ALL = (
    *APART,
    in_the_middle,
    shifted,
    shifted_onto_itself,
    corner,
    by_strides,
    every_other,
)


@pytest.mark.parametrize("backend", ("eager", "aot_eager", "native"))
@pytest.mark.parametrize("fn", ALL, ids=lambda fn: fn.__name__)
def test_writes_within_one_tensor(fn, backend):
    compiled = framejit.compile(fn, dynamic=True, backend=backend)
    for number, sizes in enumerate(SIZES):
        x = torch.randn(*sizes)
        expected = _run(fn, (x.clone(),), False, number)
        compare(expected, _run(compiled, (x.clone(),), False, number))
    if fn in APART:
        entries = framejit.inspect(compiled)
        # 2 x 4 x 6: another two sizes of these are equal, or too small.
        assert len(entries) <= 2, [entry.guards for entry in entries]
        assert not any(entry.pins for entry in entries)
