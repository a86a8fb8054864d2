"""The public functions. All the work is in C++; this is the shape users know."""

from __future__ import annotations

import collections
import contextlib
import functools
import inspect as _inspect
import types
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, Protocol, TypeVar, overload

# LibTorch is loaded by torch's own import, before our extension needs it.
import torch

from framejit import _C, _arguments, _logging, _script, _tracefile
from framejit._dynamo import meet_dynamo
from framejit._explain import EntryInfo, Explanation, entry_info, why_nothing
from framejit._module import (
    compile_module,
    compiled_call_in_place,
    compiled_function_of,
    forward_code,
    original_of,
)
from framejit._weak_tables import WeakKeyTable
from framejit.errors import (
    ConstraintViolationError,
    GraphBreakError,
    RecompileError,
)

_P = ParamSpec("_P")
_F = TypeVar("_F", bound=Callable[..., Any])

_arguments.report_environment()
_C.set_error_types(GraphBreakError, RecompileError, ConstraintViolationError)
_C.install()
meet_dynamo()
_logging.start()
_tracefile.start()

# Equal options must be one object: its address is half of the code-cache key. Weak
# references without callbacks (see _weak_tables.py).
_interned_options: dict[Any, weakref.ref[_C.CompileOptions]] = {}
# What is compiled with options goes with them. A function that is compiled where it is
# called is compiled once all the same. One that is made there, too (`<locals>`), has
# options of its own, by its code, and the last of these are kept: shared ones would
# keep every code that was ever compiled with them. Others keep the options while they
# live themselves.
_options_of_locals: collections.deque[_C.CompileOptions] = collections.deque(maxlen=32)
_options_of_functions: WeakKeyTable[
    types.FunctionType, dict[Any, _C.CompileOptions]
] = WeakKeyTable()


def _owner(
    function: types.FunctionType,
) -> types.CodeType | types.FunctionType | None:
    """What options are for alone: the code of a function that another one makes, or the
    function that decorators were put on.

    What a decorator returns has one code for all that it decorates, and entries belong
    to a code: those of one function would use up the limit of another.
    """
    at, depth = function, 0
    while (inner := getattr(at, "__wrapped__", None)) is not None and depth < 64:
        at, depth = inner, depth + 1
    if depth:
        return at if isinstance(at, types.FunctionType) else None
    return function.__code__ if "<locals>" in function.__qualname__ else None


def _options(
    backend: str | Callable[..., Any] | None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    isolated: bool = False,
    function: types.FunctionType | None = None,
) -> _C.CompileOptions:
    used = _arguments.check_backend(backend)
    mode = _arguments.check_mode(mode, used)
    own, others = _arguments.split_options(options or {}, used)
    given = {**own, **others}
    owner = _owner(function) if function is not None else None
    key: Any = (
        used if isinstance(used, str) else id(used),
        fullgraph,
        dynamic,
        mode,
        tuple(sorted((k, repr(v)) for k, v in given.items())),
        id(owner) if owner is not None else None,
    )
    known = None if isolated else _interned_options.get(key)
    found = known() if known is not None else None
    if found is None:
        if mode is not None or others:
            used = _arguments.with_arguments(used, mode, others, dynamic)
        try:
            found = _C.CompileOptions(used, fullgraph, dynamic, own)
        except ValueError as error:
            raise ValueError(f"framejit.compile: {error}") from None
        if not isolated:
            for gone in [k for k, ref in _interned_options.items() if ref() is None]:
                _interned_options.pop(gone, None)
            _interned_options[key] = weakref.ref(found)
    # (A backend that is an object of the program's would be kept with them. What a
    # decorator made anew is compiled anew: its code guards the function in it.)
    if callable(backend) or isolated or function is None:
        return found
    if isinstance(owner, types.CodeType):
        with contextlib.suppress(ValueError):
            _options_of_locals.remove(found)
        _options_of_locals.append(found)
    elif owner is None:
        kept = _options_of_functions.get(function)
        if kept is None:
            kept = _options_of_functions[function] = {}
        kept[key] = found
    return found


class _Decorator(Protocol):
    """What `compile` without a function returns."""

    def __call__(self, model: _F) -> _F: ...


@overload
def compile(
    model: _F,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    shapes_spec: None = ...,
) -> _F: ...
@overload
def compile(
    model: None = None,
    *,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    backend: str | Callable[..., Any] | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    name: str | None = ...,
    disable: bool = ...,
    recompile_limit: int | None = ...,
    isolate_recompiles: bool = ...,
    shapes_spec: None = ...,
) -> _Decorator: ...
@_arguments.with_known_keywords
def compile(
    model: Any = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    backend: str | Callable[..., Any] | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    name: str | None = None,
    disable: bool = False,
    recompile_limit: int | None = None,
    isolate_recompiles: bool = False,
    shapes_spec: Any = None,
) -> Any:
    """Compiles a function or module, with torch.compile's argument names.

    Args:
        model: a Python function, a bound method, or an ``nn.Module``. None:
            returns a decorator.
        fullgraph: raise `GraphBreakError` where capture would stop, and
            `RecompileError` where the recompile limit would end it.
        dynamic: None: a size that changes becomes symbolic; True: every size
            is from the start; False: none ever is.
        backend: ``"native"`` (fused kernels; the default, or what
            ``FRAMEJIT_BACKEND`` names), ``"aot_eager"``, ``"eager"``, a name
            registered with torch.compile, or a callable
            ``(gm: torch.fx.GraphModule, example_inputs) -> callable``.
        mode: one of torch.compile's names. The backends of FrameJIT have one
            way to run; another one gets it as torch.compile gives it.
        options: ``max_instructions``, ``recompile_limit``, and
            ``precise_math``, ``emulate_precision_casts`` and ``channels_last``
            (bools), which say for this call what the environment says for all;
            whatever else is for the backend. Those of FrameJIT have no others.
        name: accepted for compatibility.
        disable: return ``model`` unchanged.
        recompile_limit: entries a code object may have with these arguments,
            in place of ``FRAMEJIT_RECOMPILE_LIMIT``.
        isolate_recompiles: share no entries with other calls of `compile`.
        shapes_spec: not supported.

    Returns:
        For a function, a callable with its name, signature and documentation.
        For a module, an instance of a subclass of its class over the same
        ``__dict__``. With ``FRAMEJIT=0``, the argument itself.

    Raises:
        ValueError: unknown backend, mode or option.
        TypeError: ``model`` is neither callable nor a module, or an argument
            is of the wrong type.
        NotImplementedError: ``shapes_spec`` was given.
    """
    _arguments.check_arguments(
        fullgraph=fullgraph,
        disable=disable,
        isolate_recompiles=isolate_recompiles,
        dynamic=dynamic,
        name=name,
        mode=mode,
        options=options,
        shapes_spec=shapes_spec,
    )
    if recompile_limit is not None:
        if options is not None and "recompile_limit" in options:
            raise ValueError("framejit.compile: recompile_limit is given twice")
        options = {**(options or {}), "recompile_limit": recompile_limit}
    off = disable or _script.environment() == "off"
    make_key = functools.partial(
        _options, backend, fullgraph, dynamic, mode, options, isolate_recompiles
    )
    # At once: a decorator that is wrong raises on its own line.
    key = None if off else make_key()

    def decorate(model: Any) -> Any:
        if key is None:
            return model
        is_function = isinstance(model, (types.FunctionType, types.MethodType))
        if not is_function or isolate_recompiles:
            return _compile_with(model, key)
        function = getattr(model, "__func__", model)
        is_python = isinstance(function, types.FunctionType)
        return _compile_with(model, make_key(function=function if is_python else None))

    return decorate if model is None else decorate(model)


def compile_inplace(module: torch.nn.Module, **options: Any) -> None:
    """Makes the calls of this very module compiled, as ``module.compile()`` of torch.

    Takes the keyword arguments of `compile`; calling it again replaces what was
    there, ``disable=True`` takes it away. Copies and pickles are plain.
    """
    if not isinstance(module, torch.nn.Module):
        raise TypeError(
            f"framejit.compile_inplace: expected a module, got {type(module).__name__}"
        )
    module = original_of(module)

    def call() -> None:
        """Stands for the module's call: only its options are wanted."""

    compiled: Any = compile(call, **options)
    module._compiled_call_impl = (
        None
        if compiled is call
        else compiled_call_in_place(module, _C.compile_options(compiled))
    )


def _call_of(model: Callable[..., Any]) -> types.FunctionType:
    """Calls an object that is no function; messages know it by what is called."""
    # On one line: the first one of what is called.
    call: Any = lambda *args, **kwargs: model(*args, **kwargs)  # noqa: E731
    called: Any = model
    while isinstance(called, functools.partial):
        called = called.func
    if not isinstance(called, (types.FunctionType, types.MethodType)):
        called = type(called).__call__
    code = getattr(getattr(called, "__func__", called), "__code__", None)
    name = getattr(model, "__name__", type(model).__name__)
    call.__code__ = call.__code__.replace(
        co_name=code.co_name if code else name,
        co_qualname=code.co_qualname if code else getattr(model, "__qualname__", name),
        co_filename=code.co_filename if code else "<built-in>",
        co_firstlineno=code.co_firstlineno if code else 1,
    )
    functools.update_wrapper(call, model, updated=())
    function: types.FunctionType = call
    return function


def _compile_with(model: Any, key: _C.CompileOptions) -> Any:
    if isinstance(model, _C.CompiledFunction):
        model = model.__framejit_function__
    # What was given to torch.compile is compiled by torch.compile. functools.wraps
    # copies the mark, which therefore says whose it is.
    if getattr(model, "_torchdynamo_wrapper_id", None) == id(model):
        return model
    if isinstance(model, torch.nn.Module):
        return compile_module(model, key)
    if isinstance(model, types.FunctionType):
        return _C.compile_function(model, key)
    if isinstance(model, types.MethodType):
        function = model.__func__
        if isinstance(function, _C.CompiledFunction):
            function = function.__framejit_function__
        if isinstance(function, types.FunctionType):
            return types.MethodType(_C.compile_function(function, key), model.__self__)
    if isinstance(model, (staticmethod, classmethod)):
        return type(model)(_compile_with(model.__func__, key))
    if isinstance(model, type):
        raise TypeError(
            "framejit.compile: got a class; compile an instance of it, "
            "or its forward method"
        )
    if isinstance(model, (property, functools.cached_property)):
        kind = type(model).__name__
        raise TypeError(
            f"framejit.compile: got a {kind}; compile the function beneath it "
            f"(@{kind} above, @framejit.compile below)"
        )
    if callable(model):
        return _C.compile_function(_call_of(model), key)
    raise TypeError(
        f"framejit.compile: cannot compile an object of type {type(model).__name__}"
    )


class _Suspended:
    """No compilation and no dispatch on this thread for a scope."""

    def __enter__(self) -> None:
        _C.suspend_thread()

    def __exit__(self, *exc: object) -> None:
        _C.resume_thread()


@overload
def disable(fn: _F, *, recursive: bool = ..., reason: str | None = ...) -> _F: ...
@overload
def disable(
    fn: None = None, *, recursive: bool = ..., reason: str | None = ...
) -> _DisableDecorator: ...
def disable(
    fn: Any = None, *, recursive: bool = True, reason: str | None = None
) -> Any:
    """Marks a function (or module) so that FrameJIT leaves it, and all it calls, alone.

    A compiled function that calls it breaks there (FJ205). Usable as a
    decorator with or without arguments, or as a context manager
    (``with framejit.disable():``).

    Args:
        fn: the function; None: returns a decorator that is also a context manager.
        recursive: False: only the function itself is left alone, what it calls
            may be compiled.
        reason: shown with the break.
    """
    if fn is None:
        return _DisableDecorator(recursive, reason)
    if isinstance(fn, _C.CompiledFunction):
        fn = fn.__framejit_function__
    if isinstance(fn, torch.nn.Module):
        fn.forward = disable(fn.forward, recursive=recursive, reason=reason)
        return fn
    if not callable(fn):
        raise TypeError(
            "framejit.disable: expected a function or a module, "
            f"got {type(fn).__name__}"
        )

    @functools.wraps(fn)
    def disabled(*args: Any, **kwargs: Any) -> Any:
        if not recursive:
            return fn(*args, **kwargs)
        _C.suspend_thread()
        try:
            return fn(*args, **kwargs)
        finally:
            _C.resume_thread()

    disabled._framejit_disable = reason or True  # type: ignore[attr-defined]
    return disabled


class _DisableDecorator(_Suspended):
    def __init__(self, recursive: bool, reason: str | None) -> None:
        self._recursive = recursive
        self._reason = reason

    def __call__(self, fn: _F) -> _F:
        return disable(fn, recursive=self._recursive, reason=self._reason)


def allow_in_graph(fn: _F) -> _F:
    """Makes every captured call of ``fn`` one node of the graph.

    Capture does not look into it: it is run on stand-ins to learn its results,
    and called again whenever the graph runs. The caller promises that it is a
    function of its tensor and constant arguments, with tensors (or tuples of
    them) as results and no effect besides. Returns ``fn``.

    Raises:
        TypeError: ``fn`` is not a Python function.
    """
    if not isinstance(fn, types.FunctionType):
        raise TypeError(
            "framejit.allow_in_graph: expected a Python function, "
            f"got {type(fn).__name__}"
        )
    fn._framejit_allow_in_graph = True  # type: ignore[attr-defined]
    return fn


def graph_break(msg: str = "") -> None:
    """Breaks the graph at the call (FJ206); does nothing outside a capture."""


graph_break._framejit_graph_break = True  # type: ignore[attr-defined]


def is_compiling() -> bool:
    """True while a capture runs this line, False when CPython does."""
    return False


is_compiling._framejit_is_compiling = True  # type: ignore[attr-defined]


def reset() -> None:
    """Forgets everything compiled in this process, and counters and events."""
    _C.reset()
    _C.clear_events()
    _options_of_locals.clear()
    _options_of_functions.clear()


def counters() -> dict[str, int]:
    """Counts since the last `reset`.

    Keys: compiles, recompiles, breaks, fallbacks, failures. ``fallbacks`` is the
    number of events of that channel.
    """
    return _C.counters()


def events() -> list[tuple[str, str]]:
    """The last events, oldest first, as (channel, text), whether logged or not."""
    return _C.recent_events()


def set_logs(channels: str) -> None:
    """Like ``FRAMEJIT_LOG``: switches on exactly the comma-separated channels."""
    if not isinstance(channels, str):
        raise TypeError(
            "framejit.set_logs: expected channels with commas between them "
            f"('' for none), got {type(channels).__name__}"
        )
    _logging.set_channels(channels)


def _key_and_function(fn: Any) -> tuple[_C.CompileOptions, types.FunctionType]:
    if isinstance(fn, torch.nn.Module):
        call = compiled_function_of(fn)
        if call is None:
            raise TypeError("expected a module returned by framejit.compile")
        fn = call
    if isinstance(fn, types.MethodType):
        fn = fn.__func__
    if not isinstance(fn, _C.CompiledFunction):
        raise TypeError(
            "expected the result of framejit.compile, "
            f"got {getattr(fn, '__name__', fn)!r}"
        )
    function: types.FunctionType = fn.__framejit_function__  # type: ignore[assignment]
    return _C.compile_options(fn), function


def _raw_entries(
    key: _C.CompileOptions, code: types.CodeType, module: Any
) -> list[dict[str, Any]]:
    """The entries of a call; of a module also those of its forward.

    A module whose forward broke has a call that only hands over to it.
    """
    found = _C.entries(code, key)
    forward = forward_code(module)
    if forward is None:
        return found
    beneath = _C.entries(forward, key)
    return beneath + [e for e in found if not (beneath and e["hands_over"])]


def inspect(fn: Any) -> list[EntryInfo]:
    """The cache entries of a compiled function or module, most recent first.

    Each `EntryInfo` has the guards as text, graphs, kernels, breaks, the
    residual code object and the entries of its resume functions. Of a module
    these are the entries of its call as a whole and, where that broke, of its
    forward.
    """
    key, function = _key_and_function(fn)
    seen: set[types.CodeType] = set()
    found = _raw_entries(key, function.__code__, fn)
    return [entry_info(raw, key, seen) for raw in found]


def _plain(fn: Any, asked: str, hint: str = "") -> Any:
    """What was compiled, or anything else that can be called; `asked` is our function
    that was given it."""
    plain = fn.__framejit_function__ if isinstance(fn, _C.CompiledFunction) else fn
    if not callable(plain):
        raise TypeError(
            f"framejit.{asked}: expected a function or a module, got {fn!r}{hint}"
        )
    return plain


def explain(fn: Callable[_P, Any]) -> Callable[_P, Explanation]:
    """``explain(fn)(*args)`` runs ``fn`` once and says what capture did.

    ``fn`` may be compiled or plain; nothing it has compiled so far is touched:
    the run uses options of its own, with ``backend="eager"``.
    """
    hint = "; its arguments go to what explain() returns: explain(fn)(*args)"
    plain = _plain(fn, "explain", hint)

    def run(*args: _P.args, **kwargs: _P.kwargs) -> Explanation:
        # Not interned: what this compiles goes with the object.
        key = _C.CompileOptions("eager", False, None)
        compiled = _compile_with(plain, key)
        before = _C.last_event_number()
        result = compiled(*args, **kwargs)
        function = _key_and_function(compiled)[1]
        raw = _raw_entries(key, function.__code__, fn)
        seen: set[types.CodeType] = set()
        told = _C.recent_events(before)
        if not raw and not told and _C.is_traced():
            told = [("graph_breaks", why_nothing(function, "FJ502"))]
        return Explanation(
            result=result,
            entries=[entry_info(item, key, seen) for item in raw],
            events=told,
            code=forward_code(fn) or function.__code__,
        )

    if _inspect.isroutine(plain):
        functools.update_wrapper(run, plain)
    return run
