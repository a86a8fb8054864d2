"""Graph -> Python source.

Each node is one statement; a name is set to None in the statement that used it
last, so values go as early as they can. ``CodeGen`` may be derived from: what
the function takes and returns is up to its methods, and so are more globals.
"""

from __future__ import annotations

import ast
import builtins
import collections
import enum
import types
import typing
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch.utils import _pytree as pytree

from framejit._C import _fx
from framejit.fx._names import (
    BUILTINS,
    Namespace,
    is_from_torch,
    is_name,
    is_odd_path,
    qualified_name,
    target_attribute,
    type_repr,
)
from framejit.fx._operators import INPLACE, OPERATORS
from framejit.fx.node import Node

if TYPE_CHECKING:
    from framejit.fx.graph import Graph

__all__ = ["CodeGen", "PyTreeCodeGen", "PyTreeInfo", "PythonCode"]

_BUILTINS = frozenset(vars(builtins))
TransformCode = Callable[[list[str]], list[str]]


@dataclass
class PythonCode:
    """A function as source, and what its names stand for."""

    #: The source, of a function `forward`.
    src: str
    #: The globals it needs.
    globals: dict[str, Any]
    #: Line of the function, from its ``def`` on -> index of the node.
    _lineno_map: dict[int, int | None]
    #: The line of the ``def`` in `src`.
    _prologue_start: int = 0


class PyTreeInfo(NamedTuple):
    """How the parameters of the traced function are nested, and its result."""

    orig_args: list[str]
    in_spec: pytree.TreeSpec
    out_spec: pytree.TreeSpec | None


class CodeGen:
    """Writes the source of a graph's function."""

    def __init__(self) -> None:
        self._body_transformer: TransformCode | None = None
        self._func_name = "forward"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """The ``def`` line(s), given the parameters (may be changed)."""
        if not free_vars or free_vars[0] != "self":
            free_vars.insert(0, "self")
        parameters = ", ".join(free_vars)
        return f"def {self._func_name}({parameters}){maybe_return_annotation}:"

    def generate_output(
        self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr
    ) -> str:
        """The return statement; ``repr_fn`` is how it names values."""
        return f"return {repr_fn(output_args)}"

    def process_inputs(self, *args: Any) -> Any:
        """The inputs of the graph, of the arguments of the function."""
        return args

    def process_outputs(self, outputs: Any) -> Any:
        """What the function returns, of the output of the graph."""
        return outputs

    def additional_globals(self) -> list[tuple[str, Any]]:
        """More names of the source, and what they stand for."""
        return []

    def _gen_python_code(
        self,
        graph: Graph,
        root_module: str,
        namespace: Namespace,
        *,
        verbose: bool = False,
    ) -> PythonCode:
        return _Writer(self, graph, root_module, namespace, verbose).write()


class PyTreeCodeGen(CodeGen):
    """For functions whose arguments are nested: the graph has the leaves."""

    def __init__(self, pytree_info: PyTreeInfo) -> None:
        super().__init__()
        self.pytree_info = pytree_info

    def process_inputs(self, *args: Any) -> Any:
        """The leaves of the arguments."""
        return pytree.arg_tree_leaves(*args)

    def process_outputs(self, outputs: Any) -> Any:
        """The result, made from its leaves."""
        spec = self.pytree_info.out_spec
        if spec is None:
            return outputs
        leaves = outputs if isinstance(outputs, (list, tuple)) else [outputs]
        return pytree.tree_unflatten(leaves, spec)

    def _flattened(self, arguments: list[str]) -> str:
        """The expressions whose leaves the graph takes."""
        spec = self.pytree_info.in_spec
        nested = (
            spec.type is tuple
            and spec.num_children == 2
            and spec.child(0).type is tuple
            and spec.child(1).type is dict
        )
        if not nested:
            return f"[{', '.join(arguments)}]"
        count = spec.child(0).num_children
        positional = self.pytree_info.orig_args[:count]
        named = zip(
            spec.child(1).context, self.pytree_info.orig_args[count:], strict=True
        )
        items = ", ".join(f"'{key}':{name}" for key, name in named)
        return f"([{', '.join(positional)}], {{{items}}})"

    def gen_fn_def(self, free_vars: list[str], maybe_return_annotation: str) -> str:
        """Takes the arguments as they are nested, and binds the leaves."""
        arguments = list(self.pytree_info.orig_args)
        if arguments and arguments[0] == "self":
            free_vars.insert(0, "self")
        text = super().gen_fn_def(arguments[:], maybe_return_annotation)
        if not free_vars:
            return text
        typed = [name for name in free_vars if ":" in name]
        if typed:
            text += "\n    " + "".join(f"{name}; " for name in typed) + "\n"
        names = ", ".join(name.split(":")[0].split("#")[0] for name in free_vars)
        flattened = self._flattened(arguments)
        return (
            f"{text}\n    {names}, = "
            f"fx_pytree.tree_flatten_spec({flattened}, self._in_spec)"
        )

    def generate_output(
        self, output_args: Any, *, repr_fn: Callable[[Any], str] = repr
    ) -> str:
        """Returns what the leaves are leaves of."""
        if self.pytree_info.out_spec is None:
            return super().generate_output(output_args, repr_fn=repr_fn)
        return f"return pytree.tree_unflatten({repr_fn(output_args)}, self._out_spec)"


_OLD_GENERICS = {
    list: list,
    dict: dict,
    set: set,
    frozenset: frozenset,
    tuple: tuple,
}


class _Writer:
    """One run over one graph."""

    def __init__(
        self,
        codegen: CodeGen,
        graph: Graph,
        root_module: str,
        namespace: Namespace,
        verbose: bool,
    ) -> None:
        self.codegen = codegen
        self.graph = graph
        self.root = root_module
        self.namespace = namespace
        self.verbose = verbose
        self.names: dict[Node, str] = {}
        # How calls of a function are written, by function: see call_form.
        self.forms: dict[Any, tuple[str, str]] = {}
        self.globals: dict[str, Any] = {}
        self.wrapped: dict[str, None] = {}
        self.parameters: list[str] = []
        self.returns = ""
        self.body: list[str] = []
        self.last_place: str | None = None

    def write(self) -> PythonCode:
        for name, row in BUILTINS.items():
            self.add_global(name, row.object)
        has_odd_paths = self._check_targets()
        if self.verbose or self.codegen._body_transformer or has_odd_paths:
            made = self.write_here()
        else:
            made = self.write_fast()
        self._check_hidden(made.src)
        return made

    def write_fast(self) -> PythonCode:
        """In C++, which does not write paths that need escapes."""
        own_output = type(self.codegen).generate_output is not CodeGen.generate_output
        text, indices, self.parameters, self.returns, wrapped = _fx.write_source(
            self.graph, self.namespace.unique, self, self.root, own_output
        )
        self.wrapped = dict.fromkeys(wrapped)
        wraps, prologue = self._head()
        first = prologue.count("\n") + 1
        return PythonCode(
            f"\n{wraps}\n\n{prologue}\n{text}",
            self.globals,
            dict(enumerate(indices, first)),
            wraps.count("\n") + 4,
        )

    def write_here(self) -> PythonCode:
        """The same in Python, with places and body transformers."""
        last_uses = self.graph._last_uses()
        # Marks of the nodes, which body transformers pass on; see _finish.
        for index, node in enumerate(self.graph.nodes):
            if self.verbose:
                self._note_place(node)
            self.body.append(f"# COUNTER: {index}\n")
            self._emit(node)
            self._free(node, last_uses.get(node, []))
        if not self.body:
            self.body.append("pass\n")
        return self._finish()

    # -- what must not get into source

    def _check_targets(self) -> bool:
        """Are there paths that need escapes?

        Raises ValueError: a parameter has a name that no parameter can have.
        """
        has_odd_paths = False
        for node in self.graph.nodes:
            op = node.op
            if op == "call_function" or op == "output":
                continue
            target = str(node.target)
            if op != "placeholder":
                has_odd_paths = has_odd_paths or is_odd_path(target)
            elif not is_name(target.lstrip("*")):
                raise ValueError(
                    f"the placeholder {node.name} has the target {target!r}, which is "
                    "no name of a parameter"
                )
        return has_odd_paths

    def _check_hidden(self, source: str) -> None:
        """Raises ValueError: a parameter is called as a global or builtin that the
        source reads as well (``inf``, ``device``)."""
        names = {text.split(":")[0].split("=")[0].strip() for text in self.parameters}
        names = {name for name in names if name in self.globals or name in _BUILTINS}
        if not names:
            return
        function = ast.parse(source).body[-1]
        assert isinstance(function, ast.FunctionDef)
        reads = collections.Counter(
            node.id
            for line in function.body
            for node in ast.walk(line)
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        )
        # (One is ``inf_1 = inf``, where the parameter gets the name of its node.)
        if hidden := sorted(name for name in names if reads[name] > 1):
            raise ValueError(
                f"the parameter {hidden[0]} hides what the code of the graph means by "
                "that name: give it another one"
            )

    # -- what C++ asks (graph/fx/source_writer.cpp)

    def know(self, node: Node, name: str) -> None:
        """A node that the output names."""
        self.names[node] = name

    def output_text(self, value: Any) -> str:
        """The return statement."""
        return self.codegen.generate_output(value, repr_fn=self.text)

    def class_text(self, cls: type) -> str:
        """The name of a class of tuples."""
        return self.add_global(qualified_name(cls), cls)

    # -- names

    def name(self, node: Node) -> str:
        known = self.names.get(node)
        if known is None:
            known = self.names[node] = self.namespace.create_name(node.name, node)
        return known

    def add_global(self, hint: str, obj: Any) -> str:
        """The name by which the source has an object; torch's keep theirs."""
        if is_from_torch(obj) and obj != torch.device:
            return qualified_name(obj)
        name = self.namespace.create_name(hint, obj)
        if self.globals.setdefault(name, obj) is not obj and self.globals[name] != obj:
            raise AssertionError(f"{name} names two objects")
        return name

    def type_text(self, obj: Any) -> str:
        if obj == ():
            return "()"  # Tuple[()]
        text = type_repr(obj)
        if isinstance(obj, types.UnionType) and "|" in text:
            return "|".join(map(self.type_text, typing.get_args(obj)))
        origin = getattr(obj, "__origin__", None)
        if not origin:
            return self.add_global(text, obj)
        base = self.add_global(type_repr(origin), origin)
        parts = ",".join(map(self.type_text, typing.get_args(obj)))
        return f"{base}[{parts}]" if parts else base

    # -- expressions

    def text(self, arg: Any) -> str:
        """An argument as an expression."""
        if type(arg) is Node:
            return self.names.get(arg) or self.name(arg)
        if type(arg) in (int, str, float, bool):
            return repr(arg)
        if isinstance(arg, Node):
            return self.name(arg)
        if isinstance(arg, tuple):
            items = ", ".join(map(self.text, arg))
            if hasattr(arg, "_fields"):
                cls = type(arg)
                items += "," if len(arg) == 1 else ""
                return f"{self.add_global(qualified_name(cls), cls)}({items})"
            return f"({items}{',' if len(arg) == 1 else ''})"
        if isinstance(arg, (torch._ops.OpOverload, torch._ops.HigherOrderOperator)):
            return self.add_global(qualified_name(arg), arg)
        if isinstance(arg, enum.Enum):
            return f"{self.add_global(type(arg).__name__, type(arg))}.{arg.name}"
        if isinstance(arg, torch.Tensor):
            dtype = str(arg.dtype).split(".")[-1]
            return f"torch.Tensor(size={list(arg.shape)}, dtype={dtype})"
        if isinstance(arg, list):
            return f"[{', '.join(map(self.text, arg))}]"
        if isinstance(arg, slice):
            parts = ", ".join(map(self.text, (arg.start, arg.stop, arg.step)))
            return f"slice({parts})"
        if isinstance(arg, dict):
            items = ", ".join(f"{k!r}: {self.text(v)}" for k, v in arg.items())
            return f"{{{items}}}"
        return repr(arg)

    def call_text(self, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        parts = [self.text(arg) for arg in args]
        parts += [f"{name} = {self.text(arg)}" for name, arg in kwargs.items()]
        return ", ".join(parts)

    # -- statements

    def _emit(self, node: Node) -> None:
        write = self.body.append
        typed = "" if node.type is None else f" : {self.type_text(node.type)}"
        op, target = node.op, node.target
        if op == "output":
            if node.type is not None:
                self.returns = f" -> {self.type_text(node.type)}"
            write(self.codegen.generate_output(node.args[0], repr_fn=self.text))
        elif op == "placeholder":
            default = f" = {self.text(node.args[0])}" if node.args else ""
            self.parameters.append(f"{target}{typed}{default}")
            parameter = str(target).replace("*", "")
            if parameter != self.name(node):
                write(f"{self.name(node)} = {parameter}\n")
        elif op == "call_function":
            self._emit_function(node, f"{self.name(node)}{typed}")
        else:
            head = f"{self.name(node)}{typed} = "
            if op == "call_method":
                base = target_attribute(self.text(node.args[0]), str(target))
                write(f"{head}{base}({self.call_text(node.args[1:], node.kwargs)})")
            elif op == "call_module":
                base = target_attribute(self.root, str(target))
                write(f"{head}{base}({self.call_text(node.args, node.kwargs)})")
            else:
                write(head + target_attribute(self.root, str(target)))

    def call_form(self, target: Any) -> tuple[str, str]:
        """("operator", "{} + {}"), ("inplace", "{} += {}"), or ("call", a name)."""
        if getattr(target, "__module__", "") == "_operator":
            name = target.__name__
            if name in OPERATORS:
                return "operator", OPERATORS[name]
            if name in INPLACE:
                return "inplace", INPLACE[name]
        return "call", self.add_global(qualified_name(target), target)

    def _emit_function(self, node: Node, name: str) -> None:
        target, args = node.target, node.args
        try:
            form = self.forms.get(target)
            if form is None:
                form = self.forms[target] = self.call_form(target)
        except TypeError:  # it has no hash
            form = self.call_form(target)
        kind, function = form
        if kind == "operator":
            text = function.format(*map(self.text, args))
            return self.body.append(f"{name} = {text}")
        if kind == "inplace":
            text = function.format(*map(self.text, args))
            return self.body.append(f"{text};  {name} = {self.text(args[0])}")
        if (
            function == "getattr"
            and len(args) == 2
            and isinstance(args[1], str)
            and args[1].isidentifier()
        ):
            base = target_attribute(self.text(args[0]), args[1])
            return self.body.append(f"{name} = {base}")
        self.body.append(f"{name} = {function}({self.call_text(args, node.kwargs)})")
        if node.meta.get("is_wrapped", False):
            self.wrapped.setdefault(function)

    def _free(self, node: Node, dead: list[Node]) -> None:
        """Ends the line; what nobody needs any more is let go of."""
        if node.op == "placeholder":
            return
        names = [self.name(value) for value in dead]
        if not node.users:
            names.append(self.name(node))
        if node.op == "output" or not names:
            self.body.append("\n")
        else:
            self.body.append(f";  {' = '.join(names)} = None\n")

    def _note_place(self, node: Node) -> None:
        """Where in the user's program it comes from, once for each place."""
        if node.op in ("placeholder", "output"):
            return
        from framejit.fx._places import innermost

        place = innermost(node.stack_trace)
        text = (
            f"File: {place.file}:{place.line} in {place.name}, code: {place.code}"
            if place
            else "No stacktrace found for following nodes"
        )
        if text != self.last_place:
            self.last_place = text
            self.body.append(f"\n# {text}\n")

    # -- the function

    def _head(self) -> tuple[str, str]:
        """What stands before the body: calls of ``wrap``, and the ``def``."""
        wraps = ""
        if self.wrapped:
            from framejit.fx._symbolic_trace import wrap

            name = self.add_global("wrap", wrap)
            wraps = "\n".join(f'{name}("{function}")' for function in self.wrapped)
        for name, value in self.codegen.additional_globals():
            self.add_global(name, value)
        return wraps, self.codegen.gen_fn_def(self.parameters, self.returns)

    def _finish(self) -> PythonCode:
        body = self.body
        if self.codegen._body_transformer:
            body = self.codegen._body_transformer(body)
        wraps, prologue = self._head()

        lines: list[str] = []
        line_map: dict[int, int | None] = {}
        first = prologue.count("\n") + 1
        index: int | None = None
        for line in "".join(body).split("\n"):
            if line.startswith("# COUNTER: "):
                index = int(line[len("# COUNTER: ") :])
            else:
                line_map[len(lines) + first] = index
                lines.append(line)
        text = "\n".join(lines).lstrip("\n")
        text = "\n".join("    " + line for line in text.split("\n"))
        return PythonCode(
            f"\n{wraps}\n\n{prologue}\n{text}",
            self.globals,
            line_map,
            wraps.count("\n") + 4,
        )
