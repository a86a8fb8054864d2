"""Convolutional networks that say what an image shows."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Dict, List, NamedTuple, Optional, Union

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from architectures.registry import architecture, images


def conv3x3(in_planes: int, out_planes: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(in_planes, out_planes, 3, stride=stride, padding=1, bias=False)


class BasicBlock(nn.Module):
    expansion: int = 1

    def __init__(self, inplanes, planes, stride=1, downsample=None, norm_layer=None):
        super(BasicBlock, self).__init__()
        if norm_layer is None:
            norm_layer = nn.BatchNorm2d
        self.conv1 = conv3x3(inplanes, planes, stride)
        self.bn1 = norm_layer(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = norm_layer(planes)
        self.downsample = downsample

    def forward(self, x: Tensor) -> Tensor:
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


class ResNet(nn.Module):
    def __init__(self, block, layers, num_classes=5):
        super().__init__()
        self.inplanes = 8
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        for i, (planes, blocks) in enumerate(zip((8, 16, 24), layers)):
            setattr(
                self,
                f"layer{i + 1}",
                self._make_layer(block, planes, blocks, 1 + (i > 0)),
            )
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(24 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")

    def _make_layer(self, block, planes, blocks, stride):
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes * block.expansion, 1, stride),
                nn.BatchNorm2d(planes * block.expansion),
            )
        layers = [block(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * block.expansion
        layers += [block(self.inplanes, planes) for _ in range(1, blocks)]
        return nn.Sequential(*layers)

    def _forward_impl(self, x):
        x = F.relu(self.bn1(self.conv1(x)), inplace=True)
        for i in range(1, 4):
            x = getattr(self, f"layer{i}")(x)
        x = torch.flatten(self.avgpool(x), 1)
        return self.fc(x)

    def forward(self, x):
        return self._forward_impl(x)


@architecture
def resnet():
    return ResNet(BasicBlock, [1, 2, 1]), images()


class _DenseLayer(nn.Sequential):
    def __init__(self, features, growth, drop_rate):
        super().__init__()
        self.add_module("norm1", nn.BatchNorm2d(features))
        self.add_module("relu1", nn.ReLU(inplace=True))
        self.add_module("conv1", nn.Conv2d(features, growth, 3, padding=1))
        self.drop_rate = drop_rate

    def forward(self, x):
        new_features = super(_DenseLayer, self).forward(x)
        if self.drop_rate > 0:
            new_features = F.dropout(
                new_features, p=self.drop_rate, training=self.training
            )
        return torch.cat([x, new_features], 1)


@architecture
def densenet():
    features = nn.Sequential(OrderedDict([("conv0", nn.Conv2d(3, 8, 3, padding=1))]))
    width = 8
    for i in range(2):
        block = nn.Sequential()
        for j in range(3):
            block.add_module(
                "denselayer%d" % (j + 1), _DenseLayer(width + 4 * j, 4, 0.1)
            )
        features.add_module("denseblock%d" % (i + 1), block)
        width += 12
        features.add_module("pool%d" % i, nn.AvgPool2d(2))
    head = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 3))
    return nn.Sequential(features, head), images()


class GoogLeNetOutputs(NamedTuple):
    logits: Tensor
    aux: Optional[Tensor]


class Inception(nn.Module):
    def __init__(self, inp, conv_block=None):
        super().__init__()
        conv_block = conv_block or (
            lambda i, o, **kw: nn.Sequential(nn.Conv2d(i, o, **kw), nn.ReLU())
        )
        self.branch1 = conv_block(inp, 4, kernel_size=1)
        self.branch2 = nn.Sequential(
            conv_block(inp, 4, kernel_size=1),
            conv_block(4, 6, kernel_size=3, padding=1),
        )
        self.branch3 = nn.Sequential(
            nn.MaxPool2d(kernel_size=3, stride=1, padding=1, ceil_mode=True),
            conv_block(inp, 2, kernel_size=1),
        )

    def _forward(self, x: Tensor) -> List[Tensor]:
        outputs = [self.branch1(x), self.branch2(x), self.branch3(x)]
        return outputs

    def forward(self, x):
        return torch.cat(self._forward(x), 1)


class GoogLeNet(nn.Module):
    __constants__ = ["aux_logits"]

    def __init__(self):
        super().__init__()
        self.aux_logits = True
        self.block1, self.block2 = Inception(3), Inception(12)
        self.aux = nn.Linear(12, 3)
        self.fc = nn.Linear(12, 3)

    def forward(self, x):
        x = self.block1(x)
        aux: Optional[Tensor] = None
        if self.aux is not None and self.training:
            aux = self.aux(x.mean((2, 3)))
        x = self.block2(x)
        out = self.fc(x.mean([-2, -1]))
        if self.training and self.aux_logits:
            return GoogLeNetOutputs(out, aux)
        return out


@architecture
def inception():
    return GoogLeNet(), images()


def _make_divisible(v: float, divisor: int = 8, min_value: Optional[int] = None) -> int:
    if min_value is None:
        min_value = divisor
    new_v = max(min_value, int(v + divisor / 2) // divisor * divisor)
    return new_v + divisor if new_v < 0.9 * v else new_v


class ConvBNActivation(nn.Sequential):
    def __init__(self, i, o, kernel_size=3, stride=1, groups=1, activation=nn.ReLU6):
        padding = (kernel_size - 1) // 2
        super().__init__(
            nn.Conv2d(i, o, kernel_size, stride, padding, groups=groups, bias=False),
            nn.BatchNorm2d(o, eps=0.001, momentum=0.01),
            activation(inplace=True),
        )


class InvertedResidual(nn.Module):
    def __init__(
        self, inp: int, oup: int, stride: int, expand_ratio: int, use_se: bool = False
    ):
        super().__init__()
        self.stride = stride
        assert stride in [1, 2]
        hidden = int(round(inp * expand_ratio))
        self.use_res_connect = self.stride == 1 and inp == oup
        layers: List[nn.Module] = []
        if expand_ratio != 1:
            layers.append(ConvBNActivation(inp, hidden, kernel_size=1))
        layers.append(
            ConvBNActivation(
                hidden, hidden, stride=stride, groups=hidden, activation=nn.SiLU
            )
        )
        if use_se:
            layers.append(SqueezeExcitation(hidden))
        layers.extend([nn.Conv2d(hidden, oup, 1, bias=False), nn.BatchNorm2d(oup)])
        self.conv = nn.Sequential(*layers)

    def forward(self, x):
        if self.use_res_connect:
            return x + self.conv(x)
        else:
            return self.conv(x)


class SqueezeExcitation(nn.Module):
    def __init__(self, channels, reduction=4, gate_fn=F.hardsigmoid):
        super().__init__()
        self.fc1 = nn.Conv2d(channels, _make_divisible(channels / reduction, 4), 1)
        self.fc2 = nn.Conv2d(_make_divisible(channels / reduction, 4), channels, 1)
        self.gate_fn = gate_fn

    def _scale(self, input: Tensor) -> Tensor:
        scale = F.adaptive_avg_pool2d(input, 1)
        return self.gate_fn(self.fc2(F.relu(self.fc1(scale))))

    def forward(self, input):
        return self._scale(input) * input


@architecture
def mobilenet_v2():
    settings = [[1, 8, 1, 1], [4, 12, 2, 2]]
    layers, width = [ConvBNActivation(3, 8, stride=2)], 8
    for t, c, n, s in settings:
        for i in range(n):
            layers.append(
                InvertedResidual(width, c, s if i == 0 else 1, expand_ratio=t)
            )
            width = c
    layers += [
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Dropout(0.2),
        nn.Linear(width, 4),
    ]
    return nn.Sequential(*layers), images()


def drop_path(
    x, drop_prob: float = 0.0, training: bool = False, scale_by_keep: bool = True
):
    if drop_prob == 0.0 or not training:
        return x
    keep_prob = 1 - drop_prob
    shape = (x.shape[0],) + (1,) * (x.ndim - 1)
    random_tensor = x.new_empty(shape).bernoulli_(keep_prob)
    if keep_prob > 0.0 and scale_by_keep:
        random_tensor.div_(keep_prob)
    return x * random_tensor


class DropPath(nn.Module):
    def __init__(self, drop_prob=None):
        super().__init__()
        self.drop_prob = drop_prob

    def forward(self, x):
        return drop_path(x, self.drop_prob, self.training)


class EfficientNetBlock(nn.Module):
    def __init__(self, args: Dict[str, Any]):
        super().__init__()
        self.args = args
        self.mb = InvertedResidual(
            args["i"], args["o"], args.get("s", 1), args.get("e", 4), use_se=True
        )
        self.drop = DropPath(args["drop"])

    def forward(self, inputs, drop_connect_rate=None):
        x = self.mb(inputs)
        if x.shape == inputs.shape:
            x = self.drop(x) + inputs
        return x


class EfficientNet(nn.Module):
    def __init__(self):
        super().__init__()
        self._blocks = nn.ModuleList(
            [
                EfficientNetBlock(dict(i=8, o=8, drop=0.2)),
                EfficientNetBlock(dict(i=8, o=12, s=2, drop=0.4)),
            ]
        )
        self.stem, self._dropout = nn.Conv2d(3, 8, 3, 2, 1), nn.Dropout(0.3)
        self._fc = nn.Linear(12, 3)

    def extract_features(self, inputs):
        x = self.stem(inputs)
        for idx, block in enumerate(self._blocks):
            drop_connect_rate = 0.2
            if drop_connect_rate:
                drop_connect_rate *= float(idx) / len(self._blocks)
            x = block(x, drop_connect_rate=drop_connect_rate)
        return x

    def forward(self, inputs):
        bs = inputs.size(0)
        x = self.extract_features(inputs)
        x = F.adaptive_avg_pool2d(x, 1).view(bs, -1)
        return self._fc(self._dropout(x))


@architecture
def efficientnet():
    return EfficientNet(), images()


class ChannelAttention(nn.Module):
    def __init__(
        self, gate_channels, reduction_ratio=4, pool_types=["avg", "max", "lp", "lse"]
    ):
        super().__init__()
        self.gate_channels = gate_channels
        self.mlp = nn.Sequential(
            nn.Flatten(),
            nn.Linear(gate_channels, gate_channels // reduction_ratio),
            nn.ReLU(),
            nn.Linear(gate_channels // reduction_ratio, gate_channels),
        )
        self.pool_types = pool_types

    def forward(self, x):
        channel_att_sum = None
        size = (x.size(2), x.size(3))
        for pool_type in self.pool_types:
            if pool_type == "avg":
                pooled = F.avg_pool2d(x, size, stride=size)
            elif pool_type == "max":
                pooled = F.max_pool2d(x, size, stride=size)
            elif pool_type == "lp":
                pooled = F.lp_pool2d(x, 2, size, stride=size)
            elif pool_type == "lse":
                flat = x.view(x.size(0), x.size(1), -1)
                s, _ = torch.max(flat, dim=2, keepdim=True)
                pooled = s + (flat - s).exp().sum(dim=2, keepdim=True).log()
            channel_att_raw = self.mlp(pooled)
            if channel_att_sum is None:
                channel_att_sum = channel_att_raw
            else:
                channel_att_sum = channel_att_sum + channel_att_raw
        return x * torch.sigmoid(channel_att_sum).unsqueeze(2).unsqueeze(3).expand_as(x)


class CBAM(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.channel = ChannelAttention(8)
        self.spatial = nn.Conv2d(2, 1, 7, padding=3)

    def forward(self, x):
        x = self.channel(self.stem(x))
        pooled = torch.cat(
            (torch.max(x, 1)[0].unsqueeze(1), torch.mean(x, 1).unsqueeze(1)), dim=1
        )
        return x * torch.sigmoid(self.spatial(pooled))


@architecture
def cbam():
    return CBAM(), images()


class ConvNeXtLayerNorm(nn.Module):
    def __init__(self, normalized_shape, eps=1e-6, data_format="channels_last"):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(normalized_shape))
        self.bias = nn.Parameter(torch.zeros(normalized_shape))
        self.eps = eps
        self.data_format = data_format
        if self.data_format not in ["channels_last", "channels_first"]:
            raise NotImplementedError
        self.normalized_shape = (normalized_shape,)

    def forward(self, x):
        if self.data_format == "channels_last":
            return F.layer_norm(
                x, self.normalized_shape, self.weight, self.bias, self.eps
            )
        elif self.data_format == "channels_first":
            u = x.mean(1, keepdim=True)
            s = (x - u).pow(2).mean(1, keepdim=True)
            x = (x - u) / torch.sqrt(s + self.eps)
            return self.weight[:, None, None] * x + self.bias[:, None, None]


class ConvNeXtBlock(nn.Module):
    def __init__(self, dim, drop_path=0.1, layer_scale_init_value=1e-2):
        super().__init__()
        self.dwconv = nn.Conv2d(dim, dim, kernel_size=7, padding=3, groups=dim)
        self.norm = ConvNeXtLayerNorm(dim)
        self.pwconv1, self.act, self.pwconv2 = (
            nn.Linear(dim, 4 * dim),
            nn.GELU(),
            nn.Linear(4 * dim, dim),
        )
        self.gamma = (
            nn.Parameter(layer_scale_init_value * torch.ones(dim), requires_grad=True)
            if layer_scale_init_value > 0
            else None
        )
        self.drop_path = DropPath(drop_path) if drop_path > 0.0 else nn.Identity()

    def forward(self, x):
        input = x
        x = self.dwconv(x).permute(0, 2, 3, 1)  # (N, C, H, W) -> (N, H, W, C)
        x = self.pwconv2(self.act(self.pwconv1(self.norm(x))))
        if self.gamma is not None:
            x = self.gamma * x
        return input + self.drop_path(x.permute(0, 3, 1, 2))


@architecture
def convnext():
    return nn.Sequential(
        nn.Conv2d(3, 8, 4, 4),
        ConvNeXtLayerNorm(8, data_format="channels_first"),
        ConvNeXtBlock(8),
        ConvNeXtBlock(8),
    ), images()


class ShuffleUnit(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(width // 2, width // 2, 1), nn.BatchNorm2d(width // 2), nn.ReLU()
        )

    @staticmethod
    def channel_shuffle(x, groups: int):
        batchsize, num_channels, height, width = x.data.size()
        channels_per_group = num_channels // groups
        x = x.view(batchsize, groups, channels_per_group, height, width)
        x = torch.transpose(x, 1, 2).contiguous()
        return x.view(batchsize, -1, height, width)

    def forward(self, x):
        x1, x2 = x.chunk(2, dim=1)
        return self.channel_shuffle(torch.cat((x1, self.branch(x2)), dim=1), 2)


@architecture
def shufflenet():
    return nn.Sequential(nn.Conv2d(3, 8, 1), ShuffleUnit(8), ShuffleUnit(8)), images()


class Fire(nn.Module):
    def __init__(self, inplanes, squeeze, expand):
        super().__init__()
        self.squeeze, self.activation = (
            nn.Conv2d(inplanes, squeeze, 1),
            nn.ReLU(inplace=True),
        )
        self.expand1x1, self.expand3x3 = (
            nn.Conv2d(squeeze, expand, 1),
            nn.Conv2d(squeeze, expand, 3, padding=1),
        )

    def forward(self, x):
        x = self.activation(self.squeeze(x))
        return torch.cat(
            [self.activation(self.expand1x1(x)), self.activation(self.expand3x3(x))], 1
        )


class SqueezeNet(nn.Module):
    def __init__(self, version: str = "1_1"):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            Fire(8, 4, 8),
        )
        self.classifier = nn.Sequential(
            nn.Dropout(0.5),
            nn.Conv2d(16, 4, 1),
            nn.ReLU(True),
            nn.AdaptiveAvgPool2d((1, 1)),
        )

    def forward(self, x):
        x = self.classifier(self.features(x))
        return torch.flatten(x, 1)


@architecture
def squeezenet():
    return SqueezeNet(), images()


cfgs: Dict[str, List[Union[str, int]]] = {"A": [8, "M", 8, "M", 16, 16, "M"]}


@architecture
def vgg():
    layers: List[nn.Module] = []
    in_channels = 3
    for v in cfgs["A"]:
        if v == "M":
            layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
        else:
            layers += [
                nn.Conv2d(in_channels, v, 3, padding=1),
                nn.BatchNorm2d(v),
                nn.ReLU(inplace=True),
            ]
            in_channels = v
    return nn.Sequential(
        *layers, nn.Flatten(), nn.Linear(64, 10), nn.LogSoftmax(dim=1)
    ), images()


def squash(s: Tensor, dim: int = -1) -> Tensor:
    squared = (s**2).sum(dim, keepdim=True)
    return squared / (1 + squared) * s / (torch.sqrt(squared) + 1e-8)


class CapsNet(nn.Module):
    def __init__(self, in_caps=16, in_dim=4, out_caps=3, out_dim=4, routing_iters=3):
        super().__init__()
        self.primary = nn.Conv2d(3, 4, 4, 4)
        self.W = nn.Parameter(0.1 * torch.randn(1, out_caps, in_caps, out_dim, in_dim))
        self.routing_iters = routing_iters

    def forward(self, x):
        batch_size = x.size(0)
        u = squash(self.primary(x).flatten(2).transpose(1, 2))
        u_hat = (self.W @ u[:, None, :, :, None]).squeeze(-1)
        temp_u_hat = u_hat.detach()
        b = torch.zeros(*u_hat.shape[:3], 1).to(x.device)
        for i in range(self.routing_iters - 1):
            c = b.softmax(dim=1)
            s = (c * temp_u_hat).sum(dim=2)
            v = squash(s)
            b += torch.matmul(temp_u_hat, v.unsqueeze(-1))
        v = squash((b.softmax(dim=1) * u_hat).sum(dim=2))
        assert v.size(0) == batch_size, f"expected {batch_size}, got {v.size(0)}"
        return torch.sqrt((v**2).sum(dim=-1))


@architecture
def capsule():
    return CapsNet(), images()
