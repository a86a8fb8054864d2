"""``wrap``: functions whose calls are nodes, whatever is in them."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import Any

from torch.utils import _pytree as pytree

from framejit.fx.proxy import Proxy

__all__ = ["as_node", "wrap", "wrapped", "wrapped_methods"]

# (globals of a module, name) of functions that are nodes when they are called.
wrapped: dict[tuple[int, str], dict[str, Any]] = {}
# (class, name) of methods that are.
wrapped_methods: list[tuple[type, str]] = []


def wrap(fn_or_name: str | Callable[..., Any]) -> Any:
    """Say, at the top level of a module, that a function is not traced into.

    Calls of it become ``call_function`` nodes. Takes the function, as a
    decorator does, or the name it has in the module (a builtin, too).
    """
    if callable(fn_or_name):
        name = fn_or_name.__name__
    elif isinstance(fn_or_name, str):
        name = fn_or_name
    else:
        raise RuntimeError(
            "Unsupported type for global function! Must be either a callable or "
            "string name"
        )
    frame = sys._getframe(1)
    if frame.f_code.co_name != "<module>":
        raise NotImplementedError("wrap must be called at the top level of a module")
    wrapped[id(frame.f_globals), name] = frame.f_globals
    return fn_or_name


def _first_proxy(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Proxy | None:
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, Proxy):
            return leaf
    return None


def as_node(function: Callable[..., Any], kind: str = "call_function") -> Any:
    """A function that becomes a node where a proxy is among its arguments."""
    key = id(function), kind
    if key not in _as_nodes:
        _as_nodes[key] = function, _made_node(function, kind)
    return _as_nodes[key][1]


# (identity of the function, kind) -> the function, and the one in its place.
_as_nodes: dict[tuple[int, str], tuple[Any, Any]] = {}


def _made_node(function: Callable[..., Any], kind: str) -> Any:
    @functools.wraps(function)
    def recorded(*args: Any, **kwargs: Any) -> Any:
        proxy = _first_proxy(args, kwargs)
        if proxy is None:
            return function(*args, **kwargs)
        target = function if kind == "call_function" else function.__name__
        made = proxy.tracer.create_proxy(kind, target, args, kwargs)
        if kind == "call_function":
            made.node.meta["is_wrapped"] = True
        return made

    return recorded
