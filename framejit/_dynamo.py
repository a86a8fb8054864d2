"""How Dynamo sees compiled functions: as the functions they were made from.

Dynamo asks a table keyed by type for what an object is. Compiled functions get a
row there when that table's module is loaded, which is at the first
``torch.compile`` of a process and not before: it takes a second to import.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Sequence
from typing import Any

from framejit import _C

_TABLE_MODULE = "torch._dynamo.variables.builder"
# Unlike __wrapped__, which functools.wraps sets, always the original.
_ORIGINAL = "__framejit_function__"


def _add_row(builder: Any) -> None:
    def wrap(self: Any, value: Any) -> Any:
        self.install_guards(builder.GuardBuilder.TYPE_MATCH)
        return builder.WrapperUserFunctionVariable(
            value,
            _ORIGINAL,
            source=self.source,
            mutation_type=builder.AttributeMutationExisting(),
        )

    for trace_numpy in (False, True):
        table = builder.VariableBuilder._type_dispatch_impl(trace_numpy)
        table[_C.CompiledFunction] = wrap


class _WaitForTable(importlib.abc.MetaPathFinder):
    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None,
        target: types.ModuleType | None = None,
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _TABLE_MODULE:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader: Any = spec and spec.loader
        if loader is None:
            return None
        execute = loader.exec_module

        def exec_module(module: types.ModuleType) -> None:
            execute(module)
            _add_row(module)

        loader.exec_module = exec_module
        return spec


def meet_dynamo() -> None:
    """Now, or when Dynamo is loaded."""
    loaded = sys.modules.get(_TABLE_MODULE)
    if loaded is not None:
        _add_row(loaded)
    else:
        sys.meta_path.insert(0, _WaitForTable())
