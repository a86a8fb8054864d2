"""Dicts whose entries go when an object dies, found by its identity.

Those of the module ``weakref`` forget an entry in a function in Python, which runs
where the object dies. If a signal has come by then, its handler runs in there, and what
it raises is lost: CPython prints what a callback raises and goes on. What is called
here is C code alone.
"""

from __future__ import annotations

import weakref
from typing import Any, Generic, TypeVar

from framejit import _C

_K = TypeVar("_K")
_V = TypeVar("_V")


def _forgetting(object: _K, entries: dict[int, Any], key: int) -> weakref.ref[_K]:
    """A reference at whose end the entry goes. CPython calls this before it frees the
    object, so no other one has its id yet; an entry that replaces this one drops the
    reference, and with it what would be called."""
    return weakref.ref(object, _C.forgetting_callback(entries, key))


class WeakKeyTable(Generic[_K, _V]):
    """object -> value, while the object lives."""

    def __init__(self) -> None:
        self._entries: dict[int, tuple[weakref.ref[_K], _V]] = {}

    def get(self, key: _K) -> _V | None:
        found = self._entries.get(id(key))
        return found[1] if found is not None and found[0]() is key else None

    def __setitem__(self, key: _K, value: _V) -> None:
        entries = self._entries
        entries[id(key)] = _forgetting(key, entries, id(key)), value

    def clear(self) -> None:
        self._entries.clear()

    def __len__(self) -> int:
        return len(self._entries)


class WeakValueTable(Generic[_V]):
    """id of an object -> value, while the value lives. The object may die before it, so
    whoever reads an entry asks the value whose it is."""

    def __init__(self) -> None:
        self._entries: dict[int, weakref.ref[_V]] = {}

    def get(self, key: int) -> _V | None:
        found = self._entries.get(key)
        return None if found is None else found()

    def __setitem__(self, key: int, value: _V) -> None:
        self._entries[key] = _forgetting(value, self._entries, key)

    def __len__(self) -> int:
        return len(self._entries)
