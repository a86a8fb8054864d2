"""Work in a process of its own: it may crash or hang."""

from __future__ import annotations

import faulthandler
import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TextIO


def _processor_seconds(process: int) -> float:
    """Of all its threads, so far (proc(5): utime and stime)."""
    stat = Path(f"/proc/{process}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def apart(work: Callable[[TextIO], None], seconds: float) -> tuple[list[str], str]:
    """The lines it wrote, and how it ended: "" is well.

    It hangs when it writes nothing for so many seconds of its own processor time,
    or for ten times as long by the clock: others may keep the machine busy. (No
    alarm in the child: the timer is the programs'.)
    """
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.close(read)
            faulthandler.register(signal.SIGUSR2, all_threads=True)
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
    since, used = time.monotonic(), 0.0
    while True:
        ready, _, _ = select.select([read], [], [], seconds)
        if not ready:
            starved = _processor_seconds(child) - used < seconds
            if starved and time.monotonic() - since < 10 * seconds:
                continue
            hangs = True
            os.kill(child, signal.SIGUSR2)  # where it is, on standard error
            time.sleep(1)
            os.kill(child, signal.SIGKILL)
            break
        part = os.read(read, 65536)
        if not part:
            break
        data += part
        since, used = time.monotonic(), _processor_seconds(child)
    os.close(read)
    _, status = os.waitpid(child, 0)
    lines = data.decode(errors="replace").split("\n")[:-1]
    if hangs:
        return lines, "hangs"
    if os.WIFSIGNALED(status):
        return lines, f"signal {os.WTERMSIG(status)}"
    return lines, f"ended with status {os.WEXITSTATUS(status)}" if status else ""
