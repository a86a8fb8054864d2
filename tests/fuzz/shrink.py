"""Cuts a failing program down to what still fails in the same way.

Statements go first (a whole block, halves of it, one by one), then blocks are
replaced by their bodies and expressions by their parts, until nothing more can
go. A candidate is kept when it fails with the same kind of difference.
"""

from __future__ import annotations

import ast
import copy
import re
from collections.abc import Callable, Iterator
from typing import Any, TextIO

from fuzz import runner
from fuzz.apart import apart

SECONDS = 60  # a candidate that takes longer hangs


def kind_of(error: BaseException) -> str:
    """What sort of failure it is, the same for smaller programs."""
    text = str(error)
    if isinstance(error, runner.Mismatch):
        text = text.split(": ", 1)[-1]
        return "Mismatch " + re.split(r"[\d\[\]{}.:(]", text)[0].strip()
    return f"{type(error).__name__} {re.sub(r'[0-9]+', '#', text)[:40]}"


def failure(source: str, backend: str) -> str:
    """The kind of failure, or "" for none; in this process."""
    try:
        runner.run(source, backend, name="shrunk")
    except Exception as error:
        return kind_of(error)
    return ""


def failure_apart(source: str, backend: str) -> str:
    """The same in a process of its own: it may crash or hang."""

    def work(pipe: TextIO) -> None:
        pipe.write(" ".join(failure(source, backend).split()) + "\n")

    lines, ended = apart(work, SECONDS)
    return ended or lines[0]


def _blocks(tree: ast.AST) -> Iterator[tuple[ast.AST, str, list[ast.stmt]]]:
    for node in ast.walk(tree):
        for field in ("body", "orelse", "finalbody", "handlers", "cases"):
            found = getattr(node, field, None)
            if isinstance(found, list) and found:
                yield node, field, found


def _without_statements(tree: ast.Module) -> Iterator[ast.Module]:
    count = sum(1 for _ in _blocks(tree))
    for number in reversed(range(count)):
        length = len(list(_blocks(tree))[number][2])
        size = length
        while size:
            for start in range(0, length, size):
                changed = copy.deepcopy(tree)
                node, field, block = list(_blocks(changed))[number]
                del block[start : start + size]
                if not block and field == "body" and not isinstance(node, ast.Module):
                    if size == 1 and isinstance(
                        list(_blocks(tree))[number][2][0], ast.Pass
                    ):
                        continue
                    block.append(ast.Pass())
                yield changed
            size //= 2


def _unwrapped(tree: ast.Module) -> Iterator[ast.Module]:
    count = sum(1 for _ in _blocks(tree))
    for number in range(count):
        block = list(_blocks(tree))[number][2]
        for i, statement in enumerate(block):
            for field in ("body", "orelse", "finalbody"):
                inner = getattr(statement, field, None)
                if inner and not isinstance(
                    statement, (ast.FunctionDef, ast.ClassDef, ast.Match)
                ):
                    changed = copy.deepcopy(tree)
                    target = list(_blocks(changed))[number][2]
                    target[i : i + 1] = getattr(target[i], field)
                    yield changed


def _places(tree: ast.AST) -> list[tuple[ast.AST, str, int | None, ast.expr]]:
    found: list[tuple[ast.AST, str, int | None, ast.expr]] = []
    for node in ast.walk(tree):
        for field, value in ast.iter_fields(node):
            items: list[tuple[int | None, Any]]
            items = (
                list(enumerate(value)) if isinstance(value, list) else [(None, value)]
            )
            for index, item in items:
                if isinstance(item, ast.expr) and not isinstance(
                    getattr(item, "ctx", None), (ast.Store, ast.Del)
                ):
                    found.append((node, field, index, item))
    return found


def _simpler(item: ast.expr) -> list[ast.expr]:
    parts = [c for c in ast.iter_child_nodes(item) if isinstance(c, ast.expr)]
    if isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute):
        parts = [item.func.value, *item.args]
    if isinstance(item, (ast.Tuple, ast.List)) and len(item.elts) > 1:
        for i in range(len(item.elts)):
            smaller = copy.deepcopy(item)
            del smaller.elts[i]
            parts.append(smaller)
    if isinstance(item, ast.Constant) or isinstance(item, ast.Name):
        return []
    return parts


def _with_parts(tree: ast.Module) -> Iterator[ast.Module]:
    for number, (_, _, _, item) in enumerate(_places(tree)):
        for part in _simpler(item):
            changed = copy.deepcopy(tree)
            node, field, index, _ = _places(changed)[number]
            if index is None:
                setattr(node, field, copy.deepcopy(part))
            else:
                getattr(node, field)[index] = copy.deepcopy(part)
            yield changed


def shrink(
    source: str,
    backend: str,
    fails: Callable[[str, str], str] = failure,
    limit: int = 2000,
) -> str:
    """The smallest program found that fails like this one, as source."""
    wanted = fails(source, backend)
    if not wanted:
        return source
    tree, tried = ast.parse(source), set()
    progress = True
    while progress and limit > 0:
        progress = False
        for way in (_without_statements, _unwrapped, _with_parts):
            again = True
            while again and limit > 0:
                again = False
                for candidate in way(tree):
                    try:
                        text = ast.unparse(ast.fix_missing_locations(candidate))
                        compile(text, "candidate", "exec")
                    except (SyntaxError, ValueError, AttributeError):
                        continue
                    if text in tried:
                        continue
                    tried.add(text)
                    limit -= 1
                    if limit <= 0:
                        break
                    if fails(text, backend) == wanted:
                        tree = ast.parse(text)
                        progress = again = True
                        break
    return ast.unparse(tree) + "\n"
