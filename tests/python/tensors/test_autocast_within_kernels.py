"""Kernels that call operators which autocast casts: a graph runs without autocast,
so they are left out of it where it is on."""

import pytest
import torch
from torch import nn

import framejit


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, None])
@pytest.mark.parametrize("kind", ["layer", "encoder", "attention"])
def test_fast_paths_of_attention(kind, dtype):
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
    if kind == "encoder":
        model = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    elif kind == "attention":
        attention = nn.MultiheadAttention(8, 2, batch_first=True)

        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.attention = attention

            def forward(self, x):
                return self.attention(x, x, x, need_weights=False)[0]

        model = Model()
    else:
        model = layer
    model.eval()
    compiled = framejit.compile(model)
    failures = framejit.counters()["failures"]
    for batch in (2, 3, 4, 2):
        x = torch.randn(batch, 3, 8)
        enabled = dtype is not None
        with torch.no_grad(), torch.autocast("cpu", dtype, enabled=enabled):
            expected, got = model(x), compiled(x)
        assert got.dtype == expected.dtype
        torch.testing.assert_close(got, expected)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
    assert framejit.counters()["failures"] == failures
