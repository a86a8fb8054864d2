"""The transforms of torch.func, and cond, as they run with a captured graph.

framejit/_regions.py captures the transformed function as a block, a callable
on tensors; what the functions here return is the node of the graph: it gives
the block to torch's own transform. Its arguments are the inputs of the block,
what the transform needs besides, then what the block takes behind its inputs.
All results are flat tuples of tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.func

Block = Callable[..., tuple[Any, ...]]


def call(block: Block) -> Block:
    """The function itself."""
    return block


def vmap(
    block: Block,
    in_dims: tuple[int, ...],
    out_dims: Any,
    randomness: str,
    chunk_size: int | None,
) -> Callable[..., Any]:
    count = len(in_dims)

    def vmap(*args: Any) -> Any:
        rest = args[count:]

        def body(*samples: Any) -> tuple[Any, ...]:
            return block(*samples, *rest)

        batched = torch.vmap(body, in_dims, out_dims, randomness, chunk_size=chunk_size)
        return batched(*args[:count])

    return vmap


def gradient(block: Block, count: int) -> Callable[..., Any]:
    """Gradients for the first `count` inputs; all the outputs of the block."""

    def grad(*args: Any) -> Any:
        rest = args[count:]

        def body(*inputs: Any) -> Any:
            outputs = block(*inputs, *rest)
            return outputs[0], outputs[1:]

        transform = torch.func.grad_and_value(
            body, argnums=tuple(range(count)), has_aux=True
        )
        gradients, (value, others) = transform(*args[:count])
        return (*gradients, value, *others)

    return grad


def pullback(block: Block, count: int, outputs: int) -> Callable[..., Any]:
    """Cotangents of the first outputs -> those of the first `count` inputs."""

    def vjp(*args: Any) -> Any:
        cotangents = args[count : count + outputs]
        rest = args[count + outputs :]

        def body(*inputs: Any) -> Any:
            return block(*inputs, *rest)[:outputs]

        _, pull = torch.func.vjp(body, *args[:count])[:2]
        return pull(tuple(cotangents))

    return vjp


def pushforward(block: Block, count: int, outputs: int) -> Callable[..., Any]:
    """The outputs, and the tangents of the first `outputs` of them."""

    def jvp(*args: Any) -> Any:
        rest = args[2 * count :]

        def body(*inputs: Any) -> Any:
            found = block(*inputs, *rest)
            return found[:outputs], found[outputs:]

        found: Any = torch.func.jvp(
            body, args[:count], args[count : 2 * count], has_aux=True
        )
        primals, tangents, others = found
        return (*primals, *tangents, *others)

    return jvp


def branch(
    first: Block, second: Block, count: int, extra: int
) -> Callable[..., tuple[Any, ...]]:
    """torch.cond: `extra` arguments behind the inputs are those of the first."""

    def cond(pred: Any, *args: Any) -> tuple[Any, ...]:
        inputs = args[:count]
        if pred:
            return first(*inputs, *args[count : count + extra])
        return second(*inputs, *args[count + extra :])

    return cond
