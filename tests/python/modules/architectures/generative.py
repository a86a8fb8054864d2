"""Autoencoders, adversarial, diffusion and flow models, and rendering networks."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections import namedtuple
from typing import NamedTuple

import torch
import torch.nn as nn
import torch.nn.functional as F

from architectures.registry import architecture, images, vectors


class VAE(nn.Module):
    def __init__(self):
        super(VAE, self).__init__()
        self.fc1, self.fc21, self.fc22 = (
            nn.Linear(12, 8),
            nn.Linear(8, 3),
            nn.Linear(8, 3),
        )
        self.fc3, self.fc4 = nn.Linear(3, 8), nn.Linear(8, 12)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 12))
        z = self.reparameterize(mu, logvar)
        recon = torch.sigmoid(self.fc4(F.relu(self.fc3(z))))
        KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
        return recon, mu, logvar, KLD


@architecture
def vae():
    return VAE(), vectors(3, 4)


class VectorQuantizer(nn.Module):
    def __init__(self, n_e=6, e_dim=4, beta=0.25):
        super().__init__()
        self.n_e, self.e_dim, self.beta = n_e, e_dim, beta
        self.embedding = nn.Embedding(n_e, e_dim)
        self.embedding.weight.data.uniform_(-1.0 / n_e, 1.0 / n_e)
        self.register_buffer("ema_count", torch.zeros(n_e))

    def forward(self, z):
        z = z.permute(0, 2, 3, 1).contiguous()
        z_flattened = z.view(-1, self.e_dim)
        d = (
            torch.sum(z_flattened**2, dim=1, keepdim=True)
            + torch.sum(self.embedding.weight**2, dim=1)
            - 2 * torch.matmul(z_flattened, self.embedding.weight.t())
        )
        indices = torch.argmin(d, dim=1).unsqueeze(1)
        encodings = torch.zeros(indices.shape[0], self.n_e).to(z.device)
        encodings.scatter_(1, indices, 1)
        if self.training:
            self.ema_count.mul_(0.9).add_(encodings.sum(0).detach(), alpha=0.1)
        z_q = torch.matmul(encodings, self.embedding.weight).view(z.shape)
        loss = torch.mean((z_q.detach() - z) ** 2) + self.beta * torch.mean(
            (z_q - z.detach()) ** 2
        )
        z_q = z + (z_q - z).detach()
        e_mean = torch.mean(encodings, dim=0)
        perplexity = torch.exp(-torch.sum(e_mean * torch.log(e_mean + 1e-10)))
        return loss, z_q.permute(0, 3, 1, 2).contiguous(), perplexity, indices


@architecture
def vq_vae():
    class VQVAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.encoder = nn.Sequential(
                nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(), nn.Conv2d(8, 4, 1)
            )
            self.quantizer = VectorQuantizer()
            self.decoder = nn.ConvTranspose2d(4, 3, 4, 2, 1)

        def forward(self, x, verbose=False):
            loss, z_q, perplexity, _ = self.quantizer(self.encoder(x))
            if verbose:
                print("original data shape:", x.shape)
                assert False
            return loss, self.decoder(z_q), perplexity

    return VQVAE(), images(3, 8)


class DCGAN(nn.Module):
    def __init__(self, nz=6, ngf=4, ngpu=0):
        super().__init__()
        self.ngpu = ngpu
        self.generator = nn.Sequential(
            nn.ConvTranspose2d(nz, ngf * 2, 4, 1, 0, bias=False), nn.BatchNorm2d(ngf * 2), nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, 3, 4, 2, 1, bias=False), nn.Tanh(),
        )  # fmt: skip
        self.discriminator = nn.Sequential(
            nn.utils.spectral_norm(nn.Conv2d(3, 8, 4, 2, 1)),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(8, 1, 4),
        )

    def forward(self, input):
        if input.is_cuda and self.ngpu > 1:
            output = nn.parallel.data_parallel(self.generator, input, range(self.ngpu))
        else:
            output = self.generator(input)
        return output, self.discriminator(output).view(-1, 1).squeeze(1)


@architecture
def dcgan_spectral_norm():
    return DCGAN(), vectors(6, 1, 1)


def timestep_embedding(timesteps, dim, max_period=10000):
    half = dim // 2
    freqs = torch.exp(
        -math.log(max_period)
        * torch.arange(start=0, end=half, dtype=torch.float32)
        / half
    ).to(device=timesteps.device)
    args = timesteps[:, None].float() * freqs[None]
    embedding = torch.cat([torch.cos(args), torch.sin(args)], dim=-1)
    if dim % 2:
        embedding = torch.cat([embedding, torch.zeros_like(embedding[:, :1])], dim=-1)
    return embedding


class TimestepBlock(nn.Module):
    @abstractmethod
    def forward(self, x, emb):
        """Apply the module to `x` given `emb` timestep embeddings."""


class TimestepEmbedSequential(nn.Sequential, TimestepBlock):
    def forward(self, x, emb, context=None):
        for layer in self:
            if isinstance(layer, TimestepBlock):
                x = layer(x, emb)
            elif isinstance(layer, SpatialAttention):
                x = layer(x, context)
            else:
                x = layer(x)
        return x


class GroupNorm32(nn.GroupNorm):
    def forward(self, x):
        return super().forward(x.float()).type(x.dtype)


class ResBlock(TimestepBlock):
    def __init__(
        self, channels, emb_channels, out_channels=None, use_scale_shift_norm=True
    ):
        super().__init__()
        self.out_channels = out_channels or channels
        self.use_scale_shift_norm = use_scale_shift_norm
        self.in_layers = nn.Sequential(
            GroupNorm32(2, channels),
            nn.SiLU(),
            nn.Conv2d(channels, self.out_channels, 3, padding=1),
        )
        self.emb_layers = nn.Sequential(
            nn.SiLU(), nn.Linear(emb_channels, 2 * self.out_channels)
        )
        self.out_layers = nn.Sequential(
            GroupNorm32(2, self.out_channels),
            nn.SiLU(),
            nn.Dropout(0.1),
            nn.Conv2d(self.out_channels, self.out_channels, 3, padding=1),
        )
        self.skip_connection = (
            nn.Identity()
            if self.out_channels == channels
            else nn.Conv2d(channels, self.out_channels, 1)
        )

    def forward(self, x, emb):
        h = self.in_layers(x)
        emb_out = self.emb_layers(emb).type(h.dtype)
        while len(emb_out.shape) < len(h.shape):
            emb_out = emb_out[..., None]
        if self.use_scale_shift_norm:
            out_norm, out_rest = self.out_layers[0], self.out_layers[1:]
            scale, shift = torch.chunk(emb_out, 2, dim=1)
            h = out_norm(h) * (1 + scale) + shift
            h = out_rest(h)
        else:
            h = self.out_layers(h + emb_out)
        return self.skip_connection(x) + h


class SpatialAttention(nn.Module):
    def __init__(self, channels, num_heads=2):
        super().__init__()
        self.num_heads = num_heads
        self.norm, self.qkv = (
            GroupNorm32(2, channels),
            nn.Conv1d(channels, channels * 3, 1),
        )
        self.proj_out = nn.Conv1d(channels, channels, 1)

    def forward(self, x, context=None):
        b, c, *spatial = x.shape
        x = x.reshape(b, c, -1)
        qkv = self.qkv(self.norm(x))
        bs, width, length = qkv.shape
        ch = width // (3 * self.num_heads)
        q, k, v = qkv.reshape(bs * self.num_heads, ch * 3, length).split(ch, dim=1)
        scale = 1 / math.sqrt(math.sqrt(ch))
        weight = torch.softmax(
            torch.einsum("bct,bcs->bts", q * scale, k * scale).float(), dim=-1
        )
        a = torch.einsum("bts,bcs->bct", weight, v).reshape(bs, -1, length)
        return (x + self.proj_out(a)).reshape(b, c, *spatial)


class DiffusionUNet(nn.Module):
    def __init__(self, ch=4):
        super().__init__()
        emb = 8
        self.model_channels = ch
        self.time_embed = nn.Sequential(
            nn.Linear(ch, emb), nn.SiLU(), nn.Linear(emb, emb)
        )
        self.input_blocks = nn.ModuleList(
            [TimestepEmbedSequential(nn.Conv2d(3, ch, 3, padding=1))]
        )
        self.input_blocks.append(
            TimestepEmbedSequential(ResBlock(ch, emb, 2 * ch), SpatialAttention(2 * ch))
        )
        self.input_blocks.append(
            TimestepEmbedSequential(nn.Conv2d(2 * ch, 2 * ch, 3, 2, 1))
        )
        self.middle_block = TimestepEmbedSequential(
            ResBlock(2 * ch, emb), SpatialAttention(2 * ch)
        )
        self.output_blocks = nn.ModuleList([])
        for width, up in ((4 * ch, True), (4 * ch, False), (3 * ch, False)):
            layers = [ResBlock(width, emb, 2 * ch)]
            if up:
                layers.append(nn.Upsample(scale_factor=2, mode="nearest"))
            self.output_blocks.append(TimestepEmbedSequential(*layers))
        self.out = nn.Conv2d(2 * ch, 3, 3, padding=1)
        self.dtype = torch.float32

    def forward(self, x, timesteps, y=None):
        assert y is None, "must specify y if and only if the model is class-conditional"
        hs = []
        emb = self.time_embed(timestep_embedding(timesteps, self.model_channels))
        h = x.type(self.dtype)
        for module in self.input_blocks:
            h = module(h, emb)
            hs.append(h)
        h = self.middle_block(h, emb)
        for module in self.output_blocks:
            cat_in = torch.cat([h, hs.pop()], dim=1)
            h = module(cat_in, emb)
        return self.out(h.type(x.dtype))


@architecture
def diffusion_unet():
    return DiffusionUNet(), lambda b: (
        torch.randn(b, 3, 8, 8),
        torch.randint(0, 100, (b,)),
    )


class NeRF(nn.Module):
    def __init__(self, D=4, W=8, freqs=2, skips=[2]):
        super().__init__()
        self.skips = skips
        input_ch = 3 + 3 * 2 * freqs
        self.embed_fns = [lambda x: x]
        for freq in 2.0 ** torch.linspace(0.0, freqs - 1, steps=freqs):
            for p_fn in [torch.sin, torch.cos]:
                self.embed_fns.append(
                    lambda x, p_fn=p_fn, freq=float(freq): p_fn(x * freq)
                )
        self.pts_linears = nn.ModuleList(
            [nn.Linear(input_ch, W)]
            + [
                nn.Linear(W + input_ch if i + 1 in skips else W, W)
                for i in range(D - 1)
            ]
        )
        self.alpha_linear, self.rgb_linear = nn.Linear(W, 1), nn.Linear(W, 3)

    def forward(self, rays_o, rays_d):
        t_vals = torch.linspace(0.0, 1.0, steps=5)
        z_vals = (1.0 - t_vals) * 0.5 + t_vals * 2.0
        z_vals = z_vals.expand([rays_o.shape[0], 5])
        mids = 0.5 * (z_vals[..., 1:] + z_vals[..., :-1])
        upper, lower = (
            torch.cat([mids, z_vals[..., -1:]], -1),
            torch.cat([z_vals[..., :1], mids], -1),
        )
        if self.training:
            z_vals = lower + (upper - lower) * torch.rand(z_vals.shape)
        pts = rays_o[..., None, :] + rays_d[..., None, :] * z_vals[..., :, None]
        input_pts = torch.cat([fn(pts) for fn in self.embed_fns], -1)
        h = input_pts
        for i, l in enumerate(self.pts_linears):
            h = F.relu(self.pts_linears[i](h))
            if i + 1 in self.skips:
                h = torch.cat([input_pts, h], -1)
        dists = z_vals[..., 1:] - z_vals[..., :-1]
        dists = torch.cat(
            [dists, torch.Tensor([1e10]).expand(dists[..., :1].shape)], -1
        )
        alpha = 1.0 - torch.exp(
            -F.relu(self.alpha_linear(h)[..., 0])
            * dists
            * torch.norm(rays_d[..., None, :], dim=-1)
        )
        transmittance = torch.cumprod(
            torch.cat([torch.ones((alpha.shape[0], 1)), 1.0 - alpha + 1e-10], -1), -1
        )[:, :-1]
        weights = alpha * transmittance
        return {
            "rgb": (weights[..., None] * torch.sigmoid(self.rgb_linear(h))).sum(-2),
            "depth": (weights * z_vals).sum(-1),
        }


@architecture
def nerf():
    return NeRF(), lambda b: (torch.randn(b, 3), torch.randn(b, 3))


class Coupling(nn.Module):
    def __init__(self, dim, flip):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(dim // 2, 8), nn.Tanh(), nn.Linear(8, dim))
        self.flip = flip

    def forward(self, x, logdet, reverse=False):
        a, b = x.chunk(2, 1)
        if self.flip:
            a, b = b, a
        s, t = self.net(a).chunk(2, 1)
        s = torch.tanh(s)
        b = (b - t) * torch.exp(-s) if reverse else b * torch.exp(s) + t
        logdet = logdet + (-s if reverse else s).sum(1)
        return torch.cat([b, a] if self.flip else [a, b], 1), logdet


class RealNVP(nn.Module):
    def __init__(self, dim=4, n=3):
        super().__init__()
        self.flows = nn.ModuleList([Coupling(dim, i % 2) for i in range(n)])
        self.register_buffer("loc", torch.zeros(dim))

    def forward(self, x):
        logdet = x.new_zeros(x.size(0))
        for flow in self.flows:
            x, logdet = flow(x, logdet)
        log_prob = -0.5 * ((x - self.loc) ** 2 + math.log(2 * math.pi)).sum(1)
        back, logdet2 = x, logdet
        for flow in reversed(self.flows):
            back, logdet2 = flow(back, logdet2, reverse=True)
        return log_prob + logdet, back


@architecture
def normalizing_flow():
    return RealNVP(), vectors(4)


class HyperNetwork(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Parameter(torch.randn(3))
        self.generate = nn.ModuleDict(
            {"weight": nn.Linear(3, 20), "bias": nn.Linear(3, 5)}
        )

    def forward(self, x):
        params = {name: layer(self.embed) for name, layer in self.generate.items()}
        params["weight"] = params["weight"].view(5, 4)
        return F.linear(x, **params)


@architecture
def hypernetwork():
    return HyperNetwork(), vectors(4)


class FiLM(nn.Module):
    def __init__(self):
        super().__init__()
        self.convs = nn.ModuleList(
            [nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 6, 3, padding=1)]
        )
        self.film = nn.GRU(4, 24, batch_first=True)

    def forward(self, x, question):
        _, hidden = self.film(question)
        params = hidden.squeeze(0).view(-1, 2, 2, 6)
        for i, conv in enumerate(self.convs):
            gamma, beta = params[:, i, 0], params[:, i, 1]
            x = F.relu((1 + gamma)[:, :, None, None] * conv(x) + beta[:, :, None, None])
        return x.amax(dim=(2, 3))


@architecture
def film():
    return FiLM(), lambda b: (torch.randn(b, 3, 8, 8), torch.randn(b, 5, 4))


class EqualLinear(nn.Module):
    def __init__(self, in_dim, out_dim, lr_mul=1, bias_init=0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(out_dim, in_dim).div_(lr_mul))
        self.bias = nn.Parameter(torch.zeros(out_dim).fill_(bias_init))
        self.scale, self.lr_mul = (1 / math.sqrt(in_dim)) * lr_mul, lr_mul

    def forward(self, input):
        return F.linear(input, self.weight * self.scale, bias=self.bias * self.lr_mul)

    def __repr__(self):
        return (
            f"{self.__class__.__name__}({self.weight.shape[1]}, {self.weight.shape[0]})"
        )


class ModulatedConv2d(nn.Module):
    def __init__(
        self,
        in_channel,
        out_channel,
        kernel_size,
        style_dim,
        demodulate=True,
        upsample=False,
    ):
        super().__init__()
        self.in_channel, self.out_channel, self.kernel_size = (
            in_channel,
            out_channel,
            kernel_size,
        )
        self.upsample, self.demodulate, self.eps = upsample, demodulate, 1e-8
        self.scale = 1 / math.sqrt(in_channel * kernel_size**2)
        self.weight = nn.Parameter(
            torch.randn(1, out_channel, in_channel, kernel_size, kernel_size)
        )
        self.modulation = EqualLinear(style_dim, in_channel, bias_init=1)

    def forward(self, input, style):
        batch, in_channel, height, width = input.shape
        style = self.modulation(style).view(batch, 1, in_channel, 1, 1)
        weight = self.scale * self.weight * style
        if self.demodulate:
            demod = torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8)
            weight = weight * demod.view(batch, self.out_channel, 1, 1, 1)
        weight = weight.view(
            batch * self.out_channel, in_channel, self.kernel_size, self.kernel_size
        )
        if self.upsample:
            input = input.view(1, batch * in_channel, height, width)
            weight = weight.view(
                batch, self.out_channel, in_channel, self.kernel_size, self.kernel_size
            )
            weight = weight.transpose(1, 2).reshape(
                batch * in_channel, self.out_channel, self.kernel_size, self.kernel_size
            )
            out = F.conv_transpose2d(input, weight, padding=0, stride=2, groups=batch)
        else:
            input = input.view(1, batch * in_channel, height, width)
            out = F.conv2d(input, weight, padding=self.kernel_size // 2, groups=batch)
        _, _, height, width = out.shape
        return out.view(batch, self.out_channel, height, width)


class StyleGAN(nn.Module):
    def __init__(self, style_dim=6):
        super().__init__()
        self.style = nn.Sequential(
            *[EqualLinear(style_dim, style_dim, lr_mul=0.01) for _ in range(2)]
        )
        self.const = nn.Parameter(torch.randn(1, 4, 4, 4))
        self.convs = nn.ModuleList(
            [
                ModulatedConv2d(4, 4, 3, style_dim),
                ModulatedConv2d(4, 4, 3, style_dim, upsample=True),
            ]
        )
        self.noise_weight = nn.Parameter(torch.zeros(1))

    def forward(self, z, noise=None, truncation=1, return_latents=False):
        z = z * torch.rsqrt(torch.mean(z**2, dim=1, keepdim=True) + 1e-8)
        latent = self.style(z)
        styles = [latent] * len(self.convs) if not isinstance(latent, list) else latent
        out = self.const.repeat(z.shape[0], 1, 1, 1)
        for conv, style in zip(self.convs, styles):
            out = conv(out, style)
            if noise is None:
                batch, _, height, width = out.shape
                image_noise = out.new_empty(batch, 1, height, width).normal_()
            else:
                image_noise = noise
            out = F.leaky_relu(
                out + self.noise_weight * image_noise, negative_slope=0.2
            ) * math.sqrt(2)
        return (out, latent) if return_latents else (out, None)


@architecture
def stylegan_blocks():
    return StyleGAN(), vectors(6)


class Solver:
    """Fixed-step Runge-Kutta as a plain class with a registry of steps."""

    STEPS = {}

    def __init_subclass__(cls, name=None, **kwargs):
        super().__init_subclass__(**kwargs)
        Solver.STEPS[name] = cls

    def integrate(self, func, y0, t):
        solution = [y0]
        for t0, t1 in zip(t[:-1], t[1:]):
            y0 = y0 + self.step(func, t0, t1 - t0, y0)
            solution.append(y0)
        return torch.stack(solution)


class Euler(Solver, name="euler"):
    def step(self, func, t, dt, y):
        return dt * func(t, y)


class RK4(Solver, name="rk4"):
    def step(self, func, t, dt, y):
        k1 = func(t, y)
        k2 = func(t + dt / 2, y + dt * k1 / 2)
        k3 = func(t + dt / 2, y + dt * k2 / 2)
        k4 = func(t + dt, y + dt * k3)
        return (k1 + 2 * k2 + 2 * k3 + k4) * dt / 6


class ODEFunc(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
        self.nfe = 0

    def forward(self, t, y):
        self.nfe += 1
        return self.net(y**3) * torch.cos(t)


@architecture
def neural_ode():
    class NeuralODE(nn.Module):
        def __init__(self, method="rk4"):
            super().__init__()
            self.func = ODEFunc()
            self.solver = Solver.STEPS[method]()
            self.register_buffer("t", torch.linspace(0.0, 1.0, 4))

        def forward(self, y0):
            self.func.nfe = 0
            return self.solver.integrate(self.func, y0, self.t)[-1]

    return NeuralODE(), vectors(3)


class GaussianDiffusion(nn.Module):
    def __init__(self, model, timesteps=4, loss_type="huber"):
        super().__init__()
        self.model, self.num_timesteps, self.loss_type = model, timesteps, loss_type
        betas = torch.linspace(1e-4, 0.02, timesteps, dtype=torch.float64)
        alphas_cumprod = torch.cumprod(1.0 - betas, dim=0)

        def register(name, val):
            self.register_buffer(name, val.to(torch.float32))

        register("sqrt_alphas_cumprod", torch.sqrt(alphas_cumprod))
        register("sqrt_one_minus_alphas_cumprod", torch.sqrt(1.0 - alphas_cumprod))

    @property
    def loss_fn(self):
        if self.loss_type == "l1":
            return F.l1_loss
        elif self.loss_type == "huber":
            return F.smooth_l1_loss
        raise ValueError(f"invalid loss type {self.loss_type}")

    def extract(self, a, t, x_shape):
        b, *_ = t.shape
        out = a.gather(-1, t)
        return out.reshape(b, *((1,) * (len(x_shape) - 1)))

    def forward(self, x_start):
        b, c, h, w, device = *x_start.shape, x_start.device
        assert h == w, f"height and width of image must be equal, got {h} and {w}"
        t = torch.randint(0, self.num_timesteps, (b,), device=device).long()
        noise = torch.randn_like(x_start)
        x = self.extract(self.sqrt_alphas_cumprod, t, x_start.shape) * x_start
        x = (
            x
            + self.extract(self.sqrt_one_minus_alphas_cumprod, t, x_start.shape) * noise
        )
        loss = self.loss_fn(self.model(x), noise, reduction="none")
        loss = loss.reshape(loss.shape[0], -1).mean(1)
        return loss.mean()


@architecture
def gaussian_diffusion():
    return GaussianDiffusion(nn.Conv2d(3, 3, 3, padding=1)), images(3, 8)


PerceptualFeatures = namedtuple("PerceptualFeatures", ["relu1", "relu2"])


class PerceptualLoss(nn.Module):
    def __init__(self):
        super().__init__()
        self.slice1 = torch.nn.Sequential()
        self.slice2 = torch.nn.Sequential()
        for x, layer in enumerate(
            [nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU()]
        ):
            (self.slice1 if x < 2 else self.slice2).add_module(str(x), layer)
        for param in self.parameters():
            param.requires_grad = False
        self.register_buffer(
            "shift", torch.Tensor([-0.03, -0.088, -0.188])[None, :, None, None]
        )

    def features(self, X):
        h = self.slice1(X)
        h_relu1 = h
        h = self.slice2(h)
        return PerceptualFeatures(h_relu1, h)

    def forward(self, in0, in1):
        outs0, outs1 = self.features(in0 - self.shift), self.features(in1 - self.shift)
        feats0, diffs = {}, {}
        for kk in range(len(outs0)):
            feats0[kk] = F.normalize(outs0[kk], dim=1)
            diffs[kk] = (feats0[kk] - F.normalize(outs1[kk], dim=1)) ** 2
        res = [diffs[kk].mean([1, 2, 3], keepdim=True) for kk in range(len(outs0))]
        val = res[0]
        for l in range(1, len(outs0)):
            val = val + res[l]
        return val


@architecture
def perceptual_loss():
    return PerceptualLoss(), lambda b: (
        torch.randn(b, 3, 8, 8),
        torch.randn(b, 3, 8, 8),
    )


class SSIM(nn.Module):
    def __init__(self, window_size=5, size_average=True):
        super().__init__()
        self.window_size, self.size_average = window_size, size_average
        self.channel = 1
        self.window = self.create_window(window_size, self.channel)

    def create_window(self, window_size, channel):
        gauss = torch.Tensor(
            [math.exp(-((x - window_size // 2) ** 2) / 4.5) for x in range(window_size)]
        )
        window = (gauss / gauss.sum()).unsqueeze(1)
        window = window.mm(window.t()).float().unsqueeze(0).unsqueeze(0)
        return window.expand(channel, 1, window_size, window_size).contiguous()

    def forward(self, img1, img2):
        (_, channel, _, _) = img1.size()
        if channel == self.channel and self.window.data.type() == img1.data.type():
            window = self.window
        else:
            window = self.create_window(self.window_size, channel)
            window = window.type_as(img1)
            self.window = window
            self.channel = channel
        pad = self.window_size // 2
        mu1, mu2 = (
            F.conv2d(img1, window, padding=pad, groups=channel),
            F.conv2d(img2, window, padding=pad, groups=channel),
        )
        sigma12 = F.conv2d(img1 * img2, window, padding=pad, groups=channel) - mu1 * mu2
        ssim_map = (
            (2 * mu1 * mu2 + 0.01) * (2 * sigma12 + 0.03) / (mu1**2 + mu2**2 + 0.01)
        )
        return (
            ssim_map.mean() if self.size_average else ssim_map.mean(1).mean(1).mean(1)
        )


@architecture
def ssim():
    return SSIM(), lambda b: (torch.randn(b, 3, 8, 8), torch.randn(b, 3, 8, 8))


class AdaIN(NamedTuple):
    scale: torch.Tensor
    bias: torch.Tensor


@architecture
def style_transfer():
    class StyleTransfer(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Sequential(
                nn.ReflectionPad2d(1),
                nn.Conv2d(3, 4, 3),
                nn.InstanceNorm2d(4, affine=True),
            )
            self.style = nn.Linear(3, 8)

        def forward(self, x, y):
            h = self.conv(x)
            s = AdaIN(*self.style(y.mean((2, 3))).chunk(2, 1))
            mean, std = (
                h.mean((2, 3), keepdim=True),
                h.var((2, 3), keepdim=True).add(1e-5).sqrt(),
            )
            h = (h - mean) / std * s.scale[..., None, None] + s.bias[..., None, None]
            b, ch, hh, ww = h.size()
            features = h.view(b, ch, hh * ww)
            gram = features.bmm(features.transpose(1, 2)) / (ch * hh * ww)
            return h, gram

    return StyleTransfer(), lambda b: (torch.randn(b, 3, 8, 8), torch.randn(b, 3, 8, 8))
