"""Exceptions: caught inside, leaving the function, raised by operations.

PYTEST_DONT_REWRITE: asserts are programs under test here.
"""

import contextlib

import pytest
import torch

import framejit
from differential import BACKENDS, leaf, one, program, two


class Custom(Exception):
    def __init__(self, code, text="custom"):
        super().__init__(text, code)
        self.code = code


class Derived(Custom):
    pass


def fail(error):
    raise error


def check_positive(n):
    if n < 0:
        raise ValueError(f"negative: {n}")
    return n


@program(one)
def test_caught(x):
    try:
        raise ValueError("no")
    except ValueError as error:
        x = x + len(str(error))
    return x


@program(one)
def test_caught_from_callee(x):
    try:
        check_positive(-3)
    except (TypeError, ValueError) as error:
        return x * 2, error.args


@program(one, graphs=None, breaks=None)
def test_custom_exception(x):
    try:
        fail(Derived(7))
    except Custom as error:
        return x * error.code, type(error).__name__, str(error)


@program(one)
def test_wrong_handler_skipped(x):
    try:
        try:
            fail(KeyError("k"))
        except ValueError:
            x = x * 100
    except LookupError as error:
        return x + 1, repr(error)


@program(one)
def test_else_and_finally(x):
    log = []
    for n in (1, -1):
        try:
            check_positive(n)
        except ValueError:
            log.append("except")
        else:
            log.append("else")
        finally:
            log.append("finally")
    return x + 1, log


@program(one)
def test_return_in_finally(x):
    def f():
        try:
            fail(ValueError("lost"))
        finally:
            return 5

    def g():
        for i in range(3):
            try:
                continue
            finally:
                if i == 1:
                    break
        return i

    return x * f() + g()


@program(one)
def test_reraise(x):
    log = []
    try:
        try:
            fail(ValueError("inner"))
        except ValueError:
            log.append("seen")
            raise
    except ValueError as error:
        return x + 1, log, str(error)


@program(one)
def test_raise_from(x):
    try:
        try:
            fail(KeyError("k"))
        except KeyError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        return x + 1, repr(error.__cause__), repr(error.__context__)


@program(one)
def test_exception_name_is_unbound(x):
    try:
        fail(ValueError("v"))
    except ValueError as error:
        pass
    try:
        error
    except UnboundLocalError:
        return x + 1


@program(lambda: ({"a": 1}, [1], torch.randn(3)))
def test_python_errors_caught(d, xs, x):
    caught = []
    for f in (
        lambda: d["z"],
        lambda: xs[5],
        lambda: 1 // 0,
        lambda: None.foo,
        lambda: int("q"),
        lambda: 1 + "a",
        lambda: len(3),
    ):
        try:
            f()
        except (
            KeyError,
            IndexError,
            ZeroDivisionError,
            AttributeError,
            ValueError,
            TypeError,
        ) as error:
            caught.append((type(error).__name__, str(error)))
    return x + len(caught), caught


@program(one)
def test_stop_iteration(x):
    it = iter([1])
    next(it)
    try:
        next(it)
    except StopIteration as stop:
        return x + 1, stop.value


class Swallow:
    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.kind = kind.__name__
        return True


@program(one)
def test_suppress_and_context_managers(x):
    s = Swallow()
    with s:
        fail(ValueError("swallowed"))
    with contextlib.suppress(KeyError):
        fail(KeyError("k"))
    return x + 1, s.kind


@program(leaf, graphs=None, breaks=None)
def test_escapes(x):
    y = x + 1
    raise Custom(3, "out")


@program(leaf, graphs=None, breaks=None)
def test_escapes_from_callee(x):
    return x * check_positive(-1)


@program(lambda: (torch.randn(3), {}), graphs=None, breaks=None)
def test_effects_before_escape(x, d):
    d["before"] = x * 2
    x.add_(1)
    try:
        d["z"]
    finally:
        d["after"] = x


@program(lambda: (torch.randn(3), {}), graphs=None, breaks=None)
def test_python_error_escapes(x, d):
    y = x * 2
    return y + d["missing"]


@program(one, graphs=None, breaks=None)
def test_attribute_error_escapes(x):
    return x.no_such_method()


@program(one, graphs=None, breaks=None)
def test_torch_attribute_error(x):
    return torch.no_such_function(x)


BAD = {
    "matmul": lambda x, y: x @ y,
    "add": lambda x, y: x + y[:, :3],
    "view": lambda x, y: x.view(5, 5),
    "reshape": lambda x, y: x.reshape(-1, 7),
    "cat": lambda x, y: torch.cat([x, y[:, :2]]),
    "stack": lambda x, y: torch.stack([x, y[0]]),
    "index": lambda x, y: x[7],
    "index tensor": lambda x, y: x[torch.tensor([0, 9])],
    "too many indices": lambda x, y: x[0, 0, 0],
    "dim": lambda x, y: x.sum(5),
    "dtype": lambda x, y: torch.add(x, "s"),
    "argument": lambda x, y: torch.sin(x, y, 3),
    "keyword": lambda x, y: x.sum(nonsense=1),
    "missing": lambda x, y: torch.matmul(x),
    "unpack": lambda x, y: [a for a, b in [x]],
    "squeeze": lambda x, y: x.permute(0, 0),
    "expand": lambda x, y: x.expand(2, 2),
    "shift float": lambda x, y: x << 1,
    "bitwise float": lambda x, y: x & y,
    "in-place promotion": lambda x, y: torch.arange(3).add_(1.5),
    "in-place broadcast": lambda x, y: x[0].add_(y),
    "assign": lambda x, y: x.__setitem__(0, y),
    "bool": lambda x, y: bool(x),
    "item": lambda x, y: x.item(),
    "none": lambda x, y: x + None,
    "list": lambda x, y: x + [1],
    "cholesky": lambda x, y: torch.linalg.cholesky(-torch.eye(3)) + x[:, :3],
    "cross entropy": lambda x, y: torch.nn.functional.cross_entropy(
        x, torch.tensor([0, 9, 1])
    ),
    "embedding": lambda x, y: torch.nn.functional.embedding(torch.tensor([9]), y),
    "conv": lambda x, y: torch.nn.functional.conv2d(
        x[None, None], torch.ones(1, 2, 1, 1)
    ),
    "len": lambda x, y: len(x.sum()),
    "iterate": lambda x, y: list(x.sum()),
    "constructor": lambda x, y: torch.zeros(-1) + x,
    "range": lambda x, y: torch.arange(3, 0, 1) + x,
}


@pytest.mark.parametrize("name", BAD)
def test_operation_raises(name):
    def body(x, y):
        z = x * 2
        return BAD[name](z, y)

    program(two, graphs=None, breaks=None)(body)()


@pytest.mark.parametrize("name", BAD)
def test_operation_raises_and_is_caught(name):
    def body(x, y):
        z = x * 2
        try:
            z = BAD[name](z, y)
        except (RuntimeError, TypeError, ValueError, IndexError) as error:
            return z + 1, type(error).__name__, str(error)
        return z

    program(two, graphs=None, breaks=None)(body)()


@pytest.mark.parametrize("backend", BACKENDS)
def test_traceback_names_the_users_lines(backend):
    import traceback

    def outer(x):
        y = x * 2
        return fail(ValueError("here")) + y

    compiled = framejit.compile(outer, backend=backend)
    for _ in range(2):
        with pytest.raises(ValueError) as info:
            compiled(torch.ones(2))
        names = [f.name for f in traceback.extract_tb(info.value.__traceback__)]
        assert names[-2:] == ["outer", "fail"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_works_again_after_an_error(backend):
    def f(x, n):
        y = x * 2
        if n < 0:
            raise ValueError(n)
        return y.view(n, -1)

    compiled = framejit.compile(f, backend=backend)
    x = torch.randn(12)
    for n in (3, -1, 4, 5, 6, -2, 7, 2):
        outcomes = []
        for call in (f, compiled):
            try:
                outcomes.append(call(x, n))
            except (ValueError, RuntimeError) as error:
                outcomes.append((type(error), str(error)))
        if isinstance(outcomes[0], tuple):
            assert outcomes[0] == outcomes[1]
        else:
            torch.testing.assert_close(outcomes[1], outcomes[0])


@pytest.mark.parametrize("backend", BACKENDS)
def test_context_of_caller_is_kept(backend):
    @framejit.compile(backend=backend)
    def f(x):
        try:
            raise ValueError("inner")
        except ValueError:
            pass
        return x + 1

    for _ in range(2):
        try:
            raise KeyError("outer")
        except KeyError:
            f(torch.ones(1))
            with pytest.raises(KeyError):
                raise


@program(one)
def test_error_in_generator(x):
    def numbers():
        try:
            yield 1
            raise ValueError("from generator")
        finally:
            x.shape

    try:
        for n in numbers():
            x = x + n
    except ValueError as error:
        return x, str(error)


@program(one, graphs=None, breaks=None)
def test_recursion_error(x):
    def forever(v):
        return forever(v + 1)

    try:
        forever(1)
    except RecursionError:
        return x + 1


@program(one, graphs=None, breaks=None)
def test_exception_groups(x):
    try:
        raise ExceptionGroup("g", [ValueError("a"), KeyError("b")])
    except* ValueError as group:
        x = x + len(group.exceptions)
    except* KeyError:
        x = x * 2
    return x


@program(one)
def test_assertion(x):
    try:
        assert x.ndim == 2, f"rank {x.ndim}"
    except AssertionError as error:
        return x + 1, "rank 1" in str(error)


class Properties:
    @property
    def named(self):
        return 1

    given = property(lambda self: 2)
    written = property(None, lambda self, value: None)


Properties.added = property(lambda self: 2)
Properties.alias = Properties.__dict__["named"]


@pytest.mark.parametrize("name", ["named", "given", "written", "added", "alias"])
def test_what_properties_refuse(name):
    """CPython names a property by its own name, where it has one."""

    def f(x, o):
        said = []
        for attempt in (getattr, lambda o, n: setattr(o, n, 3), delattr):
            try:
                attempt(o, name)
            except AttributeError as error:
                said.append(str(error))
        return x + 1, said

    compiled = framejit.compile(f, backend="eager")
    assert compiled(torch.ones(1), Properties())[1] == f(torch.ones(1), Properties())[1]
