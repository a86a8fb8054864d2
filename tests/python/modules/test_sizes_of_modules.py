"""Attention (torch's fast path and the other), transformers and bags of embeddings over
sizes that change: two entries, whatever the mode."""

import warnings

import pytest
import torch
from torch import nn

import framejit


def attention(**options):
    def call(module, batch, length):
        x = torch.randn(batch, length, 32)
        return module(x, x, x, **options)

    return lambda: nn.MultiheadAttention(32, 4, batch_first=True), call


def padded(module, batch, length):
    x, mask = torch.randn(batch, length, 32), torch.zeros(batch, length).bool()
    return module(x, x, x, key_padding_mask=mask)


def crossed(module, batch, length):
    x, y = torch.randn(batch, length, 32), torch.randn(batch, length + 2, 32)
    return module(x, y, y)


def one(module, batch, length):
    return module(torch.randn(batch, length, 32))


def two(module, batch, length):
    return module(torch.randn(batch, length, 32), torch.randn(batch, length + 2, 32))


def masked(module, batch, length):
    mask = torch.zeros(batch, length).bool()
    return module(torch.randn(batch, length, 32), src_key_padding_mask=mask)


def rows(module, batch, length):
    return module(torch.randint(10, (batch, length)))


def offsets(module, batch, length):
    places = torch.arange(0, batch * length, length)
    return module(torch.randint(10, (batch * length,)), places)


def layer(kind):
    return kind(32, 4, 64, batch_first=True)


MODULES = {
    "attention": attention(),
    "attention_without_weights": attention(need_weights=False),
    "attention_of_each_head": attention(average_attn_weights=False),
    "attention_padded": (attention()[0], padded),
    "attention_crossed": (attention()[0], crossed),
    "encoder_layer": (lambda: layer(nn.TransformerEncoderLayer), one),
    "encoder": (
        lambda: nn.TransformerEncoder(layer(nn.TransformerEncoderLayer), 2),
        masked,
    ),
    "decoder_layer": (lambda: layer(nn.TransformerDecoderLayer), two),
    "transformer": (lambda: nn.Transformer(32, 4, 1, 1, 64, batch_first=True), two),
    "bag": (lambda: nn.EmbeddingBag(10, 4), rows),
    "bag_of_offsets": (lambda: nn.EmbeddingBag(10, 4, mode="sum"), offsets),
    "bag_of_maxima": (lambda: nn.EmbeddingBag(10, 4, mode="max"), offsets),
}
SIZES = ((2, 5), (3, 6), (4, 7), (5, 9), (6, 11), (7, 13))


def gradients(result, module):
    first = result[0] if isinstance(result, tuple) else result
    if not first.requires_grad:
        return []
    return torch.autograd.grad(first.sin().sum(), list(module.parameters()))


@pytest.mark.parametrize("name", MODULES)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("grad", [False, True])
def test_two_entries(name, training, grad):
    make, call = MODULES[name]
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module = make().train(training)
    for part in module.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
        if isinstance(part, nn.MultiheadAttention):
            part.dropout = 0.0
    compiled = framejit.compile(module)
    with torch.set_grad_enabled(grad), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for batch, length in SIZES:
            torch.manual_seed(1)
            expected = call(module, batch, length)
            torch.manual_seed(1)
            got = call(compiled, batch, length)
            torch.testing.assert_close(got, expected)
            torch.testing.assert_close(
                gradients(got, module), gradients(expected, module)
            )
    assert len(framejit.inspect(compiled)) <= 2
