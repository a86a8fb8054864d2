"""What a program may have asked of its inputs as objects of Python.

No guard says whether a program asked for the class of an input, so it is that of the
example in every call.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from framejit.errors import GraphBreakError

__all__ = ["Objects", "check_leaf", "find_objects"]

_PLAIN = (torch.Tensor, nn.Parameter, nn.Buffer)
_OF_INPUTS = re.compile(r"(args|kwargs)(\[[^\]]*\])+")
_DISTINCT = re.compile(r"(.+) is not (.+)")


class Objects(NamedTuple):
    """``parameters``: numbers of the leaves that are parameters (None: not known, as
    in a file of torch.export's). ``distinct``: pairs of leaves that are two objects.
    ``keywords``: what goes into ``**kwargs``, in its order."""

    parameters: tuple[int, ...] | None = None
    distinct: tuple[tuple[int, int], ...] = ()
    keywords: tuple[str, ...] = ()

    def wrong(
        self, names: list[str], leaves: list[Any], kwargs: Iterable[str]
    ) -> str | None:
        """What is not as it was in the export, in words."""
        for number, leaf in enumerate(leaves):
            if self.parameters is None or not isinstance(leaf, torch.Tensor):
                continue
            found = isinstance(leaf, nn.Parameter)
            if found != (number in self.parameters):
                other = "a tensor that is no Parameter" if found else "a Parameter"
                return (
                    f"{names[number]} is a {type(leaf).__name__}: the program was "
                    f"exported for {other}"
                )
        for one, other_leaf in self.distinct:
            if leaves[one] is leaves[other_leaf]:
                return (
                    f"{names[one]} and {names[other_leaf]} are one object: the program "
                    "asks for it, and was exported for two"
                )
        order = [key for key in kwargs if key in self.keywords]
        if order != list(self.keywords):
            return (
                f"the keyword arguments come in the order {order}: the program was "
                f"exported for {list(self.keywords)}"
            )
        return None


def check_leaf(name: str, leaf: torch.Tensor) -> str | None:
    """Why no program takes such a tensor, in words."""
    if type(leaf) not in _PLAIN:
        return f"{name} is a {type(leaf).__name__}, a subclass of Tensor"
    if leaf.layout is torch.strided and leaf.is_conj():
        return f"{name} is a conjugate view: pass {name}.resolve_conj()"
    if leaf.layout is torch.strided and leaf.is_neg():
        return f"{name} is a negative view: pass {name}.resolve_neg()"
    return None


def find_objects(
    signature: inspect.Signature,
    leaves: list[Any],
    kwargs: Mapping[str, Any],
    leaf_of_path: Mapping[str, int],
    facts: Iterable[Any],
) -> Objects:
    """Of a capture. Raises GraphBreakError: the program asks whether other objects of
    the inputs than tensors are the same."""
    distinct: list[tuple[int, int]] = []
    for kind, slot, text, place, *_ in facts:
        if kind != "NotSameObject" or slot not in (1, 2):
            continue
        found = _DISTINCT.fullmatch(text)
        pair = [leaf_of_path.get(path) for path in found.groups()] if found else []
        if len(pair) == 2 and pair[0] is not None and pair[1] is not None:
            distinct.append((pair[0], pair[1]))
        elif not found or not all(map(_OF_INPUTS.fullmatch, found.groups())):
            continue  # with something of the module's: that is never an input
        else:
            at = "\n  at {}:{} in {}".format(*place) if place else ""
            raise GraphBreakError(
                f"the program asks whether inputs are the same object: {text}{at}\n"
                "  hint: pass the answer as an input of its own"
            )
    parameters = signature.parameters.values()
    named = {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}
    return Objects(
        tuple(i for i, leaf in enumerate(leaves) if isinstance(leaf, nn.Parameter)),
        tuple(distinct),
        tuple(key for key in kwargs if key not in named),
    )
