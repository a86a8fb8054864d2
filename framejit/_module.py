"""``compile(module)``: an instance of the module's own kind whose calls are compiled.

The result is an instance of a subclass (same name) of the module's class, over
the same ``__dict__``: parameters, buffers, hooks, ``train()`` and ``to()`` are
those of the original, whose own calls stay eager. Copying or pickling gives the
plain module. Kinds for which that cannot work get a `CompiledModule`, which
forwards.
"""

from __future__ import annotations

import copy
import copyreg
import weakref
from typing import Any

import torch

from framejit import _C

# Equal modules compiled with equal options share a subclass, so the guards on
# its type, and with them their cache entries, are shared.
_subclasses: weakref.WeakKeyDictionary[
    _C.CompileOptions, weakref.WeakKeyDictionary[type, type]
] = weakref.WeakKeyDictionary()


def _plain(module: torch.nn.Module, plain_class: Any) -> torch.nn.Module:
    plain: torch.nn.Module = plain_class.__new__(plain_class)
    plain.__dict__ = module.__dict__
    return plain


def _subclass(cls: type, key: _C.CompileOptions) -> type:
    by_class = _subclasses.setdefault(key, weakref.WeakKeyDictionary())
    found = by_class.get(cls)
    if found is not None:
        return found
    call = cls.__call__
    if isinstance(call, _C.CompiledFunction):
        call = call.__wrapped__

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        return call(self, *args, **kwargs)

    # Reports name the class of the program.
    __call__.__qualname__ = name = f"{cls.__qualname__}.__call__"
    __call__.__code__ = __call__.__code__.replace(co_qualname=name)

    def __reduce_ex__(self: Any, protocol: int) -> Any:
        reduced = _plain(self, cls).__reduce_ex__(protocol)
        if reduced[0] is copyreg.__newobj__ and reduced[1] == (cls,):  # type: ignore[attr-defined]
            # pickle insists that __newobj__ makes the class of the object at
            # hand, which is the subclass; this makes the same object.
            reconstruct = copyreg._reconstructor  # type: ignore[attr-defined]
            return (reconstruct, (cls, object, None), *reduced[2:])
        return reduced

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        return copy.deepcopy(_plain(self, cls), memo)

    compiled = _C.compile_function(__call__, key)
    namespace: dict[str, Any] = {
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__call__": compiled,
        "__framejit_call__": compiled,
        "__framejit_class__": cls,
        "__reduce_ex__": __reduce_ex__,
    }
    if "__deepcopy__" in dir(cls):
        namespace["__deepcopy__"] = __deepcopy__
    subclass = type(cls)(cls.__name__, (cls,), namespace)
    by_class[cls] = subclass
    return subclass


def _needs_forwarding(module: torch.nn.Module) -> bool:
    if isinstance(module, (torch.jit.ScriptModule, torch.jit.ScriptFunction)):
        return True
    if isinstance(module, torch.nn.parallel.DistributedDataParallel):
        return True
    # Becomes another class at its first call, which would lose ours.
    if isinstance(module, torch.nn.modules.lazy.LazyModuleMixin):
        return True
    cls = type(module)
    # Slots hold state outside the shared __dict__.
    if any(
        slot not in ("__dict__", "__weakref__")
        for base in cls.__mro__
        for slot in _slots(base)
    ):
        return True
    # A metaclass or __init_subclass__ may refuse or register subclasses.
    return type(cls) is not type or "__init_subclass__" in {
        name for base in cls.__mro__[:-1] for name in vars(base)
    }


def _slots(cls: type) -> tuple[str, ...]:
    slots = vars(cls).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


class CompiledModule(torch.nn.Module):
    """Forwards everything to a module whose class cannot be subclassed safely."""

    def __init__(self, module: torch.nn.Module, key: _C.CompileOptions) -> None:
        object.__setattr__(self, "_framejit_module", module)

        def forward(*args: Any, **kwargs: Any) -> Any:
            return module(*args, **kwargs)

        object.__setattr__(self, "_framejit_call", _C.compile_function(forward, key))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._framejit_call(*args, **kwargs)

    def __getattribute__(self, name: str) -> Any:
        if name in ("_framejit_module", "_framejit_call", "__class__", "__reduce_ex__"):
            return object.__getattribute__(self, name)
        return getattr(object.__getattribute__(self, "_framejit_module"), name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._framejit_module, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._framejit_module, name)

    def __dir__(self) -> list[str]:
        return dir(self._framejit_module)

    def __repr__(self) -> str:
        return repr(self._framejit_module)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._framejit_module.__reduce_ex__(protocol)


def forwarding_call(module: torch.nn.Module) -> _C.CompiledFunction | None:
    """What a forwarding object compiled; None for other modules."""
    if not isinstance(module, CompiledModule):
        return None
    call: _C.CompiledFunction = object.__getattribute__(module, "_framejit_call")
    return call


def compile_module(module: torch.nn.Module, key: _C.CompileOptions) -> torch.nn.Module:
    """See the top of this file."""
    cls = getattr(type(module), "__framejit_class__", type(module))
    if isinstance(module, CompiledModule):
        module = object.__getattribute__(module, "_framejit_module")
        cls = type(module)
    if _needs_forwarding(module):
        return CompiledModule(module, key)
    compiled: torch.nn.Module = object.__new__(_subclass(cls, key))
    compiled.__dict__ = module.__dict__
    return compiled
