"""`x.data` shares x's memory and has no version of its own: what is written through it
does not count. Graphs that write elsewhere are compiled all the same; where x's
memory is written to, versions, histories and values stay eager's."""

from __future__ import annotations

import pytest
import torch

import framejit


def accumulated(x, w, acc):
    acc += w.data**2
    return x * w


def accumulated_gradient(x, w, acc):
    (x * w).sum().backward()
    acc.add_(w.grad.data**2)
    return x * 2


def of_a_value(x, w, acc):
    y = x * w
    acc.copy_(y.data.mean(0))
    return y


def of_a_view(x, w, acc):
    y = x * w
    acc[:2] = y[0].data[:2]
    return y[0], y


def of_the_written(x, w, acc):
    acc.add_(1)
    return acc.data * 2, x * w


def written_through(x, w, acc):
    acc.data.add_(1)
    return x * w


def written_through_a_view(x, w, acc):
    acc[1:].data.mul_(2)
    return x * w + acc


def written_through_and_beside(x, w, acc):
    y = x * w
    y.data.add_(1)
    acc.add_(y.detach().sum(0))
    return y.sin()


def saved_and_written(x, w, acc):
    y = (x * w).exp()
    y.data.mul_(2)
    acc.add_(1)
    return y


def one_read_another_written(x, w, acc):
    total = acc.data + w.data
    x2 = x * w
    v = x2.t()
    v.mul_(2)
    return v, total


def read_after_the_write(x, w, acc):
    acc.mul_(3)
    return x * acc.data


def a_part_kept(x, w, acc):
    y = x * w
    return y.data[0], y[1], w.data * 1


PROGRAMS = [
    *(accumulated, accumulated_gradient, of_a_value, of_a_view, of_the_written),
    *(written_through, written_through_a_view, written_through_and_beside),
    *(saved_and_written, one_read_another_written, read_after_the_write, a_part_kept),
]
# Nothing is written to whose .data is read.
WHOLE = [accumulated, of_a_value, one_read_another_written]


def run(fn, rows, same):
    torch.manual_seed(rows)
    x = torch.randn(rows, 4, requires_grad=True)
    w = torch.rand(4, requires_grad=True)
    acc = w.detach() if same else torch.rand(4)
    results = fn(x, w, acc)
    results = [results] if isinstance(results, torch.Tensor) else [*results]
    facts = [(t._version, t.requires_grad, t.stride()) for t in [*results, x, w, acc]]
    shared = [
        a.untyped_storage().data_ptr() == w.untyped_storage().data_ptr()
        for a in results
    ]
    total = sum(t.sum() for t in results if t.requires_grad)
    error = None
    try:
        total.backward()
    except RuntimeError as raised:
        error = str(raised)[:60]
    return results, facts, shared, [x, w, acc, x.grad, w.grad], error


@pytest.mark.parametrize("backend", ["native", "aot_eager"])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda p: p.__name__)
def test_as_eager(program, backend):
    fn = framejit.compile(program, backend=backend)
    for rows, same in [
        (3, False),
        (3, False),
        (5, False),
        (3, True),
        (2, False),
        (3, True),
    ]:
        expected, actual = run(program, rows, same), run(fn, rows, same)
        assert actual[1:3] == expected[1:3]
        assert actual[4] == expected[4]
        torch.testing.assert_close(actual[0], expected[0])
        torch.testing.assert_close(actual[3], expected[3])


@pytest.mark.parametrize("program", WHOLE, ids=lambda p: p.__name__)
def test_taken_as_a_whole(program):
    fn = framejit.compile(program)
    for _ in range(3):
        run(fn, 3, False)
    assert all(not e.fallback_reason for e in framejit.inspect(fn))


RESHAPES = {
    "unsqueeze_": lambda d: d.unsqueeze_(0),
    "t_": lambda d: d.t_(),
    "squeeze_": lambda d: d.squeeze_(0),
    "transpose_": lambda d: d.transpose_(0, 1),
}


@pytest.mark.parametrize("backend", ["native", "aot_eager", "eager"])
@pytest.mark.parametrize("of", ["argument", "computed", "detached"])
@pytest.mark.parametrize("how", RESHAPES)
def test_its_shape_is_its_own(how: str, of: str, backend: str) -> None:
    """`x.data.t_()` is a change of that tensor alone, in the trace, too."""
    reshape = RESHAPES[how]

    def f(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = y if of == "argument" else y * 2
        d = y.detach() if of == "detached" else y.data
        reshape(d)
        return x * y, d + 1, y.sum(0)

    def use(f: object) -> list[torch.Tensor]:
        x = torch.arange(6.0).view(1, 6).requires_grad_()
        y = torch.arange(6.0).view(1, 6) + 1
        outputs = f(x, y)  # type: ignore[operator]
        outputs[0].sum().backward()
        assert x.grad is not None
        return [*outputs, x.grad, y]

    compiled = framejit.compile(f, backend=backend)
    for _ in range(3):
        for a, b in zip(use(f), use(compiled), strict=True):
            assert a.shape == b.shape
            assert torch.equal(a, b)
    # Nobody else pays for it.
    framejit.compile(lambda x: (x * x).sum().sin(), fullgraph=True)(torch.ones(3))
