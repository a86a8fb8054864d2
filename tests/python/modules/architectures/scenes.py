"""Networks that say what is where in an image, or make another of it."""

from __future__ import annotations

from collections import OrderedDict
from typing import Callable, Dict, List, Optional, Tuple

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import Tensor

from architectures.registry import architecture, images


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
