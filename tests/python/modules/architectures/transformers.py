"""Sequences by attention."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Optional

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable

from architectures.registry import architecture, tokens, vectors


@dataclass
class GPTConfig:
    block_size: int = 16
    vocab_size: int = 20
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 8
    dropout: float = 0.1
    bias: bool = True


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.attn_dropout = nn.Dropout(config.dropout)
        self.n_head, self.n_embd, self.dropout = (
            config.n_head,
            config.n_embd,
            config.dropout,
        )
        self.flash = (
            hasattr(torch.nn.functional, "scaled_dot_product_attention") and config.bias
        )
        if not self.flash:
            print("WARNING: using slow attention")
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer(
            "bias", mask.view(1, 1, config.block_size, config.block_size)
        )

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        if self.flash:
            y = F.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=None,
                dropout_p=self.dropout if self.training else 0,
                is_causal=True,
            )
        else:
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            y = self.attn_dropout(F.softmax(att, dim=-1)) @ v
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)


class GPTBlock(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(config.n_embd), nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.mlp = nn.Sequential(
            nn.Linear(config.n_embd, 2 * config.n_embd),
            nn.GELU(),
            nn.Linear(2 * config.n_embd, config.n_embd),
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlp(self.ln_2(x))
        return x


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(config.vocab_size, config.n_embd),
                wpe=nn.Embedding(config.block_size, config.n_embd),
                drop=nn.Dropout(config.dropout),
                h=nn.ModuleList([GPTBlock(config) for _ in range(config.n_layer)]),
                ln_f=nn.LayerNorm(config.n_embd),
            )
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, idx, targets=None):
        device = idx.device
        b, t = idx.size()
        assert t <= self.config.block_size, (
            f"Cannot forward sequence of length {t}, block size is only {self.config.block_size}"
        )
        pos = torch.arange(0, t, dtype=torch.long, device=device)
        x = self.transformer.drop(self.transformer.wte(idx) + self.transformer.wpe(pos))
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is not None:
            logits = self.lm_head(x)
            loss = F.cross_entropy(
                logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1
            )
        else:
            logits = self.lm_head(x[:, [-1], :])
            loss = None
        return logits, loss


@architecture
def gpt():
    def inputs(batch):
        ids = torch.randint(0, 20, (batch, 7))
        return ids[:, :-1], ids[:, 1:].contiguous()

    return GPT(GPTConfig()), inputs


@architecture
def gpt_slow_attention():
    return GPT(GPTConfig(bias=False)), tokens()


class BertLayer(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads, self.head_dim = heads, hidden // heads
        self.query, self.key, self.value = (nn.Linear(hidden, hidden) for _ in range(3))
        self.dense, self.norm = (
            nn.Linear(hidden, hidden),
            nn.LayerNorm(hidden, eps=1e-12),
        )
        self.dropout = nn.Dropout(0.1)

    def transpose_for_scores(self, x):
        new_shape = x.size()[:-1] + (self.heads, self.head_dim)
        return x.view(*new_shape).permute(0, 2, 1, 3)

    def forward(self, hidden_states, attention_mask=None, output_attentions=False):
        q, k, v = (
            self.transpose_for_scores(f(hidden_states))
            for f in (self.query, self.key, self.value)
        )
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(self.head_dim)
        if attention_mask is not None:
            scores = scores + attention_mask
        probs = self.dropout(nn.Softmax(dim=-1)(scores))
        context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous()
        context = context.view(*(context.size()[:-2] + (self.heads * self.head_dim,)))
        out = self.norm(self.dense(context) + hidden_states)
        return (out, probs) if output_attentions else (out,)


class Bert(nn.Module):
    def __init__(self, vocab=20, hidden=8, layers=2):
        super().__init__()
        self.word, self.position, self.kind = (
            nn.Embedding(n, hidden) for n in (vocab, 16, 2)
        )
        self.register_buffer("position_ids", torch.arange(16).expand((1, -1)))
        self.layer = nn.ModuleList([BertLayer(hidden, 2) for _ in range(layers)])
        self.pooler = nn.Linear(hidden, hidden)

    @property
    def dtype(self) -> torch.dtype:
        return next(self.parameters()).dtype

    def forward(
        self,
        input_ids,
        attention_mask=None,
        token_type_ids=None,
        output_hidden_states=True,
        **kwargs,
    ):
        if input_ids is None:
            raise ValueError("You have to specify input_ids")
        seq_length = input_ids.size()[1]
        if attention_mask is None:
            attention_mask = torch.ones(input_ids.size(), device=input_ids.device)
        if token_type_ids is None:
            token_type_ids = torch.zeros_like(input_ids)
        extended = attention_mask[:, None, None, :].to(dtype=self.dtype)
        extended = (1.0 - extended) * torch.finfo(self.dtype).min
        x = (
            self.word(input_ids)
            + self.position(self.position_ids[:, :seq_length])
            + self.kind(token_type_ids)
        )
        all_hidden_states = () if output_hidden_states else None
        all_attentions = ()
        for i, layer in enumerate(self.layer):
            if output_hidden_states:
                all_hidden_states = all_hidden_states + (x,)
            outputs = layer(x, extended, output_attentions=True)
            x = outputs[0]
            all_attentions += outputs[1:]
        pooled = torch.tanh(self.pooler(x[:, 0]))
        return tuple(
            v for v in [x, pooled, all_hidden_states, all_attentions] if v is not None
        )


@architecture
def bert():
    def inputs(batch):
        mask = torch.ones(batch, 6)
        mask[0, 4:] = 0
        return torch.randint(0, 20, (batch, 6)), mask

    return Bert(), inputs


def clones(module, N):
    return nn.ModuleList([copy.deepcopy(module) for _ in range(N)])


def subsequent_mask(size):
    attn_shape = (1, size, size)
    mask = torch.triu(torch.ones(attn_shape), diagonal=1).type(torch.uint8)
    return mask == 0


def attention(query, key, value, mask=None, dropout=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = scores.softmax(dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


class MultiHeadedAttention(nn.Module):
    def __init__(self, h, d_model, dropout=0.1):
        super().__init__()
        self.d_k, self.h = d_model // h, h
        self.linears = clones(nn.Linear(d_model, d_model), 4)
        self.attn = None
        self.dropout = nn.Dropout(p=dropout)

    def forward(self, query, key, value, mask=None):
        if mask is not None:
            mask = mask.unsqueeze(1)
        nbatches = query.size(0)
        query, key, value = [
            lin(x).view(nbatches, -1, self.h, self.d_k).transpose(1, 2)
            for lin, x in zip(self.linears, (query, key, value))
        ]
        x, self.attn = attention(query, key, value, mask=mask, dropout=self.dropout)
        x = x.transpose(1, 2).contiguous().view(nbatches, -1, self.h * self.d_k)
        del query
        del key
        del value
        return self.linears[-1](x)


class SublayerConnection(nn.Module):
    def __init__(self, size, dropout):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(size), nn.Dropout(dropout)

    def forward(self, x, sublayer):
        return x + self.dropout(sublayer(self.norm(x)))


class AnnotatedTransformer(nn.Module):
    """Encoder and decoder in the style of the well-known notebook."""

    def __init__(self, d=8):
        super().__init__()
        self.src_embed, self.tgt_embed = nn.Embedding(20, d), nn.Embedding(20, d)
        pe = torch.zeros(32, d)
        position = torch.arange(0, 32).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d, 2) * -(math.log(10000.0) / d))
        pe[:, 0::2], pe[:, 1::2] = (
            torch.sin(position * div_term),
            torch.cos(position * div_term),
        )
        self.register_buffer("pe", pe.unsqueeze(0))
        self.self_attn, self.src_attn = (
            MultiHeadedAttention(2, d),
            MultiHeadedAttention(2, d),
        )
        self.enc_attn = MultiHeadedAttention(2, d)
        self.sublayer = clones(SublayerConnection(d, 0.1), 3)

    def positional(self, x):
        return x + Variable(self.pe[:, : x.size(1)], requires_grad=False)

    def encode(self, src, src_mask):
        x = self.positional(self.src_embed(src))
        return self.sublayer[0](x, lambda x: self.enc_attn(x, x, x, src_mask))

    def decode(self, memory, src_mask, tgt, tgt_mask):
        m = memory
        x = self.positional(self.tgt_embed(tgt))
        x = self.sublayer[1](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        return self.sublayer[2](x, lambda x: self.src_attn(x, m, m, src_mask))

    def forward(self, src, tgt):
        src_mask = (src != 0).unsqueeze(-2)
        tgt_mask = (tgt != 0).unsqueeze(-2) & subsequent_mask(tgt.size(-1)).type_as(
            src_mask.data
        )
        return self.decode(self.encode(src, src_mask), src_mask, tgt, tgt_mask)


@architecture
def annotated_transformer():
    return AnnotatedTransformer(), lambda b: (
        torch.randint(1, 20, (b, 5)),
        torch.randint(1, 20, (b, 4)),
    )


class TransformerXL(nn.Module):
    def __init__(self, d=8, mem_len=4):
        super().__init__()
        self.emb, self.qkv, self.r = (
            nn.Embedding(20, d),
            nn.Linear(d, 3 * d),
            nn.Linear(d, d),
        )
        self.u, self.v = nn.Parameter(torch.randn(d)), nn.Parameter(torch.randn(d))
        self.mem_len = mem_len
        inv_freq = 1 / (10000 ** (torch.arange(0.0, d, 2.0) / d))
        self.register_buffer("inv_freq", inv_freq)

    @staticmethod
    def _rel_shift(x, zero_triu=False):
        zero_pad = torch.zeros(
            (x.size(0), x.size(1), 1), device=x.device, dtype=x.dtype
        )
        x_padded = torch.cat([zero_pad, x], dim=2)
        x_padded = x_padded.view(x.size(0), x.size(2) + 1, x.size(1))
        x = x_padded[:, 1:].view_as(x)
        if zero_triu:
            ones = torch.ones((x.size(1), x.size(2)))
            x = x * torch.tril(ones, x.size(2) - x.size(1))[None]
        return x

    def forward(self, data, *mems):
        mems = mems[0] if mems else None
        h = self.emb(data)
        cat = torch.cat([mems, h], 1) if mems is not None else h
        qlen, klen = h.size(1), cat.size(1)
        q = self.qkv(h)[..., :8]
        _, k, v = self.qkv(cat).chunk(3, -1)
        pos_seq = torch.arange(klen - 1, -1, -1.0, device=h.device, dtype=h.dtype)
        sinusoid = torch.outer(pos_seq, self.inv_freq)
        r = self.r(torch.cat([sinusoid.sin(), sinusoid.cos()], dim=-1))
        AC = torch.einsum("bid,bjd->bij", q + self.u, k)
        BD = self._rel_shift(torch.einsum("bid,jd->bij", q + self.v, r))
        mask = torch.triu(h.new_ones(qlen, klen), diagonal=1 + klen - qlen).bool()
        score = ((AC + BD) * 8**-0.5).masked_fill(mask[None], -float("inf"))
        out = score.softmax(-1) @ v
        with torch.no_grad():
            new_mems = cat[:, max(0, klen - self.mem_len) :].detach()
        return [out, new_mems]


@architecture
def transformer_xl():
    return TransformerXL(), lambda b: (
        torch.randint(0, 20, (b, 4)),
        torch.randn(b, 3, 8),
    )


class Conformer(nn.Module):
    def __init__(self, d=8):
        super().__init__()
        self.ff1, self.ff2 = nn.Linear(d, d), nn.Linear(d, d)
        self.attn = nn.MultiheadAttention(d, 2, batch_first=True)
        self.pointwise, self.depthwise = (
            nn.Conv1d(d, 2 * d, 1),
            nn.Conv1d(d, d, 3, padding=1, groups=d),
        )
        self.batch_norm, self.norms = (
            nn.BatchNorm1d(d),
            nn.ModuleList(nn.LayerNorm(d) for _ in range(3)),
        )

    def forward(self, x, lengths):
        pad = torch.arange(x.size(1), device=x.device)[None, :] >= lengths[:, None]
        x = x + 0.5 * F.silu(self.ff1(self.norms[0](x)))
        y = self.norms[1](x)
        y, _ = self.attn(y, y, y, key_padding_mask=pad, need_weights=False)
        x = x + y
        y = F.glu(self.pointwise(self.norms[2](x).transpose(1, 2)), dim=1)
        y = F.silu(self.batch_norm(self.depthwise(y))).transpose(1, 2)
        return (x + y).masked_fill(pad.unsqueeze(-1), 0.0)


@architecture
def conformer():
    return Conformer(), lambda b: (torch.randn(b, 6, 8), torch.arange(b) + 3)


class RMSNorm(nn.Module):
    def __init__(self, dim: int, eps: float = 1e-6):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(dim))

    def _norm(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)

    def forward(self, x):
        return self._norm(x.float()).type_as(x) * self.weight


def precompute_freqs_cis(dim: int, end: int, theta: float = 10000.0):
    freqs = 1.0 / (theta ** (torch.arange(0, dim, 2)[: (dim // 2)].float() / dim))
    freqs = torch.outer(torch.arange(end), freqs).float()
    return torch.cos(freqs), torch.sin(freqs)


def apply_rotary(x, cos, sin):
    x1, x2 = x[..., ::2], x[..., 1::2]
    return torch.stack((x1 * cos - x2 * sin, x1 * sin + x2 * cos), dim=-1).flatten(-2)


class LlamaAttention(nn.Module):
    """Grouped queries, rotary positions and a cache written in place."""

    def __init__(self, dim=16, n_heads=4, n_kv_heads=2, max_batch=8, max_seq=16):
        super().__init__()
        self.n_heads, self.n_kv_heads, self.head_dim = (
            n_heads,
            n_kv_heads,
            dim // n_heads,
        )
        self.n_rep = n_heads // n_kv_heads
        self.wq = nn.Linear(dim, dim, bias=False)
        self.wk = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wv = nn.Linear(dim, n_kv_heads * self.head_dim, bias=False)
        self.wo, self.norm = nn.Linear(dim, dim, bias=False), RMSNorm(dim)
        self.register_buffer(
            "cache_k",
            torch.zeros(max_batch, max_seq, n_kv_heads, self.head_dim),
            persistent=False,
        )
        self.register_buffer(
            "cache_v",
            torch.zeros(max_batch, max_seq, n_kv_heads, self.head_dim),
            persistent=False,
        )
        cos, sin = precompute_freqs_cis(self.head_dim, max_seq)
        self.register_buffer("cos", cos)
        self.register_buffer("sin", sin)

    def forward(
        self, x: torch.Tensor, start_pos: int = 0, mask: Optional[torch.Tensor] = None
    ):
        bsz, seqlen, _ = x.shape
        x = self.norm(x)
        xq = self.wq(x).view(bsz, seqlen, self.n_heads, self.head_dim)
        xk = self.wk(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        xv = self.wv(x).view(bsz, seqlen, self.n_kv_heads, self.head_dim)
        cos = self.cos[start_pos : start_pos + seqlen].view(1, seqlen, 1, -1)
        sin = self.sin[start_pos : start_pos + seqlen].view(1, seqlen, 1, -1)
        xq, xk = apply_rotary(xq, cos, sin), apply_rotary(xk, cos, sin)
        self.cache_k[:bsz, start_pos : start_pos + seqlen] = xk.detach()
        self.cache_v[:bsz, start_pos : start_pos + seqlen] = xv.detach()
        keys = self.cache_k[:bsz, : start_pos + seqlen].repeat_interleave(self.n_rep, 2)
        values = self.cache_v[:bsz, : start_pos + seqlen].repeat_interleave(
            self.n_rep, 2
        )
        xq, keys, values = (t.transpose(1, 2) for t in (xq, keys, values))
        scores = torch.matmul(xq, keys.transpose(2, 3)) / math.sqrt(self.head_dim)
        if mask is None and seqlen > 1:
            mask = torch.full((seqlen, seqlen), float("-inf"), device=x.device)
            mask = torch.triu(mask, diagonal=1)
            mask = torch.hstack([torch.zeros((seqlen, start_pos)), mask]).type_as(x)
        if mask is not None:
            scores = scores + mask
        out = torch.matmul(F.softmax(scores.float(), dim=-1).type_as(xq), values)
        return self.wo(out.transpose(1, 2).contiguous().view(bsz, seqlen, -1))


@architecture
def llama_attention_cache():
    return LlamaAttention(), vectors(4, 16)


class Performer(nn.Module):
    def __init__(self, dim=8, features=12):
        super().__init__()
        self.qkv = nn.Linear(dim, 3 * dim)
        block = torch.linalg.qr(torch.randn(dim, dim))[0]
        self.register_buffer("projection_matrix", torch.cat([block, block])[:features])

    def kernel(self, data, is_query, eps=1e-4):
        b, n, d = data.shape
        data_normalizer = data.shape[-1] ** -0.25
        projection = self.projection_matrix[None].expand(b, -1, -1).type_as(data)
        data_dash = torch.einsum(
            "...id,...jd->...ij", (data_normalizer * data), projection
        )
        diag_data = (
            (torch.sum(data**2, dim=-1) / 2.0) * (data_normalizer**2)
        ).unsqueeze(dim=-1)
        top = (
            torch.amax(data_dash, dim=-1, keepdim=True)
            if is_query
            else torch.amax(data_dash, dim=(-1, -2), keepdim=True)
        )
        return projection.shape[1] ** -0.5 * (
            torch.exp(data_dash - diag_data - top.detach()) + eps
        )

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        q, k = self.kernel(q, True), self.kernel(k, False)
        k_cumsum = k.sum(dim=-2)
        D_inv = 1.0 / torch.einsum("...nd,...d->...n", q, k_cumsum.type_as(q))
        context = torch.einsum("...nd,...ne->...de", k, v)
        return torch.einsum("...de,...nd,...n->...ne", context, q, D_inv)


@architecture
def performer():
    return Performer(), vectors(5, 8)


@architecture
def transformer_module():
    class Wrapper(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = nn.Transformer(8, 2, 1, 1, 16, batch_first=True)

        def forward(self, src, tgt):
            mask = self.model.generate_square_subsequent_mask(tgt.size(1))
            return self.model(src, tgt, tgt_mask=mask)

    return Wrapper(), lambda b: (torch.randn(b, 5, 8), torch.randn(b, 4, 8))
