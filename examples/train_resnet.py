"""A small ResNet with mixed precision: autocast, GradScaler, SGD, OneCycleLR.

The model is compiled. Its batch norms have state that each step writes, and an
exponential average of the weights is kept beside it.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from beside import Step, Wrap, main
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

SIZES = {  # widths, blocks a stage, image, batch
    "small": ((8, 16), 1, 12, 4),
    "medium": ((32, 64, 128), 2, 32, 16),
}


def convolution(inputs, outputs, size, stride=1):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, size, stride, size // 2, bias=False),
        nn.BatchNorm2d(outputs),
    )


class BasicBlock(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            convolution(inputs, outputs, 3, stride),
            nn.ReLU(inplace=True),
            convolution(outputs, outputs, 3),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or inputs != outputs:
            self.shortcut = convolution(inputs, outputs, 1, stride)

    def forward(self, x):
        out = self.body(x)
        out += self.shortcut(x)
        return F.relu(out, inplace=True)


class ResNet(nn.Module):
    def __init__(self, widths, blocks, classes=5):
        super().__init__()
        self.stem = convolution(3, widths[0], 3)
        stages, inputs = [], widths[0]
        for stage, outputs in enumerate(widths):
            for block in range(blocks):
                stride = 2 if stage and block == 0 else 1
                stages.append(BasicBlock(inputs, outputs, stride))
                inputs = outputs
        self.stages = nn.Sequential(*stages)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(inputs, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out")

    def forward(self, x):
        x = F.relu(self.stem(x))
        x = self.avgpool(self.stages(x))
        return self.fc(torch.flatten(x, 1))


def make(size: str, wrap: Wrap) -> Step:
    widths, blocks, image, batch = SIZES[size]
    torch.manual_seed(0)
    model = ResNet(widths, blocks).to(memory_format=torch.channels_last)
    average = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
    compiled = wrap(model)
    optimizer = torch.optim.SGD(
        model.parameters(), lr=0.01, momentum=0.9, weight_decay=5e-4, nesterov=True
    )
    scheduler = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, max_lr=0.05, total_steps=1000
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=128.0)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)

    def step() -> tuple[float, float]:
        labels = torch.randint(5, (batch,))
        images = torch.randn(batch, 3, image, image) + labels[:, None, None, None]
        images = images.contiguous(memory_format=torch.channels_last)
        model.train()
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = criterion(compiled(images), labels)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        scheduler.step()
        average.update_parameters(model)
        model.eval()
        with torch.no_grad():
            evaluated = criterion(compiled(images), labels)
        return loss.item(), evaluated.item()

    return step


if __name__ == "__main__":
    main(make, tolerance=2e-2)
