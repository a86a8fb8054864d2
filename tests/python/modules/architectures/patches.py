"""Networks that cut an image into patches."""

from __future__ import annotations

import math
from functools import partial

import torch
import torch.nn as nn

from architectures.registry import architecture, images


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
