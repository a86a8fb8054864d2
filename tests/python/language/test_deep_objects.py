"""Whatever is too deep for the native stack breaks or raises what eager raises."""

import pathlib
import sys
import threading

import pytest
import torch

import framejit
from child_process import run_python

HERE = pathlib.Path(__file__).resolve().parent


def run_program(*arguments: str, timeout: int = 120) -> None:
    done = run_python(
        *arguments, timeout=timeout, environment={"FRAMEJIT_STRICT": None}
    )
    assert done.returncode == 0, (
        f"{done.returncode}: {done.stdout[-400:]} {done.stderr[-400:]}"
    )


def test_every_kind_and_operation_on_shallow_and_cyclic_objects():
    run_program(str(HERE / "deep_objects.py"), "8192", "3", "0", "1")


def test_objects_deeper_than_the_stack_of_the_thread():
    run_program(str(HERE / "deep_objects.py"), "1024", "3000", "0", "67")


def on_thread(stack_kb, body):
    failures = []

    def work():
        try:
            body()
        except BaseException as error:
            failures.append(error)

    old = threading.stack_size(stack_kb * 1024)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    finally:
        threading.stack_size(old)
    if failures:
        raise failures[0]


def nested_helpers(count):
    source = "def f0(x): return x + 1\n"
    for i in range(1, count):
        source += f"def f{i}(x): return f{i - 1}(x)\n"
    namespace: dict = {}
    exec(source, namespace)
    return namespace[f"f{count - 1}"]


def run_nested_helpers(stack_kb, count):
    helper = nested_helpers(count)
    compiled = framejit.compile(helper, backend="aot_eager")
    x = torch.ones(2)

    def work():
        for _ in range(2):
            assert torch.equal(compiled(x), helper(x))

    on_thread(stack_kb, work)


def run_what_the_main_thread_compiled(stack_kb):
    class Box:
        pass

    def chain(depth):
        box = None
        for i in range(depth):
            outer = Box()
            outer.inner, outer.t = box, torch.full((2,), float(i))
            box = outer
        return box

    def f(box, s, x):
        while box is not None:
            x = x + box.t
            box = box.inner
        for _ in range(300):
            s = s * 0.5 + 0.25
        return x * s

    compiled = framejit.compile(f, backend="eager", dynamic=True)
    box, x = chain(100), torch.ones(2)
    expected = f(box, 0.75, x)
    assert torch.equal(compiled(box, 0.75, x), expected)
    on_thread(
        stack_kb, lambda: torch.testing.assert_close(compiled(box, 0.75, x), expected)
    )


# In processes of their own: a small stack is for these programs, not for the
# garbage of other tests, which is collected on whatever thread comes by.
SMALL_STACK_PROGRAMS = {
    "nested_helpers": "for kb in (64, 128, 256, 8192, 65536):\n"
    "    for count in (20, 60, 300): t.run_nested_helpers(kb, count)",
    "recursion": "t.run_a_recursion_deeper_than_the_native_stack()",
    "entries": "for kb in (64, 128, 256): t.run_what_the_main_thread_compiled(kb)",
}


@pytest.mark.parametrize("name", SMALL_STACK_PROGRAMS)
def test_stacks_of_all_sizes(name):
    load = (
        f"import sys; sys.path.insert(0, {str(HERE)!r}); import test_deep_objects as t"
    )
    run_program("-c", f"{load}\n{SMALL_STACK_PROGRAMS[name]}")


def test_recursion_errors_come_at_the_depth_of_eager():
    def depth(n, x):
        try:
            return depth(n + 1, x)
        except RecursionError:
            return n

    expected = depth(0, torch.ones(1))
    compiled = framejit.compile(depth, backend="eager")
    for _ in range(3):
        assert abs(compiled(0, torch.ones(1)) - expected) <= 2


# Beneath another compiler's hook (torch.compile leaves it) calls nest natively,
# and end in RecursionError.
def run_a_recursion_deeper_than_the_native_stack():
    def down(n, x):
        return x if n == 0 else down(n - 1, x) + 1

    compiled = framejit.compile(down, backend="eager")
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(30_000)
    try:
        for n in (50, 3000, 20_000):
            assert compiled(n, torch.zeros(1)).item() == n
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("count", [100, 2000])
def test_expressions_of_any_depth(count):
    def number(s, x):
        for _ in range(count):
            s = s * 1.0001 + 0.5
        return x * s

    def shared(s, x):
        for _ in range(60):
            s = s * s * 0.5 + s * 0.1
        return x * s

    def integer(n, x):
        for i in range(count):
            n = n // 2 + i
        return x + n

    for function, values in (
        (number, (1.5, 2.5)),
        (shared, (0.5, 0.25)),
        (integer, (5, 7)),
    ):
        compiled = framejit.compile(function, backend="eager", dynamic=True)
        for value in values:
            assert torch.equal(
                compiled(value, torch.ones(2)), function(value, torch.ones(2))
            )


def test_linked_objects_of_any_length():
    class Link:
        pass

    def total(link):
        s = torch.zeros(1)
        while link is not None:
            s = s + link.t
            link = link.next
        return s

    compiled = framejit.compile(total, backend="eager")
    for length in (100, 400, 1000):
        links, link = [], None
        for _ in range(length):
            made = Link()
            made.next, made.t = link, torch.ones(1)
            links.append(link := made)
        for _ in range(2):
            assert compiled(link).item() == length
        for made in links:
            made.next = None


def test_a_chain_of_exceptions():
    def f(x, n):
        last = None
        for i in range(n):
            error = ValueError(i)
            error.__context__ = last
            last = error
        return x + 1, last

    compiled = framejit.compile(f, backend="eager")
    _, error = compiled(torch.ones(1), 20_000)
    count = 0
    while error is not None:
        error, count = error.__context__, count + 1
    assert count == 20_000


@pytest.mark.parametrize("backend", ["eager", "native"])
def test_a_long_chain_of_operators(backend):
    def f(x):
        for i in range(1000):
            x = x.sin() if i % 2 else x.cumsum(0)
        return x

    x = torch.ones(2, requires_grad=True)
    result = framejit.compile(f, backend=backend)(x)
    torch.testing.assert_close(result, f(x))
    result.sum().backward()


@pytest.mark.parametrize("stack", [1024, 2048])
def test_paths_into_deep_objects_are_no_recursion(stack):
    """Each int of them is a path, which is a text where ints have changed."""
    framejit.reset()

    def f(x, nested):
        try:
            return x * len(str(nested))
        except RecursionError:
            return x + 1

    compiled = framejit.compile(f, backend="eager")
    x = torch.ones(2)

    def body():
        for last in (1, 2, 3):
            nested = [last]
            for i in range(3000):
                nested = [i + last, nested]
            assert torch.equal(compiled(x, nested), f(x, nested))

    on_thread(stack, body)
