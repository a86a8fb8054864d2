"""Graph networks, point clouds, mixtures of experts, reinforcement and tabular models."""

from __future__ import annotations

import math
import random
from collections import OrderedDict

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parameter import Parameter

from architectures.registry import architecture, vectors


class GraphConvolution(nn.Module):
    def __init__(self, in_features, out_features, bias=True):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight = Parameter(torch.FloatTensor(in_features, out_features))
        if bias:
            self.bias = Parameter(torch.FloatTensor(out_features))
        else:
            self.register_parameter("bias", None)
        stdv = 1.0 / math.sqrt(self.weight.size(1))
        self.weight.data.uniform_(-stdv, stdv)
        if self.bias is not None:
            self.bias.data.uniform_(-stdv, stdv)

    def forward(self, input, adj):
        support = torch.mm(input, self.weight)
        output = adj @ support
        if self.bias is not None:
            return output + self.bias
        else:
            return output

    def __repr__(self):
        return self.__class__.__name__ + " (" + str(self.in_features) + ")"


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.gc1, self.gc2 = GraphConvolution(5, 8), GraphConvolution(8, 3, bias=False)
        self.dropout = 0.5

    def forward(self, x, adj):
        x = F.relu(self.gc1(x, adj))
        x = F.dropout(x, self.dropout, training=self.training)
        return F.log_softmax(self.gc2(x, adj), dim=1)


@architecture
def gcn():
    return GCN(), lambda b: (torch.randn(3 * b, 5), torch.rand(3 * b, 3 * b))


class GraphAttentionLayer(nn.Module):
    def __init__(self, in_features, out_features, dropout, alpha, concat=True):
        super().__init__()
        self.dropout, self.out_features, self.concat = dropout, out_features, concat
        self.W = nn.Parameter(torch.empty(size=(in_features, out_features)))
        nn.init.xavier_uniform_(self.W.data, gain=1.414)
        self.a = nn.Parameter(torch.empty(size=(2 * out_features, 1)))
        nn.init.xavier_uniform_(self.a.data, gain=1.414)
        self.leakyrelu = nn.LeakyReLU(alpha)

    def forward(self, h, adj):
        Wh = torch.mm(h, self.W)
        e = self._prepare_attentional_mechanism_input(Wh)
        zero_vec = -9e15 * torch.ones_like(e)
        attention = torch.where(adj > 0, e, zero_vec)
        attention = F.softmax(attention, dim=1)
        attention = F.dropout(attention, self.dropout, training=self.training)
        h_prime = torch.matmul(attention, Wh)
        return F.elu(h_prime) if self.concat else h_prime

    def _prepare_attentional_mechanism_input(self, Wh):
        Wh1 = torch.matmul(Wh, self.a[: self.out_features, :])
        Wh2 = torch.matmul(Wh, self.a[self.out_features :, :])
        return self.leakyrelu(Wh1 + Wh2.T)


class GAT(nn.Module):
    def __init__(self, nheads=2):
        super().__init__()
        self.attentions = [
            GraphAttentionLayer(5, 4, dropout=0.3, alpha=0.2) for _ in range(nheads)
        ]
        for i, attention in enumerate(self.attentions):
            self.add_module("attention_{}".format(i), attention)
        self.out_att = GraphAttentionLayer(
            4 * nheads, 3, dropout=0.3, alpha=0.2, concat=False
        )

    def forward(self, x, adj):
        x = torch.cat([att(x, adj) for att in self.attentions], dim=1)
        return F.log_softmax(F.elu(self.out_att(x, adj)), dim=1)


@architecture
def gat():
    return GAT(), lambda b: (torch.randn(3 * b, 5), torch.rand(3 * b, 3 * b))


class MessagePassing(nn.Module):
    """Scatter over an edge list, message and update as overridable methods."""

    def propagate(self, edge_index, size=None, **kwargs):
        src, dst = edge_index
        data = {
            f"{k}_j": v[src] for k, v in kwargs.items() if isinstance(v, torch.Tensor)
        }
        data.update(
            {f"{k}_i": v[dst] for k, v in kwargs.items() if isinstance(v, torch.Tensor)}
        )
        out = self.message(**data)
        total = next(iter(kwargs.values())).size(0) if size is None else size
        result = out.new_zeros((total, out.size(-1)))
        return result.index_add_(0, dst, out)

    def message(self, x_i, x_j):
        raise NotImplementedError


class EdgeConv(MessagePassing):
    def __init__(self, i, o):
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(2 * i, o), nn.ReLU())

    def message(self, x_i, x_j):
        return self.mlp(torch.cat([x_i, x_j - x_i], dim=-1))

    def forward(self, x, edge_index):
        return self.propagate(edge_index, x=x)


@architecture
def message_passing():
    return EdgeConv(4, 6), lambda b: (
        torch.randn(3 * b, 4),
        torch.randint(0, 3 * b, (2, 7)),
    )


def knn(x, k):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    xx = torch.sum(x**2, dim=1, keepdim=True)
    pairwise_distance = -xx - inner - xx.transpose(2, 1)
    return pairwise_distance.topk(k=k, dim=-1)[1]


def get_graph_feature(x, k=3, idx=None):
    batch_size, num_points = x.size(0), x.size(2)
    x = x.view(batch_size, -1, num_points)
    if idx is None:
        idx = knn(x, k=k)
    device = torch.device("cpu")
    idx_base = torch.arange(0, batch_size, device=device).view(-1, 1, 1) * num_points
    idx = (idx + idx_base).view(-1)
    _, num_dims, _ = x.size()
    x = x.transpose(2, 1).contiguous()
    feature = x.view(batch_size * num_points, -1)[idx, :]
    feature = feature.view(batch_size, num_points, k, num_dims)
    x = x.view(batch_size, num_points, 1, num_dims).repeat(1, 1, k, 1)
    return torch.cat((feature - x, x), dim=3).permute(0, 3, 1, 2).contiguous()


@architecture
def dgcnn():
    class DGCNN(nn.Module):
        def __init__(self, args):
            super().__init__()
            self.k = args["k"]
            self.conv1 = nn.Sequential(
                nn.Conv2d(6, 8, 1, bias=False), nn.BatchNorm2d(8), nn.LeakyReLU(0.2)
            )

        def forward(self, x):
            x1 = self.conv1(get_graph_feature(x, k=self.k)).max(dim=-1, keepdim=False)[
                0
            ]
            return torch.cat(
                (
                    F.adaptive_max_pool1d(x1, 1).squeeze(-1),
                    F.adaptive_avg_pool1d(x1, 1).squeeze(-1),
                ),
                1,
            )

    return DGCNN({"k": 3}), vectors(3, 10)


class STN3d(nn.Module):
    def __init__(self, k=3):
        super().__init__()
        self.conv, self.fc, self.k = nn.Conv1d(k, 8, 1), nn.Linear(8, k * k), k

    def forward(self, x):
        batchsize = x.size()[0]
        x = F.relu(self.conv(x))
        x = torch.max(x, 2, keepdim=True)[0]
        x = self.fc(x.view(-1, 8))
        iden = torch.eye(self.k, requires_grad=True).repeat(batchsize, 1, 1)
        if x.is_cuda:
            iden = iden.cuda()
        return x.view(-1, self.k, self.k) + iden


@architecture
def pointnet():
    class PointNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.stn, self.conv, self.bn = (
                STN3d(),
                nn.Conv1d(3, 8, 1),
                nn.BatchNorm1d(8),
            )

        def forward(self, x):
            trans = self.stn(x)
            x = torch.bmm(x.transpose(2, 1), trans).transpose(2, 1)
            x = self.bn(self.conv(x))
            return torch.max(x, 2)[0], trans

    return PointNet(), vectors(3, 10)


class DenseMoE(nn.Module):
    """Every expert on every token, weighted by a sparse gate."""

    def __init__(self, dim=6, experts=4, k=2):
        super().__init__()
        self.gate = nn.Linear(dim, experts)
        self.experts = nn.ModuleList(
            [nn.Sequential(nn.Linear(dim, dim), nn.GELU()) for _ in range(experts)]
        )
        self.k, self.loss_coef = k, 1e-2

    def cv_squared(self, x):
        eps = 1e-10
        if x.shape[0] == 1:
            return torch.tensor([0], device=x.device, dtype=x.dtype)
        return x.float().var() / (x.float().mean() ** 2 + eps)

    def forward(self, x):
        logits = self.gate(x)
        weights, selected = torch.topk(logits.softmax(-1), self.k, dim=-1)
        weights = weights / weights.sum(-1, keepdim=True)
        gates = torch.zeros_like(logits).scatter(1, selected, weights)
        out = torch.stack([expert(x) for expert in self.experts], 1)
        loss = self.loss_coef * self.cv_squared(gates.sum(0))
        return (gates.unsqueeze(-1) * out).sum(1), loss


@architecture
def mixture_of_experts():
    return DenseMoE(), vectors(6)


class DQN(nn.Module):
    def __init__(self, h=16, w=16, outputs=3):
        super().__init__()
        self.conv1, self.bn1 = (
            nn.Conv2d(3, 4, kernel_size=5, stride=2),
            nn.BatchNorm2d(4),
        )

        def conv2d_size_out(size, kernel_size=5, stride=2):
            return (size - (kernel_size - 1) - 1) // stride + 1

        self.head = nn.Linear(conv2d_size_out(w) * conv2d_size_out(h) * 4, outputs)
        self.advantage = nn.Linear(outputs, outputs)

    def forward(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        value = self.head(x.view(x.size(0), -1))
        advantage = self.advantage(value)
        return value + advantage - advantage.mean(1, keepdim=True)


@architecture
def dqn():
    return DQN(), vectors(3, 16, 16)


class ActorCritic(nn.Module):
    is_recurrent = False

    def __init__(
        self, num_obs=5, num_actions=2, hidden_dims=[8, 8], activation="elu", **kwargs
    ):
        if kwargs:
            print("unexpected arguments: " + str([key for key in kwargs.keys()]))
        super().__init__()
        act = {"elu": nn.ELU(), "relu": nn.ReLU()}[activation]
        layers = [nn.Linear(num_obs, hidden_dims[0]), act]
        for l in range(len(hidden_dims)):
            last = l == len(hidden_dims) - 1
            layers.append(
                nn.Linear(hidden_dims[l], num_actions if last else hidden_dims[l + 1])
            )
            if not last:
                layers.append(act)
        self.actor = nn.Sequential(*layers)
        self.critic = nn.Linear(num_obs, 1)
        self.std = nn.Parameter(torch.ones(num_actions))
        self.log_std_min, self.log_std_max = -20, 2

    def forward(self, observations):
        mean = self.actor(observations)
        log_std = torch.clamp(torch.log(self.std), self.log_std_min, self.log_std_max)
        std = mean * 0.0 + log_std.exp()
        noise = torch.randn_like(mean)
        actions = torch.tanh(mean + std * noise)
        log_prob = (-0.5 * noise**2 - log_std - 0.5 * math.log(2 * math.pi)).sum(dim=-1)
        log_prob = log_prob - torch.log(1 - actions.pow(2) + 1e-6).sum(-1)
        return actions, log_prob, self.critic(observations).squeeze(-1)


@architecture
def actor_critic():
    return ActorCritic(), vectors(5)


class NoisyLinear(nn.Module):
    def __init__(self, in_features, out_features, std_init=0.5):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.weight_mu = nn.Parameter(torch.randn(out_features, in_features))
        self.weight_sigma = nn.Parameter(
            torch.full((out_features, in_features), std_init)
        )
        self.register_buffer("weight_epsilon", torch.empty(out_features, in_features))
        self.reset_noise()

    def _scale_noise(self, size):
        x = torch.randn(size)
        return x.sign().mul_(x.abs().sqrt_())

    def reset_noise(self):
        epsilon_in, epsilon_out = (
            self._scale_noise(self.in_features),
            self._scale_noise(self.out_features),
        )
        self.weight_epsilon.copy_(epsilon_out.outer(epsilon_in))

    def forward(self, x):
        if self.training:
            self.reset_noise()
            return F.linear(x, self.weight_mu + self.weight_sigma * self.weight_epsilon)
        return F.linear(x, self.weight_mu)


@architecture
def noisy_linear():
    return nn.Sequential(NoisyLinear(4, 6), nn.ReLU(), NoisyLinear(6, 2)), vectors(4)


class SiameseNetwork(nn.Module):
    def __init__(self, margin=1.0):
        super().__init__()
        self.embedding = nn.Sequential(nn.Linear(6, 8), nn.PReLU(), nn.Linear(8, 3))
        self.margin = margin

    def forward_once(self, x):
        return F.normalize(self.embedding(x), p=2, dim=1)

    def forward(self, *inputs):
        assert len(inputs) in (2, 3), "two or three inputs"
        outputs = [self.forward_once(x) for x in inputs]
        if len(inputs) == 2:
            return F.pairwise_distance(*outputs)
        anchor, positive, negative = outputs
        return torch.relu(
            (anchor - positive).pow(2).sum(1)
            - (anchor - negative).pow(2).sum(1)
            + self.margin
        ).mean()


@architecture
def siamese():
    return SiameseNetwork(), lambda b: tuple(torch.randn(b, 6) for _ in range(3))


class KANLinear(nn.Module):
    def __init__(
        self, in_features, out_features, grid_size=3, spline_order=2, grid_range=[-1, 1]
    ):
        super().__init__()
        self.in_features, self.out_features = in_features, out_features
        self.grid_size, self.spline_order = grid_size, spline_order
        h = (grid_range[1] - grid_range[0]) / grid_size
        grid = (
            torch.arange(-spline_order, grid_size + spline_order + 1) * h
            + grid_range[0]
        ).expand(in_features, -1)
        self.register_buffer("grid", grid.contiguous())
        self.base_weight = nn.Parameter(torch.randn(out_features, in_features))
        self.spline_weight = nn.Parameter(
            torch.randn(out_features, in_features, grid_size + spline_order)
        )
        self.base_activation = nn.SiLU()

    def b_splines(self, x: torch.Tensor):
        assert x.dim() == 2 and x.size(1) == self.in_features
        grid: torch.Tensor = self.grid
        x = x.unsqueeze(-1)
        bases = ((x >= grid[:, :-1]) & (x < grid[:, 1:])).to(x.dtype)
        for k in range(1, self.spline_order + 1):
            bases = (
                (x - grid[:, : -(k + 1)])
                / (grid[:, k:-1] - grid[:, : -(k + 1)])
                * bases[:, :, :-1]
            ) + (
                (grid[:, k + 1 :] - x)
                / (grid[:, k + 1 :] - grid[:, 1:(-k)])
                * bases[:, :, 1:]
            )
        assert bases.size() == (
            x.size(0),
            self.in_features,
            self.grid_size + self.spline_order,
        )
        return bases.contiguous()

    def forward(self, x: torch.Tensor):
        assert x.size(-1) == self.in_features
        original_shape = x.shape
        x = x.reshape(-1, self.in_features)
        base_output = F.linear(self.base_activation(x), self.base_weight)
        spline_output = F.linear(
            self.b_splines(x).view(x.size(0), -1),
            self.spline_weight.view(self.out_features, -1),
        )
        output = base_output + spline_output
        return output.reshape(*original_shape[:-1], self.out_features)


@architecture
def kan():
    return nn.Sequential(KANLinear(4, 5), KANLinear(5, 2)), vectors(4)


class DeepFM(nn.Module):
    def __init__(self, feature_fields=(5, 7, 4), embed_dim=4):
        super().__init__()
        offsets = [0]
        for n in feature_fields[:-1]:
            offsets.append(offsets[-1] + n)
        self.register_buffer("offsets", torch.tensor(offsets))
        self.linear = nn.Embedding(sum(feature_fields), 1)
        self.embedding = nn.Embedding(sum(feature_fields), embed_dim)
        self.bias = nn.Parameter(torch.zeros((1,)))
        self.mlp = nn.Sequential(
            OrderedDict(fc=nn.Linear(12, 8), act=nn.ReLU(), out=nn.Linear(8, 1))
        )

    def forward(self, x):
        tmp = x + x.new_tensor([0, 5, 12]).unsqueeze(0)
        embed = self.embedding(tmp)
        fm = 0.5 * (embed.sum(dim=1) ** 2 - (embed**2).sum(dim=1)).sum(
            dim=1, keepdim=True
        )
        out = (
            self.linear(x + self.offsets).sum(dim=1)
            + self.bias
            + fm
            + self.mlp(embed.view(-1, 12))
        )
        return torch.sigmoid(out.squeeze(1))


@architecture
def deepfm():
    return DeepFM(), lambda b: (torch.randint(0, 4, (b, 3)),)


class StochasticDepth(nn.Module):
    """Chooses layers with Python's random numbers in training."""

    def __init__(self, p=0.5):
        super().__init__()
        self.layers, self.p = nn.ModuleList([nn.Linear(4, 4) for _ in range(3)]), p

    def forward(self, x):
        for layer in self.layers:
            if self.training and random.random() < self.p:
                continue
            x = x + layer(x)
        return x


@architecture
def stochastic_depth():
    return StochasticDepth(), vectors(4)


class MarginHead(nn.Module):
    def __init__(self, s=30.0, m=0.5, easy_margin=False):
        super().__init__()
        self.weight = Parameter(torch.FloatTensor(5, 6))
        nn.init.xavier_uniform_(self.weight)
        self.s, self.easy_margin = s, easy_margin
        self.cos_m, self.sin_m = math.cos(m), math.sin(m)
        self.th, self.mm = math.cos(math.pi - m), math.sin(math.pi - m) * m

    def forward(self, input, label):
        cosine = F.linear(F.normalize(input), F.normalize(self.weight))
        sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(1e-6, 1))
        phi = cosine * self.cos_m - sine * self.sin_m
        if self.easy_margin:
            phi = torch.where(cosine > 0, phi, cosine)
        else:
            phi = torch.where(cosine > self.th, phi, cosine - self.mm)
        one_hot = torch.zeros(cosine.size(), device=input.device)
        one_hot.scatter_(1, label.view(-1, 1).long(), 1)
        output = (one_hot * phi) + ((1.0 - one_hot) * cosine)
        output *= self.s
        return output


@architecture
def arcface():
    return MarginHead(), lambda b: (torch.randn(b, 6), torch.randint(0, 5, (b,)))
