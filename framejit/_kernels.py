"""`kernels`: the CUDA kernels that a function's graphs would have."""

from __future__ import annotations

import functools
import importlib.util
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from framejit import _C


@dataclass(frozen=True)
class CudaKernel:
    """One kernel.

    Attributes:
        name: after the operators in it, as profilers show it.
        entry: its function in the source.
        source: CUDA C++, all of it.
        threads: of a block.
        team: of one point of the kernel's outer loops (a row, say).
        bytes_moved: read and written, at the sizes of this call.
        lines: of the program that it comes from, ``model.py:12``.
        registers, spilled_bytes, shared_bytes: what ptxas says: of a thread, of a
            thread, of a block. None: there is no NVRTC.
        image: the cubin.
        problem: why there is no source or no cubin, or "".
    """

    name: str
    entry: str
    source: str
    threads: int
    team: int
    bytes_moved: int
    lines: list[str]
    registers: int | None = None
    spilled_bytes: int | None = None
    shared_bytes: int | None = None
    image: bytes = b""
    problem: str = ""

    def __str__(self) -> str:
        words = [f"{self.threads} threads a block, {self.team} a point"]
        if self.registers is not None:
            words += [
                f"{self.registers} registers",
                f"{self.spilled_bytes} bytes spilled",
                f"{self.shared_bytes} bytes of shared memory",
            ]
        words.append(f"{self.bytes_moved:,} bytes moved")
        text = f"{self.name}\n  " + ", ".join(words)
        if self.lines:
            text += "\n  from " + ", ".join(self.lines)
        return text + (f"\n  {self.problem}" if self.problem else "")


@dataclass(frozen=True)
class Kernels:
    """What `kernels` found; iterating gives its `CudaKernel` objects.

    Attributes:
        result: what the function returned.
        target: ``"sm_90"``.
        kernels: in the order in which they were compiled.
        calls: what stays a call of ATen, a line each: operator, place, reason.
        note: why there are no kernels, or nothing is known of registers; or "".
    """

    result: Any
    target: str
    kernels: list[CudaKernel]
    calls: list[str]
    note: str

    def __iter__(self) -> Iterator[CudaKernel]:
        return iter(self.kernels)

    def __len__(self) -> int:
        return len(self.kernels)

    def __str__(self) -> str:
        parts = [f"{len(self.kernels)} kernels for {self.target}"]
        parts += [str(kernel) for kernel in self.kernels]
        if self.calls:
            parts.append("calls of ATen:\n  " + "\n  ".join(self.calls))
        if self.note:
            parts.append(self.note)
        return "\n".join(parts)


def architecture_of(target: str) -> int:
    """90 for ``"sm_90"``.

    Raises:
        ValueError: not of this form, or older than sm_70.
    """
    found = re.fullmatch(r"sm_([0-9]{2,3})", str(target))
    if not found or int(found[1]) < 70:
        raise ValueError(
            f"framejit.kernels: target {target!r} is no CUDA architecture that is "
            'supported; it is of the form "sm_90", and sm_70 at least (an argument of '
            "the function that has this name is given by its position)"
        )
    return int(found[1])


@functools.cache
def nvrtc_paths() -> list[str]:
    """Where NVRTC may be: in NVIDIA's packages, in torch's folder, the system's."""
    folders: list[Path] = []
    spec = importlib.util.find_spec("nvidia")
    for root in (spec.submodule_search_locations or []) if spec else []:
        folders += sorted(Path(root).glob("*/lib"), reverse=True)
    folders.append(Path(torch.__file__).parent / "lib")
    found = [
        str(path)
        for folder in folders
        for path in sorted(folder.glob("libnvrtc*.so*"))
        if "builtins" not in path.name and ".alt." not in path.name
    ]
    found += ["libnvrtc.so.13", "libnvrtc.so.12"]
    # That of torch's CUDA first: the driver takes what it makes.
    wanted = f".so.{(torch.version.cuda or '').split('.')[0]}"
    return sorted(found, key=lambda path: not path.endswith(wanted))


def _with_cubin(raw: dict[str, Any], architecture: int, has_nvrtc: bool) -> CudaKernel:
    about = {key: value for key, value in raw.items() if key != "refused"}
    if not raw["source"] or not has_nvrtc:
        return CudaKernel(**about, problem=raw["refused"])
    made = _C.compile_cuda(
        nvrtc_paths(), raw["source"], raw["entry"] + ".cu", architecture
    )
    if made["error"]:
        return CudaKernel(**about, problem=made["error"])
    keys = ("registers", "spilled_bytes", "shared_bytes", "image")
    return CudaKernel(**about, **{key: made[key] for key in keys})


def collect(target: str, call: Callable[[], Any], found: list[Kernels]) -> Any:
    """Calls `call`; what it compiled is appended to `found`, also when it raises."""
    architecture = architecture_of(target)
    raw: list[dict[str, Any]] = []
    calls: list[str] = []
    result = None
    before = _C.last_event_number()
    try:
        result = _C.cuda_kernels(architecture, call, raw, calls)
    finally:
        note = ""
        try:
            _C.nvrtc_version(nvrtc_paths())
        except ImportError as error:
            note = (
                "registers are not known: there is no NVRTC "
                f"(pip install nvidia-cuda-nvrtc-cu12): {error}"
            )
        if not raw and not calls:
            told = [text for _, text in _C.recent_events(before)]
            note = "\n".join(["no graph was compiled", *told])
        kernels = [_with_cubin(each, architecture, not note) for each in raw]
        found.append(Kernels(result, target, kernels, calls, note))
    return result


def kernels(
    fn: Callable[..., Any], *args: Any, target: str = "sm_90", **kwargs: Any
) -> Kernels:
    """The CUDA kernels that the graphs of ``fn(*args, **kwargs)`` would have.

    Runs ``fn`` once, compiled, with tensors on the CPU; no GPU is needed. Kernels of
    a backward are among them where something requires grad. If NVRTC is installed,
    each kernel is compiled for the target, which tells its registers.

    Args:
        fn: a function or module, compiled or plain; what it has compiled so far is
            not touched.
        target: ``"sm_70"`` or later.

    Raises:
        ValueError: the target is not known.
        TypeError: ``fn`` cannot be called.
        Whatever ``fn`` raises.
    """
    from framejit import _api

    architecture_of(target)
    plain = _api._plain(fn, "kernels")
    # Not interned: what this compiles goes with the object.
    key = _C.CompileOptions("native", False, None)
    compiled = _api._compile_with(plain, key)
    found: list[Kernels] = []
    collect(target, lambda: compiled(*args, **kwargs), found)
    return found[0]
