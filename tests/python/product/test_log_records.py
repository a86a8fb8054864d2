"""What each record says first, and in whose words: the function, the number of its
entry, the level; names of the program for inputs, variables and constants."""

from __future__ import annotations

import re

import torch

import framejit


def step(x, weight):
    y = (x * 2).cos() + weight
    return (y @ y).sum()


def named(function) -> str:
    return f"{function.__qualname__} ({__file__}:{function.__code__.co_firstlineno})"


def test_every_record_names_function_entry_and_level(machine_kernels, records):
    said = records("guards,graphs,loops,schedule,kernels")
    compiled = framejit.compile(step, dynamic=False)
    for size in (3, 4):
        weight = torch.randn(size, size, requires_grad=True)
        compiled(torch.randn(size, size), weight).backward()
    of = [f"{named(step)}, entry {number}" for number in (0, 1)]
    assert said.first_lines("guards") == [f"guards of {one}" for one in of]
    graphs = said.first_lines("graphs")
    assert [re.sub(r" \(capture .*\)", "", line) for line in graphs] == [
        f"graph of {one}, {level}"
        for one in of
        for level in ("torch level", "joint", "forward", "backward")
    ]
    for channel, what in [("loops", "loops"), ("schedule", "schedule")]:
        lines = said.first_lines(channel)
        assert [line.split(":", 2)[:2] for line in lines] == [
            f"{what} of {one}, {level}".split(":", 2)[:2]
            for one in of
            for level in ("forward", "backward")
        ]
    kernels = said.first_lines("kernels")
    for one in of:
        for level in ("forward", "backward"):
            assert any(
                re.fullmatch(rf"fj::kernel \w+_\d+ of {re.escape(one)}, {level}", line)
                for line in kernels
            ), (one, level, kernels)


def test_loops_schedule_and_machine_code_are_three_channels(machine_kernels, records):
    said = records("loops,schedule,kernels")
    compiled = framejit.compile(step)
    compiled(torch.randn(3, 3), torch.randn(3, 3))
    (loops,) = said.texts["loops"]
    (schedule,) = said.texts["schedule"]
    assert "nodes; calls of ATen:" in loops and "aten.mm.default" in loops
    assert re.search(r"^\s*%\w+.*cos", loops, re.M)
    assert re.search(r"^kernel", schedule, re.M)
    (entry,) = framejit.inspect(compiled)
    assert schedule.endswith(entry.kernels[0])
    assert len(said.texts["kernels"]) == len(set(said.first_lines("kernels"))) >= 2
    for text in said.texts["kernels"]:
        assert re.search(r"\b(vmovups|vaddps|vmulps|vmovss)\b", text)


def test_what_is_off_is_not_made(machine_kernels, records):
    said = records("recompiles")
    framejit.compile(step)(torch.randn(3, 3), torch.randn(3, 3))
    assert said.texts == {}


def test_inputs_have_the_names_of_the_program(records):
    said = records("graphs")

    def by_name(first, *, scale):
        return first * scale

    framejit.compile(by_name)(torch.randn(3), scale=torch.randn(3))
    head = said.texts["graphs"][0].splitlines()[1]
    assert re.findall(r'"(.*?)"', head) == ["first", "scale"]


def test_entries_keep_their_numbers(records):
    said = records("recompiles")
    compiled = framejit.compile(step, dynamic=False)
    for size in (3, 4, 5):
        compiled(torch.randn(size, size), torch.randn(size, size))
    numbers = [
        re.findall(r"entry (\d+):", text)[0] for text in said.texts["recompiles"]
    ]
    assert sorted(numbers) == ["0", "0", "1"]
    got = {"3": "0", "4": "1"}
    for text, number in zip(said.texts["recompiles"], numbers):
        expected = re.search(r"expected (\d)", text)
        assert expected and got[expected[1]] == number, text
    assert [entry.number for entry in framejit.inspect(compiled)] == [2, 1, 0]


def breaks(x, flag=True):
    total = x.sum()
    if total > 1234567:
        return x.cos()
    return x.sin() + total


def test_bytecode_has_names_constants_and_the_resume_functions(records):
    said = records("bytecode")
    framejit.compile(breaks)(torch.randn(3))
    head = f"{named(breaks)}, entry 0"
    assert said.first_lines("bytecode")[:3] == [
        f"residual code of {head}",
        f"resume code 0 of {head}",
        f"resume code 1 of {head}",
    ]
    _, *resumes = said.texts["bytecode"][:3]
    text = "\n".join(resumes)
    assert re.search(r"LOAD_(FAST|FAST_CHECK|FAST_LOAD_FAST) .*\bx\b", text)
    assert re.search(r"LOAD_(METHOD|ATTR) sin\b", text)
    assert re.search(r"LOAD_(METHOD|ATTR) cos\b", text)
    # No operand is a bare slot.
    assert not re.search(r"(LOAD_FAST|STORE_FAST|LOAD_ATTR|LOAD_METHOD) \d", text)


class Loud:
    def __repr__(self):
        raise AssertionError("a constant of the program is not asked")


def test_values_without_a_name_and_objects(records):
    said = records("bytecode")

    def holds(x, items):
        return [x.cos(), items.append(framejit.graph_break() or Loud()), x.sin() + 1]

    framejit.compile(holds)(torch.randn(3), [])
    text = "\n".join(said.texts["bytecode"])
    assert ".s0" not in text and "value 0" in text
