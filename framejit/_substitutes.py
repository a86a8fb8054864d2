"""What some calls give that ATen cannot run on stand-ins.

ATen unrolls a recurrent layer over a length that it must know, and leaves its
oneDNN kernel where sizes are symbols; ctc_loss looks into a tensor of lengths.
A capture runs a function given here in the place of such a call: its results
have the same sizes, strides and history. The node of the graph is the call
itself, and the graph is run as torch calls.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def _everything(tensors: Any, uses_random: bool) -> Any:
    """A number computed from all that the results depend on."""
    total = sum(t.sum() for t in tensors)
    return total + torch.rand(()) if uses_random else total


def _output(input: Any, width: int, batch_first: bool, total: Any) -> Any:
    if batch_first:
        input = input.transpose(0, 1)
    output = input.new_empty((input.shape[0], input.shape[1], width)) * total
    return output.transpose(0, 1) if batch_first else output


def lstm(
    input: Any,
    state: Any,
    weights: Any,
    has_biases: bool,
    num_layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> Any:
    uses_random = dropout > 0 and train and num_layers > 1
    total = _everything((input, *state, *weights), uses_random)
    width = state[0].shape[-1] * (2 if bidirectional else 1)
    output = _output(input, width, batch_first, total)
    return output, *(part.new_empty(part.shape) * total for part in state)


def one_state(input: Any, state: Any, *others: Any) -> Any:
    """gru and rnn: like lstm, with one state in the place of two."""
    return lstm(input, (state,), *others)


def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:
    if reduction == 0 and log_probs.dim() == 3:
        return log_probs.sum((0, 2))
    return log_probs.sum()


SUBSTITUTES: dict[str, Callable[..., Any]] = {
    "lstm": lstm,
    "gru": one_state,
    "rnn_tanh": one_state,
    "rnn_relu": one_state,
    "ctc_loss": ctc_loss,
}
