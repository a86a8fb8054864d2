"""Where an object dies that FrameJIT knows something of, none of our Python code runs: a
signal that has come by then is handled in the program, which gets what its handler
raises."""

from __future__ import annotations

import ctypes
import functools
import gc
import json
import operator
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import framejit
from framejit._weak_tables import WeakKeyTable, WeakValueTable


class Timeout(Exception):
    pass


def handler(number: int, frame: Any) -> None:
    raise Timeout


# C code: between it and what is called next nobody looks for signals.
RAISE = functools.partial(ctypes.CDLL(None)["raise"], int(signal.SIGALRM))


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, handler)
    yield
    signal.signal(signal.SIGALRM, before)


def function(wrap: Any) -> Any:
    names: dict[str, Any] = {}
    exec("def f(x): return x * 2", names)
    made = wrap(names.pop("f"))
    made(torch.ones(2))
    return made


def local_function(wrap: Any) -> Any:
    made = wrap(lambda x: x * 2)
    made(torch.ones(2))
    return made


def decorated(wrap: Any) -> Any:
    names: dict[str, Any] = {"functools": functools}
    exec(
        "def plain(x): return x * 2\n"
        "@functools.wraps(plain)\n"
        "def f(x): return plain(x)\n",
        names,
    )
    made = wrap(names["f"])
    made(torch.ones(2))
    names.clear()
    return made


def module(wrap: Any) -> Any:
    class Layer(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x * 2

    made = wrap(Layer())
    made(torch.ones(2))
    return made


def module_with_a_forward_of_its_own(wrap: Any) -> Any:
    class Layer(torch.nn.Module):
        pass

    layer = Layer()
    names: dict[str, Any] = {}
    exec("def forward(x): return x * 2", names)
    layer.forward = names.pop("forward")
    made = wrap(layer)
    made(torch.ones(2))
    return made


def options_of_its_own(wrap: Any) -> Any:
    if wrap is not framejit.compile:
        return module(wrap)
    return module(functools.partial(framejit.compile, isolate_recompiles=True))


def compiled_in_place(wrap: Any) -> Any:
    made = module(lambda layer: layer)
    if wrap is framejit.compile:
        framejit.compile_inplace(made)
        made(torch.ones(2))
    return made


def program(make: Callable[[Any], Any], wrap: Any) -> str:
    made = [make(wrap)]
    gc.collect()
    died: Any = made.clear
    try:
        # A class, and what has hooks, dies with a cycle.
        any(map(operator.call, [RAISE, died, gc.collect]))
        for _ in range(10):
            pass
    except Timeout:
        return "raised"
    return "lost"


MAKES = (
    function, local_function, decorated, module, module_with_a_forward_of_its_own,
    options_of_its_own, compiled_in_place,
)  # fmt: skip


def outcome(make: Callable[[Any], Any], wrap: Any) -> str:
    lost: list[Any] = []
    before, sys.unraisablehook = sys.unraisablehook, lost.append
    try:
        return "a callback lost it" if program(make, wrap) == "lost" else "raised"
    finally:
        sys.unraisablehook = before


@pytest.fixture(scope="module")
def outcomes() -> Any:
    """Of a process of its own: torch has such callbacks, too, once more of it was used."""
    path = Path(__file__)
    script = (
        f"import sys, json; sys.path.insert(0, {str(path.parent)!r})\n"
        f"import {path.stem} as t\n"
        "t.signal.signal(t.signal.SIGALRM, t.handler)\n"
        "wraps = (lambda made: made), t.framejit.compile\n"
        "rows = {m.__name__: [t.outcome(m, w) for w in wraps] for m in t.MAKES}\n"
        "print(json.dumps(rows))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], check=True, capture_output=True, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("make", MAKES, ids=lambda make: make.__name__)
def test_an_exception_of_a_handler_is_not_lost(
    make: Callable[[Any], Any], outcomes: Any
) -> None:
    assert outcomes[make.__name__] == ["raised", "raised"]


class Thing:
    pass


def test_an_entry_goes_with_its_key() -> None:
    table: WeakKeyTable[Any, Any] = WeakKeyTable()
    first, second = Thing(), Thing()
    table[first] = 1
    table[second] = 2
    table[first] = 3
    assert (table.get(first), table.get(second), len(table)) == (3, 2, 2)
    del first
    assert (table.get(second), len(table)) == (2, 1)
    second.cycle = second  # type: ignore[attr-defined]
    del second
    gc.collect()
    assert len(table) == 0


def test_equal_keys_are_two_and_are_not_asked() -> None:
    class Same:
        def __eq__(self, other: object) -> bool:
            raise AssertionError

        def __hash__(self) -> int:
            raise AssertionError

    table: WeakKeyTable[Any, Any] = WeakKeyTable()
    keys = [Same() for _ in range(10)]
    for number, key in enumerate(keys):
        table[key] = number
    assert [table.get(key) for key in keys] == list(range(10))


def test_an_id_that_is_used_again_has_no_entry() -> None:
    table: WeakKeyTable[Any, Any] = WeakKeyTable()
    seen = set()
    for _ in range(1000):
        thing = Thing()
        assert table.get(thing) is None
        table[thing] = 1
        seen.add(id(thing))
        del thing
    assert len(table) == 0 and len(seen) < 1000


def test_a_key_that_comes_back_to_life_is_a_new_one() -> None:
    kept: list[Any] = []

    class Lazarus:
        def __del__(self) -> None:
            kept.append(self)

    table: WeakKeyTable[Any, Any] = WeakKeyTable()
    for in_a_cycle in (False, True):
        thing = Lazarus()
        if in_a_cycle:
            thing.cycle = thing  # type: ignore[attr-defined]
        table[thing] = 1
        del thing
        gc.collect()
        back = kept.pop()
        if table.get(back) is None:
            table[back] = 2
            assert table.get(back) == 2
        back.__dict__.clear()
        del back
        gc.collect()
        kept.clear()
        assert len(table) == 0


def test_a_value_that_was_replaced_takes_no_other_entry_with_it() -> None:
    table: WeakValueTable[Any] = WeakValueTable()
    first, second = Thing(), Thing()
    table[5] = first
    table[5] = second
    del first
    assert table.get(5) is second and len(table) == 1
    del second
    assert table.get(5) is None and len(table) == 0
