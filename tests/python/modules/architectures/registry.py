"""The table that the other files fill."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Inputs = Callable[[int], tuple[Any, ...]]
Maker = Callable[[], tuple[nn.Module, Inputs]]
ARCHITECTURES: dict[str, Maker] = {}


def architecture(maker: Maker) -> Maker:
    """Enters a function that makes a model and its inputs, under its own name."""
    assert maker.__name__ not in ARCHITECTURES
    ARCHITECTURES[maker.__name__] = maker
    return maker


def images(channels: int = 3, size: int = 16) -> Inputs:
    return lambda batch: (torch.randn(batch, channels, size, size),)


def tokens(length: int = 6, vocabulary: int = 20) -> Inputs:
    return lambda batch: (torch.randint(0, vocabulary, (batch, length)),)


def vectors(*shape: int) -> Inputs:
    return lambda batch: (torch.randn(batch, *shape),)
