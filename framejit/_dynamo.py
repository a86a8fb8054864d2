"""What Dynamo knows of FrameJIT, and FrameJIT of Dynamo.

Compiled functions are to Dynamo the functions they were made from: it asks a
table keyed by type for what an object is, and they have a row there. Its registry
of backends has "framejit" (`_dynamo_backend.py`). And a stance that it is given
(``torch.compiler.set_stance``) holds for FrameJIT, too. Each is done when the
module of Dynamo that it is about is loaded, which is at the first ``torch.compile``
of a process and not before: Dynamo takes a second to import.
"""

from __future__ import annotations

import functools
import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from framejit import _C
from framejit._stance import STANCES

# Unlike __wrapped__, which functools.wraps sets, always the original.
_ORIGINAL = "__framejit_function__"


def _add_row(builder: Any) -> None:
    base = importlib.import_module("torch._dynamo.variables.base")

    def wrap(self: Any, value: Any) -> Any:
        self.install_guards(builder.GuardBuilder.TYPE_MATCH)
        return builder.WrapperUserFunctionVariable(
            value,
            _ORIGINAL,
            source=self.source,
            mutation_type=base.AttributeMutationExisting(),
        )

    for trace_numpy in (False, True):
        table = builder.VariableBuilder._type_dispatch_impl(trace_numpy)
        table[_C.CompiledFunction] = wrap


def _register_backend(registry: Any) -> None:
    # Where the entry point of the installed package was found before, it is what
    # brings us here, and registers the backend itself.
    if registry._BACKENDS.get("framejit") is None:
        from framejit._dynamo_backend import framejit

        registry.register_backend(framejit)


def _follow_stance(eval_frame: Any) -> None:
    set_in_torch = eval_frame._set_stance

    def adopt(stance: Any) -> None:
        # "eager_then_compile" and its like are about Dynamo's compile times.
        known = stance.stance if stance.stance in STANCES else "default"
        _C.set_other_stance(STANCES.index(known))

    @functools.wraps(set_in_torch)
    def set_in_both(stance: Any) -> Any:
        before = set_in_torch(stance)
        adopt(stance)
        return before

    adopt(eval_frame._stance)
    eval_frame._set_stance = set_in_both
    decorators = sys.modules.get("torch._dynamo.decorators")
    if decorators is not None:  # it has taken the name over
        vars(decorators)["_set_stance"] = set_in_both


_MEETINGS: dict[str, Callable[[Any], None]] = {
    "torch._dynamo.variables.builder": _add_row,
    "torch._dynamo.backends.registry": _register_backend,
    "torch._dynamo.eval_frame": _follow_stance,
}


class _WaitForDynamo(importlib.abc.MetaPathFinder):
    """Finds nothing of its own, but looks on as the modules are loaded."""

    def __init__(self, names: set[str]) -> None:
        self._names = names

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if name not in self._names:
            return None
        self._names.remove(name)
        if not self._names:
            sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is None:
            return None
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            _MEETINGS[name](module)

        loader.exec_module = exec_module
        return spec


def meet_dynamo() -> None:
    """Now, or as Dynamo is loaded."""
    awaited = set()
    for name, meet in _MEETINGS.items():
        loaded = sys.modules.get(name)
        if loaded is not None:
            meet(loaded)
        else:
            awaited.add(name)
    if awaited:
        sys.meta_path.insert(0, _WaitForDynamo(awaited))
