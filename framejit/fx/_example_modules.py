"""Modules that run for examples: twins that share nothing that can be written.

A leaf module runs when its example is looked for, and what it writes then (a counter
of batches, a tensor that it keeps) must not be left in the user's module. So a twin
of it runs: of the same class, with fake tensors for its parameters and buffers, and
copies of what else it holds. One twin for each module of a trace: what a call leaves
there, the next one finds, as in the program.
"""

from __future__ import annotations

import copy
import types
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

__all__ = ["Twins"]


class Twins:
    """The twins of a trace's modules.

    fake: makes the tensor that stands for one of a module.
    """

    def __init__(self, fake: Callable[[torch.Tensor], torch.Tensor]) -> None:
        self._fake = fake
        # By identity: the twin, and what it is the twin of, so that it stays alive.
        self._known: dict[int, tuple[Any, Any]] = {}

    def of(self, value: Any) -> Any:
        """What stands for a module, or for what a module holds."""
        known = self._known.get(id(value))
        if known is not None:
            return known[0]
        if isinstance(value, torch.Tensor):
            return self._keep(value, self._fake(value))
        if isinstance(value, nn.Module):
            return self._of_module(value)
        cls = type(value)
        if cls is list:
            made = self._keep(value, [])
            made.extend(map(self.of, value))
            return made
        if cls in (dict, OrderedDict):
            made = self._keep(value, cls())
            made.update((key, self.of(item)) for key, item in value.items())
            return made
        if cls in (tuple, set):
            return self._keep(value, cls(map(self.of, value)))
        if cls is types.MethodType:  # a hook that is a method
            return self._keep(
                value, types.MethodType(value.__func__, self.of(value.__self__))
            )
        return self._keep(value, _copied(value))

    def _keep(self, value: Any, twin: Any) -> Any:
        self._known[id(value)] = twin, value
        return twin

    def _of_module(self, module: nn.Module) -> nn.Module:
        cls = type(module)
        twin: nn.Module = self._keep(module, cls.__new__(cls))
        # (A copy: a property of the class is not asked.)
        for name, value in list(vars(module).items()):
            twin.__dict__[name] = self.of(value)
        return twin


def _copied(value: Any) -> Any:
    try:
        return copy.deepcopy(value)
    except Exception:  # a lock, a file: there is one of it
        return value
