"""``GraphModule``: a graph that runs, as an ``nn.Module`` with Python source."""

from __future__ import annotations

import copy
import functools
import itertools
import linecache
import os
import sys
import traceback
import warnings
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import nn

from framejit._C import _fx
from framejit.fx._codegen import PythonCode, PyTreeCodeGen
from framejit.fx._names import BUILTINS, is_from_torch
from framejit.fx._places import innermost
from framejit.fx.graph import Graph
from framejit.fx.node import Node

__all__ = ["GraphModule"]

_FILE = "<framejit.fx "
_numbers = itertools.count()


def _function_of(
    source: str, names: dict[str, Any], fields: dict[str, Any]
) -> tuple[Callable[..., Any], str]:
    """The function of some source, and the file that tracebacks say it is in."""
    file = f"{_FILE}{next(_numbers)}>"
    if "co_filename" in fields:
        file += " from {co_filename}:{co_firstlineno} in {co_name}".format(**fields)
    names = dict(names)
    linecache.cache[file] = len(source), None, source.splitlines(True), file
    exec(compile(source, file, "exec", dont_inherit=True), names)
    function: Any = names.pop("forward")
    # The lines stay as long as a traceback may ask for them.
    forget = weakref.finalize(function.__code__, linecache.cache.pop, file, None)
    forget.atexit = False
    return function, file


class _Forward:
    """``forward`` of a class until somebody needs it: compiling takes a while."""

    def __init__(self, code: PythonCode, fields: dict[str, Any]) -> None:
        self._code = code
        self._fields = fields

    def __get__(self, module: Any, cls: Any) -> Any:
        function, file = _function_of(self._code.src, self._code.globals, self._fields)
        cls.forward = function
        cls._file = file
        return function if module is None else function.__get__(module, cls)


def _assign(module: nn.Module, path: str, value: Any) -> None:
    """Put a value at a path, with modules in between as needed."""
    *prefix, name = path.split(".")
    for part in prefix:
        inner = getattr(module, part, None)
        if inner is None:
            inner = nn.Module()
            setattr(module, part, inner)
        module = inner
    if isinstance(value, torch.Tensor) and not isinstance(value, nn.Parameter):
        module.register_buffer(name, value)
    else:
        setattr(module, name, value)


def _copy_attribute(source: Any, module: nn.Module, path: str) -> None:
    """Let `module` have what `source` has at a path; modules on it are new."""
    prefix, name = path.split(".")[:-1], path.split(".")[-1]
    for part in prefix:
        theirs, ours = getattr(source, part), getattr(module, part, None)
        if theirs is ours:
            return  # a parent was taken over whole
        if ours is None:
            ours = nn.Module()
            setattr(module, part, ours)
        source, module = theirs, ours
    _assign(module, name, getattr(source, name))


class GraphModule(nn.Module):
    """A module that computes what a graph says.

    ``code`` is its source, made from ``graph``. After editing the graph call
    :meth:`recompile`; assigning ``graph`` does. The module has copies of the
    references that its graph makes: parameters and submodules of ``root``.

    root: a module, or a dict from the paths that nodes name to what is there.
    class_name: what its class is called.
    """

    _wrapped_call: Any
    _code: str
    _lineno_map: dict[int, int | None]
    _prologue_start: int

    def __new__(cls, *args: Any, **kwargs: Any) -> GraphModule:
        # Each has a class of its own, whose `forward` is its graph's.
        for base in cls.__mro__:
            if not base.__dict__.get("_is_own_class"):
                break
        made = type(base.__name__, (base,), {"_is_own_class": True})
        made.__module__ = base.__module__
        found: GraphModule = nn.Module.__new__(made)
        return found

    def __init__(
        self,
        root: nn.Module | dict[str, Any],
        graph: Graph,
        class_name: str = "GraphModule",
    ) -> None:
        super().__init__()
        type(self).__name__ = class_name
        if isinstance(root, nn.Module):
            self.training = root.training
            leave = functools.partial(_copy_attribute, root, self)
            _fx.take_over(self, root, graph, leave)
        elif isinstance(root, dict):
            named = [n for n in graph.nodes if n.op in ("get_attr", "call_module")]
            for node in named:
                if node.target not in root:
                    raise RuntimeError(
                        f"Node {node} referenced target {node.target} but that "
                        "target was not provided in ``root``!"
                    )
            paths = dict.fromkeys(str(node.target) for node in named)
            for path in sorted(paths, key=lambda path: path.count(".")):
                _assign(self, path, root[path])
        else:
            raise RuntimeError(f"Unsupported type {root} passed for root!")
        self.meta: dict[str, Any] = {}
        cls = graph._tracer_cls
        self._tracer_cls = (
            cls if cls is not None and "<locals>" not in cls.__qualname__ else None
        )
        self._tracer_extras = graph._tracer_extras or {}
        self.graph = graph

    # -- graph and code

    @property
    def graph(self) -> Graph:
        """The graph it computes. Assign one to compute that."""
        return self._graph

    @graph.setter
    def graph(self, graph: Graph) -> None:
        if not isinstance(graph, Graph):
            raise AssertionError(f"Expected a Graph instance, but got {type(graph)}")
        self._graph = graph
        graph.owning_module = self
        self._generate()

    @property
    def code(self) -> str:
        """The source of ``forward``, as of the last :meth:`recompile`."""
        return self._code

    def _generate(self) -> PythonCode:
        """The source, of the graph as it is now; CPython sees it at a call."""
        codegen = self._graph._codegen
        if isinstance(codegen, PyTreeCodeGen):
            self._in_spec = codegen.pytree_info.in_spec
            self._out_spec = codegen.pytree_info.out_spec
        made = self._graph.python_code("self")
        self._code = made.src
        self._lineno_map = made._lineno_map
        self._prologue_start = made._prologue_start
        fields = self._graph._co_fields
        cls: Any = type(self)
        cls.forward = _Forward(made, dict(fields))
        if "_wrapped_call" not in vars(cls):
            cls._wrapped_call = _WrappedCall(cls, vars(cls).get("__call__"))
            cls.__call__ = _call_wrapped
        return made

    def recompile(self) -> PythonCode:
        """Make ``code`` and ``forward`` anew, of the graph as it is now."""
        made = self._generate()
        for child in self.children():
            if isinstance(child, GraphModule):
                child.recompile()
        return made

    # -- the module tree

    def add_submodule(self, target: str, m: nn.Module) -> bool:
        """Put a module at a path; modules on the way are made.

        False where something on the way is no module.
        """
        *prefix, name = target.split(".")
        module: nn.Module = self
        for part in prefix:
            inner = getattr(module, part, None)
            if inner is None:
                inner = nn.Module()
                setattr(module, part, inner)
            if not isinstance(inner, nn.Module):
                return False
            module = inner
        module.add_module(name, m)
        return True

    def delete_submodule(self, target: str) -> bool:
        """Delete the module at a path; False where there is none."""
        *prefix, name = target.split(".")
        module: Any = self
        for part in prefix:
            module = getattr(module, part, None)
            if not isinstance(module, nn.Module):
                return False
        if not isinstance(getattr(module, name, None), nn.Module):
            return False
        delattr(module, name)
        return True

    def delete_all_unused_submodules(self) -> None:
        """Delete the modules that the graph does not need.

        It needs what its nodes name, what that is in, and all there is in
        modules that it calls.
        """
        used: set[str] = set()
        for node in self.graph.nodes:
            if node.op not in ("call_module", "get_attr"):
                continue
            parts = node.target.split(".")
            used.update(".".join(parts[: i + 1]) for i in range(len(parts)))
            if node.op == "call_module":
                try:
                    called = self.get_submodule(node.target)
                except AttributeError:
                    continue
                used.update(
                    f"{node.target}.{name}" for name, _ in called.named_modules()
                )
        for name in [name for name, _ in self.named_modules() if name not in used]:
            if name:
                self.delete_submodule(name)

    # -- copies

    def __copy__(self) -> GraphModule:
        made = GraphModule(self, self.graph, type(self).__name__)
        made.meta = self.meta
        return made

    def __deepcopy__(self, memo: dict[Any, Any]) -> GraphModule:
        made = _new_module(type(self), type(self).__name__)
        memo[id(self)] = made
        graph = copy.deepcopy(self._graph, memo)
        made.__setstate__((copy.deepcopy(self._own_state(), memo), graph))
        return made

    def _own_state(self) -> dict[str, Any]:
        generated = ("_graph", "_code", "_lineno_map", "_prologue_start")
        return {k: v for k, v in self.__dict__.items() if k not in generated}

    def __reduce__(self) -> Any:
        base = next(
            cls for cls in type(self).__mro__ if not cls.__dict__.get("_is_own_class")
        )
        state = self._own_state(), self._graph
        return _new_module, (base, type(self).__name__), state

    def __setstate__(self, state: Any) -> None:
        attributes, graph = state
        self.__dict__.update(attributes)
        self.graph = graph

    # -- text

    def print_readable(
        self,
        print_output: bool = True,
        include_stride: bool = False,
        include_device: bool = False,
        colored: bool = False,
    ) -> str:
        """The code of the module and of GraphModules in it, with places.

        The other arguments are those of torch.fx, and change nothing.
        """
        text = self._readable(type(self).__name__)
        if print_output:
            print(text)
        return text

    def _readable(self, name: str) -> str:
        body = self.graph.python_code("self", verbose=True).src.lstrip("\n")
        text = _indented(f"class {name}(torch.nn.Module):\n{body}")
        inner = [
            child._readable(child_name)
            for child_name, child in self.named_children()
            if isinstance(child, GraphModule)
        ]
        return text + _indented("\n".join(["", *inner]))

    def __str__(self) -> str:
        hint = "# To see more debug info, please use `graph_module.print_readable()`"
        return "\n".join([super().__str__(), self.code, hint])

    # -- elsewhere

    def to_folder(
        self, folder: str | os.PathLike[str], module_name: str = "FxModule"
    ) -> None:
        """Write a package that has this module as the class `module_name`.

        The package needs torch (and what the code calls), not this process:
        ``from <folder> import <module_name>``, in any.
        """
        write_package(self, Path(folder), module_name)

    def to_torch(self) -> torch.fx.GraphModule:
        """The same as a ``torch.fx.GraphModule``, on the same parameters."""
        from framejit.fx._torch_bridge import to_torch

        return to_torch(self)


def _new_module(cls: type[GraphModule], class_name: str) -> GraphModule:
    """One without a graph, yet."""
    module = cls.__new__(cls)
    nn.Module.__init__(module)
    type(module).__name__ = class_name
    return module


def _indented(text: str) -> str:
    """All lines but the first, four columns to the right."""
    first, *rest = text.split("\n")
    return "\n".join([first, *("    " + line for line in rest)])


# ---- calls, and errors in them


class _WrappedCall:
    """Calls a module; an error in generated code is shown where it happened."""

    def __init__(self, cls: type, own: Callable[..., Any] | None) -> None:
        self.cls = cls
        self.cls_call = own

    def __call__(self, module: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            if self.cls_call is not None:
                return self.cls_call(module, *args, **kwargs)
            return super(self.cls, module).__call__(*args, **kwargs)  # type: ignore[misc,arg-type]
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)
            ours = [frame for frame in frames if frame.filename.startswith(_FILE)]
            if ours and not getattr(error, "__framejit_fx_shown__", False):
                _note_place(error, module, ours[-1])
            raise


def _call_wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
    return self._wrapped_call(self, *args, **kwargs)


def _note_place(error: Exception, module: Any, frame: traceback.FrameSummary) -> None:
    """Says in notes which line of generated code it was, and whose."""
    lines = linecache.getlines(frame.filename)
    at = frame.lineno or 1
    shown = [
        f"{'-->' if number == at else '   '} {number}: {lines[number - 1].rstrip()}"
        for number in range(max(1, at - 1), min(len(lines), at + 1) + 1)
    ]
    text = "in generated code of framejit.fx:\n" + "\n".join(shown)
    node = _node_of_line(module, frame)
    place = innermost(node.stack_trace) if node is not None else None
    if place:
        text += f"\nwhich is of {place.file}:{place.line}: {place.code}"
    error.__framejit_fx_shown__ = True  # type: ignore[attr-defined]
    error.add_note(text)


def _node_of_line(module: Any, frame: traceback.FrameSummary) -> Node | None:
    for owner in module.modules():
        if (
            isinstance(owner, GraphModule)
            and vars(type(owner)).get("_file") == frame.filename
        ):
            line = (frame.lineno or 0) - owner._prologue_start
            index = owner._lineno_map.get(line)
            if index is not None:
                return next(
                    (n for i, n in enumerate(owner.graph.nodes) if i == index), None
                )
    return None


# ---- to_folder


def _import_text(name: str, value: Any) -> str:
    if name in BUILTINS:
        return BUILTINS[name].import_text
    if is_from_torch(value):
        return "import torch"
    module, attribute = value.__module__, value.__qualname__
    found: Any = sys.modules.get(module)
    for part in attribute.split("."):
        found = getattr(found, part, None)
    if found is not value or module == "__main__":
        raise RuntimeError(
            f"the code calls {value!r}, which no import leads to: move it to a module"
        )
    first, _, rest = attribute.partition(".")
    if not rest:
        return f"from {module} import {first} as {name}"
    return f"from {module} import {first}\n{name} = {attribute}"


#: Modules whose repr makes them again.
_BY_REPR = (
    *(nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d),
    *(nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d),
)


def write_package(module: GraphModule, folder: Path, name: str) -> None:
    """What :meth:`GraphModule.to_folder` writes."""
    folder.mkdir(exist_ok=True)
    torch.save(module.state_dict(), folder / "state_dict.pt")
    code = module.recompile()
    if isinstance(module.graph._codegen, PyTreeCodeGen):
        torch.save((module._in_spec, module._out_spec), folder / "specs.pt")
    imports = {"import torch": None}
    for global_name, value in code.globals.items():
        if global_name in code.src:  # (others have no need to be there)
            imports[_import_text(global_name, value)] = None
    lines: list[str] = []
    pickled: list[str] = []
    for child_name, child in module.named_children():
        if type(child) in _BY_REPR:
            text = f"torch.nn.{child!r}"
        else:
            torch.save(child, folder / f"{child_name}.pt")
            pickled.append(child_name)
            text = f"torch.load(here / '{child_name}.pt', weights_only=False)"
        lines.append(f"self.add_module('{child_name}', {text})")
    for key, buffer in module._buffers.items():
        if buffer is not None:
            empty = f"torch.empty({list(buffer.shape)}, dtype={buffer.dtype})"
            lines.append(f"self.register_buffer('{key}', {empty})")
    for key, parameter in module._parameters.items():
        if parameter is not None:
            empty = f"torch.empty({list(parameter.shape)}, dtype={parameter.dtype})"
            lines.append(f"self.{key} = torch.nn.Parameter({empty})")
    lines.append("self.load_state_dict(torch.load(here / 'state_dict.pt'))")
    if (folder / "specs.pt").exists():
        lines.append(
            "self._in_spec, self._out_spec = "
            "torch.load(here / 'specs.pt', weights_only=False)"
        )
    lines.append(f"self.train({module.training})")
    body = "\n".join(f"        {line}" for line in lines)
    forward = "\n".join("    " + line for line in code.src.strip("\n").split("\n"))
    (folder / "module.py").write_text(
        "from pathlib import Path\n" + "\n".join(imports) + "\n\n"
        "here = Path(__file__).parent\n\n\n"
        f"class {name}(torch.nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        f"{body}\n\n{forward}\n"
    )
    (folder / "__init__.py").write_text("from .module import *\n")
    if pickled:
        warnings.warn(
            "these children have no repr that makes them again, and were saved as "
            f"pickled files: {pickled}",
            stacklevel=3,
        )
