"""The inputs of a trace: placeholders for the parameters of the traced function."""

from __future__ import annotations

import enum
import inspect
import types
from collections.abc import Callable
from typing import Any

import torch
from torch.utils import _pytree as pytree

from framejit.fx._checks import check_answer, check_value, path_to
from framejit.fx._codegen import PyTreeCodeGen, PyTreeInfo
from framejit.fx.node import has_side_effect
from framejit.fx.proxy import Proxy, TracerBase, refused

__all__ = ["PH", "RootArguments"]


class _Input:
    """In ``concrete_args``: this is an input of the graph."""

    def __repr__(self) -> str:
        return "PH"


PH = _Input()
# What is checked by its value; other objects by where an import finds them.
_COMPARED = (
    *(bool, int, float, complex, str, torch.Tensor, enum.Enum),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)


class RootArguments(TracerBase):
    """What a tracer does before the program runs."""

    root: Any

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,
        concrete_args: dict[str, Any] | tuple[Any, ...] | None = None,
    ) -> tuple[Callable[..., Any], list[Any]]:
        """Placeholders for the parameters, and what to call with them."""
        function = inspect.unwrap(root_fn)
        code = function.__code__
        count = code.co_argcount + code.co_kwonlyargcount
        names = list(code.co_varnames[:count])
        if is_module and not names:
            raise RuntimeError("``self`` argument cannot be part of *args expansion!")
        own = [self.root] if is_module else []
        taken = names[len(own) :]
        if isinstance(concrete_args, tuple):
            if len(concrete_args) != len(taken):
                raise RuntimeError(
                    f"Tracing expected {len(taken)} arguments but got "
                    f"{len(concrete_args)} concrete arguments"
                )
            concrete_args = dict(zip(taken, concrete_args, strict=True))
        concrete = concrete_args or {}
        parameters = _parameters_of(function)
        inputs = [self._input(name, parameters[name], concrete) for name in taken]
        positional = inputs[: code.co_argcount - len(own)]
        keyword = names[code.co_argcount :]

        rest = iter(code.co_varnames[count:])
        stars: list[Any] = []
        if code.co_flags & inspect.CO_VARARGS:
            stars.append(self._star("*" + next(rest)))
        if code.co_flags & inspect.CO_VARKEYWORDS:
            stars.append(self._star("**" + next(rest)))

        def call(*args: Any) -> Any:
            args, more = args[: len(args) - len(stars)], args[len(args) - len(stars) :]
            plain = args[: len(own) + len(positional)]
            named = dict(zip(keyword, args[len(plain) :], strict=True))
            if more:
                return _call_with_stars(function, plain, named, more)
            return root_fn(*plain, **named)

        args = [*own, *inputs, *stars]
        if not concrete:
            return call, args
        leaves, spec = pytree.tree_flatten(tuple(args))
        if all(child.is_leaf() for child in spec.children()):
            return call, args
        self.graph.set_codegen(PyTreeCodeGen(PyTreeInfo(names, spec, None)))
        return self._flattened(call, spec), leaves

    def _flattened(self, call: Callable[..., Any], spec: Any) -> Any:
        def flat(*leaves: Any) -> list[Any]:
            result = call(*pytree.tree_unflatten(list(leaves), spec))
            out, out_spec = pytree.tree_flatten(result)
            codegen: Any = self.graph._codegen
            codegen.pytree_info = codegen.pytree_info._replace(out_spec=out_spec)
            return out

        return flat

    def _star(self, name: str) -> Proxy:
        return self.create_proxy("placeholder", name, (), {})

    def _input(
        self, name: str, parameter: tuple[Any, Any], concrete: dict[str, Any]
    ) -> Any:
        """A placeholder; where the value is given, one for each leaf of it."""
        given, typed = parameter
        default = () if given is inspect.Parameter.empty else (given,)
        if name not in concrete:
            typed = None if typed is inspect.Parameter.empty else typed
            return self.create_proxy("placeholder", name, default, {}, None, typed)
        number = 0

        def leaf(value: Any) -> Any:
            nonlocal number
            number += 1
            made = self.create_proxy("placeholder", f"{name}_{number}", default, {})
            if isinstance(value, _Input):
                return made
            self._check_value(made, name, value)
            return value

        return pytree.tree_map(leaf, concrete[name])

    def _check_value(self, made: Proxy, name: str, value: Any) -> None:
        """The generated function checks that an argument is what was given."""
        text = (
            f"{name} has been specialized to have value {value} but got another value"
        )
        if value is None:
            self.create_proxy("call_function", _assert_is_none, (made, text), {})
            return
        if type(value) is str:
            same: Any = made == value  # type: ignore[comparison-overlap]
            self.create_proxy("call_function", torch._assert, (same, text), {})
        elif isinstance(value, _COMPARED):  # 1 == 1.0 == True, 0.0 == -0.0
            check_value(made, value, text)
        elif path := path_to(value):
            check_answer(made, "is at", path, True, text)
        else:
            raise refused(
                f"no graph can check that {name} is {value!r}, a "
                f"{type(value).__name__} in concrete_args",
                "give it to the program by functools.partial",
            )


def _parameters_of(function: Any) -> dict[str, tuple[Any, Any]]:
    """The default and the annotation of each parameter."""
    none = inspect.Parameter.empty
    if type(function) is not types.FunctionType or function.__dict__:
        return {
            name: (parameter.default, parameter.annotation)
            for name, parameter in inspect.signature(function).parameters.items()
        }
    # What inspect.signature() would find, which takes long to say so.
    code, defaults = function.__code__, function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    first = code.co_argcount - len(defaults)
    given = dict(zip(names[first : code.co_argcount], defaults, strict=True))
    given |= function.__kwdefaults__ or {}
    typed = function.__annotations__
    return {name: (given.get(name, none), typed.get(name, none)) for name in names}


def _call_with_stars(
    function: Any, args: tuple[Any, ...], named: dict[str, Any], stars: Any
) -> Any:
    """Call a function whose ``*args`` and ``**kwargs`` are the proxies given.

    What it does with them as a whole is recorded; how many there are is unknown.
    """
    code = function.__code__
    flags = code.co_flags & ~(inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    count = code.co_argcount + code.co_kwonlyargcount + len(stars)
    plain = types.FunctionType(
        code.replace(
            co_flags=flags, co_argcount=count, co_kwonlyargcount=0, co_posonlyargcount=0
        ),
        function.__globals__,
        function.__name__,
        None,
        function.__closure__,
    )
    return plain(*args, *named.values(), *stars)


@has_side_effect
def _assert_is_none(value: Any, message: str) -> None:
    if isinstance(value, Proxy):  # a graph that is traced again
        args = (value, message)
        value.tracer.create_proxy("call_function", _assert_is_none, args, {})
        return
    assert value is None, message


# Where graphs that were pickled or written to a folder name it.
_assert_is_none.__module__ = "framejit.fx._symbolic_trace"
