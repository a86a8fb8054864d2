"""A GPT trained from scratch, in the style of nanoGPT.

The model is compiled, the loop is not: accumulated gradients, clipping, a rate
with warm-up and cosine decay, AdamW with two groups.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from beside import Step, Wrap, main
from torch import nn

SIZES = {  # vocabulary, context, layers, heads, width, batch
    "small": (64, 32, 2, 2, 32, 4),
    "medium": (512, 128, 4, 4, 256, 8),
}


class LayerNorm(nn.Module):
    """With a bias that may be None."""

    def __init__(self, width, bias):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width)) if bias else None

    def forward(self, x):
        return F.layer_norm(x, self.weight.shape, self.weight, self.bias, 1e-5)


class CausalSelfAttention(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.c_attn = nn.Linear(width, 3 * width, bias=False)
        self.c_proj = nn.Linear(width, width, bias=False)
        self.resid_dropout = nn.Dropout(dropout)
        self.heads = heads

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.resid_dropout(self.c_proj(y))


class MLP(nn.Module):
    def __init__(self, width, dropout):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=False)
        self.c_proj = nn.Linear(4 * width, width, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, width, heads, dropout):
        super().__init__()
        self.ln_1 = LayerNorm(width, bias=False)
        self.attn = CausalSelfAttention(width, heads, dropout)
        self.ln_2 = LayerNorm(width, bias=False)
        self.mlp = MLP(width, dropout)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width, dropout=0.1):
        super().__init__()
        self.transformer = nn.ModuleDict(
            {
                "wte": nn.Embedding(vocabulary, width),
                "wpe": nn.Embedding(context, width),
                "drop": nn.Dropout(dropout),
                "h": nn.ModuleList(Block(width, heads, dropout) for _ in range(layers)),
                "ln_f": LayerNorm(width, bias=False),
            }
        )
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.transformer.wte.weight = self.lm_head.weight  # shared
        self.context = context
        self.apply(self._init_weights)

    def _init_weights(self, module):
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, mean=0.0, std=0.02)

    def forward(self, idx, targets=None):
        _, t = idx.size()
        assert t <= self.context, f"{t} tokens, the context has {self.context}"
        pos = torch.arange(0, t, dtype=torch.long, device=idx.device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        x = self.transformer.drop(x)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is None:
            return self.lm_head(x[:, [-1], :]), None
        logits = self.lm_head(x)
        loss = F.cross_entropy(
            logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
        )
        return logits, loss


def configure_optimizer(model, rate):
    parameters = [p for p in model.parameters() if p.requires_grad]
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": 0.1},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.95))


def learning_rate(step, rate=1e-2, warmup=3, last=20):
    if step < warmup:
        return rate * (step + 1) / (warmup + 1)
    ratio = min(1.0, (step - warmup) / (last - warmup))
    return 0.1 * rate + 0.45 * rate * (1 + math.cos(math.pi * ratio))


def make(size: str, wrap: Wrap, accumulate: int = 2) -> Step:
    vocabulary, context, layers, heads, width, batch = SIZES[size]
    torch.manual_seed(0)
    text = torch.randint(vocabulary, (1024,)).repeat(4)  # there is something to learn
    model = GPT(vocabulary, context, layers, heads, width)
    optimizer = configure_optimizer(model, 1e-2)
    compiled = wrap(model)
    steps = 0

    def get_batch():
        starts = torch.randint(len(text) - context, (batch,))
        x = torch.stack([text[i : i + context] for i in starts])
        y = torch.stack([text[i + 1 : i + 1 + context] for i in starts])
        return x, y

    def step() -> float:
        nonlocal steps
        for group in optimizer.param_groups:
            group["lr"] = learning_rate(steps)
        steps += 1
        total = 0.0
        for _ in range(accumulate):
            x, y = get_batch()
            _, loss = compiled(x, y)
            (loss / accumulate).backward()
            total += loss.item() / accumulate
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return total

    return step


if __name__ == "__main__":
    main(make)
