"""What guards on sizes are there for, which of them are left, and what pins a size."""

import pytest
import torch

import framejit
from framejit import _report


def compiled_for(fn, *args, dynamic=True, **options):
    compiled = framejit.compile(fn, dynamic=dynamic, backend="aot_eager", **options)
    torch.testing.assert_close(compiled(*args), fn(*args))
    (entry,) = framejit.inspect(compiled)
    return compiled, entry


def of_sizes(entry):
    return [g for g in entry.guards if ".size(" in g or ".stride(" in g]


def line_of(entry, guard):
    (line,) = [text for text in entry.guard_lines() if text.startswith(guard)]
    return line


def test_a_guard_names_what_it_is_there_for():
    def f(x):
        return x[:64] + 1

    _, entry = compiled_for(f, torch.randn(40))
    assert "x.size(0) <= 64" in entry.guards
    line = line_of(entry, "x.size(0) <= 64")
    where = f"test_reasons_of_guards.py:{f.__code__.co_firstlineno + 1} in f"
    assert " because x[:64] " in line and where in line


def test_what_follows_makes_no_guard():
    def f(x):
        n = x.size(0)
        if n > 10:
            x = x + 1
        if n > 5:
            x = x * 2
        if n == 3:
            x = x * 4
        return x.view(n, 1), x[:8]

    compiled, entry = compiled_for(f, torch.randn(20))
    # Neither that it is 2 at least nor what the operators ask is left.
    assert of_sizes(entry) == ["10 < x.size(0)"]
    for n in (11, 12, 300):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), f(x))
    assert len(framejit.inspect(compiled)) == 1
    for n in (10, 4, 3):
        x = torch.randn(n)
        torch.testing.assert_close(compiled(x), f(x))
    assert len(framejit.inspect(compiled)) > 1


def test_multiples_and_products():
    def f(x):
        n, m = x.shape
        if n % 4 == 0:
            x = x.view(n // 4, 4, m).sum(1)
        if n % 2 == 0 and max(n, 2) == n:
            x = x * 2
        return x.t().contiguous() * m

    compiled, entry = compiled_for(f, torch.randn(8, 6))
    assert [g for g in of_sizes(entry) if "%" in g] == ["x.size(0)%4 == 0"]
    for sizes in ((12, 6), (40, 7), (16, 50)):
        x = torch.randn(*sizes)
        torch.testing.assert_close(compiled(x), f(x))
    assert len(framejit.inspect(compiled)) == 1
    for sizes in ((10, 6), (9, 6), (4, 6), (8, 1)):
        x = torch.randn(*sizes)
        torch.testing.assert_close(compiled(x), f(x))
    assert len(framejit.inspect(compiled)) > 1


def test_equal_sizes_take_each_others_place():
    def f(x, y):
        if x.size(0) == y.size(0) * 2 and x.size(0) % 2 == 0:
            return x[: y.size(0)] + y
        return x

    compiled, entry = compiled_for(f, torch.randn(8), torch.randn(4))
    assert not [g for g in of_sizes(entry) if "%" in g]
    for n in (5, 9, 30):
        x, y = torch.randn(2 * n), torch.randn(n)
        torch.testing.assert_close(compiled(x, y), f(x, y))
    assert len(framejit.inspect(compiled)) == 1


def test_the_operator_that_pins_a_size_is_named():
    def f(x):
        return torch.stack(x.unbind(0)[::-1])

    framejit.reset()
    _, entry = compiled_for(f, torch.randn(3, 5))
    (pin,) = entry.pins
    line = f.__code__.co_firstlineno + 1
    assert pin.startswith("x.size(0) == 3 by aten.unbind.int at ")
    assert pin.endswith(f"test_reasons_of_guards.py:{line} in f")
    assert " by aten.unbind.int at " in line_of(entry, "x.size(0) == 3")
    report = _report.text()
    assert "sizes pinned by:" in report
    assert "1  aten.unbind.int at " in report
    explained = str(framejit.explain(f)(torch.randn(3, 5)))
    assert "pinned" not in explained  # nothing is symbolic at the first size
    # What was compiled for objects that are gone is in the report as well.
    framejit.reset()
    assert "sizes pinned by:" not in _report.text()


def test_what_the_program_decides_is_no_pin():
    def f(x):
        return x * 2 if x.size(0) == 7 else x

    _, entry = compiled_for(f, torch.randn(7))
    assert entry.pins == []
    assert "x.size(0) == 7" in entry.guards


# ---- marks


def test_marks_on_parameters():
    layer = torch.nn.Linear(4, 8)
    framejit.mark_dynamic(layer.weight, 0)
    framejit.mark_dynamic(layer.bias, 0)
    compiled, entry = compiled_for(
        lambda x: layer(x) * 2, torch.randn(3, 4), dynamic=None
    )
    assert len(entry.symbols) == 1 and entry.symbols[0].endswith("weight.size(0)")
    for n in (9, 12):
        layer.weight.data = torch.randn(n, 4)
        layer.bias.data = torch.randn(n)
        x = torch.randn(3, 4)
        torch.testing.assert_close(compiled(x), layer(x) * 2)
    assert len(framejit.inspect(compiled)) == 1


def columns(n, width):
    return torch.randn(4, width)[:, :n]


def test_marks_on_strides():
    def f(x):
        return x * 2

    x = columns(3, 8)
    framejit.mark_dynamic(x, 0, stride=True)
    compiled, entry = compiled_for(f, x, dynamic=None)
    assert entry.symbols == ["x.stride(0)"]
    for width in (9, 40, 3):
        x = columns(3, width)
        assert compiled(x).stride() == f(x).stride()
        torch.testing.assert_close(compiled(x), f(x))
    assert len(framejit.inspect(compiled)) == 1


def test_a_static_stride():
    x = columns(3, 8)
    framejit.mark_static(x, 0, stride=True)
    compiled, entry = compiled_for(lambda x: x * 2, x)
    assert entry.symbols == ["x.size(0)", "x.size(1)"]
    x = columns(3, 9)
    framejit.mark_static(x, 0, stride=True)
    torch.testing.assert_close(compiled(x), x * 2)
    assert len(framejit.inspect(compiled)) == 2


def test_bounds_of_a_stride():
    x = columns(3, 8)
    framejit.mark_dynamic(x, 0, stride=True, min=4, max=16)
    compiled, entry = compiled_for(lambda x: x * 2, x, dynamic=None)
    assert "x.stride(0) <= 16" in entry.guards
    for width, entries in ((16, 1), (17, 2)):
        x = columns(3, width)
        torch.testing.assert_close(compiled(x), x * 2)
        assert len(framejit.inspect(compiled)) == entries


def test_a_marked_stride_that_is_a_number():
    x = torch.randn(4, 3)
    framejit.mark_dynamic(x, 0, stride=True)
    compiled = framejit.compile(lambda x: x * 2, fullgraph=True)
    with pytest.raises(framejit.errors.ConstraintViolationError, match="the stride is"):
        compiled(x)
