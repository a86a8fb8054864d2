"""Forwards the event log of the C++ layers to Python's ``logging``.

Each channel (``FRAMEJIT_LOG=guards,recompiles,...``) is the logger
``framejit.<channel>``. Channels that are off cost nothing. What a user wants to
know without asking (frame_hook/notices.def) is logged as a warning, once a place.
"""

from __future__ import annotations

import logging
from typing import Any

from framejit import _C
from framejit._arguments import row_of, unknown

_root = logging.getLogger("framejit")
_level_before: int | None = None  # None: we did not set it


def _reaches_others(record: logging.LogRecord, own: logging.Handler) -> bool:
    """Does a handler of the program's show this record?"""
    at: logging.Logger | None = logging.getLogger(record.name)
    while at is not None:
        for handler in at.handlers:
            silent = handler is own or isinstance(handler, logging.NullHandler)
            if not silent and record.levelno >= handler.level:
                return True
        at = at.parent if at.propagate else None
    return False


def _held_locks(logger: logging.Logger) -> list[Any]:
    """The locks that this thread holds: of the handlers its records come to, and
    of logging itself, whose functions take it on their way."""
    handlers = [logging.lastResort]
    at: logging.Logger | None = logger
    while at is not None:
        handlers += at.handlers
        at = at.parent if at.propagate else None
    locks: list[Any] = [handler.lock for handler in handlers if handler is not None]
    locks.append(getattr(logging, "_lock", None))
    return [lock for lock in locks if hasattr(lock, "_is_owned") and lock._is_owned()]


def _forward(channel: str, text: str, warning: bool) -> None:
    level = logging.WARNING if warning else logging.INFO
    logger = _root
    held = _held_locks(_root)
    try:
        logger = logging.getLogger(f"framejit.{channel}")
        logger.log(level, text)
    except BaseException:
        # A signal's handler raised. Behind acquire(), where it can be before the
        # `try` that releases, it would leave other threads waiting for good; the
        # program logs nothing itself, perhaps.
        for lock in _held_locks(logger):
            if lock not in held:
                lock.release()
        raise


def set_channels(channels: str) -> None:
    """Switches on exactly the comma-separated ``channels`` (``"all"``: each).

    Raises:
        ValueError: a name is not a channel.
    """
    known = row_of("log").words
    for word in channels.split(","):
        if word.strip() and word.strip().lower() not in known:
            raise unknown("channel", word.strip(), known)
    _C.set_option("log", channels)
    channels = _C.option_text("log")
    _C.set_enabled_channels(channels)
    if channels and not _root.handlers and not logging.getLogger().handlers:
        # Asked for by environment or call, and nobody configured logging: the
        # user wants to see it.
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        # The program may configure logging later.
        handler.addFilter(lambda record: not _reaches_others(record, handler))
        _root.addHandler(handler)
    global _level_before
    if channels and _level_before is None:
        _level_before = _root.level
        _root.setLevel(logging.INFO)
    elif not channels and _level_before is not None:
        if _root.level == logging.INFO:
            _root.setLevel(_level_before)
        _level_before = None


def start() -> None:
    """Called once at import."""
    _C.set_event_sink(_forward)
    set_channels(_C.option_text("log"))
