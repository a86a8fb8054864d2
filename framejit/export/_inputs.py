"""The inputs of an export: flattened, named, told apart."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from framejit.export._objects import check_leaf
from framejit.fx._names import BUILTINS, is_name

__all__ = ["Inputs", "flatten_inputs", "keyword_order", "names_of_leaves"]

# What an input may be where it is no tensor: a constant of the program.
CONSTANTS = (int, float, bool, str, complex, type(None), torch.dtype, torch.device)
_OTHERS = (torch.memory_format, torch.layout)


# What generated code means something else by.
RESERVED = {"self", "getattr", "slice", *BUILTINS}


class Inputs(NamedTuple):
    """``leaves`` are those of ``(args, kwargs)`` by ``spec``; each has a name and the
    path by which the program finds it (``args[0]['x']``). ``parameters``: of each
    argument, the name it has in the signature. ``places``: the paths of the leaves and
    of all that they are in."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: list[Any]
    spec: pytree.TreeSpec
    names: list[str]
    paths: list[str]
    parameters: list[str]
    places: set[str]


def _words(path: tuple[Any, ...]) -> list[str]:
    words = []
    for key in path:
        if isinstance(key, pytree.MappingKey):
            words.append(re.sub(r"\W", "_", str(key.key)))
        elif isinstance(key, pytree.SequenceKey):
            words.append(str(key.idx))
        else:
            words.append(re.sub(r"\W", "_", getattr(key, "name", str(key))))
    return words


def _paths_of(value: Any) -> list[tuple[Any, ...]]:
    return [path for path, _ in pytree.tree_flatten_with_path(value)[0]]


def _parameters(
    signature: inspect.Signature, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[str]:
    positional: list[str] = []
    variable = "args"
    for name, parameter in signature.parameters.items():
        if parameter.kind is parameter.VAR_POSITIONAL:
            variable = name
        elif parameter.kind in (
            parameter.POSITIONAL_ONLY,
            parameter.POSITIONAL_OR_KEYWORD,
        ):
            positional.append(name)
    names = positional[: len(args)]
    names += [f"{variable}_{i}" for i in range(len(args) - len(positional))]
    return names + list(kwargs)


def names_of_leaves(
    parameters: list[str], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[str]:
    """A name for each leaf: the parameter, and the way to it from there."""
    rows = zip(parameters, (*args, *kwargs.values()), strict=True)
    names: list[str] = []
    for name, value in rows:
        names += ["_".join([name, *_words(path)]).lower() for path in _paths_of(value)]
    given: set[str] = set()
    for i, name in enumerate(names):
        base = name = _usable(name)
        count = 0
        while name in given or name in RESERVED:
            count += 1
            name = f"{base}_{count}"
        given.add(name)
        names[i] = name
    return names


def _usable(name: str) -> str:
    """As a name of generated code: a keyword argument may be called anything."""
    if is_name(name):
        return name
    name = re.sub(r"[^a-zA-Z0-9_]", "_", name)
    return name if is_name(name) else f"_{name}"


def flatten_inputs(
    mod: torch.nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any] | None
) -> Inputs:
    """The inputs of an export, each tensor an object of its own.

    Raises:
        TypeError: ``args`` is no tuple, or a leaf is of a type no program can have.
    """
    if not isinstance(args, tuple):
        raise TypeError(
            "framejit.export: the inputs are a tuple of the positional ones, got "
            f"{type(args).__name__}"
        )
    given = dict(kwargs or {})
    leaves, spec = pytree.tree_flatten((args, given))
    parameters = _parameters(inspect.signature(mod.forward), args, given)
    names = names_of_leaves(parameters, args, given)
    for leaf, name in zip(leaves, names, strict=True):
        if not isinstance(leaf, (torch.Tensor, *CONSTANTS, *_OTHERS)):
            kind = type(leaf)
            raise TypeError(
                f"framejit.export: the input {name} is a "
                f"{kind.__module__}.{kind.__qualname__}, which no exported program "
                "takes; a class that holds inputs is made known by "
                "framejit.export.register_dataclass or register_pytree_node"
            )
        if isinstance(leaf, torch.Tensor) and (wrong := check_leaf(name, leaf)):
            raise TypeError(f"framejit.export: {wrong}")
    # One object in two places would be one input to the program: whether it is the
    # same in the next call is no fact about it.
    own = {id(t) for t in (*mod.parameters(), *mod.buffers())}
    for i, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor):
            continue
        if id(leaf) in own:
            copy = leaf.detach().clone(memory_format=torch.preserve_format)
            copy.requires_grad_(leaf.requires_grad)
            is_parameter = isinstance(leaf, torch.nn.Parameter)
            leaves[i] = (
                torch.nn.Parameter(copy, leaf.requires_grad) if is_parameter else copy
            )
        own.add(id(leaves[i]))
    args, given = pytree.tree_unflatten(leaves, spec)
    paths, places = [], {"args", "kwargs"}
    for root, value in (("args", args), ("kwargs", given)):
        for path in _paths_of(value):
            steps = [root + pytree.keystr(path[:i]) for i in range(len(path) + 1)]
            paths.append(steps[-1])
            places.update(steps)
    return Inputs(args, given, leaves, spec, names, paths, parameters, places)


def keyword_order(
    kwargs: Mapping[str, Any], spec: pytree.TreeSpec
) -> dict[str, Any] | None:
    """Keyword arguments in the order of the export; None: there are others."""
    keys = spec.children()[1].context
    if set(keys) != set(kwargs):
        return None
    return {key: kwargs[key] for key in keys}
