"""``torch.compile(model, backend="framejit")``: Dynamo captures, FrameJIT compiles.

Dynamo gives a graph as a module whose ``forward`` is straight Python code over
tensors and sizes. That is compiled as any function is, at its first call and so
with real tensors: gradients, mutation, views, random numbers and sizes that change
are what they are elsewhere, and what cannot be compiled runs as it is. Dynamo
calls it with itself switched off, so FrameJIT is free to work there.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch.fx


def framejit(
    gm: Any,
    example_inputs: list[Any],
    *,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
) -> Callable[..., Any]:
    """The backend. ``mode`` and ``options`` are those of `framejit.compile`."""
    from framejit import _api

    # Dynamo's own writes its code at its first call only.
    written = torch.fx.GraphModule(gm, gm.graph)
    compiled: Callable[..., Any] = _api.compile(
        written.forward, mode=mode, options=options
    )
    return compiled
