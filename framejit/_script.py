"""Whole-script mode: what ``FRAMEJIT=1`` and ``python -m framejit`` switch on."""

from __future__ import annotations

import multiprocessing
import multiprocessing.util
from collections.abc import Callable
from typing import Any

from framejit import _C

# What was compiled lives as long as the options it was compiled with.
_key: _C.CompileOptions | None = None


class _Forks:
    """Known to `multiprocessing` for as long as this module is."""


_forks = _Forks()


def _leave_workers_alone(_: _Forks) -> None:
    """Runs in each new process of `multiprocessing`, before its target does. What a
    worker of a `DataLoader` does is a few operations on one sample at a time: each
    worker would compile it, and warn of it, anew."""
    target = getattr(multiprocessing.current_process(), "_target", None)
    if getattr(target, "__module__", None) == "torch.utils.data._utils.worker":
        stop()


def environment() -> str:
    """What ``FRAMEJIT`` asks for: ``"script"``, ``"off"``, or ``""`` (unset)."""
    return {"1": "script", "0": "off"}.get(_C.option_text("activation"), "")


def start(
    backend: str | Callable[..., Any] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    only: str | None = None,
) -> None:
    """Compiles, from now on, every frame of the process that does tensor work.

    That is: calls of Python functions with a tensor among their arguments (or
    a few levels down in tuples, lists, dicts, or as an attribute of the object
    whose method is called), and, from their second call on, of functions that
    name torch. Not: module and class bodies, generators and coroutines, the
    standard library, torch's own machinery, tools such as pytest, frames under
    a tracer, and what ``only`` (`FRAMEJIT_ONLY`) leaves out.
    """
    from framejit import _api

    if only is not None:
        _C.set_option("only", only)
    global _key
    _key = _api._options(backend, fullgraph, dynamic)
    multiprocessing.util.register_after_fork(_forks, _leave_workers_alone)
    _C.start_script_mode(_key)


def stop() -> None:
    """Ends whole-script mode. What was compiled stays, for the next start."""
    _C.stop_script_mode()


def start_from_environment() -> None:
    """Called once, at the end of the package's import."""
    if environment() == "script":
        start()
