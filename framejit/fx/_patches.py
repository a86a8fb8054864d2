"""Attributes and items of the program that are other ones while it is traced."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

__all__ = ["Patches"]


class Patches:
    """Attributes and items that are other ones until the trace ends."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], None]] = []
        self._seen: set[tuple[int, str]] = set()

    def item(self, names: dict[str, Any], name: str, value: Any) -> None:
        """Let a dict have this; the first time counts."""
        if (id(names), name) in self._seen:
            return
        self._seen.add((id(names), name))
        if name in names:
            self._undo.append(functools.partial(names.__setitem__, name, names[name]))
        else:
            self._undo.append(functools.partial(names.__delitem__, name))
        names[name] = value

    def items(self, names: dict[str, Any], values: dict[str, Any]) -> None:
        """Let a dict have these under names that it has."""
        old = {name: names[name] for name in values}
        names.update(values)
        self._undo.append(functools.partial(names.update, old))

    def attribute(self, owner: type, name: str, value: Any) -> None:
        """Let a class have this."""
        self._undo.append(functools.partial(setattr, owner, name, vars(owner)[name]))
        setattr(owner, name, value)

    def undo(self) -> None:
        """All is as it was."""
        while self._undo:
            self._undo.pop()()
