"""What may be given: options, modes and environment variables, and what may not.

The rows are those of frame_hook/options.def, which also says what the values may
be; here is what is said about anything else. An argument of `compile` that is
wrong is an error. A wrong value in the environment is one warning, and the
default is used.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar, cast

import torch

from framejit import _C

_log = logging.getLogger("framejit")

OWN_BACKENDS = ("native", "aot_eager", "eager")
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")

_Backend = str | Callable[..., Any]
_F = TypeVar("_F", bound=Callable[..., Any])


class Row(NamedTuple):
    """One of options.def."""

    variable: str
    keyword: str
    type: str
    default: str
    scope: str
    accepted: str  # in words
    words: list[str]  # that it is made of, if so
    help: str


ROWS = tuple(Row(*row) for row in _C.option_table())


def row_of(keyword: str) -> Row:
    return next(row for row in ROWS if row.keyword == keyword)


def _nearest(word: str, known: Iterable[str]) -> str | None:
    import difflib

    by_lower = {name.lower(): name for name in known}
    found = difflib.get_close_matches(word.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[found[0]] if found else None


def _hint(word: str, known: Iterable[str]) -> str:
    near = _nearest(word, known)
    return f" (did you mean {near!r}?)" if near else ""


def unknown(what: str, word: str, known: Iterable[str], more: str = "") -> ValueError:
    names = list(known)
    return ValueError(
        f"framejit: unknown {what} {word!r}{_hint(word, names)}; "
        f"known: {', '.join(names)}{more}"
    )


def with_known_keywords(function: _F) -> _F:
    """A wrong keyword is an error that names the nearest, and those there are."""
    known = [
        name
        for name, parameter in inspect.signature(function).parameters.items()
        if parameter.kind is not parameter.VAR_KEYWORD
    ]

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        for name in kwargs:
            if name not in known:
                raise TypeError(
                    f"framejit.{function.__name__}: unknown argument {name!r}"
                    f"{_hint(name, known)}; known: {', '.join(known)}"
                )
        return function(*args, **kwargs)

    return cast(_F, call)


# ---- the environment


def warn_of(row: Row, value: str, why: object = "") -> None:
    """The value of the row's variable is not taken."""
    words = [word.strip() for word in value.split(",")]
    _log.warning(
        "%s=%r: expected %s%s%s; %s",
        row.variable,
        value,
        row.accepted,
        f" ({why})" if why else "",
        "".join(_hint(word, row.words) for word in words if word not in row.words),
        f"{row.default!r} is used" if row.default else "it counts as unset",
    )


def report_environment() -> None:
    """Called once at import: a warning for each variable that has no effect."""
    rows = {row.variable: row for row in ROWS}
    for variable, value in _C.refused_environment():
        warn_of(rows[variable], value)
    endings = {name.removeprefix("FRAMEJIT_"): name for name in rows}
    for name in os.environ:
        if not name.startswith("FRAMEJIT") or name in rows:
            continue
        near = _nearest(name.removeprefix("FRAMEJIT").lstrip("_"), endings)
        if near:
            _log.warning(
                "%s is no variable of FrameJIT; did you mean %s?", name, endings[near]
            )


# ---- backends


def torch_backends(*, all_of_them: bool = False) -> list[str]:
    from torch._dynamo.backends.registry import list_backends

    tags = () if all_of_them else ("debug", "experimental")
    # What Dynamo knows as "framejit" is "native" here.
    own = (*OWN_BACKENDS, "framejit")
    return [name for name in list_backends(exclude_tags=tags) if name not in own]


def list_backends() -> list[str]:
    """Names that ``compile(backend=...)`` takes: ours, then torch.compile's."""
    return [*OWN_BACKENDS, *torch_backends()]


def _is_known(name: str) -> bool:
    return name in OWN_BACKENDS or name in torch_backends(all_of_them=True)


def check_backend(backend: Any) -> _Backend:
    """The backend that is meant, if there is one."""
    if backend is None:
        name = _C.option_text("backend")
        if name != "framejit" and not _is_known(name):
            row = row_of("backend")
            warn_of(row, name, f"known: {', '.join(list_backends())}")
            _C.set_option("backend", row.default)
            name = row.default
        backend = name
    if backend == "framejit":
        return "native"
    if isinstance(backend, str):
        if not _is_known(backend):
            more = ", or any callable (gm, example_inputs)"
            raise unknown("backend", backend, list_backends(), more)
        return backend
    if not callable(backend):
        raise TypeError(
            "framejit.compile: backend must be a name or a callable "
            f"(gm, example_inputs) -> callable, not {type(backend).__name__}"
        )
    found: Callable[..., Any] = backend
    return found


def with_arguments(
    backend: _Backend,
    mode: str | None,
    options: dict[str, Any],
    dynamic: bool | None,
) -> _Backend:
    """A backend that gets them, as it does from torch.compile."""
    if backend == "inductor":
        wrapper: Any = torch._TorchCompileInductorWrapper
        made: Callable[..., Any] = wrapper(mode, options, dynamic)
        return made
    name = repr(backend) if isinstance(backend, str) else _name_of(backend)
    if isinstance(backend, str):
        from torch._dynamo.backends.registry import lookup_backend

        backend = lookup_backend(backend)
    given: dict[str, Any] = {"options": options} if options else {}
    if mode is not None:
        given["mode"] = mode
    try:
        inspect.signature(backend).bind(None, None, **given)
    except TypeError:
        raise TypeError(
            f"framejit.compile: the backend {name} takes no {' and no '.join(given)}"
        ) from None
    except ValueError:  # a callable without a signature
        pass
    # Under its own name, for messages.
    return functools.update_wrapper(functools.partial(backend, **given), backend)


def _name_of(backend: Callable[..., Any]) -> str:
    return str(getattr(backend, "__name__", type(backend).__name__))


# ---- the arguments of compile()


def check_arguments(
    *,
    fullgraph: Any,
    disable: Any,
    isolate_recompiles: Any,
    dynamic: Any,
    name: Any,
    mode: Any,
    options: Any,
    shapes_spec: Any,
) -> None:
    """What can be said before the backend is known."""
    flags = {
        "fullgraph": fullgraph,
        "disable": disable,
        "isolate_recompiles": isolate_recompiles,
    }
    for flag, value in flags.items():
        if not isinstance(value, bool):
            raise TypeError(
                f"framejit.compile: {flag} must be True or False, not {value!r}"
            )
    if dynamic is not None and not isinstance(dynamic, bool):
        raise TypeError(
            f"framejit.compile: dynamic must be None, True or False, not {dynamic!r}"
        )
    for text, value in {"name": name, "mode": mode}.items():
        if value is not None and not isinstance(value, str):
            raise TypeError(f"framejit.compile: {text} must be a str, not {value!r}")
    if options is not None and not (
        isinstance(options, dict) and all(isinstance(key, str) for key in options)
    ):
        raise TypeError(
            f"framejit.compile: options must be a dict with str keys, not {options!r}"
        )
    if mode is not None and options is not None:
        raise ValueError("framejit.compile: give either mode or options, not both")
    if shapes_spec is not None:
        raise NotImplementedError(
            "framejit.compile: shapes_spec is not supported; mark the tensors "
            "(framejit.mark_dynamic, framejit.mark_static) or give dynamic="
        )


def check_mode(mode: str | None, backend: _Backend) -> str | None:
    """The mode that the backend is to get: none, if it is one of ours."""
    if mode is None or mode == "default":
        return None
    if backend in OWN_BACKENDS and mode not in MODES:
        raise unknown("mode", mode, MODES)
    return None if backend in OWN_BACKENDS else mode


def split_options(
    options: dict[str, Any], backend: _Backend
) -> tuple[dict[str, int], dict[str, Any]]:
    """Those of FrameJIT, and those for the backend."""
    rows = {row.keyword: row for row in ROWS if row.scope == "call"}
    own, others = {}, {}
    for key, value in options.items():
        row = rows.get(key)
        if row is None:
            others[key] = value
            continue
        if row.type == "bool":
            fits = isinstance(value, int) and value in (0, 1)  # False and True
        else:
            fits = isinstance(value, int) and not isinstance(value, bool)
        if not fits:
            raise TypeError(
                f"framejit.compile: {key}: expected {row.accepted}, got {value!r}"
            )
        own[key] = int(value)
    if others and backend in OWN_BACKENDS:
        more = f" (the backend {backend!r} has none of its own)"
        raise unknown("option", next(iter(others)), rows, more)
    return own, others
