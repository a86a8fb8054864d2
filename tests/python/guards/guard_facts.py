"""Facts for test_guards_sound.py: a program that uses one, and every route by
which Python can change it.

`fact(setup, route=change, ...)` adds a row. `setup()` makes an environment with
`f` and `args`, to which the changes are applied between calls. A change may
return a context manager: the state then holds while it is entered. `unused` is
the same for what the program does not use, where no call may recompile.
"""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Callable
from typing import Any

Env = types.SimpleNamespace
Change = Callable[[Any], Any]


@dataclasses.dataclass(frozen=True)
class Row:
    name: str
    route: str
    setup: Callable[[], Any]
    change: Change

    def __str__(self) -> str:
        return f"{self.name}-{self.route}"


FACTS: list[Row] = []
UNUSED: list[Row] = []


def _add(table: list[Row], setup: Callable[[], Any], routes: dict[str, Change]) -> None:
    name = setup.__name__.strip("_")
    for route, change in routes.items():
        table.append(Row(name, route.strip("_"), setup, change))


def fact(**routes: Change) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """Each route changes what the program gives."""

    def decorate(setup: Callable[[], Any]) -> Callable[[], Any]:
        _add(FACTS, setup, routes)
        return setup

    return decorate


def unused(**routes: Change) -> Callable[[Callable[[], Any]], Callable[[], Any]]:
    """No route may lead to a compilation."""

    def decorate(setup: Callable[[], Any]) -> Callable[[], Any]:
        _add(UNUSED, setup, routes)
        return setup

    return decorate


def env(f: Callable[..., Any], *args: Any, **more: Any) -> Any:
    return Env(f=f, args=args, **more)
