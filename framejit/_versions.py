"""Which CPython and torch this is, and the extension that was built for them.

The extension uses private parts of both, so there is one per pair: in the folder
``torch_2_13``, where the suffix of the file names the CPython. The folder of the
torch that is installed becomes part of the package's path; where it has nothing for
this CPython, or the pair is not supported, importing framejit ends here, with one
error that says what is.
"""

from __future__ import annotations

import importlib.machinery
import re
import sys
import sysconfig
from collections.abc import Iterable
from pathlib import Path

PYTHONS = ((3, 11), (3, 12), (3, 13))
TORCHES = ((2, 11), (2, 12), (2, 13))

_SUPPORTED = (
    "framejit supports CPython {} with the GIL and torch {} (docs/versions.md)".format(
        *(
            ", ".join("{}.{}".format(*version) for version in versions)
            for versions in (PYTHONS, TORCHES)
        )
    )
)


def _minor(version: str) -> tuple[int, int]:
    """(2, 13) of "2.13.0+cpu" or "2.13rc1"; (0, 0) of what is no such version."""
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _folder(torch: tuple[int, int]) -> str:
    return "torch_{}_{}".format(*torch)


def check_python(
    implementation: str, version: tuple[int, int], *, free_threaded: bool
) -> None:
    """Raises ImportError for an interpreter that framejit does not support."""
    name = "{} {}.{}".format(
        "CPython" if implementation == "cpython" else implementation, *version
    )
    if free_threaded:
        name += " without the GIL"
    if implementation != "cpython" or version not in PYTHONS or free_threaded:
        raise ImportError(f"{_SUPPORTED}; this is {name}")


def extension_folder(package: Path, torch: str, suffixes: Iterable[str]) -> Path:
    """Where the extension for this torch lies; ImportError if there is none."""
    if _minor(torch) not in TORCHES:
        raise ImportError(f"{_SUPPORTED}; this is torch {torch}")

    def has_extension(folder: Path) -> bool:
        return any((folder / f"_C{suffix}").is_file() for suffix in suffixes)

    folder = package / _folder(_minor(torch))
    if has_extension(folder):
        return folder
    built = [
        "{}.{}".format(*version)
        for version in TORCHES
        if has_extension(package / _folder(version))
    ]
    python = "CPython {}.{}".format(*sys.version_info[:2])
    raise ImportError(
        f"this framejit was built for torch {', '.join(built)} on {python}, and "
        f"torch {torch} is installed: install framejit again, or that torch"
        if built
        else f"this framejit has no extension for {python}: build it with "
        "`pip install .` in a checkout, or see CONTRIBUTING.md"
    )


def _extend_path() -> None:
    check_python(
        sys.implementation.name,
        sys.version_info[:2],
        free_threaded=bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    )
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ImportError(f"{_SUPPORTED}; torch is not installed") from None
    package = sys.modules["framejit"]
    folder = extension_folder(
        Path(__file__).parent,
        getattr(torch, "__version__", "without a version"),
        importlib.machinery.EXTENSION_SUFFIXES,
    )
    # First, before one that an older build has left in the package itself.
    package.__path__.insert(0, str(folder))


_extend_path()
