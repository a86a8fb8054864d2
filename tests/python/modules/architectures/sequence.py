"""Sequences by recurrence, convolution and scans."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch
import torch.nn as nn
import torch.nn.functional as F

from architectures.registry import architecture, tokens, vectors


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
