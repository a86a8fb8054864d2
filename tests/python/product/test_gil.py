"""Other threads run while a graph does."""

from __future__ import annotations

import sys
import threading
import time

import pytest
import torch

import framejit

CALLS = 4


@pytest.mark.parametrize("backend", ["aot_eager", "native"])
def test_other_threads_run_while_a_graph_does(backend: str) -> None:
    compiled = framejit.compile(lambda a: torch.linalg.svdvals(a) * 2, backend=backend)
    a = torch.randn(400, 400)
    compiled(a)
    turns = 0
    stop = False

    def work() -> None:
        nonlocal turns
        while not stop:
            turns += 1
            time.sleep(0)  # gives the GIL back

    # Nobody asks for the GIL in this time: it has to be given.
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1000)
    thread = threading.Thread(target=work)
    try:
        thread.start()
        gained = 0
        for _ in range(CALLS):
            before = turns
            compiled(a)
            gained += turns - before
    finally:
        stop = True
        thread.join()
        sys.setswitchinterval(interval)
    # (A call gives it once or twice on its way anyhow.)
    assert gained > 5 * CALLS
