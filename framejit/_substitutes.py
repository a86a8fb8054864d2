"""What some calls give that ATen cannot run on stand-ins.

ATen unrolls a recurrent layer over a length that it must know, and leaves its
oneDNN kernel where sizes are symbols; ctc_loss looks into a tensor of lengths.
A capture runs a function of SUBSTITUTES in the place of such a call: its results
have the same sizes, strides and history, and so have the gradients of what it is
given. The node of the graph is the call itself, and the graph is run as torch
calls.

Those of RECURRENCES take their place on a CPU: an operator of FrameJIT's makes the call
when the graph runs (graph/ops/recurrent.h).

The functions of DECOMPOSITIONS do what the call does, with the same operators in
the same order (ATen's RNN.cpp and UpSample.cpp), but never take a size for a number
as it does. So do those of COMPOSITES, which take whatever the call takes; what they do
not do exactly they leave to it. So do those of READERS, at any sizes (_readers.py).
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import torch

from framejit._readers import READERS as _READERS
from framejit._similarity import cosine_similarity


def _dense(tensor: Any) -> Any:
    """Its gradient is one for each element, row by row: that of a sum is one for
    all of them."""
    return tensor * 1


def _everything(input: Any, others: Any, uses_random: bool) -> Any:
    """A number computed from all that the results depend on."""
    total = input.sum() + sum(_dense(t).sum() for t in others)
    return total + torch.rand(()) if uses_random else total


def _runs_on_onednn(input: Any, state: Any) -> bool:
    """Else each layer multiplies matrices, whose gradients take after them."""
    if len(state) != 2 or state[0].shape[-1] != state[1].shape[-1]:
        return False
    return input.dtype is not torch.float64


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
    steps = input.transpose(0, 1) if batch_first else input
    if _runs_on_onednn(input, state):
        steps = _dense(steps)
    else:
        steps = torch.nn.functional.linear(steps, weights[0].detach())
    total = _everything(steps, (*state, *weights), uses_random)
    width = state[0].shape[-1] * (2 if bidirectional else 1)
    output = _output(input, width, batch_first, total)
    return output, *(part.new_empty(part.shape) * total for part in state)


def one_state(input: Any, state: Any, *others: Any) -> Any:
    """gru and rnn: like lstm, with one state in the place of two."""
    return lstm(input, (state,), *others)


def _fits_layers(
    input: Any,
    states: Any,
    weights: Any,
    gates: int,
    has_biases: bool,
    num_layers: int,
    directions: int,
) -> bool:
    """What ATen asks of the sizes, for layers in which everything has elements."""
    if not 0 < len(states) == (2 if gates == 4 else 1) or num_layers < 1:
        return False
    layers = num_layers * directions
    if any(s.dim() != 3 for s in states):
        return False
    batch, width = input.shape[1], input.shape[2]
    hidden, given_back = states[-1].shape[2], states[0].shape[2]
    if any(s.shape != (layers, batch, s.shape[2]) for s in states):
        return False
    projects = hidden != given_back
    shapes = []
    for layer in range(num_layers):
        into = width if layer == 0 else given_back * directions
        each: list[tuple[Any, ...]] = [(gates * hidden, into)]
        each += [(gates * hidden, given_back)]
        each += [(gates * hidden,)] * (2 * has_biases)
        each += [(given_back, hidden)] * projects
        shapes += each * directions
    if len(weights) != len(shapes):
        return False
    if any(w.dim() != len(s) for w, s in zip(weights, shapes, strict=True)):
        return False
    if any(w.shape != s for w, s in zip(weights, shapes, strict=True)):
        return False
    return all(size != 0 for t in (input, *states) for size in t.shape)


# What framejit::recurrent calls by which number.
KINDS = ("lstm", "gru", "rnn_tanh", "rnn_relu")


def _recurrence(name: str, gates: int) -> Callable[..., Any]:
    def layer(*given: Any) -> Any:
        input, state, weights, has_biases, num_layers, *rest = given
        dropout, train, bidirectional, batch_first = rest
        states = [state] if isinstance(state, torch.Tensor) else [*state]
        steps = input.transpose(0, 1) if batch_first else input
        directions = 2 if bidirectional else 1
        if not _fits_layers(
            steps, states, weights, gates, has_biases, num_layers, directions
        ):
            return _own(f"_VariableFunctions.{name}")(*given)
        is_random = dropout != 0 and train and num_layers > 1
        operators = torch.ops.framejit
        operator = (
            operators.recurrent_with_dropout if is_random else operators.recurrent
        )
        output, *last, _ = operator.default(
            steps,
            states,
            weights,
            KINDS.index(name),
            has_biases,
            num_layers,
            dropout,
            train,
            bidirectional,
            False,
            [],
        )
        return output.transpose(0, 1) if batch_first else output, *last

    return layer


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
        return _dense(log_probs).sum((0, 2))
    return _dense(log_probs).sum()


def _fits(input: Any, state: Any, weights: Any, parts: int) -> bool:
    """What ATen's cells ask of the sizes, and the sums here would broadcast."""
    from_input, from_state, *biases = weights
    if not input.dim() == state.dim() == from_input.dim() == from_state.dim() == 2:
        return False
    (rows, width), (others, hidden) = input.shape, state.shape
    return (
        rows == others
        and from_input.shape == (parts * hidden, width)
        and from_state.shape == (parts * hidden, hidden)
        and all(b is None or b.shape == (parts * hidden,) for b in biases)
    )


def _cell(name: str, parts: int) -> Callable[..., Any]:
    """The decomposition, for sizes that fit together; the call itself for others."""

    def decorate(decomposition: Callable[..., Any]) -> Callable[..., Any]:
        def cell(input: Any, state: Any, *weights: Any) -> Any:
            states = [state] if isinstance(state, torch.Tensor) else [*state]
            same = all(s.shape == states[0].shape for s in states)
            if not same or not _fits(input, states[0], weights, parts):
                return _own(f"_VariableFunctions.{name}")(input, state, *weights)
            return decomposition(input, state, *weights)

        return cell

    return decorate


def _gates(input: Any, state: Any, weights: Any) -> tuple[Any, Any]:
    from_input, from_state, *biases = weights
    input_bias, state_bias = biases or (None, None)
    linear = torch.nn.functional.linear
    return linear(input, from_input, input_bias), linear(state, from_state, state_bias)


def _parts(gates: Any, count: int) -> Any:
    # unsafe_chunk() is this call, once it has taken all sizes for numbers.
    return gates.unsafe_split(gates.shape[1] // count, 1)


@_cell("lstm_cell", 4)
def lstm_cell(input: Any, state: Any, *weights: Any) -> Any:
    hidden, cell = state
    of_input, of_state = _gates(input, hidden, weights)
    enter, forget, new, leave = _parts(of_state.add_(of_input), 4)
    enter, forget, leave = enter.sigmoid(), forget.sigmoid(), leave.sigmoid()
    cell = (forget * cell).add_(enter * new.tanh())
    return leave * cell.tanh(), cell


@_cell("gru_cell", 3)
def gru_cell(input: Any, state: Any, *weights: Any) -> Any:
    of_input, of_state = _gates(input, state, weights)
    input_reset, input_update, input_new = _parts(of_input, 3)
    reset, update, new = _parts(of_state, 3)
    # ATen writes into the parts. That is not to be seen, and a functional graph has
    # no such results: they have the strides of the whole.
    reset = reset.add(input_reset).sigmoid_()
    update = update.add(input_update).sigmoid_()
    new = input_new.add(new * reset).tanh_()
    return (state - new).mul_(update).add_(new)


@_cell("rnn_tanh_cell", 1)
def rnn_tanh_cell(input: Any, state: Any, *weights: Any) -> Any:
    of_input, of_state = _gates(input, state, weights)
    return of_state.add_(of_input).tanh_()


@_cell("rnn_relu_cell", 1)
def rnn_relu_cell(input: Any, state: Any, *weights: Any) -> Any:
    of_input, of_state = _gates(input, state, weights)
    return of_state.add_(of_input).relu_()


def _scaled(size: Any, scale: Any) -> Any:
    """int(size * scale), as an expression of the size where the product is exact."""
    if type(scale) in (int, float):
        above, below = scale.as_integer_ratio()
        # Together they stay within the 53 bits of a double.
        if 0 < above < 2**21 and size < 2**32:
            return size * above // below
    return int(size * scale)


def _upsampling(name: str) -> Callable[..., Any]:
    def upsample(input: Any, output_size: Any, *rest: Any) -> Any:
        *flags, factors = rest
        if output_size is not None and any(type(n) is bool for n in output_size):
            return _own(f"_nn.{name}")(input, output_size, *rest)
        if output_size is None:
            output_size = [
                _scaled(size, factor)
                for size, factor in zip(input.shape[2:], factors, strict=True)
            ]
        scales = factors or [None] * (input.dim() - 2)
        upsampling = getattr(torch.ops.aten, name).default
        return upsampling(input, output_size, *flags, *scales)

    return upsample


def randperm(count: Any, **options: Any) -> Any:
    if options.keys() <= {"dtype", "layout", "device", "pin_memory"}:
        return torch.ops.aten.randperm.default(count, **options)
    return torch.randperm(count, **options)


def _own(path: str) -> Any:
    """The call itself, where sizes are numbers."""
    return operator.attrgetter(path)(torch._C)


def _broadcast(a: Any, b: Any) -> list[Any]:
    """The sizes of both, of equal length, together."""
    found = []
    for m, n in zip(a, b, strict=True):
        if m != n and m != 1 and n != 1:
            raise RuntimeError("sizes do not fit")
        found.append(n if m == 1 else m)
    return found


def take_along_dim(input: Any, indices: Any, dim: Any = None) -> Any:
    if dim is None:
        return input.view(-1).gather(0, indices.view(-1))
    rank = input.dim()
    if (
        rank != indices.dim()
        or indices.dtype is not torch.int64
        or type(dim) is not int
        or not -rank <= dim < rank
    ):
        return _own("_VariableFunctions.take_along_dim")(input, indices, dim)
    dim %= rank
    count, size = indices.shape[dim], input.shape[dim]
    others, places = [*input.shape], [*indices.shape]
    others[dim], places[dim] = count, size
    at = _broadcast(others, indices.shape)
    of = _broadcast(places, input.shape)
    return input.expand(of).gather(dim, indices.expand(at).remainder(size))


def kron(input: Any, other: Any) -> Any:
    rank = max(input.dim(), other.dim())
    first = [1] * (rank - input.dim()) + [*input.shape]
    second = [1] * (rank - other.dim()) + [*other.shape]
    view = torch.ops.aten._unsafe_view.default
    rows = view(input, [n for size in first for n in (size, 1)])
    columns = view(other, [n for size in second for n in (1, size)])
    sizes = [m * n for m, n in zip(first, second, strict=True)]
    return view(rows * columns, sizes)


def unsafe_chunk(input: Any, chunks: Any, dim: Any = 0) -> Any:
    if type(chunks) is not int or type(dim) is not int or chunks < 1:
        return _own("_VariableFunctions.unsafe_chunk")(input, chunks, dim)
    size = input.shape[dim]
    if size == 0:
        return _own("_VariableFunctions.unsafe_chunk")(input, chunks, dim)
    return input.unsafe_split((size + chunks - 1) // chunks, dim)


def isclose(
    input: Any,
    other: Any,
    rtol: Any = 1e-5,
    atol: Any = 1e-8,
    equal_nan: Any = False,
) -> Any:
    close = _own("_VariableFunctions.isclose")
    if equal_nan is not True or not (
        input.dtype == other.dtype and input.dtype.is_floating_point
    ):
        return close(input, other, rtol, atol, equal_nan)
    # What is NaN is close to nothing: each place is decided on one side alone.
    found = close(input, other, rtol, atol)
    return found.bitwise_or_(input.isnan().bitwise_and_(other.isnan()))


def _edges(part: Callable[..., Any], step: Any, order: int) -> tuple[Any, Any]:
    if order == 1:
        return (part(1, 2) - part(0, 1)) / step, (part(-1) - part(-2, -1)) / step
    first = part(0, 1) * -1.5 + part(1, 2) * 2 - part(2, 3) * 0.5
    last = part(-3, -2) * 0.5 - part(-2, -1) * 2 + part(-1) * 1.5
    return first / step, last / step


def gradient(
    input: Any, *, spacing: Any = None, dim: Any = None, edge_order: Any = 1
) -> Any:
    dims = range(input.dim()) if dim is None else [dim] if type(dim) is int else dim
    rank = input.dim()
    if (
        type(spacing) not in (type(None), int, float)
        or type(dims) not in (range, list, tuple)
        or not all(type(d) is int and -rank <= d < rank for d in dims)
        or len({d % rank for d in dims}) != len(dims)
        or type(edge_order) is not int
        or edge_order not in (1, 2)
        or any(input.shape[d] <= edge_order for d in dims)
    ):
        given = {"dim": dim, "edge_order": edge_order}
        if spacing is not None:
            given["spacing"] = spacing
        return _own("_VariableFunctions.gradient")(input, **given)
    step = 1.0 if spacing is None else spacing
    found = []
    for d in dims:

        def part(start: Any, end: Any = None, d: int = d) -> Any:
            return torch.ops.aten.slice.Tensor(input, d, start, end)

        inner = (part(2) - part(0, -2)) / step
        first, last = _edges(part, step, edge_order)
        found.append(torch.cat([first, inner / 2, last], d))
    return tuple(found)


def multi_dot(tensors: Any) -> Any:
    if len(tensors) != 3 or any(t.dim() != 2 for t in tensors):
        return _own("_linalg.linalg_multi_dot")(tensors)
    a, b, c = tensors
    (m, k), (n, o) = a.shape, c.shape
    if (m * n) * (k + o) > (k * o) * (m + n):
        found = a.mm(b.mm(c))
    else:
        found = a.mm(b).mm(c)
    return found.view(m, o)


def _extremum(values: Any, ord: Any, dim: int, keepdim: bool) -> Any:
    return values.amax(dim, keepdim) if ord > 0 else values.amin(dim, keepdim)


def matrix_norm(
    input: Any,
    ord: Any = "fro",
    dim: Any = (-2, -1),
    keepdim: Any = False,
    *,
    dtype: Any = None,
) -> Any:
    rank = input.dim()
    if (
        type(ord) not in (int, float)
        or abs(ord) not in (1, 2, math.inf)
        or type(dim) not in (tuple, list)
        or len(dim) != 2
        or not all(type(d) is int and -rank <= d < rank for d in dim)
        or (dim[0] - dim[1]) % rank == 0
        or type(keepdim) is not bool
        or dtype is not None
        or any(size == 0 for size in input.shape)
    ):
        own = _own("_linalg.linalg_matrix_norm")
        return own(input, ord, dim, keepdim, dtype=dtype)
    first, second = (d % rank for d in dim)
    if abs(ord) == 2:
        order = [d for d in range(rank) if d not in (first, second)]
        order += [first, second]
        singular = torch.linalg.svdvals(input.permute(order))
        found = _extremum(singular, ord, -1, keepdim)
        if not keepdim:
            return found
        return found.unsqueeze(-1).permute([order.index(d) for d in range(rank)])
    added, kept = (first, second) if abs(ord) == 1 else (second, first)
    sums = torch.linalg.vector_norm(input, 1.0, [added], keepdim)
    return _extremum(sums, ord, kept - (kept > added and not keepdim), keepdim)


def norm(
    input: Any, ord: Any = None, dim: Any = None, keepdim: Any = False, **rest: Any
) -> Any:
    dims = (0, 1) if dim is None and input.dim() == 2 else dim
    if type(ord) in (int, float) and type(dims) in (tuple, list) and len(dims) == 2:
        return matrix_norm(input, ord, dims, keepdim, **rest)
    return _own("_linalg.linalg_norm")(input, ord, dim, keepdim, **rest)


# Of both modes of nearest, and of those that have corners.
UPSAMPLING = (
    *(f"upsample_nearest{n}d" for n in (1, 2, 3)),
    *(f"_upsample_nearest_exact{n}d" for n in (1, 2, 3)),
    "upsample_linear1d",
    "upsample_bilinear2d",
    "upsample_bicubic2d",
    "upsample_trilinear3d",
    "_upsample_bilinear2d_aa",
    "_upsample_bicubic2d_aa",
)

SUBSTITUTES: dict[str, Callable[..., Any]] = {
    "lstm": lstm,
    "gru": one_state,
    "rnn_tanh": one_state,
    "rnn_relu": one_state,
    "ctc_loss": ctc_loss,
}

RECURRENCES: dict[str, Callable[..., Any]] = {
    name: _recurrence(name, gates)
    for name, gates in zip(KINDS, (4, 3, 1, 1), strict=True)
}

DECOMPOSITIONS: dict[str, Callable[..., Any]] = {
    "lstm_cell": lstm_cell,
    "gru_cell": gru_cell,
    "rnn_tanh_cell": rnn_tanh_cell,
    "rnn_relu_cell": rnn_relu_cell,
    "randperm": randperm,
    **{f"_C._nn.{name}": _upsampling(name) for name in UPSAMPLING},
}

COMPOSITES: dict[str, Callable[..., Any]] = {
    "_C._VariableFunctions.gradient": gradient,
    "_C._linalg.linalg_multi_dot": multi_dot,
    "_C._linalg.linalg_matrix_norm": matrix_norm,
    "_C._linalg.linalg_norm": norm,
    **{
        f"{owner}.{function.__name__}": function
        for owner in ("_C._VariableFunctions", "Tensor")
        for function in (isclose, kron, take_along_dim, unsafe_chunk)
    },
}

# At any sizes: see _similarity.py for the last.
READERS: dict[str, Callable[..., Any]] = {
    **_READERS,
    "_C._VariableFunctions.cosine_similarity": cosine_similarity,
}

# Fused optimizers write to these only where the other argument is given (None: never),
# whatever their schemas say.
WRITTEN_WITH = {"grads": "grad_scale", "state_steps": None}


def through_results(name: str, overload: str) -> Callable[..., None] | None:
    """What calls an operator that writes to lists (`aten::_fused_adam_`) as the one
    that returns what it would have written, and copies that to its place. None:
    torch has no such operator."""
    namespace, _, short = name.partition("::")
    overload = overload or "default"
    operators = getattr(torch.ops, namespace)
    in_place = getattr(getattr(operators, short), overload)
    packet = getattr(operators, short.removesuffix("_"), None)
    functional = getattr(packet, overload, None)
    arguments = in_place._schema.arguments
    written = [
        (at, argument.name)
        for at, argument in enumerate(arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    sometimes = WRITTEN_WITH if short.startswith("_fused_") else {}
    if functional is None or len(functional._schema.returns) != len(written):
        return None

    def call(*args: Any, **kwargs: Any) -> None:
        results = functional(*args, **kwargs)
        results = results if len(written) > 1 else (results,)
        for (at, name), found in zip(written, results, strict=True):
            if name in sometimes and kwargs.get(sometimes[name] or "") is None:
                continue
            places = args[at] if at < len(args) else kwargs[name]
            if not isinstance(found, list):
                places.copy_(found)
                continue
            # The kernels count no write to what is in a list.
            with torch.autograd.grad_mode._unsafe_preserve_version_counter(
                tuple(places)
            ):
                for place, value in zip(places, found, strict=True):
                    place.copy_(value)

    return call
