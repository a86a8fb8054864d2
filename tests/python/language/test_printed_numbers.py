"""Numbers that differ from call to call and are printed: no program of their own."""

from __future__ import annotations

import contextlib
import io
import sys

import pytest
import torch

import framejit


def f_string(x, i, v):
    print(f"step {i} v {v:.3f} {v!r} {v!s} {i!a} {i:>5}|{v}")


def f_string_of_an_item(x, i, v):
    print(f"step {i} loss {(x * v).sum().item():.4f} after {i}")


def f_string_of_two_items(x, i, v):
    print(f"{i}: {x.max().item():.4f} {x.min().item()} {v:.2e}", file=sys.stdout)


def arguments(x, i, v):
    print("step", i, v, sep=", ", end="!\n")


def percent(x, i, v):
    print("step %d %.3f %s %5.1f%% %r" % (i, v, i, v, v))


def percent_of_one(x, i, v):
    print("loss: %.3f" % v)
    print("loss: %.3f" % (x * v).sum().item())


def method(x, i, v):
    print("step {} {:.3f} {:>8}".format(i, v, "é"))


def method_of_an_item(x, i, v):
    print(
        "Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}".format(
            i, i * len(x), 100, 100.0 * i / 7, (x * v).sum().item()
        )
    )


def functions(x, i, v):
    print(str(v), format(v, ".2f"), str(i), format(i))


def nested(x, i, v):
    print("[%s] %s" % (f"{i:03d}", f"é{v:.1f}"))


def unicode_constants(x, i, v):
    print(f"é {i} \U0001f600 {v:.3f}")


def of_numbers_computed(x, i, v):
    print(f"{i + 1}/{i * 2 + 3} {v / 3:.3f} {-v}")


def inner(i, v):
    print(f"inner {i} {v:.3f}")


def inlined(x, i, v):
    inner(i, v)


def of_a_local_text(x, i, v):
    name = str(i)
    print(f"{name} {v}")


LATE = [
    f_string,
    f_string_of_an_item,
    f_string_of_two_items,
    arguments,
    percent,
    percent_of_one,
    method,
    method_of_an_item,
    functions,
    unicode_constants,
    of_numbers_computed,
    inlined,
]


# What has to be known, or may raise.
def used_as_well(x, i, v):
    text = f"{i}"
    print(text)
    return len(text)


def result_used(x, i, v):
    return print(f"{i}")


def wide(x, i, v):
    print(f"{i:{i % 7 + 1}d}")


def character(x, i, v):
    print(f"{i:c} %c" % i)


def integer_of_a_float(x, i, v):
    print("%d %x" % (v, i))


def refused(x, i, v):
    try:
        print(f"{v:d}")
    except ValueError as error:
        print(error)


def too_few(x, i, v):
    try:
        print("%d %d" % (i,))  # noqa: F507
    except TypeError as error:
        print(error)


def named(x, i, v):
    print("{i} {v:.2f}".format(i=i, v=v))
    print("%(i)d" % {"i": i})


def attributes(x, i, v):
    print("{0.real} {0!r:>4}".format(i))


def of_a_list(x, i, v):
    print([i, v], (i, v), {i: v})


def conditional(x, i, v):
    print(f"{i} {v if i % 2 else i}")


def in_a_try(x, i, v):
    try:
        print(f"{i} {v}")
    finally:
        x.add_(1)


def end_is_a_text(x, i, v):
    print("a", end=f"{i}\n")
    print("a", "b", sep="%s" % i)


def kept(x, i, v):
    texts = [f"{i}", "%.1f" % v]
    print(*texts)
    return texts


KNOWN = [
    used_as_well,
    result_used,
    wide,
    character,
    integer_of_a_float,
    refused,
    too_few,
    named,
    attributes,
    of_a_list,
    conditional,
    in_a_try,
    end_is_a_text,
    kept,
    nested,
    of_a_local_text,
]
NUMBERS = [
    (0, 0.0),
    (1, 0.25),
    (2, -1.5),
    (3, 1e300),
    (-4, float("inf")),
    (2**40, float("nan")),
    (66, -0.0),
    (7, 1 / 3),
    (8, 5e-324),
    (9, 2.5),
    (100, 100.0),
    (1000, 0.1),
]


def outcome(call, x, i, v):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            result = call(x, i, v)
        except Exception as error:
            result = type(error), str(error)
    return str(result), out.getvalue(), x.tolist()


def program(body):
    def call(x, i, v):
        y = x * 2
        made = body(x, i, v)
        return y + 1, made

    return call


@pytest.mark.parametrize("dynamic", [None, True, False])
@pytest.mark.parametrize("body", LATE + KNOWN, ids=lambda body: body.__name__)
def test_what_is_printed(body, dynamic):
    call = program(body)
    compiled = framejit.compile(call, dynamic=dynamic)
    for i, v in NUMBERS:
        x = torch.ones(3) + (i % 5)
        assert outcome(compiled, x.clone(), i, v) == outcome(call, x.clone(), i, v)


@pytest.mark.parametrize("body", LATE, ids=lambda body: body.__name__)
def test_no_program_for_each_number(body):
    compiled = framejit.compile(program(body))
    for i, v in NUMBERS[:4]:
        outcome(compiled, torch.ones(3) + i, i, v)
    before = framejit.counters()["compiles"]
    for i, v in [(10, 0.5), (11, 0.625), (12, 7.5)]:
        outcome(compiled, torch.ones(3) + i, i, v)
    assert framejit.counters()["compiles"] == before


def test_a_stream_that_refuses_characters():
    """A text from the middle of an f-string: its characters are guarded."""

    def call(x, name):
        y = x * 2
        print(f"{opaque(name)} {y.sum().item()}", file=stream)
        return y

    @framejit.disable
    def opaque(name):
        return name

    compiled = framejit.compile(call)
    for name in ["a", "b", "é", "c", "\udc80", "d"]:
        results = []
        for f in (call, compiled):
            stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
            try:
                f(torch.ones(2), name)
                stream.flush()
                results.append(stream.buffer.getvalue())
            except UnicodeEncodeError as error:
                results.append(str(error))
        assert results[0] == results[1], name


def test_a_training_loop_that_prints():
    def train(model, optimizer, batches, epoch):
        for i, (x, y) in enumerate(batches):
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
            print(f"epoch {epoch} step {i} loss {loss.item():.4f}")
        print("epoch %d done" % epoch)

    def losses(call):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        batches = [(torch.randn(8, 4), torch.randn(8, 1)) for _ in range(5)]
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            for epoch in range(12):
                call(model, optimizer, batches, epoch)
        return out.getvalue()

    compiled = framejit.compile(train)
    assert losses(compiled) == losses(train)
    before = framejit.counters()["compiles"]
    assert losses(compiled) == losses(train)
    assert framejit.counters()["compiles"] <= before + 1
