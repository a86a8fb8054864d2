"""Attention over sequences of changing lengths is compiled at most three times: for
the first length, for any, and for length one, and its values and gradients are
eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F

import framejit

LENGTHS = (5, 6, 7, 8, 1, 11, 1, 3)
Attention = Callable[..., torch.Tensor]


def plain(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v)


def causal(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def masked(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


def masked_by_bool(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask > -1)


def dropout(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, dropout_p=0.25)


def grouped(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, enable_gqa=True)


def grouped_and_masked(q, k, v, mask):
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, enable_gqa=True)


def grouped_by_expand(q, k, v, mask):
    batch, heads, length, width = k.shape
    shape = (batch, heads, q.shape[1] // heads, length, width)
    k, v = (
        t[:, :, None].expand(shape).reshape(batch, -1, length, width) for t in (k, v)
    )
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def grouped_by_repeat(q, k, v, mask):
    k, v = (t.repeat_interleave(q.shape[1] // t.shape[1], 1) for t in (k, v))
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


SAME_HEADS = (plain, causal, masked, masked_by_bool, dropout)
GROUPED = (grouped, grouped_and_masked, grouped_by_expand, grouped_by_repeat)


def inputs(length: int, key_heads: int, dtype: torch.dtype, train: bool) -> list:
    torch.manual_seed(length)

    def part(heads: int) -> torch.Tensor:
        return torch.randn(2, heads, length, 8, dtype=dtype, requires_grad=train)

    mask = torch.randn(2, 1, length, length, dtype=dtype)
    return [part(4), part(key_heads), part(key_heads), mask]


def outcome(attention: Attention, tensors: list, train: bool) -> list[torch.Tensor]:
    torch.manual_seed(0)
    result = attention(*tensors)
    if not train:
        return [result]
    return [result, *torch.autograd.grad(result.sum(), tensors[:3])]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("train", [False, True])
@pytest.mark.parametrize("attention", SAME_HEADS + GROUPED)
def test_lengths(attention: Attention, train: bool, dtype: torch.dtype) -> None:
    compiled = framejit.compile(attention)
    heads = 2 if attention in GROUPED else 4
    for length in LENGTHS:
        tensors = inputs(length, heads, dtype, train)
        expected = outcome(attention, tensors, train)
        for mine, theirs in zip(
            outcome(compiled, tensors, train), expected, strict=True
        ):
            assert mine.stride() == theirs.stride()
            torch.testing.assert_close(mine, theirs)
    assert len(framejit.inspect(compiled)) <= 3


@pytest.mark.parametrize("heads", [(4, 3), (3, 4)])
def test_heads_that_do_not_divide(heads: tuple[int, int]) -> None:
    q, k = torch.randn(2, heads[0], 5, 8), torch.randn(2, heads[1], 5, 8)
    with pytest.raises(Exception) as eager:  # noqa: PT011
        F.scaled_dot_product_attention(q, k, k, enable_gqa=True)
    compiled = framejit.compile(grouped)
    for _ in range(2):
        with pytest.raises(type(eager.value)) as mine:
            compiled(q, k, k, None)
        assert str(mine.value) == str(eager.value)
