"""Convolutional networks and image transformers."""

from __future__ import annotations

import math
from collections import OrderedDict
from functools import partial
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, Union

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


class DoubleConv(nn.Module):
    """(convolution => [BN] => ReLU) * 2"""

    def __init__(self, in_channels, out_channels, mid_channels=None):
        super().__init__()
        if not mid_channels:
            mid_channels = out_channels
        self.double_conv = nn.Sequential(
            nn.Conv2d(in_channels, mid_channels, 3, padding=1), nn.BatchNorm2d(mid_channels), nn.ReLU(inplace=True),
            nn.Conv2d(mid_channels, out_channels, 3, padding=1), nn.BatchNorm2d(out_channels), nn.ReLU(inplace=True),
        )  # fmt: skip

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, in_channels, out_channels, bilinear=True):
        super().__init__()
        self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
        if not bilinear:
            self.up = nn.ConvTranspose2d(
                in_channels, in_channels // 2, kernel_size=2, stride=2
            )
        self.conv = DoubleConv(
            in_channels + out_channels if bilinear else in_channels, out_channels
        )

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        return self.conv(torch.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, n_channels=3, n_classes=2, widths=(4, 8, 12), bilinear=True):
        super(UNet, self).__init__()
        self.inc = DoubleConv(n_channels, widths[0])
        self.downs = nn.ModuleList()
        self.ups = nn.ModuleList()
        for a, b in zip(widths[:-1], widths[1:]):
            self.downs.append(nn.Sequential(nn.MaxPool2d(2), DoubleConv(a, b)))
        for a, b in zip(widths[::-1], widths[-2::-1]):
            self.ups.append(Up(a, b, bilinear))
        self.outc = nn.Conv2d(widths[0], n_classes, 1)

    def forward(self, x):
        skips = [self.inc(x)]
        for down in self.downs:
            skips.append(down(skips[-1]))
        x = skips.pop()
        for up in self.ups:
            x = up(x, skips.pop())
        return self.outc(x)


@architecture
def unet():
    return UNet(), images(3, 17)


class FPN(nn.Module):
    def __init__(self, in_channels_list: List[int], out_channels: int):
        super().__init__()
        self.inner_blocks = nn.ModuleList()
        self.layer_blocks = nn.ModuleList()
        for in_channels in in_channels_list:
            if in_channels == 0:
                raise ValueError("in_channels=0 is currently not supported")
            self.inner_blocks.append(nn.Conv2d(in_channels, out_channels, 1))
            self.layer_blocks.append(
                nn.Conv2d(out_channels, out_channels, 3, padding=1)
            )
        self.body = nn.ModuleDict(
            {"c2": nn.Conv2d(3, 4, 3, 2, 1), "c3": nn.Conv2d(4, 8, 3, 2, 1)}
        )

    def get_result_from_inner_blocks(self, x: Tensor, idx: int) -> Tensor:
        num_blocks = len(self.inner_blocks)
        if idx < 0:
            idx += num_blocks
        out = x
        for i, module in enumerate(self.inner_blocks):
            if i == idx:
                out = module(x)
        return out

    def forward(self, x: Tensor) -> Dict[str, Tensor]:
        features = OrderedDict()
        for name, module in self.body.items():
            x = module(x)
            features[name] = x
        names = list(features.keys())
        xs = list(features.values())
        last_inner = self.get_result_from_inner_blocks(xs[-1], -1)
        results = [self.layer_blocks[-1](last_inner)]
        for idx in range(len(xs) - 2, -1, -1):
            inner_lateral = self.get_result_from_inner_blocks(xs[idx], idx)
            feat_shape = inner_lateral.shape[-2:]
            inner_top_down = F.interpolate(last_inner, size=feat_shape, mode="nearest")
            last_inner = inner_lateral + inner_top_down
            results.insert(0, self.layer_blocks[idx](last_inner))
        return OrderedDict([(k, v) for k, v in zip(names, results)])


@architecture
def fpn():
    return FPN([4, 8], 6), images()


def pair(t):
    return t if isinstance(t, tuple) else (t, t)


class ViTAttention(nn.Module):
    def __init__(self, dim, heads=2, dim_head=4, dropout=0.0):
        super().__init__()
        inner_dim = dim_head * heads
        project_out = not (heads == 1 and dim_head == dim)
        self.heads = heads
        self.scale = dim_head**-0.5
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.Softmax(dim=-1)
        self.to_qkv = nn.Linear(dim, inner_dim * 3, bias=False)
        self.to_out = (
            nn.Sequential(nn.Linear(inner_dim, dim), nn.Dropout(dropout))
            if project_out
            else nn.Identity()
        )

    def forward(self, x):
        b, n, _, h = *x.shape, self.heads
        qkv = self.to_qkv(self.norm(x)).chunk(3, dim=-1)
        q, k, v = map(lambda t: t.reshape(b, n, h, -1).transpose(1, 2), qkv)
        dots = torch.einsum("b h i d, b h j d -> b h i j", q, k) * self.scale
        out = torch.matmul(self.attend(dots), v)
        return self.to_out(out.transpose(1, 2).reshape(b, n, -1))


class ViT(nn.Module):
    def __init__(self, *, image_size, patch_size, num_classes, dim, depth, pool="cls"):
        super().__init__()
        image_height, image_width = pair(image_size)
        patch_height, patch_width = pair(patch_size)
        assert image_height % patch_height == 0, (
            "Image dimensions must be divisible by the patch size."
        )
        num_patches = (image_height // patch_height) * (image_width // patch_width)
        assert pool in {"cls", "mean"}
        self.patch = nn.Conv2d(
            3, dim, (patch_height, patch_width), (patch_height, patch_width)
        )
        self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim))
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim))
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            mlp = nn.Sequential(
                nn.LayerNorm(dim),
                nn.Linear(dim, 2 * dim),
                nn.GELU(),
                nn.Linear(2 * dim, dim),
            )
            self.layers.append(nn.ModuleList([ViTAttention(dim), mlp]))
        self.pool = pool
        self.mlp_head = nn.Linear(dim, num_classes)

    def forward(self, img):
        x = self.patch(img).flatten(2).transpose(1, 2)
        b, n, _ = x.shape
        cls_tokens = self.cls_token.expand(b, -1, -1)
        x = torch.cat((cls_tokens, x), dim=1)
        x += self.pos_embedding[:, : (n + 1)]
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        x = x.mean(dim=1) if self.pool == "mean" else x[:, 0]
        return self.mlp_head(x)


@architecture
def vit():
    return ViT(image_size=16, patch_size=4, num_classes=3, dim=8, depth=2), images()


def window_partition(x, window_size):
    B, H, W, C = x.shape
    x = x.view(B, H // window_size, window_size, W // window_size, window_size, C)
    return (
        x.permute(0, 1, 3, 2, 4, 5).contiguous().view(-1, window_size, window_size, C)
    )


def window_reverse(windows, window_size, H, W):
    B = int(windows.shape[0] / (H * W / window_size / window_size))
    x = windows.view(
        B, H // window_size, W // window_size, window_size, window_size, -1
    )
    return x.permute(0, 1, 3, 2, 4, 5).contiguous().view(B, H, W, -1)


class SwinBlock(nn.Module):
    def __init__(self, dim, resolution, heads=2, window_size=4, shift_size=0):
        super().__init__()
        self.resolution, self.window_size, self.shift_size = (
            resolution,
            window_size,
            shift_size,
        )
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv, self.proj = nn.Linear(dim, dim * 3), nn.Linear(dim, dim)
        self.relative_position_bias_table = nn.Parameter(
            torch.zeros((2 * window_size - 1) ** 2, heads)
        )
        nn.init.trunc_normal_(self.relative_position_bias_table, std=0.02)
        coords = torch.stack(
            torch.meshgrid([torch.arange(window_size)] * 2, indexing="ij")
        ).flatten(1)
        relative = (
            (coords[:, :, None] - coords[:, None, :]).permute(1, 2, 0).contiguous()
        )
        relative += window_size - 1
        relative[:, :, 0] *= 2 * window_size - 1
        self.register_buffer("relative_position_index", relative.sum(-1))
        if self.shift_size > 0:
            H, W = self.resolution
            img_mask = torch.zeros((1, H, W, 1))
            h_slices = (
                slice(0, -window_size),
                slice(-window_size, -shift_size),
                slice(-shift_size, None),
            )
            cnt = 0
            for h in h_slices:
                for w in h_slices:
                    img_mask[:, h, w, :] = cnt
                    cnt += 1
            mask_windows = window_partition(img_mask, window_size).view(
                -1, window_size * window_size
            )
            attn_mask = mask_windows.unsqueeze(1) - mask_windows.unsqueeze(2)
            attn_mask = attn_mask.masked_fill(
                attn_mask != 0, float(-100.0)
            ).masked_fill(attn_mask == 0, 0.0)
        else:
            attn_mask = None
        self.register_buffer("attn_mask", attn_mask)

    def attention(self, x, mask=None):
        B_, N, C = x.shape
        qkv = (
            self.qkv(x)
            .reshape(B_, N, 3, self.heads, C // self.heads)
            .permute(2, 0, 3, 1, 4)
        )
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = (q * (C // self.heads) ** -0.5) @ k.transpose(-2, -1)
        bias = self.relative_position_bias_table[self.relative_position_index.view(-1)]
        attn = attn + bias.view(N, N, -1).permute(2, 0, 1).contiguous().unsqueeze(0)
        if mask is not None:
            nW = mask.shape[0]
            attn = attn.view(B_ // nW, nW, self.heads, N, N) + mask.unsqueeze(
                1
            ).unsqueeze(0)
            attn = attn.view(-1, self.heads, N, N)
        attn = attn.softmax(-1)
        return self.proj((attn @ v).transpose(1, 2).reshape(B_, N, C))

    def forward(self, x):
        H, W = self.resolution
        B, L, C = x.shape
        assert L == H * W, "input feature has wrong size"
        shortcut = x
        x = self.norm1(x).view(B, H, W, C)
        if self.shift_size > 0:
            shifted_x = torch.roll(
                x, shifts=(-self.shift_size, -self.shift_size), dims=(1, 2)
            )
        else:
            shifted_x = x
        windows = window_partition(shifted_x, self.window_size).view(
            -1, self.window_size**2, C
        )
        windows = self.attention(windows, mask=self.attn_mask).view(
            -1, self.window_size, self.window_size, C
        )
        shifted_x = window_reverse(windows, self.window_size, H, W)
        if self.shift_size > 0:
            x = torch.roll(
                shifted_x, shifts=(self.shift_size, self.shift_size), dims=(1, 2)
            )
        else:
            x = shifted_x
        return shortcut + x.view(B, H * W, C)


class Swin(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, 8, 2, 2)
        self.blocks = nn.ModuleList(
            [SwinBlock(8, (8, 8), shift_size=0 if i % 2 == 0 else 2) for i in range(2)]
        )
        self.reduction = nn.Linear(32, 16, bias=False)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        for blk in self.blocks:
            x = blk(x)
        B, L, C = x.shape
        H = W = int(math.sqrt(L))
        x = x.view(B, H, W, C)
        x0, x1 = x[:, 0::2, 0::2, :], x[:, 1::2, 0::2, :]
        x2, x3 = x[:, 0::2, 1::2, :], x[:, 1::2, 1::2, :]
        return self.reduction(torch.cat([x0, x1, x2, x3], -1).view(B, -1, 4 * C))


@architecture
def swin():
    return Swin(), images()


class PreNormResidual(nn.Module):
    def __init__(self, dim, fn):
        super().__init__()
        self.fn = fn
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        return self.fn(self.norm(x)) + x


def FeedForward(dim, mult=2, dropout=0.0, dense=nn.Linear):
    inner = int(dim * mult)
    return nn.Sequential(
        dense(dim, inner), nn.GELU(), nn.Dropout(dropout), dense(inner, dim)
    )


@architecture
def mlp_mixer():
    chan_first, chan_last = partial(nn.Conv1d, kernel_size=1), nn.Linear
    blocks = [
        nn.Sequential(
            PreNormResidual(8, FeedForward(16, dense=chan_first)),
            PreNormResidual(8, FeedForward(8, dense=chan_last)),
        )
        for _ in range(2)
    ]

    class Patches(nn.Module):
        def forward(self, x):
            p = x.unfold(2, 4, 4).unfold(3, 4, 4)
            return p.permute(0, 2, 3, 4, 5, 1).flatten(3).flatten(1, 2)

    return nn.Sequential(
        Patches(), nn.Linear(48, 8), *blocks, nn.LayerNorm(8)
    ), images()


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


class ASPP(nn.Module):
    def __init__(self, in_channels, rates, out=4):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv2d(in_channels, out, 3, padding=r, dilation=r) for r in rates]
        )
        self.pool = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(in_channels, out, 1)
        )
        self.project = nn.Conv2d(out * (len(rates) + 1), out, 1)

    def forward(self, x):
        size = x.shape[-2:]
        _res = [conv(x) for conv in self.convs]
        _res.append(
            F.interpolate(self.pool(x), size=size, mode="bilinear", align_corners=False)
        )
        return self.project(torch.cat(_res, dim=1))


@architecture
def deeplab():
    class DeepLab(nn.Module):
        def __init__(self):
            super().__init__()
            self.backbone = nn.Conv2d(3, 8, 3, 2, 1)
            self.classifier = ASPP(8, [1, 2, 4])

        def forward(self, x):
            input_shape = x.shape[-2:]
            result = OrderedDict()
            x = self.classifier(self.backbone(x))
            result["out"] = F.interpolate(
                x, size=input_shape, mode="bilinear", align_corners=False
            )
            return result

    return DeepLab(), images()


class SpatialTransformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.localization = nn.Sequential(
            nn.Conv2d(1, 4, 5), nn.MaxPool2d(2, 2), nn.ReLU(True)
        )
        self.fc_loc = nn.Sequential(nn.Linear(4 * 6 * 6, 6))
        self.fc_loc[0].weight.data.zero_()
        self.fc_loc[0].bias.data.copy_(
            torch.tensor([1, 0, 0, 0, 1, 0], dtype=torch.float)
        )

    def stn(self, x):
        xs = self.localization(x)
        xs = xs.view(-1, 4 * 6 * 6)
        theta = self.fc_loc(xs).view(-1, 2, 3)
        grid = F.affine_grid(theta, x.size(), align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    def forward(self, x):
        return F.log_softmax(self.stn(x).flatten(1), dim=1)


@architecture
def spatial_transformer():
    return SpatialTransformer(), images(1)


class YOLOHead(nn.Module):
    def __init__(self, anchors, num_classes=2, stride=4):
        super().__init__()
        self.num_anchors, self.num_classes, self.stride = (
            len(anchors),
            num_classes,
            stride,
        )
        self.anchors = anchors
        self.conv = nn.Conv2d(3, self.num_anchors * (5 + num_classes), stride, stride)

    def forward(self, x):
        prediction = self.conv(x)
        bs, _, ny, nx = prediction.shape
        p = (
            prediction.view(bs, self.num_anchors, self.num_classes + 5, ny, nx)
            .permute(0, 1, 3, 4, 2)
            .contiguous()
        )
        if self.training:
            return p
        FloatTensor = torch.cuda.FloatTensor if x.is_cuda else torch.FloatTensor
        grid_x = torch.arange(nx).repeat(ny, 1).view([1, 1, ny, nx]).to(p)
        grid_y = (
            torch.arange(ny).repeat(nx, 1).t().view([1, 1, ny, nx]).type(FloatTensor)
        )
        scaled = torch.tensor(
            [(a_w / self.stride, a_h / self.stride) for a_w, a_h in self.anchors]
        )
        anchor_w = scaled[:, 0:1].view((1, self.num_anchors, 1, 1))
        anchor_h = scaled[:, 1:2].view((1, self.num_anchors, 1, 1))
        boxes = torch.zeros_like(p[..., :4])
        boxes[..., 0] = torch.sigmoid(p[..., 0]) + grid_x
        boxes[..., 1] = torch.sigmoid(p[..., 1]) + grid_y
        boxes[..., 2] = torch.exp(p[..., 2]) * anchor_w
        boxes[..., 3] = torch.exp(p[..., 3]) * anchor_h
        conf, cls = torch.sigmoid(p[..., 4]), torch.sigmoid(p[..., 5:])
        return torch.cat(
            (
                boxes.view(bs, -1, 4) * self.stride,
                conf.view(bs, -1, 1),
                cls.view(bs, -1, self.num_classes),
            ),
            -1,
        )


@architecture
def yolo_head():
    return YOLOHead([(10, 13), (16, 30)]), images()


class DeformableGather(nn.Module):
    """Bilinear sampling at learned offsets, by hand."""

    def __init__(self):
        super().__init__()
        self.offset = nn.Conv2d(3, 2, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        off = self.offset(x)
        ys, xs = torch.meshgrid(
            torch.arange(h, device=x.device),
            torch.arange(w, device=x.device),
            indexing="ij",
        )
        py = (ys.unsqueeze(0) + off[:, 0]).clamp(0, h - 1)
        px = (xs.unsqueeze(0) + off[:, 1]).clamp(0, w - 1)
        y0, x0 = py.floor().long(), px.floor().long()
        y1, x1 = (y0 + 1).clamp(max=h - 1), (x0 + 1).clamp(max=w - 1)

        def at(yy, xx):
            index = (yy * w + xx).view(b, 1, -1).expand(-1, c, -1)
            return x.view(b, c, -1).gather(2, index).view(b, c, h, w)

        wy, wx = (py - y0).unsqueeze(1), (px - x0).unsqueeze(1)
        top = at(y0, x0) * (1 - wx) + at(y0, x1) * wx
        bottom = at(y1, x0) * (1 - wx) + at(y1, x1) * wx
        return top * (1 - wy) + bottom * wy


@architecture
def deformable_gather():
    return DeformableGather(), images()


class PixelShuffleSR(nn.Module):
    def __init__(
        self,
        upscale_factor=2,
        activation: Optional[Callable[[Tensor], Tensor]] = torch.tanh,
    ):
        super().__init__()
        self.relu = nn.PReLU()
        self.conv1, self.conv2 = (
            nn.Conv2d(1, 8, 5, padding=2),
            nn.Conv2d(8, upscale_factor**2, 3, padding=1),
        )
        self.pixel_shuffle = nn.PixelShuffle(upscale_factor)
        self.activation = activation

    def forward(self, x):
        bicubic = F.interpolate(x, scale_factor=2, mode="bicubic", align_corners=False)
        x = self.pixel_shuffle(self.conv2(self.relu(self.conv1(x))))
        return self.activation(x) + bicubic if self.activation is not None else x


@architecture
def super_resolution():
    return PixelShuffleSR(), images(1, 8)


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


class ROIHead(nn.Module):
    """Crops of fixed size at box positions, then a head with boxes decoded."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(3 * 4 * 4, 6)

    def forward(self, features, boxes) -> Tuple[Tensor, Tensor]:
        n = boxes.shape[0]
        grid = torch.linspace(-1, 1, 4)
        gy, gx = torch.meshgrid(grid, grid, indexing="ij")
        base = torch.stack([gx, gy], -1).unsqueeze(0).repeat(n, 1, 1, 1)
        centre, size = (boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]
        crops = F.grid_sample(
            features,
            base * size[:, None, None] + centre[:, None, None],
            align_corners=True,
        )
        out = self.head(crops.reshape(n, -1))
        deltas, scores = out.split([4, 2], dim=1)
        return torch.cat(
            [centre + deltas[:, :2] * size, size * deltas[:, 2:].exp()], 1
        ), scores.softmax(-1)


@architecture
def roi_head():
    return ROIHead(), lambda batch: (torch.randn(batch, 3, 8, 8), torch.rand(batch, 4))
