"""Flattening by a known structure, which generated code of traces does."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import _pytree as pytree

__all__ = ["tree_flatten_spec"]

_BY_INDEX = (list, tuple, *torch.return_types.all_return_types)


def tree_flatten_spec(tree: Any, spec: Any) -> list[Any]:
    """The leaves of `tree`, which has the structure `spec`."""
    if spec.is_leaf():
        return [tree]
    if spec.type is dict:
        parts = [tree[key] for key in spec.context]
    elif spec.type in _BY_INDEX or issubclass(spec.type, tuple):
        parts = [tree[index] for index in range(spec.num_children)]
    else:
        leaves, found = pytree.tree_flatten(tree)
        if found != spec:
            raise RuntimeError(f"{tree} has the structure {found}, not {spec}")
        return leaves
    return [
        leaf
        for part, child in zip(parts, spec.children(), strict=True)
        for leaf in tree_flatten_spec(part, child)
    ]
