"""What the inputs and outputs of an exported graph are: ``torch.export``'s classes,
with the same names, fields and meanings."""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

__all__ = [
    "ArgumentSpec",
    "ConstantArgument",
    "ExportGraphSignature",
    "InputKind",
    "InputSpec",
    "OutputKind",
    "OutputSpec",
    "SymBoolArgument",
    "SymFloatArgument",
    "SymIntArgument",
    "TensorArgument",
]


@dataclasses.dataclass
class TensorArgument:
    """A tensor: the node of that name."""

    name: str


@dataclasses.dataclass
class SymIntArgument:
    """An int that differs from call to call: the node of that name."""

    name: str


@dataclasses.dataclass
class SymFloatArgument:
    name: str


@dataclasses.dataclass
class SymBoolArgument:
    name: str


@dataclasses.dataclass
class ConstantArgument:
    """A value of Python that is the same in every call."""

    name: str
    value: int | float | bool | str | None


ArgumentSpec = (
    TensorArgument
    | SymIntArgument
    | SymFloatArgument
    | SymBoolArgument
    | ConstantArgument
)


class InputKind(enum.Enum):
    USER_INPUT = enum.auto()
    PARAMETER = enum.auto()
    BUFFER = enum.auto()
    CONSTANT_TENSOR = enum.auto()
    CUSTOM_OBJ = enum.auto()
    TOKEN = enum.auto()


class OutputKind(enum.Enum):
    USER_OUTPUT = enum.auto()
    LOSS_OUTPUT = enum.auto()
    BUFFER_MUTATION = enum.auto()
    PARAMETER_MUTATION = enum.auto()
    GRADIENT_TO_PARAMETER = enum.auto()
    GRADIENT_TO_USER_INPUT = enum.auto()
    USER_INPUT_MUTATION = enum.auto()
    TOKEN = enum.auto()


def _described(name: str, kind: enum.Enum, target: str | None) -> str:
    return f"{name}: {kind.name}" + (f" target='{target}'" if target else "")


@dataclasses.dataclass
class InputSpec:
    """One placeholder: what it is, and for parameters, buffers and constants the path
    of what it stands for. ``persistent``: of a buffer, is it in the state dict?"""

    kind: InputKind
    arg: ArgumentSpec
    target: str | None
    persistent: bool | None = None

    def __post_init__(self) -> None:
        if self.kind is InputKind.BUFFER and self.persistent is None:
            raise ValueError(f"the buffer {self.target} is persistent or is not")

    def __str__(self) -> str:
        text = _described(self.arg.name, self.kind, self.target)
        return text + (
            f" persistent={self.persistent}" if self.persistent is not None else ""
        )


@dataclasses.dataclass
class OutputSpec:
    """One value that the graph returns; of a mutation, the path (or the name of the
    input) of what gets it."""

    kind: OutputKind
    arg: ArgumentSpec
    target: str | None

    def __str__(self) -> str:
        return _described(self.arg.name, self.kind, self.target)


@dataclasses.dataclass
class ExportGraphSignature:
    """All placeholders (parameters, buffers, constants, inputs of the caller, in this
    order) and all outputs (what was written to, then what the caller gets)."""

    input_specs: list[InputSpec]
    output_specs: list[OutputSpec]

    def _targets(self, kind: InputKind) -> tuple[str, ...]:
        return tuple(
            spec.target
            for spec in self.input_specs
            if spec.kind is kind and spec.target
        )

    def _by_name(self, kind: InputKind) -> Mapping[str, str]:
        return {
            spec.arg.name: spec.target
            for spec in self.input_specs
            if spec.kind is kind and spec.target
        }

    def _written(self, kind: OutputKind) -> Mapping[str, str]:
        return {
            spec.arg.name: spec.target
            for spec in self.output_specs
            if spec.kind is kind and spec.target
        }

    @property
    def parameters(self) -> tuple[str, ...]:
        return self._targets(InputKind.PARAMETER)

    @property
    def buffers(self) -> tuple[str, ...]:
        return self._targets(InputKind.BUFFER)

    @property
    def non_persistent_buffers(self) -> tuple[str, ...]:
        return tuple(
            spec.target
            for spec in self.input_specs
            if spec.kind is InputKind.BUFFER and not spec.persistent and spec.target
        )

    @property
    def lifted_tensor_constants(self) -> tuple[str, ...]:
        return self._targets(InputKind.CONSTANT_TENSOR)

    @property
    def lifted_custom_objs(self) -> tuple[str, ...]:
        return self._targets(InputKind.CUSTOM_OBJ)

    @property
    def user_inputs(self) -> tuple[Any, ...]:
        return tuple(
            spec.arg.value if isinstance(spec.arg, ConstantArgument) else spec.arg.name
            for spec in self.input_specs
            if spec.kind is InputKind.USER_INPUT
        )

    @property
    def user_outputs(self) -> tuple[Any, ...]:
        return tuple(
            spec.arg.value if isinstance(spec.arg, ConstantArgument) else spec.arg.name
            for spec in self.output_specs
            if spec.kind in (OutputKind.USER_OUTPUT, OutputKind.LOSS_OUTPUT)
        )

    @property
    def inputs_to_parameters(self) -> Mapping[str, str]:
        return self._by_name(InputKind.PARAMETER)

    @property
    def inputs_to_buffers(self) -> Mapping[str, str]:
        return self._by_name(InputKind.BUFFER)

    @property
    def inputs_to_lifted_tensor_constants(self) -> Mapping[str, str]:
        return self._by_name(InputKind.CONSTANT_TENSOR)

    @property
    def inputs_to_lifted_custom_objs(self) -> Mapping[str, str]:
        return self._by_name(InputKind.CUSTOM_OBJ)

    @property
    def buffers_to_mutate(self) -> Mapping[str, str]:
        return self._written(OutputKind.BUFFER_MUTATION)

    @property
    def parameters_to_mutate(self) -> Mapping[str, str]:
        return self._written(OutputKind.PARAMETER_MUTATION)

    @property
    def user_inputs_to_mutate(self) -> Mapping[str, str]:
        return self._written(OutputKind.USER_INPUT_MUTATION)

    def __str__(self) -> str:
        lines = ["# inputs", *map(str, self.input_specs)]
        lines += ["", "# outputs", *map(str, self.output_specs)]
        return "\n".join(lines) + "\n"
