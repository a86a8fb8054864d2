"""What eager refuses of sizes is refused where they are symbols, too: the functions
that stand for a call there must ask all that the call asks."""

from __future__ import annotations

import itertools

import pytest
import torch

import framejit


def gru(x, h, *weights):
    return torch.gru_cell(x, h, *weights)


def tanh(x, h, *weights):
    return torch.rnn_tanh_cell(x, h, *weights)


def relu_without_biases(x, h, from_input, from_state, *_):
    return torch.rnn_relu_cell(x, h, from_input, from_state)


def lstm(x, h, *weights):
    return torch.lstm_cell(x, (h, h), *weights)


def lstm_of_two(x, h, *weights):
    return torch.lstm_cell(x, (h, h[:, :3]), *weights)


CELLS = {gru: 3, tanh: 1, relu_without_biases: 1, lstm: 4, lstm_of_two: 4}


def outcome(function, arguments):
    try:
        return function(*arguments), ""
    except (RuntimeError, IndexError) as error:
        return None, str(error)


def check(expected, actual):
    assert actual[1] == expected[1]
    torch.testing.assert_close(actual[0], expected[0])


def vector(*sizes):
    return torch.linspace(-1, 1, max(torch.Size(sizes).numel(), 1))[
        : torch.Size(sizes).numel()
    ].reshape(sizes)


@pytest.mark.parametrize("function", CELLS, ids=lambda f: f.__name__)
def test_cells(function):
    k = CELLS[function]
    rows = ((2,), (1,), (), (0,))
    for batch, other, hidden, ih, hh, bias, width in itertools.product(
        rows, rows, (5, 1), (5 * k, k, 6 * k), (5 * k, k), (5 * k, 1), (4, 1)
    ):
        if function is lstm_of_two and other == ():
            continue
        shapes = (
            (*batch, 4),
            (*other, hidden),
            (ih, width),
            (hh, hidden),
            (bias,),
            (hh,),
        )
        arguments = [vector(*shape) for shape in shapes]
        framejit.reset()
        compiled = framejit.compile(function, dynamic=True)
        check(outcome(function, arguments), outcome(compiled, arguments))


@pytest.mark.parametrize("function", [gru, tanh, relu_without_biases, lstm])
def test_one_entry_for_all_sizes(function):
    k = CELLS[function]
    compiled = framejit.compile(function, dynamic=True)
    for rows, width, hidden in ((3, 4, 5), (6, 7, 8), (9, 2, 11)):
        arguments = [
            vector(rows, width),
            vector(rows, hidden),
            vector(k * hidden, width),
            vector(k * hidden, hidden),
            vector(k * hidden),
            vector(k * hidden),
        ]
        check(outcome(function, arguments), outcome(compiled, arguments))
    (entry,) = framejit.inspect(compiled)
    assert not entry.breaks


@pytest.mark.parametrize("size", [True, (True, 2), (2, False), (2, 2)])
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact", "bilinear", "bicubic"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_sizes_that_are_no_numbers(size, mode, dynamic):
    def function(x):
        return torch.nn.functional.interpolate(x, size=size, mode=mode)

    def ended(f):
        try:
            return f(torch.ones(1, 1, 4, 4)).tolist()
        except (TypeError, RuntimeError) as error:
            return repr(error)

    assert ended(framejit.compile(function, dynamic=dynamic)) == ended(function)
