"""Work in a process of its own: it may crash or hang."""

from __future__ import annotations

import os
import select
import signal
import sys
import traceback
from collections.abc import Callable
from typing import TextIO


def apart(work: Callable[[TextIO], None], seconds: float) -> tuple[list[str], str]:
    """The lines it wrote, and how it ended: "" is well.

    It hangs when it writes nothing for that long. (No alarm in the child: the
    timer is the programs'.)
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            with os.fdopen(write, "w") as pipe:
                work(pipe)
            status = 0
        except BaseException:
            traceback.print_exc()  # nobody else will: `_exit` is next
            sys.stderr.flush()
        finally:
            os._exit(status)
    os.close(write)
    data, hangs = b"", False
    while True:
        ready, _, _ = select.select([read], [], [], seconds)
        if not ready:
            hangs = True
            os.kill(child, signal.SIGKILL)
            break
        part = os.read(read, 65536)
        if not part:
            break
        data += part
    os.close(read)
    _, status = os.waitpid(child, 0)
    lines = data.decode(errors="replace").split("\n")[:-1]
    if hangs:
        return lines, "hangs"
    if os.WIFSIGNALED(status):
        return lines, f"signal {os.WTERMSIG(status)}"
    return lines, f"ended with status {os.WEXITSTATUS(status)}" if status else ""
