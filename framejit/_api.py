"""The public functions. All the work is in C++; this is the shape users know."""

from __future__ import annotations

import functools
import inspect as _inspect
import types
import weakref
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, overload

# LibTorch is loaded by torch's own import, before our extension needs it.
import torch

from framejit import _C, _logging, _script, _tracefile
from framejit._dynamo import meet_dynamo
from framejit._explain import EntryInfo, Explanation, entry_info
from framejit._module import (
    compile_module,
    compiled_call_in_place,
    compiled_function_of,
    forward_code,
    original_of,
)
from framejit.errors import (
    ConstraintViolationError,
    GraphBreakError,
    RecompileError,
)

_P = ParamSpec("_P")
_R = TypeVar("_R")
_F = TypeVar("_F", bound=Callable[..., Any])

_C.set_error_types(GraphBreakError, RecompileError, ConstraintViolationError)
_C.install()
meet_dynamo()
_logging.start()
_tracefile.start()

# Equal options must be one object: its address is half of the code-cache key.
_interned_options: weakref.WeakValueDictionary[Any, _C.CompileOptions] = (
    weakref.WeakValueDictionary()
)

_MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_OWN_BACKENDS = ("native", "aot_eager", "eager")


def list_backends() -> list[str]:
    """Names that ``compile(backend=...)`` takes: ours, then torch.compile's."""
    from torch._dynamo.backends.registry import list_backends as torch_backends

    return list(_OWN_BACKENDS) + [n for n in torch_backends() if n not in _OWN_BACKENDS]


def _options(
    backend: str | Callable[..., Any],
    fullgraph: bool,
    dynamic: bool | None,
    options: dict[str, Any] | None,
) -> _C.CompileOptions:
    budget = 0
    if options is not None and "max_instructions" in options:
        # Ours, and not the backend's.
        options = dict(options)
        budget = options.pop("max_instructions")
        if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
            raise TypeError(
                "framejit.compile: max_instructions must be a positive int, "
                f"not {budget!r}"
            )
        options = options or None
    key: Any = (
        budget,
        backend if isinstance(backend, str) else id(backend),
        fullgraph,
        dynamic,
        None
        if options is None
        else tuple(sorted((k, repr(v)) for k, v in options.items())),
    )
    found = _interned_options.get(key)
    if found is None:
        found = _C.CompileOptions(backend, fullgraph, dynamic, options, budget)
        _interned_options[key] = found
    return found


def _check_backend(backend: Any) -> str | Callable[..., Any]:
    if backend is None:
        backend = _C.option_text("backend")
    if isinstance(backend, str):
        if backend not in _OWN_BACKENDS:
            from torch._dynamo.backends.registry import list_backends as known

            if backend not in known(exclude_tags=()):
                raise ValueError(
                    f"framejit.compile: unknown backend {backend!r}; "
                    f"known: {', '.join(list_backends())}, "
                    "or any callable (gm, example_inputs)"
                )
        name: str = backend
        return name
    if not callable(backend):
        raise TypeError(
            "framejit.compile: backend must be a name or a callable "
            f"(gm, example_inputs) -> callable, not {type(backend).__name__}"
        )
    result: Callable[..., Any] = backend
    return result


def _check_flag(name: str, value: Any) -> None:
    if not isinstance(value, bool):
        known = "None, True or False" if name == "dynamic" else "True or False"
        raise TypeError(f"framejit.compile: {name} must be {known}, not {value!r}")


@overload
def compile(
    model: Callable[_P, _R],
    *,
    backend: str | Callable[..., Any] | None = ...,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    disable: bool = ...,
) -> Callable[_P, _R]: ...
@overload
def compile(
    model: None = None,
    *,
    backend: str | Callable[..., Any] | None = ...,
    fullgraph: bool = ...,
    dynamic: bool | None = ...,
    mode: str | None = ...,
    options: dict[str, Any] | None = ...,
    disable: bool = ...,
) -> Callable[[Callable[_P, _R]], Callable[_P, _R]]: ...
def compile(
    model: Any = None,
    *,
    backend: str | Callable[..., Any] | None = None,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    mode: str | None = None,
    options: dict[str, Any] | None = None,
    disable: bool = False,
) -> Any:
    """Compiles a function or module, with torch.compile's argument names.

    Args:
        model: a Python function, a bound method, or an ``nn.Module``. None:
            returns a decorator.
        backend: ``"native"`` (fused kernels; the default, or what
            ``FRAMEJIT_BACKEND`` names), ``"aot_eager"``, ``"eager"``, a name
            registered with torch.compile, or a callable
            ``(gm: torch.fx.GraphModule, example_inputs) -> callable``.
        fullgraph: raise `GraphBreakError` where capture would stop.
        dynamic: None: a size that changes becomes symbolic; True: every size
            is from the start; False: none ever is.
        mode: accepted for compatibility; checked against torch.compile's
            names. FrameJIT has one way to run.
        options: passed to the backend.
        disable: return ``model`` unchanged.

    Returns:
        For a function, a callable with its name, signature and documentation.
        For a module, an instance of a subclass of its class over the same
        ``__dict__``. With ``FRAMEJIT=0``, the argument itself.

    Raises:
        ValueError: unknown backend or mode.
        TypeError: ``model`` is neither callable nor a module, or an argument
            is of the wrong type.
    """
    if mode is not None and mode not in _MODES:
        raise ValueError(
            f"framejit.compile: unknown mode {mode!r}; known: {', '.join(_MODES)}"
        )
    if mode is not None and options is not None:
        raise ValueError("framejit.compile: give either mode or options, not both")
    _check_flag("fullgraph", fullgraph)
    _check_flag("disable", disable)
    if dynamic is not None:
        _check_flag("dynamic", dynamic)
    if options is not None and not (
        isinstance(options, dict) and all(isinstance(name, str) for name in options)
    ):
        raise TypeError(
            f"framejit.compile: options must be a dict with str keys, not {options!r}"
        )
    if model is None:
        return functools.partial(
            compile,
            backend=backend,
            fullgraph=fullgraph,
            dynamic=dynamic,
            mode=mode,
            options=options,
            disable=disable,
        )
    if disable or _script.environment() == "off":
        return model
    key = _options(_check_backend(backend), fullgraph, dynamic, options)
    return _compile_with(model, key)


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
    if callable(model):

        @functools.wraps(model, updated=())
        def call(*args: Any, **kwargs: Any) -> Any:
            return model(*args, **kwargs)

        return _C.compile_function(call, key)
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
) -> Any: ...
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

    def __call__(self, fn: Any) -> Any:
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


def explain(fn: Any) -> Callable[..., Explanation]:
    """``explain(fn)(*args)`` runs ``fn`` once and says what capture did.

    ``fn`` may be compiled or plain; nothing it has compiled so far is touched:
    the run uses options of its own, with ``backend="eager"``.
    """
    if isinstance(fn, _C.CompiledFunction):
        fn = fn.__framejit_function__

    def run(*args: Any, **kwargs: Any) -> Explanation:
        # Not interned: what this compiles goes with the object.
        key = _C.CompileOptions("eager", False, None, None)
        compiled = _compile_with(fn, key)
        before = _C.last_event_number()
        result = compiled(*args, **kwargs)
        function = _key_and_function(compiled)[1]
        raw = _raw_entries(key, function.__code__, fn)
        seen: set[types.CodeType] = set()
        return Explanation(
            result=result,
            entries=[entry_info(item, key, seen) for item in raw],
            events=_C.recent_events(before),
        )

    if _inspect.isroutine(fn):
        functools.update_wrapper(run, fn)
    return run
