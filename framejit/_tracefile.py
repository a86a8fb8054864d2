"""``FRAMEJIT_TRACE=folder``: one file of JSON lines for each process.

Every line has ``kind`` (compile_start, compile_end, recompile), ``time``
(seconds since the epoch), ``pid``, ``thread`` and what the kind brings; see
docs/usage.md.
"""

from __future__ import annotations

import errno
import json
import os
import threading
import time
import types
from typing import Any

from framejit import _C
from framejit._arguments import row_of, warn_of

_folder = ""
_file: Any = None
_file_pid = 0


def _plain(value: Any) -> Any:
    if isinstance(value, types.CodeType):
        return f"{value.co_qualname} ({value.co_filename}:{value.co_firstlineno})"
    return str(value)


def _write(kind: str, record: dict[str, Any]) -> None:
    try:
        _write_line(kind, record)
    except OSError as error:  # the disk is full, the folder went away ...
        warn_of(row_of("trace"), _folder, error)
        set_folder("")


def _write_line(kind: str, record: dict[str, Any]) -> None:
    global _file, _file_pid
    # After a fork the child has a file of its own.
    if _file is None or _file_pid != os.getpid():
        _file_pid = os.getpid()
        os.makedirs(_folder, exist_ok=True)
        path = os.path.join(_folder, f"framejit-{_file_pid}.jsonl")
        _file = open(path, "a", encoding="utf-8")
    line = {
        "kind": kind,
        "time": time.time(),
        "pid": _file_pid,
        "thread": threading.get_ident(),
        **record,
    }
    _file.write(json.dumps(line, default=_plain) + "\n")
    _file.flush()


def set_folder(folder: str) -> None:
    """Writes records into ``folder`` from now on; ``""``: stops.

    Raises:
        OSError: there is no such folder, and none can be made; or it is not
            one to write to. Nothing is changed then.
    """
    global _folder, _file
    if folder:
        os.makedirs(folder, exist_ok=True)
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), folder)
    if _file is not None:
        _file.close()
        _file = None
    if _folder:
        _C.remove_trace_listener(_write)
    _folder = os.path.abspath(folder) if folder else ""
    if folder:
        _C.add_trace_listener(_write)


def start() -> None:
    """Called once at import."""
    if folder := _C.option_text("trace"):
        try:
            set_folder(folder)
        except OSError as error:
            warn_of(row_of("trace"), folder, error)
