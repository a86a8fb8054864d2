"""What a program does when its graph has run: what it returns, and what it writes.

A capture ends in steps (``bytecode/capture/step.h``): they take values of the graph
and objects of the program, build containers, and write. Here they are made on stand-ins
for the graph's values, so that what the program returns is built by the very calls
that would build it; a write to something of the program's that no exported program
has is an error with its line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch

from framejit.errors import GraphBreakError

__all__ = ["GraphValue", "Outcome", "run_steps"]


class GraphValue(torch.Tensor):
    """Stands for a tensor that the graph computes: output number ``number``."""

    number: int


def graph_value(number: int) -> GraphValue:
    made = torch.empty(0, device="meta").as_subclass(GraphValue)
    made.number = number
    return made


class Outcome(NamedTuple):
    """``result`` has `GraphValue`s, numbers and objects of the program at its leaves.
    ``buffers``: what is put in place of buffers, by path."""

    result: Any
    buffers: dict[str, Any]


# Steps that make something, whatever they are given.
_MAKE = {
    *("__new__", "instance_dict", "copy_set", "getattr", "iter", "chain"),
    *("from_iterable", "set_handled_exception"),
}
# What the program says to somebody outside. It is said once, at the export.
_SAY = {
    *("print", "print_to_stream", "warn", "warn_explicit", "_filters_mutated"),
    *("write", "flush"),
}


def _described(target: Any, name: str, operands: list[Any]) -> str:
    what = f"a {type(target).__qualname__}"
    key = operands[1] if len(operands) > 1 else None
    if name in ("set_instance_attribute", "setattr") and isinstance(key, str):
        return f"sets the attribute {key!r} of {what}"
    if name in ("delete_instance_attribute", "delattr") and isinstance(key, str):
        return f"deletes the attribute {key!r} of {what}"
    if name in ("set_cell", "clear_cell"):
        return "assigns to a variable of an enclosing function"
    return f"changes {what} ({name})"


def _is_as_it_was(container: Any, content: Any) -> bool:
    """The very keys and values, in their order."""
    if isinstance(container, Mapping):
        pairs = zip(container.items(), content.items(), strict=False)
        same = all(a == c and b is d for (a, b), (c, d) in pairs)
    else:
        same = all(a is b for a, b in zip(container, content, strict=False))
    return same and len(container) == len(content)


class _Steps:
    def __init__(
        self,
        numbers: Mapping[int, Any],
        objects: list[Any],
        function: Callable[..., Any],
        buffers: Mapping[int, str],
        number: Callable[[Any], Any],
        left_out: list[str] | None,
    ) -> None:
        self.left_out = left_out
        self.numbers = numbers
        self.objects = objects
        self.function = function
        self.modules = buffers
        self.number = number
        self.written: dict[str, Any] = {}
        self.values: list[Any] = []
        self.fresh: list[bool] = []

    def step(self, row: Any) -> None:
        kind, index, thing, expression, operands, place = row
        made: Any = None
        items = [self.values[i] for i in operands]
        fresh = kind in ("tuple", "list", "set", "dict", "call")
        if kind == "output":
            known = self.numbers.get(index)
            made = graph_value(index) if known is None else known
        elif kind == "gathered":
            made = self.objects[index]
        elif kind == "const":
            made = thing
        elif kind == "symbolic":
            made = self.number(expression)
        elif kind == "function":
            made = self.function
        elif kind == "tuple":
            made = tuple(items)
        elif kind == "list":
            made = items
        elif kind == "set":
            made = set(items)
        elif kind == "dict":
            made = dict(zip(items[::2], items[1::2], strict=True))
        else:
            made = self.call(thing, items, operands, place)
        self.values.append(made)
        self.fresh.append(fresh)

    def call(
        self, callee: Any, items: list[Any], operands: list[int], place: Any
    ) -> Any:
        name = getattr(callee, "__name__", type(callee).__name__)
        if name == "set_handled_exception":
            return None
        makes = isinstance(callee, type) or name in _MAKE
        if makes or name in _SAY or operands and self.fresh[operands[0]]:
            return callee(*items)
        target: Any = items[0] if items else None
        if name == "__setitem__" and id(target) in self.modules:
            key, value = items[1], items[2]
            if key in target and isinstance(value, torch.Tensor):
                self.written[self.modules[id(target)] + key] = value
                return None
        if name in ("take_set", "replace_content") and _is_as_it_was(target, items[1]):
            return None
        self.refuse(target, name, items, place)

    def refuse(self, target: Any, name: str, items: list[Any], place: Any) -> None:
        at = "{}:{} in {}".format(*place) if place else "unknown place"
        what = (
            _described(target, name, items)
            if items
            else f"leaves the state of torch changed ({name})"
        )
        hint = "return the value instead"
        is_module = isinstance(target, torch.nn.Module)
        if is_module and any(isinstance(item, torch.Tensor) for item in items[2:]):
            hint = "register a buffer for it in __init__ (register_buffer)"
        if self.left_out is not None:
            self.left_out.append(f"the program {what} at {at}")
            return
        raise GraphBreakError(
            f"the program {what}, which an exported program cannot do\n"
            f"  at {at}\n  hint: {hint}"
        )


def run_steps(
    capture: Any,
    module: torch.nn.Module,
    function: Callable[..., Any],
    number: Callable[[Any], Any],
    left_out: list[str] | None = None,
) -> Outcome:
    """What a capture of a call of the module does at its end.

    capture: a `_C.ExportCapture`. number: what stands for a number, of its text.
    left_out: gets what is written to something that is no buffer, in words.

    Raises:
        GraphBreakError: there is such a write, and `left_out` is None.
    """
    numbers = {
        i: number(described)
        for i, described in enumerate(capture.outputs())
        if described is not None and not isinstance(described, tuple)
    }
    buffers = {
        id(inner._buffers): f"{path}." if path else ""
        for path, inner in module.named_modules()
    }
    objects = [row[2] for row in capture.gathered()]
    steps = _Steps(numbers, objects, function, buffers, number, left_out)
    for row in capture.steps():
        steps.step(row)
    result = steps.values[capture.result]
    if inspect.isgenerator(result) or inspect.iscoroutine(result):
        raise GraphBreakError("the program returns a generator or coroutine")
    return Outcome(result, steps.written)
