"""Graphs as text, and back.

Each node is a line of Python's grammar, so that its parser reads it::

    x = placeholder.x()
    add = call_function.operator.add(x, 1)
    relu = call_method.relu(add)  # {'stack_trace': '...'}
    output = output.output((relu, None))

Meta that is text or a plain number stands in a comment. What has no literal is
written as the call that makes it (``dtype('float32')``); arguments that have none,
such as tensors, are refused.
"""

from __future__ import annotations

import ast
import io
import tokenize
from typing import TYPE_CHECKING, Any

import torch

from framejit.fx._pickling import path_of, resolve
from framejit.fx.node import Node

if TYPE_CHECKING:
    from framejit.fx.graph import Graph

_HEAD = "# framejit.fx graph"
_TORCH = {
    torch.dtype: "dtype",
    torch.device: "device",
    torch.layout: "layout",
    torch.memory_format: "memory_format",
}


# ---- graph -> text


def print_graph(graph: Graph) -> str:
    """The text of a graph."""
    return "\n".join([_HEAD, *(_line(node) for node in graph.nodes)]) + "\n"


def _line(node: Node) -> str:
    if isinstance(node.target, str):
        target = node.target
        if not all(part.isidentifier() for part in target.split(".")):
            target = f"_({target!r})"  # "0.weight", "*args"
    else:
        target = path_of(node.target) or ""
        if not target:
            raise ValueError(
                f"the target of {node}, {node.target!r}, has no import path to "
                "write it by"
            )
    try:
        parts = [_text(arg) for arg in node.args]
        parts += [f"{name}={_text(arg)}" for name, arg in node.kwargs.items()]
    except _NoTextError as error:
        raise ValueError(f"an argument of {node}, {error}, has no text") from None
    line = f"{node.name} = {node.op}.{target}({', '.join(parts)})"
    meta = {
        key: value
        for key, value in node.meta.items()
        if isinstance(key, str) and isinstance(value, (str, int, type(None)))
    }
    if node.type is not None:  # (no key of a program's ends like this)
        is_text = isinstance(node.type, str)
        meta["type "] = repr(node.type) if is_text else path_of(node.type)
    return f"{line}  # {meta!r}" if meta else line


class _NoTextError(Exception):
    pass


def _text(arg: Any) -> str:
    if isinstance(arg, Node):
        return arg.name
    if arg is None or arg is ... or type(arg) in (bool, int, str):
        return repr(arg) if arg is not ... else "..."
    if type(arg) in (float, complex):
        return f"{type(arg).__name__}({str(arg)!r})"
    for cls, name in _TORCH.items():
        if isinstance(arg, cls):
            return f"{name}({str(arg).removeprefix('torch.')!r})"
    if isinstance(arg, slice):
        return f"slice({', '.join(map(_text, (arg.start, arg.stop, arg.step)))})"
    if isinstance(arg, range):
        return repr(arg)
    if isinstance(arg, list):
        return f"[{', '.join(map(_text, arg))}]"
    if isinstance(arg, dict):
        pairs = (f"{_text(key)}: {_text(value)}" for key, value in arg.items())
        return f"{{{', '.join(pairs)}}}"
    if isinstance(arg, tuple):
        items = ", ".join(map(_text, arg))
        if hasattr(arg, "_fields") and (path := path_of(type(arg))):
            return f"named({path!r}, {items})"
        return f"({items}{',' if len(arg) == 1 else ''})"
    if callable(arg) and (path := path_of(arg)):
        return f"object({path!r})"
    raise _NoTextError(repr(arg))


# ---- text -> graph


def parse_graph(text: str) -> Graph:
    """The graph of a text."""
    from framejit.fx.graph import Graph

    graph = Graph()
    made: dict[str, Node] = {}
    statements = ast.parse(text).body
    comments = {
        token.start[0]: token.string[1:].strip()
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and token.string != _HEAD
    }
    for statement in statements:
        try:
            name, op, target, args, kwargs = _parts(statement, made)
        except (KeyError, TypeError, AttributeError, IndexError) as error:
            raise ValueError(
                f"line {statement.lineno} is no node of a graph: {error}"
            ) from error
        meta = dict(ast.literal_eval(comments.get(statement.lineno, "{}")))
        resolved = resolve(target) if op == "call_function" else target
        type_expr = _type(meta.pop("type ", None))
        node = graph.create_node(op, resolved, args, kwargs, name, type_expr)
        node.name = name
        node.meta.update(meta)
        made[name] = node
    return graph


def _type(text: str | None) -> Any:
    if text is None:
        return None
    return ast.literal_eval(text) if text.startswith(("'", '"')) else resolve(text)


def _parts(
    statement: ast.stmt, made: dict[str, Node]
) -> tuple[str, str, str, tuple[Any, ...], dict[str, Any]]:
    if not isinstance(statement, ast.Assign) or not isinstance(
        statement.value, ast.Call
    ):
        raise TypeError("it is no assignment of a call")
    name, call = statement.targets[0], statement.value
    if not isinstance(name, ast.Name):
        raise TypeError("a node has a name")
    path: ast.expr = call.func
    parts: list[str] = []
    if isinstance(path, ast.Call):  # op._('target')
        parts.append(ast.literal_eval(path.args[0]))
        path = path.func.value  # type: ignore[attr-defined]
    while isinstance(path, ast.Attribute):
        parts.append(path.attr)
        path = path.value
    if not isinstance(path, ast.Name):
        raise TypeError("it calls no target")
    args = tuple(_value(arg, made) for arg in call.args)
    kwargs = {str(k.arg): _value(k.value, made) for k in call.keywords}
    return name.id, path.id, ".".join(reversed(parts)), args, kwargs


def _value(tree: ast.expr, made: dict[str, Node]) -> Any:
    def all_of(items: list[ast.expr]) -> list[Any]:
        return [_value(item, made) for item in items]

    if isinstance(tree, ast.Name):
        return made[tree.id]
    if isinstance(tree, ast.Tuple):
        return tuple(all_of(tree.elts))
    if isinstance(tree, ast.List):
        return all_of(tree.elts)
    if isinstance(tree, ast.Dict):
        keys = [_value(key, made) for key in tree.keys if key is not None]
        return dict(zip(keys, all_of(tree.values), strict=True))
    if isinstance(tree, ast.Call) and isinstance(tree.func, ast.Name):
        return _made_by_call(tree.func.id, all_of(tree.args))
    return ast.literal_eval(tree)


def _made_by_call(name: str, args: list[Any]) -> Any:
    if name in ("slice", "range", "float", "complex"):
        makers: dict[str, Any] = {
            "slice": slice,
            "range": range,
            "float": float,
            "complex": complex,
        }
        return makers[name](*args)
    if name == "device":
        return torch.device(args[0])
    if name in _TORCH.values():
        return getattr(torch, args[0])
    if name == "object":
        return resolve(args[0])
    if name == "named":
        return resolve(args[0])(*args[1:])
    raise TypeError(f"{name} makes no argument")
