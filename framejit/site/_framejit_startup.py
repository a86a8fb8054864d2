"""Start-up hook of ``FRAMEJIT=1``, run by ``framejit.pth``.

Nothing is imported here that the program would not import itself: importing
torch takes seconds, and a program that never does has nothing to compile. So
this waits for ``import torch`` to end and imports framejit then, which starts
whole-script mode.
"""

from __future__ import annotations

import importlib.machinery
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class _WaitForTorch:
    """A finder that finds nothing of its own, but looks on as torch is found."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        spec = None
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if finder is not self and find is not None:
                spec = find(name, path, target)
                if spec is not None:
                    break
        loader = getattr(spec, "loader", None)
        if isinstance(loader, importlib.machinery.SourceFileLoader):
            self._run_after(loader)
        return spec

    def _run_after(self, loader: Any) -> None:
        def exec_module(module: Any) -> None:
            del loader.exec_module
            loader.exec_module(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                _start()

        loader.exec_module = exec_module


def _start() -> None:
    try:
        import framejit  # noqa: F401
    except Exception as error:  # the program must run all the same
        import warnings

        warnings.warn(
            f"FRAMEJIT: framejit cannot be imported, nothing is compiled: {error}",
            RuntimeWarning,
            stacklevel=2,
        )


def install() -> None:
    """Once: `site` runs the .pth files of a virtual environment twice."""
    if "torch" in sys.modules:
        _start()
    elif not any(isinstance(finder, _WaitForTorch) for finder in sys.meta_path):
        sys.meta_path.insert(0, _WaitForTorch())
