"""Runs one program compiled and plain, and compares all it can see.

Both run in namespaces of their own, call by call: results, exceptions with
their text and cause, arguments and globals afterwards, the order of effects,
aliasing, gradients, random state. `Mismatch` says what differs.

When an object goes is compared, too, but not of those that only garbage or the
frames of a traceback hold in eager. An exception keeps the frames it went
through, their locals and often itself, so what lived in them waits for the
collector or for the traceback to go, and any collection would have freed it:
nobody can rely on its living on. Compiled code has no such frames, and frees it
at once. A program in which eager has left something so that would have said
when it goes is run again in silence: all else must be equal. And one in which it
has left a history so, whose place for the gradients of a parameter is of sizes
that `.data = ` has changed since; in silence, all such is let go of before each
call.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import functools
import gc
import itertools
import linecache
import os
import re
import sys
import threading
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch._dynamo  # a handler that raises in its import leaves half a module
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import framejit

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "python"))

from fuzz.generate import CALLS, Program  # noqa: E402
from fuzz.interrupts import interrupt  # noqa: E402
from fuzz.loading import Mismatch, load, seed_all  # noqa: E402
from fuzz.picture import (  # noqa: E402
    Picture,
    compare,
    differences,
    limits_of,
    tensors_in,
)

GLOBALS = ("LOG", "G_INT", "G_STR", "G_TENSOR", "G_LIST", "G_DICT", "OBJ", "NET")
GLOBALS += ("EXC", "SHARED")
ROUNDS = 12  # of calls that another thread makes meanwhile
_BY_ITSELF = re.compile(r"\b(\w+) [-+*/]= .*\b\1\b|\b(\w+)\.\w+_\(.*\b\2\b")


# rounded: they differ, by what rounding alone makes of eager's own results.
Report = collections.namedtuple("Report", ["graphs", "breaks", "raised", "rounded"])


def _chain(error: BaseException | None) -> list[Any]:
    """The exception with what caused it."""
    found: list[Any] = []
    while error is not None and len(found) < 5:
        found.append((type(error).__name__, str(error), error.__suppress_context__))
        if error.__cause__ is not None:
            found.append("cause")
            error = error.__cause__
        else:
            error = error.__context__
    return found


def _gradients(
    result: Any, inputs: list[torch.Tensor], settings: dict[str, Any]
) -> Any:
    """Gradients of results with respect to all leaves, or the error."""
    outputs = [
        t for t in tensors_in(result) if t.requires_grad and t.dtype.is_floating_point
    ]
    leaves = [t for t in inputs if t.requires_grad and t.is_leaf]
    if not outputs or not leaves:
        return []
    way = settings.get("gradients", "sum")
    used = settings.get("used", [True])
    if way == "some":
        outputs = [t for i, t in enumerate(outputs) if used[i % len(used)]]
    elif way == "last":
        outputs = outputs[-1:]
    grad: Any = functools.partial(torch.autograd.grad, allow_unused=True)
    try:
        total = sum((t * (i + 1)).sum() for i, t in enumerate(outputs))
        if not isinstance(total, torch.Tensor):
            return []
        if way == "each":
            each = [grad(t.sum(), leaves, retain_graph=True) for t in outputs]
            return [g for grads in each for g in grads]
        if way == "batched":
            return [
                found
                for t in outputs
                for found in grad(
                    t,
                    leaves,
                    torch.stack([torch.ones_like(t), t.detach()]),
                    is_grads_batched=True,
                    retain_graph=True,
                )
            ]
        if way == "twice":
            return [*grad(total, leaves, retain_graph=True), *grad(total, leaves)]
        if way == "backward":
            total.backward()
            return [t.grad for t in leaves]
        if way not in ("double", "penalty"):
            return list(grad(total, leaves))
        first = grad(total, leaves, create_graph=True)
        penalty = sum(g.square().sum() for g in first if g is not None)
        if way == "penalty":
            (total + penalty).backward()
            return [t.grad for t in leaves]
        if not isinstance(penalty, torch.Tensor) or not penalty.requires_grad:
            # Nothing leads to a leaf. (Eager's may say that it requires grad all
            # the same: a view that is saved, of a leaf that requires grad since.)
            return [*first, *[None] * len(leaves)]
        return [*first, *grad(penalty, leaves)]
    except Exception as error:  # hooks of the program's may make anything
        if "stack" in settings:
            # Nodes are run by their numbers, and each thread counts its own: what
            # was stored before the one that fails is nobody's promise.
            for tensor in tensors_in([result, inputs]):
                with contextlib.suppress(RuntimeError):  # of inference
                    tensor.grad = None
        return str(error)


@dataclasses.dataclass
class Outcome:
    """Everything one call did."""

    error: BaseException | None
    picture: Picture | None
    grads: Any
    rng: torch.Tensor
    written_unseen: bool = False  # an input, and autograd did not count it
    arguments: tuple[weakref.ref[torch.Tensor], ...] = ()
    ends_with_error: bool = False  # something said so that it went with it


def _call(names: dict[str, Any], fn: Any, call: int, args: Any) -> Any:
    """[result, error] of one call, on the thread that the program wants."""
    answer: list[Any] = []

    def body() -> None:
        try:
            with names["around"](call):
                answer[:] = fn(*args), None
        except Exception as raised:
            answer[:] = None, raised

    size = names["SETTINGS"].get("stack", [0])
    size = size[call % len(size)]
    if size:
        threading.stack_size(size * 1024)
        thread = threading.Thread(target=body)
        thread.start()
        threading.stack_size(0)
        thread.join()
    else:
        body()
    try:
        return tuple(answer)
    finally:
        answer.clear()  # the error's traceback holds this list


def _let_go(error: BaseException | None) -> None:
    """Without tracebacks nothing is held in a cycle of frames."""
    while error is not None and error.__traceback__ is not None:
        error.__traceback__ = None
        error = error.__context__


def _has_history(tensor: torch.Tensor) -> bool:
    try:
        return tensor.grad_fn is not None
    except RuntimeError:  # a view that refuses every look at it has one
        return True


def _outcome(names: dict[str, Any], fn: Any, call: int) -> Outcome:
    seed_all(50 + call)
    try:
        args = names["make_args"](call)
    except Exception as failed:  # what `between` did
        return Outcome(failed, None, "make_args", torch.get_rng_state())
    seed_all(80 + call)
    settings = names["SETTINGS"]
    inputs = [*tensors_in(args), *names["NET"].parameters()]
    before = [
        (t, t._version, t.detach().clone()) for t in inputs if not t.is_inference()
    ]
    grad = torch.is_grad_enabled()
    enabled, threshold = gc.isenabled(), gc.get_threshold()
    if "gc" in settings:
        gc.set_threshold(settings["gc"])
        gc.enable()
    try:
        result, error = _call(names, fn, call, args)
    finally:
        gc.set_threshold(*threshold)
        (gc.enable if enabled else gc.disable)()
    rng = torch.get_rng_state()
    if torch.is_grad_enabled() != grad:
        torch.set_grad_enabled(grad)
        raise Mismatch("the grad mode is not what it was before")
    try:
        for tensor in tensors_in((result, args)):
            tensor.is_leaf  # noqa: B018
    except RuntimeError as unreadable:
        # Written to across grad modes: autograd says so on every look at it.
        return Outcome(error, None, str(unreadable), rng)
    if settings.get("late"):
        for tensor in inputs:
            with contextlib.suppress(RuntimeError):  # of integers, inference tensors
                tensor.requires_grad_()
    grads = _gradients(result, inputs, settings)
    unseen = any(
        t._version == version
        and not torch.allclose(t.detach(), old, rtol=0, atol=0, equal_nan=True)
        for t, version, old in before
        if t.shape == old.shape and t.dtype == old.dtype
    )
    state = {n: names[n] for n in GLOBALS}
    # A graph has one node: what is left of it keeps all that it needs.
    left = any(map(_has_history, tensors_in(list(state.values()))))
    state["printed"] = names["OUT"].getvalue()
    state["args"] = args
    state["defaults"] = names["f"].__defaults__
    left |= isinstance(grads, str)  # the engine lets go later
    lives = () if left else tuple(weakref.ref(t) for t in tensors_in(args))
    try:
        picture = Picture([result, state, error])
        outcome = Outcome(error, picture, grads, rng, unseen, lives)
    finally:
        said = len(names["LOG"])
        _let_go(error)
    outcome.ends_with_error = len(names["LOG"]) != said
    return outcome


def _check_lives(expected: Any, actual: Any) -> None:
    """No argument outlives the call, its result and its history but in eager, too."""
    for number, (plain, compiled) in enumerate(zip(expected, actual)):
        if plain() is not None or compiled() is None:
            continue
        gc.collect()
        if compiled() is not None:
            raise Mismatch(f"tensor {number} of the arguments is still alive")


def _change(names: dict[str, Any], call: int) -> str:
    """What the caller does between two calls may fail, in both alike."""
    try:
        names["between"](call)
    except Exception as error:
        return repr(error)
    return ""


def _limits(backend: str, source: str) -> dict[str, float]:
    if backend == "eager":
        return {"rtol": 0.0, "atol": 0.0}
    if "float16" in source:  # behind a cast back the rounding is still there
        return {"rtol": 1e-2, "atol": 1e-3}
    # Random programs multiply what rounding changes.
    return {"rtol": 1e-3, "atol": 1e-4}


# A result that repeats elements (expand) was written to: eager's history writes
# the gradient in the same way. docs/architecture.md names it.
_REPEATS = "more than one element of the written-to tensor"


def _refuses_to_detach(outcome: Outcome, log: list[Any]) -> bool:
    try:
        return "Can't detach views" in f"{outcome.error} {log}"
    except ValueError:  # an int with more digits than Python writes
        return False


def _was_refused(outcome: Outcome) -> bool:
    """Its backward found something written to that it needs."""
    return "modified by an inplace" in str(outcome.grads)[:200]


def _frees_half(expected: Outcome, actual: Outcome, settings: dict[str, Any]) -> bool:
    """A backward over nodes of several threads failed, in both.

    By their numbers, which each thread counts for itself, eager ran some of the
    call's; a graph frees what it saved at once. docs/architecture.md names it.
    """
    failed = isinstance(expected.grads, str) and isinstance(actual.grads, str)
    return failed and "stack" in settings


def _compare(
    expected: Outcome,
    actual: Outcome,
    limits: dict[str, float],
    settings: dict[str, Any],
) -> None:
    a, b = _chain(expected.error), _chain(actual.error)
    if a != b:
        raise Mismatch(f"eager raised {a}, compiled raised {b}")
    exact = not limits["rtol"]
    again = settings.get("gradients") in ("double", "penalty", "batched")
    if not exact and again and _was_refused(actual):
        return  # once; docs/architecture.md names it. No gradient was stored.
    if (expected.picture is None) != (actual.picture is None):
        raise Mismatch(f"unreadable: {expected.grads} against {actual.grads}")
    if expected.picture is not None and actual.picture is not None:
        compare(expected.picture, actual.picture, limits)
    if not torch.equal(expected.rng, actual.rng):
        raise Mismatch("random number state differs")
    if not exact and _was_refused(expected) and _was_refused(actual):
        return  # an input's part may be named by the input's shape
    if not exact and (expected.written_unseen or settings.get("data")):
        return
    if not exact and _REPEATS in str(expected.grads)[:200]:
        return
    if type(expected.grads) is not type(actual.grads):
        raise Mismatch(f"gradients: {expected.grads} against {actual.grads}")
    if not isinstance(expected.grads, str):
        for i, (x, y) in enumerate(zip(expected.grads, actual.grads, strict=True)):
            # Strides of gradients are the backend's own.
            if (x is None) != (y is None):
                raise Mismatch(f"gradients: number {i}: {x} against {y}")
            if x is not None:
                torch.testing.assert_close(
                    x,
                    y,
                    equal_nan=True,
                    msg=lambda m, i=i: f"gradients: number {i}: {m}",
                    **limits_of(x, limits),
                )


def _meanwhile(
    code: types.CodeType, backend: str, stop: threading.Event
) -> Callable[[], None]:
    """Calls it again and again, in namespaces of its own.

    A new one after some calls: numbers that a program multiplies by themselves
    would get so long that nobody else had a turn. All made here, for random
    numbers are drawn by one thread.
    """

    def fresh() -> list[Callable[[], Any]]:
        names = load(code)
        fn = framejit.compile(names["f"], backend=backend)
        every = []
        for call in range(CALLS):
            with contextlib.suppress(Exception):  # it asks for what is not there
                every.append(names["make_args"](call))
        return [functools.partial(fn, *args) for args in every]

    rounds = [fresh() for _ in range(ROUNDS)]

    def body() -> None:
        for call in itertools.chain.from_iterable(rounds):
            if stop.is_set():
                return
            with contextlib.suppress(Exception):
                call()

    return body


def settle() -> None:
    """Once a process: collections need not look through what is torch's."""
    gc.collect()
    gc.freeze()


@contextlib.contextmanager
def _no_collector() -> Iterator[None]:
    """When it comes is nobody's promise; a program that wants it says so."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _sizes_of_gradients(names: dict[str, Any]) -> list[Any]:
    """Sizes of what comes to the parameters as their gradients."""
    edges = [
        torch.autograd.graph.get_gradient_edge(p)
        for p in names["NET"].parameters()
        if p.requires_grad and not p.is_inference()
    ]
    return [edge.node._input_metadata[edge.output_nr].shape for edge in edges]


def _free_garbage() -> None:
    """And what the frames of tracebacks hold."""
    for found in gc.get_objects():
        if type(found) is types.TracebackType:  # asks nobody for a __class__
            frame: types.FrameType | None = found.tb_frame
            while frame is not None:
                with contextlib.suppress(RuntimeError):  # it runs
                    frame.clear()
                frame = frame.f_back
    gc.collect()


def _frees_what_matters(names: dict[str, Any]) -> bool:
    """Did only such keep something silent, or an old place in a history?"""
    before = len(names["LOG"]), _sizes_of_gradients(names)
    _free_garbage()
    return before != (len(names["LOG"]), _sizes_of_gradients(names))


def run(
    source: str,
    backend: str = "eager",
    calls: int = CALLS,
    name: str = "",
) -> Any:
    """Raises Mismatch, or whatever a bug inside FrameJIT raises.

    Kernels have functions of their own (exp, sin), which may differ from eager's
    in the last place; that is tested elsewhere, for each of them. A program that
    multiplies such a difference (the sine of an exponential of an exponential)
    must be equal with eager's functions. The order of a sum is the kernel's own
    as well: where eager's results, too, are others once the arguments differ in
    their last places, nothing can be said. Nor where the program asked whether such
    a result is above 0 or equal to another (the sum of what was normalised): then
    eager, too, finds something else at that place.
    """
    try:
        return _run(source, backend, calls, name)
    except Mismatch as differs:
        if backend != "native":
            raise
        if "not close" not in str(differs):
            place = _place_of(str(differs))
            if place and _multiplies_rounding(source, calls, name, place):
                return Report(0, [], 0, True)
            raise
        try:
            return _run(source, backend, calls, name, precise=True)
        except Mismatch:
            if _multiplies_rounding(source, calls, name):
                return Report(0, [], 0, True)
            raise differs from None


# "native, call 2: 1.LOG.5.1: 1 != 0": the call, and where in the picture.
_PLACE = re.compile(r"call \d+: [0-2]\S*: (?=.* != )")


def _place_of(differs: str) -> str:
    """Where two values differ that are no tensors; empty: it is more than that."""
    found = _PLACE.search(differs)
    return found[0] if found else ""


def _multiplies_rounding(source: str, calls: int, name: str, place: str = "") -> bool:
    """Does eager differ from itself where its arguments differ by some millionths?

    Or where each operator computes in float64 and rounds its result once: numbers
    of bfloat16 cannot be nudged.

    By factors that are the same everywhere, or drawn for each element: the
    deviation of numbers that are nearly equal feels the second alone, and what
    compares elements the first alone. By several: whether the deviation of equal
    numbers is 0 is a matter of luck.

    place: there, if one is given.
    """
    code = compile(source, f"<fuzz {name}>", "exec")

    def found() -> Iterator[str]:
        for amount in (1e-6, -1e-6, 2e-6, 3e-6):
            for each in (False, True):
                yield _differs_nudged(code, source, calls, each, amount)
        yield _differs_exact(code, source, calls)

    return any(differs and place in differs for differs in found())


def _places(tensor: torch.Tensor) -> torch.Tensor:
    """One element for all that expanding made of it."""
    if tensor.layout != torch.strided:
        return tensor
    for dim, (size, stride) in enumerate(
        zip(tensor.shape, tensor.stride(), strict=True)
    ):
        if stride == 0 and size > 1:
            tensor = tensor.narrow(dim, 0, 1)
    return tensor


def _differs_nudged(
    code: types.CodeType, source: str, calls: int, each_element: bool, amount: float
) -> str:
    names, nudged = load(code), load(code)
    make_args = nudged["make_args"]
    generator = torch.Generator().manual_seed(1)

    def make_nudged(call: int) -> Any:
        args = make_args(call)
        for tensor in tensors_in(args):
            if tensor.dtype in (torch.float32, torch.float64):
                places = _places(tensor.data)
                signs: Any = 1
                if each_element:
                    signs = torch.randn(places.shape, generator=generator).sign()
                with contextlib.suppress(RuntimeError):  # they overlap all the same
                    places.mul_(1 + amount * signs)
        return args

    nudged["make_args"] = make_nudged
    return _differ(names, nudged, source, calls)


class _Exact(TorchDispatchMode):
    """Operators compute in float64 and round their result once."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        schema = func._schema
        is_view = not schema.is_mutable and any(r.alias_info for r in schema.returns)
        if is_view or torch.Tag.nondeterministic_seeded in func.tags:
            return func(*args, **kwargs)

        def wider(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            value = value.double() if value.is_floating_point() else value
            return value.clone() if schema.is_mutable else value

        exact: Any = ()
        with contextlib.suppress(Exception):
            wide = tree_map(wider, (args, kwargs))  # as they are before a write
            exact = func(*wide[0], **wide[1])
        result = func(*args, **kwargs)
        with contextlib.suppress(Exception):
            for given, other in zip(tree_leaves(result), tree_leaves(exact)):
                if isinstance(given, torch.Tensor) and given.shape == other.shape:
                    given.copy_(other)
        return result


def _differs_exact(code: types.CodeType, source: str, calls: int) -> str:
    return _differ(load(code), load(code), source, calls, _Exact)


def _differ(
    names: dict[str, Any],
    others: dict[str, Any],
    source: str,
    calls: int,
    around_others: Callable[[], Any] = contextlib.nullcontext,
) -> str:
    """Where, a line for each; empty: they do not."""
    settings, limits = names["SETTINGS"], _limits("native", source)
    with warnings.catch_warnings(), _no_collector():
        warnings.simplefilter("ignore")
        for call in range(calls):
            for each in (names, others):
                _change(each, call)
            expected = _outcome(names, names["f"], call)
            with around_others():
                actual = _outcome(others, others["f"], call)
            try:
                _compare(expected, actual, limits, settings)
            except Exception as differs:
                # What else a mode changes is not of the numbers.
                if around_others is _Exact and "not close" not in str(differs):
                    return ""
                lines = [str(differs)]
                if expected.picture and actual.picture:
                    lines += differences(expected.picture, actual.picture, limits)
                return "\n".join(f"call {call}: {line}" for line in lines)
    return ""


def _run(
    source: str,
    backend: str,
    calls: int,
    name: str,
    silent: bool = False,
    precise: bool = False,
) -> Any:
    filename = f"<fuzz {name}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    stop, threads = threading.Event(), []
    with warnings.catch_warnings(), _no_collector():
        warnings.simplefilter("ignore")
        code = compile(source, filename, "exec")
        eager, compiled = load(code, silent), load(code, silent)
        settings = dict(eager["SETTINGS"])
        # Writes that autograd does not count, to what it may have saved.
        body = source[source.find("def f(") :]
        settings["data"] = ".data\n" in body or ".data." in body
        # A parameter may share memory with an argument, unseen as well.
        if settings["data"] or ".data = " in source:
            settings["gradients"] = "sum"  # stores none
        eager["SETTINGS"] = compiled["SETTINGS"] = settings
        framejit.reset()
        for delay in settings.get("signals", ()):
            interrupt(code, backend, delay)
        for _ in range(settings.get("threads", 0)):
            body = _meanwhile(code, backend, stop)
            threads.append(threading.Thread(target=body, daemon=True))
        options = {"precise_math": True} if precise else None
        limits = _limits(backend, source)
        fn = framejit.compile(compiled["f"], backend=backend, options=options)
        raised, differs, half_freed = 0, "", False
        try:
            for thread in threads:
                thread.start()
            for call in range(calls):
                if silent:
                    _free_garbage()
                changed = [_change(names, call) for names in (eager, compiled)]
                if changed[0] != changed[1]:
                    raise Mismatch(f"{backend}, between: {changed}")
                expected = _outcome(eager, eager["f"], call)
                actual = _outcome(compiled, fn, call)
                raised += expected.error is not None
                if _refuses_to_detach(expected, eager["LOG"]):
                    break  # an output of a graph is no view of what was inside
                differs = ""
                try:
                    _compare(expected, actual, limits, settings)
                except Exception as error:
                    differs = f"{backend}, call {call}: {error}"
                    if half_freed and "a second time" in differs:
                        differs = ""  # it has what another call saved
                        break
                half_freed |= _frees_half(expected, actual, settings)
                lives = expected.arguments, actual.arguments
                # Gradients that eager has stored, and a limit kept away.
                apart = _was_refused(actual) and not _was_refused(expected)
                apart |= backend != "eager" and _REPEATS in str(expected.grads)
                ends = expected.ends_with_error
                del expected, actual
                if not differs and apart:
                    break
                if not differs:
                    # (What `y *= y` saves is in y's own history, for good. A
                    # graph may save another part of it than eager does.)
                    if not settings.get("threads") and not _BY_ITSELF.search(source):
                        _check_lives(*lives)
                    continue
                if silent or not (ends or _frees_what_matters(eager)):
                    raise Mismatch(differs)
                break
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    if differs:
        return _run(source, backend, calls, name, True, precise)
    entries = [e for entry in framejit.inspect(fn) for e in entry.walk()]
    breaks = [b for e in entries for b in e.breaks]
    return Report(sum(1 for e in entries if e.operations), breaks, raised, False)


def backends_of(seed: int) -> list[str]:
    """Native, and for some programs the others, too."""
    found = ["native"]
    if seed % 4 == 0:
        found.append("eager")
    if seed % 8 == 3:
        found.append("aot_eager")
    return found


def run_program(program: Program) -> list[Any]:
    return [
        run(program.source, backend, name=str(program.seed))
        for backend in backends_of(program.seed)
    ]


os.environ.setdefault("FRAMEJIT_STRICT", "1")
torch.set_num_threads(1)
