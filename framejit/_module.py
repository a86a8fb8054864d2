"""``compile(module)``: an object beside the module whose calls are compiled.

It is an instance of a subclass (same name) of the module's class, over the same
``__dict__``, and follows the module: what is read, written or called on it is
read, written or called on the module, which stays eager itself. Methods see the
compiled object as ``self`` (``compiled.eval()`` is ``compiled``); ``compiled.forward``
is compiled, other methods run as they are. Copying or
pickling gives the plain module. `frame_hook/follower.h` does the work; this file
makes the classes.
"""

from __future__ import annotations

import dis
import types
import weakref
from typing import Any, TypeVar

import torch

from framejit import _C
from framejit._weak_tables import WeakKeyTable, WeakValueTable

_M = TypeVar("_M", bound=torch.nn.Module)

# The code that calls a module of a class; entries live with it. Compiled calls
# (compile) and calls that are compiled in place differ.
_codes: WeakKeyTable[type, tuple[types.CodeType, types.CodeType]] = WeakKeyTable()
# Likewise, of modules with a forward of their own, by that.
_own_codes: WeakKeyTable[types.FunctionType, tuple[types.CodeType, types.CodeType]] = (
    WeakKeyTable()
)
# Likewise, of modules whose forward is no Python code, by the name it goes by.
_script_codes: dict[str, tuple[types.CodeType, types.CodeType]] = {}
# Equal modules compiled with equal options share a class. Weak: it holds the
# module's class.
_classes: WeakKeyTable[_C.CompileOptions, WeakValueTable[type]] = WeakKeyTable()


def _code(cls: type, in_place: bool) -> types.CodeType:
    found = _codes.get(cls)
    if found is None:

        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            return module(*args, **kwargs)

        def call_in_place(module: Any, *args: Any, **kwargs: Any) -> Any:
            return module._call_impl(*args, **kwargs)

        name = f"{cls.__qualname__}.__call__"
        first, second = (
            f.__code__.replace(co_name="__call__", co_qualname=name)
            for f in (call, call_in_place)
        )
        for code in (first, second):
            _C.stand_for(code, cls, 1)  # reports speak of the class's forward
        found = _codes[cls] = first, second
    return found[in_place]


def _code_of_script(module: torch.jit.ScriptModule) -> tuple[types.CodeType, ...]:
    """What is called has no line: messages name the class that was scripted."""
    name = str(module.original_name)
    found = _script_codes.get(name)
    if found is None:
        cls = type(module)
        first, second = (
            _code(cls, in_place).replace(
                co_name="forward",
                co_qualname=f"{name}.forward",
                co_filename=f"<torch.jit.ScriptModule {name}>",
                co_firstlineno=0,
            )
            for in_place in (False, True)
        )
        found = _script_codes[name] = first, second
    return found


def _code_for(module: torch.nn.Module, in_place: bool) -> types.CodeType:
    """As the class's; one of its own where reports speak of another forward."""
    cls = type(module)
    if isinstance(module, torch.jit.ScriptModule):
        return _code_of_script(module)[in_place]
    forward = module.__dict__.get("forward")
    first = int(isinstance(forward, types.MethodType))
    forward = getattr(forward, "__func__", forward)
    if not isinstance(forward, types.FunctionType):
        return _code(cls, in_place)
    found = _own_codes.get(forward)
    if found is None:
        found = _code(cls, False).replace(), _code(cls, True).replace()
        for code in found:
            _C.stand_for(code, forward, first)
        _own_codes[forward] = found
    return found[in_place]


def _compiled_call(
    cls: type, key: _C.CompileOptions, code: types.CodeType
) -> _C.CompiledFunction:
    function = types.FunctionType(code, globals())
    function.__module__ = cls.__module__
    return _C.compile_function(function, key)


class _Follower:
    """First base of followers: classes that register subclasses see none."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        pass


def _has_state_in_c(cls: type) -> bool:
    """State that is in no ``__dict__``, as a dict has: a follower has its own."""
    for base in cls.__mro__[:-1]:
        members = sum(
            isinstance(value, types.MemberDescriptorType)
            or name in ("__dict__", "__weakref__")
            for name, value in vars(base).items()
        )
        before = base.__base__.__basicsize__ if base.__base__ else 0
        if base.__basicsize__ > before + 8 * members:
            return True
    return False


def _follower_class(cls: type, key: _C.CompileOptions) -> type:
    classes = _classes.get(key)
    if classes is None:
        classes = _classes[key] = WeakValueTable()
    found = classes.get(id(cls))
    if found is not None and found.__dict__["__framejit_class__"]() is cls:
        return found

    def __call__(self: Any, *args: Any, **kwargs: Any) -> Any:
        return self._framejit_call(self._framejit_original, *args, **kwargs)

    namespace = {
        "__slots__": (
            "_framejit_asked",
            "_framejit_call",
            "_framejit_class",
            "_framejit_original",
        ),
        "__module__": cls.__module__,
        "__qualname__": cls.__qualname__,
        "__doc__": cls.__doc__,
        "__call__": __call__,
        "__framejit_class__": weakref.ref(cls),
        "__framejit_options__": key,
    }
    base = torch.nn.Module if _has_state_in_c(cls) else cls
    bases = (base,) if issubclass(base, _Follower) else (_Follower, base)
    # Not through the metaclass, which may register or refuse classes.
    follower = type.__new__(type(base), cls.__name__, bases, namespace)
    _C.make_follower_class(follower)
    classes[id(cls)] = follower
    return follower


def _derive(cls: type, follower: type) -> tuple[type, _C.CompiledFunction]:
    """The original has become an instance of `cls`."""
    key: _C.CompileOptions = follower.__dict__["__framejit_options__"]
    return _follower_class(cls, key), _compiled_call(cls, key, _code(cls, False))


_C.set_follower_deriver(_derive)


def original_of(module: _M) -> _M:
    """The module itself, if it is none that `compile_module` returned."""
    original: _M | None = _C.follower_original(module)
    return module if original is None else original


# Packages whose trainer calls training_step of a LightningModule, and not the
# module.
_TRAINERS = ("lightning", "pytorch_lightning")


def _package(item: Any) -> str:
    return str(item.__module__).partition(".")[0]


def _may_call_itself(cls: type, name: str, seen: set[str]) -> bool:
    """Does the method, or one that it calls on ``self``, do anything with ``self``
    but ask it for attributes?"""
    method = getattr(cls, name, None)
    if name in seen or not isinstance(method, types.FunctionType):
        return False
    seen.add(name)
    if _package(method) in _TRAINERS or not method.__code__.co_argcount:
        return False
    own = method.__code__.co_varnames[0]
    steps = list(dis.get_instructions(method))
    for step, following in zip(steps, steps[1:], strict=False):
        if step.argval != own and not (
            isinstance(step.argval, tuple) and own in step.argval
        ):
            continue
        if following.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            if _may_call_itself(cls, following.argval, seen):
                return True
        elif following.opname != "STORE_ATTR":
            return True
    return False


def _note_trained(module: torch.nn.Module, code: types.CodeType) -> None:
    cls = type(module)
    trained = any(
        base.__name__ == "LightningModule" and _package(base) in _TRAINERS
        for base in cls.__mro__
    )
    if trained and not _may_call_itself(cls, "training_step", set()):
        _C.log_notice(
            "NeverCalled",
            code,
            f"not compiled: {cls.__qualname__}.training_step, which a trainer calls: "
            "only calls of the module itself are compiled, and it makes none\n"
            "  hint: framejit.compile_inplace() of the modules that it calls",
        )


def compile_module(module: _M, key: _C.CompileOptions) -> _M:
    """See the top of this file."""
    original = original_of(module)
    cls = type(original)
    _note_trained(original, _code_for(original, False))
    follower: _M = _C.make_follower(
        _follower_class(cls, key),
        original,
        _compiled_call(cls, key, _code_for(original, False)),
    )
    return follower


def compiled_call_in_place(
    module: torch.nn.Module, key: _C.CompileOptions
) -> types.MethodType:
    """What ``module._compiled_call_impl`` is to be."""
    _note_trained(module, _code_for(module, True))
    call: Any = _compiled_call(type(module), key, _code_for(module, True))
    return types.MethodType(call, module)


def compiled_function_of(module: torch.nn.Module) -> _C.CompiledFunction | None:
    """What calls of the module call; None: nothing that is compiled."""
    if _C.follower_original(module) is not None:
        call: Any = module._framejit_call
        found: _C.CompiledFunction = call
        return found
    in_place = module.__dict__.get("_compiled_call_impl")
    function = getattr(in_place, "__func__", None)
    return function if isinstance(function, _C.CompiledFunction) else None


def forward_code(module: Any) -> types.CodeType | None:
    """The code of a module's forward; None: it is no module, or has no such."""
    if not isinstance(module, torch.nn.Module):
        return None
    forward: Any = original_of(module).forward
    forward = getattr(forward, "__func__", forward)
    forward = getattr(forward, "__framejit_function__", forward)
    return forward.__code__ if isinstance(forward, types.FunctionType) else None
