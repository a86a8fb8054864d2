"""What objects are called: in names of nodes, in listings, in generated code."""

from __future__ import annotations

import builtins
import inspect
import keyword
import math
import re
import types
import unicodedata
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

import framejit.fx._pytree as fx_pytree
from framejit._C import _fx


class Builtin(NamedTuple):
    """A global that all generated code has, since reprs of arguments name it."""

    import_text: str
    object: Any


BUILTINS: dict[str, Builtin] = {
    "inf": Builtin("from math import inf", math.inf),
    "nan": Builtin("from math import nan", math.nan),
    "NoneType": Builtin("NoneType = type(None)", type(None)),
    "torch": Builtin("import torch", torch),
    "device": Builtin("from torch import device", torch.device),
    "fx_pytree": Builtin("import framejit.fx._pytree as fx_pytree", fx_pytree),
    "pytree": Builtin("import torch.utils._pytree as pytree", pytree),
}

_RESERVED: dict[str, Any] = {
    **{name: object() for name in keyword.kwlist},
    **{name: value for name, value in vars(builtins).items() if value is not None},
    **{name: row.object for name, row in BUILTINS.items()},
}
_fx.reserve_names(list(_RESERVED))


class Namespace:
    """Unique names of generated code: each object has one, and each name one.

    Names of keywords and builtins are given only to the builtins themselves.
    """

    def __init__(self) -> None:
        #: The names that were given.
        self.unique = _fx.Names()
        self._known: dict[Any, str] = {}

    def create_name(self, candidate: str, obj: Any = None) -> str:
        """The name of `obj`, made from `candidate` where it has none yet."""
        if obj is None:
            return self.unique.create(candidate)
        known = self._known.get(obj)
        if known is None:
            own = _RESERVED.get(candidate, self) is obj
            known = self._known[obj] = self.unique.create(candidate, own)
        return known


def type_repr(obj: Any) -> str:
    """A type as an annotation shows it."""
    if isinstance(obj, type) and not isinstance(obj, types.GenericAlias):
        if obj.__module__ == "builtins":
            return obj.__qualname__
        return f"{obj.__module__}.{obj.__qualname__}"
    if obj is ...:
        return "..."
    return obj.__name__ if isinstance(obj, types.FunctionType) else repr(obj)


def _is_method_of_tensor(function: Any, name: str) -> bool:
    if isinstance(function, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return function is getattr(torch.Tensor, name, None)
    return bool(
        function.__module__ == "torch._tensor"
        and function.__qualname__ == f"Tensor.{name}"
    )


def _module_of(function: Any) -> str:
    module = function.__module__
    if module is not None:
        return str(module)
    name = function.__name__
    for guess in (torch, torch.nn.functional):
        if getattr(guess, name, None) is function:
            return guess.__name__
    raise RuntimeError(f"cannot find module for {function}")


def qualified_name(function: Any) -> str:
    """The dotted name by which generated code calls a function."""
    name = function.__name__
    if getattr(builtins, name, None) is function:
        return str(name)
    if _is_method_of_tensor(function, name):
        return f"torch.Tensor.{name}"
    if name == "<lambda>":
        try:  # what it is assigned to
            name = inspect.getsource(function).split("=")[0].strip()
        except Exception as error:
            raise RuntimeError("Unable to represent lambda") from error
    # torch says that its operators live where their classes do.
    module = _module_of(function).replace("torch._ops", "torch.ops")
    if module == "torch" and name == "segment_reduce":
        name = "_" + name
    if module == "torch.nn.functional" and name in ("_ScalingType", "_SwizzleType"):
        name = name[1:]
    return f"{module}.{name}"


_FROM_TORCH = re.compile(r"torch(\.(?!_dynamo\.|_inductor\.)[^.]+)*")


def is_from_torch(obj: Any) -> bool:
    """Can code that imports torch alone name it?"""
    module = getattr(obj, "__module__", None)
    if module is not None:
        return _FROM_TORCH.fullmatch(module) is not None
    name = getattr(obj, "__name__", None)
    return (
        name is not None
        and name != "torch"
        and any(
            getattr(guess, name, None) is obj for guess in (torch, torch.nn.functional)
        )
    )


def target_text(target: Any) -> str:
    """A target as listings show it: ``operator.add``, ``torch.relu``."""
    if isinstance(target, str):
        return target
    home = {"builtins": "builtins", "_operator": "operator"}.get(
        getattr(target, "__module__", None) or ""
    )
    name = getattr(target, "__name__", None)
    return f"{home}.{name}" if home and name else qualified_name(target)


def is_name(text: Any) -> bool:
    """Can source name something so, and does it then read the very same name?"""
    return (
        isinstance(text, str)
        and text.isidentifier()
        and not keyword.iskeyword(text)
        and unicodedata.normalize("NFKC", text) == text
    )


_PLAIN = re.compile(r"\w+")


def is_odd_path(path: str) -> bool:
    """Has it a part that is written neither as it is nor in plain quotes?"""
    return not all(
        part.isascii() and _PLAIN.fullmatch(part) and not keyword.iskeyword(part)
        for part in path.split(".")
    )


def target_attribute(base: str, path: str) -> str:
    """An expression for the attribute at a dotted path of `base`."""
    for part in path.split("."):
        if is_name(part):
            base = f"{base}.{part}"
        elif _PLAIN.fullmatch(part):
            base = f'getattr({base}, "{part}")'
        else:
            base = f"getattr({base}, {part!r})"
    return base
