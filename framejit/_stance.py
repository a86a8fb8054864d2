"""`set_stance`: what a call that no cache entry answers does, process-wide."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar

from framejit import _C

_F = TypeVar("_F", bound=Callable[..., Any])
# In the order of the C++ enum.
STANCES = ("default", "force_eager", "eager_on_recompile", "fail_on_recompile")


class set_stance:
    """Sets how the whole process treats compilation, as torch.compiler.set_stance.

    A plain call sets it until the next one; as a context manager or decorator
    it holds for the block or the calls and then goes back.

    Args:
        stance: ``"default"``: compile what is not compiled yet.
            ``"force_eager"``: run the original code, always.
            ``"eager_on_recompile"``: entries that are there answer; any other
            call runs the original code.
            ``"fail_on_recompile"``: any other call raises `RecompileError`,
            whose text has the guards that failed. (Calls that the recompile
            limit or an earlier failure sends to the original code do not
            count.)

    Raises:
        ValueError: no such stance.
    """

    def __init__(self, stance: str = "default") -> None:
        if stance not in STANCES:
            raise ValueError(
                f"framejit.set_stance: unknown stance {stance!r}; "
                f"known: {', '.join(STANCES)}"
            )
        self._stance = STANCES.index(stance)
        # Set at once, for the plain call.
        self._before = [_C.current_stance()]
        _C.set_stance(self._stance)

    def __enter__(self) -> None:
        if not self._before:
            self._before.append(_C.current_stance())
        _C.set_stance(self._stance)

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _C.set_stance(self._before.pop())

    def __call__(self, fn: _F) -> _F:
        _C.set_stance(self._before.pop())
        stance = STANCES[self._stance]

        @functools.wraps(fn)
        def with_stance(*args: Any, **kwargs: Any) -> Any:
            with set_stance(stance):
                return fn(*args, **kwargs)

        # A capture must not look at what is set here as if it were the user's.
        with_stance._framejit_disable = "set_stance"  # type: ignore[attr-defined]
        return with_stance  # type: ignore[return-value]


def get_stance() -> str:
    """The stance in force."""
    return STANCES[_C.current_stance()]
