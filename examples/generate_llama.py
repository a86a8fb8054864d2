"""Text from a Llama-like model, with both kinds of cache.

RMSNorm, rotary positions, grouped heads, SwiGLU. A dynamic cache grows by
torch.cat, so its size changes at each token; a static one is written in place.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from beside import Step, Wrap, main
from torch import nn

SIZES = {  # vocabulary, width, layers, heads, key heads, prompt, tokens
    "small": (64, 32, 2, 4, 2, 6, 8),
    "medium": (1000, 256, 4, 8, 4, 16, 48),
}


class DynamicCache:
    def __init__(self, layers: int) -> None:
        self.keys: list[torch.Tensor | None] = [None] * layers
        self.values: list[torch.Tensor | None] = [None] * layers

    def update(self, layer, key, value, positions):
        if self.keys[layer] is not None:
            key = torch.cat([self.keys[layer], key], dim=2)
            value = torch.cat([self.values[layer], value], dim=2)
        self.keys[layer], self.values[layer] = key, value
        return key, value


class StaticCache:
    def __init__(self, layers: int, *size: int) -> None:
        self.keys = [torch.zeros(size) for _ in range(layers)]
        self.values = [torch.zeros(size) for _ in range(layers)]

    def update(self, layer, key, value, positions):
        self.keys[layer].index_copy_(2, positions, key)
        self.values[layer].index_copy_(2, positions, value)
        return self.keys[layer], self.values[layer]


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.variance_epsilon = eps

    def forward(self, hidden_states):
        dtype = hidden_states.dtype
        hidden_states = hidden_states.to(torch.float32)
        variance = hidden_states.pow(2).mean(-1, keepdim=True)
        hidden_states = hidden_states * torch.rsqrt(variance + self.variance_epsilon)
        return self.weight * hidden_states.to(dtype)


def rotate_half(x):
    half = x.shape[-1] // 2
    return torch.cat((-x[..., half:], x[..., :half]), dim=-1)


def repeat_kv(x, n):
    if n == 1:
        return x
    batch, heads, length, size = x.shape
    x = x[:, :, None].expand(batch, heads, n, length, size)
    return x.reshape(batch, heads * n, length, size)


class Attention(nn.Module):
    def __init__(self, layer, width, heads, key_heads):
        super().__init__()
        self.layer, self.heads, self.key_heads = layer, heads, key_heads
        self.size = width // heads
        self.q_proj = nn.Linear(width, heads * self.size, bias=False)
        self.k_proj = nn.Linear(width, key_heads * self.size, bias=False)
        self.v_proj = nn.Linear(width, key_heads * self.size, bias=False)
        self.o_proj = nn.Linear(heads * self.size, width, bias=False)

    def forward(self, x, cos, sin, mask, cache, positions):
        batch, length, _ = x.shape
        query = self.q_proj(x).view(batch, length, -1, self.size).transpose(1, 2)
        key = self.k_proj(x).view(batch, length, -1, self.size).transpose(1, 2)
        value = self.v_proj(x).view(batch, length, -1, self.size).transpose(1, 2)
        query = query * cos + rotate_half(query) * sin
        key = key * cos + rotate_half(key) * sin
        key, value = cache.update(self.layer, key, value, positions)
        groups = self.heads // self.key_heads
        key, value = repeat_kv(key, groups), repeat_kv(value, groups)
        out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        return self.o_proj(out.transpose(1, 2).reshape(batch, length, -1))


class Block(nn.Module):
    def __init__(self, layer, width, heads, key_heads):
        super().__init__()
        self.input_norm, self.output_norm = RMSNorm(width), RMSNorm(width)
        self.attention = Attention(layer, width, heads, key_heads)
        self.gate = nn.Linear(width, 2 * width, bias=False)
        self.up = nn.Linear(width, 2 * width, bias=False)
        self.down = nn.Linear(2 * width, width, bias=False)

    def forward(self, x, *args):
        x = x + self.attention(self.input_norm(x), *args)
        y = self.output_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocabulary, width, layers, heads, key_heads):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(
            Block(i, width, heads, key_heads) for i in range(layers)
        )
        self.norm = RMSNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        size = width // heads
        powers = torch.arange(0, size, 2).float() / size
        self.register_buffer("inv_freq", 1.0 / (10000.0**powers))

    def forward(self, ids, cache, positions):
        x = self.embed(ids)
        angles = positions[:, None].float() * self.inv_freq[None]
        angles = torch.cat((angles, angles), dim=-1)
        cos, sin = angles.cos(), angles.sin()
        if isinstance(cache, StaticCache):
            seen = torch.arange(cache.keys[0].shape[2])
        else:
            seen = torch.arange(int(ids.shape[1]) + past_length(cache))
        mask = seen[None, :] <= positions[:, None]
        for block in self.blocks:
            x = block(x, cos, sin, mask, cache, positions)
        return self.head(self.norm(x[:, -1]))


def past_length(cache: DynamicCache) -> int:
    first = cache.keys[0]
    return 0 if first is None else first.shape[2]


@torch.no_grad()
def generate(model, prompt, cache, tokens, sample):
    ids, start = prompt, 0
    produced = []
    for _ in range(tokens):
        positions = torch.arange(start, start + ids.shape[1])
        logits = model(ids, cache, positions)
        if sample:
            kept = logits.topk(8).values[:, -1:]
            logits = logits.masked_fill(logits < kept, -torch.inf)
            next_id = torch.multinomial(F.softmax(logits / 0.8, -1), 1)
        else:
            next_id = logits.argmax(-1, keepdim=True)
        start += ids.shape[1]
        ids = next_id
        produced.append(next_id)
    return torch.cat(produced, 1)


def make(size: str, wrap: Wrap) -> Step:
    vocabulary, width, layers, heads, key_heads, length, tokens = SIZES[size]
    torch.manual_seed(0)
    model = Llama(vocabulary, width, layers, heads, key_heads).eval()
    compiled = wrap(model)

    def step() -> list[list[int]]:
        prompt = torch.randint(vocabulary, (2, length))
        texts = []
        for sample in (False, True):
            static = StaticCache(layers, 2, key_heads, length + tokens, width // heads)
            for cache in (DynamicCache(layers), static):
                torch.manual_seed(1)
                texts.append(generate(compiled, prompt, cache, tokens, sample))
        greedy, greedy_static, sampled, sampled_static = texts
        assert greedy.equal(greedy_static)
        assert sampled.equal(sampled_static)
        return torch.cat((greedy, sampled)).tolist()

    return step


if __name__ == "__main__":
    main(make, steps=3)
