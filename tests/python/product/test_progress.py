"""A compilation that takes long says how far it is, on a terminal and nowhere else."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
import sys
import time

import pytest

# Each step of the capture takes its time: what shapes the operator has is asked.
PROGRAM = """
import sys, time
import torch
import framejit

@torch.library.custom_op("progress::slow", mutates_args=())
def slow(x: torch.Tensor) -> torch.Tensor:
    return x + 1

@slow.register_fake
def _(x):
    time.sleep(0.1)
    return torch.empty_like(x)

def many(x):
    for _ in range({turns}):
        x = slow(x)
    return x

modules = set(sys.modules)
sys.stderr.write("begun ")
sys.stderr.flush()
result = framejit.compile(many)(torch.zeros(2))
sys.stderr.write("ended\\n")
assert result.tolist() == [{turns}, {turns}]
assert not [name for name in set(sys.modules) - modules if name.startswith("rich")]
"""


def on_terminal(turns: int, *, to_pipe: bool = False, **environment: str) -> str:
    """What the terminal shows; to_pipe: of a stderr that is none."""
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM.format(turns=turns)],
        stdin=child,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE if to_pipe else child,
        # The terminal is its own, and it is in the foreground there.
        start_new_session=True,
        preexec_fn=take_terminal,
        env={**os.environ, "FRAMEJIT_PROGRESS": "1", **environment},
    )
    os.close(child)
    reader = process.stderr.fileno() if to_pipe else parent
    shown = b""
    limit = time.monotonic() + 120
    while time.monotonic() < limit:
        if not select.select([reader], [], [], 1)[0]:
            continue
        try:
            read = os.read(reader, 65536)
        except OSError:  # the terminal's other end is closed
            break
        if not read:
            break
        shown += read
    assert process.wait(60) == 0, shown
    process.stdout.close()
    if to_pipe:
        process.stderr.close()
    os.close(parent)
    return shown.decode()


def take_terminal():
    import fcntl
    import termios

    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def screen(shown: str, width: int = 80) -> list[str]:
    """The lines that stay, as a terminal has them."""
    lines, row, column = [""], 0, 0
    for part in re.findall(r"\x1b\[\d*[A-Za-z]|\r|\n|[^\r\n\x1b]", shown):
        if part == "\r":
            column = 0
        elif part == "\n":
            row += 1
        elif part == "\x1b[K":
            lines[row] = lines[row][:column]
        elif part.startswith("\x1b"):
            continue
        else:
            if column == width:
                row, column = row + 1, 0
            lines += [""] * (row + 1 - len(lines))
            line = lines[row].ljust(column)
            lines[row] = line[:column] + part + line[column + 1 :]
            column += 1
        lines += [""] * (row + 1 - len(lines))
    return [line.rstrip() for line in lines]


def test_function_phase_and_counts():
    shown = on_terminal(25)
    said = re.findall(r"FrameJIT: compiling .*?\x1b\[0m", shown)
    assert len(said) > 3
    assert "many (<string>:" in said[0]
    assert re.search(r": capture, [\d,]+ instructions, 1 s", said[0])
    counts = [
        int(re.search(r"capture, (\d+)", line)[1]) for line in said if "capture" in line
    ]
    assert counts == sorted(counts) and len(set(counts)) > 3
    # What the program wrote stays, and the line goes.
    assert [line for line in screen(shown) if line] == ["begun", "ended"]


def test_nothing_before_its_time():
    assert on_terminal(2, FRAMEJIT_PROGRESS="3600") == "begun ended\r\n"


@pytest.mark.parametrize(
    "arguments", [{"to_pipe": True}, {"FRAMEJIT_PROGRESS": "0"}], ids=["pipe", "off"]
)
def test_nothing_elsewhere(arguments):
    assert on_terminal(15, **arguments).split() == ["begun", "ended"]
