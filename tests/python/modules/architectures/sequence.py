"""Language models, sequence-to-sequence models and audio networks."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass, field
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


class Seq2Seq(nn.Module):
    """GRU encoder, attention decoder stepping in a Python loop."""

    def __init__(self, vocab=20, hid=8):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hid)
        self.encoder = nn.GRU(hid, hid, bidirectional=True, batch_first=True)
        self.fc, self.attn = nn.Linear(2 * hid, hid), nn.Linear(3 * hid, hid)
        self.v = nn.Parameter(torch.rand(hid))
        self.decoder = nn.GRUCell(3 * hid, hid)
        self.out = nn.Linear(hid, vocab)
        self.vocab = vocab

    def forward(self, src, trg):
        outputs, hidden = self.encoder(self.embedding(src))
        hidden = torch.tanh(
            self.fc(torch.cat((hidden[-2, :, :], hidden[-1, :, :]), dim=1))
        )
        batch_size, max_len = trg.shape
        result = torch.zeros(max_len, batch_size, self.vocab).to(src.device)
        token = trg[:, 0]
        for t in range(1, max_len):
            repeated = hidden.unsqueeze(1).repeat(1, outputs.shape[1], 1)
            energy = torch.tanh(self.attn(torch.cat((repeated, outputs), dim=2)))
            a = F.softmax(energy @ self.v, dim=1).unsqueeze(1)
            weighted = torch.bmm(a, outputs).squeeze(1)
            hidden = self.decoder(
                torch.cat((self.embedding(token), weighted), dim=1), hidden
            )
            prediction = self.out(hidden)
            result[t] = prediction
            token = prediction.argmax(1)
        return result


@architecture
def seq2seq_attention():
    return Seq2Seq(), lambda b: (
        torch.randint(0, 20, (b, 5)),
        torch.randint(0, 20, (b, 4)),
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


class RNNModel(nn.Module):
    """Language model with a recurrent module chosen by name."""

    def __init__(
        self,
        rnn_type,
        ntoken=20,
        ninp=8,
        nhid=8,
        nlayers=2,
        dropout=0.2,
        tie_weights=True,
    ):
        super(RNNModel, self).__init__()
        self.drop = nn.Dropout(dropout)
        self.encoder = nn.Embedding(ntoken, ninp)
        if rnn_type in ["LSTM", "GRU"]:
            self.rnn = getattr(nn, rnn_type)(ninp, nhid, nlayers, dropout=dropout)
        else:
            self.rnn = nn.RNN(ninp, nhid, nlayers, nonlinearity="relu", dropout=dropout)
        self.decoder = nn.Linear(nhid, ntoken)
        if tie_weights:
            self.decoder.weight = self.encoder.weight
        self.rnn_type, self.nhid, self.nlayers = rnn_type, nhid, nlayers

    def init_hidden(self, bsz):
        weight = next(self.parameters())
        if self.rnn_type == "LSTM":
            return (
                weight.new_zeros(self.nlayers, bsz, self.nhid),
                weight.new_zeros(self.nlayers, bsz, self.nhid),
            )
        else:
            return weight.new_zeros(self.nlayers, bsz, self.nhid)

    def forward(self, input):
        hidden = self.init_hidden(input.size(1))
        emb = self.drop(self.encoder(input))
        output, hidden = self.rnn(emb, hidden)
        decoded = self.decoder(self.drop(output))
        return F.log_softmax(decoded.view(-1, 20), dim=1), hidden


@architecture
def lstm_language_model():
    return RNNModel("LSTM"), lambda b: (torch.randint(0, 20, (5, b)),)


@architecture
def gru_language_model():
    return RNNModel("GRU"), lambda b: (torch.randint(0, 20, (5, b)),)


@architecture
def rnn_language_model():
    return RNNModel("RNN_RELU"), lambda b: (torch.randint(0, 20, (5, b)),)


class HandLSTM(nn.Module):
    def __init__(self, input_sz=4, hidden_sz=6):
        super().__init__()
        self.W = nn.Parameter(torch.Tensor(input_sz, hidden_sz * 4))
        self.U = nn.Parameter(torch.Tensor(hidden_sz, hidden_sz * 4))
        self.bias = nn.Parameter(torch.Tensor(hidden_sz * 4))
        self.hidden_size = hidden_sz
        stdv = 1.0 / math.sqrt(self.hidden_size)
        for weight in self.parameters():
            weight.data.uniform_(-stdv, stdv)

    def forward(self, x, init_states=None):
        bs, seq_sz, _ = x.size()
        hidden_seq = []
        if init_states is None:
            h_t, c_t = (
                torch.zeros(bs, self.hidden_size).to(x.device),
                torch.zeros(bs, self.hidden_size).to(x.device),
            )
        else:
            h_t, c_t = init_states
        HS = self.hidden_size
        for t in range(seq_sz):
            x_t = x[:, t, :]
            gates = x_t @ self.W + h_t @ self.U + self.bias
            i_t, f_t, g_t, o_t = (
                torch.sigmoid(gates[:, :HS]),
                torch.sigmoid(gates[:, HS : HS * 2]),
                torch.tanh(gates[:, HS * 2 : HS * 3]),
                torch.sigmoid(gates[:, HS * 3 :]),
            )
            c_t = f_t * c_t + i_t * g_t
            h_t = o_t * torch.tanh(c_t)
            hidden_seq.append(h_t.unsqueeze(0))
        hidden_seq = torch.cat(hidden_seq, dim=0).transpose(0, 1).contiguous()
        return hidden_seq, (h_t, c_t)


@architecture
def lstm_by_hand():
    return HandLSTM(), vectors(5, 4)


class TextCNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(20, 8)
        self.convs = nn.ModuleList([nn.Conv2d(1, 4, (K, 8)) for K in [2, 3]])
        self.fc1 = nn.Linear(8, 3)

    def forward(self, x):
        x = self.embed(x).unsqueeze(1)
        x = [F.relu(conv(x)).squeeze(3) for conv in self.convs]
        x = [F.max_pool1d(i, i.size(2)).squeeze(2) for i in x]
        return self.fc1(F.dropout(torch.cat(x, 1), 0.5, self.training))


@architecture
def text_cnn():
    return TextCNN(), tokens()


class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super().__init__()
        self.chomp_size = chomp_size

    def forward(self, x):
        return x[:, :, : -self.chomp_size].contiguous()


class TemporalBlock(nn.Module):
    def __init__(self, n_inputs, n_outputs, kernel_size, dilation):
        super().__init__()
        padding = (kernel_size - 1) * dilation
        conv = nn.Conv1d(
            n_inputs, n_outputs, kernel_size, padding=padding, dilation=dilation
        )
        self.conv1 = nn.utils.weight_norm(conv)
        self.net = nn.Sequential(
            self.conv1, Chomp1d(padding), nn.ReLU(), nn.Dropout(0.2)
        )
        self.downsample = (
            nn.Conv1d(n_inputs, n_outputs, 1) if n_inputs != n_outputs else None
        )
        self.relu = nn.ReLU()

    def forward(self, x):
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return self.relu(out + res)


@architecture
def tcn():
    return nn.Sequential(
        *[TemporalBlock(3 if i == 0 else 6, 6, 2, 2**i) for i in range(3)]
    ), vectors(3, 12)


class WaveNet(nn.Module):
    def __init__(self, layers=2, blocks=2, channels=6):
        super().__init__()
        self.start = nn.Conv1d(1, channels, 1)
        self.filter_convs, self.gate_convs = nn.ModuleList(), nn.ModuleList()
        self.residual_convs, self.skip_convs = nn.ModuleList(), nn.ModuleList()
        self.dilations, self.receptive_field = [], 1
        for b in range(blocks):
            new_dilation = 1
            for i in range(layers):
                self.dilations.append((new_dilation, i))
                self.filter_convs.append(
                    nn.Conv1d(channels, channels, 2, dilation=new_dilation)
                )
                self.gate_convs.append(
                    nn.Conv1d(channels, channels, 2, dilation=new_dilation)
                )
                self.residual_convs.append(nn.Conv1d(channels, channels, 1))
                self.skip_convs.append(nn.Conv1d(channels, channels, 1))
                new_dilation *= 2
        self.end = nn.Conv1d(channels, 4, 1)

    def forward(self, input):
        x = self.start(input)
        skip = 0
        for i in range(len(self.dilations)):
            residual = x
            filter = torch.tanh(self.filter_convs[i](x))
            x = filter * torch.sigmoid(self.gate_convs[i](x))
            s = self.skip_convs[i](x)
            try:
                skip = skip[:, :, -s.size(2) :]
            except TypeError:
                skip = 0
            skip = s + skip
            x = self.residual_convs[i](x)
            x = x + residual[:, :, -x.size(2) :]
        return self.end(F.relu(skip))


@architecture
def wavenet():
    return WaveNet(), vectors(1, 16)


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


class CTCModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.LSTM(4, 6, bidirectional=True, batch_first=True)
        self.fc = nn.Linear(12, 5)
        self.criterion = nn.CTCLoss(zero_infinity=True)

    def forward(self, x, targets):
        self.rnn.flatten_parameters()
        logits = self.fc(self.rnn(x)[0]).log_softmax(2).transpose(0, 1)
        n, t = x.size(0), x.size(1)
        input_lengths = torch.full(size=(n,), fill_value=t, dtype=torch.long)
        target_lengths = torch.full(
            size=(n,), fill_value=targets.size(1), dtype=torch.long
        )
        return self.criterion(logits, targets, input_lengths, target_lengths)


@architecture
def ctc():
    return CTCModel(), lambda b: (torch.randn(b, 9, 4), torch.randint(1, 5, (b, 3)))


def log_sum_exp(x, dim=-1):
    m = x.max(dim, keepdim=True)[0]
    return (m + (x - m).exp().sum(dim, keepdim=True).log()).squeeze(dim)


class CRF(nn.Module):
    def __init__(self, num_tags=4):
        super().__init__()
        self.emit = nn.Linear(6, num_tags)
        self.start_transitions = nn.Parameter(torch.empty(num_tags))
        self.transitions = nn.Parameter(torch.empty(num_tags, num_tags))
        for p in (self.start_transitions, self.transitions):
            nn.init.uniform_(p, -0.1, 0.1)

    def _compute_score(self, emissions, tags, mask):
        seq_length, batch_size = tags.shape
        score = self.start_transitions[tags[0]]
        score += emissions[0, torch.arange(batch_size), tags[0]]
        for i in range(1, seq_length):
            score += self.transitions[tags[i - 1], tags[i]] * mask[i]
            score += emissions[i, torch.arange(batch_size), tags[i]] * mask[i]
        return score

    def _viterbi(self, emissions):
        score, history = self.start_transitions + emissions[0], []
        for i in range(1, emissions.size(0)):
            best, path = (score.unsqueeze(2) + self.transitions).max(1)
            score = best + emissions[i]
            history.append(path)
        tag = score.argmax(-1, keepdim=True)
        tags = [tag]
        for h in reversed(history):
            tag = h.gather(1, tag)
            tags.append(tag)
        return torch.cat(tags[::-1], 1)

    def forward(self, x, tags, mask):
        emissions = self.emit(x).transpose(0, 1)
        tags, mask = tags.t(), mask.t().float()
        score = self.start_transitions + emissions[0]
        for i in range(1, emissions.size(0)):
            next_score = log_sum_exp(
                score.unsqueeze(2) + self.transitions + emissions[i].unsqueeze(1), dim=1
            )
            score = torch.where(mask[i].bool().unsqueeze(1), next_score, score)
        llh = self._compute_score(emissions, tags, mask) - log_sum_exp(score, dim=1)
        return {"loss": -llh.mean(), "tags": self._viterbi(emissions.detach())}


@architecture
def crf():
    return CRF(), lambda b: (
        torch.randn(b, 5, 6),
        torch.randint(0, 4, (b, 5)),
        torch.ones(b, 5, dtype=torch.bool),
    )


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


class RWKVTimeMix(nn.Module):
    def __init__(self, n_embd=8):
        super().__init__()
        self.time_decay, self.time_first = (
            nn.Parameter(-torch.rand(n_embd)),
            nn.Parameter(torch.rand(n_embd)),
        )
        self.time_mix = nn.ParameterDict(
            {k: nn.Parameter(torch.rand(1, 1, n_embd)) for k in "kvr"}
        )
        self.time_shift = nn.ZeroPad2d((0, 0, 1, -1))
        self.key, self.value, self.receptance = (
            nn.Linear(n_embd, n_embd, bias=False) for _ in range(3)
        )

    def forward(self, x):
        B, T, C = x.size()
        xx = self.time_shift(x)
        mixed = {k: x * m + xx * (1 - m) for k, m in self.time_mix.items()}
        k, v = self.key(mixed["k"]), self.value(mixed["v"])
        r = torch.sigmoid(self.receptance(mixed["r"]))
        aa, bb = torch.zeros(B, C), torch.zeros(B, C)
        pp = torch.full((B, C), -1e38)
        out = []
        for t in range(T):
            kk, vv = k[:, t], v[:, t]
            ww = self.time_first + kk
            qq = torch.maximum(pp, ww)
            e1, e2 = torch.exp(pp - qq), torch.exp(ww - qq)
            out.append((e1 * aa + e2 * vv) / (e1 * bb + e2))
            ww = pp - torch.exp(self.time_decay)
            qq = torch.maximum(ww, kk)
            e1, e2 = torch.exp(ww - qq), torch.exp(kk - qq)
            aa, bb, pp = e1 * aa + e2 * vv, e1 * bb + e2, qq
        return r * torch.stack(out, 1)


@architecture
def rwkv():
    return RWKVTimeMix(), vectors(4, 8)


class S4D(nn.Module):
    def __init__(self, h=4, n=6):
        super().__init__()
        self.log_dt = nn.Parameter(torch.rand(h) * 2 - 4)
        self.C = nn.Parameter(
            torch.view_as_real(torch.randn(h, n // 2, dtype=torch.cfloat))
        )
        self.log_A_real = nn.Parameter(torch.log(0.5 * torch.ones(h, n // 2)))
        self.A_imag = nn.Parameter(math.pi * torch.arange(n // 2).float().repeat(h, 1))
        self.D = nn.Parameter(torch.randn(h))

    def forward(self, u):
        L = u.size(-1)
        dt = torch.exp(self.log_dt)
        C = torch.view_as_complex(self.C)
        A = -torch.exp(self.log_A_real) + 1j * self.A_imag
        dtA = A * dt.unsqueeze(-1)
        K = dtA.unsqueeze(-1) * torch.arange(L, device=A.device)
        C = C * (torch.exp(dtA) - 1.0) / A
        k = 2 * torch.einsum("hn, hnl -> hl", C, torch.exp(K)).real
        k_f, u_f = torch.fft.rfft(k, n=2 * L), torch.fft.rfft(u, n=2 * L)
        y = torch.fft.irfft(u_f * k_f, n=2 * L)[..., :L]
        return y + u * self.D.unsqueeze(-1)


@architecture
def s4d():
    return S4D(), vectors(4, 8)


class SelectiveScan(nn.Module):
    """A Mamba block with its reference scan."""

    def __init__(self, d_model=4, d_state=3):
        super().__init__()
        self.d_inner, self.d_state, self.dt_rank = (
            2 * d_model,
            d_state,
            math.ceil(d_model / 16),
        )
        self.in_proj = nn.Linear(d_model, 2 * self.d_inner, bias=False)
        self.conv1d = nn.Conv1d(
            self.d_inner, self.d_inner, 4, groups=self.d_inner, padding=3
        )
        self.x_proj = nn.Linear(self.d_inner, self.dt_rank + 2 * d_state, bias=False)
        self.dt_proj = nn.Linear(self.dt_rank, self.d_inner)
        self.A_log = nn.Parameter(
            torch.log(torch.arange(1, d_state + 1).float().repeat(self.d_inner, 1))
        )
        self.D, self.out_proj = (
            nn.Parameter(torch.ones(self.d_inner)),
            nn.Linear(self.d_inner, d_model),
        )

    def forward(self, x):
        (b, l, d) = x.shape
        (x, res) = self.in_proj(x).split(
            split_size=[self.d_inner, self.d_inner], dim=-1
        )
        x = F.silu(self.conv1d(x.transpose(1, 2))[:, :, :l].transpose(1, 2))
        A = -torch.exp(self.A_log.float())
        (delta, B, C) = self.x_proj(x).split(
            split_size=[self.dt_rank, self.d_state, self.d_state], dim=-1
        )
        delta = F.softplus(self.dt_proj(delta))
        deltaA = torch.exp(torch.einsum("bld,dn->bldn", delta, A))
        deltaB_u = torch.einsum("bld,bln,bld->bldn", delta, B, x)
        state, ys = (
            torch.zeros((b, self.d_inner, self.d_state), device=deltaA.device),
            [],
        )
        for i in range(l):
            state = deltaA[:, i] * state + deltaB_u[:, i]
            ys.append(torch.einsum("bdn,bn->bd", state, C[:, i, :]))
        y = torch.stack(ys, dim=1) + x * self.D
        return self.out_proj(y * F.silu(res))


@architecture
def mamba_block():
    return SelectiveScan(), vectors(5, 4)


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


@dataclass
class MemoryState:
    slots: torch.Tensor
    reads: list = field(default_factory=list)


class MemoryNetwork(nn.Module):
    def __init__(self, hops=2, dim=8):
        super().__init__()
        self.hops = hops
        for hop in range(hops + 1):
            C = nn.Embedding(20, dim, padding_idx=0)
            self.add_module("C_{}".format(hop), C)

    def forward(self, story, query):
        state = MemoryState(slots=self.C_0(query).sum(1))
        for hop in range(self.hops):
            m_A = getattr(self, f"C_{hop}")(story).sum(2)
            prob = torch.softmax(
                torch.sum(m_A * state.slots.unsqueeze(1).expand_as(m_A), 2), dim=1
            )
            m_C = self._modules["C_{}".format(hop + 1)](story).sum(2)
            o_k = torch.sum(m_C * prob.unsqueeze(2), 1)
            state.reads.append(prob)
            state.slots = state.slots + o_k
        return state.slots @ self.C_2.weight.transpose(0, 1), state.reads


@architecture
def memory_network():
    return MemoryNetwork(), lambda b: (
        torch.randint(0, 20, (b, 4, 3)),
        torch.randint(0, 20, (b, 3)),
    )


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
