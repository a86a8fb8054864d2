"""``ShapeProp``: what every node of a graph gives, for example inputs."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any, NamedTuple

import torch
from torch import nn

from framejit.fx.interpreter import Interpreter
from framejit.fx.node import Node, map_aggregate

__all__ = ["ShapeProp", "TensorMetadata"]


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its content."""

    shape: torch.Size
    dtype: torch.dtype
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: torch.memory_format | None
    is_quantized: bool
    qparams: dict[str, Any]


_FORMATS = (torch.contiguous_format, torch.channels_last, torch.channels_last_3d)
_RANK = {torch.channels_last: 4, torch.channels_last_3d: 5}


def _metadata(tensor: torch.Tensor) -> TensorMetadata:
    strided = tensor.layout is torch.strided
    formats = (
        layout
        for layout in _FORMATS
        if strided
        and tensor.dim() == _RANK.get(layout, tensor.dim())
        and tensor.is_contiguous(memory_format=layout)
    )
    qparams: dict[str, Any] = {}
    if tensor.is_quantized:
        qparams["qscheme"] = scheme = tensor.qscheme()
        if scheme in (torch.per_tensor_affine, torch.per_tensor_symmetric):
            qparams["scale"] = tensor.q_scale()
            qparams["zero_point"] = tensor.q_zero_point()
        else:
            qparams["scale"] = tensor.q_per_channel_scales().tolist()
            qparams["zero_point"] = tensor.q_per_channel_zero_points().tolist()
            qparams["axis"] = tensor.q_per_channel_axis()
    return TensorMetadata(
        tensor.shape,
        tensor.dtype,
        tensor.requires_grad,
        tensor.stride() if strided else (),
        next(formats, None),
        tensor.is_quantized,
        qparams,
    )


class ShapeProp(Interpreter):
    """Runs a graph and notes what each node gives.

    ``meta["tensor_meta"]`` is a :class:`TensorMetadata`, or a list, tuple or dict
    with some in it, and ``meta["type"]`` the type of the value. With a
    ``fake_mode`` (``torch._subclasses.FakeTensorMode``) nothing is computed.
    """

    def __init__(self, gm: nn.Module, fake_mode: Any = None) -> None:
        super().__init__(gm)
        self.fake_mode = fake_mode
        if fake_mode is not None:
            from torch._dynamo.utils import deepcopy_to_fake_tensor

            self.module = deepcopy_to_fake_tensor(gm, fake_mode)

    def run_node(self, n: Node) -> Any:
        """Its value, after noting what it is."""
        with self.fake_mode or nullcontext():
            result = super().run_node(n)
        found = False

        def described(value: Any) -> Any:
            nonlocal found
            if not isinstance(value, torch.Tensor):
                return value
            found = True
            return _metadata(value)

        described_result = map_aggregate(result, described)
        if found:
            n.meta["tensor_meta"] = described_result
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        """Run the graph on example inputs; what it returns."""
        if self.fake_mode is not None:
            args = tuple(
                self.fake_mode.from_tensor(arg)
                if isinstance(arg, torch.Tensor)
                else arg
                for arg in args
            )
        return self.run(*args)
