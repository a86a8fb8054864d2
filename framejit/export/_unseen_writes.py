"""Writes in place that autograd does not see: through ``.data`` or ``.detach()``, or
under ``no_grad``.

A graph without writes has what is written in the place of what was there, so gradients
of the program would go (or stop) where eager's do not. The lines of the program say
where such writes are: those that a capture has read something at.
"""

from __future__ import annotations

import ast
import functools
import linecache
from collections.abc import Iterable, Iterator
from typing import Any

from framejit.errors import GraphBreakError

__all__ = ["check_unseen_writes"]

# Whose functions write to their first argument: torch.relu_(y), init.ones_(y).
_MODULES = ("torch", "nn", "F", "functional", "init")
_NO_GRAD = ("no_grad", "inference_mode", "set_grad_enabled")


@functools.lru_cache(maxsize=256)
def _functions(file: str) -> dict[str, list[Any]]:
    """Of a file, by name. Of none that is no Python, or is not there."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:
        return {}
    found: dict[str, list[Any]] = {}
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            found.setdefault(node.name, []).append(node)
        elif isinstance(node, ast.Lambda):
            found.setdefault("<lambda>", []).append(node)
    return found


def _names_no_grad(node: ast.expr) -> bool:
    inner = node.func if isinstance(node, ast.Call) else node
    name = inner.attr if isinstance(inner, ast.Attribute) else None
    return (inner.id if isinstance(inner, ast.Name) else name) in _NO_GRAD


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What the statement or call writes to in place."""
    if isinstance(node, ast.AugAssign):
        yield node.target
    elif isinstance(node, ast.Assign):
        yield from (t for t in node.targets if isinstance(t, ast.Subscript))
    elif isinstance(node, ast.Call):
        yield from (k.value for k in node.keywords if k.arg == "out")
        called = node.func
        name = called.attr if isinstance(called, ast.Attribute) else ""
        if not name.endswith("_") or name.endswith("__"):
            return
        assert isinstance(called, ast.Attribute)
        root: ast.expr = called.value
        while isinstance(root, ast.Attribute):
            root = root.value
        is_function = isinstance(root, ast.Name) and root.id in _MODULES
        yield from node.args[:1] if is_function else [called.value]


def _cuts_history(node: ast.expr, aliases: set[str]) -> bool:
    """Is it ``y.data``, ``y.detach()``, a name or a view of one?"""
    for part in ast.walk(node):
        if isinstance(part, ast.Attribute) and part.attr in ("data", "detach"):
            return True
        if isinstance(part, ast.Name) and part.id in aliases:
            return True
    return False


def _is_of_module(node: ast.expr) -> bool:
    """``self.mean``, ``self.norm.mean[0]``: buffers, which have no history."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        if isinstance(node, ast.Call):  # self.mean.mul_(2) is self.mean
            called = node.func
            if not isinstance(called, ast.Attribute) or not called.attr.endswith("_"):
                return False
            node = called.value
            continue
        inner = node.value
        if isinstance(node, ast.Attribute) and isinstance(inner, ast.Name):
            return inner.id == "self"
        node = inner
    return False


def _aliases(function: ast.AST) -> set[str]:
    """Names that are bound to ``y.data`` or ``y.detach()``, or a view of it."""
    views = ("data", "detach", "view", "t", "transpose", "reshape", "permute")
    found: set[str] = set()
    for node in ast.walk(function):
        if not isinstance(node, ast.Assign):
            continue
        value: ast.expr = node.value
        cuts = False
        while isinstance(value, (ast.Attribute, ast.Call, ast.Subscript)):
            if isinstance(value, ast.Attribute):
                if value.attr not in views:
                    break
                cuts = cuts or value.attr in ("data", "detach")
                value = value.value
            else:
                value = value.func if isinstance(value, ast.Call) else value.value
        if cuts and not _is_of_module(node.value):
            found |= {t.id for t in node.targets if isinstance(t, ast.Name)}
    return found


def _writes(function: Any) -> Iterator[tuple[int, int, str]]:
    """(first line, last line, what) of each write that autograd does not see."""
    aliases = _aliases(function)
    hidden: set[ast.AST] = set()
    if any(_names_no_grad(d) for d in getattr(function, "decorator_list", ())):
        hidden |= set(ast.walk(function))
    for node in ast.walk(function):
        if isinstance(node, ast.With) and any(
            _names_no_grad(item.context_expr) for item in node.items
        ):
            hidden |= set(ast.walk(node))
    for node in ast.walk(function):
        for target in _targets(node):
            line, last = target.lineno, getattr(node, "end_lineno", target.lineno)
            if _cuts_history(target, aliases):
                yield line, last, "through .data or .detach()"
            elif node in hidden and not _is_of_module(target):
                if not isinstance(target, ast.Constant):
                    yield line, last, "under no_grad"


def check_unseen_writes(places: Iterable[Any]) -> None:
    """For programs that gradients may be asked of.

    places: (file, line, function) that the program was at.
    Raises GraphBreakError: it writes in place where autograd does not see it.
    """
    lines: dict[tuple[str, str], set[int]] = {}
    for file, line, name in places:
        lines.setdefault((file, name), set()).add(line)
    for (file, name), seen in lines.items():
        for function in _functions(file).get(name, ()):
            for first, last, how in _writes(function):
                if any(first <= line <= last for line in seen):
                    raise GraphBreakError(
                        f"the program writes in place {how}, so that the gradients of "
                        f"an exported program would be others\n"
                        f"  at {file}:{first} in {name}\n"
                        "  hint: compute a new tensor (torch.where, y * k), or freeze "
                        "the parameters (requires_grad_(False))"
                    )
