"""``save`` and ``load``: programs as ``.pt2`` files, as torch.export has them.

No pickle is read but that of tensors in containers, by torch's own safe loader.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Collection
from typing import IO, Any

import torch
from torch import nn

from framejit.export._constraints import Fact
from framejit.export._objects import Objects
from framejit.export._read import read_program, tensor_value
from framejit.export._schema import FileError, python_text
from framejit.export._values import TensorValue
from framejit.export._write import tensor_meta, write_program
from framejit.export.exported_program import ExportedProgram

__all__ = ["load", "save"]

_File = str | os.PathLike[str] | IO[bytes]
_MODEL = "models/model.json"
_WEIGHTS = ("data/weights/", "weight_", "data/weights/model_weights_config.json")
_CONSTANTS = (
    *("data/constants/", "tensor_"),
    "data/constants/model_constants_config.json",
)
_EXAMPLE = "data/sample_inputs/model.pt"
_EXTRA = "extra/"
# All comparisons of sizes, with the lines that made them. (Of those that torch.export
# has words for, it checks the model's own.)
_FACTS = "extra/framejit_facts.json"
_OBJECTS = "extra/framejit_objects.json"


def _bytes_of(tensor: torch.Tensor) -> bytes:
    """What its storage has, all of it."""
    storage = tensor.detach().cpu().untyped_storage()
    if storage.nbytes() == 0:
        return b""
    flat = torch.empty(0, dtype=torch.uint8).set_(storage, 0, (storage.nbytes(),), (1,))
    return flat.numpy().tobytes()


def _write_tensors(
    writer: Any, tensors: dict[str, torch.Tensor], where: tuple[str, str, str]
) -> None:
    """Tensors that share memory share it in the file."""
    folder, prefix, config = where
    files: dict[tuple[int, torch.device], str] = {}
    rows: dict[str, Any] = {}
    for path, tensor in tensors.items():
        plain = (torch.Tensor, nn.Parameter, nn.Buffer)
        if type(tensor) not in plain or tensor.layout is not torch.strided:
            raise FileError(
                f"{path} is a {type(tensor).__name__} of layout {tensor.layout}: a "
                "file has plain, strided tensors"
            )
        data = tensor.untyped_storage().data_ptr()
        key = (data or id(tensor), tensor.device)
        if key not in files:
            files[key] = f"{prefix}{len(files)}"
            whole = _bytes_of(tensor)
            writer.write_record(folder + files[key], whole, len(whole))
        rows[path] = {
            "path_name": files[key],
            "is_param": isinstance(tensor, nn.Parameter),
            "use_pickle": False,
            "tensor_meta": tensor_meta(TensorValue.of(tensor)),
        }
    _write_text(writer, config, json.dumps({"config": rows}))


def _write_text(writer: Any, name: str, text: str) -> None:
    data = text.encode()
    writer.write_record(name, data, len(data))


def _floats(value: Any) -> Any:
    """JSON has no infinities."""
    if isinstance(value, dict):
        return {key: _floats(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_floats(item) for item in value]
    if isinstance(value, float):
        if value != value:
            return "NaN"
        if value in (float("inf"), float("-inf")):
            return "Infinity" if value > 0 else "-Infinity"
    return value


def _example(program: ExportedProgram) -> bytes:
    """The example inputs as torch's safe loader reads them; b"": it could not."""
    if program.example_inputs is None:
        return b""
    buffer = io.BytesIO()
    try:
        torch.save(program.example_inputs, buffer)
        buffer.seek(0)
        torch.load(buffer, weights_only=True)
    except Exception:  # a class of the program's in them
        return b""
    return buffer.getvalue()


def save(
    ep: ExportedProgram,
    f: _File,
    *,
    extra_files: dict[str, str] | None = None,
    opset_version: dict[str, int] | None = None,
) -> None:
    """Write a program to a file that `load` and ``torch.export.load`` read.

    f: a path, or something to write bytes to.
    extra_files: further texts, by name.
    opset_version: versions of operator sets to note.

    Raises:
        FileError: the program has something that no file has.
    """
    if not isinstance(ep, ExportedProgram):
        raise TypeError(
            "framejit.export.save: expected an ExportedProgram, got "
            f"{type(ep).__name__}"
        )
    row = write_program(ep)
    row["opset_version"].update(opset_version or {})
    text = json.dumps(_floats(row), allow_nan=False)
    target = io.BytesIO()
    writer = torch._C.PyTorchFileWriter(target)
    writer.set_min_version(6)
    _write_tensors(writer, ep.state_dict, _WEIGHTS)
    _write_tensors(writer, ep.constants, _CONSTANTS)
    _write_text(writer, _MODEL, text)
    example = _example(ep)
    writer.write_record(_EXAMPLE, example, len(example))
    for name, content in (extra_files or {}).items():
        _write_text(writer, _EXTRA + name, content)
    _write_text(writer, _FACTS, json.dumps([list(fact) for fact in ep.facts]))
    _write_text(writer, _OBJECTS, json.dumps(ep.objects._asdict()))
    _write_text(writer, "archive_format", "pt2")
    _write_text(writer, "archive_version", "0")
    writer.write_end_of_file()
    if isinstance(f, (str, os.PathLike)):
        with open(f, "wb") as file:
            file.write(target.getbuffer())
    else:
        f.write(target.getvalue())


def _read_tensors(
    reader: Any, names: set[str], where: tuple[str, str, str]
) -> dict[str, torch.Tensor]:
    folder, _, config = where
    if config not in names:
        raise FileError(f"the file has no {config}")
    rows = json.loads(reader.get_record(config))["config"]
    memories: dict[str, torch.Tensor] = {}
    tensors: dict[str, torch.Tensor] = {}
    for path, row in rows.items():
        if row["use_pickle"]:
            raise FileError(
                f"{path} is pickled (a custom class, or a subclass of Tensor): that "
                "would run code of the file's, and is not read"
            )
        value = tensor_value(row["tensor_meta"])
        file = folder + str(row["path_name"])
        if file not in names:
            raise FileError(f"the file has no {file}")
        memory = memories.get(file)
        if memory is None:
            data = bytearray(reader.get_record(file))
            memory = (
                torch.frombuffer(data, dtype=torch.uint8)
                if data
                else torch.empty(0, dtype=torch.uint8)
            ).to(value.device)
            memories[file] = memory
        tensors[path] = _tensor_in(memory, value, path, bool(row["is_param"]))
    return tensors


def _tensor_in(
    memory: torch.Tensor, value: TensorValue, path: str, is_parameter: bool
) -> torch.Tensor:
    sizes = [size for size in value.shape if isinstance(size, int)]
    strides = [stride for stride in value.strides if isinstance(stride, int)]
    offset = value.storage_offset
    if len(sizes) != len(value.shape) or len(strides) != len(sizes):
        raise FileError(f"{path} has no shape of its own")
    if not isinstance(offset, int) or min((*sizes, *strides, offset), default=0) < 0:
        raise FileError(f"{path} lies outside of its memory")
    made = torch.empty(0, dtype=value.dtype, device=value.device)
    if 0 in sizes:
        made = torch.empty_strided(
            sizes, strides, dtype=value.dtype, device=value.device
        )
    else:
        last = offset + sum(
            (n - 1) * step for n, step in zip(sizes, strides, strict=True)
        )
        if (last + 1) * made.element_size() > memory.numel():
            raise FileError(f"{path} lies outside of its memory")
        made.set_(memory.untyped_storage(), offset, sizes, strides)
    if is_parameter:
        return nn.Parameter(made, requires_grad=value.requires_grad)
    return made.requires_grad_(value.requires_grad)


def load(
    f: _File,
    *,
    extra_files: dict[str, Any] | None = None,
    expected_opset_version: dict[str, int] | None = None,
    custom_ops: Collection[str] = (),
) -> ExportedProgram:
    """A program that `save`, or ``torch.export.save``, wrote.

    f: a path, or something to read bytes from.
    extra_files: names of further texts to read: their values are put in.
    expected_opset_version: by operator set; another one in the file is an error.
    custom_ops: operators of extensions that the file may call (``"library::name"``),
        which are registered already. Of torch's own, it may call those that compute.

    Raises:
        FileError: no such file, another version, or something that is not read.
    """
    if isinstance(f, (str, os.PathLike)) and not os.path.exists(f):
        raise FileNotFoundError(f"no such file: {os.fspath(f)}")
    try:
        return _loaded(f, extra_files, expected_opset_version, custom_ops)
    except (FileError, OSError):
        raise
    except (Exception, RecursionError) as error:
        raise FileError(f"no .pt2 file, or a damaged one: {error!r}"[:300]) from error


def _loaded(
    f: _File,
    extra_files: dict[str, Any] | None,
    expected_opset_version: dict[str, int] | None,
    custom_ops: Collection[str],
) -> ExportedProgram:
    if isinstance(f, (str, os.PathLike)):
        reader = torch._C.PyTorchFileReader(os.fspath(f))
    else:
        reader = torch._C.PyTorchFileReader(io.BytesIO(f.read()))  # type: ignore[arg-type]
    names = set(reader.get_all_records())
    if _MODEL not in names:
        raise FileError(
            f"no exported program: the file has no {_MODEL} (it has "
            f"{', '.join(sorted(names)[:5])})"
        )
    row = json.loads(reader.get_record(_MODEL))
    for name, version in (expected_opset_version or {}).items():
        found = row.get("opset_version", {}).get(name)
        if found != version:
            raise FileError(f"the operator set {name} is of version {found}")
    example = None
    if _EXAMPLE in names and (data := reader.get_record(_EXAMPLE)):
        try:
            example = torch.load(io.BytesIO(data), weights_only=True)
        except Exception:
            example = None  # of a class that is not trusted: it is an example only
    for name in extra_files or {}:
        assert extra_files is not None
        if _EXTRA + name in names:
            extra_files[name] = reader.get_record(_EXTRA + name).decode()
    state = _read_tensors(reader, names, _WEIGHTS)
    constants = _read_tensors(reader, names, _CONSTANTS)
    program = read_program(row, state, constants, example, custom_ops)
    if _FACTS in names:
        program.facts = _facts(json.loads(reader.get_record(_FACTS)))
    if _OBJECTS in names:
        program.objects = _objects(json.loads(reader.get_record(_OBJECTS)))
    return program


def _objects(row: Any) -> Objects:
    parameters = row["parameters"]
    return Objects(
        None if parameters is None else tuple(map(int, parameters)),
        tuple((int(one), int(other)) for one, other in row["distinct"]),
        tuple(map(str, row["keywords"])),
    )


def _facts(rows: Any) -> list[Fact]:
    facts = []
    for text, place, cause in rows:
        if place is not None:
            file, line, name = place
            place = (str(file), int(line), str(name))
        facts.append(Fact(python_text(text), place, cause and str(cause)))
    return facts
