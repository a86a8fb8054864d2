"""Passes over whole exported programs."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from framejit.export._values import TensorValue
from framejit.export.exported_program import ExportedProgram

__all__ = ["move_to_device_pass"]

_Device = str | torch.device


def _place(device: torch.device, location: _Device | dict[str, str]) -> torch.device:
    if not isinstance(location, dict):
        return torch.device(location)
    found = location.get(str(device), location.get(device.type))
    return device if found is None else torch.device(found)


def move_to_device_pass(
    ep: ExportedProgram, location: _Device | dict[str, str]
) -> ExportedProgram:
    """Moves a program, with its parameters, buffers and constants, and gives it back.

    location: a device, or a dict from devices to devices.
    """

    def moved(value: Any) -> Any:
        if isinstance(value, torch.device):
            return _place(value, location)
        if isinstance(value, TensorValue):
            return value._replace(device=_place(value.device, location))
        if isinstance(value, list):
            return [moved(item) for item in value]
        return value

    def tensor(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        there = value.detach().to(_place(value.device, location))
        if isinstance(value, nn.Parameter):
            return nn.Parameter(there, requires_grad=value.requires_grad)
        return there.requires_grad_(value.requires_grad)

    done: dict[int, Any] = {}  # what is in two places stays one

    def once(value: torch.Tensor) -> Any:
        if id(value) not in done:
            done[id(value)] = tensor(value)
        return done[id(value)]

    for kept in (ep.state_dict, ep.constants):
        for path, value in kept.items():
            kept[path] = once(value)
    for node in ep.graph.nodes:
        if node.op == "call_function":
            node.args = tuple(moved(value) for value in node.args)
            node.kwargs = {key: moved(value) for key, value in node.kwargs.items()}
        node.meta["val"] = moved(node.meta.get("val"))
    ep.graph_module.recompile()
    if ep.example_inputs is not None:
        ep._example_inputs = pytree.tree_map(tensor, ep.example_inputs)
    ep._called = None
    return ep
